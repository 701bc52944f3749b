#include "compiler/select/fit_vdevice.h"

#include <spdlog/spdlog.h>

#include <optional>
#include <vector>

namespace tamp::select {
namespace {

// A convolution or a product with constants, also one that makes or reads sums of channels.
struct PlainProduct {
  int64_t channels, taps = 1, groups = 1;  // channels: of the input, of a group
  bool is_map = false;                     // channels are dimension 1 of the result, not the last one
  Shape made{};                            // what it makes, if that is not the rOperator's result
};
std::optional<PlainProduct> plain_product(const Graph& graph, const ROperator& rop) {
  const auto x = [&]() -> const Shape& { return graph.tensor(rop.inputs[0]).shape; };
  const auto convolved = [&](const auto& conv) { return PlainProduct{x()[1] / conv.group, element_count(conv.kernel), conv.group, true}; };
  if (const auto* conv = std::get_if<Conv>(&rop.attrs)) return convolved(*conv);
  if (const auto* conv = std::get_if<SummedConv>(&rop.attrs)) return convolved(*conv);
  if (const auto* conv = std::get_if<NormalizedConv>(&rop.attrs)) return PlainProduct{x()[1], element_count(conv->kernel), 1, true};
  if (const auto* conv = std::get_if<MomentConv>(&rop.attrs)) return PlainProduct{1, element_count(conv->kernel), x()[1], true};
  if (std::holds_alternative<PooledMatMul>(rop.attrs)) return PlainProduct{.channels = x()[1], .is_map = true};
  if (std::holds_alternative<NormalizedMatMul>(rop.attrs) || std::holds_alternative<MomentMatMul>(rop.attrs))
    return PlainProduct{x().back()};
  if (std::holds_alternative<PrologueMatMul>(rop.attrs)) return PlainProduct{graph.tensor(rop.inputs[kPrologueRows]).shape.back()};
  const auto* matmul = std::get_if<MatMul>(&rop.attrs);
  if (!matmul || graph.tensor(rop.inputs[1]).role != Role::constant) return std::nullopt;
  return PlainProduct{x()[x().size() - (matmul->trans_a ? 2 : 1)]};
}

// The products that an rOperator stands for: two of a FeedForward, and that of a SelfAttention.
std::vector<PlainProduct> plain_products(const Graph& graph, const ROperator& rop) {
  if (std::holds_alternative<FeedForward>(rop.attrs)) {
    const Shape& first = graph.tensor(rop.inputs[kFeedFirstWeights]).shape;
    Shape hidden = graph.tensor(rop.outputs[0]).shape;
    hidden.back() = first[1];
    return {PlainProduct{.channels = first[0], .made = hidden}, PlainProduct{.channels = first[1]}};
  }
  if (std::holds_alternative<SelfAttention>(rop.attrs)) {
    const Shape& weights = graph.tensor(rop.inputs[kSelfWeights]).shape;
    return {PlainProduct{.channels = weights[0], .made = {graph.tensor(rop.outputs[0]).shape[1], weights[1]}}};
  }
  const std::optional<PlainProduct> product = plain_product(graph, rop);
  return product ? std::vector{*product} : std::vector<PlainProduct>();
}

// The products that wgmma can compute: one-tap convolutions and products with constants.
struct OneTapProducts {
  double channels = 0, pixels = 0;  // of the input; of the output; on average
  double large_tiles = 0;           // of 128 channels by 192 pixels, in the output, on average
  double share = 0;                 // of the multiply-adds of all convolutions and products
};
std::optional<OneTapProducts> one_tap_products(const Graph& graph) {
  OneTapProducts sum;
  double products = 0, multiply_adds = 0;
  for (const ROperator& rop : graph.rops) {
    for (const PlainProduct& product : plain_products(graph, rop)) {
      const Shape& y = product.made.empty() ? graph.tensor(rop.outputs[0]).shape : product.made;
      const auto outputs = static_cast<double>(element_count(y)), channels = static_cast<double>(product.channels);
      multiply_adds += outputs * channels * static_cast<double>(product.taps);
      if (product.taps != 1 || product.groups != 1) continue;
      sum.channels += channels;
      sum.pixels += outputs / static_cast<double>(std::max<int64_t>(1, product.is_map ? y[1] : y.back()));
      sum.large_tiles += outputs / (128 * 192);
      sum.share += outputs * channels;
      ++products;
    }
  }
  if (products == 0) return std::nullopt;
  return OneTapProducts{sum.channels / products, sum.pixels / products, sum.large_tiles / products,
                        sum.share / std::max(1.0, multiply_adds)};
}

// Whether a program's one-tap products use wgmma. Products by wgmma are faster from about eight steps of the loop on, and every further
// body is code that the SMs' instruction caches must hold: so all of a program's products use wgmma, or none. The average of their channels
// decides: on an H200 squeezenet1_0 (160 channels) takes 81 us with them and 79 without, resnet50 (480) 246 and 251, resnet50 with them for
// more than 256 channels alone 255. In fp16 and bf16, wgmma is also used from kManyPixels pixels on average: there its bodies have tiles
// that other bodies do not have.
bool has_wide_products(const OneTapProducts& products, Precision precision) {
  constexpr double kLeastChannels = 256, kManyPixels = 4096;
  return products.channels >= kLeastChannels || (precision != Precision::tf32 && products.pixels >= kManyPixels);
}

// Whether large tiles are what a program spends its time in. Those want more and smaller stages; all other bodies fewer and larger ones:
// on an H200 vit_b_16 at batch 32 takes 6.0 ms in tf32 with the former and 6.8 with the latter, bert_base_s128 at batch 8 1.37 and 1.47,
// resnet50 at batch 8 0.51 and 0.48 in fp16.
bool has_large_products(const OneTapProducts& products, const VDevice& vdevice) {
  spdlog::debug("one-tap products: {:.1f} tiles of 128 x 192 on average, {:.2f} of all multiply-adds", products.large_tiles,
                products.share);
  return products.large_tiles * products.share >= static_cast<double>(vdevice.veus()) / 3;
}

// Whether all products have one row, and there is at least one: then nothing copies boxes, and the ring is for weights that each rTask has
// all at once. On an H200, GPT-2's token takes 148 us with such a ring and 156 with one beside stages of inputs.
bool has_rows_only(const Graph& graph) {
  bool any = false;
  for (const ROperator& rop : graph.rops) {
    if (std::holds_alternative<Recurrent>(rop.attrs)) return false;
    const std::vector<PlainProduct> products = plain_products(graph, rop);
    if (products.empty()) continue;
    const Shape& y = products.front().made.empty() ? graph.tensor(rop.outputs[0]).shape : products.front().made;
    if (products.front().is_map || element_count(y) != y.back()) return false;
    any = true;
  }
  return any;
}

}  // namespace

bool has_boxes(const Graph& graph, Precision precision) {
  return precision != Precision::fp32 && (!has<Recurrent>(graph) || has<Conv>(graph) || has<SummedConv>(graph) || has<MomentConv>(graph) ||
                                          has<NormalizedConv>(graph) || has<Fused>(graph));
}

// Of the multiply-adds that one-tap products have in a program that is these and little else (VDevice::even_stages). On an H200 in fp16
// convnext_tiny (93 %) takes 213 us as such a program and 237 as another; resnext50_32x4d (92 %) 179.5 and 181.5, but at batch 8 501 and
// 491.
constexpr double kNearlyAll = 0.925;

VDevice fitted(const Graph& graph, const VDevice& vdevice, Precision precision) {
  if (!has_boxes(graph, precision)) return vdevice.without_inputs();
  if (has_rows_only(graph)) return vdevice.with_rows();
  const std::optional<OneTapProducts> products = one_tap_products(graph);
  const bool wide = vdevice.arch == "sm_90a" && precision != Precision::fp32 && products && has_wide_products(*products, precision);
  const bool large = wide && has_large_products(*products, vdevice);
  VDevice d = large ? vdevice.with_batches() : vdevice.with_inputs();
  d.wide_products = wide;
  d.even_stages = wide && products->share > kNearlyAll;
  d.more_tiles = large && d.even_stages;
  d.voting_waits = d.even_stages && !large;
  return d;
}

}  // namespace tamp::select
