// When rTasks begin and end, as files: Chrome's trace format, which ui.perfetto.dev and chrome://tracing read. What is planned is written;
// what `tamp run --trace` measured is read back.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace tamp::cli {

// Of NAME.rprogram.json: a track a vEU, a slice a rTask. nlohmann's exceptions where it is not what tamp writes.
std::string planned_trace(const nlohmann::json& rprogram);

struct MeasuredSpan {
  double begin_us = 0, duration_us = 0;
};
// Per lane: its rTasks in order. Error (bad input) if the trace is not of this rProgram.
std::vector<std::vector<MeasuredSpan>> measured_spans(const nlohmann::json& rprogram, const std::string& trace,
                                                      const std::string& source_name);

}  // namespace tamp::cli
