// Files that say when rTasks begin and end, in Chrome's trace format, which ui.perfetto.dev and chrome://tracing read. Planned times are
// written; times that `tamp run --trace` measured are read back.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace tamp::cli {

// JSON in Chrome's trace format: one track per vEU, one slice per rTask.
class TraceEvents {
 public:
  TraceEvents(const std::string& process, size_t veus);
  // `rop` and the numbers are as in NAME.rprogram.json.
  void add(size_t veu, const nlohmann::json& rop, int64_t phase, int64_t index, double begin_us, double duration_us, double waited_us);
  std::string text() &&;

 private:
  nlohmann::ordered_json events_ = nlohmann::ordered_json::array();
};
// The name of a slice.
std::string slice_name(const nlohmann::json& rop, int64_t phase);

// From NAME.rprogram.json: one track per vEU, one slice per rTask. Throws nlohmann's exceptions if the JSON is not as tamp writes it.
std::string planned_trace(const nlohmann::json& rprogram);

struct MeasuredSpan {
  double begin_us = 0, duration_us = 0;
};
// Per lane, its rTasks in order. Error (bad input) if the trace is not of this rProgram.
std::vector<std::vector<MeasuredSpan>> measured_spans(const nlohmann::json& rprogram, const std::string& trace,
                                                      const std::string& source_name);

}  // namespace tamp::cli
