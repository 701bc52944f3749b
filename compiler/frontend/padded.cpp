#include "compiler/frontend/padded.h"

#include <algorithm>
#include <cstring>

#include "compiler/support/error.h"
#include "compiler/support/text.h"

namespace tamp::frontend {
namespace {

using Ints = std::vector<int64_t>;

template <class T>
std::optional<T> attribute(const Node& node, std::string_view name) {
  for (const Attribute& attribute : node.attributes) {
    if (attribute.name != name) continue;
    if (const auto* value = std::get_if<T>(&attribute.value)) return *value;
  }
  return std::nullopt;
}

bool is_elementwise(const std::string& op_type) {
  const auto rows = function_rows();
  const auto is_named = [&](const FunctionRow& row) { return row.onnx.name != nullptr && op_type == row.onnx.name; };
  return op_type == "Cast" || op_type == "Identity" || std::any_of(rows.begin(), rows.end(), is_named);
}

class Passing {
 public:
  Passing(const Builder& builder, const Node& node, const std::vector<TensorId>& inputs, size_t padded, int64_t axis)
      : builder_(builder), node_(node), inputs_(inputs), padded_(padded), axis_(axis) {}

  // The padded dimension of the result; none if an entry of the result may depend on several entries of the operand.
  std::optional<int64_t> run() const {
    const std::string& op = node_.op_type;
    if (is_elementwise(op)) return elementwise();
    if (op == "Transpose") return transposed();
    if (op == "Gather") return gathered();
    if (op == "GatherND") return gathered_places();
    if (op == "Squeeze" || op == "Unsqueeze") return padded_ == 0 ? squeezed(op == "Squeeze") : std::nullopt;
    return std::nullopt;
  }

 private:
  const Shape& shape(size_t i) const { return builder_.graph.tensor(inputs_[i]).shape; }
  int64_t rank() const { return static_cast<int64_t>(shape(padded_).size()); }

  // Other operands must have extent 1 along the padded dimension and no more dimensions than the padded operand.
  std::optional<int64_t> elementwise() const {
    for (size_t i = 0; i < inputs_.size(); ++i) {
      if (i == padded_ || !inputs_[i].valid()) continue;
      const Shape& other = shape(i);
      const int64_t from_end = rank() - axis_, at = static_cast<int64_t>(other.size()) - from_end;
      if (static_cast<int64_t>(other.size()) > rank() || (at >= 0 && other[static_cast<size_t>(at)] != 1)) return std::nullopt;
    }
    return axis_;
  }

  std::optional<int64_t> transposed() const {
    const std::optional<Ints> perm = attribute<Ints>(node_, "perm");
    if (!perm) return rank() - 1 - axis_;
    const auto at = std::find(perm->begin(), perm->end(), axis_);
    return at == perm->end() ? std::nullopt : std::optional<int64_t>(at - perm->begin());
  }

  std::optional<int64_t> gathered() const {
    if (inputs_.size() != 2 || !inputs_[0].valid() || !inputs_[1].valid()) return std::nullopt;
    const auto data_rank = static_cast<int64_t>(shape(0).size()), index_rank = static_cast<int64_t>(shape(1).size());
    int64_t along = attribute<int64_t>(node_, "axis").value_or(0);
    along += along < 0 ? data_rank : 0;
    if (padded_ == 1) return along + axis_;
    if (along == axis_) return std::nullopt;
    return axis_ < along ? axis_ : axis_ - 1 + index_rank;
  }

  // GatherND with padded indices: each entry is a place, whose coordinates lie along the last dimension.
  std::optional<int64_t> gathered_places() const {
    if (padded_ != 1 || axis_ == rank() - 1 || attribute<int64_t>(node_, "batch_dims").value_or(0) != 0) return std::nullopt;
    return axis_;
  }

  std::optional<int64_t> squeezed(bool removes) const {
    std::optional<Ints> axes = attribute<Ints>(node_, "axes");
    if (inputs_.size() > 1 && inputs_[1].valid() && builder_.has_data(inputs_[1]) && builder_.dtype(inputs_[1]) == DType::i64) {
      axes = ops::raw_numbers<int64_t>(builder_.value(inputs_[1]));
    }
    if (!axes) return std::nullopt;
    const int64_t whole = removes ? rank() : rank() + static_cast<int64_t>(axes->size());
    for (int64_t& each : *axes) each += each < 0 ? whole : 0;
    std::sort(axes->begin(), axes->end());
    int64_t at = axis_;
    for (const int64_t each : *axes) {
      if (removes && each == axis_) return std::nullopt;
      if (removes && each < axis_) --at;
      if (!removes && each <= at) ++at;
    }
    return at;
  }

  const Builder& builder_;
  const Node& node_;
  const std::vector<TensorId>& inputs_;
  size_t padded_;
  int64_t axis_;
};

// One element of a list of integers.
struct Element {
  TensorId id;
  int64_t at = 0;
};

// Where an rOperator takes an element from, unchanged; none if it is made of it.
class Origin {
 public:
  Origin(const Builder& builder, const ROperator& rop, int64_t at) : builder_(builder), rop_(rop), at_(at) {}

