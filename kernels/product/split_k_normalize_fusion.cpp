// Where a product and the normalisation of its rows become one rOperator. The sum is a result of its own where something else reads it.
#include <optional>

#include "compiler/passes/rewrite.h"
#include "kernels/product/split_k_normalize.h"

namespace tamp::kernels {
namespace {

// A MatMul whose rows are sums that the body can normalise.
bool is_product_of_rows(const Graph& graph, const ROperator& rop) {
  const auto* matmul = std::get_if<MatMul>(&rop.attrs);
  if (!matmul || matmul->trans_a || rop.inputs.size() != 2 || rop.epilogue.activation != Activation::none) return false;
  const Tensor &b = graph.tensor(rop.inputs[1]), &sum = graph.tensor(rop.outputs[0]);
  return is_f32_constant(graph, rop.inputs[1]) && b.shape.size() == 2 && sum.dtype == DType::f32 && sum.shape.back() % 4 == 0 &&
         passes::is_row_or_none(graph, rop.epilogue.bias, sum.shape.back());
}

// The Normalize reads the product's sum without the views between the two, and a view behind it has the shape that its readers know.
RegionSteps steps_of(Graph& graph, ROperator product, ROperator normalize, bool keeps_sum) {
  const TensorId sum = product.outputs[0], made = normalize.outputs[0];
  const Shape shape = graph.tensor(sum).shape;
  const TensorId rows = passes::add_like(graph, made, graph.tensor(made).name + ".rows", shape);
  const ROperator view{graph.tensor(rows).name, Reshape{graph.tensor(made).shape}, {}, {rows}, {made}, {}};
  std::get<Normalize>(normalize.attrs).axes = {static_cast<int64_t>(shape.size()) - 1};
  normalize.inputs[0] = sum;
  normalize.outputs = {rows};
  const std::vector<TensorId> operands = {product.inputs[0],         product.inputs[1],     product.epilogue.bias,
                                          product.epilogue.residual, operand(normalize, 1), operand(normalize, 2)};
  const std::vector<TensorId> results = keeps_sum ? std::vector{rows, sum} : std::vector{rows};
  return {{std::move(product), std::move(normalize)}, results, operands, {view}};
}

// The Normalize `at` and the product whose rows it normalises, apart from Reshapes between the two.
std::optional<FusionRegion> region_at(const Graph& graph, const Uses& uses, size_t at) {
  if (!passes::normalizes_rows(graph, graph.rops[at])) return std::nullopt;
  TensorId from = graph.rops[at].inputs[0];
  const int64_t columns = graph.tensor(from).shape.back();
  bool keeps_sum = false;
  for (;; from = graph.rop(uses.producer[from.index()]).inputs[0]) {
    const Shape& shape = graph.tensor(from).shape;
    if (shape.empty() || shape.back() != columns) return std::nullopt;
    keeps_sum |= uses.is_output[from.index()] || uses.consumers[from.index()].size() > 1;
    const ROperatorId maker = uses.producer[from.index()];
    if (!maker.valid() || !std::holds_alternative<Reshape>(graph.rop(maker).attrs)) break;
  }
  const ROperatorId maker = uses.producer[from.index()];
  if (!maker.valid() || !is_product_of_rows(graph, graph.rop(maker))) return std::nullopt;
  const ROperator& product = graph.rop(maker);
  const int64_t rows = element_count(graph.tensor(from).shape) / columns, k = graph.tensor(product.inputs[0]).shape.back();
  return FusionRegion{{rows, columns, k, product.epilogue.residual.valid()}, {maker.index(), at}, [maker, at, keeps_sum](Graph& in) {
                        return steps_of(in, in.rop(maker), in.rops[at], keeps_sum);
                      }};
}

}  // namespace

std::optional<FusedView> normalized_product_steps(const ROperator& rop) {
  std::optional<FusedView> steps = FusedView::of(rop);
  if (!steps || steps->count() != 2 || !steps->feeds(0, 1)) return std::nullopt;
  const MatMul* const product = steps->as<MatMul>(0);
  const Normalize* const normalize = steps->as<Normalize>(1);
  if (!product || !normalize || product->trans_a || steps->step(0).inputs.size() != 2) return std::nullopt;
  const Shape& sum = steps->body().tensor(steps->step(0).outputs[0]).shape;
  const auto is_row_or_none = [&](TensorId id) { return !id.valid() || steps->body().tensor(id).shape == Shape{sum.back()}; };
  const bool takes = steps->step(0).epilogue.activation == Activation::none && sum.back() % 4 == 0 &&
                     normalize->axes == std::vector{static_cast<int64_t>(sum.size()) - 1} && is_row_or_none(operand(steps->step(1), 1)) &&
                     is_row_or_none(operand(steps->step(1), 2)) && !operand(steps->step(1), kNormalizeRows).valid();
  return takes ? steps : std::nullopt;
}

FusionPattern normalized_products() {
  return {
      .title = "product with normalised rows", .when = FusionTime::products, .least_us_of_kind = 2, .regions = regions_at_each(region_at)};
}

}  // namespace tamp::kernels
