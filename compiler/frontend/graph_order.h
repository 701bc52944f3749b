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
// one already. What a node's bodies read from outside are operands too. Names that the body of a node reads and does not make
// are taken to be made around it. Error (bad input), which begins with `where`: a name is made twice, an operand is made
// nowhere, a cycle.
std::vector<size_t> order_nodes(const std::string& where, const onnx::GraphProto& graph, int64_t opset, bool is_body);

}  // namespace tamp::frontend
