// `tamp inspect`: what a model holds and whether tamp supports it; or what the rProgram of a compiled folder does, as text, as JSON, as a
// page to look at, or for a trace viewer.
#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "codegen/codegen.h"
#include "compiler/cli/command.h"
#include "compiler/cli/compiled_folder.h"
#include "compiler/cli/page.h"
#include "compiler/cli/ports.h"
#include "compiler/cli/print_json.h"
#include "compiler/cli/process.h"
#include "compiler/cli/table.h"
#include "compiler/cli/this_gpu.h"
#include "compiler/cli/time_shares.h"
#include "compiler/cli/timeline_files.h"
#include "compiler/frontend/onnx_reader.h"
#include "compiler/support/log.h"
#include "compiler/support/text.h"

namespace tamp::cli {
namespace {

using Align = Table::Align;
using nlohmann::json;
using nlohmann::ordered_json;

constexpr size_t kLanesShown = 8;
constexpr size_t kSharesShown = 30;
constexpr size_t kLaneWidth = 110;

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::stringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

// A name from a model, cut only where it would break up a table on a terminal.
std::string whole_name(const std::string& name) { return printable(name, terminal_limit(120)); }

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
  Table table({{"OPERATOR"}, right("NODES")});
  for (const auto& [name, count] : model.histogram) table.row({printable(name), grouped(count)});
  fmt::print("{}\n", table.text());
}

// One sentence per thing that is not supported, found by compiling, so that they are the same as those of `tamp compile`. Without the
// weights only names and declared types can be checked.
std::vector<std::string> refusals_of(const std::string& path, const frontend::ModelSummary& model, const ModelArguments& arguments) {
  const CompileOptions options = compile_options(arguments);
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
  std::fflush(stdout);  // so that it comes before an error on stderr
  const std::vector<std::string> refusals = refusals_of(path, model, arguments);
  if (!model.missing_file.empty())
    fmt::print("weights     {} is not there: only names and declared types are looked at\n", printable(model.missing_file));
  if (refusals.empty()) {
    fmt::print("supported   every node\n");
    return ExitCode::ok;
  }
  fmt::print("not supported ({}):\n", grouped(static_cast<int64_t>(refusals.size())));
  const std::string prefix = printable(path, 400) + ": ";  // the path is printed only once
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
  if (m.launches > 0)
    fmt::print("launches    {} on {}, {} of them programmatic dependents\n", plural(m.launches, "kernel"), plural(m.streams, "stream"),
               grouped(m.dependent_launches));
  fmt::print("memory      weights {}, arena {}\n", bytes_text(m.weight_bytes), bytes_text(m.arena_bytes));
  const auto in_units = [](double number, const char* unit) { return scaled(number) + (number < 1000 ? " " : "") + unit; };
  fmt::print("work        {}, {} moved by rTasks\n", in_units(flops, "FLOP"), in_units(bytes, "B"));
  if (const auto narrow = std::count_if(m.rops.begin(), m.rops.end(), [](const auto& rop) { return bytes_of(rop.dtype) == 2; }); narrow > 0)
    fmt::print("activations {} of {} rOperators' results lie in 16 bits; RESULT says which\n", grouped(narrow),
               grouped(static_cast<int64_t>(m.rops.size())));
  for (const Port& port : m.inputs) fmt::print("input       '{}' {}\n", printable(port.name), port_text(m, port));
  for (const Port& port : m.outputs) {
    fmt::print(
        "output      '{}' {}{}{}\n", printable(port.name), port_text(m, port),
        port.in_place < 0 ? "" : fmt::format(", may stay in place of '{}'", printable(m.inputs[static_cast<size_t>(port.in_place)].name)),
        port.count < 0 ? ""
                       : fmt::format(", padded: valid along dimension {} are as many as '{}' says", port.count_axis,
                                     printable(m.outputs[static_cast<size_t>(port.count)].name)));
  }
}

void print_lengths(const CompiledFolder& m) {
  for (const Length& length : m.lengths) fmt::print("length      '{}' {}\n", printable(length.name), values_text(length));
  for (const CompiledFolder::Bucket& bucket : m.buckets) {
    if (m.buckets.size() == 1) break;  // `compiled` says all
    std::vector<std::string> texts;
    for (const Length& length : m.lengths)
      texts.push_back(fmt::format("{} up to {}", printable(length.name), bucket.largest.at(length.name)));
    fmt::print("bucket      {}: estimated {:.1f} us{}\n", join(texts, ", "), bucket.estimated_us,
               &bucket == &m.buckets.back() ? "; all that follows is of this one" : "");
  }
}

std::string percent(double share) { return fmt::format("{:.1f}", 100 * share); }

// A line for each kind or layer, the first `most` of them; those behind as one.
void print_shares(const char* title, const std::vector<TimeShare>& shares, size_t most, const TimeShares& all) {
  Table table({{title, Align::left, terminal_limit(60)},
               right("ROPERATORS"),
               right("CRITICAL US"),
               right("%"),
               right("BUSY VEU-US"),
               right("%"),
               right("FLOP")});
  const auto row = [&](const std::string& name, const TimeShare& share) {
    table.row({name, grouped(static_cast<int64_t>(share.rops.size())), fmt::format("{:.2f}", share.critical_us),
               percent(share.critical_share), fmt::format("{:.1f}", share.busy_us), percent(share.busy_share), scaled(share.flops)});
  };
  TimeShare rest;
  for (size_t i = 0; i < shares.size(); ++i) {
    if (i < most)
      row(whole_name(shares[i].name), shares[i]);
    else
      add(rest, shares[i]);
  }
  if (shares.size() > most) row(fmt::format("({} more)", shares.size() - most), rest);
  const double between_us = all.critical_us - all.computing_us;
  table.row({"(between rTasks)", "", fmt::format("{:.2f}", between_us), percent(between_us / std::max(1e-9, all.critical_us)), "", "", ""});
  fmt::print("\n{}", table.text());
}

void print_time(const CompiledFolder& m, bool all_lines) {
  const TimeShares shares = time_shares(m.rops, m.lanes);
  const size_t most = all_lines ? m.rops.size() : kSharesShown;
  fmt::print("critical    {:.1f} us from the first rTask to the last, {:.1f} us of that in {}; {:.1f} us before it for the launch\n",
             shares.critical_us, shares.computing_us, plural(shares.rtasks, "rTask"), shares.launch_us);
  print_shares("TIME BY KIND", shares.kinds, most, shares);
  print_shares("TIME BY LAYER", shares.layers, most, shares);
}

void print_rops(const CompiledFolder& m) {
  Table table({right("#"),
               {"ROPERATOR", Align::left, terminal_limit(40)},
               {"OP"},
               {"RESULT"},
               {"RKERNEL", Align::left, terminal_limit(48)},
               {"CHOSEN BY"},
               right("RTASKS"),
               right("VEUS"),
               right("WAITS"),
               right("ESTIMATED US"),
               right("FLOP"),
               right("BYTES"),
               right("WEIGHTS")});
  for (const auto& rop : m.rops) {
    table.row({std::to_string(&rop - m.rops.data()), whole_name(rop.name), printable(rop.op), type_text(rop.dtype, rop.shape),
               whole_name(rop.rkernel), printable(rop.chosen_by), grouped(rop.rtasks), grouped(rop.veus), grouped(rop.waits),
               fmt::format("{:.2f}", rop.estimated_us), scaled(rop.flops), scaled(rop.bytes), scaled(rop.weight_bytes)});
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
  Table table({{"RKERNEL", Align::left, terminal_limit(60)}, right("ROPERATORS"), right("RTASKS"), right("FLOP")});
  for (const auto& [name, use] : uses) table.row({whole_name(name), grouped(use.rops), grouped(use.rtasks), scaled(use.flops)});
  fmt::print("\n{}", table.text());
}

// "0*3 1 2*2": three rTasks of rOperator 0, one of rOperator 1, two of rOperator 2. "|" is an entry that only waits and signals.
std::string lane_text(const CompiledFolder::Lane& lane) {
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
  Table table({right("VEU"),
               right("RTASKS"),
               right("WAITS"),
               {"LANE (# of rOperator * rTasks)", Align::left, all ? terminal_limit(100000) : terminal_limit(kLaneWidth)}});
  const size_t shown = all ? m.lanes.size() : std::min(m.lanes.size(), kLanesShown);
  for (size_t veu = 0; veu < shown; ++veu) {
    int64_t rtasks = 0, waits = 0;
    for (const auto& entry : m.lanes[veu]) {
      rtasks += entry.rop >= 0 ? 1 : 0;
      waits += static_cast<int64_t>(entry.waits.size());
    }
    table.row({std::to_string(veu), grouped(rtasks), grouped(waits), lane_text(m.lanes[veu])});
  }
  fmt::print("\n{}", table.text());
  if (shown < m.lanes.size()) fmt::print("... and {} more (-v shows all)\n", plural(static_cast<int64_t>(m.lanes.size() - shown), "vEU"));
}

ExitCode inspect_folder(const CompiledFolder& m, bool all) {
  print_head(m);
  print_lengths(m);
  print_time(m, all);
  print_rops(m);
  print_rkernels(m);
  print_lanes(m, all);
  return ExitCode::ok;
}

// --- for tools --------------------------------------------------------------------------------------------------------

template <class Ports>
ordered_json model_ports_json(const Ports& ports) {
  ordered_json out = ordered_json::array();
  for (const auto& port : ports) {
    ordered_json shape;
    if (port.dims) shape = ordered_json::array();
    for (const frontend::DeclaredDim& dim : port.dims.value_or(std::vector<frontend::DeclaredDim>()))
      shape.push_back(dim.symbol.empty() ? ordered_json(dim.extent) : ordered_json(dim.symbol));
    out.push_back({{"name", port.name}, {"dtype", port.type}, {"shape", shape}});
  }
  return out;
}

ordered_json folder_ports_json(const std::vector<Port>& ports) {
  ordered_json out = ordered_json::array();
  for (const Port& port : ports) {
    out.push_back({{"name", port.name}, {"dtype", name_of(port.dtype)}, {"shape", port.shape}});
    for (const auto& [dim, extent] : port.axes)
      out.back()["axes"].push_back(
          {{"dim", dim}, {"length", extent.length}, {"times", extent.times}, {"plus", extent.plus}, {"over", extent.over}});
  }
  return out;
}

ordered_json lengths_json(const CompiledFolder& m) {
  ordered_json out = ordered_json::array();
  for (const Length& length : m.lengths) {
    out.push_back({{"name", length.name}, {"smallest", length.smallest}, {"largest", length.largest}});
    if (length.step != 1) out.back()["step"] = length.step;
  }
  return out;
}

ordered_json buckets_json(const CompiledFolder& m) {
  ordered_json out = ordered_json::array();
  for (const CompiledFolder::Bucket& bucket : m.buckets)
    out.push_back({{"largest", bucket.largest}, {"estimated_us", bucket.estimated_us}});
  return out;
}

ExitCode inspect_model_as_json(const std::string& path, const ModelArguments& arguments) {
  const frontend::ModelSummary model = frontend::summarize_onnx(path);
  ordered_json opsets = ordered_json::object(), operators = ordered_json::object();
  for (const auto& [domain, version] : model.opsets) opsets[domain.empty() ? "ai.onnx" : domain] = version;
  for (const auto& [name, count] : model.histogram) operators[name] = count;
  ordered_json out = {{"model", file_name(path)},
                      {"producer", model.producer},
                      {"ir_version", model.ir_version},
                      {"opsets", opsets},
                      {"inputs", model_ports_json(model.inputs)},
                      {"outputs", model_ports_json(model.outputs)},
                      {"parameters", model.parameters},
                      {"parameter_bytes", model.parameter_bytes},
                      {"nodes", model.nodes},
                      {"operators", operators},
                      {"missing_weights", model.missing_file}};
  try {
    const std::vector<std::string> refusals = refusals_of(path, model, arguments);
    out.update({{"supported", refusals.empty()}, {"not_supported", refusals}});
    print_json(out);
    return refusals.empty() ? ExitCode::ok : ExitCode::unsupported;
  } catch (const Error& error) {  // as for a symbol without a value
    out["error"] = error.what();
    print_json(out);
    throw;
  }
}

ExitCode inspect_folder_as_json(const CompiledFolder& m) {
  ordered_json rops = ordered_json::array(), lanes = ordered_json::array();
  for (const auto& rop : m.rops) {
    rops.push_back({{"name", rop.name},
                    {"op", rop.op},
                    {"origin", rop.origin},
                    {"dtype", name_of(rop.dtype)},
                    {"shape", rop.shape},
                    {"rkernel", rop.rkernel},
                    {"chosen_by", rop.chosen_by},
                    {"rtasks", rop.rtasks},
                    {"veus", rop.veus},
                    {"waits", rop.waits},
                    {"estimated_us", rop.estimated_us},
                    {"flops", rop.flops},
                    {"bytes", rop.bytes},
                    {"weight_bytes", rop.weight_bytes}});
  }
  for (const auto& lane : m.lanes) {
    int64_t rtasks = 0, waits = 0;
    for (const auto& entry : lane) {
      rtasks += entry.rop >= 0 ? 1 : 0;
      waits += static_cast<int64_t>(entry.waits.size());
    }
    lanes.push_back({{"rtasks", rtasks}, {"waits", waits}, {"runs", lane_text(lane)}});
  }
  ordered_json out = {
      {"name", m.name},
      {"source", m.source},
      {"vdevice", {{"name", m.vdevice}, {"arch", m.arch}, {"veus", m.veus}, {"threads", m.threads}, {"smem_bytes", m.smem_bytes}}},
      {"precision", m.precision},
      {"policy", m.policy},
      {"execution", m.execution},
      {"estimated_us", m.estimated_us},
      {"weight_bytes", m.weight_bytes},
      {"arena_bytes", m.arena_bytes},
      {"events", m.events},
      {"waits", m.waits},
      {"launches", m.launches},
      {"dependent_launches", m.dependent_launches},
      {"streams", m.streams},
      {"inputs", folder_ports_json(m.inputs)},
      {"outputs", folder_ports_json(m.outputs)},
      {"time", json_of(time_shares(m.rops, m.lanes))},
      {"rops", rops},
      {"lanes", lanes}};
  if (!m.lengths.empty()) out.update({{"lengths", lengths_json(m)}, {"buckets", buckets_json(m)}});
  print_json(out);
  return ExitCode::ok;
}

// --- files: a page, a trace -------------------------------------------------------------------------------------------

struct InspectArguments {
  std::string path, html, perfetto, trace;
  bool json = false;
  ModelArguments options;
};

std::string rprogram_json_of_model(const InspectArguments& arguments) {
  const CompileOptions options = compile_options(arguments.options);
  const RProgram program = compile(arguments.path, options).program;
  codegen::EmitOptions emitting{
      .name = model_name(arguments.path), .source_name = file_name(arguments.path), .invocation = options_text(arguments.options)};
  add_schedule(program, emitting);
  return codegen::rprogram_text(program, emitting);
}

void require_file(const char* flag, const std::string& path) {
  if (path.empty()) return;
  if (std::filesystem::is_directory(path)) throw bad_input("{} {}: is a folder, not a file", flag, printable(path));
  require_writable(fmt::format("{} {}", flag, printable(path)), folder_of(path));
}

ExitCode write_files(const InspectArguments& arguments, const std::string& rprogram_json) {
  try {
    const json rprogram = json::parse(rprogram_json);
    std::vector<std::vector<MeasuredSpan>> measured;
    if (!arguments.trace.empty()) measured = measured_spans(rprogram, read_text(arguments.trace), printable(arguments.trace));
    if (!arguments.html.empty()) {
      const std::string page = page_html(rprogram, measured);
      write_text(arguments.html, page);
      spdlog::info("wrote {} ({}): open it in a browser", printable(arguments.html), bytes_text(static_cast<int64_t>(page.size())));
    }
    if (!arguments.perfetto.empty()) {
      write_text(arguments.perfetto, planned_trace(rprogram));
      spdlog::info("wrote {}: opens in ui.perfetto.dev and chrome://tracing", printable(arguments.perfetto));
    }
    return ExitCode::ok;
  } catch (const json::exception& wrong) {
    throw bad_input("{}: the rProgram's JSON is not what tamp writes; compile the model again: {}", printable(arguments.path),
                    wrong.what());
  }
}

ExitCode inspect(InspectArguments arguments, bool all) {
  const bool writes = !arguments.html.empty() || !arguments.perfetto.empty();
  if (!arguments.trace.empty() && arguments.html.empty()) throw bad_input("--trace is of --html: give both");
  if (arguments.json && writes) throw bad_input("--json goes to standard output; give it without --html and --perfetto");
  require_file("--html", arguments.html);
  require_file("--perfetto", arguments.perfetto);
  const std::vector<std::pair<std::string, std::string>> outputs = {{"--html", arguments.html}, {"--perfetto", arguments.perfetto}};
  std::vector<std::filesystem::path> kept = {arguments.path, arguments.trace};
  require_apart(outputs, kept);
  if (!std::filesystem::is_directory(arguments.path)) {
    arguments.options.vdevice = planned_vdevice(arguments.options.vdevice);
    if (writes) return write_files(arguments, rprogram_json_of_model(arguments));
    return arguments.json ? inspect_model_as_json(arguments.path, arguments.options) : inspect_model(arguments.path, arguments.options);
  }
  const CompiledFolder folder = read_compiled_folder(arguments.path);
  for (const std::string& file : codegen::file_names({.name = folder.name, .embed_weights = folder.embedded_weights}))
    kept.push_back(folder.folder / file);
  require_apart(outputs, kept);
  if (writes) return write_files(arguments, rprogram_json_of(folder));
  return arguments.json ? inspect_folder_as_json(folder) : inspect_folder(folder, all);
}

}  // namespace

void add_inspect(CLI::App& app, Invocation& invocation) {
  CLI::App* command =
      add_command(app, invocation, "inspect", "Show what a model or a compiled folder holds",
                  "  tamp inspect resnet50.onnx    (and all that is not supported, as 'tamp compile' says it; exit code 2)\n"
                  "  tamp inspect model.onnx --dim batch=8\n"
                  "  tamp inspect resnet50/        (rOperators, rKernels, vEU lanes; -v: all lanes)\n"
                  "  tamp inspect resnet50/ --html resnet50.html    (lanes over time, arena, graph, table; also of a model)\n"
                  "  tamp run resnet50/ --trace trace.json && tamp inspect resnet50/ --html resnet50.html --trace trace.json\n"
                  "  tamp inspect resnet50/ --perfetto plan.json    (what is planned, for ui.perfetto.dev)\n"
                  "  tamp inspect resnet50/ --json");
  auto arguments = std::make_shared<InspectArguments>();
  add_value(*command, "model", "MODEL.onnx|DIR", arguments->path, "The ONNX file, or a folder of 'tamp compile'")->required();
  add_model_options(*command, arguments->options);
  add_value(*command, "--html", "FILE.html", arguments->html,
            "Write a page that draws the rProgram; it needs no network and no other file");
  add_value(*command, "--trace", "FILE.json", arguments->trace,
            "With --html: what 'tamp run --trace' of the same folder measured, above what was planned");
  add_value(*command, "--perfetto", "FILE.json", arguments->perfetto,
            "Write the planned times for ui.perfetto.dev or chrome://tracing; needs no GPU");
  command->add_flag("--json", arguments->json, "Print JSON instead of text");
  command->callback([&invocation, arguments] {
    invocation.run = [&invocation, arguments] { return inspect(*arguments, invocation.verbosity == Verbosity::verbose); };
  });
}

}  // namespace tamp::cli
