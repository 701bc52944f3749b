// A body is read from protobuf once and imported once for each iteration; its initializers are constants that the iterations share.
#include "compiler/frontend/graph_import.h"

#include <fmt/format.h>
#include <onnx/onnx_pb.h>

#include <algorithm>
#include <optional>
#include <set>
#include <string_view>
#include <utility>

#include "compiler/frontend/graph_order.h"
#include "compiler/frontend/node_import.h"
#include "compiler/frontend/padded.h"
#include "compiler/support/error.h"
#include "compiler/support/text.h"

namespace tamp::frontend {
namespace {

// About how many plain nodes it is worth.
int64_t size_of(const onnx::GraphProto& graph) {
  int64_t size = 1;
  for (const auto& node : graph.node()) size += 1 + (node.input_size() + node.output_size()) / 8;
  return size;
}

constexpr int64_t kCallNodes = 8;  // what copying a function's body costs, as nodes

// A call of one of the model's own functions, as a row of the table of operators.
const OpRow& call_row() {
  static const OpRow row{"",
                         {1},
                         [](NodeImport& n) {
                           std::vector<TensorId> operands;
                           for (size_t i = 0; i < n.input_count(); ++i) operands.push_back(n.in(i));
                           const std::vector<TensorId> results = n.run_body("body", operands);
                           for (size_t k = 0; k < n.output_count(); ++k) n.result(k, results[k]);
                         },
                         "",
                         "",
                         /*takes_sequences=*/true};
  return row;
}

// Sets Builder::may_read_padded as long as this object lives; nodes of bodies set it for themselves again.
class AllowPadding {
 public:
  AllowPadding(Builder& builder, bool allowed) : builder_(builder), before_(builder.may_read_padded) { builder_.may_read_padded = allowed; }
  ~AllowPadding() { builder_.may_read_padded = before_; }
  AllowPadding(const AllowPadding&) = delete;
  AllowPadding& operator=(const AllowPadding&) = delete;

 private:
  Builder& builder_;
  bool before_;
};

// Counts a body as long as this object lives.
class Deeper {
 public:
  explicit Deeper(size_t& depth) : depth_(depth) { ++depth_; }
  ~Deeper() { --depth_; }
  Deeper(const Deeper&) = delete;
  Deeper& operator=(const Deeper&) = delete;

 private:
  size_t& depth_;
};

// Sequences go only where the importer knows that they are some.
void expect_tensors(const Builder& builder, const Node& node, const std::vector<TensorId>& inputs, const std::string& where) {
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (!inputs[i].valid() || !builder.sequences.contains(inputs[i])) continue;
    throw unsupported("{}: input {} ('{}') is a sequence, supported: a tensor; of sequences SequenceAt and its like", where, i,
                      printable(node.inputs[i]));
  }
}

// Operators of ONNX's own that move elements and nothing else, so that the result is of the operand's type, and those that ask for the
// shape.
bool moves_elements(const OpRow& row) {
  static const std::set<std::string_view> names = {"Flatten", "Identity", "Pad", "Reshape", "Squeeze", "Transpose", "Unsqueeze"};
  return row.domain.empty() && names.contains(row.name);
}
bool reads_narrow_types(const OpRow& row) {
  static const std::set<std::string_view> names = {"Cast",  "CastLike", "DequantizeLinear", "GatherBlockQuantized", "QuantizeLinear",
                                                   "Shape", "Size"};
  return names.contains(row.name) || moves_elements(row) || &row == &call_row();
}

// A type of few bits is held in another one, of which most operators would make something else than ONNX.
void expect_own_types(const Builder& builder, const OpRow& row, const Node& node, const std::vector<TensorId>& inputs,
                      const std::string& where) {
  if (builder.narrow.empty() || reads_narrow_types(row)) return;
  for (size_t i = 0; i < inputs.size(); ++i) {
    const auto found = inputs[i].valid() ? builder.narrow.find(inputs[i]) : builder.narrow.end();
    if (found == builder.narrow.end()) continue;
    throw unsupported("{}: input {} ('{}') is {}, supported: as an operand of DequantizeLinear, Cast, and operators that move elements",
                      where, i, printable(node.inputs[i]), onnx_type_name(static_cast<int>(found->second)));
  }
}

bool is_readable(const Node& node, const Scope& scope) {
  for (const std::string& name : node.inputs) {
    if (!name.empty() && !scope.find(name)->valid()) return false;
  }
  return true;
}

}  // namespace

