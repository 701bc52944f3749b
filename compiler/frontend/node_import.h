// The interface that an importer of one operator works with: its node's operands and attributes, checked, and functions to emit rOperators.
// Every refusal is made here, so that all of them name file, node, operator and version in one form.
//
// An attribute that no getter asked for is unknown in this version of the operator, which finish() reports: importers
// must ask for attributes only in the versions that have them.
#pragma once

#include <fmt/format.h>

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "compiler/frontend/builder.h"
#include "compiler/frontend/node.h"
#include "compiler/frontend/padded.h"
#include "compiler/support/error.h"

namespace tamp::frontend {

using Ints = std::vector<int64_t>;

class NodeImport {
 public:
  // Where the node stands. `prefix` is empty in the model's graph, `suffix` outside of loops.
  struct Context {
    std::string where;   // the beginning of every message
    std::string prefix;  // goes before the name of a node that has none
    std::string suffix;  // goes behind all names
    // Imports a body: the attribute's name, the body's inputs, the number of the iteration or -1.
    std::function<std::vector<TensorId>(Subgraph&, const std::string&, const std::vector<TensorId>&, int64_t)> run_body;
  };

  // `inputs`: the tensors of node.inputs, none ids where an operand is left out.
  NodeImport(Builder& builder, const Node& node, Context context, std::vector<TensorId> inputs);

  int version() const { return node_.version; }
  // The model is wrong; or it is right, but tamp does not do this. `why` may be a format with its arguments.
  Error bad(const std::string& why) const;
  Error refuse(const std::string& why) const;
  template <class First, class... Rest>
  Error bad(fmt::format_string<First, Rest...> why, First&& first, Rest&&... rest) const {
    return bad(fmt::format(why, std::forward<First>(first), std::forward<Rest>(rest)...));
  }
  template <class First, class... Rest>
  Error refuse(fmt::format_string<First, Rest...> why, First&& first, Rest&&... rest) const {
    return refuse(fmt::format(why, std::forward<First>(first), std::forward<Rest>(rest)...));
  }

  // Operands.
  void expect_inputs(size_t min, size_t max) const;
  void expect_counts(size_t min_inputs, size_t max_inputs, size_t max_outputs = 1) const {
    expect_inputs(min_inputs, max_inputs);
    expect_outputs(max_outputs);
  }
  size_t input_count() const { return inputs_.size(); }
  bool has(size_t i) const { return i < inputs_.size() && inputs_[i].valid(); }
  TensorId in(size_t i) const;
  TensorId float_in(size_t i) const {  // of floats
    expect_float({in(i)});
    return in(i);
  }
  TensorId optional_in(size_t i) const { return has(i) ? inputs_[i] : TensorId(); }
  Shape shape(TensorId id) const { return builder_.graph.tensor(id).shape; }
  int64_t rank(TensorId id) const { return static_cast<int64_t>(builder_.graph.tensor(id).shape.size()); }
  DType dtype(TensorId id) const { return builder_.dtype(id); }
  // The type whose numbers the tensor holds in another one; and the tensor as one of the type that holds them, or as one of `type`.
  NarrowType narrow(TensorId id) const;
  TensorId as_held(TensorId id);
  TensorId of_narrow(TensorId id, NarrowType type);
  std::string type_text(TensorId id) const;  // "f32", "INT4"
  bool is_constant(TensorId id) const { return builder_.is_constant(id) && builder_.has_data(id); }
  ops::Value value(TensorId constant) const { return builder_.value(constant); }
  void expect_same_dtype(const std::vector<TensorId>& ids) const;
  void expect_float(const std::vector<TensorId>& ids) const;   // and all of one type
  void expect_number(const std::vector<TensorId>& ids) const;  // float or integer, and all of one type
  void expect_whole(const std::vector<TensorId>& ids) const;   // integers of one type
  void expect_bool(const std::vector<TensorId>& ids) const;
  // The values of an operand that must be known now; `name` is its name in ONNX's words.
  std::string freeze_advice(TensorId id) const;  // which inputs --freeze would make constants, so that `id` is one; or empty
  void expect_constant(size_t i, std::string_view name) const;
  Ints ints(size_t i, std::string_view name) const;  // i32 or i64, rank 0 or 1
  Ints flat_ints(TensorId constant) const;           // i32 or i64, any shape
  std::optional<Ints> optional_ints(size_t i, std::string_view name) const;
  double number(size_t i, std::string_view name) const;  // one element of any type
  bool truth(size_t i, std::string_view name) const { return number(i, name) != 0; }

  // How much of a tensor is valid (padded.h), and the count that a tensor of one integer holds.
  std::optional<Builder::Padded> padding(TensorId id) const;
  std::optional<Counted> counted(TensorId id) const { return count_in(builder_, id); }
  bool is_same_count(TensorId a, TensorId b) const { return frontend::is_same_count(builder_.graph, a, b); }
  bool is_sequence(TensorId id) const { return builder_.sequences.contains(id); }
  const std::vector<TensorId>& elements(size_t i) const;  // of operand i, which must be a sequence

