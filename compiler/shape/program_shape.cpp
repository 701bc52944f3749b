#include "compiler/shape/program_shape.h"

#include <spdlog/spdlog.h>

#include <algorithm>

#include "compiler/ir/products.h"
#include "compiler/schedule/choose.h"

namespace tamp::shape {
namespace {

bool is_recurrent(const ROperator& rop) { return std::holds_alternative<Recurrent>(rop.attrs); }

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
    for (const PlainProduct& product : products_of(graph, rop)) {
      const auto outputs = static_cast<double>(product.outputs), channels = static_cast<double>(product.channels);
      multiply_adds += outputs * channels * static_cast<double>(product.taps);
      if (product.taps != 1 || product.groups != 1) continue;
      sum.channels += channels;
      sum.pixels += static_cast<double>(product.rows);
      sum.large_tiles += outputs / (128 * 192);
      sum.share += outputs * channels;
      ++products;
    }
  }
  if (products == 0) return std::nullopt;
  return OneTapProducts{sum.channels / products, sum.pixels / products, sum.large_tiles / products,
                        sum.share / std::max(1.0, multiply_adds)};
}

// What estimates do not know, by time on an H200: each further body is code that the SMs' instruction caches must hold, so all of a
// program's products have a kind of body, or none has.
//
// Products by wgmma are faster from about eight steps of the loop on: squeezenet1_0 (160 channels) takes 81 us with them and 79 without,
// resnet50 (480) 246 and 251, resnet50 with them for more than 256 channels alone 255. In 16 bits their tiles pay for many pixels, too.
constexpr double kWideChannels = 256, kWidePixels = 4096;
// Large tiles want more and smaller stages, all other bodies fewer and larger ones: vit_b_16 at batch 32 takes 6.0 ms in tf32 with the
// former and 6.8 with the latter, bert_base_s128 at batch 8 1.37 and 1.47, resnet50 at batch 8 0.51 and 0.48 in fp16.
constexpr double kLargeRounds = 1.0 / 3;
// A program of one-tap products and little else: convnext_tiny (93 % of its multiply-adds) takes 213 us in fp16 as such a program and 237
// as another; resnext50_32x4d (92 %) 179.5 and 181.5, but at batch 8 501 and 491.
constexpr double kNearlyAll = 0.925;

// Whether all products have one row, and there is at least one: then nothing copies boxes, and the ring is for weights that each rTask has
// all at once. On an H200, GPT-2's token takes 148 us with such a ring and 156 with one beside stages of inputs.
bool has_rows_only(const Graph& graph) {
  bool any = false;
  for (const ROperator& rop : graph.rops) {
    if (is_recurrent(rop)) return false;
    for (const PlainProduct& product : products_of(graph, rop)) {
      if (product.is_map || product.rows != 1) return false;
      any = true;
    }
  }
  return any;
}

double time_us(const Graph& placed, const Setting& setting, const ShapedVDevice& shaped) {
  return schedule::one_after_another_us(narrowed(placed, setting, shaped), shaped, setting.precision, setting.gangs);
}

}  // namespace

bool has_boxes(const Graph& graph, Precision precision) {
  const auto any = [&](bool (*is)(const ROperator&)) { return std::any_of(graph.rops.begin(), graph.rops.end(), is); };
  return precision != Precision::fp32 && (!any(is_recurrent) || any(convolves));
}

ShapedVDevice usual_shape(const Graph& graph, const VDevice& vdevice, Precision precision) {
  if (!has_boxes(graph, precision)) return vdevice.without_inputs();
  if (has_rows_only(graph)) return vdevice.with_rows();
  const std::optional<OneTapProducts> products = one_tap_products(graph);
  const bool is_wide = vdevice.arch == "sm_90a" && products &&
                       (products->channels >= kWideChannels || (precision != Precision::tf32 && products->pixels >= kWidePixels));
  if (!is_wide) return vdevice.with_inputs();
  spdlog::debug("one-tap products: {:.1f} tiles of 128 x 192 on average, {:.2f} of all multiply-adds", products->large_tiles,
                products->share);
  ShapedVDevice d = vdevice.with_inputs();
  const bool is_large = products->large_tiles * products->share >= kLargeRounds * static_cast<double>(d.veus());
  if (is_large) d = vdevice.with_batches();
  d.wide_products = true;
  d.even_stages = products->share > kNearlyAll;
  d.more_tiles = d.even_stages && is_large;
  d.voting_waits = d.even_stages && !is_large;
  return d;
}

