// Where products of few rows make these rows themselves, so that they are no level of the program. All that reads the rows must be such a
// product; each computes them anew. Reshapes, and Transposes that move dimensions of one element alone, may stand between the two. Example:
// [1,1,1,768] to [1,768,1,1] to [1,768].
#include <algorithm>
#include <optional>

#include "compiler/passes/rewrite.h"
#include "compiler/passes/row_products.h"
#include "kernels/product/gemv_of_rows.h"

namespace tamp::kernels {
namespace {

// The rOperators that make rows, at least one of them, and the products that read these.
struct Prologue {
  std::optional<size_t> chain, normalize;
  std::vector<size_t> products;
};

class PrologueMatcher {
 public:
  explicit PrologueMatcher(const Graph& graph) : graph_(graph), uses_(uses_of(graph)) {}

  // The regions of the products that read the result of rOperator `at`.
  void append(size_t at, std::vector<FusionRegion>& regions) const {
    const std::optional<Prologue> found = match(at);
    if (!found) return;
    const Shape& shape = graph_.tensor(graph_.rops[at].outputs[0]).shape;
    const int64_t k = shape.back(), rows = element_count(shape) / k;
    const size_t steps = found->chain ? std::get<Elementwise>(graph_.rops[*found->chain].attrs).steps.size() : 0;
    std::vector<int64_t> kind = {rows, k, static_cast<int64_t>(steps), found->normalize.has_value()};
    for (const size_t product : found->products) kind.push_back(graph_.tensor(graph_.rops[product].outputs[0]).shape.back());
    for (const size_t product : found->products)
      regions.push_back({kind, {product}, [found, product](Graph& graph) { return steps_of(graph, *found, product); }});
  }

 private:
  std::optional<Prologue> match(size_t at) const {
    const ROperator& rop = graph_.rops[at];
    Prologue found;
    if (passes::normalizes_rows(graph_, rop)) {
      found.normalize = at;
      const ROperatorId maker = uses_.maker_for_one(rop.inputs[0]);
      if (maker.valid() && are_steps_of_rows(graph_.rop(maker))) found.chain = maker.index();
    } else if (are_steps_of_rows(rop)) {
      found.chain = at;
    } else {
      return std::nullopt;
    }
    const Shape& shape = graph_.tensor(rop.outputs[0]).shape;
    const int64_t elements = element_count(shape);
    const bool is_small = elements > 0 && elements / shape.back() <= rk::kGemvRows;
    return is_small && collect_products(rop.outputs[0], shape.back(), found.products) && !found.products.empty() ? std::optional(found)
                                                                                                                 : std::nullopt;
  }
  bool are_steps_of_rows(const ROperator& rop) const {
    if (!std::holds_alternative<Elementwise>(rop.attrs)) return false;
    const Tensor& made = graph_.tensor(rop.outputs[0]);
    const auto is_alike = [&](TensorId id) {
      const Tensor& x = graph_.tensor(id);
      return x.shape == made.shape && x.dtype == DType::f32 && x.role != Role::constant;
    };
    return made.dtype == DType::f32 && !made.shape.empty() && std::all_of(rop.inputs.begin(), rop.inputs.end(), is_alike);
  }
  bool is_product_of(TensorId rows, const ROperator& rop) const {
    const auto* matmul = std::get_if<MatMul>(&rop.attrs);
    if (!matmul || matmul->trans_a || rop.inputs.size() != 2 || rop.inputs[0] != rows || rop.epilogue.residual == rows) return false;
    const TensorId bias = rop.epilogue.bias;
    return is_f32_constant(graph_, rop.inputs[1]) && graph_.tensor(rop.inputs[1]).shape.size() == 2 &&
           (!bias.valid() || is_f32_constant(graph_, bias));
  }
  // Appends the products that read these rows; false if anything else reads them.
  bool collect_products(TensorId rows, int64_t k, std::vector<size_t>& products) const {
    if (uses_.is_output[rows.index()]) return false;
    for (const ROperatorId reader : uses_.consumers[rows.index()]) {
      const ROperator& rop = graph_.rop(reader);
      if (passes::keeps_order(graph_, rop)) {
        if (!collect_products(rop.outputs[0], k, products)) return false;
      } else if (is_product_of(rows, rop) && graph_.tensor(rows).shape.back() == k) {
        products.push_back(reader.index());
      } else {
        return false;
      }
    }
    return true;
  }

