#include "kernels/loop.h"

#include <algorithm>
#include <cstdlib>
#include <utility>

#include "compiler/support/error.h"

namespace tamp::kernels {
namespace {

// A box as runs that walk upwards: dimensions with negative strides are turned round.
void append_upwards(const Tensor& tensor, std::vector<int64_t> low, std::vector<int64_t> high, TensorId id, std::vector<Region>& regions) {
  Tensor upwards;
  upwards.name = tensor.name;
  upwards.shape = tensor.shape;
  upwards.place = tensor.place;
  for (size_t i = 0; i < low.size(); ++i) {
    int64_t& stride = upwards.place.strides[i];
    if (stride >= 0) continue;
    upwards.place.offset += (tensor.shape[i] - 1) * stride;
    stride = -stride;
    low[i] = tensor.shape[i] - std::exchange(high[i], tensor.shape[i] - low[i]);
  }
  for (const Run& run : box_runs(upwards, low, high)) regions.push_back({id, run});
}

}  // namespace

int64_t loop_elements(const Loop& loop) {
  int64_t count = 1;
  for (const LoopDim& dim : loop) count *= dim.extent;
  return count;
}

std::vector<int64_t> extents(const Loop& loop) {
  std::vector<int64_t> out;
  for (const LoopDim& dim : loop) out.push_back(dim.extent);
  return out;
}

std::vector<int64_t> strides(const Loop& loop, size_t operand) {
  std::vector<int64_t> out;
  for (const LoopDim& dim : loop) out.push_back(dim.strides[operand]);
  return out;
}

std::vector<int64_t> inner_extents(const Loop& loop) {
  std::vector<int64_t> out = extents(loop);
  if (!out.empty()) out.erase(out.begin());
  return out;
}

std::vector<int64_t> broadcast_strides(const Tensor& tensor, const Shape& to) {
  TAMP_CHECK(tensor.shape.size() <= to.size(), "'" + tensor.name + "' does not broadcast");
  std::vector<int64_t> out(to.size(), 0);
  const size_t shift = to.size() - tensor.shape.size();
  for (size_t i = 0; i < tensor.shape.size(); ++i) {
    TAMP_CHECK(tensor.shape[i] == 1 || tensor.shape[i] == to[i + shift], "'" + tensor.name + "' does not broadcast");
    if (tensor.shape[i] != 1) out[i + shift] = tensor.place.strides[i];
  }
  return out;
}

void drop_units(Loop& loop) {
  std::erase_if(loop, [](const LoopDim& dim) { return dim.extent == 1; });
}

void merge(Loop& loop) {
  for (size_t i = loop.size(); i-- > 1;) {
    const LoopDim& inner = loop[i];
    LoopDim& outer = loop[i - 1];
    bool dense = true;
    for (size_t k = 0; k < inner.strides.size(); ++k) dense &= outer.strides[k] == inner.strides[k] * inner.extent;
    if (!dense) continue;
    outer.extent *= inner.extent;
    outer.strides = inner.strides;
    loop.erase(loop.begin() + static_cast<std::ptrdiff_t>(i));
  }
}

std::optional<int64_t> row_stride(const Tensor& tensor, int64_t vector) {
  const std::vector<int64_t>& strides = tensor.place.strides;
  if (tensor.shape.empty() || strides.back() != 1 || tensor.place.offset % vector != 0) return std::nullopt;
  int64_t stride = 0, next = 0;
  for (size_t d = tensor.shape.size() - 1; d-- > 0;) {
    if (tensor.shape[d] == 1) continue;
    if (stride != 0 && strides[d] != next) return std::nullopt;
    if (stride == 0) stride = strides[d];
    next = strides[d] * tensor.shape[d];
  }
  if (stride == 0) stride = tensor.shape.back();  // a single row
  return stride % vector == 0 && stride > 0 ? std::optional(stride) : std::nullopt;
}

Loop normalised(Loop loop) {
  drop_units(loop);
  std::stable_sort(loop.begin(), loop.end(),
                   [](const LoopDim& a, const LoopDim& b) { return std::abs(a.strides[0]) > std::abs(b.strides[0]); });
  merge(loop);
  return loop;
}

void for_each_box(const std::vector<int64_t>& extents, int64_t begin, int64_t end, const Box& box) {
  const size_t rank = extents.size();
  std::vector<int64_t> inner(rank + 1, 1);  // elements below each dimension
  for (size_t i = rank; i-- > 0;) inner[i] = inner[i + 1] * extents[i];
  if (rank == 0 && begin < end) box({}, {});
  while (rank > 0 && begin < end) {
    // The outermost dimension of which a whole step begins at `begin` and fits before `end`.
    size_t d = 0;
    while (d + 1 < rank && (begin % inner[d + 1] != 0 || begin + inner[d + 1] > end)) ++d;
    std::vector<int64_t> low(rank, 0), high(extents);
    int64_t rest = begin;
    for (size_t i = 0; i <= d; ++i) {
      low[i] = rest / inner[i + 1];
      rest %= inner[i + 1];
      high[i] = low[i] + 1;
    }
    const int64_t steps = std::min(extents[d] - low[d], (end - begin) / inner[d + 1]);
    high[d] = low[d] + steps;
    box(low, high);
    begin += steps * inner[d + 1];
  }
}

void append_nest_box(const Loop& loop, size_t operand, TensorId tensor, int64_t offset, const std::vector<int64_t>& low,
                     const std::vector<int64_t>& high, std::vector<Region>& regions) {
  Tensor nest;
  nest.shape = extents(loop);
  nest.place.offset = offset;
  nest.place.strides = strides(loop, operand);
  append_upwards(nest, low, high, tensor, regions);
}

void append_runs(const Loop& loop, size_t operand, TensorId tensor, int64_t offset, int64_t begin, int64_t end,
                 std::vector<Region>& regions) {
  for_each_box(extents(loop), begin, end, [&](const std::vector<int64_t>& low, const std::vector<int64_t>& high) {
    append_nest_box(loop, operand, tensor, offset, low, high, regions);
  });
}

void append_matrix(const Graph& graph, TensorId id, const Loop& matrices, size_t operand, MatrixStrides strides, int64_t matrix,
                   const MatrixPart& part, std::vector<Region>& regions) {
  if (!id.valid()) return;
  Loop nest = matrices;
  nest.push_back({part.row_end, std::vector<int64_t>(operand + 1, strides.row)});
  nest.push_back({part.column_end, std::vector<int64_t>(operand + 1, strides.column)});
  std::vector<int64_t> low(matrices.size()), high(matrices.size());
  for (size_t d = matrices.size(); d-- > 0;) {
    low[d] = matrix % matrices[d].extent;
    high[d] = low[d] + 1;
    matrix /= matrices[d].extent;
  }
  low.insert(low.end(), {part.row, part.column});
  high.insert(high.end(), {part.row_end, part.column_end});
  append_nest_box(nest, operand, id, graph.tensor(id).place.offset, low, high, regions);
}

void append_box(const Graph& graph, TensorId id, const std::vector<int64_t>& low, const std::vector<int64_t>& high,
                std::vector<Region>& regions) {
  append_upwards(graph.tensor(id), low, high, id, regions);
}

void append_whole(const Graph& graph, TensorId id, std::vector<Region>& regions) {
  const Shape& shape = graph.tensor(id).shape;
  append_box(graph, id, std::vector<int64_t>(shape.size(), 0), shape, regions);
}

void append_bias(const Graph& graph, const ROperator& rop, int64_t low, int64_t high, std::vector<Region>& regions) {
  const TensorId bias = rop.epilogue.bias;
  if (bias.valid()) regions.push_back({bias, {graph.tensor(bias).place.offset + low, 1, 0, high - low}});
}

}  // namespace tamp::kernels
