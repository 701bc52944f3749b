#include "compiler/passes/tidy/scale_products.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>

#include "compiler/passes/rewrite.h"

namespace tamp::passes {
namespace {

class ProductScaler {
 public:
  explicit ProductScaler(Graph graph)
      : graph_(std::move(graph)), uses_(uses_of(graph_)), scaled_(graph_.tensors.size()), replacements_(graph_) {}

  Graph run() {
    const std::vector<ROperator> rops = std::move(graph_.rops);
    graph_.rops.clear();
    before_ = &rops;
    for (ROperator rop : rops) {
      for (TensorId& id : rop.inputs) id = replacements_.resolve(id);
      if (rop.outputs.size() == 1) {
        if (scale_product(rop) || scale_mean(rop) || is_factor(rop) || is_rounded_already(rop)) continue;
        normalize_whole(rop);
        follow(rop);
        join_factors(rop);
        requantise(rop);
      }
      graph_.rops.push_back(std::move(rop));
    }
    return remove_dead(replacements_.apply(std::move(graph_)));
  }

 private:
  // The tensor is `whole`, of whole numbers, times `scale`.
  struct Scaled {
    TensorId whole;
    double scale = 1;
    float low = 0, high = 0;  // of the whole numbers
  };

  const Scaled* scaled(TensorId id) const {
    return id.valid() && id.index() < scaled_.size() && scaled_[id.index()].whole.valid() ? &scaled_[id.index()] : nullptr;
  }
  void note(TensorId id, const Scaled& scaled) {
    scaled_.resize(std::max(scaled_.size(), graph_.tensors.size()));
    scaled_[id.index()] = scaled;
  }
  bool is_f32(TensorId id) const { return graph_.tensor(id).dtype == DType::f32; }

  // Of the graph as it was.
  const ROperator* maker(TensorId id) const {
    const ROperatorId producer = id.valid() && id.index() < uses_.producer.size() ? uses_.producer[id.index()] : ROperatorId();
    return producer.valid() ? &(*before_)[producer.index()] : nullptr;
  }
  const ROperator* maker_for_one(TensorId id) const {
    const bool for_one = id.valid() && id.index() < uses_.producer.size() && uses_.maker_for_one(id).valid();
    return for_one ? maker(id) : nullptr;
  }

  // A scale that may be multiplied with others without becoming too small or too large.
  static bool is_usual(float scale) { return std::isfinite(scale) && scale > 0x1p-60F && scale < 0x1p60F; }

  // Notes what quantised tensors are made of.
  void follow(const ROperator& rop) {
    const TensorId out = rop.outputs[0];
    if (!is_f32(out)) return;
    if (const ElementwiseStep* const step = single_step(rop)) {
      if (step->op == ElementwiseOp::rounded) {
        note(out, {out, 1, step->a, step->b});
      } else if (step->op == ElementwiseOp::mul && rop.inputs.size() == 2) {
        for (size_t i = 0; i < 2; ++i) {
          const Scaled* const from = scaled(rop.inputs[i]);
          const std::optional<float> scale = scalar_value(graph_, rop.inputs[1 - i]);
          const bool same_shape = from && graph_.tensor(rop.inputs[i]).shape == graph_.tensor(out).shape;
          if (same_shape && scale && is_usual(*scale)) return note(out, {from->whole, from->scale * *scale, from->low, from->high});
        }
      } else if (step->op == ElementwiseOp::div && rop.inputs.size() == 2) {
        const Scaled* const from = scaled(rop.inputs[0]);
        const std::optional<float> divisor = scalar_value(graph_, rop.inputs[1]);
        const bool same_shape = from && graph_.tensor(rop.inputs[0]).shape == graph_.tensor(out).shape;
        if (same_shape && divisor && is_usual(*divisor)) note(out, {from->whole, from->scale / *divisor, from->low, from->high});
      }
      return;
    }
    follow_move(rop);
  }