  // All in the shape that the product's rows have.
  static RegionSteps steps_of(Graph& graph, const Prologue& prologue, size_t at) {
    RegionSteps made;
    ROperator product = graph.rops[at];
    const Shape shape = graph.tensor(product.inputs[0]).shape;
    made.operands = {product.inputs[1]};
    for (const std::optional<size_t>& step_at : {prologue.chain, prologue.normalize}) {
      if (!step_at) continue;
      ROperator step = graph.rops[*step_at];
      auto* const normalize = std::get_if<Normalize>(&step.attrs);
      if (normalize) normalize->axes = {static_cast<int64_t>(shape.size()) - 1};
      if (normalize) made.operands.insert(made.operands.end(), {operand(step, 1), operand(step, 2)});
      for (size_t i = 0; i < (normalize ? 1 : step.inputs.size()); ++i) {
        TensorId& rows = step.inputs[i];
        rows = made.steps.empty() ? passes::in_shape(graph, made.around, rows, shape) : product.inputs[0];
      }
      product.inputs[0] = passes::add_like(graph, step.outputs[0], graph.tensor(step.outputs[0]).name + ".rows", shape);
      step.outputs = {product.inputs[0]};
      made.steps.push_back(std::move(step));
    }
    made.results = product.outputs;
    made.steps.push_back(std::move(product));
    return made;
  }

  const Graph& graph_;
  Uses uses_;
};

std::vector<FusionRegion> products_of_rows_of(const Graph& graph) {
  const PrologueMatcher matcher(graph);
  std::vector<FusionRegion> regions;
  for (size_t i = 0; i < graph.rops.size(); ++i) matcher.append(i, regions);
  return regions;
}

}  // namespace

std::optional<StepsOfRows> steps_of_rows(const ROperator& rop) {
  const std::optional<FusedView> steps = FusedView::of(rop);
  if (!steps || steps->count() < 2 || steps->count() > 3) return std::nullopt;
  StepsOfRows found{*steps, steps->as<Elementwise>(0), steps->as<Normalize>(steps->count() - 2), steps->as<MatMul>(steps->count() - 1)};
  if (!found.product || found.product->trans_a || found.product_step().inputs.size() != 2) return std::nullopt;
  if (steps->count() != 1 + size_t{found.chain != nullptr} + size_t{found.normalize != nullptr}) return std::nullopt;
  for (size_t i = 1; i < steps->count(); ++i) {
    if (!steps->feeds(i - 1, i)) return std::nullopt;
  }
  const Graph& body = steps->body();
  const Tensor& rows = body.tensor(found.product_step().inputs[0]);
  const std::vector<TensorId>& operands = steps->step(0).inputs;
  const auto is_like_rows = [&](TensorId id) { return body.tensor(id).shape == rows.shape && body.tensor(id).dtype == rows.dtype; };
  const size_t count = found.chain ? operands.size() : 1;
  if (rows.shape.empty() || !std::all_of(operands.begin(), operands.begin() + static_cast<std::ptrdiff_t>(count), is_like_rows))
    return std::nullopt;
  if (!found.normalize) return found;
  const ROperator& normalize = steps->step(steps->count() - 2);
  const auto is_row_or_none = [&](TensorId id) { return !id.valid() || body.tensor(id).shape == Shape{rows.shape.back()}; };
  const bool takes = found.normalize->axes == std::vector{static_cast<int64_t>(rows.shape.size()) - 1} &&
                     is_row_or_none(operand(normalize, 1)) && is_row_or_none(operand(normalize, 2)) &&
                     !operand(normalize, kNormalizeRows).valid();
  return takes ? std::optional(found) : std::nullopt;
}

FusionPattern products_with_prologue() {
  return {.title = "product with a prologue",
          .when = FusionTime::products,
          .needs_estimate = true,
          .least_us_of_kind = 0.5,
          .regions = products_of_rows_of};
}

}  // namespace tamp::kernels
