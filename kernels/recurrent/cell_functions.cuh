// The activations of recurrent cells.
#pragma once

#include "kernels/recurrent/numbers.cuh"
#include "kernels/vdevice/epilogue.cuh"

namespace rk {

struct CellFunction {  // in tables
  int32_t kind;
  float a, b;
};

// NaN passes through all of them.
RK_INLINE float cell_function(int32_t kind, float a, float b, float x) {
  switch (kind) {
    case kCellSigmoid: return sigmoid(x);
    case kCellTanh: return tanhf(x);
    case kCellRelu: return relu(x);
    case kCellAffine: return a * x + b;
    case kCellLeakyRelu: return x < 0.0f ? a * x : x;
    case kCellThresholdedRelu: return x <= a ? 0.0f : x;
    case kCellScaledTanh: return a * tanhf(b * x);
    case kCellHardSigmoid: return clip(a * x + b, 0.0f, 1.0f);
    case kCellElu: return x < 0.0f ? a * expm1f(x) : x;
    case kCellSoftsign: return x / (1.0f + fabsf(x));
    case kCellSoftplus: return (x > 0.0f ? x : 0.0f) + log1pf(expf(-fabsf(x)));
    default: return x;
  }
}

// One copy of code for all the places that a body calls it from: inlined, the eleven functions would be kilobytes at each.
// `limit` is the cell's clip, 0: none.
RK_BODY float clipped_cell_function(CellFunction f, float limit, float x) {
  return cell_function(f.kind, f.a, f.b, limit != 0.0f ? clip(x, -limit, limit) : x);
}

}  // namespace rk
