// The weights of staged_conv (staged_conv.cuh) as its rings want them, and the product that a rOperator and a RKernel's config stand for.
#pragma once

#include "compiler/ir/ops.h"
#include "kernels/family.h"
#include "kernels/product/staged_conv_plan.h"

namespace tamp::kernels::staged {

// The tile of a convolution that also stores the sums of its channels over tiles of pixels, Conv TileSums; null for other rOperators.
const TileSums* sums_of(const ROperator& rop);
// The Conv beside the sums, the MatMul beside a normalisation by moments, the product in front of a further rounding; else the rOperator.
ROperator plain_product(const Graph& graph, const ROperator& rop);
std::optional<Product> staged_product(const Graph& graph, const ROperator& rop);
// The product as the rKernel with config `c` computes it.
Product product_for(const Graph& graph, const ROperator& rop, const Config& c);

// The packed data: the ring, the scales (tf32 only), the bias, the sums of columns (if the rows are normalised by moments), the row and
// the table of results that become other whole numbers; all in bytes.
int64_t ring_bytes(const Product& p, const Config& c);
int64_t scale_bytes(const Product& p, const Config& c);
int64_t bias_bytes(const Product& p, const Config& c);
int64_t row_bytes(const Product& p, const Config& c);
Bytes pack(const Graph& graph, const ROperator& rop, const RKernel& rkernel, int phase);

}  // namespace tamp::kernels::staged
