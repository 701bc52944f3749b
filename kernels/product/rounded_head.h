// The end of a quantised network, whose pooling is rounded in front of the product:
//   mean = rounded(scale * (sum of the channel's pixels / count))
//   y    = MatMul(mean, w) + b, and then nothing, or a rounding and behind it a factor or a table
// It is two rOperators: TileSums, and a Fused "rounded head" of Reduce (the sum of the tiles' sums), Elementwise {div, mul, rounded},
// MatMul and, behind a rounding, Elementwise {mul} or a lookup (kernels/tile/requantised.h). The body of the second is rounded_head.cuh.
#pragma once

#include <optional>

#include "compiler/ir/fusion.h"
#include "compiler/ir/graph.h"

namespace tamp::kernels {

// The step that is the product.
inline constexpr size_t kHeadProduct = 2;

struct RoundedHead {
  float count = 1, scale = 1, low = 0, high = 0;  // of the means
  bool rounds = false;                            // the product's results, too
  float factor = 1;
  TensorId table;  // none: the factor
};
// None if the rOperator is another.
std::optional<RoundedHead> rounded_head_of(const Graph& graph, const ROperator& rop);
// The same, without a look at constants.
bool is_rounded_head(const ROperator& rop);

FusionPattern rounded_heads();

}  // namespace tamp::kernels
