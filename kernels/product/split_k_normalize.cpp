// Host side of split_k_normalize.cuh.
#include "kernels/product/split_k_normalize.h"

#include <algorithm>
#include <bit>
#include <tuple>
#include <vector>

#include "kernels/args.h"
#include "kernels/loop.h"
#include "kernels/tile/product_phases.h"
#include "kernels/vdevice/numbers.cuh"

namespace tamp::kernels {
namespace {

constexpr int64_t kConstants = 3;   // rows of values in the ring: bias, scale, shift
constexpr int64_t kMostLoads = 16;  // of a thread at a time, of parts; more do not fit its registers

TensorId sum_of(const ROperator& rop) { return normalized_product_steps(rop)->output(0); }
TensorId residual_of(const ROperator& rop) { return normalized_product_steps(rop)->residual(0); }
TensorId scale_of(const ROperator& rop) { return normalized_product_steps(rop)->input(1, 1); }
TensorId shift_of(const ROperator& rop) { return normalized_product_steps(rop)->input(1, 2); }

// The tensors that the body reads or writes row by row.
std::vector<TensorId> tensors_of_rows(const ROperator& rop) {
  std::vector<TensorId> ids = {rop.outputs[0]};
  for (const TensorId id : {sum_of(rop), residual_of(rop)}) {
    if (id.valid()) ids.push_back(id);
  }
  return ids;
}

// The type of the residual and of the sum; where there are none, that of the result, so that there are fewer instances of the body.
DType type_of_sums(const Graph& graph, const ROperator& rop) { return graph.tensor(tensors_of_rows(rop).back()).dtype; }

// How the threads of a rTask are laid over its rows. `each`: vectors of a thread; `turns`: how often they go on to other rows.
struct RowThreads {
  int64_t threads = 0, each = 0, parts = 0, turns = 0;
};

// The fewest turns; of these, the fewest vectors.
std::optional<RowThreads> threads_of(const ShapedVDevice& vdevice, const Product& p, int64_t splits) {
  const int64_t vectors = p.channels / 4, rows = normalized_rows_of(vdevice, p);
  const int64_t parts = std::max<int64_t>(4, static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(splits))));
  std::optional<RowThreads> best;
  for (const int64_t each : {1, 2, 3, 4, 6, 8}) {
    const int64_t of_each = each > 4 ? std::min<int64_t>(parts, 2) : parts;
    const auto threads = static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(ceil_div(vectors, each))));
    if (threads > vdevice.compute_threads || of_each < splits || each * of_each > kMostLoads) continue;
    const int64_t turns = ceil_div(rows, vdevice.compute_threads / threads);
    if (!best || turns < best->turns) best = RowThreads{threads, each, of_each, turns};
  }
  return best;
}

ArgValue stride_arg(const Graph& graph, TensorId id) { return arg(id.valid() ? *row_stride(graph.tensor(id), 4) : int64_t{0}); }

Cost cost_of(const Request& request, const Product& p, int64_t splits, int64_t turns) {
  const ShapedVDevice& d = request.vdevice;
  double bytes_of_value = 4 * static_cast<double>(splits);
  for (const TensorId id : tensors_of_rows(request.rop)) bytes_of_value += static_cast<double>(bytes_of(request.graph.tensor(id).dtype));
  const double values = static_cast<double>(normalized_rows_of(d, p) * p.channels);
  Cost cost;
  cost.flops = values * static_cast<double>(splits + 8);
  cost.activation_bytes = values * bytes_of_value;
  cost.weight_bytes = static_cast<double>(kConstants * 4 * p.channels);
  cost.calibrated_cycles = d.cost("split_k_normalize.fixed_cycles") + cost.activation_bytes * d.cost("split_k_normalize.byte_cycles") +
                           static_cast<double>(turns - 1) * d.cost("split_k_normalize.turn_cycles");
  return cost;
}

}  // namespace

ROperator product_before_normalize(const ROperator& rop) {
  ROperator product = normalized_product_steps(rop)->alone(0);
  product.outputs = {rop.outputs.back()};
  product.epilogue.residual = {};
  return product;
}

