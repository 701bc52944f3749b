#include "kernels/product/staged_conv_moments.h"

#include <algorithm>

#include "kernels/args.h"
#include "kernels/product/staged_conv_cluster.h"
#include "kernels/product/staged_conv_pack.h"

namespace tamp::kernels::staged {

bool keeps_rounded(const ROperator& rop) {
  const auto* const op = std::get_if<MomentMatMul>(&rop.attrs);
  return op != nullptr && op->keeps_rounded;
}

namespace {

TensorId taken_moments(const ROperator& rop) { return operand(rop, kMomentMoments); }
TensorId kept_moments(const ROperator& rop) {
  return std::get<MomentMatMul>(rop.attrs).keeps_moments ? rop.outputs[kKeptMoments] : TensorId();
}
TensorId kept_rounded(const ROperator& rop) { return keeps_rounded(rop) ? rop.outputs[kKeptRounded] : TensorId(); }
// The rows of which the product reads others that are rounded.
TensorId exact_rows(const ROperator& rop) { return operand(rop, kMomentRounded).valid() ? rop.inputs[0] : TensorId(); }

// Of a row.
int64_t parts_of(const Graph& graph, TensorId moments) { return graph.tensor(moments).shape[1]; }

static_assert(kMomentColumns == rk::kMomentColumns);
// More would be too many registers beside the sums.
constexpr int64_t kMostParts = 12;

}  // namespace

bool take_moments(const Graph& graph, const ROperator& rop, const Shape& shape, Config& c) {
  if (rk::staged_rounds(static_cast<int>(shape.channels()), static_cast<int>(shape.pixels())) > 1) return false;
  c.moments = kept_moments(rop).valid() ? 1 : 0;
  if (c.moments != 0 && shape.channels() % kMomentColumns != 0) return false;
  if (exact_rows(rop).valid() && c.deep == 0) return false;  // compute_again reads weights in rows
  const TensorId taken = taken_moments(rop);
  if (!taken.valid()) return true;
  constexpr auto kThreads = static_cast<int>(rk::kComputeWarps * rk::kWarp);
  int64_t sharers = rk::threads_of_row(kThreads, static_cast<int>(shape.pixels()));
  while (parts_of(graph, taken) % sharers != 0) sharers /= 2;
  c.parts = parts_of(graph, taken) / sharers;
  return c.parts <= kMostParts;
}

bool takes_moments(const Request& request, const Product& p) {
  const Graph& graph = request.graph;
  for (const TensorId id : {taken_moments(request.rop), kept_moments(request.rop)}) {
    if (id.valid() && (!is_plain_f32(graph.tensor(id)) || !is_row_major(graph.tensor(id)))) return false;
  }
  const Grid g = grid_of(p);
  if (!p.narrow_in || g.h != 1 || g.images != 1 || p.groups != 1 || p.taps() != 1) return false;
  if (const TensorId exact = exact_rows(request.rop); exact.valid()) {
    const Tensor& rows = graph.tensor(exact);
    const bool lies_in_rows = is_plain_f32(rows) && is_row_major(rows) && rows.place.offset % 4 == 0;
    if (!lies_in_rows || graph.tensor(p.in).dtype != DType::f16 || kept_moments(request.rop).valid()) return false;
  }
  if (!kept_moments(request.rop).valid()) return true;
  if (const TensorId id = kept_rounded(request.rop); id.valid()) {
    const Tensor &rounded = graph.tensor(id), &out = graph.tensor(p.out);
    const bool lies_alike = rounded.place.strides == out.place.strides && rounded.place.offset % 4 == 0;
    if (p.narrow_out || rounded.dtype != DType::f16 || !is_plain_values(rounded) || !lies_alike) return false;
  }
  const Epilogue epilogue = plain_product(request.rop).epilogue;
  const bool adds_as_stored = !p.residual.valid() || (vector_of(graph, p.residual, p.residual_strides, p.channels) > 0 &&
                                                      g.residual_strides[3] == g.out_strides[3]);
  return epilogue.activation == Activation::none && vector_of(graph, p.out, p.out_strides, p.channels) > 0 && adds_as_stored;
}

void take_moment_args(const Request& request, const Product& p, const Config& c, Phase& phase) {
  const auto* const op = std::get_if<MomentMatMul>(&request.rop.attrs);
  const TensorId taken = op != nullptr ? taken_moments(request.rop) : TensorId();
  const TensorId kept = op != nullptr ? kept_moments(request.rop) : TensorId();
  const TensorId exact = op != nullptr ? exact_rows(request.rop) : TensorId();
  phase.args_type = "rk::MomentConvArgs";
  phase.args = {{"conv", struct_arg(std::move(phase.args))},
                {"column_sums", c.parts != 0 ? ArgValue{PackedArg{ring_bytes(p, c) + scale_bytes(p, c) + bias_bytes(p, c)}} : null_arg()},
                {"taken", tensor_arg(taken)},
                {"kept", tensor_arg(kept)},
                {"kept_parts", arg(c.moments != 0 ? parts_of(request.graph, kept) : int64_t{0})},
                {"inverse_k", float_arg(1.0F / static_cast<float>(p.in_channels))},
                {"epsilon", float_arg(op != nullptr ? op->epsilon : 0.0F)},
                {"centered", arg(int64_t{op != nullptr && op->centered})},
                {"exact", tensor_arg(exact)},
                {"weights", exact.valid() ? ArgValue{PackedArg{0}} : null_arg()},
                {"exact_cells", arg(exact.valid() ? p.in_channels / 8 : int64_t{0})},
                {"block_cells", arg(exact.valid() ? blocks_of(p, c).chunks * c.chunk_steps * step_bytes_of(c) / 16 : int64_t{0})},
                {"rounded", tensor_arg(kept_rounded(request.rop))}};
  if (op != nullptr) phase.cost.calibrated_cycles += request.vdevice.cost("staged_conv.moments_cycles");
}

void add_moments(const Request& request, const Product& p, const Config& c, Phase& phase) {
  take_moment_args(request, p, c, phase);
  phase.header = "kernels/product/moment_conv.cuh";
  phase.body = "rk::moment_conv";
  if (c.stage_steps == 0) phase.template_args.emplace_back("STAGE_STEPS", "0");
  phase.template_args.emplace_back("KEEPS", c.moments != 0 ? "true" : "false");
  phase.template_args.emplace_back("PARTS", std::to_string(c.parts));
  const int64_t sharers = c.parts != 0 ? parts_of(request.graph, taken_moments(request.rop)) / c.parts : 1;
  phase.template_args.emplace_back("SHARERS", std::to_string(sharers));
  if (kept_rounded(request.rop).valid()) phase.template_args.emplace_back("ROUNDS", "true");
  if (!exact_rows(request.rop).valid()) return;
  phase.template_args.emplace_back("ROUNDS", "false");
  phase.template_args.emplace_back("EXACT", "true");
}

void moment_accesses(const Graph& graph, const ROperator& rop, const Product& p, const Config& c, int64_t index, Accesses& out) {
  const Blocks b = blocks_of(p, c);
  const int64_t tiles = b.tiles(grid_of(p)), first = index % tiles * c.tile_w, last = std::min(first + c.tile_w, p.rows());
  const int64_t block = index / tiles, begin = block / c.splits * shape_of(c).channels(),
                end = std::min(begin + shape_of(c).channels(), p.channels);
  const auto moments = [&](TensorId id, int64_t first_row, int64_t last_row, int64_t from, int64_t to) {
    const int64_t row = 2 * parts_of(graph, id);
    return Region{id, {graph.tensor(id).place.offset + first_row * row + from * 2, last_row - first_row, row, (to - from) * 2}};
  };
  if (const TensorId id = taken_moments(rop); id.valid()) out.reads.push_back(moments(id, first, last, 0, parts_of(graph, id)));
  if (const TensorId id = exact_rows(rop); id.valid()) {
    const int64_t k = p.in_channels;
    out.reads.push_back(Region{id, {graph.tensor(id).place.offset + first * k, last - first, k, k}});
  }
  const TensorId id = kept_moments(rop), rounded = kept_rounded(rop);
  if (!id.valid()) return;
  using Pieces = std::vector<std::pair<int64_t, int64_t>>;
  for (const auto& [from, to] : c.cluster != 0 ? kept_rows(c, block % c.splits, first, last) : Pieces{{first, last}}) {
    out.writes.push_back(moments(id, from, to, begin / kMomentColumns, end / kMomentColumns));
    if (rounded.valid()) append_rows(p, rounded, graph.tensor(rounded).place.offset, p.out_strides, from, to, begin, end, out.writes);
  }
}

}  // namespace tamp::kernels::staged
