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

// The same of a normalisation whose rows a chain makes: behind a product the bias and the residual. The result may
// be multiplied with `step`, as that of a network is.
struct SummedRows {
  ROperator chain;      // of the whole one's operands; its result, if others read it, else none
  ROperator normalize;  // as if its rows were the chain's first operand of that shape
  Quantised by;
  float step = 1;
};
std::optional<SummedRows> summed_rows_of(const Graph& graph, const ROperator& rop);

FusionPattern quantised_sums();
FusionPattern quantised_normalizations();
FusionPattern quantised_softmax();

}  // namespace tamp::kernels
