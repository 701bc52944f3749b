// The questions that a pass may ask about the vDevice: how long would this rOperator take, before the pass makes it? How long would all
// rOperators of this graph take, with the change that the pass has in mind and without it? And how long does this rOperator take on tensors
// that lie so?
#pragma once

#include <cmath>
#include <functional>
#include <optional>

#include "compiler/ir/graph.h"

namespace tamp {

struct Estimate {
  double us = 0;  // microseconds with the whole vDevice to itself, by the rKernel that is fastest
};

// Estimates `rop`, which need not be in `graph`; its operands must be. Tensors need no place, and constants need no data. The result is
// none if no rKernel takes the rOperator, if no rKernel that takes it makes it worth while, or if rOperators of its kind are not estimated
// before tensors have places (kernels/family.h, Family::estimate). An empty Estimator means that there is no vDevice to ask about;
// passes that need an Estimator then do nothing.
using Estimator = std::function<std::optional<Estimate>(const Graph& graph, const ROperator& rop)>;

// Microseconds of all rOperators of a graph whose tensors have no places yet, one after another, by the rKernels that it has once they
// have. Infinity if some rOperator has no rKernel. Costs as much as placing the graph. Empty as an Estimator may be.
using GraphEstimator = std::function<double(const Graph& unplaced)>;

// Microseconds of `rop`, whose operands and results have places in `placed`, with the whole vDevice to itself, by the fastest rKernel; and
// the time until a rOperator that reads its result begins. Infinity if no rKernel takes it. Empty as an Estimator may be.
using PlacedEstimator = std::function<double(const Graph& placed, const ROperator& rop)>;

// Whether a change that brings a graph from `now_us` to `other_us` gains `least_us` at least. An estimate that is infinite, or no number,
// gains nothing, whatever the graph was estimated at before: a rOperator without a body must not let others without one through.
inline bool gains(double now_us, double other_us, double least_us) {
  return std::isfinite(other_us) && (!std::isfinite(now_us) || other_us <= now_us - least_us);
}

}  // namespace tamp
