// Host side of static_chain.cuh: a sweep whose chain goes into the body's template arguments.
#pragma once

#include "compiler/ir/rkernel.h"
#include "compiler/ir/vdevice.h"
#include "kernels/elementwise/sweep.h"

namespace tamp::kernels {

// The chain is short, its functions are small, and the output is walked as rows of whole vectors.
bool is_static(const Graph& graph, const Sweep& sweep);

// The phase of such a sweep.
Phase static_phase(const Graph& graph, const Sweep& sweep, const VDevice& vdevice, int64_t groups_per_rtask);

}  // namespace tamp::kernels
