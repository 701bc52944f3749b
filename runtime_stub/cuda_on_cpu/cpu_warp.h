// Stand-in, part 6: functions of a whole warp. Lanes come one by one and leave a value; the last lane does the work of
// all (the other lanes are parked, so pointers into their stacks are good) and lets them go on.
#pragma once

#include <cstdint>
#include <cstring>
#include <type_traits>

#include "cpu_device.h"

namespace cuda_on_cpu {

inline Meeting& meeting_of(Warp& warp, uint32_t mask) {
  for (Meeting& meeting : warp.meetings) {
    if (meeting.mask == mask) return meeting;
    if (meeting.mask != 0) continue;
    meeting.mask = mask;
    return meeting;
  }
  fail("more than %u different lane masks in one warp", kMeetings);
}

inline void nothing_for_all(uint64_t*) {}

// All lanes of the mask meet here; returns their values, indexed by lane, after `for_all` has seen them.
template <class ForAll>
inline const uint64_t* meet(const char* function, uint32_t mask, uint64_t value, ForAll for_all) {
  Fiber& self = *current;
  Warp& warp = *self.warp;
  const uint32_t lane_bit = 1u << self.lane;
  Meeting& meeting = warp.meetings[0].mask == mask ? warp.meetings[0] : meeting_of(warp, mask);
  if ((mask & lane_bit) == 0) fail("%s with mask %08x from lane %u, which is not in it", function, mask, self.lane);
  if (meeting.arrived == 0) meeting.function = function;
  if (meeting.function != function) fail("lane %u is in %s, lanes %08x are in %s", self.lane, function, meeting.arrived, meeting.function);
  uint64_t* const values = meeting.values[meeting.turn & 1u];
  values[self.lane] = value;
  if (!self.seen.empty()) self.votes = true;
  if ((warp.voters & mask) != 0) wake(warp, warp.voters & mask);
  meeting.arrived |= lane_bit;
  if (meeting.arrived != mask) {
    park(Parked::collective, &meeting);
    return values;
  }
  meeting.arrived = 0;
  ++meeting.turn;
  for_all(values);
  make_ready(warp, mask);
  maybe_yield();
  return values;
}

// One address for each name, over all translation units: meet compares them.
inline constexpr char kSyncwarp[] = "__syncwarp";
inline constexpr char kShuffle[] = "__shfl_sync";
inline constexpr char kVote[] = "__ballot_sync";
inline constexpr char kReduceMax[] = "__reduce_max_sync";
inline constexpr char kMma[] = "mma";
inline constexpr char kLdmatrix[] = "ldmatrix4";
inline constexpr char kTurnedLdmatrix[] = "ldmatrix4_turned";

// The value of lane `source`; a lane out of the mask has none.
template <class T>
inline T shuffle(unsigned mask, T v, int source) {
  static_assert(sizeof(T) <= 8 && std::is_trivially_copyable_v<T>);
  uint64_t bits = 0;
  std::memcpy(&bits, &v, sizeof v);
  const uint64_t* const values = meet(kShuffle, mask, bits, nothing_for_all);
  if ((mask >> source & 1u) == 0) fail("shuffle from lane %d, which is not in mask %08x", source, mask);
  std::memcpy(&v, &values[source], sizeof v);
  return v;
}
// Lane `at` of this lane's segment of `width`, or this lane if that is outside.
inline int segment_lane(int at, int width) {
  const int self = static_cast<int>(current->lane);
  const int first = self / width * width;
  return at < first || at >= first + width ? self : at;
}

inline unsigned ballot(unsigned mask, bool predicate) {
  const uint64_t* const values = meet(kVote, mask, predicate, [mask](uint64_t* all) {
    uint64_t set = 0;
    for (uint32_t lane = 0; lane < kWarpSize; ++lane) set |= (mask >> lane & 1u) != 0 ? all[lane] << lane : 0;
    for (uint32_t lane = 0; lane < kWarpSize; ++lane) all[lane] = set;
  });
  return static_cast<unsigned>(values[current->lane]);
}
inline unsigned reduce_max(unsigned mask, unsigned value) {
  const uint64_t* const values = meet(kReduceMax, mask, value, [mask](uint64_t* all) {
    uint64_t most = 0;
    for (uint32_t lane = 0; lane < kWarpSize; ++lane) most = (mask >> lane & 1u) != 0 && all[lane] > most ? all[lane] : most;
    for (uint32_t lane = 0; lane < kWarpSize; ++lane) all[lane] = most;
  });
  return static_cast<unsigned>(values[current->lane]);
}

// --- tensor cores ------------------------------------------------------------------------------------------------------

struct MmaOperands {
  float* d;
  const uint32_t* a;
  const uint32_t* b;
};
inline uint32_t half_of(float x) {
  const uint32_t bits = bits_of(x), sign = bits >> 16 & 0x8000u, magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return sign | 0x7e00u;  // not a number
  if (magnitude >= 0x47800000u) return sign | 0x7c00u;
  if (magnitude < 0x38800000u) return sign | static_cast<uint32_t>(__builtin_rintf(float_of(magnitude) * 0x1p24f));
  return sign | ((magnitude - 0x38000000u + 0xfffu + (magnitude >> 13 & 1u)) >> 13);
}
inline uint32_t bfloat_of(float x) {
  const uint32_t bits = bits_of(x);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return bits >> 16 | 0x40u;
  return (bits + 0x7fffu + (bits >> 16 & 1u)) >> 16;
}
inline float float_of_half(uint32_t bits) {
  const uint32_t exponent = bits >> 10 & 0x1fu, mantissa = bits & 0x3ffu;
  const float magnitude = exponent == 0 ? static_cast<float>(mantissa) * 0x1p-24f
                                        : float_of((exponent == 0x1fu ? 0xffu : exponent + 112u) << 23 | mantissa << 13);
  return (bits & 0x8000u) != 0 ? -magnitude : magnitude;
}
inline float tf32(uint32_t bits) { return float_of(bits & 0xffffe000u); }

// D[16][8] += A[16][K] * B[K][8] of a warp; which lane holds which elements is in kernels/vdevice/mma.cuh. Sums in fp32, k upwards.
// `value` returns number `part` of a word.
template <int K, float (*value)(uint32_t word, uint32_t part)>
inline void mma_for_all(uint64_t* lanes) {
  using Half = float __attribute__((vector_size(16)));
  union Row {
    float at[8];
    Half half[2];
  };
  constexpr uint32_t kParts = K / 8;  // of a word
  float a[16][K];
  Row b[K], d[16];
  for (uint32_t lane = 0; lane < kWarpSize; ++lane) {
    const MmaOperands& own = *reinterpret_cast<const MmaOperands*>(lanes[lane]);
    const uint32_t g = lane / 4, t = lane % 4;
    for (uint32_t part = 0; part < kParts; ++part) {
      for (uint32_t i = 0; i < 4; ++i) a[g + i % 2 * 8][t * kParts + part + i / 2 * (K / 2)] = value(own.a[i], part);
      for (uint32_t i = 0; i < 2; ++i) b[t * kParts + part + i * (K / 2)].at[g] = value(own.b[i], part);
    }
    for (uint32_t i = 0; i < 4; ++i) d[g + i / 2 * 8].at[2 * t + i % 2] = own.d[i];
  }
  for (uint32_t row = 0; row < 16; ++row) {
    Half low = d[row].half[0], high = d[row].half[1];
    for (uint32_t k = 0; k < K; ++k) {
      low += a[row][k] * b[k].half[0];
      high += a[row][k] * b[k].half[1];
    }
    d[row].half[0] = low;
    d[row].half[1] = high;
  }
  for (uint32_t lane = 0; lane < kWarpSize; ++lane) {
    const MmaOperands& own = *reinterpret_cast<const MmaOperands*>(lanes[lane]);
    const uint32_t g = lane / 4, t = lane % 4;
    for (uint32_t i = 0; i < 4; ++i) own.d[i] = d[g + i / 2 * 8].at[2 * t + i % 2];
  }
}

inline float value_of_tf32(uint32_t word, uint32_t) { return tf32(word); }
inline float value_of_half(uint32_t word, uint32_t part) { return float_of_half(word >> 16 * part & 0xffffu); }
inline float value_of_bfloat(uint32_t word, uint32_t part) { return float_of((word >> 16 * part & 0xffffu) << 16); }

inline void mma_tf32(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
  const MmaOperands own{d, a, b};
  meet(kMma, 0xffffffffu, reinterpret_cast<uintptr_t>(&own), mma_for_all<8, value_of_tf32>);
}
inline void mma_f16(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
  const MmaOperands own{d, a, b};
  meet(kMma, 0xffffffffu, reinterpret_cast<uintptr_t>(&own), mma_for_all<16, value_of_half>);
}
inline void mma_bf16(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
  const MmaOperands own{d, a, b};
  meet(kMma, 0xffffffffu, reinterpret_cast<uintptr_t>(&own), mma_for_all<16, value_of_bfloat>);
}

// D[16][8] += A[16][32] * B[32][8] of bytes, each signed or not (kernels/vdevice/mma_bytes.cuh). Sums wrap as the GPU's do.
struct MmaBytesOperands {
  int32_t* d;
  const uint32_t* a;
  const uint32_t* b;
};
template <bool SIGNED, bool A_SIGNED>
inline void mma_bytes_for_all(uint64_t* lanes) {
  int32_t a[16][32], b[32][8];
  const auto own = [lanes](uint32_t lane) { return *reinterpret_cast<const MmaBytesOperands*>(lanes[lane]); };
  for (uint32_t lane = 0; lane < kWarpSize; ++lane) {
    const uint32_t g = lane / 4, t = lane % 4;
    for (uint32_t part = 0; part < 4; ++part) {
      const auto byte = [part](uint32_t word) { return word >> 8 * part & 0xffu; };
      for (uint32_t i = 0; i < 4; ++i) {
        const uint32_t value = byte(own(lane).a[i]);
        a[g + i % 2 * 8][t * 4 + part + i / 2 * 16] = A_SIGNED ? static_cast<int8_t>(value) : static_cast<int32_t>(value);
      }
      for (uint32_t i = 0; i < 2; ++i) {
        const uint32_t value = byte(own(lane).b[i]);
        b[t * 4 + part + i * 16][g] = SIGNED ? static_cast<int8_t>(value) : static_cast<int32_t>(value);
      }
    }
  }
  for (uint32_t lane = 0; lane < kWarpSize; ++lane) {
    const uint32_t g = lane / 4, t = lane % 4;
    for (uint32_t i = 0; i < 4; ++i) {
      auto sum = static_cast<uint32_t>(own(lane).d[i]);
      for (uint32_t k = 0; k < 32; ++k) sum += static_cast<uint32_t>(a[g + i / 2 * 8][k] * b[k][2 * t + i % 2]);
      own(lane).d[i] = static_cast<int32_t>(sum);
    }
  }
}
template <bool SIGNED, bool A_SIGNED = true>
inline void mma_bytes(int32_t (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
  const MmaBytesOperands own{d, a, b};
  meet(kMma, 0xffffffffu, reinterpret_cast<uintptr_t>(&own), mma_bytes_for_all<SIGNED, A_SIGNED>);
}

struct LdmatrixOperands {
  uint32_t* r;
  const void* row;
};
// `turned`: a lane gets two neighbours of a column instead of a row.
template <bool turned>
inline void ldmatrix_for_all(uint64_t* lanes) {
  const auto own = [lanes](uint32_t lane) { return *reinterpret_cast<const LdmatrixOperands*>(lanes[lane]); };
  for (uint32_t lane = 0; lane < kWarpSize; ++lane) {
    for (uint32_t i = 0; i < 4; ++i) {
      const auto row = [&](uint32_t r) { return static_cast<const char*>(own(i * 8 + r).row); };
      char* const to = reinterpret_cast<char*>(&own(lane).r[i]);
      if constexpr (turned) {
        for (uint32_t half = 0; half < 2; ++half) std::memcpy(to + half * 2, row(lane % 4 * 2 + half) + lane / 4 * 2, 2);
      } else {
        std::memcpy(to, row(lane / 4) + lane % 4 * 4, 4);
      }
    }
  }
}

template <bool turned = false>
inline void ldmatrix4(uint32_t (&r)[4], const void* smem_row) {
  if (!in_shared(smem_row, 16)) fail("ldmatrix of byte %ld, outside shared memory", shared_offset(*current->block, smem_row));
  if (!aligned(smem_row, 16)) fail("ldmatrix of byte %ld of shared memory: not 16-byte aligned", shared_offset(*current->block, smem_row));
  const LdmatrixOperands own{r, smem_row};
  meet(turned ? kTurnedLdmatrix : kLdmatrix, 0xffffffffu, reinterpret_cast<uintptr_t>(&own), ldmatrix_for_all<turned>);
}
inline void ldmatrix4_turned(uint32_t (&r)[4], const void* smem_row) { ldmatrix4<true>(r, smem_row); }

}  // namespace cuda_on_cpu

inline void __syncwarp(unsigned mask = 0xffffffffu) { cuda_on_cpu::meet(cuda_on_cpu::kSyncwarp, mask, 0, cuda_on_cpu::nothing_for_all); }

template <class T>
inline T __shfl_sync(unsigned mask, T v, int source, int width = 32) {
  const int first = static_cast<int>(cuda_on_cpu::current->lane) / width * width;
  return cuda_on_cpu::shuffle(mask, v, first + (source & (width - 1)));
}
template <class T>
inline T __shfl_xor_sync(unsigned mask, T v, int lane_mask, int width = 32) {
  const int self = static_cast<int>(cuda_on_cpu::current->lane);
  const int source = self ^ lane_mask;
  // A GPU lets a lane read from segments below its own, never above.
  return cuda_on_cpu::shuffle(mask, v, source >= self / width * width + width ? self : source);
}
template <class T>
inline T __shfl_down_sync(unsigned mask, T v, unsigned delta, int width = 32) {
  const int self = static_cast<int>(cuda_on_cpu::current->lane);
  return cuda_on_cpu::shuffle(mask, v, cuda_on_cpu::segment_lane(self + static_cast<int>(delta), width));
}
template <class T>
inline T __shfl_up_sync(unsigned mask, T v, unsigned delta, int width = 32) {
  const int self = static_cast<int>(cuda_on_cpu::current->lane);
  return cuda_on_cpu::shuffle(mask, v, cuda_on_cpu::segment_lane(self - static_cast<int>(delta), width));
}

inline unsigned __ballot_sync(unsigned mask, int predicate) { return cuda_on_cpu::ballot(mask, predicate != 0); }
inline unsigned __reduce_max_sync(unsigned mask, unsigned value) { return cuda_on_cpu::reduce_max(mask, value); }
inline int __any_sync(unsigned mask, int predicate) { return cuda_on_cpu::ballot(mask, predicate != 0) != 0; }
inline int __all_sync(unsigned mask, int predicate) { return cuda_on_cpu::ballot(mask, predicate != 0) == mask; }
