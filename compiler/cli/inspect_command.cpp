// `tamp inspect`: what a model holds and whether tamp supports it; or what the rProgram of a compiled folder does.
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <map>
#include <set>
#include <sstream>

#include "codegen/codegen.h"
#include "compiler/cli/command.h"
#include "compiler/cli/compiled_folder.h"
#include "compiler/cli/table.h"
#include "compiler/frontend/onnx_reader.h"
#include "compiler/support/text.h"

namespace tamp::cli {
namespace {

using Align = Table::Align;

constexpr size_t kLanesShown = 8;
constexpr size_t kLaneWidth = 110;

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::stringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

std::string plural(int64_t n, const char* noun) { return fmt::format("{} {}{}", grouped(n), noun, n == 1 ? "" : "s"); }

void print_summary(const std::string& path, const frontend::ModelSummary& model) {
  fmt::print("model       {}\n", printable(file_name(path)));
  if (!model.producer.empty()) fmt::print("producer    {}\n", printable(model.producer));
  fmt::print("IR version  {}\n", model.ir_version);
  for (const auto& [domain, version] : model.opsets)
    fmt::print("opset       {} {}\n", domain.empty() ? "ai.onnx" : printable(domain), version);
  for (const auto& port : model.inputs) fmt::print("input       '{}' {}{}\n", printable(port.name), port.type, printable(port.shape));
  for (const auto& port : model.outputs) fmt::print("output      '{}' {}{}\n", printable(port.name), port.type, printable(port.shape));
  fmt::print("parameters  {} ({})\n", grouped(model.parameters), bytes_text(model.parameter_bytes));
  fmt::print("nodes       {}\n\n", grouped(model.nodes));
  Table table({{"OPERATOR"}, {"NODES", Align::right}});
  for (const auto& [name, count] : model.histogram) table.row({printable(name), grouped(count)});
  fmt::print("{}\n", table.text());
}

// One sentence per thing that is not supported: what `tamp compile` says, by compiling. Without the weights only names and
// declared types can be looked at.
std::vector<std::string> refusals_of(const std::string& path, const frontend::ModelSummary& model, const ModelArguments& arguments) {
  const CompileOptions options = compile_options(arguments, "h200");
  if (!model.missing_file.empty()) return model.unsupported;
  try {
    codegen::cuda_source(compile(path, options).program, {.name = "model", .source_name = {}});
    return {};
  } catch (const Error& error) {
    if (error.code() != ExitCode::unsupported) throw;
    return lines_of(error.what());
  }
}

ExitCode inspect_model(const std::string& path, const ModelArguments& arguments) {
  const frontend::ModelSummary model = frontend::summarize_onnx(path);
  print_summary(path, model);
  std::fflush(stdout);  // before an error on stderr
  const std::vector<std::string> refusals = refusals_of(path, model, arguments);
  if (!model.missing_file.empty())
    fmt::print("weights     {} is not there: only names and declared types are looked at\n", printable(model.missing_file));
  if (refusals.empty()) {
    fmt::print("supported   every node\n");
    return ExitCode::ok;
  }
  fmt::print("not supported ({}):\n", grouped(static_cast<int64_t>(refusals.size())));
  const std::string prefix = printable(path, 400) + ": ";  // said once is enough
  for (const std::string& sentence : refusals)
    fmt::print("  {}\n", sentence.starts_with(prefix) ? sentence.substr(prefix.size()) : sentence);
  return ExitCode::unsupported;
}

void print_head(const CompiledFolder& m) {
  int64_t rtasks = 0;
  double flops = 0, bytes = 0;
  std::set<std::string> rkernels;
  for (const auto& rop : m.rops) {
    rtasks += rop.rtasks;
    flops += rop.flops;
    bytes += rop.bytes + rop.weight_bytes;
    rkernels.insert(rop.rkernel);
  }
  fmt::print("rProgram    {}, from {}\n", m.name, printable(m.source));
  fmt::print("vDevice     {} ({}): {} of {} threads, {} of shared memory each\n", printable(m.vdevice), m.arch,
             plural(static_cast<int64_t>(m.lanes.size()), "vEU"), m.threads, bytes_text(m.smem_bytes));
  fmt::print("compiled    {}, {} policy, {} execution, estimated {:.1f} us\n", printable(m.precision), printable(m.policy),
             printable(m.execution), m.estimated_us);
  fmt::print("size        {} ({} in the longest chain), {}, {}, {}\n", plural(static_cast<int64_t>(m.rops.size()), "rOperator"), m.depth,
             plural(rtasks, "rTask"), plural(m.events, "event"), plural(m.waits, "wait"));
  fmt::print("memory      weights {}, arena {}\n", bytes_text(m.weight_bytes), bytes_text(m.arena_bytes));
  fmt::print("work        {}FLOP, {}B moved by rTasks\n", scaled(flops), scaled(bytes));
  for (const Port& port : m.inputs)
    fmt::print("input       '{}' {}{}\n", printable(port.name), name_of(port.dtype), shape_text(port.shape));
  for (const Port& port : m.outputs) {
    fmt::print("output      '{}' {}{}{}\n", printable(port.name), name_of(port.dtype), shape_text(port.shape),
               port.count < 0 ? ""
                              : fmt::format(", padded: valid along dimension {} are as many as '{}' says", port.count_axis,
                                            printable(m.outputs[static_cast<size_t>(port.count)].name)));
  }
}

void print_rops(const CompiledFolder& m) {
  Table table({{"#", Align::right},
               {"ROPERATOR", Align::left, 40},
               {"OP"},
               {"SHAPE"},
               {"RKERNEL", Align::left, 48},
               {"CHOSEN BY"},
               {"RTASKS", Align::right},
               {"VEUS", Align::right},
               {"WAITS", Align::right},
               {"FLOP", Align::right},
               {"BYTES", Align::right},
               {"WEIGHTS", Align::right}});
  for (const auto& rop : m.rops) {
    table.row({std::to_string(&rop - m.rops.data()), printable(rop.name), printable(rop.op), shape_text(rop.shape), printable(rop.rkernel),
               printable(rop.chosen_by), grouped(rop.rtasks), grouped(rop.veus), grouped(rop.waits), scaled(rop.flops), scaled(rop.bytes),
               scaled(rop.weight_bytes)});
  }
  fmt::print("\n{}", table.text());
}

void print_rkernels(const CompiledFolder& m) {
  struct Use {
    int64_t rops = 0, rtasks = 0;
    double flops = 0;
  };
  std::map<std::string, Use> uses;
  for (const auto& rop : m.rops) {
    Use& use = uses[rop.rkernel];
    ++use.rops;
    use.rtasks += rop.rtasks;
    use.flops += rop.flops;
  }
  Table table({{"RKERNEL"}, {"ROPERATORS", Align::right}, {"RTASKS", Align::right}, {"FLOP", Align::right}});
  for (const auto& [name, use] : uses) table.row({printable(name), grouped(use.rops), grouped(use.rtasks), scaled(use.flops)});
  fmt::print("\n{}", table.text());
}

// "0*3 1 2*2": runs of rTasks, by the number of their rOperator; "|" where an entry only waits and signals.
std::string lane_text(const std::vector<CompiledFolder::LaneEntry>& lane) {
  std::vector<std::string> runs;
  for (size_t i = 0; i < lane.size();) {
    size_t end = i;
    while (end < lane.size() && lane[end].rop == lane[i].rop) ++end;
    const std::string name = lane[i].rop < 0 ? "|" : std::to_string(lane[i].rop);
    runs.push_back(end - i == 1 ? name : fmt::format("{}*{}", name, end - i));
    i = end;
  }
  return join(runs, " ");
}

void print_lanes(const CompiledFolder& m, bool all) {
  Table table({{"VEU", Align::right},
               {"RTASKS", Align::right},
               {"WAITS", Align::right},
               {"LANE (# of rOperator * rTasks)", Align::left, all ? 100000 : kLaneWidth}});
  const size_t shown = all ? m.lanes.size() : std::min(m.lanes.size(), kLanesShown);
  for (size_t veu = 0; veu < shown; ++veu) {
    int64_t rtasks = 0, waits = 0;
    for (const auto& entry : m.lanes[veu]) {
      rtasks += entry.rop >= 0 ? 1 : 0;
      waits += entry.waits;
    }
    table.row({std::to_string(veu), grouped(rtasks), grouped(waits), lane_text(m.lanes[veu])});
  }
  fmt::print("\n{}", table.text());
  if (shown < m.lanes.size()) fmt::print("... and {} more (-v shows all)\n", plural(static_cast<int64_t>(m.lanes.size() - shown), "vEU"));
}

ExitCode inspect_folder(const std::string& path, bool all) {
  const CompiledFolder m = read_compiled_folder(path);
  print_head(m);
  print_rops(m);
  print_rkernels(m);
  print_lanes(m, all);
  return ExitCode::ok;
}

}  // namespace

void add_inspect(CLI::App& app, Invocation& invocation) {
  CLI::App* command =
      add_command(app, invocation, "inspect", "Show what a model or a compiled folder holds",
                  "  tamp inspect resnet50.onnx    (and all that is not supported, as 'tamp compile' says it; exit code 2)\n"
                  "  tamp inspect model.onnx --dim batch=8\n"
                  "  tamp inspect resnet50/        (rOperators, rKernels, vEU lanes; -v: all lanes)");
  struct Arguments {
    std::string path;
    ModelArguments options;
  };
  auto arguments = std::make_shared<Arguments>();
  command->add_option("model", arguments->path, "The ONNX file, or a folder of 'tamp compile'")->required()->option_text("MODEL.onnx|DIR");
  add_model_options(*command, arguments->options);
  command->callback([&invocation, arguments] {
    invocation.run = [&invocation, arguments] {
      return std::filesystem::is_directory(arguments->path) ? inspect_folder(arguments->path, invocation.verbosity == Verbosity::verbose)
                                                            : inspect_model(arguments->path, arguments->options);
    };
  });
}

}  // namespace tamp::cli
