// The wiring of a GraphProto, before any node is read: every name is made once, every operand is made somewhere, and the
// nodes have an order.
#pragma once

#include <string>
#include <vector>

namespace onnx {
class GraphProto;
}

namespace tamp::frontend {

// The nodes' positions in an order in which every operand is made before it is read; the file's own order where that is
// one already. Error (bad input): a name is made twice, an operand is made nowhere, a cycle.
std::vector<size_t> order_nodes(const std::string& path, const onnx::GraphProto& graph, int64_t opset);

}  // namespace tamp::frontend
