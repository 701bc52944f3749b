#include "compiler/passes/tidy/move_scales.h"

#include <map>

#include "compiler/passes/rewrite.h"

namespace tamp::passes {
namespace {

class ScaleMover {
 public:
  explicit ScaleMover(Graph graph) : graph_(std::move(graph)), uses_(uses_of(graph_)) {}

  Graph run() {
    std::vector<std::vector<ROperator>> made(graph_.rops.size());
    for (size_t i = 0; i < graph_.rops.size(); ++i) made[i] = moved(graph_.rops[i]);
    return remove_dead(replace_rops(std::move(graph_), std::move(made)));
  }

 private:
  // A number of run time, and the factors of the channels that it is multiplied with.
  struct Scale {
    TensorId number;
    std::vector<float> factors;  // none: it is the whole scale
  };

  bool is_number(TensorId id) const {
    const Tensor& t = graph_.tensor(id);
    return t.dtype == DType::f32 && t.role != Role::constant && element_count(t.shape) == 1;
  }

  std::optional<Scale> scale_of(TensorId id, const Shape& out, size_t axis) const {
    if (is_number(id)) {
      const ROperator* const product = maker_by(graph_, uses_, id, ElementwiseOp::mul);
      if (!product || !(is_f32_constant(graph_, product->inputs[0]) || is_f32_constant(graph_, product->inputs[1]))) return Scale{id, {}};
    }
    const ROperator* const product = maker_by(graph_, uses_, id, ElementwiseOp::mul);
    if (!product) return std::nullopt;
    for (size_t i = 0; i < 2; ++i) {
      const TensorId number = product->inputs[i], factors = product->inputs[1 - i];
      if (!is_number(number) || !is_f32_constant(graph_, factors)) continue;
      if (graph_.tensor(factors).shape.size() > out.size()) return std::nullopt;
      std::optional<std::vector<float>> values = values_along(graph_.tensor(factors), out, axis);
      if (values) return Scale{number, *std::move(values)};
    }
    return std::nullopt;
  }

  // What is behind `rop` without its scale; nothing if it stays.
  std::vector<ROperator> moved(const ROperator& rop) {
    const ElementwiseStep* const step = single_step(rop);
    if (!step || step->op != ElementwiseOp::mul || rop.inputs.size() != 2) return {};
    for (size_t i = 0; i < 2; ++i) {
      const ROperatorId from = uses_.maker_for_one(rop.inputs[i]);
      if (!from.valid() || graph_.tensor(rop.inputs[i]).shape != graph_.tensor(rop.outputs[0]).shape) continue;
      std::vector<ROperator> made = scaled_in_front(graph_.rop(from), rop, rop.inputs[1 - i]);
      if (!made.empty()) return made;
    }
    return {};
  }

  std::vector<ROperator> scaled_in_front(const ROperator& product, const ROperator& behind, TensorId by) {
    const bool is_conv = std::holds_alternative<Conv>(product.attrs);
    const auto* const matmul = std::get_if<MatMul>(&product.attrs);
    const bool is_plain = is_conv || (matmul && !matmul->trans_a && !matmul->trans_b);
    const bool has_bias = product.inputs.size() > 2 && product.inputs[2].valid();
    const Epilogue& e = product.epilogue;
    if (!is_plain || has_bias || e.bias.valid() || e.residual.valid() || e.activation != Activation::none) return {};
    const TensorId x = product.inputs[0], out = behind.outputs[0];
    const Tensor weights = graph_.tensor(product.inputs[1]);
    const Shape shape = graph_.tensor(out).shape;
    const bool comes_of_steps = maker_of(graph_, uses_, x) && std::holds_alternative<Elementwise>(maker_of(graph_, uses_, x)->attrs);
    if (!comes_of_steps || graph_.tensor(out).dtype != DType::f32 || !is_f32_constant(graph_, product.inputs[1])) return {};
    if (weights.shape.size() < 2 || shape.empty()) return {};
    const std::optional<Scale> scale = scale_of(by, shape, is_conv ? 1 : shape.size() - 1);
    if (!scale || graph_.tensor(scale->number).shape.size() > graph_.tensor(x).shape.size()) return {};
    std::vector<ROperator> made;
    ROperator scaled = product;
    scaled.inputs[0] = scaled_input(x, scale->number, product, made);
    if (!scale->factors.empty())
      scaled.inputs[1] = add_scaled(graph_, product.name + ".scaled_weight", weights, scale->factors, /*by_columns=*/!is_conv);
    scaled.outputs = {out};
    scaled.origin.insert(scaled.origin.end(), behind.origin.begin(), behind.origin.end());
    made.push_back(std::move(scaled));
    uses_.grow(graph_.tensors.size());
    return made;
  }

  // x * number, which several products may read.
  TensorId scaled_input(TensorId x, TensorId number, const ROperator& product, std::vector<ROperator>& made) {
    TensorId& scaled = scaled_[{x, number}];
    if (scaled.valid()) return scaled;
    scaled = add_like(graph_, x, graph_.tensor(x).name + ".scaled", graph_.tensor(x).shape);
    made.push_back(make_elementwise(product.name + ".scaled", {{ElementwiseOp::mul, {0, 1}}}, {x, number}, scaled));
    made.back().origin = product.origin;
    return scaled;
  }

  Graph graph_;
  Uses uses_;  // of the graph as it was
  std::map<std::pair<TensorId, TensorId>, TensorId> scaled_;
};

}  // namespace

Graph move_scales(Graph graph) { return ScaleMover(std::move(graph)).run(); }

}  // namespace tamp::passes
