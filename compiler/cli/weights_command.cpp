// `tamp weights`: makes other weights for a program that was compiled before. The program is made again, with the schedule in
// NAME.rprogram.json. If the code differs from the old one by a byte, the weights do not fit, since values may have become parts of the
// code.
#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "codegen/codegen.h"
#include "compiler/cli/command.h"
#include "compiler/cli/compiled_folder.h"
#include "compiler/cli/ports.h"
#include "compiler/cli/process.h"
#include "compiler/ir/vdevice.h"
#include "compiler/schedule/schedule_file.h"
#include "compiler/select/records.h"
#include "compiler/support/files.h"
#include "compiler/support/text.h"
#include "compiler/support/version.h"

namespace tamp::cli {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

struct WeightsArguments {
  std::string model, like, output, vdevice;
  std::vector<std::string> frozen;
};

// The folder of --like, and what only this command reads from it.
struct Like {
  CompiledFolder folder;
  json rprogram;
  std::string schedule, structure;  // as text
  std::string rprogram_path() const { return printable((folder.folder / (folder.name + ".rprogram.json")).string()); }
};

Like read_like(const std::string& path) {
  Like like{read_compiled_folder(path), {}, {}, {}};
  like.rprogram = json::parse(rprogram_json_of(like.folder), nullptr, /*allow_exceptions=*/false);
  const auto text = [&](const char* key) { return like.rprogram.value(key, json()); };
  if (text("tamp") != std::string(version()))
    throw bad_input("{}: written by another tamp, this is {}; compile the model again", like.rprogram_path(), version());
  if (!text("structure").is_string() || !text("schedule").is_object() || !like.folder.origin)
    throw bad_input("{}: lacks its structure, schedule or model; compile the model again", like.rprogram_path());
  text("structure").get_to(like.structure);
  like.schedule = text("schedule").dump();
  return like;
}

std::string type_of(const json& port) {
  return fmt::format("{}[{}]", port.value("dtype", ""), fmt::join(port.at("shape").get<Shape>(), ","));
}

// The first of two lists of ports that differ, as a sentence; empty: none.
std::string difference(const char* what, const Graph& graph, const std::vector<TensorId>& ports, const json& there) {
  if (there.size() != ports.size()) return fmt::format("it has {} {}s, the program has {}", ports.size(), what, there.size());
  for (size_t i = 0; i < ports.size(); ++i) {
    const Tensor& tensor = graph.tensor(ports[i]);
    const std::string here = fmt::format("'{}' {}", printable(tensor.name), type_text(tensor.dtype, tensor.shape));
    const std::string other = fmt::format("'{}' {}", printable(there[i].at("name").get<std::string>()), type_of(there[i]));
    if (here != other) return fmt::format("{} {} is {}, the program has {}", what, i, here, other);
  }
  return "";
}

// For graphs whose schedules have different keys: what differs.
std::string difference(const Graph& graph, const json& there) {
  for (const std::string& ports :
       {difference("input", graph, graph.inputs, there.at("inputs")), difference("output", graph, graph.outputs, there.at("outputs"))}) {
    if (!ports.empty()) return ports;
  }
  if (there.at("schedule").contains("merges")) return "its graph is another one";  // the listed rops are those of the merged graph
  const json& rops = there.at("rops");
  for (size_t i = 0; i < std::min(rops.size(), graph.rops.size()); ++i) {
    const ROperator& rop = graph.rops[i];
    const auto name = rops[i].at("name").get<std::string>(), does = rops[i].value("signature", "");
    const std::string here = select::signature(graph, rop);
    if (rop.name != name || here != does)
      return fmt::format("rOperator {} is '{}', {}; in the program it is '{}', {}", i, printable(rop.name), here, printable(name), does);
  }
  if (rops.size() != graph.rops.size()) return fmt::format("it has {} rOperators, the program has {}", graph.rops.size(), rops.size());
  return "its rOperators are the same, but their tensors have other names or places";
}

std::string trimmed(const std::string& line) { return line.substr(std::min(line.find_first_not_of(' '), line.size())); }

std::vector<std::string> code_lines(const std::string& source, const std::string& name) {
  std::vector<std::string> lines;
  const size_t begin = source.find(fmt::format("\n#include \"{}.h\"\n", name));  // after the head
  size_t at = begin == std::string::npos ? 0 : begin + 1;
  while (at < source.size()) {
    const size_t end = std::min(source.find('\n', at), source.size());
    lines.push_back(source.substr(at, end - at));
    at = end + 1;
  }
  return lines;
}

// For programs whose code has different hashes: the first line that differs.
std::string difference(const Like& like, const RProgram& program, const codegen::EmitOptions& emitting) {
  const fs::path path = like.folder.folder / (like.folder.name + ".cu");
  std::error_code ignored;
  if (like.folder.embedded_weights || !fs::is_regular_file(path, ignored)) return "its code would be another one";
  const std::vector<std::string> there = code_lines(read_text(path), like.folder.name);
  const std::vector<std::string> here = code_lines(codegen::cuda_source(program, emitting), like.folder.name);
  for (size_t i = 0; i < std::min(here.size(), there.size()); ++i) {
    if (here[i] == there[i] || here[i].find("/*structure=*/") != std::string::npos) continue;
    return fmt::format("its code would have the line '{}' where {} has '{}'", printable(trimmed(here[i])), printable(path.string()),
                       printable(trimmed(there[i])));
  }
  return "its code would be longer or shorter";
}

// The program of a bucket, which the folder describes as `there`, or the only one.
RProgram bucket_like(const WeightsArguments& arguments, const json& there, CompileOptions options, Graph& source) {
  const json& schedule = there.at("schedule");
  options.schedule_text = schedule.dump();
  Prepared prepared = prepare(arguments.model, options);
  const std::string key = schedule::key_of(prepared.graph, prepared.vdevice, prepared.setting.precision, options.batch).model;
  if (!schedule.contains("merges") && schedule.value("model", "") != key) {
    throw bad_input("{}: does not fit {}: {}", printable(arguments.model), printable(arguments.like), difference(prepared.graph, there));
  }
  const select::Records none;
  try {
    RProgram program = plan(prepared, options, &none);
    source = std::move(prepared.source);
    return program;
  } catch (const Error& refused) {  // for example a rKernel that does not take these values
    throw bad_input("{}: does not fit {}: {}", printable(arguments.model), printable(arguments.like), refused.what());
  }
}

// `source` becomes that of the largest bucket.
RProgram program_like(const Like& like, const WeightsArguments& arguments, const CompileOptions& options, Graph& source) {
  const Buckets buckets = buckets_of(options);
  std::vector<RProgram> programs;
  for (const CompileOptions& one : buckets.options) {
    const bool is_last = programs.size() + 1 == buckets.options.size();
    programs.push_back(bucket_like(arguments, is_last ? like.rprogram : like.rprogram.at("smaller").at(programs.size()), one, source));
  }
  return join_buckets(std::move(programs), buckets.largest);
}

// The vDevice of --like: the manifest has only its name.
std::string vdevice_like(const Like& like, const WeightsArguments& arguments) {
  if (!arguments.vdevice.empty()) return arguments.vdevice;
  const std::vector<std::string> names = builtin_vdevices();
  if (std::find(names.begin(), names.end(), like.folder.vdevice) != names.end()) return like.folder.vdevice;
  throw bad_input("{} was compiled for vDevice '{}' of a file; give it with --vdevice FILE.json", printable(arguments.like),
                  printable(like.folder.vdevice));
}

CompileOptions options_like(const Like& like, const WeightsArguments& arguments) {
  const CompiledFolder& folder = like.folder;
  CompileOptions options = reading_options(*folder.origin, frozen_values(arguments.frozen));
  options.vdevice = vdevice_like(like, arguments);
  options.precision = folder.precision;
  options.execution = schedule::parse_execution(folder.execution);
  options.narrow_activations = folder.origin->narrow_activations;
  for (const std::string& input : folder.origin->frozen) {
    if (!options.frozen.contains(input))
      throw bad_input("{} was compiled with --freeze {}=FILE; give it again", printable(arguments.like), printable(input));
  }
  options.schedule = like.rprogram_path();
  options.schedule_text = like.schedule;
  return options;
}

// Checked before any work: an existing weights file may be replaced if it has the same structure; nothing else may be.
void check_place(const Like& like, const std::string& output) {
  std::error_code ignored;
  const fs::file_type type = fs::status(output, ignored).type();
  require_writable(printable(output), folder_of(output));
  if (type == fs::file_type::not_found) return;
  const std::optional<uint64_t> structure =
      type == fs::file_type::regular ? codegen::structure_of_weights(output) : std::optional<uint64_t>();
  if (structure && fmt::format("{:016x}", *structure) == like.structure) return;
  throw bad_input("{}: is there and holds no weights for {}; move it away or give another name", printable(output),
                  printable(like.folder.folder.string()));
}

ExitCode write_weights(const WeightsArguments& arguments) {
  const Like like = read_like(arguments.like);
  const CompiledFolder& folder = like.folder;
  std::error_code ignored;
  const bool is_own = !folder.embedded_weights && fs::equivalent(folder.folder / (folder.name + ".weights"), arguments.output, ignored);
  codegen::EmitOptions emitting{.name = folder.name, .source_name = file_name(arguments.model)};
  if (is_own)
    codegen::check_output(arguments.like, emitting);
  else
    check_place(like, arguments.output);
  const CompileOptions options = options_like(like, arguments);
  Graph source;
  const RProgram program = program_like(like, arguments, options, source);
  const uint64_t structure = codegen::structure_of(program, emitting);
  if (fmt::format("{:016x}", structure) != like.structure) {
    throw bad_input("{}: does not fit {}: {}; compile it", printable(arguments.model), printable(arguments.like),
                    difference(like, program, emitting));
  }
  if (is_own) {
    emitting.origin = origin_of(arguments.model, source, options);
    codegen::replace_weights(program, structure, emitting, arguments.like);
  } else {
    replace_file(arguments.output, [&](NewFile& file) { codegen::write_weights(program, structure, file); });
  }
  spdlog::info("wrote {}: {} of weights for {}, structure {}", printable(arguments.output), bytes_text(program.weight_bytes), folder.name,
               like.structure);
  return ExitCode::ok;
}

ExitCode weights_command(const WeightsArguments& arguments) {
  try {
    return write_weights(arguments);
  } catch (const json::exception& wrong) {
    throw bad_input("{}: NAME.rprogram.json is not what tamp writes: {}", printable(arguments.like), printable(wrong.what()));
  }
}

}  // namespace

