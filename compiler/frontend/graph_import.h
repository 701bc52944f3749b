// From nodes to rOperators: nodes of the model's graph, and nodes of bodies (If, Loop, Scan, functions), which are unrolled.
//
// Odd: refusals are collected, not thrown at the first. A node that is refused leaves its results without a tensor
// ("refused" below), nodes that read those are passed over in silence, and the rest is still looked at; so a user sees
// all that stands in the way at once.
#pragma once

#include <string>
#include <unordered_map>
#include <vector>

#include "compiler/frontend/builder.h"
#include "compiler/frontend/initializers.h"
#include "compiler/frontend/local_functions.h"
#include "compiler/frontend/node.h"
#include "compiler/frontend/op_table.h"
#include "compiler/frontend/refusals.h"

namespace onnx {
class FunctionProto;
class ModelProto;
class NodeProto;
}  // namespace onnx

namespace tamp::frontend {

// Limits on unrolling: a Loop, or functions that call each other, can ask for any number of nodes in a few bytes. A node with many operands
// counts as several.
inline constexpr int64_t kMaxUnrolledNodes = 100'000;
inline constexpr size_t kMaxFunctionDepth = 64;                           // calls within calls
inline constexpr size_t kMaxBodyDepth = 64;                               // bodies of functions and of control flow within each other
inline constexpr int64_t kMaxFunctionBytes = int64_t{512} * 1024 * 1024;  // of all bodies: they may hold constants

// The values by name that a graph sees: its own and, in a body, those of the graphs around it. A none id = refused.
struct Scope {
  const Scope* outer = nullptr;
  std::unordered_map<std::string, TensorId> values;

  const TensorId* find(const std::string& name) const;
};

class GraphImport {
 public:
  GraphImport(Builder& builder, Refusals& refusals, const onnx::ModelProto& model, int64_t opset, TensorSource source);

  // Node number `index` of the model's graph. Nodes that find_refusals has refused already are passed over.
  void import_node(onnx::NodeProto& proto, size_t index, Scope& scope, const std::string& file);

 private:
  // Where a graph stands: the beginning of messages, what is put before and behind the names of its nodes, and the number of
  // the node of the model's graph that it belongs to.
  struct Place {
    std::string where, prefix, suffix;
    int64_t top_node = -1;
  };

  OpChoice choose(const onnx::NodeProto& proto) const;
  Node read(onnx::NodeProto& proto, size_t index, const OpChoice& choice, const std::string& where);
  void import_one(const Node& node, const OpRow& row, const std::string& where, const Place& place, Scope& scope);
  std::vector<TensorId> import_body(Subgraph& body, const std::vector<TensorId>& inputs, const Place& place, const Scope& outer);
  std::vector<TensorId> import_call(Subgraph& body, const std::vector<TensorId>& inputs, const Place& place);
  void read_body(Subgraph& body, const Place& place);
  void bind_inputs(const Subgraph& body, const std::vector<TensorId>& inputs, const Place& place, Scope& scope) const;

  Builder& builder_;
  Refusals& refusals_;
  LocalFunctions functions_;
  std::vector<const onnx::FunctionProto*> calls_;  // the functions whose bodies are being imported, outermost first
  int64_t opset_;                                  // of the graph that is being imported
  TensorSource source_;
  int64_t unrolled_ = 0, function_bytes_ = 0;
  size_t depth_ = 0;  // how many bodies are being imported, each within the one before
};

}  // namespace tamp::frontend
