// The way of a model through the frontend: file, versions, wiring, inputs and initializers, nodes in order, outputs, and
// the claims of value_info last.
//
// Odd: refusals are collected, not thrown at the first. A node that is refused leaves its results without a tensor
// ("refused" below), nodes that read those are passed over in silence, and the rest is still looked at; so a user sees
// all that stands in the way at once.
#include "compiler/frontend/onnx_reader.h"

#include <fmt/format.h>
#include <onnx/onnx_pb.h>

#include <algorithm>
#include <filesystem>
#include <set>
#include <unordered_map>
#include <utility>

#include "compiler/frontend/builder.h"
#include "compiler/frontend/container.h"
#include "compiler/frontend/declared_types.h"
#include "compiler/frontend/graph_order.h"
#include "compiler/frontend/node_import.h"
#include "compiler/frontend/op_table.h"
#include "compiler/frontend/refusals.h"
#include "compiler/support/error.h"
#include "compiler/support/text.h"

namespace tamp::frontend {
namespace {

class Reader {
 public:
  Reader(const std::string& path, const ReadOptions& options) : path_(path), file_(file_text(path)), options_(options) {
    const std::string folder = std::filesystem::path(path).parent_path().string();
    source_ = {folder.empty() ? "." : folder, options.load_weights};
  }

  Graph read() {
    read_container(path_, model_);
    opset_ = check_versions(path_, model_);
    refusals_ = find_refusals(path_, model_, opset_);
    try {
      read_graph();
    } catch (const Error& error) {
      if (refusals_.lines.empty()) throw;
      if (error.code() == ExitCode::unsupported) refusals_.add(error.what());
    }
    refusals_.throw_if_any();
    Graph graph = remove_dead(std::move(builder_.graph));
    if (options_.load_weights) verify(graph);
    return graph;
  }

 private:
  void read_graph() {
    builder_.graph.name = std::filesystem::path(path_).stem().string();
    const std::vector<size_t> order = order_nodes(path_, model_.graph(), opset_);
    reserve_names();
    read_initializers();
    read_inputs();
    for (const size_t i : order) read_node_number(i);
    check_claims();
    read_outputs();
  }

  void reserve_names() {
    for (const auto& input : model_.graph().input()) builder_.reserve_tensor_name(input.name());
    for (const auto& initializer : model_.graph().initializer()) builder_.reserve_tensor_name(initializer.name());
    for (const auto& node : model_.graph().node()) {
      for (const std::string& name : node.output()) builder_.reserve_tensor_name(name);
    }
  }

  // Takes `action`'s refusal into the list.
  template <class F>
  void collect(int64_t node, F&& action) {
    try {
      action();
    } catch (const Error& error) {
      if (error.code() != ExitCode::unsupported) throw;
      refusals_.add(error.what(), node);
    }
  }

  void read_initializers() {
    for (auto& proto : *model_.mutable_graph()->mutable_initializer()) {
      TensorId id;
      collect(-1, [&] {
        const std::string where = fmt::format("{}: initializer '{}'", file_, printable(proto.name()));
        id = builder_.add_value(proto.name(), read_tensor(proto, source_, where));
      });
      values_[proto.name()] = id;
    }
  }

  void read_inputs() {
    DimBinding binding(file_, options_.dims);
    std::vector<std::pair<std::string, Shape>> bound;
    for (const auto& input : model_.graph().input()) {
      if (values_.contains(input.name())) continue;  // an initializer with a declaration: check_claims looks at it
      const std::string where = fmt::format("{}: input '{}'", file_, printable(input.name()));
      std::optional<Shape> shape;
      values_[input.name()] = TensorId();
      collect(-1, [&] { shape = input_shape(declared_type(input), where, binding); });
      if (shape) bound.emplace_back(input.name(), *shape);
    }
    binding.finish();
    for (const auto& [name, shape] : bound) {
      const std::string limit = shape_limit(shape);
      if (!limit.empty()) {
        refusals_.add(fmt::format("{}: input '{}' {}", file_, printable(name), limit));
        continue;
      }
      Tensor tensor;
      tensor.name = name;
      tensor.shape = shape;
      tensor.role = Role::input;
      values_[name] = add_tensor(builder_.graph, std::move(tensor));
      builder_.graph.inputs.push_back(values_[name]);
    }
  }

  std::optional<Shape> input_shape(const DeclaredType& type, const std::string& where, DimBinding& binding) {
    if (type.kind.empty()) throw bad_input(where + " has no type");
    if (type.kind != "tensor") throw unsupported(fmt::format("{} is a {}, supported: tensors", where, type.kind));
    if (!is_onnx_type(type.element_type)) throw bad_input(fmt::format("{} has element type {}", where, onnx_type_name(type.element_type)));
    std::optional<Shape> shape = binding.bind(type, where);
    if (shape && !checked_count(*shape)) throw bad_input(fmt::format("{} has the impossible shape {}", where, shape_text(*shape)));
    if (dtype_of_onnx(type.element_type) == DType::f32) return shape;
    throw unsupported(fmt::format("{} has element type {}, supported: FLOAT (f32)", where, onnx_type_name(type.element_type)));
  }

