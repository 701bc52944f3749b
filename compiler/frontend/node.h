// A NodeProto with its attributes as plain C++ values, so that importers see no protobuf.
#pragma once

#include <string>
#include <variant>
#include <vector>

#include "compiler/frontend/initializers.h"

namespace onnx {
class NodeProto;
}

namespace tamp::frontend {

// An attribute kind that no supported operator takes: a graph, a sparse tensor, a type, or a list of those.
struct OtherAttribute {
  std::string kind;
};

struct Attribute {
  std::string name;
  std::variant<int64_t, float, std::string, std::vector<int64_t>, std::vector<float>, std::vector<std::string>, ops::Value, OtherAttribute>
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

// "int", "floats", "tensor": the kind of an attribute's value, for messages.
std::string kind_of(const Attribute& attribute);

// "m.onnx: node #12 'conv1' (Conv, opset 13)". Works on nodes of any domain.
std::string node_text(const std::string& path, size_t index, const onnx::NodeProto& node, int64_t opset);

// Every Error begins with `where`, the node_text.
Node read_node(onnx::NodeProto& proto, size_t index, int64_t opset, const TensorSource& source, const std::string& where);

}  // namespace tamp::frontend
