// Numbers that host and device both know, each in one place: kernels/*/numbers.cuh are the only device headers that host code includes,
// so there is nothing of CUDA in them.
#pragma once

#include <stdint.h>

namespace rk {

inline constexpr int kWarp = 32;
inline constexpr int kComputeWarps = 8;                         // of a vEU
inline constexpr int kBoxRowBytes = 128;                        // of a pixel in a box of input values
inline constexpr int kBoxChannels = 32;                         // f32 ones of a pixel there
inline constexpr int kNestRank = 8;                             // dimensions of a Nest
inline constexpr int kArena = 0, kWeights = 1, kFirstPort = 2;  // bases of addresses; ports are inputs, then outputs
inline constexpr int kWaits = 3;                                // of an instruction; further waits take one of their own

enum Activation : int32_t { kNone, kRelu, kClip, kSigmoid, kTanh, kHardSigmoid, kHardSwish, kLeakyRelu, kSilu, kGelu };

// Time stamps of an instruction in a trace.
enum TraceColumn : int { kTraceWaiting, kTraceInputsReady, kTraceStarted, kTraceComputed, kTraceSignalled, kTraceColumns };

// What rounding to tf32 by cutting takes from a number on average: 2^-11 over the mean mantissa of a logarithmic distribution, 1 / ln 2.
inline constexpr float kTf32Share = 3.384e-4f;

}  // namespace rk
