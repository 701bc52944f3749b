// Walks the graph in order. Each tensor that quantisation made has a *stand-in*, the float tensor that holds what it stands for; between
// a quantisation and the multiplication by a scale that ends it, tensors are *raw*: their stand-in is not yet what their readers expect.
#include "compiler/passes/tidy/without_quantisation.h"

#include <algorithm>

#include "compiler/ops/number.h"
#include "compiler/ops/ops.h"

namespace tamp::passes {
namespace {

bool is_narrow_integer(DType dtype) { return is_integer(dtype) && bytes_of(dtype) <= 2; }

bool is_view_or_window(const OpAttrs& attrs) {
  return std::holds_alternative<Reshape>(attrs) || std::holds_alternative<Transpose>(attrs) || std::holds_alternative<Slice>(attrs) ||
         std::holds_alternative<Concat>(attrs) || std::holds_alternative<Pad>(attrs) || std::holds_alternative<Pool>(attrs) ||
         std::holds_alternative<Gather>(attrs);
}

class Floats {
 public:
  explicit Floats(const Graph& graph) : graph_(graph), producers_(uses_of(graph).producer), stand_ins_(graph.tensors.size()) {
    out_.graph = graph;
    out_.graph.rops.clear();
  }

  std::optional<WithoutQuantisation> run() {
    for (const ROperator& rop : graph_.rops) add(rop);
    if (out_.integer_products == 0 && !is_read_in_floats_) return std::nullopt;
    for (TensorId& output : out_.graph.outputs) {
      const TensorId other = read(output);
      const Tensor& tensor = out_.graph.tensor(other);
      if (tensor.role == Role::activation && tensor.dtype == graph_.tensor(output).dtype) output = other;
    }
    out_.graph = remove_dead(std::move(out_.graph));
    return std::move(out_);
  }

 private:
  struct StandIn {
    TensorId id;  // none: the tensor itself
    bool raw = false;
  };

  const Tensor& tensor(TensorId id) const { return graph_.tensor(id); }
  const StandIn& stand_in(TensorId id) const { return stand_ins_[id.index()]; }
  bool is_raw(TensorId id) const { return id.valid() && stand_in(id).id.valid() && stand_in(id).raw; }
  // What a reader of `id` reads, unless it is one of the quantisation's own.
  TensorId read(TensorId id) const { return id.valid() && stand_in(id).id.valid() && !stand_in(id).raw ? stand_in(id).id : id; }

  // The one step of a rOperator that has one, else null.
  const ElementwiseStep* step_of(const ROperator& rop) const {
    const auto* chain = std::get_if<Elementwise>(&rop.attrs);
    return chain && chain->steps.size() == 1 ? &chain->steps[0] : nullptr;
  }

  // The operand that has the result's elements, where all others are scales, zero points and bounds: of fewer elements, or constants.
  TensorId main_operand(const ROperator& rop) const {
    TensorId main;
    for (const TensorId id : rop.inputs) {
      if (!id.valid()) return {};
      const bool is_whole = tensor(id).shape == tensor(rop.outputs[0]).shape && tensor(id).role != Role::constant;
      if (is_whole && main.valid()) return {};
      if (is_whole) main = id;
    }
    return main;
  }

  // What was divided by a scale, rounded, shifted and clipped to make the float tensor `id`; none if it was not made so.
  TensorId rounded_from(TensorId id) const {
    bool rounded = false;
    for (int steps = 0; steps < 6 && id.valid() && producers_[id.index()].valid(); ++steps) {
      const ROperator& rop = graph_.rop(producers_[id.index()]);
      const ElementwiseStep* const step = step_of(rop);
      const TensorId main = step ? main_operand(rop) : TensorId();
      if (!main.valid()) return {};
      const ElementwiseOp op = step->op;
      if (rounded) return op == ElementwiseOp::div || op == ElementwiseOp::mul ? main : TensorId();
      if (op == ElementwiseOp::round) rounded = true;
      id = main;
    }
    return {};
  }

