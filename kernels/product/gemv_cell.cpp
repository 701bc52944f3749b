#include "kernels/product/gemv_cell.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <map>
#include <mutex>
#include <numeric>
#include <tuple>
#include <vector>

#include "compiler/support/error.h"
#include "kernels/narrow.h"

namespace tamp::kernels {
namespace {

constexpr float kRounding = 0x1p-11F;  // of a number to fp16, as a part of it
constexpr int kLaneWeights = 8;
constexpr size_t kVector = 8, kMostValues = 256;  // numbers that loops take together; of a block

// To the nearest whole number, of values up to 2^22. Without a call: vectors can be made of it.
float nearest(float x) {
  constexpr float kWhole = 0x1.8p23F;
  return (x + kWhole) - kWhole;
}

// The values as whole multiples of 1 / per_step; false where one of them is none, as far as a step that is known to fp16 can say.
struct Multiples {
  float of[kMostValues];
  float least = 0, most = 0;
};
bool find_multiples(std::span<const float> values, float per_step, Multiples& found) {
  float least[kVector] = {}, most[kVector] = {};
  for (size_t i = 0; i < values.size(); i += kVector) {
    int misses[kVector];
    for (size_t j = 0; j < kVector; ++j) {
      const float multiple = values[i + j] * per_step, whole = nearest(multiple);
      found.of[i + j] = whole;
      misses[j] = std::abs(multiple - whole) > 2.1F * kRounding * std::abs(multiple) ? 1 : 0;
      least[j] = whole < least[j] ? whole : least[j];
      most[j] = whole > most[j] ? whole : most[j];
    }
    int missed = 0;
    for (const int miss : misses) missed += miss;
    if (missed > 0) return false;
  }
  found.least = *std::min_element(least, least + kVector);
  found.most = *std::max_element(most, most + kVector);
  return true;
}

// Divides them by their greatest common divisor: 7, -21 and 14 are 1, -3 and 2 of a step that fp16 is more likely to hold.
void reduce(Multiples& multiples, size_t count) {
  int divisor = 0;
  for (size_t i = 0; i < count && divisor != 1; ++i) divisor = std::gcd(divisor, static_cast<int>(multiples.of[i]));
  if (divisor <= 1) return;
  const auto by = static_cast<float>(divisor);
  for (size_t i = 0; i < count; ++i) multiples.of[i] /= by;
  multiples.least /= by, multiples.most /= by;
}

bool are_near(std::span<const float> values, const Multiples& multiples, float step, float rounding) {
  int misses = 0;
  for (size_t i = 0; i < values.size(); ++i)
    misses += std::abs(values[i] - step * multiples.of[i]) > rounding * kRounding * std::abs(values[i]) ? 1 : 0;
  return misses == 0;
}

// A step of which all values are these multiples, each but for its rounding: that of least squares, or, where that does not do, the middle
// of those which do.
std::optional<float> step_of(std::span<const float> values, const Multiples& multiples, float rounding) {
  float products[kVector] = {}, squares[kVector] = {}, product = 0, square = 0;
  for (size_t i = 0; i < values.size(); i += kVector) {
    for (size_t j = 0; j < kVector; ++j) {
      products[j] += values[i + j] * multiples.of[i + j];
      squares[j] += multiples.of[i + j] * multiples.of[i + j];
    }
  }
  for (size_t j = 0; j < kVector; ++j) product += products[j], square += squares[j];
  if (are_near(values, multiples, product / square, rounding)) return product / square;
  float low = 0, high = std::numeric_limits<float>::infinity();
  for (size_t i = 0; i < values.size(); ++i) {
    if (multiples.of[i] == 0) continue;
    const float step = values[i] / multiples.of[i];
    low = std::max(low, step * (1 - rounding * kRounding));
    high = std::min(high, step * (1 + rounding * kRounding));
  }
  return low <= high && std::isfinite(high) ? std::optional((low + high) / 2) : std::nullopt;
}

bool has_low(rk::GemvCell cell) { return cell == rk::kCellBytesFrom || cell == rk::kCellNibblesFrom; }

// The whole multiples of a found step.
void multiples_of(std::span<const float> values, float step, float* multiples) {
  const float per_step = step == 0 ? 0 : 1 / step;
  for (size_t i = 0; i < values.size(); ++i) multiples[i] = nearest(values[i] * per_step);
}

// Of the steps around this one that fp16 holds, times `scale`, that of which most of the values are fp16's roundings of multiples.
uint16_t half_step(std::span<const float> values, const float* multiples, float step, float scale) {
  const auto count = static_cast<int64_t>(values.size());
  uint16_t wanted[kMostValues], made[kMostValues];
  halves_of(values.data(), count, 1 / scale, wanted);
  const uint16_t middle = half_of(step / scale);
  uint16_t best = middle;
  int64_t most = -1;
  for (const int add : {0, 1, -1}) {
    const auto tried = static_cast<uint16_t>(middle + add);
    halves_of(multiples, count, float_of_half(tried), made);
    int64_t equal = 0;
    for (int64_t i = 0; i < count; ++i) equal += (wanted[i] & 0x7fffU) == (made[i] & 0x7fffU) ? 1 : 0;
    if (equal > most) best = tried, most = equal;
    if (equal == count) break;
  }
  return best;
}

// What is remembered of constants.
class Cells {
 public:
  using Key = std::tuple<int64_t, int64_t, int64_t, int64_t>;
  rk::GemvCell of(const TensorData& data, const Key& key, const auto& find) {
    {
      const std::lock_guard lock(mutex_);
      const auto& of_data = cells_[data.life()];
      if (const auto found = of_data.find(key); found != of_data.end()) return found->second;
    }
    const rk::GemvCell cell = find();
    const std::lock_guard lock(mutex_);
    return cells_[data.life()][key] = cell;
  }

