#include "compiler/passes/place/wanted_order.h"

#include <algorithm>
#include <numeric>

#include "compiler/ir/fused.h"
#include "compiler/passes/memory_order.h"
#include "compiler/passes/rewrite.h"
#include "compiler/passes/view_strides.h"

namespace tamp::passes {
namespace {

// The order with the dimensions of `inner` innermost and all others in front of them, as they were.
std::vector<size_t> with_innermost(size_t rank, const std::vector<size_t>& inner) {
  std::vector<size_t> order(rank);
  std::iota(order.begin(), order.end(), size_t{0});
  const auto is_outer = [&](size_t d) { return std::find(inner.begin(), inner.end(), d) == inner.end(); };
  std::stable_partition(order.begin(), order.end(), is_outer);
  return order;
}

std::vector<size_t> sizes_of(const std::vector<int64_t>& axes) { return {axes.begin(), axes.end()}; }

// The dimensions of the operand that the rOperator sums over; none where it does not.
std::vector<size_t> summed(const ROperator& rop, size_t rank) {
  if (const std::optional<FusedView> steps = FusedView::of(rop)) {  // as the step that reads it
    for (const ROperator& step : steps->body().rops) {
      if (operand(step, 0) == steps->body().inputs[0]) return summed(step, rank);
    }
    return {};
  }
  if (std::holds_alternative<NormalizeBy>(rop.attrs)) return {rank - 1};
  if (const auto* matmul = std::get_if<MatMul>(&rop.attrs)) return {rank - (matmul->trans_a ? 2 : 1)};
  if (const auto* normalize = std::get_if<Normalize>(&rop.attrs)) return sizes_of(normalize->axes);
  if (const auto* softmax = std::get_if<Softmax>(&rop.attrs)) {
    std::vector<size_t> axes;
    for (int64_t d = softmax->first_axis; d <= softmax->last_axis; ++d) axes.push_back(static_cast<size_t>(d));
    return axes;
  }
  return {};
}

std::vector<int64_t> padded_strides(Shape shape, const std::vector<size_t>& order, int64_t cell) {
  int64_t& innermost = shape[order.back()];
  if (innermost >= kPaddedChannels) innermost = (innermost + cell - 1) / cell * cell;
  return dense_strides(shape, order);
}

// Whether elements along the innermost of these dimensions are neighbours and all others are whole 16-byte cells apart.
bool lies_well(const Tensor& tensor, const std::vector<size_t>& order, int64_t cell) {
  const std::vector<int64_t>& strides = tensor.place.strides;
  if (tensor.place.offset % cell != 0) return false;
  for (size_t i = 0; i < order.size(); ++i) {
    const size_t d = order[i];
    if (tensor.shape[d] == 1) continue;
    if (i + 1 == order.size() ? strides[d] != 1 : strides[d] % cell != 0) return false;
  }
  return true;
}

}  // namespace

std::optional<std::vector<int64_t>> wanted_strides(const Graph& graph, const ROperator& rop, size_t i, int64_t cell) {
  const Tensor& tensor = graph.tensor(rop.inputs[i]);
  const size_t rank = tensor.shape.size();
  if (tensor.role != Role::activation || tensor.dtype != DType::f32 || rank < 2 || i > 0) return std::nullopt;
  constexpr int64_t kCell = 4;  // of f32, whatever the activations will be
  std::vector<int64_t> wanted;
  if (std::holds_alternative<Conv>(rop.attrs)) {
    if (rank != 4 || lies_well(tensor, {0, 2, 3, 1}, kCell)) return std::nullopt;
    wanted = channels_last_strides(tensor.shape, cell);
  } else {
    const std::vector<size_t> inner = summed(rop, rank);
    if (inner.empty()) return std::nullopt;
    wanted = padded_strides(tensor.shape, with_innermost(rank, inner), cell);
  }
  if (wanted == tensor.place.strides && tensor.place.offset % kCell == 0) return std::nullopt;
  return wanted;
}

}  // namespace tamp::passes
