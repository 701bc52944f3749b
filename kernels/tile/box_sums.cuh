// Products of operands that lie in shared memory in boxes of 64 k (kernels/vdevice/operands.cuh), as sums in registers.
#pragma once

#include "kernels/tile/staged_math.cuh"
#include "kernels/vdevice/operands.cuh"

namespace rk {

// Where a thread is among two warpgroups.
struct WarpgroupThread {
  int thread, group, warp, lane;  // warp: of the warpgroup
  // Not threadIdx.x itself: what depends on nothing else would be computed in front of the program's loop, and spilled there.
  RK_INLINE WarpgroupThread()
      : thread(computed_now(static_cast<int>(threadIdx.x))), group(thread / (4 * kWarp)), warp(thread / kWarp % 4), lane(thread % kWarp) {}
};

// Sums of a product of 64 rows of operand A by 8 * EIGHTS rows of operand B, of a warpgroup's thread: warp w has rows 16 w to 16 w + 15 of
// A. sum[j]: of rows 8 j + 2 t and the next one of B, lane 4 g + t, with row g of A's 16, then the same with row g + 8. With wgmma add()
// only begins products.
template <class Value, int EIGHTS>
struct BoxSums {
  using Math = StagedMath<Narrow<Value, Value>>;
  static constexpr int kEights = EIGHTS;
  float sum[EIGHTS][4];

  RK_INLINE void clear() {
#pragma unroll
    for (int j = 0; j < EIGHTS; ++j) {
#pragma unroll
      for (int e = 0; e < 4; ++e) known_now(sum[j][e] = 0.0f);
    }
  }
  // The first UNITS units (16 k each) of a box of A times those of a box of B. Half a box of A may begin at byte 64 of one.
  template <int UNITS = 4>
  RK_INLINE void add(const OperandPlace& a_box, const OperandPlace& b_box) {
#pragma unroll
    for (int unit = 0; unit < UNITS; ++unit) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
      Math::multiply_deep(sum, wide_operand(a_box.at + unit * 2, wide_pattern()), wide_operand(b_box.at + unit * 2, wide_pattern()));
#else
      const int lane = lane_id(), begin = a_box.at & (kBoxRowBytes - 1);
      uint32_t a[4], b[4];
      ldmatrix4(a, a_box.base, a_box.at - begin + box_cell(warp_id() % 4 * 16 + lane % 16, begin / 16 + unit * 2 + lane / 16));
#pragma unroll
      for (int pair = 0; pair < EIGHTS / 2; ++pair) {
        ldmatrix4(b, b_box.base, b_box.at + box_cell(pair * 16 + lane / 16 * 8 + lane % 8, unit * 2 + lane / 8 % 2));
        const uint32_t first[2] = {b[0], b[1]}, second[2] = {b[2], b[3]};
        Math::multiply(sum[pair * 2], a, first);
        Math::multiply(sum[pair * 2 + 1], a, second);
      }
#endif
    }
  }
  // The sums of rows g and g + 8 of A with row 8 j + 2 t + e of B.
  RK_INLINE float2 pair(int j, int e) const { return {sum[j][e], sum[j][e + 2]}; }
};

}  // namespace rk
