// Names on the page come from models that nobody trusts. They get into the page as JSON in a <script> that is data, with every < as \u003c,
// so that no name can end the <script>. The page's own script shows names as text only, and its Content-Security-Policy lets nothing be
// loaded.
#include "compiler/cli/page.h"

#include <fmt/format.h>

#include <cmath>
#include <map>
#include <string_view>

#include "compiler/cli/time_shares.h"
#include "compiler/support/embedded.h"
#include "compiler/support/error.h"
#include "kernels/vdevice/numbers.cuh"

namespace tamp::cli {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;

// Checks that a number indexes `size` things, or is -1 where `least` allows that.
int64_t index_of(const json& value, size_t size, int64_t least, const char* what) {
  const auto index = value.get<int64_t>();
  if (index < least || index >= static_cast<int64_t>(size)) throw bad_input("field '{}' names what is not there", what);
  return index;
}

ordered_json indices(const json& list, size_t size, const char* what) {
  ordered_json out = ordered_json::array();
  for (const json& value : list) out.push_back(index_of(value, size, 0, what));
  return out;
}

ordered_json rops_json(const json& rprogram) {
  ordered_json out = ordered_json::array();
  for (const json& rop : rprogram.at("rops")) {
    ordered_json phases = ordered_json::array();
    for (const json& phase : rop.at("phases"))
      phases.push_back(
          {phase.at("rtasks").get<int64_t>(), phase.at("rtask_bytes").get<double>(), phase.at("rtask_weight_bytes").get<double>()});
    ordered_json line = {{"after", indices(rop.at("after"), out.size(), "after")}, {"phases", phases}};  // in topological order
    for (const char* field : {"name", "op", "dtype", "rkernel", "chosen_by"}) line[field] = rop.at(field).get<std::string>();
    for (const char* field : {"rtasks", "veus", "line"}) line[field] = rop.at(field).get<int64_t>();
    for (const char* field : {"flops", "bytes", "weight_bytes"}) line[field] = rop.at(field).get<double>();
    line["gang"] = rop.at("gang").get<bool>();
    line["origin"] = rop.at("origin").get<std::vector<std::string>>();
    line["shape"] = rop.at("shape").get<std::vector<int64_t>>();
    out.push_back(std::move(line));
  }
  return out;
}

ordered_json arena_json(const json& rprogram) {
  const size_t rops = rprogram.at("rops").size();
  ordered_json out = ordered_json::array();
  for (const json& part : rprogram.at("arena")) {
    out.push_back({{"offset", part.at("offset").get<int64_t>()},
                   {"bytes", part.at("bytes").get<int64_t>()},
                   {"what", part.at("what").get<std::string>()},
                   {"tensors", part.at("tensors").get<std::vector<std::string>>()},
                   {"made_by", indices(part.at("made_by"), rops, "made_by")},
                   {"needed_by", indices(part.at("needed_by"), rops, "needed_by")}});
  }
  return out;
}

// Most entries of lanes are like other entries but for the rTask: each different step is written once.
class Lanes {
 public:
  explicit Lanes(const json& rprogram) : rops_(rprogram.at("rops")) {
    const json &lanes = rprogram.at("lanes"), &times = rprogram.at("planned_ns");
    if (times.empty()) throw bad_input("it has no planned times; compile the model again");
    for (size_t veu = 0; veu < lanes.size(); ++veu) lanes_.push_back(lane(lanes[veu], times[veu]));
  }
  const ordered_json& steps() const { return steps_; }
  const ordered_json& lanes() const { return lanes_; }

 private:
  int64_t step(const json& entry) {
    const auto rop = entry.at("rop").get<int64_t>(), phase = entry.at("phase").get<int64_t>();
    if (rop >= 0) index_of(entry.at("phase"), rops_[static_cast<size_t>(rop)].at("phases").size(), 0, "phase");
    std::vector<int64_t> key = {rop, phase, entry.at("signal").get<int64_t>()};
    for (const json& event : entry.at("waits")) key.push_back(event.get<int64_t>());
    const auto [at, added] = known_.emplace(key, static_cast<int64_t>(steps_.size()));
    if (added) steps_.push_back(key);
    return at->second;
  }

  // Per entry: step, rTask, pause since the entry before, duration; nanoseconds.
  ordered_json lane(const json& entries, const json& times) {
    ordered_json out = ordered_json::array();
    int64_t free = 0;
    for (size_t i = 0; i < entries.size(); ++i) {
      const auto begin = times[2 * i].get<int64_t>(), end = times[2 * i + 1].get<int64_t>();
      out.push_back(step(entries[i]));
      out.push_back(entries[i].at("index").get<int64_t>());
      out.push_back(begin - free);
      out.push_back(end - begin);
      free = end;
    }
    return out;
  }

