#include "compiler/ir/rkernel.h"

#include <algorithm>
#include <bit>

#include "compiler/support/error.h"

namespace tamp {
namespace {

struct Axis {
  int64_t extent, stride;
};

// Runs for the product of the axes (largest stride first) from `offset`.
void append_runs(const std::vector<Axis>& axes, size_t first, int64_t offset, std::vector<Run>& runs) {
  const size_t left = axes.size() - first;
  if (left == 0) {
    runs.push_back({offset, 1, 0, 1});
  } else if (left == 1) {
    const Axis& a = axes[first];
    if (a.stride == 1)
      runs.push_back({offset, 1, 0, a.extent});
    else
      runs.push_back({offset, a.extent, a.stride, 1});
  } else if (left == 2 && axes[first + 1].stride == 1) {
    runs.push_back({offset, axes[first].extent, axes[first].stride, axes[first + 1].extent});
  } else {
    for (int64_t i = 0; i < axes[first].extent; ++i) append_runs(axes, first + 1, offset + i * axes[first].stride, runs);
  }
}

// Without boxes a member's weights are a block of the ring, for all tiles.
int64_t tiles_of_members(const Phase& phase) { return phase.boxes ? phase.boxes->tiles() : phase.ring.rtasks_per_block; }

}  // namespace

int64_t largest_value(const Graph& graph, const ExtentArg& arg) {
  int64_t value = arg.factor;
  for (const Extent& extent : arg.extents) value *= largest_of(graph, extent);
  return value;
}

bool ArgValue::operator==(const ArgValue& other) const {
  if (names != other.names || value.index() != other.value.index()) return false;
  const auto* const number = std::get_if<double>(&value);
  if (number == nullptr) return value == other.value;
  return std::bit_cast<uint64_t>(*number) == std::bit_cast<uint64_t>(std::get<double>(other.value));
}

int64_t Phase::member_of(int64_t index) const { return cluster > 1 ? index / tiles_of_members(*this) % cluster : 0; }

int64_t Phase::shared_tile_of(int64_t index) const {
  const int64_t tiles = tiles_of_members(*this);
  return cluster > 1 ? index / (tiles * cluster) * tiles + index % tiles : index;
}

int64_t Phase::taken(int64_t i) const {
  if (cluster > 1) {
    const int64_t tile = i / cluster, tiles = tiles_of_members(*this);
    return (tile / tiles * cluster + i % cluster) * tiles + tile % tiles;
  }
  if (!boxes || boxes->blocks_beside == 1) return i;
  const int64_t tiles = boxes->tiles() * boxes->splits, first = i / (boxes->blocks_beside * tiles) * boxes->blocks_beside;
  const int64_t beside = std::min(boxes->blocks_beside, rtasks / tiles - first), j = i - first * tiles;
  return (first + j % beside) * tiles + j / beside;
}

int64_t RKernel::config_value(const std::string& key) const {
  for (const auto& [name_, value] : config) {
    if (name_ == key) return value;
  }
  TAMP_CHECK(false, "rKernel " + name + " has no '" + key + "'");
}

int64_t RKernel::rtasks() const {
  int64_t sum = 0;
  for (const Phase& phase : phases) sum += phase.rtasks;
  return sum;
}

std::vector<Run> box_runs(const Tensor& tensor, const std::vector<int64_t>& begin, const std::vector<int64_t>& end) {
  TAMP_CHECK(begin.size() == tensor.shape.size() && end.size() == tensor.shape.size(), "box rank of '" + tensor.name + "'");
  TAMP_CHECK(tensor.place.strides.size() == tensor.shape.size(), "'" + tensor.name + "' is not placed");
  int64_t offset = tensor.place.offset;
  std::vector<Axis> axes;
  for (size_t i = 0; i < begin.size(); ++i) {
    if (end[i] <= begin[i]) return {};
    offset += begin[i] * tensor.place.strides[i];
    if (end[i] - begin[i] > 1 && tensor.place.strides[i] != 0) axes.push_back({end[i] - begin[i], tensor.place.strides[i]});
  }
  std::sort(axes.begin(), axes.end(), [](const Axis& a, const Axis& b) { return a.stride > b.stride; });
  // Axes that lie densely in each other are joined to one.
  for (size_t i = axes.size(); i-- > 1;) {
    if (axes[i - 1].stride != axes[i].stride * axes[i].extent) continue;
    axes[i - 1] = {axes[i - 1].extent * axes[i].extent, axes[i].stride};
    axes.erase(axes.begin() + static_cast<std::ptrdiff_t>(i));
  }
  std::vector<Run> runs;
  append_runs(axes, 0, offset, runs);
  return runs;
}

std::vector<Run> whole_runs(const Tensor& tensor) { return box_runs(tensor, std::vector<int64_t>(tensor.shape.size(), 0), tensor.shape); }

std::vector<Run> flat_runs(const Tensor& tensor, int64_t begin, int64_t end) {
  TAMP_CHECK(begin >= 0 && end <= element_count(tensor.shape), "flat range of '" + tensor.name + "'");
  if (begin >= end) return {};
  const size_t rank = tensor.shape.size();
  std::vector<int64_t> low(rank), high(rank);
  std::vector<int64_t> inner(rank + 1, 1);  // elements below each dimension
  for (size_t i = rank; i-- > 0;) inner[i] = inner[i + 1] * tensor.shape[i];
  std::vector<Run> runs;
  // Greedy: at each point take the largest aligned box that fits.
  while (begin < end) {
    size_t d = 0;
    while (d < rank && (begin % inner[d + 1] != 0 || begin + inner[d + 1] > end)) ++d;
    if (d == rank) d = rank - (rank > 0 ? 1 : 0);
    int64_t rest = begin;
    for (size_t i = 0; i < rank; ++i) {
      low[i] = rest / inner[i + 1];
      rest %= inner[i + 1];
      high[i] = i < d ? low[i] + 1 : tensor.shape[i];
    }
    int64_t taken = 1;
    if (rank > 0) {
      const int64_t steps = std::min(tensor.shape[d] - low[d], (end - begin) / inner[d + 1]);
      high[d] = low[d] + steps;
      for (size_t i = d + 1; i < rank; ++i) low[i] = 0;
      taken = steps * inner[d + 1];
    }
    for (const Run& run : box_runs(tensor, low, high)) runs.push_back(run);
    begin += taken;
  }
  return runs;
}

}  // namespace tamp