  TensorId float_like(const std::string& name, const Shape& shape) {
    Tensor made;
    made.name = name + ".float";
    made.dtype = DType::f32;
    made.shape = shape;
    return add_tensor(out_.graph, std::move(made));
  }

  TensorId float_constant(TensorId id) {
    const Tensor& from = tensor(id);
    std::vector<float> values(static_cast<size_t>(element_count(from.shape)));
    ops::with_storage(from.dtype, [&](auto zero) {
      const auto* elements = reinterpret_cast<const decltype(zero)*>(from.data->data());
      for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(ops::decode<double>(elements[i]));
    });
    return add_f32_constant(out_.graph, from.name + ".float", from.shape, values);
  }

  // What a rOperator of integers reads in floats; none if that is not known.
  TensorId as_float(TensorId id) {
    if (is_raw(id)) return tensor_dtype(stand_in(id).id) == DType::f32 ? stand_in(id).id : TensorId();
    return id.valid() && tensor(id).role == Role::constant && tensor(id).data ? float_constant(id) : TensorId();
  }
  DType tensor_dtype(TensorId id) const { return out_.graph.tensor(id).dtype; }

  // The same rOperator of floats, where all its operands are known in floats. Biases of integers are left out.
  bool add_in_floats(const ROperator& rop) {
    ROperator made = rop;
    for (size_t i = 0; i < made.inputs.size(); ++i) {
      if (!made.inputs[i].valid() || (i == 1 && std::holds_alternative<Gather>(rop.attrs))) continue;  // indices are integers
      made.inputs[i] = as_float(made.inputs[i]);
      if (!made.inputs[i].valid()) return false;
    }
    made.name += ".float";
    made.outputs = {float_like(tensor(rop.outputs[0]).name, tensor(rop.outputs[0]).shape)};
    stand_ins_[rop.outputs[0].index()] = {made.outputs[0], /*raw=*/true};
    out_.graph.rops.push_back(std::move(made));
    return true;
  }

  void follow(const ROperator& rop) {
    const TensorId out = rop.outputs[0];
    const DType dtype = tensor(out).dtype;
    const bool is_product = std::holds_alternative<MatMul>(rop.attrs) || std::holds_alternative<Conv>(rop.attrs);
    const bool is_table = std::holds_alternative<Gather>(rop.attrs) && is_narrow_integer(dtype);  // an embedding's, if it is a constant
    const bool has_raw = is_table || std::any_of(rop.inputs.begin(), rop.inputs.end(), [&](TensorId id) { return is_raw(id); });
    if (is_integer(dtype) && has_raw && (is_product || is_view_or_window(rop.attrs))) {
      if (add_in_floats(rop) && is_product) ++out_.integer_products;
      return;
    }
    const ElementwiseStep* const step = step_of(rop);
    const TensorId main = step ? main_operand(rop) : TensorId();
    if (!main.valid()) return;
    if (step->op == ElementwiseOp::cast && is_narrow_integer(dtype) && is_float(tensor(main).dtype)) {
      const TensorId from = rounded_from(main);
      if (!from.valid()) return;
      stand_ins_[out.index()] = {stand_in(from).id.valid() ? stand_in(from).id : from, /*raw=*/true};
      ++out_.roundings;
    } else if (is_raw(main)) {
      const bool ends = is_float(dtype) && step->op == ElementwiseOp::mul;
      is_read_in_floats_ = is_read_in_floats_ || ends;
      stand_ins_[out.index()] = {stand_in(main).id, !ends};
    }
  }

  void add(const ROperator& rop) {
    if (rop.outputs.size() == 1) follow(rop);
    ROperator made = rop;
    for (TensorId& id : made.inputs) id = read(id);
    out_.graph.rops.push_back(std::move(made));
  }

  const Graph& graph_;
  std::vector<ROperatorId> producers_;
  std::vector<StandIn> stand_ins_;  // by tensors of `graph_`
  bool is_read_in_floats_ = false;  // something reads what was quantised and made floats again
  WithoutQuantisation out_;
};

}  // namespace

std::optional<WithoutQuantisation> without_quantisation(const Graph& graph) { return Floats(graph).run(); }

}  // namespace tamp::passes
