// Normalisations and pools of f64 at run time. Their own bodies compute in f32, which has not the digits; those of any type
// (kernels/typed) have them.
#pragma once

#include <optional>

#include "compiler/frontend/builder.h"

namespace tamp::frontend {

// What `request` makes of f64 operands, said in reductions, elementwise functions and Gathers; none if its operator is not one of Softmax,
// Normalize, BatchNorm, Lrn and Pool.
std::optional<TensorId> lower_f64(Builder& builder, const Builder::Request& request);

}  // namespace tamp::frontend
