// For families whose rTasks are whole lines along one dimension: of the results' lines as of the first input's.
#pragma once

#include "kernels/loop.h"
#include "kernels/typed/typed.h"

namespace tamp::kernels {

// All dimensions but `axis`, in the memory order of the first result. Operands: each result, then the first input.
Loop lines_of(const Graph& graph, const ROperator& rop, int64_t axis);

// A rKernel of family "typed_NAME" with one phase of `lines` in shares of `lines_per_rtask`; `steps` is how long a thread is busy with
// such a share, in loads that wait for each other's results or for index arithmetic.
RKernel lines_rkernel(const VDevice& vdevice, const std::string& name, const std::string& body, int64_t lines, int64_t lines_per_rtask,
                      double steps);

// What a rTask of it touches: the lines of its share in each result, and all of the inputs.
void lines_accesses(const Graph& graph, const ROperator& rop, const RKernel& rkernel, int64_t axis, int64_t index, Accesses& out);

}  // namespace tamp::kernels
