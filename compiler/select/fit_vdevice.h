// How a program divides the shared memory of its vEUs: which of a vDevice's four ways (compiler/ir/vdevice.h) fits a graph.
#pragma once

#include <algorithm>

#include "compiler/ir/graph.h"
#include "compiler/ir/vdevice.h"

namespace tamp::select {

template <class Op>
bool has(const Graph& graph) {
  return std::any_of(graph.rops.begin(), graph.rops.end(), [](const ROperator& rop) { return std::holds_alternative<Op>(rop.attrs); });
}

// Boxes of input values are for products on tensor cores; a gang wants all shared memory for its weights. Where a graph has both,
// convolutions may have boxes, and gangs use the room of the input stages (compiler/ir/over_inputs.h).
bool has_boxes(const Graph& graph, Precision precision);

// The vDevice with its shared memory divided for the graph, and with the products by wgmma that its programs may use. The graph needs no
// places.
VDevice fitted(const Graph& graph, const VDevice& vdevice, Precision precision);

}  // namespace tamp::select
