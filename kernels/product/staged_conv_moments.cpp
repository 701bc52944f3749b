#include "kernels/product/staged_conv_moments.h"

#include <algorithm>
#include <utility>

#include "compiler/ir/fused.h"
#include "kernels/args.h"
#include "kernels/product/staged_conv_cluster.h"
#include "kernels/product/staged_conv_pack.h"

namespace tamp::kernels::staged {

std::optional<MomentSteps> moment_steps(const ROperator& rop) {
  const std::optional<FusedView> steps = FusedView::of(rop);
  if (!steps) return std::nullopt;
  MomentSteps found;
  found.normalize = steps->as<NormalizeBy>(0);
  const size_t at = found.normalize ? 1 : 0;
  if (!steps->as<MatMul>(at) || !steps->output(at).valid()) return std::nullopt;
  found.product = steps->alone(at);
  if (found.normalize) {
    if (!steps->feeds(0, at)) return std::nullopt;
    found.taken = steps->input(0, 1);
    const bool is_rounded = steps->input(0, 2).valid();
    found.product.inputs[0] = steps->input(0, is_rounded ? 2 : 0);
    if (is_rounded) found.exact = steps->input(0, 0);
  }
  if (steps->as<Moments>(at + 1) && steps->feeds(at, at + 1)) found.kept = steps->output(at + 1);
  if (steps->copies(at, at + 2)) found.rounded = steps->output(at + 2);
  const size_t behind = (found.kept.valid() ? 1 : 0) + (found.rounded.valid() ? 1 : 0);
  return steps->count() == at + 1 + behind && (found.normalize || found.kept.valid()) ? std::optional(std::move(found)) : std::nullopt;
}

bool keeps_rounded(const ROperator& rop) {
  const std::optional<MomentSteps> steps = moment_steps(rop);
  return steps && steps->rounded.valid();
}

namespace {

// Of a row.
int64_t parts_of(const Graph& graph, TensorId moments) { return graph.tensor(moments).shape[1]; }

static_assert(kMomentColumns == rk::kMomentColumns);
// More would be too many registers beside the sums.
constexpr int64_t kMostParts = 12;

}  // namespace

bool take_moments(const Graph& graph, const MomentSteps& steps, const Shape& shape, Config& c) {
  if (rk::staged_rounds(static_cast<int>(shape.channels()), static_cast<int>(shape.pixels())) > 1) return false;
  c.moments = steps.kept.valid() ? 1 : 0;
  if (c.moments != 0 && shape.channels() % kMomentColumns != 0) return false;
  if (steps.exact.valid() && c.deep == 0) return false;  // compute_again reads weights in rows
  if (!steps.taken.valid()) return true;
  constexpr auto kThreads = static_cast<int>(rk::kComputeWarps * rk::kWarp);
  int64_t sharers = rk::threads_of_row(kThreads, static_cast<int>(shape.pixels()));
  while (parts_of(graph, steps.taken) % sharers != 0) sharers /= 2;
  c.parts = parts_of(graph, steps.taken) / sharers;
  return c.parts <= kMostParts;
}

bool takes_moments(const Request& request, const MomentSteps& steps, const Product& p) {
  const Graph& graph = request.graph;
  for (const TensorId id : {steps.taken, steps.kept}) {
    if (id.valid() && (!is_plain_f32(graph.tensor(id)) || !is_row_major(graph.tensor(id)))) return false;
  }
  const Grid g = grid_of(p);
  if (!p.narrow_in || g.h != 1 || g.images != 1 || p.groups != 1 || p.taps() != 1) return false;
  if (steps.exact.valid()) {
    const Tensor& rows = graph.tensor(steps.exact);
    const bool lies_in_rows = is_plain_f32(rows) && is_row_major(rows) && rows.place.offset % 4 == 0;
    if (!lies_in_rows || graph.tensor(p.in).dtype != DType::f16 || steps.kept.valid()) return false;
  }
  if (!steps.kept.valid()) return true;
  if (steps.rounded.valid()) {
    const Tensor &rounded = graph.tensor(steps.rounded), &out = graph.tensor(p.out);
    const bool lies_alike = rounded.place.strides == out.place.strides && rounded.place.offset % 4 == 0;
    if (p.narrow_out || rounded.dtype != DType::f16 || !is_plain_values(rounded) || !lies_alike) return false;
  }
  const bool adds_as_stored = !p.residual.valid() || (vector_of(graph, p.residual, p.residual_strides, p.channels) > 0 &&
                                                      g.residual_strides[3] == g.out_strides[3]);
  return steps.product.epilogue.activation == Activation::none && vector_of(graph, p.out, p.out_strides, p.channels) > 0 && adds_as_stored;
}

void take_moment_args(const Request& request, const Product& p, const Config& c, Phase& phase) {
  const std::optional<MomentSteps> found = moment_steps(request.rop);
  const MomentSteps steps = found.value_or(MomentSteps());
  const NormalizeBy normalize = steps.normalize ? *steps.normalize : found ? NormalizeBy() : NormalizeBy{false, 0};
  phase.args_type = "rk::MomentConvArgs";
  phase.args = {{"conv", struct_arg(std::move(phase.args))},
                {"column_sums", c.parts != 0 ? ArgValue{PackedArg{ring_bytes(p, c) + scale_bytes(p, c) + bias_bytes(p, c)}} : null_arg()},
                {"taken", tensor_arg(steps.taken)},
                {"kept", tensor_arg(steps.kept)},
                {"kept_parts", arg(c.moments != 0 ? parts_of(request.graph, steps.kept) : int64_t{0})},
                {"inverse_k", float_arg(1.0F / static_cast<float>(p.in_channels))},
                {"epsilon", float_arg(normalize.epsilon)},
                {"centered", arg(int64_t{normalize.centered})},
                {"exact", tensor_arg(steps.exact)},
                {"weights", steps.exact.valid() ? ArgValue{PackedArg{0}} : null_arg()},
                {"exact_cells", arg(steps.exact.valid() ? p.in_channels / 8 : int64_t{0})},
                {"block_cells", arg(steps.exact.valid() ? blocks_of(p, c).chunks * c.chunk_steps * step_bytes_of(c) / 16 : int64_t{0})},
                {"rounded", tensor_arg(steps.rounded)}};
  if (found) phase.cost.calibrated_cycles += request.vdevice.cost("staged_conv.moments_cycles");
}

void add_moments(const Request& request, const MomentSteps& steps, const Product& p, const Config& c, Phase& phase) {
  take_moment_args(request, p, c, phase);
  phase.header = "kernels/product/moment_conv.cuh";
  phase.body = "rk::moment_conv";
  if (c.stage_steps == 0) phase.template_args.emplace_back("STAGE_STEPS", "0");
  phase.template_args.emplace_back("KEEPS", c.moments != 0 ? "true" : "false");
  phase.template_args.emplace_back("PARTS", std::to_string(c.parts));
  const int64_t sharers = c.parts != 0 ? parts_of(request.graph, steps.taken) / c.parts : 1;
  phase.template_args.emplace_back("SHARERS", std::to_string(sharers));
  if (steps.rounded.valid()) phase.template_args.emplace_back("ROUNDS", "true");
  if (!steps.exact.valid()) return;
  phase.template_args.emplace_back("ROUNDS", "false");
  phase.template_args.emplace_back("EXACT", "true");
}

void moment_accesses(const Graph& graph, const MomentSteps& steps, const Product& p, const Config& c, int64_t index, Accesses& out) {
  const Blocks b = blocks_of(p, c);
  const int64_t tiles = b.tiles(grid_of(p)), first = index % tiles * c.tile_w, last = std::min(first + c.tile_w, p.rows());
  const int64_t block = index / tiles, begin = block / c.splits * shape_of(c).channels(),
                end = std::min(begin + shape_of(c).channels(), p.channels);
  const auto moments = [&](TensorId id, int64_t first_row, int64_t last_row, int64_t from, int64_t to) {
    const int64_t row = 2 * parts_of(graph, id);
    return Region{id, {graph.tensor(id).place.offset + first_row * row + from * 2, last_row - first_row, row, (to - from) * 2}};
  };
  if (const TensorId id = steps.taken; id.valid()) out.reads.push_back(moments(id, first, last, 0, parts_of(graph, id)));
  if (const TensorId id = steps.exact; id.valid()) {
    const int64_t k = p.in_channels;
    out.reads.push_back(Region{id, {graph.tensor(id).place.offset + first * k, last - first, k, k}});
  }
  if (!steps.kept.valid()) return;
  using Pieces = std::vector<std::pair<int64_t, int64_t>>;
  for (const auto& [from, to] : c.cluster != 0 ? kept_rows(c, block % c.splits, first, last) : Pieces{{first, last}}) {
    out.writes.push_back(moments(steps.kept, from, to, begin / kMomentColumns, end / kMomentColumns));
    if (steps.rounded.valid())
      append_rows(p, steps.rounded, graph.tensor(steps.rounded).place.offset, p.out_strides, from, to, begin, end, out.writes);
  }
}

}  // namespace tamp::kernels::staged
