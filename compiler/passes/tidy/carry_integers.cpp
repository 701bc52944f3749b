// Walks the graph in order. A tensor of integers may have a *carrier*, a tensor of f32 that holds its values less a number. What reads the
// integers reads the carrier instead, if it can.
#include "compiler/passes/tidy/carry_integers.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <tuple>

#include "compiler/ops/number.h"
#include "compiler/ops/ops.h"
#include "compiler/passes/rewrite.h"

namespace tamp::passes {
namespace {

constexpr double kMostExact = 0x1p24;  // f32 holds all whole numbers up to here

bool is_narrow_integer(DType dtype) { return dtype == DType::i8 || dtype == DType::u8; }

// Operators whose results have elements of their first operand, of all operands for a Concat, and no others.
bool only_moves(const OpAttrs& attrs) {
  const auto* const pool = std::get_if<Pool>(&attrs);
  return std::holds_alternative<Reshape>(attrs) || std::holds_alternative<Transpose>(attrs) || std::holds_alternative<Slice>(attrs) ||
         std::holds_alternative<Concat>(attrs) || std::holds_alternative<Gather>(attrs) || (pool && pool->kind == PoolKind::max);
}

class Carriers {
 public:
  explicit Carriers(Graph graph) : graph_(std::move(graph)), uses_(uses_of(graph_)), carried_(graph_.tensors.size()) {}

  Graph run() {
    const std::vector<ROperator> rops = std::move(graph_.rops);
    graph_.rops.clear();
    before_ = &rops;
    for (const ROperator& rop : rops) add(rop);
    return remove_dead(std::move(graph_));
  }

 private:
  // The values are those of `id`, an f32 tensor, plus `offset`. They are from `low` to `high`. `replaces`: it is an f32 tensor itself, and
  // all that read it read the carrier.
  struct Carried {
    TensorId id;
    double offset = 0, low = 0, high = 0;
    bool replaces = false;
  };

  const Carried* carried(TensorId id) const {
    const bool has = id.valid() && id.index() < carried_.size() && carried_[id.index()].id.valid();
    return has ? &carried_[id.index()] : nullptr;
  }
  TensorId read(TensorId id) const {
    const Carried* const made = carried(id);
    return made && made->replaces ? made->id : id;
  }
  void carry(TensorId id, Carried by) { carried_[id.index()] = by; }

  // The one step of the rOperator that makes the tensor, in the graph as it was, if it is `op`; else null.
  const ROperator* made_by(TensorId id, ElementwiseOp op) const {
    const ROperatorId maker = id.valid() && id.index() < uses_.producer.size() ? uses_.producer[id.index()] : ROperatorId();
    const ElementwiseStep* const step = maker.valid() ? single_step((*before_)[maker.index()]) : nullptr;
    return step && step->op == op ? &(*before_)[maker.index()] : nullptr;
  }

  std::optional<double> number_of(TensorId id) const {
    const Tensor& t = graph_.tensor(id);
    if (t.role != Role::constant || !t.data || element_count(t.shape) != 1) return std::nullopt;
    double value = 0;
    const auto held = t.data.hold();
    ops::with_storage(t.dtype, [&](auto zero) { value = ops::decode<double>(*reinterpret_cast<const decltype(zero)*>(held->data())); });
    return value;
  }

  TensorId float_like(TensorId id) { return add_tensor(graph_, {graph_.tensor(id).name + ".float", DType::f32, graph_.tensor(id).shape}); }
  ROperator float_rop(const ROperator& like, OpAttrs attrs, std::vector<TensorId> inputs, TensorId out) {
    return {like.name + ".float", std::move(attrs), {}, std::move(inputs), {out}, like.origin};
  }