  // What multiplies or divides a multiple of whole numbers multiplies these: one step for several.
  void join_factors(ROperator& rop) {
    const ElementwiseStep* const step = single_step(rop);
    if (!step || (step->op != ElementwiseOp::mul && step->op != ElementwiseOp::div)) return;
    const Scaled* const made = scaled(rop.outputs[0]);
    if (!made || std::find(rop.inputs.begin(), rop.inputs.end(), made->whole) != rop.inputs.end()) return;
    const auto factor = static_cast<float>(made->scale);
    if (!is_usual(factor) || graph_.tensor(made->whole).shape != graph_.tensor(rop.outputs[0]).shape) return;
    rop.attrs = Elementwise{{{ElementwiseOp::mul, {0, 1}}}};
    rop.inputs = {made->whole, add_f32_constant(graph_, rop.name + ".factor", {}, {factor})};
  }

  // The normalisation of a tensor is that of its whole numbers: mean and deviation have the same scale.
  void normalize_whole(ROperator& rop) {
    auto* const normalize = std::get_if<Normalize>(&rop.attrs);
    const Scaled* const from = normalize ? scaled(rop.inputs[0]) : nullptr;
    if (!from || from->whole == rop.inputs[0] || graph_.tensor(from->whole).shape != graph_.tensor(rop.inputs[0]).shape) return;
    const double epsilon = normalize->epsilon / (from->scale * from->scale);
    if (epsilon != 0 && !is_usual(static_cast<float>(epsilon))) return;
    normalize->epsilon = static_cast<float>(epsilon);
    rop.inputs[0] = from->whole;
  }

  void follow_move(const ROperator& rop) {
    const auto* const pool = std::get_if<Pool>(&rop.attrs);
    const bool is_concat = std::holds_alternative<Concat>(rop.attrs);
    const bool moves = std::holds_alternative<Reshape>(rop.attrs) || std::holds_alternative<Transpose>(rop.attrs) ||
                       std::holds_alternative<Slice>(rop.attrs) || is_concat || (pool && pool->kind == PoolKind::max);
    if (!moves || !scaled(rop.inputs[0])) return;
    ROperator made = rop;
    Scaled result = *scaled(rop.inputs[0]);
    for (size_t i = 0; i < (is_concat ? rop.inputs.size() : 1); ++i) {
      const Scaled* const from = scaled(rop.inputs[i]);
      if (!from || from->scale != result.scale) return;
      made.inputs[i] = from->whole;
      result.low = std::min(result.low, from->low);
      result.high = std::max(result.high, from->high);
    }
    const TensorId out = rop.outputs[0];
    if (made.inputs == rop.inputs) {  // whole numbers themselves
      result.whole = out;
      return note(out, result);
    }
    made.name += ".whole";
    made.outputs = {add_like(graph_, out, graph_.tensor(out).name + ".whole", graph_.tensor(out).shape)};
    result.whole = made.outputs[0];
    note(out, result);
    note(made.outputs[0], {made.outputs[0], 1, result.low, result.high});
    graph_.rops.push_back(std::move(made));
  }

