// rKernels of patch_conv.cuh: convolutions of few input channels on tensor cores.
#pragma once

#include <optional>

#include "compiler/ir/fused.h"
#include "compiler/ir/fusion.h"
#include "kernels/tile/product.h"
#include "kernels/tile/requantised.h"

namespace tamp::kernels {

FusionPattern normalized_patches();  // whose pixels are normalised, too
FusionPattern quantised_patches();   // whose input is quantised first
FusionPattern looked_up_patches();   // the same, with a table behind
// The steps of such a Fused: the quantisation, x / step rounded between two bounds, and the convolution. None of other rOperators.
std::optional<FusedView> quantised_patches_of(const ROperator& rop);
// Either of them: the steps, and what follows the rounded results; no table if nothing does.
struct QuantisedPatches {
  FusedView steps;
  Lookup lookup;
};
std::optional<QuantisedPatches> any_quantised_patches_of(const Graph& graph, const ROperator& rop);
// The convolution of either as one of the pixels as they come.
std::optional<Product> product_of_quantised(const Graph& graph, const ROperator& rop, const FusedView& steps);

}  // namespace tamp::kernels
