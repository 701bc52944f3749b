// The estimators of passes (compiler/ir/estimator.h), each by the shape that a program of such a graph has.
#pragma once

#include "compiler/ir/estimator.h"
#include "compiler/shape/narrowed.h"

namespace tamp::shape {

// A gang always has the room of the input stages. Where there can be no gangs, recurrences have no estimate, so passes do not make any for
// gangs.
Estimator estimator(const Setting& setting);

// None in fp32, whose products have no boxes and read strided operands nearly as fast as others, which the estimates do not know: on an
// H100 deepspeech2 took 352 us with a copy that was to save 21, and 345 without.
PlacedEstimator placed_estimator(const Setting& setting);

// Caches estimates by the printed graph: a pass begins with the graph that the pass before it ended with. Constants are printed by name
// alone; in one pipeline a name always stands for the same values.
GraphEstimator graph_estimator(const Setting& setting);

}  // namespace tamp::shape