void add_weights(CLI::App& app, Invocation& invocation) {
  CLI::App* command =
      add_command(app, invocation, "weights", "Write other weights for a program that was compiled already",
                  "  tamp weights retrained.onnx --like resnet50/ -o retrained.weights\n"
                  "  tamp weights retrained.onnx --like resnet50/ -o resnet50/resnet50.weights\n"
                  "The program reads them when it is created; it is not built again. Options are those that the folder was\n"
                  "compiled with. A model whose program would differ by a byte is refused: another shape, operator or scalar.");
  auto arguments = std::make_shared<WeightsArguments>();
  add_value(*command, "model", "MODEL.onnx", arguments->model, "The ONNX file with the weights")->required();
  add_value(*command, "--like", "DIR", arguments->like, "Folder of 'tamp compile' or 'tamp tune' with the program")->required();
  add_value(*command, "-o,--output", "FILE.weights", arguments->output, "File to write; weights of the same program are replaced")
      ->required();
  add_value(*command, "--vdevice", "FILE.json", arguments->vdevice, "If the program was compiled for a vDevice of a file: that file");
  add_repeated(*command, "--freeze", "NAME=FILE", arguments->frozen, "As it was compiled with; may be repeated");
  command->callback([&invocation, arguments] { invocation.run = [arguments] { return weights_command(*arguments); }; });
}

}  // namespace tamp::cli
