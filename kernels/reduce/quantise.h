// rKernels of quantise.cuh: dynamic quantisation.
#pragma once

#include <optional>
#include <vector>

#include "compiler/ir/fusion.h"
#include "compiler/ir/graph.h"

namespace tamp::kernels {

// A tensor that is quantised by the range of its own elements.
struct DynamicQuantisation {
  TensorId in, out;
  TensorId scale;                   // of `out`
  bool scaled = false;              // `out` is multiplied with it again
  std::vector<size_t> makers = {};  // the rOperators that compute these, in the graph's order
};
// What rOperator `at` makes, a chain, with those that make the single numbers that it reads, if it is that.
std::optional<DynamicQuantisation> dynamic_quantisation_of(const Graph& graph, const Uses& uses, size_t at);

FusionPattern dynamic_quantisations();

}  // namespace tamp::kernels
