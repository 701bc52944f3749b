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

const json& rop_of(const json& rprogram, const json& entry) { return rprogram.at("rops").at(entry.at("rop").get<size_t>()); }

bool runs(const json& entry) { return entry.at("rop").get<int64_t>() >= 0; }

json parse_trace(const std::string& text, const std::string& source_name) {
  json trace = json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!trace.is_object() || !trace.contains("traceEvents") || !trace["traceEvents"].is_array())
    throw bad_input("{}: is not a trace of 'tamp run --trace'", source_name);
  return trace;
}

MeasuredSpan read_span(const json& slice, const json& rprogram, const json& entry, size_t veu, const std::string& source_name) {
  const MeasuredSpan span{slice.at("ts").get<double>(), slice.at("dur").get<double>()};
  const bool sane = span.begin_us >= 0 && span.begin_us < kMostUs && span.duration_us >= 0 && span.duration_us < kMostUs;
  const std::string name = slice.at("name"), wanted = slice_name(rop_of(rprogram, entry), entry.at("phase"));
  const auto index = slice.at("args").at("rTask").get<int64_t>();
  if (name == wanted && index == entry.at("index").get<int64_t>() && sane) return span;
  throw bad_input("{}: is of another rProgram: vEU {} ran rTask {} of '{}' where {} has rTask {} of '{}'", source_name, veu, index,
                  printable(name), printable(rprogram.at("name").get<std::string>()), entry.at("index").get<int64_t>(), printable(wanted));
}

}  // namespace

std::string slice_name(const json& rop, int64_t phase) {
  const std::string name = rop.at("name");
  return phase == 0 ? name : fmt::format("{}.{}", name, phase);
}

TraceEvents::TraceEvents(const std::string& process, size_t veus) {
  const auto name = [&](const char* kind, size_t veu, const std::string& text) {
    events_.push_back({{"ph", "M"}, {"name", kind}, {"pid", 0}, {"tid", veu}, {"args", {{"name", text}}}});
  };
  name("process_name", 0, process);
  for (size_t veu = 0; veu < veus; ++veu) {
    name("thread_name", veu, fmt::format("vEU {}", veu));
    events_.push_back({{"ph", "M"}, {"name", "thread_sort_index"}, {"pid", 0}, {"tid", veu}, {"args", {{"sort_index", veu}}}});
  }
}

void TraceEvents::add(size_t veu, const json& rop, int64_t phase, int64_t index, double begin_us, double duration_us, double waited_us) {
  const ordered_json args = {{"rKernel", rop.at("rkernel").get<std::string>()}, {"rTask", index}, {"waited us", waited_us}};
  events_.push_back(
      {{"ph", "X"}, {"name", slice_name(rop, phase)}, {"pid", 0}, {"tid", veu}, {"ts", begin_us}, {"dur", duration_us}, {"args", args}});
}

std::string TraceEvents::text() && {
  const ordered_json out = {{"displayTimeUnit", "ns"}, {"traceEvents", std::move(events_)}};
  return out.dump(-1, ' ', /*ensure_ascii=*/true, ordered_json::error_handler_t::replace) + "\n";
}

std::string planned_trace(const json& rprogram) {
  const json& lanes = rprogram.at("lanes");
  TraceEvents events(rprogram.at("name").get<std::string>() + " (planned)", lanes.size());
  for (size_t veu = 0; veu < lanes.size(); ++veu) {
    const json& times = rprogram.at("planned_ns").at(veu);
    double free_ns = 0;
    for (size_t i = 0; i < lanes[veu].size(); ++i) {
      const json& entry = lanes[veu][i];
      const auto begin_ns = times.at(2 * i).get<double>(), end_ns = times.at(2 * i + 1).get<double>();
      if (runs(entry)) {
        events.add(veu, rop_of(rprogram, entry), entry.at("phase"), entry.at("index"), begin_ns / 1e3, (end_ns - begin_ns) / 1e3,
                   (begin_ns - free_ns) / 1e3);
      }
      free_ns = end_ns;
    }
  }
  return std::move(events).text();
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
        throw bad_input("{}: is of another rProgram: it has more rTasks on vEU {}", source_name, veu);
      auto& spans = out[static_cast<size_t>(veu)];
      spans.push_back(read_span(slice, rprogram, *entries[static_cast<size_t>(veu)][spans.size()], static_cast<size_t>(veu), source_name));
    }
  } catch (const json::exception& wrong) {
    throw bad_input("{}: is not a trace of 'tamp run --trace': {}", source_name, wrong.what());
  }
  for (size_t veu = 0; veu < out.size(); ++veu) {
    if (out[veu].size() != entries[veu].size())
      throw bad_input("{}: is of another rProgram: vEU {} ran {} rTasks, expected {}", source_name, veu, out[veu].size(),
                      entries[veu].size());
  }
  return out;
}

}  // namespace tamp::cli