bool takes_normalize(const Request& request) {
  const auto& [graph, rop, vdevice] = std::tie(request.graph, request.rop, request.vdevice);
  const int64_t columns = graph.tensor(rop.outputs[0]).shape.back();
  if (kConstants * 4 * columns > vdevice.weight_stage_bytes || !std::has_single_bit(static_cast<uint64_t>(vdevice.compute_threads)))
    return false;
  for (const TensorId id : {scale_of(rop), shift_of(rop)}) {
    if (id.valid() && graph.tensor(id).role != Role::constant) return false;
  }
  for (const TensorId id : tensors_of_rows(rop)) {
    if (!is_plain_values(graph.tensor(id)) || !row_stride(graph.tensor(id), 4)) return false;
    if (id != rop.outputs[0] && graph.tensor(id).dtype != type_of_sums(graph, rop)) return false;
  }
  return true;
}

int64_t normalized_rows_of(const ShapedVDevice& vdevice, const Product& product) { return ceil_div(product.rows(), vdevice.veus()); }

std::optional<Phase> normalize_phase(const Request& request, const Product& p, int64_t splits) {
  const auto& [graph, rop, vdevice] = std::tie(request.graph, request.rop, request.vdevice);
  const Normalize& op = *normalized_product_steps(rop)->as<Normalize>(1);
  const std::optional<RowThreads> threads = threads_of(vdevice, p, splits);
  if (!threads) return std::nullopt;
  Phase phase = early_phase("kernels/product/split_k_normalize.cuh", "rk::split_k_normalize", "rk::SplitKNormalizeArgs");
  phase.template_args = {{"kEach", std::to_string(threads->each)}, {"kParts", std::to_string(threads->parts)}};
  const DType sums = type_of_sums(graph, rop), out = graph.tensor(rop.outputs[0]).dtype;
  if (is_narrow(sums) || is_narrow(out)) {
    phase.template_args.emplace_back("In", value_type(sums));
    phase.template_args.emplace_back("Out", value_type(out));
  }
  const TensorId residual = residual_of(rop);
  const int64_t rows = normalized_rows_of(vdevice, p);
  phase.args = {{"partial", ArgValue{ScratchArg{0}}},
                {"residual", tensor_arg(residual)},
                {"sum", tensor_arg(sum_of(rop))},
                {"out", tensor_arg(rop.outputs[0])},
                {"split_stride", arg(p.rows() * partial_pitch(p))},
                {"residual_row", stride_arg(graph, residual)},
                {"sum_row", stride_arg(graph, sum_of(rop))},
                {"out_row", stride_arg(graph, rop.outputs[0])},
                {"rows", arg(p.rows())},
                {"rows_per_rtask", arg(rows)},
                {"vectors", arg(p.channels / 4)},
                {"threads_log2", log2_arg(threads->threads)},
                {"splits", arg(splits)},
                {"inverse_count", float_arg(1.0F / static_cast<float>(p.channels))},
                {"epsilon", float_arg(op.epsilon)},
                {"centered", arg(int64_t{op.centered})}};
  phase.rtasks = ceil_div(p.rows(), rows);
  phase.work_bytes = 2 * 4 * vdevice.compute_threads / rk::kWarp;
  phase.ring = {kConstants * 4 * p.channels, 1, phase.rtasks, 1};
  phase.cost = cost_of(request, p, splits, threads->turns);
  return phase;
}

Bytes pack_normalize(const Graph& graph, const ROperator& rop, const Product& product) {
  std::vector<float> values = bias_of(graph, product);
  append_columns(graph, scale_of(rop), product.channels, 1, values);
  append_columns(graph, shift_of(rop), product.channels, 0, values);
  return packed_bytes(values);
}

void normalize_accesses(const Graph& graph, const ROperator& rop, const Product& product, int64_t splits, int64_t rows_per_rtask,
                        int64_t index, Accesses& out) {
  const int64_t first = index * rows_per_rtask, last = std::min(first + rows_per_rtask, product.rows()), columns = product.channels;
  for (int64_t split = 0; split < splits; ++split) out.reads.push_back(partial_rows(product, split, first, last, 0, columns));
  for (const TensorId id : tensors_of_rows(rop)) {
    const int64_t stride = *row_stride(graph.tensor(id), 4);
    const Region rows{id, {graph.tensor(id).place.offset + first * stride, last - first, stride, columns}};
    (id == residual_of(rop) ? out.reads : out.writes).push_back(rows);
  }
}

}  // namespace tamp::kernels
