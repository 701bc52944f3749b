// Rows that are normalised, or become their softmax, and are quantised then, in one rOperator.
#pragma once

#include <optional>

#include "compiler/ir/fusion.h"
#include "compiler/ir/graph.h"

namespace tamp::kernels {

// rounded(f(factor * x) / divisor; low, high)
struct Quantised {
  float factor = 1;
  float divisor = 1, low = 0, high = 0;
};
struct QuantisedRows {
  ROperator rop;  // f, as a rOperator of the whole one's operands and result
  Quantised by;
};
// None if the rOperator is not such a Fused.
std::optional<QuantisedRows> quantised_rows_of(const Graph& graph, const ROperator& rop);

FusionPattern quantised_normalizations();
FusionPattern quantised_softmax();

}  // namespace tamp::kernels
