// Layer and root mean square normalisation become Normalize. Exporters write them in single steps where the opset has no operator for them.
#pragma once

#include "compiler/ir/graph.h"

namespace tamp::passes {

// d = x - mean(x); d / sqrt(mean(d^2) + epsilon), or the same without a mean; then, if they are there, * scale and + bias. f32 only:
// other types round after every step, and Normalize does not.
Graph recognise_normalizations(Graph graph);

}  // namespace tamp::passes