std::vector<Offer> offers(const Graph& placed, const Setting& setting) {
  const VDevice& vdevice = setting.vdevice;
  const ShapedVDevice usual = usual_shape(placed, vdevice, setting.precision);
  std::vector<Offer> out = {{.name = "usual", .vdevice = usual}};
  if (usual.input_stages > 0 && std::any_of(placed.rops.begin(), placed.rops.end(), is_recurrent))
    out.push_back({.name = "without boxes", .vdevice = vdevice.without_inputs()});
  // Members of a cluster can share the k of a product (docs/adr/0038), but there are fewer vEUs. Where members do share something, clusters
  // gain more than is estimated: on an H200 swin_t takes 289.0 us in clusters and 303.8 without in tf32 (estimated 307 and 312),
  // convnext_tiny 236.3 and 249.8 (268 and 274).
  if (usual.even_stages && !usual.more_tiles && setting.gangs && vdevice.sms_in_clusters > 0 && vdevice.sms >= 4) {
    ShapedVDevice clusters = vdevice.with_clusters();
    clusters.wide_products = clusters.even_stages = true;
    clusters.voting_waits = usual.voting_waits;
    ShapedVDevice apart = clusters;  // as many vEUs, which share nothing
    apart.cluster_veus = 1;
    out.push_back({.name = "clusters", .vdevice = clusters, .factor = 1 / 1.02, .control = apart});
  }
  // Longer stages, in 16 bits for tiles of up to 208 rows: one stage less is under way, which costs 4 to 10 % (on an H200 bert_base_s128 at
  // batch 32 in fp16 2.08 instead of 2.00 ms, vit_b_16 at batch 8 1.17 instead of 1.06). But bert_base_s128 at batch 8 has its 1024 rows in
  // five such tiles, and takes 0.78 instead of 0.83 ms.
  if (usual.more_tiles && (may_narrow(setting) || has_narrow(narrowed(placed, setting, usual)))) {
    ShapedVDevice longer = vdevice.with_long_batches();
    longer.wide_products = longer.more_tiles = longer.even_stages = true;
    out.push_back({.name = "longer stages", .vdevice = longer, .factor = 1.07});
  }
  return out;
}

const Offer& least(const std::vector<Offer>& offers, const std::function<double(const ShapedVDevice&)>& us) {
  const Offer* best = &offers.front();
  if (offers.size() == 1) return *best;
  double best_us = us(best->vdevice);
  for (size_t i = 1; i < offers.size(); ++i) {
    const Offer& offer = offers[i];
    const double own_us = us(offer.vdevice), counted_us = offer.factor * own_us;
    spdlog::debug("shapes: {:.1f} us {}, {:.1f} us {}", best_us, best->name, own_us, offer.name);
    if (!(counted_us < best_us) || !(own_us < best_us || (offer.control && own_us < us(*offer.control)))) continue;
    best = &offer;
    best_us = counted_us;
  }
  return *best;
}

ShapedVDevice program_shape(const Graph& placed, const Setting& setting) {
  return least(offers(placed, setting), [&](const ShapedVDevice& shaped) { return time_us(placed, setting, shaped); }).vdevice;
}

ShapedVDevice with_final_stages(const Graph& placed, const Setting& setting, const ShapedVDevice& shaped) {
  if (shaped.cluster_veus == 1 || shaped.input_stages_in_clusters == 0) return shaped;
  const auto late_kb = [&](const ShapedVDevice& d) {
    return schedule::late_bytes(narrowed(placed, setting, d), d, setting.precision, setting.gangs) / 1024;
  };
  const ShapedVDevice over = shaped.with_products_over_inputs();
  const double own_kb = late_kb(shaped), over_kb = late_kb(over);
  spdlog::debug("clusters: {:.0f} KB of inputs are late, {:.0f} with products over the input stages", own_kb, over_kb);
  return over_kb < own_kb ? over : shaped;
}

}  // namespace tamp::shape