  void read_node_number(size_t i) {
    onnx::NodeProto& proto = *model_.mutable_graph()->mutable_node(static_cast<int>(i));
    const OpChoice choice = choose_op(proto.domain(), proto.op_type(), opset_);
    bool readable = choice.row != nullptr;
    for (const std::string& name : proto.input()) readable = readable && (name.empty() || values_.at(name).valid());
    std::vector<TensorId> results;
    if (readable) {
      collect(static_cast<int64_t>(i), [&] { results = import_node(proto, i, choice); });
    }
    for (int k = 0; k < proto.output_size(); ++k) {
      if (proto.output(k).empty()) continue;
      values_[proto.output(k)] = static_cast<size_t>(k) < results.size() ? results[static_cast<size_t>(k)] : TensorId();
    }
  }

  std::vector<TensorId> import_node(onnx::NodeProto& proto, size_t i, const OpChoice& choice) {
    const std::string where = node_text(path_, i, proto, opset_);
    Node node = read_node(proto, i, opset_, source_, where);
    node.version = choice.version;
    std::vector<TensorId> inputs;
    for (const std::string& name : node.inputs) inputs.push_back(name.empty() ? TensorId() : values_.at(name));
    NodeImport import(builder_, node, where, std::move(inputs));
    choice.row->import(import);
    return import.finish();
  }

  void check_claims() {
    for (const auto& value : model_.graph().value_info()) check_claim(value, "value_info");
    for (const auto& value : model_.graph().input()) check_claim(value, "input");
    for (const auto& value : model_.graph().output()) check_claim(value, "output");
  }

  // Symbols are not checked: exporters name the same extent twice, and nothing here depends on them.
  void check_claim(const onnx::ValueInfoProto& value, const char* list) {
    const auto found = values_.find(value.name());
    if (found == values_.end() || !found->second.valid()) return;
    const Tensor& tensor = builder_.graph.tensor(found->second);
    const DType dtype = builder_.dtype(found->second);
    const DeclaredType claim = declared_type(value);
    const std::string where = fmt::format("{}: {} declares '{}'", file_, list, printable(value.name()));
    if (claim.kind.empty()) return;
    if (claim.kind != "tensor") throw bad_input(fmt::format("{} to be a {}, it is a tensor", where, claim.kind));
    if (claim.element_type != 0 && dtype_of_onnx(claim.element_type) != dtype) {
      throw bad_input(fmt::format("{} to be {}, it is {}", where, onnx_type_name(claim.element_type), name_of(dtype)));
    }
    if (!claim.dims) return;
    bool fits = claim.dims->size() == tensor.shape.size();
    for (size_t d = 0; fits && d < tensor.shape.size(); ++d) {
      const DeclaredDim& dim = (*claim.dims)[d];
      fits = !dim.symbol.empty() || dim.extent == tensor.shape[d];
    }
    if (!fits) throw bad_input(fmt::format("{} to be of shape {}, it is {}", where, dims_text(claim), shape_text(tensor.shape)));
  }

  void read_outputs() {
    if (model_.graph().output_size() == 0) throw bad_input(fmt::format("{}: the graph has no outputs", file_));
    std::set<std::string> names;
    std::vector<std::string> wanted;
    for (const auto& output : model_.graph().output()) {
      const std::string text = printable(output.name());
      if (!names.insert(output.name()).second) throw bad_input(fmt::format("{}: two graph outputs are named '{}'", file_, text));
      const auto found = values_.find(output.name());
      if (found == values_.end()) throw bad_input(fmt::format("{}: graph output '{}' is made by no node", file_, text));
      if (found->second.valid()) wanted.push_back(output.name());
    }
    if (wanted.size() < names.size()) return;  // one was refused, and the refusals say why
    for (const std::string& name : wanted) {
      const TensorId id = values_.at(name);
      const bool truth = builder_.dtype(id) == DType::boolean && !builder_.is_constant(id);
      if (truth) refusals_.add(fmt::format("{}: output '{}' is bool and known only at run time, supported: f32", file_, printable(name)));
    }
    for (const std::string& name : wanted) name_output(name, names);
  }

  // Identity and its like give one tensor several names; an output must have its own. It gets it by renaming, or, if the
  // tensor is an input or another output, by a copy.
  void name_output(const std::string& name, const std::set<std::string>& outputs) {
    TensorId id = values_.at(name);
    const Tensor tensor = builder_.graph.tensor(id);
    if (tensor.name != name) {
      if (tensor.role == Role::constant) {
        id = builder_.add_value(name, {tensor.dtype, tensor.shape, tensor.data});
      } else if (tensor.role == Role::activation && !outputs.contains(tensor.name)) {
        builder_.graph.tensor(id).name = name;
      } else {
        id = builder_.emit({Elementwise{{{ElementwiseOp::identity, {0}}}}, {id}, DType::f32, tensor.shape, name, name, file_});
        builder_.graph.tensor(id).name = name;
      }
    }
    builder_.graph.outputs.push_back(id);
  }

  const std::string& path_;
  std::string file_;
  const ReadOptions& options_;
  TensorSource source_;
  onnx::ModelProto model_;
  int64_t opset_ = 0;
  Builder builder_;
  Refusals refusals_;
  std::unordered_map<std::string, TensorId> values_;  // by ONNX name; none = refused
};

}  // namespace

Graph read_onnx(const std::string& path, const ReadOptions& options) { return Reader(path, options).read(); }

std::vector<SupportedOp> supported_ops() {
  std::vector<SupportedOp> supported;
  for (const OpRow& row : op_table()) supported.push_back({"ai.onnx", row.name, row.versions, row.limits});
  return supported;
}

}  // namespace tamp::frontend