 private:
  std::mutex mutex_;
  std::map<std::weak_ptr<const void>, std::map<Key, rk::GemvCell>, std::owner_less<>> cells_;
};

// Looks at blocks one after another, and knows the narrowest cell that takes them all.
class Finder {
 public:
  bool takes(std::span<const float> block, float& near) {
    std::optional<BlockStep> found = block_step(block, {.bits = bits_, .near = near});
    if (!found && bits_ == 4) bits_ = 8, is_low_ = true, found = block_step(block, {.bits = bits_, .near = near});
    if (!found) return false;
    is_low_ = is_low_ && found->low == -(1 << (bits_ - 1));
    if (found->step != 0) near = found->step;
    return true;
  }
  bool is_bytes() const { return bits_ == 8; }
  rk::GemvCell cell() const {
    if (is_bytes()) return is_low_ ? rk::kCellBytes : rk::kCellBytesFrom;
    return is_low_ ? rk::kCellNibbles : rk::kCellNibblesFrom;
  }

 private:
  int bits_ = 4;
  bool is_low_ = true;
};

rk::GemvCell find_cell(const float* data, const GridWeights& w) {
  constexpr int64_t kTogether = 16;  // columns whose values lie side by side, where those of a column do not
  constexpr int64_t block = rk::kGemvBlockK;
  std::vector<float> values(static_cast<size_t>(kTogether * block)), near(static_cast<size_t>(kTogether));
  Finder finder;
  for (int turn = 0; turn < 2; ++turn) {  // again from the begin once bytes are known to be needed: low is another one then
    const bool was_bytes = finder.is_bytes();
    for (int64_t n = 0; n < w.n; n += kTogether) {
      const int64_t columns = std::min(kTogether, w.n - n);
      std::fill(near.begin(), near.end(), 0.0F);
      for (int64_t k = 0; k < w.k; k += block) {
        const int64_t count = std::min(block, w.k - k);
        const bool as_it_lies = w.stride_k == 1 && count == block;
        if (count < block) std::fill(values.begin(), values.end(), 0.0F);
        for (int64_t i = 0; i < (as_it_lies ? 0 : count); ++i) {
          for (int64_t c = 0; c < columns; ++c)
            values[static_cast<size_t>(c * block + i)] = data[(k + i) * w.stride_k + (n + c) * w.stride_n];
        }
        for (int64_t c = 0; c < columns; ++c) {
          const float* const from = as_it_lies ? data + k + (n + c) * w.stride_n : values.data() + c * block;
          if (!finder.takes({from, static_cast<size_t>(block)}, near[static_cast<size_t>(c)])) return rk::kCellHalves;
        }
      }
    }
    if (finder.is_bytes() == was_bytes) break;
  }
  return finder.cell();
}

}  // namespace

std::optional<BlockStep> block_step(std::span<const float> values, const BlockQuestion& q) {
  const int most = (1 << q.bits) - 1, middle = 1 << (q.bits - 1);
  TAMP_CHECK(values.size() <= kMostValues && values.size() % kVector == 0, "a block of another size");
  uint32_t most_bits = 0, least_bits = 0;  // without their signs, floats are in the order of their bits; less one, zero is the largest
  for (const float v : values) {
    const uint32_t bits = std::bit_cast<uint32_t>(v) & 0x7fffffffU;
    most_bits = std::max(most_bits, bits);
    least_bits = std::max(least_bits, ~(bits - 1));
  }
  const auto largest = std::bit_cast<float>(most_bits), smallest = std::bit_cast<float>(~least_bits + 1);
  if (!std::isfinite(largest)) return std::nullopt;
  if (largest == 0) return BlockStep{0, -middle};
  Multiples found;
  const auto try_step = [&](float per_step) -> std::optional<BlockStep> {
    if (!find_multiples(values, per_step, found)) return std::nullopt;
    reduce(found, values.size());
    if (found.most - found.least > static_cast<float>(most)) return std::nullopt;
    const std::optional<float> step = step_of(values, found, q.rounding);
    if (!step || !std::isnormal(*step)) return std::nullopt;
    const int low = static_cast<int>(found.least), high = static_cast<int>(found.most);
    if (low >= -middle && high < middle) return BlockStep{*step, -middle};
    if (low > -middle && high <= middle) return BlockStep{-*step, -middle};  // the numbers with the other sign
    return q.lowest ? std::nullopt : std::optional(BlockStep{*step, low});
  };
  if (q.near != 0 && largest / std::abs(q.near) < static_cast<float>(most) + 0.5F) {
    if (std::optional<BlockStep> step = try_step(1 / std::abs(q.near))) return step;
  }
  // The smallest is one step, or two, and so on; the largest is then a whole number of steps, too. So the longest step is found.
  for (int count = 1; count <= most; ++count) {
    const float ratio = largest / smallest * static_cast<float>(count), steps = nearest(ratio);
    if (!(ratio < static_cast<float>(most) + 0.5F)) break;
    if (std::abs(ratio - steps) > 2.1F * kRounding * ratio) continue;
    if (std::optional<BlockStep> step = try_step(steps / largest)) return step;
  }
  return std::nullopt;
}

rk::GemvCell cell_of(const Graph& graph, const GridWeights& w) {
  static Cells cells;
  const TensorData& data = graph.tensor(w.id).data;
  if (!graph.has_quantised_weights && !data.in_memory()) return rk::kCellHalves;
  return cells.of(data, {w.k, w.n, w.stride_k, w.stride_n}, [&] {
    const std::shared_ptr<const Bytes> held = data.hold();
    return find_cell(reinterpret_cast<const float*>(held->data()), w);
  });
}

int bits_of_cell(rk::GemvCell cell) {
  if (cell == rk::kCellHalves) return 16;
  return cell == rk::kCellBytes || cell == rk::kCellBytesFrom ? 8 : 4;
}

const char* text_of(rk::GemvCell cell) {
  switch (cell) {
    case rk::kCellHalves: return "rk::kCellHalves";
    case rk::kCellBytes: return "rk::kCellBytes";
    case rk::kCellNibbles: return "rk::kCellNibbles";
    case rk::kCellBytesFrom: return "rk::kCellBytesFrom";
    case rk::kCellNibblesFrom: return "rk::kCellNibblesFrom";
  }
  TAMP_CHECK(false, "no cell");
}

void pack_cells(rk::GemvCell cell, int64_t count, const std::function<CellColumn(int64_t)>& column_of, std::byte* to) {
  constexpr int64_t kDepth = rk::kGemvBlockK, kColumns = rk::kGemvCellColumns;
  const int bits = bits_of_cell(cell);
  const int64_t info_bytes = has_low(cell) ? 4 : 2;
  std::byte* const behind = to + count * rk::kWarp * bits;
  for (int64_t at = 0; at < count; ++at) {
    for (int64_t c = 0; c < kColumns; ++c) {
      const auto [column, scale] = column_of(at * kColumns + c);
      const std::optional<BlockStep> found = block_step(column, {.bits = bits, .lowest = !has_low(cell), .rounding = 1.05F});
      TAMP_CHECK(found, "weights that are not quantised as they were said to be");
      float multiples[kDepth];
      multiples_of(column, found->step, multiples);
      const uint16_t info[2] = {half_step(column, multiples, found->step, scale), half_of(static_cast<float>(-found->low))};
      std::memcpy(behind + (c * count + at) * info_bytes, info, static_cast<size_t>(info_bytes));
      for (int64_t first = 0; first < kDepth; first += kLaneWeights) {
        uint32_t words[2] = {};
        for (int64_t k = 0; k < kLaneWeights; ++k) {
          const auto number = static_cast<uint32_t>(static_cast<int>(multiples[first + k]) - found->low);
          const int64_t pair = k / 2, shift = bits == 4 ? pair * 4 : pair % 2 * 8;
          words[bits == 4 ? 0 : pair / 2] |= number << (shift + k % 2 * 16);
        }
        for (uint32_t& word : words) word = std::rotl(word, 2);
        const int64_t lane = c * 4 + first / kLaneWeights;
        std::memcpy(to + (lane * count + at) * bits, words, static_cast<size_t>(bits));
      }
    }
  }
}

}  // namespace tamp::kernels
