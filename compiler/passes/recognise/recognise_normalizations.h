// Layer and root mean square normalisation become Normalize. Exporters write them in single steps where the opset has no operator for them.
#pragma once

#include "compiler/ir/graph.h"

namespace tamp::passes {

// d = x - mean(x); d / sqrt(mean(d^2) + epsilon), or the same without a mean; then, if they are there, * scale and + bias. f32 only:
// other types round after every step, and Normalize does not.
//
// Rows of length 1, x / max(|x|, epsilon) along the last of D elements (torch.nn.functional.normalize), are x / sqrt(mean(x^2) +
// epsilon^2 / D) * 1 / sqrt(D). The two differ by more than 1e-4 only where a row is shorter than 100 epsilon; rows of zeros are zeros.
Graph recognise_normalizations(Graph graph);

}  // namespace tamp::passes
