// What bodies of narrow operands (rk::Narrow of kernels/tile/staged_math.cuh) share on the host: which products they take, and how.
#pragma once

#include <string>

#include "kernels/family.h"
#include "kernels/tile/product.h"

namespace tamp::kernels {

// Whether whole numbers in bytes are read, made or added.
bool has_bytes(const Graph& graph, const Product& p);
// Whether the residual has 16 bits and the results have 32.
bool adds_narrow(const Graph& graph, const Product& p);

// The precision of the product: tf32 where fp16 cannot hold the weights, since in tf32 each output channel has a scale. Small weights are
// held where others are added to the product that are much larger.
Precision precision_of(const Request& request, const Product& p);

// rk::Whole: whether operands, and results, are whole numbers, as those of quantised models are.
int64_t whole_of(const Request& request, const Product& p, Precision precision);

// Bytes: the weights are whole multiples of steps, at most 128 of them; and what lies outside the input is a byte of 0, which must be the
// number 0. Results are rounded, so that bytes hold them.
bool takes_bytes(const Request& request, const Product& p);

// The body's Math, rk::Narrow with its types in memory. `whole`: rk::Whole; `out`: the type that the body stores.
std::string narrow_math(const Graph& graph, const Product& p, int64_t whole, DType out);

}  // namespace tamp::kernels