  // A quantisation: cast(clip(round(x) + zero point)) or the same without one. The integers less the zero point are rounded(x).
  void follow_quantisation(const ROperator& cast) {
    const ROperator* const clip = made_by(cast.inputs[0], ElementwiseOp::clip);
    if (!clip) return;
    const ElementwiseStep step = *single_step(*clip);
    const DType dtype = graph_.tensor(cast.outputs[0]).dtype;
    const double least = dtype == DType::i8 ? -128 : 0, most = dtype == DType::i8 ? 127 : 255;
    if (step.a < least || step.b > most || step.a != std::rint(step.a) || step.b != std::rint(step.b)) return;
    TensorId whole = clip->inputs[0];
    double zero_point = 0;
    if (const ROperator* const sum = made_by(whole, ElementwiseOp::add)) {
      for (size_t i = 0; i < 2; ++i) {
        const std::optional<double> number = number_of(sum->inputs[i]);
        if (!number || *number != std::rint(*number) || std::abs(*number) > 255) continue;
        zero_point = *number;
        whole = sum->inputs[1 - i];
        break;
      }
    }
    const ROperator* const round = made_by(whole, ElementwiseOp::round);
    if (round && graph_.tensor(round->inputs[0]).dtype == DType::f32) {
      const TensorId out = float_like(cast.outputs[0]);
      const float low = static_cast<float>(step.a - zero_point), high = static_cast<float>(step.b - zero_point);
      graph_.rops.push_back(float_rop(cast, Elementwise{{{ElementwiseOp::rounded, {0}, low, high}}}, {read(round->inputs[0])}, out));
      carry(cast.outputs[0], {out, zero_point, step.a, step.b});
    } else if (is_whole(clip->inputs[0])) {
      carry(cast.outputs[0], {clip->outputs[0], 0, step.a, step.b});
    }
  }
  // Sums of rounded values and of integers that became floats.
  bool is_whole(TensorId id) const {
    if (made_by(id, ElementwiseOp::round)) return true;
    const ROperator* const cast = made_by(id, ElementwiseOp::cast);
    if (cast) return is_narrow_integer(graph_.tensor(cast->inputs[0]).dtype);
    const std::optional<double> number = number_of(id);
    if (number) return *number == std::rint(*number);
    const ROperator* const sum = made_by(id, ElementwiseOp::add);
    return sum && is_whole(sum->inputs[0]) && is_whole(sum->inputs[1]);
  }

  // The floats that hold exactly the integers of a tensor; none if they are not known.
  TensorId floats_of(TensorId id) {
    if (!id.valid()) return id;
    if (const Carried* const c = carried(id)) {
      if (c->offset == 0) return c->id;
      Carried whole = *c;
      const TensorId out = float_like(id), from = whole.id;
      const TensorId number = add_f32_constant(graph_, graph_.tensor(id).name + ".zero_point", {}, {static_cast<float>(whole.offset)});
      ROperator sum = make_elementwise(graph_.tensor(id).name + ".float", {{ElementwiseOp::add, {0, 1}}}, {from, number}, out);
      graph_.rops.push_back(std::move(sum));
      whole.id = out;
      whole.offset = 0;
      carry(id, whole);
      return out;
    }
    const Tensor& t = graph_.tensor(id);
    if (t.role != Role::constant || !t.data || !is_integer(t.dtype)) return {};
    std::vector<float> values(static_cast<size_t>(element_count(t.shape)));
    const auto held = t.data.hold();
    ops::with_storage(t.dtype, [&](auto zero) {
      const auto* elements = reinterpret_cast<const decltype(zero)*>(held->data());
      for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(ops::decode<double>(elements[i]));
    });
    Carried made;
    const auto [low, high] = std::minmax_element(values.begin(), values.end());
    if (!values.empty()) made.low = *low, made.high = *high;
    made.id = add_f32_constant(graph_, t.name + ".float", t.shape, values);
    carry(id, made);
    return made.id;
  }

