// What a pass may ask about the vDevice, and all that it may ask: how long a rOperator would take that it thinks of making.
#pragma once

#include <functional>
#include <optional>

#include "compiler/ir/graph.h"

namespace tamp {

struct Estimate {
  double us = 0;  // microseconds with the whole vDevice to itself, by the rKernel that is fastest
};

// Of a rOperator that need not be in the graph, as long as its operands are. Tensors need no place, constants no data. None: no rKernel
// takes it, or none that is worth making the rOperator for, or its kind is one that nobody estimates before tensors have places
// (kernels/catalogue.h, Family::estimate). Empty: there is no vDevice to ask about, and passes that need one do nothing.
using Estimator = std::function<std::optional<Estimate>(const Graph& graph, const ROperator& rop)>;

}  // namespace tamp
