// A product with normalised rows, whose second phase, split_k_normalize.cuh, adds up the parts of the product and normalises its rows.
#pragma once

#include <optional>

#include "compiler/ir/fused.h"
#include "compiler/ir/fusion.h"
#include "kernels/family.h"
#include "kernels/tile/product.h"

namespace tamp::kernels {

FusionPattern normalized_products();
// S = A * B + bias + residual, Y = S normalised along its last dimension: the MatMul and the Normalize, or none if the rOperator is
// another. Y is its first result; where there is a second one, that is S.
std::optional<FusedView> normalized_product_steps(const ROperator& rop);
// The MatMul of such a rOperator, without the residual. Its result stands for the sum of the parts.
ROperator product_before_normalize(const ROperator& rop);

inline constexpr int64_t kMostNormalizedSplits = 16;

// Whether the body takes the rOperator's tensors as they lie, apart from A.
bool takes_normalize(const Request& request);
// None where a thread would have too many loads under way. `product` is that of product_before_normalize.
std::optional<Phase> normalize_phase(const Request& request, const Product& product, int64_t splits);
Bytes pack_normalize(const Graph& graph, const ROperator& rop, const Product& product);
void normalize_accesses(const Graph& graph, const ROperator& rop, const Product& product, int64_t splits, int64_t rows_per_rtask,
                        int64_t index, Accesses& out);
// Rows of a rTask: about one rTask for each vEU.
int64_t normalized_rows_of(const ShapedVDevice& vdevice, const Product& product);

}  // namespace tamp::kernels