  // Whether it was a product of quantised numbers, which is in the graph now.
  bool scale_product(const ROperator& rop) {
    const auto* const matmul = std::get_if<MatMul>(&rop.attrs);
    const bool is_conv = std::holds_alternative<Conv>(rop.attrs);
    if ((!matmul && !is_conv) || !is_f32(rop.outputs[0]) || rop.epilogue.activation != Activation::none) return false;
    const Scaled *a = scaled(rop.inputs[0]), *b = scaled(rop.inputs[1]);
    const bool has_scale = (a && a->whole != rop.inputs[0]) || (b && b->whole != rop.inputs[1]);
    if (!has_scale) return false;
    ROperator made = rop;
    if (a && !b && is_f32_constant(graph_, rop.inputs[1])) {
      made.inputs[0] = a->whole;
      made.inputs[1] = scaled_weights(rop, a->scale);
      graph_.rops.push_back(std::move(made));
      return true;
    }
    const bool has_bias = rop.inputs.size() > 2 && rop.inputs[2].valid();
    if (!a || !b || has_bias || (matmul && matmul->alpha != 1)) return false;
    made.inputs = {a->whole, b->whole};
    const TensorId out = rop.outputs[0];
    const auto scale = static_cast<float>(a->scale * b->scale);
    if (matmul) {
      std::get<MatMul>(made.attrs).alpha = scale;
      graph_.rops.push_back(std::move(made));
      return true;
    }
    made.outputs = {add_like(graph_, out, graph_.tensor(out).name + ".whole", graph_.tensor(out).shape)};
    made.name += ".whole";
    const TensorId factor = add_f32_constant(graph_, rop.name + ".scale", {}, {scale});
    ROperator product = make_elementwise(rop.name, {{ElementwiseOp::mul, {0, 1}}}, {made.outputs[0], factor}, out);
    product.origin = rop.origin;
    graph_.rops.push_back(std::move(made));
    graph_.rops.push_back(std::move(product));
    return true;
  }

  // Whether it was a mean of a multiple of whole numbers, which is in the graph now as one of these. The scale is a step behind it, where
  // there are fewer elements.
  bool scale_mean(const ROperator& rop) {
    const auto* const reduce = std::get_if<Reduce>(&rop.attrs);
    const auto* const pool = std::get_if<Pool>(&rop.attrs);
    const bool is_mean = (reduce && reduce->kind == ReduceKind::mean) || (pool && pool->kind == PoolKind::average);
    const Scaled* const from = is_mean && rop.inputs.size() == 1 ? scaled(rop.inputs[0]) : nullptr;
    if (!from || from->whole == rop.inputs[0] || rop.epilogue.activation != Activation::none) return false;
    const TensorId out = rop.outputs[0];
    if (!is_f32(out) || graph_.tensor(from->whole).shape != graph_.tensor(rop.inputs[0]).shape) return false;
    ROperator made = rop;
    made.inputs[0] = from->whole;
    const TensorId factor = add_f32_constant(graph_, rop.name + ".scale", {}, {static_cast<float>(from->scale)});
    made.outputs = {add_like(graph_, out, graph_.tensor(out).name + ".whole", graph_.tensor(out).shape)};
    made.name += ".whole";
    ROperator product = make_elementwise(rop.name, {{ElementwiseOp::mul, {0, 1}}}, {made.outputs[0], factor}, out);
    product.origin = rop.origin;
    means_.insert({out, {made.outputs[0], from->scale}});
    graph_.rops.push_back(std::move(made));
    graph_.rops.push_back(std::move(product));
    return true;
  }

  TensorId scaled_weights(const ROperator& rop, double scale) {
    const Tensor weights = graph_.tensor(rop.inputs[1]);
    const int64_t rows = weights.shape.empty() ? 1 : weights.shape[0];
    return add_scaled(graph_, rop.name + ".scaled_weight", weights,
                      std::vector<float>(static_cast<size_t>(rows), static_cast<float>(scale)),
                      /*by_columns=*/false);
  }

  bool is_product(TensorId id) const {
    const ROperator* const from = maker_for_one(id);
    if (!from) return false;
    if (std::holds_alternative<Conv>(from->attrs) || std::holds_alternative<MatMul>(from->attrs)) return true;
    const ElementwiseStep* const step = single_step(*from);
    if (step && step->op == ElementwiseOp::add && from->inputs.size() == 2) {
      for (size_t i = 0; i < 2; ++i) {
        if (is_f32_constant(graph_, from->inputs[i]) && is_product(from->inputs[1 - i])) return true;
      }
    }
    const bool moves = std::holds_alternative<Reshape>(from->attrs) || std::holds_alternative<Transpose>(from->attrs);
    return moves && is_product(from->inputs[0]);
  }