const TensorId* Scope::find(const std::string& name) const {
  for (const Scope* scope = this; scope; scope = scope->outer) {
    const auto found = scope->values.find(name);
    if (found != scope->values.end()) return &found->second;
  }
  return nullptr;
}

GraphImport::GraphImport(Builder& builder, Refusals& refusals, const onnx::ModelProto& model, int64_t opset, TensorSource source)
    : builder_(builder), refusals_(refusals), functions_(model), opset_(opset), source_(std::move(source)) {}

OpChoice GraphImport::choose(const onnx::NodeProto& proto) const {
  if (functions_.find(proto)) return {&call_row(), 1, ""};
  return choose_op(proto.domain(), proto.op_type(), opset_);
}

Node GraphImport::read(onnx::NodeProto& proto, size_t index, const OpChoice& choice, const std::string& where) {
  const onnx::FunctionProto* function = functions_.find(proto);
  Node node;
  if (function) {
    function_bytes_ += static_cast<int64_t>(function->ByteSizeLong());
    if (function_bytes_ > kMaxFunctionBytes) {
      throw unsupported("{}: the bodies of all calls of functions come to more than {}, which is the limit", where,
                        bytes_text(kMaxFunctionBytes));
    }
    node = read_call(*function, proto, index, opset_, where);
  } else {
    node = read_node(proto, index, opset_, source_, where);
  }
  node.version = choice.version;
  return node;
}

void GraphImport::import_node(onnx::NodeProto& proto, size_t index, Scope& scope, const std::string& file) {
  const Place place{file, "", "", static_cast<int64_t>(index)};
  for (const std::string& name : proto.output()) {
    if (!name.empty()) scope.values[name] = TensorId();
  }
  const OpChoice choice = choose(proto);
  if (!choice.row) return;
  const std::string where = node_text(file, index, proto, opset_);
  refusals_.collect(where, proto, place.top_node, [&] {
    const Node node = read(proto, index, choice, where);
    if (is_readable(node, scope)) import_one(node, *choice.row, where, place, scope);
  });
}

void GraphImport::import_one(const Node& node, const OpRow& row, const std::string& where, const Place& place, Scope& scope) {
  std::vector<TensorId> inputs;
  for (const std::string& name : node.inputs) inputs.push_back(name.empty() ? TensorId() : *scope.find(name));
  if (!row.takes_sequences) expect_tensors(builder_, node, inputs, where);
  expect_own_types(builder_, row, node, inputs, where);
  const TensorId moved = moves_elements(row) && !inputs.empty() ? inputs[0] : TensorId();
  NodeImport::Context context{where, place.prefix, place.suffix, {}};
  context.run_body = [&](Subgraph& body, const std::string& name, const std::vector<TensorId>& operands, int64_t iteration) {
    const std::string which = iteration < 0 ? "" : fmt::format(", iteration {}", iteration);
    const std::string suffix = iteration < 0 ? place.suffix : fmt::format("{}.{}", place.suffix, iteration);
    const std::string label = node.name.empty() ? fmt::format("{}{}#{}", place.prefix, node.op_type, node.index) : node.name;
    if (body.is_function()) return import_call(body, operands, {fmt::format("{}: function", where), label + "/", suffix, place.top_node});
    return import_body(body, operands, {fmt::format("{}: {}{}", where, name, which), label + "/", suffix, place.top_node}, scope);
  };
  const std::optional<Builder::Padded> padded =
      &row == &call_row() ? std::nullopt : padding_after(builder_, node, inputs, row.domain.empty(), where);
  NodeImport import(builder_, node, std::move(context), std::move(inputs));
  const AllowPadding allowed(builder_, padded.has_value() || handles_padding(node, row.domain.empty()));
  row.import(import);
  const std::vector<TensorId> results = import.finish();
  if (padded) builder_.padded[results.at(0)] = *padded;
  if (const auto narrow = builder_.narrow.find(moved); narrow != builder_.narrow.end()) builder_.narrow[results.at(0)] = narrow->second;
  for (size_t k = 0; k < results.size(); ++k) {
    if (!node.outputs[k].empty()) scope.values[node.outputs[k]] = results[k];
  }
}

