// The first convolution of a quantised network, whose input is quantised in front of it: bodies that round the input's floats to 16 bits
// anyway quantise them there (patch_strip.cuh), which saves a level and a copy of the input.
#include <optional>

#include "compiler/passes/rewrite.h"
#include "kernels/first/patch_conv.h"

namespace tamp::kernels {
namespace {

// x / step, rounded.
bool quantises(const Elementwise& chain) {
  if (chain.steps.size() != 2) return false;
  const ElementwiseStep &division = chain.steps[0], &end = chain.steps[1];
  return division.op == ElementwiseOp::div && division.operands == std::vector<int32_t>{0, 1} && end.op == ElementwiseOp::rounded &&
         end.operands == std::vector<int32_t>{-1};
}

std::optional<FusionRegion> region_at(const Graph& graph, const Uses& uses, size_t at) {
  constexpr int64_t kMostChannels = 4;
  const ROperator& rop = graph.rops[at];
  const auto* const conv = std::get_if<Conv>(&rop.attrs);
  if (!conv || has_prologue(*conv) || conv->group != 1 || !is_f32_constant(graph, rop.inputs[1])) return std::nullopt;
  const Shape& image = graph.tensor(rop.inputs[0]).shape;
  if (image.size() != 4 || image[1] > kMostChannels || rop.epilogue.residual.valid() || rop.epilogue.sum) return std::nullopt;
  const ROperatorId maker = uses.maker_for_one(rop.inputs[0]);
  if (!maker.valid()) return std::nullopt;
  const ROperator& first = graph.rop(maker);
  const auto* const chain = std::get_if<Elementwise>(&first.attrs);
  if (!chain || first.inputs.size() != 2 || !quantises(*chain) || !passes::scalar_value(graph, first.inputs[1])) return std::nullopt;
  const Tensor& given = graph.tensor(first.inputs[0]);
  if (given.dtype != DType::f32 || given.shape != image) return std::nullopt;
  const std::vector<size_t> rops = {maker.index(), at};
  const auto join = [rops](Graph& from) { return RegionSteps{{from.rops[rops[0]], from.rops[rops[1]]}, from.rops[rops[1]].outputs}; };
  return FusionRegion{image, rops, join};
}

}  // namespace

std::optional<FusedView> quantised_patches_of(const ROperator& rop) {
  std::optional<FusedView> steps = FusedView::of(rop);
  if (!steps || steps->count() != 2 || !steps->as<Elementwise>(0) || !steps->as<Conv>(1) || !steps->feeds(0, 1)) return std::nullopt;
  return quantises(*steps->as<Elementwise>(0)) ? steps : std::nullopt;
}

FusionPattern quantised_patches() {
  return {
      .title = "convolution of quantised pixels", .when = FusionTime::maps, .least_us_of_kind = 0.3, .regions = regions_at_each(region_at)};
}

}  // namespace tamp::kernels