  std::optional<Element> operator()(const Reshape&) const { return Element{rop_.inputs[0], at_}; }
  std::optional<Element> operator()(const Slice& slice) const {
    if (slice.starts.size() != 1) return std::nullopt;
    return Element{rop_.inputs[0], slice.starts[0] + at_ * slice.steps[0]};
  }
  std::optional<Element> operator()(const Concat&) const {
    int64_t at = at_;
    for (const TensorId part : rop_.inputs) {
      if (shape(part).size() != 1) return std::nullopt;
      if (at < shape(part)[0]) return Element{part, at};
      at -= shape(part)[0];
    }
    return std::nullopt;
  }
  std::optional<Element> operator()(const Gather&) const {
    if (shape(rop_.inputs[0]).size() != 1 || !builder_.has_data(rop_.inputs[1]) || builder_.dtype(rop_.inputs[1]) != DType::i64)
      return std::nullopt;
    int64_t index = 0;
    std::memcpy(&index, builder_.value(rop_.inputs[1]).data->data() + at_ * static_cast<int64_t>(sizeof index), sizeof index);
    return Element{rop_.inputs[0], index < 0 ? index + shape(rop_.inputs[0])[0] : index};
  }
  std::optional<Element> operator()(const Elementwise& op) const {
    const bool is_copy = op.steps.size() == 1 && (op.steps[0].op == ElementwiseOp::identity || op.steps[0].op == ElementwiseOp::cast);
    if (!is_copy || element_count(shape(rop_.inputs[0])) != element_count(shape(rop_.outputs[0]))) return std::nullopt;
    const DType dtype = builder_.dtype(rop_.outputs[0]);
    return dtype == DType::i64 || dtype == DType::i32 ? std::optional(Element{rop_.inputs[0], at_}) : std::nullopt;
  }
  template <class Other>
  std::optional<Element> operator()(const Other&) const {
    return std::nullopt;
  }

 private:
  const Shape& shape(TensorId id) const { return builder_.graph.tensor(id).shape; }

  const Builder& builder_;
  const ROperator& rop_;
  int64_t at_;
};

// a = min(b, a constant).
bool bounds(const Graph& graph, TensorId a, TensorId b) {
  const ROperator* const maker = maker_of(graph, a);
  const auto* const op = maker ? std::get_if<Elementwise>(&maker->attrs) : nullptr;
  return op && op->steps.size() == 1 && op->steps[0].op == ElementwiseOp::min && maker->inputs.size() == 2 && maker->inputs[0] == b &&
         graph.tensor(maker->inputs[1]).role == Role::constant;
}

}  // namespace

const ROperator* maker_of(const Graph& graph, TensorId id) {
  const auto makes = [&](const ROperator& rop) { return std::find(rop.outputs.begin(), rop.outputs.end(), id) != rop.outputs.end(); };
  const auto found = std::find_if(graph.rops.rbegin(), graph.rops.rend(), makes);
  return found == graph.rops.rend() ? nullptr : &*found;
}

bool handles_padding(const Node& node, bool is_onnx) { return is_onnx && (node.op_type == "Shape" || node.op_type == "ScatterND"); }

std::optional<Counted> count_in(const Builder& builder, TensorId id) {
  if (element_count(builder.graph.tensor(id).shape) != 1) return std::nullopt;
  Element element{id, 0};
  for (;;) {
    for (const auto& [tensor, padded] : builder.padded) {
      if (padded.count == element.id) return Counted{padded.count, builder.graph.tensor(tensor).shape[static_cast<size_t>(padded.axis)]};
    }
    const ROperator* const maker = maker_of(builder.graph, element.id);
    if (!maker) return std::nullopt;
    const std::optional<Element> origin = std::visit(Origin(builder, *maker, element.at), maker->attrs);
    if (!origin) return std::nullopt;
    element = *origin;
  }
}

bool is_same_count(const Graph& graph, TensorId a, TensorId b) { return a == b || bounds(graph, a, b) || bounds(graph, b, a); }

std::optional<Builder::Padded> padding_after(const Builder& builder, const Node& node, const std::vector<TensorId>& inputs, bool is_onnx,
                                             const std::string& where) {
  std::optional<Builder::Padded> after;
  if (handles_padding(node, is_onnx)) return after;
  for (size_t i = 0; i < inputs.size(); ++i) {
    const auto found = inputs[i].valid() ? builder.padded.find(inputs[i]) : builder.padded.end();
    if (found == builder.padded.end()) continue;
    const std::optional<int64_t> axis = after || !is_onnx ? std::nullopt : Passing(builder, node, inputs, i, found->second.axis).run();
    if (!axis) {
      throw unsupported(
          "{}: how many entries input {} ('{}') has is known only at run time (at most {}), supported: as an output of the model, and "
          "by way of elementwise functions, Transpose, Gather, GatherND, Squeeze and Unsqueeze that take each entry by itself, Shape, and "
          "ScatterND",
          where, i, printable(node.inputs[i]), builder.graph.tensor(inputs[i]).shape[static_cast<size_t>(found->second.axis)]);
    }
    after = Builder::Padded{found->second.count, *axis};
  }
  return after;
}

}  // namespace tamp::frontend
