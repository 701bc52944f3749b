// Numbers that host and device both know, each in one place: kernels/*/*numbers.cuh are the only device headers that host code includes,
// so there is nothing of CUDA in them.
#pragma once

#include <stdint.h>

// A function that is a number: device code calls it, too.
#if defined(__CUDACC__)
#define RK_NUMBER __host__ __device__ __forceinline__ constexpr
#else
#define RK_NUMBER constexpr
#endif

namespace rk {

// How many bits are set.
RK_NUMBER int count_bits(uint32_t bits) {
  int count = 0;
  for (; bits != 0; bits &= bits - 1) ++count;
  return count;
}

inline constexpr int kWarp = 32;
inline constexpr uint32_t kWarpLog2 = 5;
inline constexpr int kComputeWarps = 8;   // of a vEU
inline constexpr int kBoxRowBytes = 128;  // of a pixel in a box of input values
// The byte of a box where a cell of 16 bytes of a row lies (boxes.cuh).
template <class Int>
RK_NUMBER Int box_cell(Int row, Int cell) {
  return row * kBoxRowBytes + ((cell ^ (row & 7)) << 4);
}
inline constexpr int kBoxChannels = 32;                         // fp32 channels of a pixel in a box
inline constexpr int kNestRank = 8;                             // dimensions of a Nest; in tables
inline constexpr int kArena = 0, kWeights = 1, kFirstPort = 2;  // bases of addresses; ports are inputs, then outputs; in tables
inline constexpr int kMaxPorts = 400;                           // a kernel's parameters have 4096 bytes at most (LaunchOf, PhaseBases)
inline constexpr int kWaits = 3;                                // of an instruction; further waits take further instructions; in tables

// Of an epilogue; in tables
enum Activation : int32_t { kNone, kRelu, kClip, kSigmoid, kTanh, kHardSigmoid, kHardSwish, kLeakyRelu, kSilu, kGelu, kGeluTanh, kRounded };
enum SumKind : int32_t { kNoSum, kScaled, kScaledRounded };  // in tables

// Division by a number that is fixed when the model is compiled: q = (x * multiplier) >> 32 >> shift, exact for 0 <= x < 2^31.
// Example: 7 has multiplier 2454267027 and shift 2. For x = 100 the upper word of the product is 57, and 57 >> 2 = 14.
struct Divisor {  // in tables
  uint32_t divisor = 1;
  uint32_t multiplier = 0;  // ceil(2^(32 + shift) / divisor); 0: the divisor is 1
  uint32_t shift = 0;       // ceil(log2 divisor) - 1
};
constexpr Divisor divisor(uint32_t number) {  // in tables
  uint32_t shift = 0;
  while (uint64_t{2} << shift < number) ++shift;
  return number == 1 ? Divisor{} : Divisor{number, static_cast<uint32_t>(((uint64_t{1} << (32 + shift)) + number - 1) / number), shift};
}

// Time stamps of an instruction in a trace.
enum TraceColumn : int { kTraceWaiting, kTraceInputsReady, kTraceStarted, kTraceComputed, kTraceSignalled, kTraceColumns };

// The part of a number that cutting it to tf32 takes away on average: 2^-11, half a last place, divided by the mean mantissa of
// logarithmically distributed numbers, 1 / ln 2.
inline constexpr float kTf32Share = 3.384e-4f;

}  // namespace rk
