// Reads a model step by step: file, versions, wiring, inputs and initializers, nodes in order, outputs, and last the claims of value_info.
#include "compiler/frontend/onnx_reader.h"

#include <fmt/format.h>
#include <onnx/onnx_pb.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <filesystem>
#include <optional>
#include <set>
#include <utility>

#include "compiler/frontend/builder.h"
#include "compiler/frontend/container.h"
#include "compiler/frontend/declared_types.h"
#include "compiler/frontend/graph_import.h"
#include "compiler/frontend/graph_order.h"
#include "compiler/frontend/lengths_reader.h"
#include "compiler/frontend/op_table.h"
#include "compiler/frontend/rebatch.h"
#include "compiler/frontend/refusals.h"
#include "compiler/support/error.h"
#include "compiler/support/text.h"

namespace tamp::frontend {
namespace {

// Adds the names that nodes and outputs read. Graphs that nodes hold are included, because they see the names around them.
void add_names_read(const onnx::GraphProto& graph, std::set<std::string>& names) {
  for (const auto& output : graph.output()) names.insert(output.name());
  for (const auto& node : graph.node()) {
    names.insert(node.input().begin(), node.input().end());
    for (const auto& attribute : node.attribute()) {
      if (attribute.has_g()) add_names_read(attribute.g(), names);
      for (const auto& inner : attribute.graphs()) add_names_read(inner, names);
    }
  }
}

constexpr const char* kTypesOfPorts = "floats of 16, 32 and 64 bits, bfloat16, integers of 8 to 64 bits, bool";

class Reader {
 public:
  Reader(const std::string& path, const ReadOptions& options) : path_(path), file_(file_text(path)), options_(options) {
    const std::string folder = std::filesystem::path(path).parent_path().string();
    external_ = options.external ? options.external : std::make_shared<ExternalData>();
    builder_.keeps_copies = options.keeps_copies;
    builder_.open_trips = options.open_trips;
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
    if (!unbound_.empty()) {
      if (refusals_.lines.empty()) throw bad_input(unbound_);
      refusals_.add(unbound_);
    }
    refusals_.throw_if_any();
    std::vector<ROperator>& rops = builder_.graph.rops;
    rops.insert(rops.begin(), builder_.folded.begin(), builder_.folded.end());
    Graph graph = drop_unread_results(remove_dead(std::move(builder_.graph)));
    take_folded(graph);
    if (own_batch_ != 0 && own_batch_ != options_.batch) graph = with_batch(file_, graph, own_batch_, options_.batch, builder_.words);
    if (options_.load_weights) verify(graph);
    return graph;
  }

  // Of the graph that was read, with keeps_copies.
  Folded& folded() { return folded_; }

  // With --batch: the number in the model that it replaces, or 0 where that is a symbol.
  int64_t own_batch() const { return own_batch_; }

  const Builder::Trips& trips() const { return builder_.trips; }

  // Where lengths of these names end the inputs of the graph that was read.
  std::vector<LengthAxes> input_axes(const Graph& graph, const std::vector<Length>& lengths, bool has_batches) const {
    std::vector<LengthAxes> axes(graph.inputs.size());
    for (size_t i = 0; i < graph.inputs.size(); ++i) {
      for (const auto& input : model_.graph().input()) {
        const DeclaredType type = declared_type(input);
        if (input.name() != graph.tensor(graph.inputs[i]).name || !type.dims) continue;
        for (size_t d = 0; d < type.dims->size(); ++d) {
          for (size_t l = 0; l < lengths.size(); ++l) {
            const bool is_batch = has_batches && l + 1 == lengths.size();
            if (is_batch ? d == 0 : (*type.dims)[d].symbol == lengths[l].name)
              axes[i].push_back({static_cast<int64_t>(d), {static_cast<int32_t>(l)}});
          }
        }
      }
    }
    return axes;
  }