  // The product of two tensors of run time, which is in the graph now, if one reader alone reads it.
  ROperator* product_of_two(TensorId id) {
    if (!maker_for_one(id)) return nullptr;
    const auto makes = [&](const ROperator& rop) { return rop.outputs[0] == id; };
    const auto made = std::find_if(graph_.rops.rbegin(), graph_.rops.rend(), makes);
    if (made == graph_.rops.rend() || !std::holds_alternative<MatMul>(made->attrs)) return nullptr;
    const bool is_plain = !operand(*made, 2).valid() && made->epilogue.activation == Activation::none;
    return is_plain && !is_constant(graph_, made->inputs[0]) && !is_constant(graph_, made->inputs[1]) ? &*made : nullptr;
  }

  // Whether it multiplied the product of two quantised tensors with a number, which is the product's factor now.
  bool is_factor(const ROperator& rop) {
    const ElementwiseStep* const step = single_step(rop);
    if (!step || step->op != ElementwiseOp::mul || rop.inputs.size() != 2 || uses_.is_output[rop.outputs[0].index()]) return false;
    for (size_t i = 0; i < 2; ++i) {
      const std::optional<float> factor = scalar_value(graph_, rop.inputs[1 - i]);
      if (!factor || graph_.tensor(rop.inputs[i]).shape != graph_.tensor(rop.outputs[0]).shape) continue;
      ROperator* const product = product_of_two(rop.inputs[i]);
      if (!product || !scaled(product->inputs[0]) || !scaled(product->inputs[1])) continue;
      std::get<MatMul>(product->attrs).alpha *= *factor;
      product->outputs = rop.outputs;
      product->origin.insert(product->origin.end(), rop.origin.begin(), rop.origin.end());
      return true;
    }
    return false;
  }

  // Whether it rounds what was divided by the scale that whole numbers were multiplied with: these are the result.
  bool is_rounded_already(const ROperator& rop) {
    const ElementwiseStep* const step = single_step(rop);
    if (!step || step->op != ElementwiseOp::rounded || uses_.is_output[rop.outputs[0].index()]) return false;
    const ROperator* const quotient = maker(rop.inputs[0]);
    const ElementwiseStep* const division = quotient ? single_step(*quotient) : nullptr;
    if (!division || division->op != ElementwiseOp::div || quotient->inputs.size() != 2) return false;
    const TensorId x = replacements_.resolve(quotient->inputs[0]);
    const Scaled* const from = scaled(x);
    const std::optional<float> scale = scalar_value(graph_, quotient->inputs[1]);
    if (!from || !scale || static_cast<float>(from->scale) != *scale || from->low < step->a || from->high > step->b) return false;
    if (graph_.tensor(x).shape != graph_.tensor(rop.outputs[0]).shape) return false;
    const Scaled whole = {from->whole, 1, from->low, from->high};
    note(rop.outputs[0], whole);
    replacements_.replace(rop.outputs[0], whole.whole);
    return true;
  }

