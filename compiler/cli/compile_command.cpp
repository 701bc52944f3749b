// `tamp compile`: makes a folder of generated files from a model.
#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string_view>

#include "codegen/codegen.h"
#include "compiler/cli/command.h"
#include "compiler/cli/compiled_folder.h"
#include "compiler/cli/measure_stages.h"
#include "compiler/cli/print_json.h"
#include "compiler/cli/process.h"
#include "compiler/cli/standard_input.h"
#include "compiler/cli/table.h"
#include "compiler/cli/this_gpu.h"
#include "compiler/frontend/external_files.h"
#include "compiler/schedule/schedule_file.h"
#include "compiler/support/text.h"

namespace tamp::cli {
namespace {

struct CompileArguments {
  std::string model, output, name, dump, depfile, save_schedule, refusals;
  bool embed_weights = false, dry_run = false, as_json = false;
  ModelArguments options;
};

bool is_piped(const CompileArguments& arguments) { return arguments.model == kStandardInput; }

std::string chosen_name(const CompileArguments& arguments) {
  if (arguments.name.empty() && is_piped(arguments)) throw bad_input("-: a model from standard input has no name; give --name NAME");
  if (arguments.name.empty()) return model_name(arguments.model);
  const std::string safe = codegen::safe_name(arguments.name);
  if (identifier(arguments.name) != arguments.name)
    throw bad_input(fmt::format("--name '{}' is not a legal name in C++; near it: {}", printable(arguments.name), safe));
  if (safe != arguments.name) {
    throw bad_input(fmt::format("--name '{}': C, C++, POSIX, CUDA or CMake has that name, or a header {}.h; near it: {}", arguments.name,
                                arguments.name, safe));
  }
  return arguments.name;
}

// A path with the escapes that make and ninja understand.
std::string make_path(const std::string& path) {
  std::string out;
  for (const char c : path) {
    if (c == ' ' || c == '#' || c == ':') out += '\\';
    if (c == '$') out += '$';
    out += c;
  }
  return out;
}

// Error for a path that a rule cannot hold: a line end would begin another rule, and of a name that the model chooses, a semicolon a
// recipe. make and ninja have no escape in common for these.
void expect_in_rule(const std::string& path, bool is_of_model) {
  const auto ends_name = [&](char c) {
    return (c >= 0 && c < ' ') || c == 127 || (is_of_model && std::string_view(";|*?\\").find(c) != std::string_view::npos);
  };
  const auto found = std::find_if(path.begin(), path.end(), ends_name);
  if (found == path.end()) return;
  throw bad_input(fmt::format("--depfile: the name '{}' {} cannot be written into a Makefile rule, since it holds '{}'; rename it",
                              printable(path), is_of_model ? "of external data" : "of a file", printable(std::string(1, *found))));
}

// "out/NAME.cu: model.onnx model.bin", one file a line, as compilers write it with -MF.
std::string depfile_text(const CompileArguments& arguments, const std::string& name) {
  std::vector<std::string> files;
  if (!is_piped(arguments)) files.push_back(arguments.model);
  for (std::string& file : frontend::external_files(arguments.model)) {
    expect_in_rule(file, /*is_of_model=*/true);
    files.push_back(std::move(file));
  }
  if (arguments.options.vdevice.ends_with(".json")) files.push_back(arguments.options.vdevice);
  if (!arguments.options.schedule.empty()) files.push_back(arguments.options.schedule);
  if (!arguments.options.generation.empty() && !arguments.options.generation.starts_with('{'))
    files.push_back(arguments.options.generation);
  if (!arguments.options.records.empty() && arguments.options.records != "none") files.push_back(arguments.options.records);
  for (const std::string& text : arguments.options.frozen) files.push_back(split_assignment("--freeze", text).second);
  const std::string target = (std::filesystem::path(arguments.output) / (name + ".cu")).string();
  expect_in_rule(target, /*is_of_model=*/false);
  std::string out = make_path(target) + ":";
  for (const std::string& file : files) {
    expect_in_rule(file, /*is_of_model=*/false);
    out += " \\\n  " + make_path(file);
  }
  return out + "\n";
}

// Into a folder that is there.
void write_beside(const std::string& file, const std::string& text) {
  std::ofstream out(file, std::ios::binary);
  out << text;
  out.close();
  if (!out) throw bad_input(fmt::format("{}: cannot be written", printable(file)));
}

// Error if a model from standard input has weights in other files: those lie in the model's folder, and standard input has none.
void require_whole_model() {
  const std::vector<std::string> files = frontend::external_files(kStandardInput);
  if (files.empty()) return;
  throw bad_input(
      fmt::format("{}: keeps data in other files, '{}' the first, which standard input cannot have beside it; give the model's file",
                  kStandardInput, printable(file_name(files.front()))));
}

// For --dry-run: each file, its size where that is known, and whether it replaces an existing file.
void print_files(const CompileArguments& arguments, const std::string& name, const codegen::FileSizes& sizes) {
  namespace fs = std::filesystem;
  using Align = Table::Align;
  Table table({{"WOULD WRITE", Align::left, 400}, right("BYTES"), {""}});
  const auto row = [&](const fs::path& path, const std::string& bytes) {
    std::error_code ignored;
    table.row({printable(path.string(), 400), bytes, fs::exists(path, ignored) ? "replaces it" : "new"});
  };
  for (const auto& [file, bytes] : sizes) row(fs::path(arguments.output) / file, grouped(bytes));
  for (const std::string& file : {arguments.depfile, arguments.save_schedule, arguments.dump}) {
    if (!file.empty()) row(file, "");
  }
  fmt::print("{}", table.text());
  spdlog::info("{}: nothing is written (--dry-run)", name);
}

// For --json: the files with their sizes, and what NAME.rprogram.json says of the program as a whole.
void print_as_json(const CompileArguments& arguments, const codegen::FileSizes& sizes, const std::string& rprogram) {
  const auto all = nlohmann::ordered_json::parse(rprogram);
  nlohmann::ordered_json out, files = nlohmann::ordered_json::array();
  for (const char* field : {"name", "source", "tamp", "options", "vdevice", "precision", "policy", "execution", "estimated_us",
                            "arena_bytes", "weight_bytes", "structure", "inputs", "outputs", "waits"})
    out[field] = all.at(field);
  for (const char* list : {"rops", "launches"}) out[list] = all.at(list).size();
  if (all.contains("lengths")) {
    out["lengths"] = all["lengths"];
    for (const auto& smaller : all.value("smaller", nlohmann::ordered_json::array()))
      out["buckets"].push_back({{"lengths", smaller.at("lengths")}, {"estimated_us", smaller.at("estimated_us")}});
    out["buckets"].push_back({{"lengths", all["lengths"]}, {"estimated_us", all["estimated_us"]}});
  }
  for (const auto& [file, bytes] : sizes)
    files.push_back({{"path", (std::filesystem::path(arguments.output) / file).string()}, {"bytes", bytes}});
  out["files"] = files;
  out["dry_run"] = arguments.dry_run;
  print_json(out);
}

// The reasons of `error` as a JSON array. A reason that is not about one thing of a model has no other fields.
nlohmann::ordered_json refusals_json(const Error& error) {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  if (error.code() != ExitCode::unsupported) return list;
  std::vector<Refusal> refusals = error.refusals();
  if (refusals.empty()) refusals.push_back({"", "", error.what()});
  for (const Refusal& refusal : refusals) list.push_back({{"node", refusal.node}, {"operator", refusal.op}, {"reason", refusal.reason}});
  return list;
}

// Error before a model is read if the file's folder neither is there nor is made with `output`, as one that `output` lies in.
void require_folder(const std::string& option, const std::string& file, const std::string& output) {
  namespace fs = std::filesystem;
  if (file.empty() || fs::is_directory(folder_of(file))) return;
  const fs::path folder = fs::weakly_canonical(folder_of(file)), made = fs::weakly_canonical(output);
  const bool lies_in = std::mismatch(folder.begin(), folder.end(), made.begin(), made.end()).first == folder.end();
  if (!lies_in) throw bad_input(fmt::format("{} {}: there is no folder {}", option, printable(file), printable(folder.string())));
}

// A bucket is worth a kernel of its own if its runs take less time than they would take in the next.
void report_buckets(const RProgram& program) {
  constexpr double kWorth = 0.95;
  const std::vector<std::string> texts = codegen::bucket_texts(program);
  for (size_t b = 0; b < texts.size(); ++b) {
    spdlog::info("bucket: {}", texts[b]);
    if (b + 1 == texts.size()) break;
    const RProgram& next = b + 2 == texts.size() ? program : program.smaller[b + 1];
    if (program.smaller[b].estimated_us > kWorth * next.estimated_us)
      spdlog::warn("a bucket is not worth its code: {}; the next one: {}", texts[b], texts[b + 1]);
  }
}

ExitCode compile_to_folder(CompileArguments arguments) {
  if (arguments.output.empty()) throw bad_input("--output: is empty, expected a folder");
  const std::string name = chosen_name(arguments);
  // A model from standard input is treated as if its file were called NAME.onnx.
  const std::string source_name = is_piped(arguments) ? name + ".onnx" : file_name(arguments.model);
  codegen::EmitOptions emitting{.name = name, .source_name = source_name, .embed_weights = arguments.embed_weights};
  codegen::check_output(arguments.output, emitting);
  std::vector<std::filesystem::path> kept;
  for (const std::string& file : codegen::file_names(emitting)) kept.push_back(std::filesystem::path(arguments.output) / file);
  if (!is_piped(arguments)) kept.emplace_back(arguments.model);
  require_apart({{"--depfile", arguments.depfile}, {"--save-schedule", arguments.save_schedule}, {"--refusals", arguments.refusals}}, kept);
  require_folder("--depfile", arguments.depfile, arguments.output);
  require_folder("--save-schedule", arguments.save_schedule, arguments.output);
  require_folder("--refusals", arguments.refusals, arguments.output);
  const bool on_gpu = arguments.options.measure && choose_device("cuda") == Device::cuda;
  std::string& vdevice = arguments.options.vdevice;
  vdevice = on_gpu ? vdevice_to_run(vdevice, /*on_gpu=*/true) : planned_vdevice(vdevice);
  CompileOptions options = compile_options(arguments.options);
  if (!arguments.dry_run) options.dump_dir = arguments.dump;
  if (is_piped(arguments)) {
    const Progress progress("reads standard input");
    keep_standard_input();
    require_whole_model();
  }
  const std::string depfile = arguments.depfile.empty() ? "" : depfile_text(arguments, name);
  set_measure(arguments.options, {.model = arguments.model}, options);
  if (!arguments.save_schedule.empty() && buckets_of(options).options.size() > 1)
    throw bad_input("--save-schedule: several buckets are several programs, and a schedule is of one");
  const Compiled compiled = compile(arguments.model, options);
  report_buckets(compiled.program);
  emitting.origin = origin_of(arguments.model, compiled.source, compiled.options);
  emitting.invocation = options_text(arguments.options);
  add_schedule(compiled.program, emitting);
  const Progress progress("writes " + printable(arguments.output));
  if (arguments.dry_run) {
    const codegen::FileSizes sizes = codegen::emitted_files(compiled.program, emitting);
    if (arguments.as_json)
      print_as_json(arguments, sizes, codegen::rprogram_text(compiled.program, emitting));
    else
      print_files(arguments, name, sizes);
    return ExitCode::ok;
  }
  const codegen::FileSizes sizes = codegen::emit(compiled.program, emitting, arguments.output);
  if (!arguments.depfile.empty()) write_beside(arguments.depfile, depfile);
  if (!arguments.save_schedule.empty()) write_beside(arguments.save_schedule, schedule::schedule_text(compiled.program, options.batch));
  if (arguments.as_json) print_as_json(arguments, sizes, read_text(std::filesystem::path(arguments.output) / sizes.back().first));
  spdlog::info("wrote {}: {}.cu, {}.h, {} of weights", printable(arguments.output), name, name, bytes_text(compiled.program.weight_bytes));
  return ExitCode::ok;
}

ExitCode compile_model(const CompileArguments& arguments) {
  try {
    return compile_to_folder(arguments);
  } catch (const Error& error) {
    const nlohmann::ordered_json refusals = refusals_json(error);
    if (arguments.as_json) print_json({{"error", error.what()}, {"exit_code", static_cast<int>(error.code())}, {"refusals", refusals}});
    // Names are bytes of the file, which need not be text.
    if (!arguments.refusals.empty() && !arguments.dry_run && !refusals.empty())
      write_text(arguments.refusals, refusals.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n");
    throw;
  }
}

}  // namespace

void add_compile(CLI::App& app, Invocation& invocation) {
  CLI::App* command = add_command(app, invocation, "compile", "Compile an ONNX model to a folder with one CUDA source file",
                                  "  tamp compile resnet50.onnx -o resnet50/\n"
                                  "  tamp compile model.onnx -o model/ --vdevice a100 --precision fp32\n"
                                  "  tamp compile model.onnx -o model/ --dim batch=8 --dim sequence=128\n"
                                  "  tamp compile model.onnx -o model/ --batch 8\n"
                                  "  tamp compile model.onnx -o model/ --dim sequence=1:512      (each run says which)\n"
                                  "  tamp compile model.onnx -o model/ --dim sequence=16,64,512  (the same, with a program up to each)\n"
                                  "  tamp compile decoder.onnx -o decoder/ --generate --dim seq=1,64      (makes tokens: NAME_generate)\n"
                                  "  tamp compile model.onnx -o model/ --freeze mask=mask.npy\n"
                                  "  tamp compile model.onnx -o model/ --policy list --save-schedule model.schedule.json\n"
                                  "  tamp compile model.onnx -o model/ --schedule model.schedule.json\n"
                                  "  tamp compile model.onnx -o model/ --dump stages/\n"
                                  "  tamp compile model.onnx -o model/ --dry-run           (what would be written, and nothing else)\n"
                                  "  make_model | tamp compile - --name model -o model/    (from standard input)");
  auto arguments = std::make_shared<CompileArguments>();
  add_value(*command, "model", "MODEL.onnx|-", arguments->model, "The ONNX file; -: standard input")->required();
  add_value(*command, "-o,--output", "DIR", arguments->output, "Folder to write; an earlier compilation of the model is replaced")
      ->required();
  add_value(*command, "--name", "NAME", arguments->name, "Name of the generated files and symbols; default: the model's file name");
  command->add_flag("--dry-run", arguments->dry_run, "Do all but writing, and list what would be written");
  command->add_flag("--json", arguments->as_json, "Print what was written as JSON, or the error (docs/reference/json.md)");
  add_model_options(*command, arguments->options);
  add_generate_option(*command, arguments->options);
  add_ios_option(*command, arguments->options);
  add_measure_option(*command, arguments->options);
  add_records_option(*command, arguments->options);
  add_schedule_option(*command, arguments->options);
  add_value(*command, "--save-schedule", "FILE", arguments->save_schedule,
            "Write rKernels, lanes and Waits to this file (docs/policies.md)");
  command->add_flag("--embed-weights", arguments->embed_weights, "Put the weights into the .cu instead of NAME.weights (small models)");
  add_value(*command, "--depfile", "FILE", arguments->depfile,
            "Write a Makefile rule that lists the files that were read, external weights among them");
  add_value(*command, "--refusals", "FILE.json", arguments->refusals,
            "If something is not supported, write all of it to this file as JSON: node, operator, reason");
  add_value(*command, "--dump", "DIR", arguments->dump, "Write the graph after every stage into this folder");
  command->callback([&invocation, arguments] {
    if (arguments->model == "-") arguments->model = kStandardInput;
    invocation.run = [arguments] { return compile_model(*arguments); };
  });
}

}  // namespace tamp::cli