 private:
  void take_folded(Graph& graph) {
    const auto end = std::find_if(graph.rops.begin(), graph.rops.end(),
                                  [&](const ROperator& rop) { return graph.tensor(rop.outputs[0]).role != Role::constant; });
    for (auto rop = graph.rops.begin(); rop != end && own_batch_ == 0; ++rop) {
      for (const TensorId id : rop->outputs) folded_[id] = *rop;
    }
    graph.rops.erase(graph.rops.begin(), end);
  }

  void read_graph() {
    builder_.graph.name = std::filesystem::path(path_).stem().string();
    const std::vector<size_t> order = order_nodes(file_, model_.graph(), opset_, /*is_body=*/false);
    reserve_names();
    read_initializers();
    check_frozen();
    read_inputs();
    GraphImport nodes(builder_, refusals_, model_, opset_, source_);
    for (const size_t i : order) nodes.import_node(*model_.mutable_graph()->mutable_node(static_cast<int>(i)), i, scope_, file_);
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

  void read_initializers() {
    std::set<std::string> is_read;
    add_names_read(model_.graph(), is_read);
    for (auto& proto : *model_.mutable_graph()->mutable_initializer()) {
      TensorId id;
      refusals_.collect([&] {
        const std::string where = fmt::format("{}: initializer '{}'", file_, printable(proto.name()));
        id = builder_.add_file_tensor(proto.name(), read_initializer(proto, is_read.contains(proto.name()), where));
      });
      scope_.values[proto.name()] = id;
    }
  }

  // External values that nobody reads are checked but not loaded. Initializers that name the same range of a file share one copy.
  FileTensor read_initializer(onnx::TensorProto& proto, bool is_read, const std::string& where) {
    if (proto.data_location() != onnx::TensorProto::EXTERNAL) return read_tensor(proto, source_, where);
    FileTensor value = read_tensor(proto, {source_.folder, /*load_weights=*/false}, where);
    if (value.data || !is_read || !source_.load_weights) return value;
    onnx::TensorProto range = proto;
    range.clear_name();
    range.clear_doc_string();
    range.clear_dims();
    TensorData& bytes = (*external_)[range.SerializeAsString()];
    if (!bytes) bytes = read_tensor(proto, source_, where).data;
    value.data = bytes;  // of the right length: that was checked
    return value;
  }

  // --freeze may name only inputs, and none that have a default.
  void check_frozen() const {
    std::vector<std::string> names;
    std::set<std::string> found;
    for (const auto& input : model_.graph().input()) {
      if (scope_.values.contains(input.name())) continue;
      names.push_back(fmt::format("'{}'", printable(input.name())));
      found.insert(input.name());
    }
    for (const auto& [name, value] : options_.frozen) {
      if (found.contains(name)) continue;
      throw bad_input("{}: --freeze {}: the model has no input of that name, its inputs are {}", file_, printable(name),
                      names.empty() ? "none" : join(names, ", "));
    }
  }

  // Values that --freeze gives come first: they also say what the symbols in their inputs' shapes are.
  void freeze_inputs(DimBinding& binding) {
    for (const auto& input : model_.graph().input()) {
      const auto frozen = options_.frozen.find(input.name());
      if (frozen == options_.frozen.end()) continue;
      const std::string where = fmt::format("{}: input '{}'", file_, printable(input.name()));
      const DeclaredType type = declared_type(input);
      const ops::Value& value = frozen->second;
      if (type.kind != "tensor")
        throw bad_input("{} is frozen to a tensor, it is a {}", where, type.kind.empty() ? "value without a type" : type.kind);
      if (dtype_of_onnx(type.element_type) != value.dtype) {
        throw bad_input("{} has element type {}, the value that it is frozen to {}", where, onnx_type_name(type.element_type),
                        name_of(value.dtype));
      }
      if (const std::string limit = shape_limit(value.shape); !limit.empty()) throw unsupported("{} {}", where, limit);
      binding.bind_to(type, value.shape, where);
      scope_.values[input.name()] = builder_.add_value(input.name(), value);
    }
  }

  // With --batch: the first extent of the inputs, if the model says it as a number. The graph is read with that, and gets the other batch
  // when all of it is known. A symbol is the batch as well.
  void find_own_batch() {
    for (const auto& input : model_.graph().input()) {
      const DeclaredType type = declared_type(input);
      if (options_.batch == 0 || scope_.values.contains(input.name()) || !type.dims || type.dims->empty()) continue;
      const DeclaredDim& first = type.dims->front();
      if (!first.symbol.empty()) continue;
      const std::string where = fmt::format("{}: input '{}'", file_, printable(input.name()));
      if (first.extent < 1) throw bad_input("{} begins with extent {}, which is no batch", where, first.extent);
      if (own_batch_ != 0 && first.extent != own_batch_) {
        throw bad_input(
            "{} begins with extent {}, another one with {}: --batch needs inputs whose first extent is the batch; "
            "--freeze makes a constant of an input that has none",
            where, first.extent, own_batch_);
      }
      own_batch_ = first.extent;
    }
  }

  void bind_batch(const DeclaredType& type, DimBinding& binding) const {
    if (options_.batch == 0 || !type.dims || type.dims->empty() || type.dims->front().symbol.empty()) return;
    binding.bind_symbol(type.dims->front().symbol, own_batch_ == 0 ? options_.batch : own_batch_,
                        fmt::format("--batch {}", options_.batch));
  }

  void read_inputs() {
    DimBinding binding(file_, options_.dims);
    freeze_inputs(binding);
    find_own_batch();
    std::vector<Tensor> bound;
    for (const auto& input : model_.graph().input()) {
      if (scope_.values.contains(input.name())) continue;  // an initializer with a declaration: check_claims looks at it; or frozen
      const std::string where = fmt::format("{}: input '{}'", file_, printable(input.name()));
      const DeclaredType type = declared_type(input);
      bind_batch(type, binding);
      scope_.values[input.name()] = TensorId();
      std::optional<Shape> shape;
      Tensor tensor;
      tensor.name = input.name();
      tensor.role = Role::input;
      refusals_.collect([&] { shape = input_shape(type, tensor.dtype, where, binding); });
      if (!shape) continue;
      tensor.shape = *shape;
      bound.push_back(std::move(tensor));
    }
    binding.check_names();
    unbound_ = binding.unbound();
    for (Tensor& tensor : bound) {
      const std::string name = tensor.name, limit = shape_limit(tensor.shape);
      if (!limit.empty()) {
        refusals_.add(fmt::format("{}: input '{}' {}", file_, printable(name), limit));
        continue;
      }
      scope_.values[name] = add_tensor(builder_.graph, std::move(tensor));
      builder_.graph.inputs.push_back(scope_.values[name]);
    }
  }

  std::optional<Shape> input_shape(const DeclaredType& type, DType& dtype, const std::string& where, DimBinding& binding) {
    if (type.kind.empty()) throw bad_input(where + " has no type");
    if (type.kind != "tensor") throw unsupported("{} is a {}, supported: tensors; export the model without it", where, type.kind);
    if (!is_onnx_type(type.element_type)) throw bad_input("{} has element type {}", where, onnx_type_name(type.element_type));
    std::optional<Shape> shape = binding.bind(type, where);
    if (shape && !checked_count(*shape)) throw bad_input("{} has the impossible shape {}", where, shape_text(*shape));
    const std::optional<DType> known = dtype_of_onnx(type.element_type);
    if (!known) {
      throw unsupported(
          "{} has element type {}, supported: {}; "
          "export the model without it",
          where, onnx_type_name(type.element_type), kTypesOfPorts);
    }
    dtype = *known;
    return shape;
  }

  // What is declared of inner tensors is often stale, in models that tools have changed; nothing here depends on it.
  void warn_of_claims() const {
    std::string first;
    int64_t wrong = 0;
    for (const auto& value : model_.graph().value_info()) {
      const std::string text = false_claim(value, "value_info");
      if (!text.empty() && ++wrong == 1) first = text;
    }
    if (wrong > 0 && options_.load_weights)
      spdlog::warn("{}{}; what is declared of inner tensors is ignored", first, wrong == 1 ? "" : fmt::format(" ({} are wrong)", wrong));
  }

  void check_claims() const {
    warn_of_claims();
    for (const auto& value : model_.graph().input()) check_claim(value, "input");
    for (const auto& value : model_.graph().output()) check_claim(value, "output");
  }

  void check_claim(const onnx::ValueInfoProto& value, const char* list) const {
    const std::string text = false_claim(value, list);
    if (!text.empty()) throw bad_input(text);
  }

  // What is false about a declaration, or nothing. Symbols are not checked: exporters name the same extent twice, and nothing here depends
  // on them.
  std::string false_claim(const onnx::ValueInfoProto& value, const char* list) const {
    const auto found = scope_.values.find(value.name());
    if (found == scope_.values.end() || !found->second.valid()) return "";
    const Tensor& tensor = builder_.graph.tensor(found->second);
    const DType dtype = builder_.dtype(found->second);
    const NarrowType narrow = narrow_of(found->second);
    const std::string type = narrow == NarrowType::none ? name_of(dtype) : onnx_type_name(static_cast<int>(narrow));
    const DeclaredType claim = declared_type(value);
    const std::string where = fmt::format("{}: {} declares '{}'", file_, list, printable(value.name()));
    const std::string kind = builder_.sequences.contains(found->second) ? "sequence" : "tensor";
    if (claim.kind.empty() || (claim.kind == kind && kind == "sequence")) return "";
    if (claim.kind != kind) return fmt::format("{} to be a {}, it is a {}", where, claim.kind, kind);
    const bool is_it =
        narrow == NarrowType::none ? dtype_of_onnx(claim.element_type) == dtype : narrow_of_onnx(claim.element_type) == narrow;
    if (claim.element_type != 0 && !is_it) return fmt::format("{} to be {}, it is {}", where, onnx_type_name(claim.element_type), type);
    if (!claim.dims) return "";
    bool fits = claim.dims->size() == tensor.shape.size();
    const auto padded = builder_.padded.find(found->second);  // the claim may count only the valid entries
    for (size_t d = 0; fits && d < tensor.shape.size(); ++d) {
      const DeclaredDim& dim = (*claim.dims)[d];
      const bool is_padded = padded != builder_.padded.end() && padded->second.axis == static_cast<int64_t>(d);
      fits = !dim.symbol.empty() || dim.extent == tensor.shape[d] || (is_padded && dim.extent >= 0 && dim.extent < tensor.shape[d]);
    }
    return fits ? "" : fmt::format("{} to be of shape {}, it is {}", where, dims_text(claim), shape_text(tensor.shape));
  }

  NarrowType narrow_of(TensorId id) const {
    const auto found = builder_.narrow.find(id);
    return found == builder_.narrow.end() ? NarrowType::none : found->second;
  }

  void read_outputs() {
    if (model_.graph().output_size() == 0) throw bad_input("{}: the graph has no outputs", file_);
    std::set<std::string> names;
    std::vector<std::string> wanted;
    for (const auto& output : model_.graph().output()) {
      const std::string text = printable(output.name());
      const auto found = scope_.values.find(output.name());
      if (found == scope_.values.end()) throw bad_input("{}: graph output '{}' is made by no node", file_, text);
      if (builder_.sequences.contains(found->second))
        throw unsupported("{}: graph output '{}' is a sequence, supported: tensors", file_, text);
      const TensorId id = found->second;
      if (const NarrowType narrow = narrow_of(id); narrow != NarrowType::none) {
        throw unsupported("{}: graph output '{}' has element type {}, supported: {}; add a Cast or DequantizeLinear behind it", file_, text,
                          onnx_type_name(static_cast<int>(narrow)), kTypesOfPorts);
      }
      const bool is_first = names.insert(output.name()).second;
      const std::string name = is_first ? output.name() : builder_.unique_tensor_name(output.name());
      names.insert(name);
      scope_.values[name] = id;
      if (id.valid()) wanted.push_back(name);
    }
    if (wanted.size() < names.size()) return;  // one was refused, and the refusals say why
    builder_.may_read_padded = true;           // a copy takes each entry by itself
    for (const std::string& name : wanted) name_output(name, names);
    for (size_t i = 0; i < wanted.size(); ++i) add_count(wanted[i], static_cast<int64_t>(i), names);
  }

  // The tensor that says how many entries of a padded output are valid becomes an output too.
  void add_count(const std::string& name, int64_t output, std::set<std::string>& names) {
    const auto padded = builder_.padded.find(scope_.values.at(name));
    if (padded == builder_.padded.end()) return;
    const std::string count = builder_.unique_tensor_name(name + ".count");
    names.insert(count);
    scope_.values[count] = padded->second.count;
    builder_.graph.padded.push_back({output, static_cast<int64_t>(builder_.graph.outputs.size()), padded->second.axis});
    name_output(count, names);
  }

  // Identity and its like give one tensor several names; an output must have its own. It gets it by renaming, or, if the
  // tensor is an input or another output, by a copy. An output that the model lists twice has two names here, "y" and "y:2".
  void name_output(const std::string& name, const std::set<std::string>& outputs) {
    TensorId id = scope_.values.at(name);
    const Tensor tensor = builder_.graph.tensor(id);
    if (tensor.name != name) {
      if (tensor.role == Role::constant) {
        id = builder_.add_value(name, {tensor.dtype, tensor.shape, tensor.data});
      } else if (tensor.role == Role::activation && !outputs.contains(tensor.name)) {
        builder_.graph.tensor(id).name = name;
      } else {
        id = builder_.emit({Elementwise{{{ElementwiseOp::identity, {0}}}}, {id}, name, name, file_});
        builder_.graph.tensor(id).name = name;
      }
    }
    builder_.graph.outputs.push_back(id);
  }

  const std::string& path_;
  std::string file_;
  const ReadOptions& options_;
  std::shared_ptr<ExternalData> external_;
  TensorSource source_;
  onnx::ModelProto model_;
  int64_t opset_ = 0;
  Builder builder_;
  Refusals refusals_;
  Scope scope_;
  Folded folded_;
  std::string unbound_;    // says which symbolic dimensions have no value
  int64_t own_batch_ = 0;  // with --batch: the number that it replaces, or 0
};

ReadModel read_at(const std::string& path, const ReadOptions& options, const std::vector<Length>& lengths, bool has_batches) {
  Reader reader(path, options);
  ReadModel made;
  made.graph = reader.read();
  made.trips = reader.trips();
  made.folded = std::move(reader.folded());
  made.graph.input_axes = reader.input_axes(made.graph, lengths, has_batches);
  made.graph.lengths = lengths;
  made.own_batch = reader.own_batch();
  if (options.extend) options.extend(made.graph);
  return made;
}

}  // namespace

Graph read_onnx(const std::string& path, const ReadOptions& options) {
  if (!options.ranges.empty() || options.batches) return read_with_lengths(path, options, read_at);
  Graph graph = Reader(path, options).read();
  if (options.extend) options.extend(graph);
  return graph;
}

std::vector<SupportedOp> supported_ops() {
  std::vector<SupportedOp> supported;
  for (const OpRow& row : op_table())
    supported.push_back({row.domain.empty() ? "ai.onnx" : row.domain, row.name, row.versions, row.limits});
  return supported;
}

}  // namespace tamp::frontend
