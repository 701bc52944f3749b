#include "kernels/loop.h"

#include <algorithm>
#include <cstdlib>

#include "compiler/support/error.h"

namespace tamp::kernels {

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
    // The largest dimension whose whole steps fit here.
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

void append_runs(const Loop& loop, size_t operand, TensorId tensor, int64_t offset, int64_t begin, int64_t end, std::vector<Region>& regions) {
  // A tensor that walks upwards: dimensions with negative strides are turned round.
  Tensor upwards;
  upwards.shape = extents(loop);
  upwards.place.offset = offset;
  upwards.place.strides = strides(loop, operand);
  std::vector<bool> turned(loop.size(), false);
  for (size_t i = 0; i < loop.size(); ++i) {
    int64_t& stride = upwards.place.strides[i];
    if (stride >= 0) continue;
    turned[i] = true;
    upwards.place.offset += (loop[i].extent - 1) * stride;
    stride = -stride;
  }
  for_each_box(upwards.shape, begin, end, [&](const std::vector<int64_t>& low, const std::vector<int64_t>& high) {
    std::vector<int64_t> from(low), to(high);
    for (size_t i = 0; i < loop.size(); ++i) {
      if (!turned[i]) continue;
      from[i] = loop[i].extent - high[i];
      to[i] = loop[i].extent - low[i];
    }
    for (const Run& run : box_runs(upwards, from, to)) regions.push_back({tensor, run});
  });
}

}  // namespace tamp::kernels
