// Host side of recurrent_direct.cuh. rTask b is batch row b.
#include "kernels/args.h"
#include "kernels/family.h"
#include "kernels/loop.h"
#include "kernels/recurrent/numbers.cuh"

namespace tamp::kernels {
namespace {

static_assert(static_cast<int>(CellFunctionKind::sigmoid) == rk::kCellSigmoid &&
              static_cast<int>(CellFunctionKind::tanh) == rk::kCellTanh && static_cast<int>(CellFunctionKind::relu) == rk::kCellRelu &&
              static_cast<int>(CellFunctionKind::affine) == rk::kCellAffine &&
              static_cast<int>(CellFunctionKind::leaky_relu) == rk::kCellLeakyRelu &&
              static_cast<int>(CellFunctionKind::thresholded_relu) == rk::kCellThresholdedRelu &&
              static_cast<int>(CellFunctionKind::scaled_tanh) == rk::kCellScaledTanh &&
              static_cast<int>(CellFunctionKind::hard_sigmoid) == rk::kCellHardSigmoid &&
              static_cast<int>(CellFunctionKind::elu) == rk::kCellElu &&
              static_cast<int>(CellFunctionKind::softsign) == rk::kCellSoftsign &&
              static_cast<int>(CellFunctionKind::softplus) == rk::kCellSoftplus);

constexpr int64_t kRowsUnderWay = rk::kComputeWarps * rk::kRecurrentRows;

// The cell's operands and results as tensors; none where there is none.
struct Operands {
  TensorId x, w, r, bias, peepholes, lengths, h0, c0, y, y_h, y_c;
};

const RecurrentCell& cell_of(const ROperator& rop) { return std::get<Recurrent>(rop.attrs).cells[0]; }

TensorId at(const std::vector<TensorId>& ids, int32_t place) { return place < 0 ? TensorId() : ids[static_cast<size_t>(place)]; }

Operands operands_of(const ROperator& rop) {
  const RecurrentCell& c = cell_of(rop);
  const auto in = [&](int32_t place) { return at(rop.inputs, place); };
  const auto out = [&](int32_t place) { return at(rop.outputs, place); };
  return {in(c.x), in(c.w), in(c.r), in(c.bias), in(c.peepholes), in(c.lengths), in(c.h0), in(c.c0), out(c.y), out(c.y_h), out(c.y_c)};
}

// As is_plain_f32, but i32.
bool is_plain_i32(Tensor tensor) {
  if (tensor.dtype != DType::i32) return false;
  tensor.dtype = DType::f32;
  return is_plain_f32(tensor);
}

bool all_plain(const Graph& graph, const Operands& o) {
  for (const TensorId id : {o.x, o.w, o.r, o.bias, o.peepholes, o.h0, o.c0, o.y, o.y_h, o.y_c}) {
    if (id.valid() && !is_plain_f32(graph.tensor(id))) return false;
  }
  return !o.lengths.valid() || is_plain_i32(graph.tensor(o.lengths));
}

bool is_accepted(const Graph& graph, const ROperator& rop) {
  const Recurrent* const recurrent = std::get_if<Recurrent>(&rop.attrs);
  if (recurrent == nullptr || recurrent->cells.size() != 1 || has_epilogue(rop)) return false;
  const Operands o = operands_of(rop);
  if (!o.x.valid() || !o.r.valid() || o.w.valid() == cell_of(rop).x_is_gates) return false;
  return all_plain(graph, o);
}

// Floats of the sums, see recurrent_direct.cuh.
int64_t sums_of(const RecurrentCell& cell) { return (cell.kind == CellKind::rnn ? 1 : 4) * cell.hidden; }

int64_t work_bytes_of(const RecurrentCell& cell) { return (2 * ceil_div(cell.hidden, 4) * 4 + sums_of(cell)) * 4; }

int64_t stride(const Graph& graph, TensorId id, size_t dim) { return id.valid() ? graph.tensor(id).place.strides[dim] : 0; }

// Runs of `count` elements along dimension `dim`, each a whole number of aligned groups of four.
bool is_vector(const Tensor& tensor, size_t dim, int64_t count) {
  if (count % 4 != 0 || tensor.place.offset % 4 != 0) return false;
  for (size_t d = 0; d < tensor.shape.size(); ++d) {
    if (d == dim ? tensor.place.strides[d] != 1 : tensor.place.strides[d] % 4 != 0) return false;
  }
  return true;
}

ArgValue matrix_arg(const Graph& graph, TensorId id, bool vector) {
  return struct_arg(
      {{"at", tensor_arg(id)}, {"row", arg(stride(graph, id, 0))}, {"k", arg(stride(graph, id, 1))}, {"vector", arg(int64_t{vector})}});
}

ArgValue functions_arg(const RecurrentCell& cell) {
  ArgList list;
  for (const CellFunction& f : cell.functions) {
    list.push_back(struct_arg({{"kind", arg(static_cast<int64_t>(f.kind))}, {"a", float_arg(f.a)}, {"b", float_arg(f.b)}}));
  }
  return ArgValue{list};
}

std::vector<Arg> args_of(const Graph& graph, const ROperator& rop) {
  const RecurrentCell& cell = cell_of(rop);
  const Operands o = operands_of(rop);
  const Tensor& x = graph.tensor(o.x);
  const int64_t input = x.shape[2];
  const bool vector_w = o.w.valid() && is_vector(graph.tensor(o.w), 1, input) && is_vector(x, 2, input);
  const auto of = [&](TensorId id, size_t dim) { return arg(stride(graph, id, dim)); };
  return {
      {"w", matrix_arg(graph, o.w, vector_w)},
      {"r", matrix_arg(graph, o.r, is_vector(graph.tensor(o.r), 1, cell.hidden))},
      {"x", tensor_arg(o.x)},
      {"bias", tensor_arg(o.bias)},
      {"peepholes", tensor_arg(o.peepholes)},
      {"lengths", tensor_arg(o.lengths)},
      {"h0", tensor_arg(o.h0)},
      {"c0", tensor_arg(o.c0)},
      {"y", tensor_arg(o.y)},
      {"y_h", tensor_arg(o.y_h)},
      {"y_c", tensor_arg(o.y_c)},
      {"x_t", of(o.x, 0)},
      {"x_b", of(o.x, 1)},
      {"x_k", of(o.x, 2)},
      {"bias_k", of(o.bias, 0)},
      {"peepholes_k", of(o.peepholes, 0)},
      {"lengths_b", of(o.lengths, 0)},
      {"h0_b", of(o.h0, 0)},
      {"h0_k", of(o.h0, 1)},
      {"c0_b", of(o.c0, 0)},
      {"c0_k", of(o.c0, 1)},
      {"y_t", of(o.y, 0)},
      {"y_b", of(o.y, 1)},
      {"y_k", of(o.y, 2)},
      {"y_h_b", of(o.y_h, 0)},
      {"y_h_k", of(o.y_h, 1)},
      {"y_c_b", of(o.y_c, 0)},
      {"y_c_k", of(o.y_c, 1)},
      {"kind", arg(static_cast<int64_t>(cell.kind))},
      {"steps", cell.end ? ArgValue{ExtentArg{{*cell.end}}} : arg(cell.steps)},
      {"input", arg(input)},
      {"hidden", arg(cell.hidden)},
      {"reverse", arg(int64_t{cell.reverse})},
      {"linear_before_reset", arg(int64_t{cell.linear_before_reset})},
      {"input_forget", arg(int64_t{cell.input_forget})},
      {"clip", float_arg(cell.clip)},
      {"functions", functions_arg(cell)},
  };
}

// Every step reads both matrices again. A vEU computes the rows of all its warps at once, as one group, and each group of rows waits for
// L2 once; then come the barriers and the functions.
Cost cost_of(const Request& request) {
  const auto& [graph, rop, vdevice, precision] = request;
  const RecurrentCell& cell = cell_of(rop);
  const Operands o = operands_of(rop);
  const double steps = static_cast<double>(cell.steps), hidden = static_cast<double>(cell.hidden);
  const double gates = static_cast<double>(gates_of(cell.kind)) * hidden;
  const double input = static_cast<double>(graph.tensor(o.x).shape[2]);
  const double k = hidden + (o.w.valid() ? input : 0);
  Cost cost;
  cost.flops = steps * (2 * gates * k + 100 * hidden);
  cost.efficiency = vdevice.cost("recurrent_direct.efficiency");
  cost.weight_bytes = steps * 4 * gates * k;
  cost.activation_bytes = steps * 4 * (input + hidden);
  const double groups = static_cast<double>(ceil_div(gates_of(cell.kind) * cell.hidden, kRowsUnderWay));
  const double step_us = vdevice.cost(cell.kind == CellKind::gru ? "recurrent_direct.gru_step_us" : "recurrent_direct.step_us");
  cost.latency_us = steps * (step_us + vdevice.cost("recurrent_direct.row_group_us") * groups);
  return cost;
}

std::vector<RKernel> offers(const Request& request) {
  const ROperator& rop = request.rop;
  if (!is_accepted(request.graph, rop)) return {};
  const int64_t work_bytes = work_bytes_of(cell_of(rop));
  if (work_bytes > request.vdevice.work_bytes()) return {};
  Phase phase = body_phase("kernels/recurrent/recurrent_direct.cuh", "rk::recurrent_direct", "rk::RecurrentDirectArgs");
  phase.args = args_of(request.graph, rop);
  phase.rtasks = std::get<Recurrent>(rop.attrs).batch;
  phase.work_bytes = work_bytes;
  phase.cost = cost_of(request);
  return {one_phase("recurrent_direct<" + std::string(name_of(cell_of(rop).kind)) + ">", {}, phase)};
}

// Batch row `index`: dimension 1 of [T,B,N], dimension 0 of [B,N] and [B].
void append_row(const Graph& graph, TensorId id, int64_t index, std::vector<Region>& regions) {
  if (!id.valid()) return;
  const Shape& shape = graph.tensor(id).shape;
  const size_t dim = shape.size() == 3 ? 1 : 0;
  std::vector<int64_t> low(shape.size(), 0), high = shape;
  low[dim] = index;
  high[dim] = index + 1;
  append_box(graph, id, low, high, regions);
}

void accesses(const Graph& graph, const ROperator& rop, const RKernel&, int, int64_t index, Accesses& out) {
  const Operands o = operands_of(rop);
  for (const TensorId id : {o.w, o.r, o.bias, o.peepholes}) {
    if (id.valid()) append_whole(graph, id, out.reads);
  }
  for (const TensorId id : {o.x, o.lengths, o.h0, o.c0}) append_row(graph, id, index, out.reads);
  for (const TensorId id : {o.y, o.y_h, o.y_c}) append_row(graph, id, index, out.writes);
}

}  // namespace

Family recurrent_direct() { return {"recurrent_direct", offers, no_pack, accesses}; }

}  // namespace tamp::kernels
