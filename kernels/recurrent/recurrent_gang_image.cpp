// Order of an image: weights for registers, weights for shared memory, weights that are streamed (in each of these R before W,
// warp by warp), bias, peepholes. A chunk is [row of the lane][lane][4 elements].
#include "kernels/recurrent/recurrent_gang_image.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "compiler/support/error.h"
#include "kernels/narrow.h"

namespace tamp::kernels {
namespace {

constexpr int64_t kWarps = rk::kComputeWarps, kLanes = rk::kWarp;

class Image {
 public:
  Image(const GangShape& shape, const CellWeights& weights, int64_t share, float* to)
      : s_(shape), weights_(weights), first_unit_(share * shape.units), begin_(to), to_(to) {}

  void write() {
    for (int64_t warp = 0; warp < kWarps; ++warp) chunks_of_r(warp, 0, s_.r_registers);
    for (int64_t warp = 0; warp < kWarps; ++warp) chunks_of_r(warp, s_.r_registers, s_.r_registers + s_.r_shared);
    for (int64_t warp = 0; warp < kWarps; ++warp) chunks_of_w(warp, 0, s_.w_shared);
    for (int64_t warp = 0; warp < kWarps; ++warp) chunks_of_r(warp, s_.r_registers + s_.r_shared, s_.chunks_h());
    for (int64_t warp = 0; warp < kWarps; ++warp) chunks_of_w(warp, s_.w_shared, s_.chunks_x());
    bias();
    TAMP_CHECK(to_ - begin_ <= s_.image_floats(), "image of a recurrent gang");
  }

 private:
  void chunks_of_r(int64_t warp, int64_t begin, int64_t end) { chunks(weights_.r, s_.hidden, warp * s_.slice_h(), begin, end); }
  void chunks_of_w(int64_t warp, int64_t begin, int64_t end) { chunks(weights_.w, s_.input, warp * s_.slice_x(), begin, end); }

  void chunks(const float* matrix, int64_t size, int64_t first_k, int64_t begin, int64_t end) {
    for (int64_t q = begin; q < end; ++q) {
      for (int64_t j = 0; j < s_.lane_rows; ++j) {
        for (int64_t lane = 0; lane < kLanes; ++lane) {
          const int64_t row = lane % s_.row_lanes() + j * s_.row_lanes();
          const int64_t k = first_k + q * s_.chunk() + lane / s_.row_lanes() * 4;
          float four[4];
          for (int64_t i = 0; i < 4; ++i) four[i] = weight(matrix, size, row, k + i);
          put(four);
        }
      }
    }
  }

  void put(const float (&four)[4]) {
    if (s_.weights == rk::kFloats) {
      to_ = std::copy_n(four, 4, to_);
      return;
    }
    uint16_t narrow[4];
    for (int i = 0; i < 4; ++i) narrow[i] = s_.weights == rk::kHalves ? half_of(four[i]) : bfloat_of(four[i]);
    std::memcpy(to_, narrow, sizeof narrow);
    to_ += 2;
  }

  bool is_unit(int64_t unit) const { return unit < s_.units && first_unit_ + unit < s_.hidden; }

  float weight(const float* matrix, int64_t size, int64_t row, int64_t k) const {
    const int64_t unit = row / s_.gates(), gate = row % s_.gates();
    if (!is_unit(unit) || k >= size) return 0;
    return matrix[(gate * s_.hidden + first_unit_ + unit) * size + k];
  }

  // Wb (0) or Rb (1).
  float bias_of(int64_t which, int64_t gate, int64_t unit) const {
    if (weights_.bias == nullptr || !is_unit(unit)) return 0;
    return weights_.bias[(which * s_.gates() + gate) * s_.hidden + first_unit_ + unit];
  }

  void bias() {
    float* const first = to_;
    for (int64_t unit = 0; unit < s_.units; ++unit) {
      for (int64_t lane = 0; lane < s_.item_lanes(); ++lane) {
        if (s_.kind == rk::kGru && lane >= 2)
          *to_++ = bias_of(lane == 2 ? 1 : 0, 2, unit);
        else
          *to_++ = bias_of(0, lane, unit) + bias_of(1, lane, unit);
      }
    }
    if (s_.plain) return;
    to_ = first + s_.bias_floats() - s_.units * 4;
    if (weights_.peepholes == nullptr) return;
    for (int64_t unit = 0; unit < s_.units; ++unit) {
      for (int64_t which = 0; which < 3; ++which) {
        to_[unit * 4 + which] = is_unit(unit) ? weights_.peepholes[which * s_.hidden + first_unit_ + unit] : 0;
      }
    }
    to_ += s_.units * 4;
  }

  const GangShape& s_;
  const CellWeights& weights_;
  int64_t first_unit_;
  float* const begin_;
  float* to_;
};

}  // namespace

Bytes gang_image(const GangCell& cell, const CellWeights& weights) {
  const int64_t floats = cell.shape.image_floats();
  Bytes bytes(static_cast<size_t>(cell.shares * floats) * 4);
  auto* const to = reinterpret_cast<float*>(bytes.data());
  for (int64_t share = 0; share < cell.shares; ++share) Image(cell.shape, weights, share, to + share * floats).write();
  return bytes;
}

}  // namespace tamp::kernels
