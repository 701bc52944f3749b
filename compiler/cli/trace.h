// What the stamps of a traced run (`tamp run --trace`) say: how the time of all vEUs divides and the critical path, as text,
// and every rTask for a trace viewer; and how long each rOperator took, for `tamp tune`. test/gpu/trace.py says the same and more, for
// records of performance.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tamp::cli {

struct TraceReport {
  std::string text;    // for people; lines
  std::string events;  // JSON in Chrome's trace format: a track a vEU, a slice a rTask
};

// `rprogram_json` is the text of NAME.rprogram.json; `stamps` are nanoseconds [row of the instruction table][TraceColumn of
// kernels/vdevice/interpreter.cuh], 0 = not stamped. Error (bad input) if the two do not fit together.
TraceReport trace_report(std::string_view rprogram_json, const std::vector<uint64_t>& stamps);

// How long each rOperator (by its position in the rProgram) took: from the last signal of its inputs to its own last one, with
// all its phases and the edges between them, less what its vEUs still had to do for others; the median of several runs, whose
// stamps follow each other. -1 where it has no rTasks. Error as above.
std::vector<double> rop_times(std::string_view rprogram_json, const std::vector<uint64_t>& stamps);

}  // namespace tamp::cli
