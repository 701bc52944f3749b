// Evaluates the stamps of a traced run (`tamp run --trace`): as text, how the time of all vEUs divides and what the critical path is; for a
// trace viewer, every rTask; and for `tamp tune`, how long each rOperator took. test/gpu/trace.py reports the same and more, for records of
// performance.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tamp::cli {

struct TraceReport {
  std::string text;    // for people, in lines
  std::string events;  // TraceEvents
};

// `rprogram_json` is the text of NAME.rprogram.json; `stamps` are nanoseconds [row of the instruction table][TraceColumn of
// kernels/vdevice/numbers.cuh], 0 = not stamped. Error (bad input) if the two do not fit together.
TraceReport trace_report(std::string_view rprogram_json, const std::vector<uint64_t>& stamps);

// How long each rOperator (by its position in the rProgram) took, from the last signal of its inputs to its own last signal. This includes
// all its phases and the edges between them, but not what its vEUs still had to do for other rOperators. The result is the median of
// several runs, whose stamps follow each other; -1 for a rOperator without rTasks. Error as above.
std::vector<double> rop_times(std::string_view rprogram_json, const std::vector<uint64_t>& stamps);

}  // namespace tamp::cli