  // The largest magnitude of an element of the product of integers.
  double product_bound(const ROperator& rop) const {
    const auto magnitude = [&](TensorId id) { return std::max(std::abs(carried(id)->low), std::abs(carried(id)->high)); };
    const Tensor& weights = graph_.tensor(rop.inputs[1]);
    const bool is_conv = std::holds_alternative<Conv>(rop.attrs);
    const auto* const matmul = std::get_if<MatMul>(&rop.attrs);
    const Shape& a = graph_.tensor(rop.inputs[0]).shape;
    const int64_t k = is_conv        ? element_count(weights.shape) / std::max<int64_t>(weights.shape[0], 1)
                      : a.size() < 2 ? a.back()
                                     : a[a.size() - (matmul->trans_a ? 2 : 1)];
    double bound = static_cast<double>(k) * magnitude(rop.inputs[0]) * magnitude(rop.inputs[1]);
    if (rop.inputs.size() > 2 && rop.inputs[2].valid()) bound += magnitude(rop.inputs[2]);
    return bound;
  }

  // Whether all that reads these i32 makes f32 of them, behind sums at most.
  bool become_floats(TensorId id, int depth = 0) const {
    if (uses_.is_output[id.index()] || depth > 4) return false;
    for (const ROperatorId reader : uses_.consumers[id.index()]) {
      const ROperator& rop = (*before_)[reader.index()];
      const ElementwiseStep* const step = single_step(rop);
      if (!step || rop.outputs.size() != 1) return false;
      if (step->op == ElementwiseOp::cast && graph_.tensor(rop.outputs[0]).dtype == DType::f32) continue;
      const bool sums = step->op == ElementwiseOp::add || step->op == ElementwiseOp::sub;
      if (!sums || !become_floats(rop.outputs[0], depth + 1)) return false;
    }
    return true;
  }

  void follow_product(const ROperator& rop) {
    ROperator made = rop;
    for (TensorId& id : made.inputs) {
      const TensorId from = id;
      id = floats_of(from);
      if (from.valid() && !id.valid()) return;
    }
    const auto* const matmul = std::get_if<MatMul>(&rop.attrs);
    if (matmul && (matmul->alpha != 1 || matmul->beta != 1)) return;
    const double bound = product_bound(rop);
    if (bound > kMostExact && !become_floats(rop.outputs[0])) return;
    made.name += ".float";
    made.outputs = {float_like(rop.outputs[0])};
    carry(rop.outputs[0], {made.outputs[0], 0, -bound, bound});
    graph_.rops.push_back(std::move(made));
  }

  // The same rOperator of carriers, where all have one offset.
  void follow_move(const ROperator& rop) {
    ROperator made = rop;
    const size_t data = std::holds_alternative<Concat>(rop.attrs) ? rop.inputs.size() : 1;
    const Carried* const first = carried(rop.inputs[0]);
    if (!first) return;
    Carried all = *first;
    for (size_t i = 0; i < data; ++i) {
      const Carried* const c = carried(rop.inputs[i]);
      if (!c || c->replaces) return;
      all.low = std::min(all.low, c->low);
      all.high = std::max(all.high, c->high);
      if (c->offset != all.offset) return;
      made.inputs[i] = c->id;
    }
    made.name += ".float";
    made.outputs = {float_like(rop.outputs[0])};
    all.id = made.outputs[0];
    carry(rop.outputs[0], all);
    graph_.rops.push_back(std::move(made));
  }

  // Integers of 8 bits become i32 or f32, or i32 f32.
  void follow_widening(const ROperator& cast) {
    const TensorId from = cast.inputs[0], out = cast.outputs[0];
    const DType dtype = graph_.tensor(from).dtype, to = graph_.tensor(out).dtype;
    if (is_narrow_integer(dtype) && !carried(from)) {  // the model's input, or what is not understood
      if (to != DType::i32) return;
      const TensorId made = float_like(from);
      graph_.rops.push_back(float_rop(cast, Elementwise{{{ElementwiseOp::cast, {0}}}, {}, DType::f32}, {from}, made));
      carry(out, {made, 0, dtype == DType::i8 ? -128.0 : 0.0, dtype == DType::i8 ? 127.0 : 255.0});
      return;
    }
    if (!carried(from)) return;
    if (to == DType::i32) {
      carry(out, *carried(from));
    } else if (to == DType::f32) {
      const TensorId whole = floats_of(from);
      Carried all = *carried(from);
      all.id = whole;
      all.replaces = true;
      carry(out, all);
    }
  }

