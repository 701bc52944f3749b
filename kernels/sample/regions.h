// Functions that the families of RoiAlign and MaxRoiPool share: the loop over results [region, channel, row, column], and the arguments
// that follow from that loop.
#pragma once

#include "compiler/ir/graph.h"
#include "compiler/ir/rkernel.h"
#include "kernels/family.h"
#include "kernels/loop.h"

namespace tamp::kernels {

// Operands: output, x (its channels), region, row, column.
Loop region_loop(const Graph& graph, const ROperator& rop);
// The arguments from `nest` to `roi_strides`.
void add_region_args(const Request& request, Phase& phase);
// One rKernel of about `rtasks` rTasks of the body that `phase` names, whose last two arguments it adds; it reads `reads` pixels
// a result.
RKernel region_rkernel(const Request& request, Phase phase, int64_t rtasks, double reads);

}  // namespace tamp::kernels