  // `rop` may round what was divided by a scale. Takes a relu or clip in front of the division into the bounds, and makes the division of
  // a product a multiplication.
  void requantise(ROperator& rop) {
    const ElementwiseStep* const step = single_step(rop);
    if (!step || step->op != ElementwiseOp::rounded) return;
    const ROperator* const quotient = maker_for_one(rop.inputs[0]);
    const ElementwiseStep* const division = quotient ? single_step(*quotient) : nullptr;
    if (!division || division->op != ElementwiseOp::div || quotient->inputs.size() != 2) return;
    const std::optional<float> scale = scalar_value(graph_, quotient->inputs[1]);
    if (!scale || !is_usual(*scale)) return;
    TensorId x = quotient->inputs[0];
    if (graph_.tensor(x).shape != graph_.tensor(rop.outputs[0]).shape) return;
    float low = step->a, high = step->b;
    const ROperator* const limits = maker_for_one(x);
    const ElementwiseStep* const limit = limits ? single_step(*limits) : nullptr;
    if (limit && (limit->op == ElementwiseOp::relu || limit->op == ElementwiseOp::clip)) {
      const bool clips = limit->op == ElementwiseOp::clip;
      const float least = clips ? limit->a : 0, most = clips ? limit->b : std::numeric_limits<float>::infinity();
      if (least <= most) {
        low = std::clamp(std::rint(least / *scale), low, high);
        high = std::clamp(std::rint(most / *scale), low, high);
        x = limits->inputs[0];
      }
    }
    if (requantise_sum(rop, x, *scale, low, high) || requantise_shifted(rop, x, *scale, low, high) ||
        requantise_multiplied(rop, x, *scale, low, high))
      return;
    if (ROperator* const product = product_of_two(x)) {
      std::get<MatMul>(product->attrs).alpha /= *scale;
      rop.attrs = Elementwise{{{ElementwiseOp::rounded, {0}, low, high}}};
      rop.inputs = {x};
      return;
    }
    const auto mean = means_.find(x);
    const Scaled* const from = mean == means_.end() ? scaled(replacements_.resolve(x)) : &mean->second;
    const bool multiplies = from || is_product(x);
    if (x == quotient->inputs[0] && !multiplies) return;
    const float number = from ? static_cast<float>(from->scale / *scale) : multiplies ? 1 / *scale : *scale;
    if (from) x = from->whole;
    const TensorId made = add_like(graph_, x, graph_.tensor(rop.outputs[0]).name + ".steps", graph_.tensor(x).shape);
    const TensorId factor = add_f32_constant(graph_, rop.name + ".scale", {}, {number});
    ROperator in_steps =
        make_elementwise(rop.name + ".steps", {{multiplies ? ElementwiseOp::mul : ElementwiseOp::div, {0, 1}}}, {x, factor}, made);
    in_steps.origin = quotient->origin;
    graph_.rops.push_back(std::move(in_steps));
    rop.attrs = Elementwise{{{ElementwiseOp::rounded, {0}, low, high}}};
    rop.inputs = {made};
  }

  // `rop` rounds x / scale, where x is the sum of two quantised tensors: x1 * s1 + x2 * s2 becomes x1 * (s1 / scale) + x2 * (s2 / scale).
  bool requantise_sum(ROperator& rop, TensorId x, double scale, float low, float high) {
    const ROperator* const sum = maker_for_one(x);
    const ElementwiseStep* const step = sum ? single_step(*sum) : nullptr;
    if (!step || step->op != ElementwiseOp::add || sum->inputs.size() != 2) return false;
    std::vector<TensorId> terms;
    for (const TensorId id : sum->inputs) {
      const Scaled* const term = scaled(replacements_.resolve(id));
      if (!term || graph_.tensor(id).shape != graph_.tensor(x).shape) return false;
    }
    for (const TensorId id : sum->inputs) {
      const Scaled term = *scaled(replacements_.resolve(id));
      const std::string name = fmt::format("{}.term{}", rop.name, terms.size());
      const TensorId factor = add_f32_constant(graph_, name + ".scale", {}, {static_cast<float>(term.scale / scale)});
      terms.push_back(add_like(graph_, x, name, graph_.tensor(x).shape));
      ROperator product = make_elementwise(name, {{ElementwiseOp::mul, {0, 1}}}, {term.whole, factor}, terms.back());
      product.origin = sum->origin;
      graph_.rops.push_back(std::move(product));
    }
    const TensorId made = add_like(graph_, x, rop.name + ".sum", graph_.tensor(x).shape);
    ROperator added = make_elementwise(rop.name + ".sum", {{ElementwiseOp::add, {0, 1}}}, terms, made);
    added.origin = sum->origin;
    graph_.rops.push_back(std::move(added));
    rop.attrs = Elementwise{{{ElementwiseOp::rounded, {0}, low, high}}};
    rop.inputs = {made};
    return true;
  }

