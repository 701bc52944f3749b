// The match begins at the multiplication and goes backwards over Transposes and sums with constants to the product.
#include "compiler/passes/tidy/fold_scales.h"

#include "compiler/passes/rewrite.h"

namespace tamp::passes {
namespace {

// A constant that is added to the product, as values along its channels.
struct Addend {
  size_t rop = 0, operand = 0, axis = 0;
  std::vector<float> values;
};

struct ScaledProduct {
  size_t rop = 0;
  std::vector<Addend> addends;
};

std::vector<float> scaled_by(const float* values, const std::vector<float>& factors) {
  std::vector<float> out;
  for (size_t i = 0; i < factors.size(); ++i) out.push_back(values[i] * factors[i]);
  return out;
}

class ScaleFolder {
 public:
  explicit ScaleFolder(Graph graph) : graph_(std::move(graph)), uses_(uses_of(graph_)), replacements_(graph_) {}

  Graph run() {
    std::vector<bool> dead(graph_.rops.size(), false);
    for (size_t i = 0; i < graph_.rops.size(); ++i) dead[i] = fold(i);
    return remove_dead(replacements_.apply(erase_rops(std::move(graph_), dead)));
  }

 private:
  bool fold(size_t at) {
    const ElementwiseStep* step = single_step(graph_.rops[at]);
    const TensorId made = graph_.rops[at].outputs[0];
    if (!step || step->op != ElementwiseOp::mul || uses_.is_output[made.index()] || graph_.tensor(made).dtype != DType::f32) return false;
    for (size_t i = 0; i < 2; ++i) {
      const TensorId scale = graph_.rops[at].inputs[i], scaled = replacements_.resolve(graph_.rops[at].inputs[1 - i]);
      if (!is_f32_constant(graph_, scale) || graph_.tensor(scaled).shape != graph_.tensor(made).shape) continue;
      if (!fold_into(scaled, scale)) continue;
      replacements_.replace(made, scaled);
      // Readers of the multiplication's result now read `scaled`.
      uses_.consumers[scaled.index()] = uses_.consumers[made.index()];
      return true;
    }
    return false;
  }

  bool fold_into(TensorId id, TensorId scale) {
    const Shape& shape = graph_.tensor(id).shape;
    for (size_t axis = shape.size(); axis-- > 0;) {
      const std::optional<std::vector<float>> factors = values_along(graph_.tensor(scale), shape, axis);
      if (!factors) continue;
      const std::optional<ScaledProduct> found = product_behind(id, axis);
      if (!found) continue;
      apply(*found, *factors);
      return true;
    }
    return false;
  }

  std::optional<ScaledProduct> product_behind(TensorId id, size_t axis) const {
    ScaledProduct found;
    while (true) {
      const ROperatorId producer = uses_.maker_for_one(id);
      if (!producer.valid()) return std::nullopt;
      const ROperator& rop = graph_.rop(producer);
      if (is_scalable(rop, axis)) {
        found.rop = producer.index();
        return found;
      }
      if (const auto* transpose = std::get_if<Transpose>(&rop.attrs)) {
        axis = static_cast<size_t>(transpose->perm[axis]);
        id = replacements_.resolve(rop.inputs[0]);
        continue;
      }
      const ElementwiseStep* step = single_step(rop);
      if (!step || step->op != ElementwiseOp::add) return std::nullopt;
      const size_t constant = is_f32_constant(graph_, rop.inputs[0]) ? 0 : 1;
      const TensorId next = replacements_.resolve(rop.inputs[1 - constant]);
      if (!is_f32_constant(graph_, rop.inputs[constant]) || graph_.tensor(next).shape != graph_.tensor(id).shape) return std::nullopt;
      std::optional<std::vector<float>> values = values_along(graph_.tensor(rop.inputs[constant]), graph_.tensor(id).shape, axis);
      if (!values) return std::nullopt;
      found.addends.push_back({producer.index(), constant, axis, *std::move(values)});
      id = next;
    }
  }

  // A product that makes channels along `axis`. Weights that others read as well stay as they are, beside those that it gets.
  bool is_scalable(const ROperator& rop, size_t axis) const {
    const size_t rank = graph_.tensor(rop.outputs[0]).shape.size();
    const bool is_conv = std::holds_alternative<Conv>(rop.attrs) && axis == 1;
    const bool is_matmul = std::holds_alternative<MatMul>(rop.attrs) && axis + 1 == rank && rank >= 2;
    if ((!is_conv && !is_matmul) || rop.inputs.size() != 2 || !is_f32_constant(graph_, rop.inputs[1])) return false;
    if (rop.epilogue.activation != Activation::none || rop.epilogue.residual.valid()) return false;
    const Shape& weights = graph_.tensor(rop.inputs[1]).shape;
    return is_conv || weights.size() == 2;
  }

  void apply(const ScaledProduct& found, const std::vector<float>& factors) {
    ROperator& product = graph_.rops[found.rop];
    const Tensor weights = graph_.tensor(product.inputs[1]);
    const auto* matmul = std::get_if<MatMul>(&product.attrs);
    const bool by_rows = !matmul || matmul->trans_b;  // a channel's weights lie together
    const TensorId scaled_weights = add_scaled(graph_, product.name + ".scaled_weight", weights, factors, /*by_columns=*/!by_rows);
    product.inputs[1] = read_by(scaled_weights, ROperatorId(static_cast<int64_t>(found.rop)));
    const Shape channels = {static_cast<int64_t>(factors.size())};
    if (const TensorId bias = product.epilogue.bias; bias.valid()) {
      const std::vector<float> scaled = scaled_by(f32_data(graph_.tensor(bias)), factors);
      product.epilogue.bias = constant(product.name + ".scaled_bias", channels, scaled, ROperatorId(static_cast<int64_t>(found.rop)));
    }
    for (const Addend& addend : found.addends) {
      ROperator& sum = graph_.rops[addend.rop];
      Shape shape(graph_.tensor(sum.outputs[0]).shape.size() - addend.axis, 1);
      shape[0] = channels[0];
      const std::vector<float> scaled = scaled_by(addend.values.data(), factors);
      sum.inputs[addend.operand] = constant(sum.name + ".scaled", shape, scaled, ROperatorId(static_cast<int64_t>(addend.rop)));
    }
  }

  TensorId constant(const std::string& name, const Shape& shape, const std::vector<float>& values, ROperatorId reader) {
    return read_by(add_f32_constant(graph_, name, shape, values), reader);
  }

  TensorId read_by(TensorId id, ROperatorId reader) {
    uses_.grow(graph_.tensors.size());
    uses_.consumers[id.index()] = {reader};
    return id;
  }

  Graph graph_;
  Uses uses_;
  Replacements replacements_;
};

}  // namespace

Graph fold_scales(Graph graph) { return ScaleFolder(std::move(graph)).run(); }

}  // namespace tamp::passes
