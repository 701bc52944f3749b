// The one question that a pass may ask about the vDevice: how long would this rOperator take? The pass asks before it makes the rOperator.
#pragma once

#include <functional>
#include <optional>

#include "compiler/ir/graph.h"

namespace tamp {

struct Estimate {
  double us = 0;  // microseconds with the whole vDevice to itself, by the rKernel that is fastest
};

// Estimates `rop`, which need not be in `graph`; its operands must be. Tensors need no place, and constants need no data. The result is
// none if no rKernel takes the rOperator, if no rKernel that takes it makes it worth while, or if rOperators of its kind are not estimated
// before tensors have places (kernels/catalogue.h, Family::estimate). An empty Estimator means that there is no vDevice to ask about;
// passes that need an Estimator then do nothing.
using Estimator = std::function<std::optional<Estimate>(const Graph& graph, const ROperator& rop)>;

}  // namespace tamp
