// Where a convolution of patches, as at the begin of ConvNeXt and Swin, normalises its pixels: a rTask of it has all channels of a pixel.
#include <optional>

#include "compiler/passes/rewrite.h"
#include "compiler/passes/row_products.h"
#include "kernels/first/patch_conv.h"

namespace tamp::kernels {
namespace {

// A convolution that is nothing but a product with constants and a bias.
bool is_plain_conv(const Graph& graph, const ROperator& rop) {
  const auto* const conv = std::get_if<Conv>(&rop.attrs);
  if (!conv || has_prologue(*conv) || conv->group != 1 || rop.inputs.size() != 2 || !is_f32_constant(graph, rop.inputs[1])) return false;
  const Tensor& made = graph.tensor(rop.outputs[0]);
  return made.dtype == DType::f32 && made.shape.size() == 4 && made.shape[1] % 4 == 0 && made.shape[1] > 0 &&
         passes::is_row_or_none(graph, rop.epilogue.bias, made.shape[1]) && !rop.epilogue.residual.valid() &&
         rop.epilogue.activation == Activation::none;
}

// The convolution, the pixels as rows, and their normalisation, which may take the rows in another order.
std::optional<FusionRegion> region_at(const Graph& graph, const Uses& uses, size_t at) {
  ROperator normalize = graph.rops[at];
  if (!std::holds_alternative<Normalize>(normalize.attrs)) return std::nullopt;
  const TensorId order = operand(normalize, kNormalizeRows);
  const Shape& shape = graph.tensor(normalize.inputs[0]).shape;
  if (order.valid()) {
    if (graph.tensor(order).shape.size() != 1 || !passes::permutation_of(graph.tensor(order), shape[0])) return std::nullopt;
    normalize.inputs.resize(kNormalizeRows);
  }
  if (!passes::normalizes_rows(graph, normalize)) return std::nullopt;
  std::vector<size_t> rops = {at};
  ROperatorId maker = uses.maker_for_one(normalize.inputs[0]);
  const auto go_back = [&] {
    rops.insert(rops.begin(), maker.index());
    maker = uses.maker_for_one(graph.rop(maker).inputs[0]);
  };
  while (order.valid() && maker.valid() && std::holds_alternative<Reshape>(graph.rop(maker).attrs)) go_back();
  const auto* const transpose = maker.valid() ? std::get_if<Transpose>(&graph.rop(maker).attrs) : nullptr;
  if (!transpose || transpose->perm != std::vector<int64_t>{0, 2, 3, 1}) return std::nullopt;
  go_back();
  if (!maker.valid() || !is_plain_conv(graph, graph.rop(maker))) return std::nullopt;
  rops.insert(rops.begin(), maker.index());
  const Shape& map = graph.tensor(graph.rop(maker).outputs[0]).shape;
  if (map[1] != shape.back()) return std::nullopt;
  const auto join = [rops](Graph& from) {
    RegionSteps region;
    for (const size_t rop : rops) region.steps.push_back(from.rops[rop]);
    region.results = region.steps.back().outputs;
    return region;
  };
  return FusionRegion{{map[0], map[1], map[2], map[3], order.valid()}, rops, join};
}

}  // namespace

FusionPattern normalized_patches() {
  return {.title = "convolution with normalised pixels",
          .when = FusionTime::maps,
          .least_us_of_kind = 0.3,
          .regions = regions_at_each(region_at)};
}

}  // namespace tamp::kernels