  // Appends a step of two operands in front of `rop`, which is to round; returns its result.
  TensorId append_step(const ROperator& rop, const char* what, ElementwiseOp op, TensorId a, TensorId b, const ROperator& from) {
    const std::string name = fmt::format("{}.{}", rop.name, what);
    const TensorId made = add_like(graph_, a, name, graph_.tensor(rop.outputs[0]).shape);
    graph_.rops.push_back(make_elementwise(name, {{op, {0, 1}}}, {a, b}, made));
    graph_.rops.back().origin = from.origin;
    return made;
  }
  void round(ROperator& rop, TensorId steps, float low, float high) {
    rop.attrs = Elementwise{{{ElementwiseOp::rounded, {0}, low, high}}};
    rop.inputs = {steps};
  }
  // The rOperator of the one step `op` that makes the quantised tensor for this reader alone.
  const ROperator* quantised_step(TensorId x, ElementwiseOp op) const {
    const ROperator* const from = maker_for_one(x);
    const ElementwiseStep* const step = from ? single_step(*from) : nullptr;
    return step && step->op == op && from->inputs.size() == 2 ? from : nullptr;
  }

  // `rop` rounds x / scale, where x is w * s + c of whole numbers w and a constant: w * (s / scale) + c / scale.
  bool requantise_shifted(ROperator& rop, TensorId x, double scale, float low, float high) {
    const ROperator* const sum = quantised_step(x, ElementwiseOp::add);
    for (size_t i = 0; sum && i < 2; ++i) {
      const Scaled* const term = scaled(replacements_.resolve(sum->inputs[i]));
      const TensorId constant = sum->inputs[1 - i];
      if (!term || !is_f32_constant(graph_, constant) || graph_.tensor(term->whole).shape != graph_.tensor(x).shape) continue;
      const Tensor shift = graph_.tensor(constant);
      std::vector<float> values(f32_data(shift), f32_data(shift) + element_count(shift.shape));
      for (float& value : values) value = static_cast<float>(value / scale);
      const TensorId whole = term->whole,
                     factor = add_f32_constant(graph_, rop.name + ".scale", {}, {static_cast<float>(term->scale / scale)});
      const TensorId by = add_f32_constant(graph_, rop.name + ".shift", shift.shape, values);
      const TensorId steps = append_step(rop, "steps", ElementwiseOp::mul, whole, factor, *sum);
      round(rop, append_step(rop, "shifted", ElementwiseOp::add, steps, by, *sum), low, high);
      return true;
    }
    return false;
  }

  // The same where x is the product of two quantised tensors, element by element.
  bool requantise_multiplied(ROperator& rop, TensorId x, double scale, float low, float high) {
    const ROperator* const product = quantised_step(x, ElementwiseOp::mul);
    const Scaled* const a = product ? scaled(replacements_.resolve(product->inputs[0])) : nullptr;
    const Scaled* const b = product ? scaled(replacements_.resolve(product->inputs[1])) : nullptr;
    if (!a || !b) return false;
    const TensorId left = a->whole, right = b->whole;
    if (graph_.tensor(left).shape != graph_.tensor(product->inputs[0]).shape ||
        graph_.tensor(right).shape != graph_.tensor(product->inputs[1]).shape)
      return false;
    const TensorId factor = add_f32_constant(graph_, rop.name + ".scale", {}, {static_cast<float>(a->scale * b->scale / scale)});
    const TensorId whole = append_step(rop, "product", ElementwiseOp::mul, left, right, *product);
    round(rop, append_step(rop, "steps", ElementwiseOp::mul, whole, factor, *product), low, high);
    return true;
  }

  Graph graph_;
  Uses uses_;                                       // of the graph as it was
  const std::vector<ROperator>* before_ = nullptr;  // its rOperators
  std::vector<Scaled> scaled_;                      // by tensor
  std::map<TensorId, Scaled> means_;                // of whole numbers, which are none themselves
  Replacements replacements_;
};

}  // namespace

Graph scale_products(Graph graph) { return ProductScaler(std::move(graph)).run(); }

}  // namespace tamp::passes