  const json& rops_;
  ordered_json steps_ = ordered_json::array(), lanes_ = ordered_json::array();
  std::map<std::vector<int64_t>, int64_t> known_;
};

ordered_json measured_json(const std::vector<std::vector<MeasuredSpan>>& measured) {
  if (measured.empty()) return nullptr;
  ordered_json out = ordered_json::array();
  for (const auto& spans : measured) {
    ordered_json times = ordered_json::array();
    for (const MeasuredSpan& span : spans) {
      times.push_back(std::llround(span.begin_us * 1e3));
      times.push_back(std::llround(span.duration_us * 1e3));
    }
    out.push_back(std::move(times));
  }
  return out;
}

// The lanes with measured times. A trace has rTasks only: an entry that only waits and signals is taken to be done as soon as it can be.
std::vector<CompiledFolder::Lane> measured_lanes(std::vector<CompiledFolder::Lane> lanes,
                                                 const std::vector<std::vector<MeasuredSpan>>& measured) {
  for (size_t veu = 0; veu < lanes.size(); ++veu) {
    size_t next = 0;
    double free_us = 0;
    for (CompiledFolder::LaneEntry& entry : lanes[veu]) {
      const MeasuredSpan span = entry.rop >= 0 ? measured[veu].at(next++) : MeasuredSpan{free_us, 0};
      entry.begin_us = span.begin_us;
      entry.end_us = free_us = span.begin_us + span.duration_us;
    }
  }
  return lanes;
}

// What takes the time, and the critical path: vEU and position in its lane of each entry, one after the other.
ordered_json shares_json(const CompiledFolder& rprogram, const std::vector<CompiledFolder::Lane>& lanes) {
  const TimeShares shares = time_shares(rprogram.rops, lanes);
  ordered_json out = json_of(shares), path = ordered_json::array();
  for (const auto& [veu, position] : shares.path) path.push_back(veu), path.push_back(position);
  out["path"] = std::move(path);
  return out;
}

// The lines of the source; in graph execution the source has no lanes.
ordered_json lines_json(const json& rprogram) {
  const json& lines = rprogram.at("lane_lines");
  const size_t lanes = rprogram.at("lanes").size();
  ordered_json out = ordered_json::array();
  for (size_t veu = 0; veu < lanes; ++veu) out.push_back(lines.empty() ? 0 : lines.at(veu).get<int64_t>());
  return out;
}

std::string data_text(const json& rprogram, const std::vector<std::vector<MeasuredSpan>>& measured) {
  ordered_json events = ordered_json::array();
  for (const json& event : rprogram.at("events")) events.push_back(event.at("name").get<std::string>());
  const CompiledFolder read = read_rprogram(rprogram);
  const Lanes lanes(rprogram);
  ordered_json shares = {{"planned", shares_json(read, read.lanes)}};
  if (!measured.empty()) shares["measured"] = shares_json(read, measured_lanes(read.lanes, measured));
  ordered_json out = {{"vdevice", rprogram.at("vdevice").at("name").get<std::string>()},
                      {"arena_bytes", rprogram.at("arena_bytes").get<int64_t>()},
                      {"weight_bytes", rprogram.at("weight_bytes").get<int64_t>()},
                      {"waits_of_row", rk::kWaits},
                      {"rops", rops_json(rprogram)},
                      {"events", events},
                      {"steps", lanes.steps()},
                      {"lanes", lanes.lanes()},
                      {"lines", lines_json(rprogram)},
                      {"measured", measured_json(measured)},
                      {"shares", shares},
                      {"arena", arena_json(rprogram)}};
  for (const char* field : {"name", "source", "tamp", "precision", "policy", "execution"})
    out[field] = rprogram.at(field).get<std::string>();
  const std::string text = out.dump(-1, ' ', /*ensure_ascii=*/true, ordered_json::error_handler_t::replace);
  std::string safe;
  for (const char c : text) {
    if (c == '<')
      safe += "\\u003c";
    else
      safe += c;
  }
  return safe;
}

void replace(std::string& page, std::string_view placeholder, std::string_view text) {
  const size_t at = page.find(placeholder);
  TAMP_CHECK(at != std::string::npos, "the page lacks " + std::string(placeholder));
  page.replace(at, placeholder.size(), text);
}

}  // namespace

std::string page_html(const json& rprogram, const std::vector<std::vector<MeasuredSpan>>& measured) {
  std::string script;
  for (const char* part : {"data", "canvas", "lanes", "arena", "graph", "table", "main"})
    script += embedded_file(fmt::format("compiler/cli/page/{}.js", part));
  std::string page(embedded_file("compiler/cli/page/page.html"));
  replace(page, "@STYLE@", embedded_file("compiler/cli/page/page.css"));
  replace(page, "@SCRIPT@", script);
  replace(page, "@DATA@", data_text(rprogram, measured));  // last, so that the model's texts are not searched for placeholders
  return page;
}

}  // namespace tamp::cli
