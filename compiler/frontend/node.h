// A NodeProto with its attributes as plain C++ values, so that importers see no protobuf.
#pragma once

#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "compiler/frontend/initializers.h"

namespace onnx {
class FunctionProto;
class GraphProto;
class NodeProto;
}  // namespace onnx

namespace tamp::frontend {

// An attribute kind that no supported operator takes: a sparse tensor, a type, a list of tensors or graphs.
struct OtherAttribute {
  std::string kind;
};
struct Subgraph;

struct Attribute {
  std::string name;
  std::variant<int64_t, float, std::string, std::vector<int64_t>, std::vector<float>, std::vector<std::string>, FileTensor,
               std::shared_ptr<Subgraph>, OtherAttribute>
      value;
};

struct Node {
  size_t index = 0;  // position in the file
  std::string name;  // as in the file; may be empty or hold anything
  std::string op_type;
  int64_t opset = 0;                         // of the model
  int version = 0;                           // since_version of the operator's definition that applies
  std::vector<std::string> inputs, outputs;  // "" = left out; none at the end
  std::vector<Attribute> attributes;
};

// A graph that a node holds: the branch of an If, the body of a Loop or Scan, or of the model's own function that the node calls
// (local_functions.h). GraphImport reads it when it is first needed.
struct Subgraph {
  onnx::GraphProto* proto = nullptr;
  size_t outputs = 0;
  bool is_read = false;
  std::vector<Node> nodes = {};                // every operand is made before it is read
  std::vector<const struct OpRow*> rows = {};  // of each node; null = refused
  std::vector<std::pair<std::string, TensorId>> constants = {};
  int64_t size = 0;                              // in nodes, for kMaxUnrolledNodes
  std::shared_ptr<onnx::GraphProto> owned = {};  // of a function: `proto` with the call's attributes in it
  const onnx::FunctionProto* function = nullptr;
  int64_t opset = 0;  // of a function: its own, of the default domain
  bool is_function() const { return function != nullptr; }
};

// "int", "floats", "tensor": the kind of an attribute's value, for messages.
std::string kind_of(const Attribute& attribute);

// "m.onnx: node #12 'conv1' (Conv, opset 13)"; `graph` is what stands before it: the file's file_text, in a body also the node that
// it belongs to. Works on nodes of any domain.
std::string node_text(const std::string& graph, size_t index, const onnx::NodeProto& node, int64_t opset);

// Every Error begins with `where`, the node_text.
Node read_node(onnx::NodeProto& proto, size_t index, int64_t opset, const TensorSource& source, const std::string& where);

}  // namespace tamp::frontend
