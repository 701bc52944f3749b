// For families whose rTasks are whole lines along one dimension: each rTask computes lines of the results from the same lines of the first
// input.
#pragma once

#include "kernels/family.h"
#include "kernels/loop.h"

namespace tamp::kernels {

// All dimensions but `axis`, in the memory order of the first result. Operands: each result, then the first input.
Loop lines_of(const Graph& graph, const ROperator& rop, int64_t axis);

// A rKernel of the body that `phase` names: `lines` in shares of `lines_per_rtask`; `steps` is how long a thread is busy with a share,
// counted in loads that each wait for the load before or for index arithmetic.
RKernel lines_rkernel(const ShapedVDevice& vdevice, Phase phase, int64_t lines, int64_t lines_per_rtask, double steps);

// What a rTask of such a rKernel touches: the lines of its share in each result, and all of the inputs.
void lines_accesses(const Graph& graph, const ROperator& rop, const RKernel& rkernel, int64_t axis, int64_t index, Accesses& out);

}  // namespace tamp::kernels
