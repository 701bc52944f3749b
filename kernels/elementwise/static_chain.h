// Host side of static_chain.cuh: a sweep whose chain goes into the body's template arguments.
#pragma once

#include "compiler/ir/rkernel.h"
#include "compiler/ir/shaped_vdevice.h"
#include "kernels/elementwise/sweep.h"

namespace tamp::kernels {

// has_static_steps, and the output is walked as rows that begin with a whole vector.
bool is_static(const Graph& graph, const Sweep& sweep);

// For a sweep that is_static: how many groups of four elements (fewer at the end of a row) it has, and how many elements come before a
// group.
int64_t static_groups(const Sweep& sweep);
int64_t elements_before(const Sweep& sweep, int64_t group);

// How many groups a rTask gets that is to have so many at least.
int64_t static_share(const Graph& graph, const Sweep& sweep, const ShapedVDevice& vdevice, int64_t groups_per_rtask);

// What groups [begin, end) read of operand 1.. of such a sweep: where rows end within a vector, the free lanes behind them too.
void append_static_reads(const Graph& graph, const Sweep& sweep, size_t operand, int64_t begin, int64_t end, std::vector<Region>& out);

// The phase of such a sweep, with a static_share.
Phase static_phase(const Graph& graph, const Sweep& sweep, const ShapedVDevice& vdevice, int64_t groups_per_rtask);

}  // namespace tamp::kernels