  // i32: a zero point is taken off, or a bias is added.
  void follow_sum(const ROperator& rop, ElementwiseOp op) {
    const TensorId a = rop.inputs[0], b = rop.inputs[1], out = rop.outputs[0];
    if (!carried(a) && !carried(b)) return;
    const std::optional<double> number = number_of(b);
    const double sign = op == ElementwiseOp::sub ? -1 : 1;
    if (number && carried(a) && graph_.tensor(a).shape == graph_.tensor(out).shape) {
      Carried shifted = *carried(a);
      shifted.offset += sign * *number;
      shifted.low += sign * *number;
      shifted.high += sign * *number;
      carry(out, shifted);
      return;
    }
    const TensorId left = floats_of(a), right = floats_of(b);
    if (!left.valid() || !right.valid()) return;
    Carried& known = sums_[{left, right, op}];  // each product takes off the zero point for itself
    if (known.id.valid()) return carry(out, known);
    const Carried &x = *carried(a), &y = *carried(b);
    const double low = x.low + (sign > 0 ? y.low : -y.high), high = x.high + (sign > 0 ? y.high : -y.low);
    if (std::max(std::abs(low), std::abs(high)) > kMostExact && !become_floats(out)) return;
    const TensorId made = float_like(out);
    graph_.rops.push_back(float_rop(rop, Elementwise{{{op, {0, 1}}}}, {left, right}, made));
    known = {made, 0, low, high};
    carry(out, known);
  }

  void follow(const ROperator& rop) {
    const DType dtype = graph_.tensor(rop.outputs[0]).dtype;
    if (const ElementwiseStep* const step = single_step(rop)) {
      const bool is_i32 = dtype == DType::i32;
      if (step->op == ElementwiseOp::cast) {
        const DType from = graph_.tensor(rop.inputs[0]).dtype;
        if (is_narrow_integer(dtype) && from == DType::f32) follow_quantisation(rop);
        if (is_integer(from) && (dtype == DType::f32 || (is_i32 && is_narrow_integer(from)))) follow_widening(rop);
      } else if (is_i32 && (step->op == ElementwiseOp::sub || step->op == ElementwiseOp::add) && rop.inputs.size() == 2) {
        follow_sum(rop, step->op);
      }
    } else if (dtype == DType::i32 && (std::holds_alternative<MatMul>(rop.attrs) || std::holds_alternative<Conv>(rop.attrs))) {
      follow_product(rop);
    } else if ((is_narrow_integer(dtype) || dtype == DType::i32) && only_moves(rop.attrs)) {
      follow_move(rop);
    }
  }

  void add(const ROperator& rop) {
    if (rop.outputs.size() == 1) follow(rop);
    ROperator same = rop;
    for (TensorId& id : same.inputs) id = read(id);
    const TensorId out = rop.outputs[0];
    if (uses_.is_output[out.index()] && read(out) != out) {  // a graph output keeps its tensor
      same = make_copy(rop.name, read(out), out);
      same.origin = rop.origin;
      carried_[out.index()] = {};
    }
    graph_.rops.push_back(std::move(same));
    carried_.resize(graph_.tensors.size());
  }

  Graph graph_;
  Uses uses_;                                       // of the graph as it was
  const std::vector<ROperator>* before_ = nullptr;  // its rOperators
  std::vector<Carried> carried_;                    // by tensor
  std::map<std::tuple<TensorId, TensorId, ElementwiseOp>, Carried> sums_;
};

}  // namespace

Graph carry_integers(Graph graph) { return Carriers(std::move(graph)).run(); }

}  // namespace tamp::passes
