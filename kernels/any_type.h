// What the families share whose bodies take elements of any type: each rTask is a share of the results, in the memory order of the first.
#pragma once

#include <string>

#include "kernels/family.h"
#include "kernels/loop.h"

namespace tamp::kernels {

// Placed, and of extents that a 32-bit index of the device can walk, whatever its element type.
bool is_plain(const Tensor& tensor);
bool all_plain(const Graph& graph, const ROperator& rop);
bool all_f32(const Graph& graph, const ROperator& rop);  // everything that it reads and writes

// C++ text of the type that elements are computed as, and of an unsigned integer of their size.
std::string number_text(DType dtype);
std::string cell_text(DType dtype);

// rk::Nest of a loop of at most 8 dimensions.
ArgValue nest_arg(const Loop& loop);
// Appends the loop as argument `name`, and then the strides of so many of its operands under their names.
void add_nest_args(Phase& phase, const char* name, const Loop& loop, const std::vector<const char*>& operands);
// All dimensions of a shape; one operand.
Loop loop_over(const Shape& shape, const std::vector<int64_t>& strides);
// `values` with `added` put in at place `at` until there are `count`.
std::vector<int64_t> with_dimensions(std::vector<int64_t> values, size_t at, size_t count, int64_t added);
// Dimensions that lie densely in each other become one; their order stays.
Loop merged(Loop loop);

// A rKernel of one phase whose rTasks are shares of `elements` results in the order of the loop, of the body and with the
// arguments that `phase` has, and `elements` and `elements_per_rtask` behind these; `reads` elements and `flops` a result, on
// which `lanes` threads work together.
RKernel typed_rkernel(const Request& request, Phase phase, int64_t elements, double reads, double flops, int64_t lanes = 1);
int64_t elements_per_rtask(const Request& request, int64_t elements, int64_t lanes = 1);
// The share of the result that a rTask of `elements_per_rtask` (config) writes, in the order of the loop's operand 0.
void append_share(const Graph& graph, const ROperator& rop, const RKernel& rkernel, const Loop& loop, int64_t index,
                  std::vector<Region>& writes);
// Family::accesses where a rTask touches that share and all of the inputs, and the loop is a function of the rOperator.
template <Loop (*loop_of)(const Graph&, const ROperator&)>
void loop_accesses(const Graph& graph, const ROperator& rop, const RKernel& rkernel, int, int64_t index, Accesses& out) {
  append_share(graph, rop, rkernel, loop_of(graph, rop), index, out.writes);
  for (const TensorId id : reads_of(rop)) append_whole(graph, id, out.reads);
}

}  // namespace tamp::kernels