  // Attributes.
  int64_t attr_int(std::string_view name, int64_t fallback);
  bool attr_flag(std::string_view name, bool fallback);  // 0 or 1
  float attr_float(std::string_view name, float fallback);
  std::string attr_string(std::string_view name, const std::string& fallback);
  std::optional<int64_t> find_int(std::string_view name);
  std::optional<float> find_float(std::string_view name);
  std::optional<Ints> find_ints(std::string_view name);
  std::optional<std::vector<float>> find_floats(std::string_view name);
  std::optional<std::vector<std::string>> find_strings(std::string_view name);
  const Attribute* find(std::string_view name);  // of any kind
  void ignore(std::string_view name) { find(name); }
  void expect_graph(std::string_view name);
  Error wrong_kind(const Attribute& attribute, std::string_view expected) const;

  // -rank..rank-1 (or ..rank, with_end) to 0..; Error that names `what`.
  int64_t axis(int64_t axis, int64_t rank, std::string_view what = "axis", bool with_end = false) const;
  // The same for a list without duplicates; sorted.
  Ints axes(const Ints& axes, int64_t rank, std::string_view what = "axes") const;

  // Results.
  TensorId add(OpAttrs attrs, std::vector<TensorId> inputs);
  // One rOperator with several results; its name is the node's with `suffix`.
  std::vector<TensorId> add_all(OpAttrs attrs, std::vector<TensorId> inputs, std::string_view suffix = "");
  // The types of the results that add() would make.
  std::vector<ops::TensorType> infer(OpAttrs attrs, std::vector<TensorId> inputs) const;
  TensorId part(TensorId id, int64_t i);  // x[i] along the first dimension; of a constant made once for all nodes
  TensorId elementwise(ElementwiseOp op, const std::vector<TensorId>& inputs, float a = 0, float b = 0);  // broadcast
  TensorId reshape(TensorId id, const Shape& shape);  // the tensor itself if it has that shape
  // The same where it is known which dimension of the result each of the tensor's is, or -1.
  TensorId reshape(TensorId id, const Shape& shape, const Ints& kept);
  TensorId cast(TensorId id, DType to);
  // Along `axis`: start, start + step, .., so many as `extent` says; the tensor itself if that is all of it.
  TensorId slice_axis(TensorId id, int64_t axis, int64_t start, int64_t extent, int64_t step = 1);
  bool keeps_copies() const { return builder_.keeps_copies; }
  TensorId expand(TensorId id, const Shape& shape);  // repeats along extents 1 and new leading dimensions
  TensorId constant(ops::Value value);
  TensorId file_tensor(FileTensor value);
  TensorId unpacked(TensorId source, const Builder::Key& key, ops::Value value) {
    return builder_.unpacked(name_, source, key, std::move(value), context_.where);
  }
  TensorId sequence(std::vector<TensorId> elements);
  TensorId growing();                    // a sequence in a loop of run time (Builder::growing)
  TensorId constant_f32(float value);    // a scalar
  TensorId constant_f64(double value);   // a scalar
  TensorId constant_bool(bool value);    // a scalar
  TensorId constant_i64(int64_t value);  // a scalar
  TensorId constant_i64(const Ints& values, const Shape& shape);
  TensorId kept(TensorId constant);                                                         // the same as a value of run time
  TensorId constant_range(int64_t first, int64_t count, int64_t step, const Shape& shape);  // i64: first, first + step, ..
  // i64: 0, step, 2 * step, .. along dimension `axis` of `rank`, the others of extent 1.
  TensorId counting(int64_t extent, size_t rank, size_t axis, int64_t step = 1);
  Shape broadcast(const Shape& a, const Shape& b) const;
  void charge(int64_t bytes) { builder_.charge(bytes, context_.where); }

  // Emits the rOperators of a body's nodes at this place, and returns the body's outputs. Throws AlreadyRefused if one of its nodes is
  // refused.
  std::vector<TensorId> run_body(std::string_view name, const std::vector<TensorId>& inputs, int64_t iteration = -1);
  size_t body_outputs(std::string_view name);
  // How many iterations of its body there are (Builder::trips); and, if it must be a loop of run time, how many there are at this length.
  void note_trips(int64_t count) { builder_.trips[own_name()].push_back(count); }
  std::optional<int64_t> open_trips() const;
  int64_t body_size(std::string_view name);  // in nodes; known when it has run
  Builder& builder() { return builder_; }    // for bodies whose rOperators are changed or dropped afterwards

  size_t output_count() const { return node_.outputs.size(); }
  bool wants(size_t k) const { return k < node_.outputs.size() && !node_.outputs[k].empty(); }
  void expect_outputs(size_t max) const;
  void result(size_t k, TensorId id);
  // A result whose entries along `axis` are valid up to `count` (i64[1]), which may be known only at run time.
  void padded_result(size_t k, TensorId id, TensorId count, int64_t axis);

  // To be called last: reports unknown attributes and missing results, and gives new tensors the names of the node's outputs. Returns one
  // id per output (none where it is left out).
  std::vector<TensorId> finish();

 private:
  bool is_copy(TensorId id, const Shape& to) const;
  template <class T>
  std::optional<T> find_as(std::string_view name, std::string_view kind);
  Subgraph& body(std::string_view name);
  std::string own_name() const;

  Builder& builder_;
  const Node& node_;
  Context context_;
  std::string name_;  // of the node's rOperators
  std::vector<TensorId> inputs_;
  std::vector<bool> known_attributes_;
  std::vector<TensorId> results_;
  size_t first_new_tensor_;  // tensors from here on were made by this node
};

}  // namespace tamp::frontend
