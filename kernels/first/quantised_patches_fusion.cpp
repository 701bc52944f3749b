// The first convolution of a quantised network, whose input is quantised in front of it: bodies that round the input's floats to 16 bits
// anyway quantise them there (patch_strip.cuh), which saves a level and a copy of the input.
#include <optional>

#include "compiler/passes/rewrite.h"
#include "compiler/passes/whole_chain.h"
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

bool is_quantised_conv(const FusedView& steps) {
  return steps.count() >= 2 && steps.as<Elementwise>(0) && steps.as<Conv>(1) && steps.feeds(0, 1) && quantises(*steps.as<Elementwise>(0));
}

}  // namespace

std::optional<FusedView> quantised_patches_of(const ROperator& rop) {
  const std::optional<FusedView> steps = FusedView::of(rop);
  return steps && steps->count() == 2 && is_quantised_conv(*steps) ? steps : std::nullopt;
}
std::optional<QuantisedPatches> any_quantised_patches_of(const Graph& graph, const ROperator& rop) {
  const std::optional<FusedView> steps = FusedView::of(rop);
  if (!steps || !is_quantised_conv(*steps)) return std::nullopt;
  if (steps->count() == 2) return QuantisedPatches{*steps, {}};
  const std::optional<Lookup> lookup = lookup_at(graph, *steps, 2);
  return lookup && steps->count() == 4 ? std::optional(QuantisedPatches{*steps, *lookup}) : std::nullopt;
}

std::optional<Product> product_of_quantised(const Graph& graph, const ROperator& rop, const FusedView& steps) {
  Graph alone = steps.body();
  const ROperator& conv = alone.rops[1];
  for (const TensorId id : reads_of(conv)) {
    const TensorId outside = id == conv.inputs[0] ? steps.input(0, 0) : steps.outside(id);
    alone.tensor(id) = graph.tensor(outside);
  }
  alone.tensor(conv.outputs[0]) = graph.tensor(rop.outputs[0]);
  std::optional<Product> p = product_of(alone, conv, Activations::bytes);
  if (!p) return std::nullopt;
  p->in = steps.input(0, 0);
  p->weights = steps.outside(p->weights);
  p->bias = p->bias.valid() ? steps.outside(p->bias) : p->bias;
  p->epilogue_bias = steps.bias(1);
  p->out = rop.outputs[0];
  return p;
}

namespace {

// Such a Fused and a chain behind that is a table. Found from the chain.
std::optional<FusionRegion> looked_up_region_at(const Graph& graph, const Uses& uses, size_t at) {
  const ROperator& chain = graph.rops[at];
  if (!std::holds_alternative<Elementwise>(chain.attrs)) return std::nullopt;
  for (const TensorId x : chain.inputs) {
    const ROperatorId maker = uses.maker_for_one(x);
    const std::optional<FusedView> steps = maker.valid() ? quantised_patches_of(graph.rop(maker)) : std::nullopt;
    if (!steps || steps->step(1).epilogue.activation != Activation::rounded) continue;
    const std::optional<WholeRange> range = rounded_range(steps->step(1).epilogue);
    const std::optional<passes::WholeChain> table = range ? passes::whole_chain_of(graph, chain, x, *range, 1) : std::nullopt;
    if (!table || !table->row.empty()) continue;
    const std::vector<size_t> rops = {maker.index(), at};
    const auto join = [rops, table = *table](Graph& from) {
      const ROperator last = from.rops[rops[1]];
      RegionSteps made{{from.rops[rops[0]]}, last.outputs};
      append_lookup(from, last.name, made.steps.back().outputs[0], last.outputs[0], table, made.steps);
      made.steps.back().origin = last.origin;
      return made;
    };
    return FusionRegion{graph.tensor(steps->input(0, 0)).shape, rops, join};
  }
  return std::nullopt;
}

}  // namespace

FusionPattern quantised_patches() {
  return {
      .title = "convolution of quantised pixels", .when = FusionTime::maps, .least_us_of_kind = 0.3, .regions = regions_at_each(region_at)};
}

FusionPattern looked_up_patches() {
  return {.title = "convolution of quantised pixels",
          .when = FusionTime::maps,
          .least_us_of_kind = 0.3,
          .regions = regions_at_each(looked_up_region_at)};
}

}  // namespace tamp::kernels
