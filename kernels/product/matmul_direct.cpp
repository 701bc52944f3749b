// Host side of matmul_direct.cuh.
#include <algorithm>
#include <array>

#include "kernels/args.h"
#include "kernels/family.h"
#include "kernels/loop.h"
#include "kernels/product/numbers.cuh"

namespace tamp::kernels {
namespace {

constexpr size_t kBatchRank = rk::kMatmulBatchRank;
enum Operand : size_t { kOut, kA, kB, kC, kResidual, kOperands };

struct Product {
  std::array<TensorId, kOperands> tensors;  // C and the residual may be none
  Loop batch;                               // one stride per operand
  int64_t m = 0, n = 0, k = 0;
  std::array<MatrixStrides, kOperands> strides;  // A: m, k; B: k, n; others: m, n
};

// Returns the last two strides of the tensor broadcast to `shape`; the others go to `batch`.
MatrixStrides take_operand(const Graph& graph, TensorId id, Shape shape, bool transposed, Operand operand, Loop& batch) {
  if (!id.valid()) return {};
  const Tensor& tensor = graph.tensor(id);
  if (operand == kA || operand == kB) std::copy(tensor.shape.end() - 2, tensor.shape.end(), shape.end() - 2);
  const std::vector<int64_t> s = broadcast_strides(tensor, shape);
  for (size_t d = 0; d + 2 < s.size(); ++d) batch[d].strides[operand] = s[d];
  const int64_t row = s[s.size() - 2], column = s.back();
  return transposed ? MatrixStrides{column, row} : MatrixStrides{row, column};
}

Product product_of(const Graph& graph, const ROperator& rop) {
  const MatMul& attrs = std::get<MatMul>(rop.attrs);
  const Shape& shape = graph.tensor(rop.outputs[0]).shape;
  const Shape& a = graph.tensor(rop.inputs[0]).shape;
  Product p;
  p.tensors = {rop.outputs[0], rop.inputs[0], rop.inputs[1], operand(rop, 2), rop.epilogue.residual};
  p.m = shape[shape.size() - 2];
  p.n = shape.back();
  p.k = attrs.trans_a ? a[a.size() - 2] : a.back();
  for (size_t d = 0; d + 2 < shape.size(); ++d) p.batch.push_back({shape[d], std::vector<int64_t>(kOperands, 0)});
  for (const Operand operand : {kOut, kA, kB, kC, kResidual}) {
    const bool transposed = (operand == kA && attrs.trans_a) || (operand == kB && attrs.trans_b);
    p.strides[operand] = take_operand(graph, p.tensors[operand], shape, transposed, operand, p.batch);
  }
  p.batch = normalised(p.batch);
  return p;
}

// Whether the operand's dimension of stride 1 is whole groups of 16 aligned bytes.
bool is_vector(const Graph& graph, const Product& p, Operand operand) {
  const auto [row, column] = p.strides[operand];
  const int64_t rows = operand == kB ? p.k : p.m, columns = operand == kA ? p.k : p.n;
  if ((column == 1 ? columns : rows) % 4 != 0) return false;
  if ((row != 1 && column != 1) || (column == 1 ? row : column) % 4 != 0 || graph.tensor(p.tensors[operand]).place.offset % 4 != 0)
    return false;
  return std::all_of(p.batch.begin(), p.batch.end(), [&](const LoopDim& dim) { return dim.strides[operand] % 4 == 0; });
}

int64_t tile_count(const Product& p, int64_t tile) { return loop_elements(p.batch) * ceil_div(p.m, tile) * ceil_div(p.n, tile); }

RKernel rkernel_of(const Request& request, const Product& p, int64_t tile, int64_t rtasks) {
  const MatMul& attrs = std::get<MatMul>(request.rop.attrs);
  const int64_t tiles = tile_count(p, tile), per_rtask = std::max<int64_t>(1, ceil_div(tiles, rtasks));
  const auto batch = [&](Operand operand) { return array_arg(strides(p.batch, operand), kBatchRank); };
  Phase phase = early_phase("kernels/product/matmul_direct.cuh", "rk::matmul_direct", "rk::MatmulDirectArgs");
  phase.template_args = {{"kTile", std::to_string(tile)}};
  phase.args = {{"out", arg(TensorArg{p.tensors[kOut]})},
                {"a", arg(TensorArg{p.tensors[kA]})},
                {"b", arg(TensorArg{p.tensors[kB]})},
                {"c", tensor_arg(p.tensors[kC])},
                {"epilogue", epilogue_arg(request.rop, {p.strides[kResidual].row, p.strides[kResidual].column})},
                {"out_batch", batch(kOut)},
                {"a_batch", batch(kA)},
                {"b_batch", batch(kB)},
                {"c_batch", batch(kC)},
                {"residual_batch", batch(kResidual)},
                {"batch_divisors", divisors_arg(inner_extents(p.batch), kBatchRank - 1)},
                {"batch_rank", arg(static_cast<int64_t>(p.batch.size()))},
                {"m", arg(p.m)},
                {"n", arg(p.n)},
                {"k", arg(p.k)},
                {"out_m", arg(p.strides[kOut].row)},
                {"out_n", arg(p.strides[kOut].column)},
                {"a_m", arg(p.strides[kA].row)},
                {"a_k", arg(p.strides[kA].column)},
                {"b_k", arg(p.strides[kB].row)},
                {"b_n", arg(p.strides[kB].column)},
                {"c_m", arg(p.strides[kC].row)},
                {"c_n", arg(p.strides[kC].column)},
                {"tiles_m", divisor_arg(ceil_div(p.m, tile))},
                {"tiles_n", divisor_arg(ceil_div(p.n, tile))},
                {"tiles", arg(tiles)},
                {"tiles_per_rtask", arg(per_rtask)},
                {"alpha", float_arg(attrs.alpha)},
                {"beta", float_arg(attrs.beta)},
                {"a_vector", arg(int64_t{is_vector(request.graph, p, kA)})},
                {"b_vector", arg(int64_t{is_vector(request.graph, p, kB)})},
                {"out_vector", arg(int64_t{is_vector(request.graph, p, kOut) && p.strides[kOut].column == 1})}};
  phase.rtasks = std::max<int64_t>(1, ceil_div(tiles, per_rtask));
  phase.work_bytes = rk::kMatmulStages * rk::matmul_stage_floats(static_cast<int>(tile)) * 4;
  const double count = static_cast<double>(per_rtask), k = static_cast<double>(ceil_div(p.k, rk::kMatmulStep) * rk::kMatmulStep),
               edge = static_cast<double>(tile);
  phase.cost.flops = count * 2 * edge * edge * k;
  phase.cost.efficiency = request.vdevice.cost(tile == 64 ? "matmul_direct.64x64.efficiency" : "matmul_direct.32x32.efficiency");
  phase.cost.activation_bytes = count * 4 * (2 * edge * k + 2 * edge * edge);
  const std::string name = "matmul_direct<" + std::to_string(tile) + "x" + std::to_string(tile) + ", " + std::to_string(phase.rtasks) + ">";
  return one_phase(name, {{"tile", tile}, {"tiles_per_rtask", per_rtask}}, phase);
}

std::vector<RKernel> offers(const Request& request) {
  const ROperator& rop = request.rop;
  if (!std::holds_alternative<MatMul>(rop.attrs) || !all_plain_f32(request.graph, rop)) return {};
  const Product p = product_of(request.graph, rop);
  if (p.batch.size() > kBatchRank) return {};
  const int64_t veus = request.vdevice.veus();
  std::vector<RKernel> out = {rkernel_of(request, p, 32, 4 * veus)};
  if (p.m > 32 || p.n > 32) out.push_back(rkernel_of(request, p, 64, 4 * veus));
  return out;
}

void accesses(const Graph& graph, const ROperator& rop, const RKernel& rkernel, int, int64_t index, Accesses& out) {
  const Product p = product_of(graph, rop);
  const int64_t tile = rkernel.config_value("tile"), per_rtask = rkernel.config_value("tiles_per_rtask");
  const int64_t tiles_m = ceil_div(p.m, tile), tiles_n = ceil_div(p.n, tile);
  const int64_t end = std::min((index + 1) * per_rtask, tile_count(p, tile));
  const auto append = [&](Operand operand, int64_t batch, const MatrixPart& part, std::vector<Region>& regions) {
    append_matrix(graph, p.tensors[operand], p.batch, operand, p.strides[operand], batch, part, regions);
  };
  for (int64_t t = index * per_rtask; t < end; ++t) {
    const int64_t batch = t / (tiles_m * tiles_n), m = t / tiles_n % tiles_m * tile, n = t % tiles_n * tile;
    const int64_t m_end = std::min(m + tile, p.m), n_end = std::min(n + tile, p.n);
    append(kOut, batch, {m, m_end, n, n_end}, out.writes);
    append(kA, batch, {m, m_end, 0, p.k}, out.reads);
    append(kB, batch, {0, p.k, n, n_end}, out.reads);
    append(kC, batch, {m, m_end, n, n_end}, out.reads);
    append(kResidual, batch, {m, m_end, n, n_end}, out.reads);
    append_bias(graph, rop, n, n_end, out.reads);
  }
}

}  // namespace

Family matmul_direct() { return {"matmul_direct", offers, no_pack, accesses}; }

}  // namespace tamp::kernels
