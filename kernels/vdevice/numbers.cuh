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
inline constexpr int kNestRank = 8;                             // dimensions of a Nest
inline constexpr int kArena = 0, kWeights = 1, kFirstPort = 2;  // bases of addresses; ports are inputs, then outputs
inline constexpr int kMaxPorts = 400;                           // a kernel's parameters have 4096 bytes at most (LaunchOf, PhaseBases)
inline constexpr int kWaits = 3;                                // of an instruction; further waits take further instructions

enum Activation : int32_t { kNone, kRelu, kClip, kSigmoid, kTanh, kHardSigmoid, kHardSwish, kLeakyRelu, kSilu, kGelu, kGeluTanh };

// Time stamps of an instruction in a trace.
enum TraceColumn : int { kTraceWaiting, kTraceInputsReady, kTraceStarted, kTraceComputed, kTraceSignalled, kTraceColumns };

// The part of a number that cutting it to tf32 takes away on average: 2^-11, half a last place, divided by the mean mantissa of
// logarithmically distributed numbers, 1 / ln 2.
inline constexpr float kTf32Share = 3.384e-4f;

}  // namespace rk
