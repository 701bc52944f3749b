#include "compiler/cli/timeline_files.h"

#include <fmt/format.h>

#include <cmath>

#include "compiler/support/error.h"
#include "compiler/support/text.h"

namespace tamp::cli {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;

constexpr double kMostUs = 1e12;  // eleven days: longer than any run that is traced

// The name of a slice, as in trace.cpp.
std::string label(const json& rprogram, const json& entry) {
  const std::string name = rprogram.at("rops").at(entry.at("rop").get<size_t>()).at("name");
  const auto phase = entry.at("phase").get<int64_t>();
  return phase == 0 ? name : fmt::format("{}.{}", name, phase);
}

bool runs(const json& entry) { return entry.at("rop").get<int64_t>() >= 0; }

json parse_trace(const std::string& text, const std::string& source_name) {
  json trace = json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!trace.is_object() || !trace.contains("traceEvents") || !trace["traceEvents"].is_array())
    throw bad_input(fmt::format("{}: is not a trace of 'tamp run --trace'", source_name));
  return trace;
}

MeasuredSpan read_span(const json& slice, const json& rprogram, const json& entry, size_t veu, const std::string& source_name) {
  const MeasuredSpan span{slice.at("ts").get<double>(), slice.at("dur").get<double>()};
  const bool sane = span.begin_us >= 0 && span.begin_us < kMostUs && span.duration_us >= 0 && span.duration_us < kMostUs;
  const std::string name = slice.at("name"), wanted = label(rprogram, entry);
  const auto index = slice.at("args").at("rTask").get<int64_t>();
  if (name == wanted && index == entry.at("index").get<int64_t>() && sane) return span;
  throw bad_input(fmt::format("{}: is of another rProgram: vEU {} ran rTask {} of '{}' where {} has rTask {} of '{}'", source_name, veu,
                              index, printable(name), printable(rprogram.at("name").get<std::string>()), entry.at("index").get<int64_t>(),
                              printable(wanted)));
}

}  // namespace

std::string planned_trace(const json& rprogram) {
  ordered_json events = ordered_json::array();
  const auto name = [&](const char* kind, size_t veu, const std::string& text) {
    events.push_back({{"ph", "M"}, {"name", kind}, {"pid", 0}, {"tid", veu}, {"args", {{"name", text}}}});
  };
  name("process_name", 0, rprogram.at("name").get<std::string>() + " (planned)");
  const json& lanes = rprogram.at("lanes");
  for (size_t veu = 0; veu < lanes.size(); ++veu) {
    name("thread_name", veu, fmt::format("vEU {}", veu));
    events.push_back({{"ph", "M"}, {"name", "thread_sort_index"}, {"pid", 0}, {"tid", veu}, {"args", {{"sort_index", veu}}}});
  }
  for (size_t veu = 0; veu < lanes.size(); ++veu) {
    const json& times = rprogram.at("planned_ns").at(veu);
    double free_ns = 0;
    for (size_t i = 0; i < lanes[veu].size(); ++i) {
      const json& entry = lanes[veu][i];
      const auto begin_ns = times.at(2 * i).get<double>(), end_ns = times.at(2 * i + 1).get<double>();
      if (runs(entry)) {
        const ordered_json args = {{"rKernel", rprogram.at("rops").at(entry.at("rop").get<size_t>()).at("rkernel").get<std::string>()},
                                   {"rTask", entry.at("index").get<int64_t>()},
                                   {"waited us", (begin_ns - free_ns) / 1e3}};
        events.push_back({{"ph", "X"},
                          {"name", label(rprogram, entry)},
                          {"pid", 0},
                          {"tid", veu},
                          {"ts", begin_ns / 1e3},
                          {"dur", (end_ns - begin_ns) / 1e3},
                          {"args", args}});
      }
      free_ns = end_ns;
    }
  }
  const ordered_json out = {{"displayTimeUnit", "ns"}, {"traceEvents", std::move(events)}};
  return out.dump(-1, ' ', /*ensure_ascii=*/true, ordered_json::error_handler_t::replace) + "\n";
}

std::vector<std::vector<MeasuredSpan>> measured_spans(const json& rprogram, const std::string& text, const std::string& source_name) {
  const json trace = parse_trace(text, source_name);
  const json& lanes = rprogram.at("lanes");
  std::vector<std::vector<MeasuredSpan>> out(lanes.size());
  std::vector<std::vector<const json*>> entries(lanes.size());
  for (size_t veu = 0; veu < lanes.size(); ++veu) {
    for (const json& entry : lanes[veu]) {
      if (runs(entry)) entries[veu].push_back(&entry);
    }
  }
  try {
    for (const json& slice : trace["traceEvents"]) {
      if (slice.at("ph") != "X") continue;
      const auto veu = slice.at("tid").get<int64_t>();
      if (veu < 0 || veu >= static_cast<int64_t>(lanes.size()) ||
          out[static_cast<size_t>(veu)].size() == entries[static_cast<size_t>(veu)].size())
        throw bad_input(fmt::format("{}: is of another rProgram: it has more rTasks on vEU {}", source_name, veu));
      auto& spans = out[static_cast<size_t>(veu)];
      spans.push_back(read_span(slice, rprogram, *entries[static_cast<size_t>(veu)][spans.size()], static_cast<size_t>(veu), source_name));
    }
  } catch (const json::exception& wrong) {
    throw bad_input(fmt::format("{}: is not a trace of 'tamp run --trace': {}", source_name, wrong.what()));
  }
  for (size_t veu = 0; veu < out.size(); ++veu) {
    if (out[veu].size() != entries[veu].size())
      throw bad_input(fmt::format("{}: is of another rProgram: vEU {} ran {} rTasks, expected {}", source_name, veu, out[veu].size(),
                                  entries[veu].size()));
  }
  return out;
}

}  // namespace tamp::cli