void GraphImport::read_body(Subgraph& body, const Place& place) {
  if (body.is_read) return;
  for (auto& initializer : *body.proto->mutable_initializer()) {
    const std::string where = fmt::format("{}: initializer '{}'", place.where, printable(initializer.name()));
    const TensorId id = builder_.add_file_tensor(builder_.unique_tensor_name(initializer.name()), read_tensor(initializer, source_, where));
    body.constants.emplace_back(initializer.name(), id);
  }
  for (const size_t i : order_nodes(place.where, *body.proto, opset_, /*is_body=*/!body.is_function())) {
    onnx::NodeProto& proto = *body.proto->mutable_node(static_cast<int>(i));
    const OpChoice choice = choose(proto);
    const std::string where = node_text(place.where, i, proto, opset_);
    const OpRow* row = nullptr;
    Node node;
    refusals_.collect(where, proto, place.top_node, [&] {
      if (!choice.row) throw unsupported("{}: {}", where, choice.refusal);
      node = read(proto, i, choice, where);
      row = choice.row;
    });
    if (!row) node.outputs.assign(proto.output().begin(), proto.output().end());
    body.rows.push_back(row);
    body.nodes.push_back(std::move(node));
  }
  body.size = size_of(*body.proto);
  body.is_read = true;
}

void GraphImport::bind_inputs(const Subgraph& body, const std::vector<TensorId>& inputs, const Place& place, Scope& scope) const {
  const onnx::GraphProto& graph = *body.proto;
  if (graph.input_size() != static_cast<int>(inputs.size()))
    throw bad_input("{}: has {} inputs, expected {}", place.where, graph.input_size(), inputs.size());
  for (const auto& [name, id] : body.constants) scope.values[name] = id;
  for (size_t i = 0; i < inputs.size(); ++i) scope.values[graph.input(static_cast<int>(i)).name()] = inputs[i];
}

// A function sees its inputs and nothing around it, and means operators by its own opset.
std::vector<TensorId> GraphImport::import_call(Subgraph& body, const std::vector<TensorId>& inputs, const Place& place) {
  const onnx::FunctionProto* function = body.function;
  std::vector<std::string> chain;
  for (const onnx::FunctionProto* caller : calls_) chain.push_back(name_of_function(*caller));
  if (std::find(calls_.begin(), calls_.end(), function) != calls_.end()) {
    chain.push_back(name_of_function(*function));
    throw unsupported("{}: calls itself ({}), which never ends; supported: functions without recursion", place.where, join(chain, " -> "));
  }
  if (calls_.size() >= kMaxFunctionDepth)
    throw unsupported("{}: calls of functions nest deeper than {}, which is the limit", place.where, kMaxFunctionDepth);
  const int64_t caller_opset = opset_;
  struct Return {
    GraphImport& import;
    int64_t opset;
    ~Return() {
      import.calls_.pop_back();
      import.opset_ = opset;
    }
  };
  unrolled_ += kCallNodes;
  calls_.push_back(function);
  const Return leave{*this, caller_opset};
  opset_ = body.opset;
  return import_body(body, inputs, place, Scope{});
}

std::vector<TensorId> GraphImport::import_body(Subgraph& body, const std::vector<TensorId>& inputs, const Place& place,
                                               const Scope& outer) {
  if (depth_ >= kMaxBodyDepth)
    throw unsupported("{}: functions and control flow nest deeper than {}, which is the limit", place.where, kMaxBodyDepth);
  const Deeper deeper(depth_);
  const size_t refused_before = refusals_.lines.size();
  read_body(body, place);
  unrolled_ += body.size;
  if (unrolled_ > kMaxUnrolledNodes) {
    const char* what = body.is_function() ? "the bodies of functions come" : "control flow unrolls";
    const char* advice = body.is_function() ? "" : "; give fewer iterations";
    throw unsupported("{}: {} to more than {} nodes, which is the limit{}", place.where, what, kMaxUnrolledNodes, advice);
  }
  Scope scope{&outer, {}};
  bind_inputs(body, inputs, place, scope);
  for (size_t i = 0; i < body.nodes.size(); ++i) {
    const Node& node = body.nodes[i];
    for (const std::string& name : node.outputs) scope.values[name] = TensorId();
    if (!body.rows[i] || !is_readable(node, scope)) continue;
    const auto& proto = body.proto->node(static_cast<int>(node.index));
    const std::string where = node_text(place.where, node.index, proto, opset_);
    refusals_.collect(where, proto, place.top_node, [&] { import_one(node, *body.rows[i], where, place, scope); });
  }
  if (refusals_.lines.size() > refused_before) throw AlreadyRefused();

  std::vector<TensorId> results;
  for (const auto& output : body.proto->output()) {
    const TensorId* id = scope.find(output.name());
    if (!id) throw bad_input("{}: output '{}' is made by no node", place.where, printable(output.name()));
    if (!id->valid()) throw AlreadyRefused();
    results.push_back(*id);
  }
  return results;
}

}  // namespace tamp::frontend
