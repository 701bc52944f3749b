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
// The arguments from `nest` to `column_stride`.
std::vector<Arg> region_args(const Graph& graph, const ROperator& rop, const Loop& loop);
// One rKernel of about `rtasks` rTasks with everything but template arguments and arguments; it reads `reads` pixels a result.
RKernel region_rkernel(const Request& request, const std::string& name, int64_t rtasks, double reads);

}  // namespace tamp::kernels
