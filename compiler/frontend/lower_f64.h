// Normalisations and pools of f64 at run time. The bodies of these operators compute in f32, which has too few digits for f64. So the
// operators are expressed in others, whose bodies take any type (kernels/typed).
#pragma once

#include <optional>

#include "compiler/frontend/builder.h"

namespace tamp::frontend {

// Emits `request`, which has f64 operands, as reductions, elementwise functions and Gathers. None if its operator is not one of Softmax,
// Normalize, BatchNorm, Lrn and Pool.
std::optional<TensorId> lower_f64(Builder& builder, const Builder::Request& request);

}  // namespace tamp::frontend
