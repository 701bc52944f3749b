// Functions of import_normalize.cpp for other importers, whose operators normalise among other things.
#pragma once

#include "compiler/frontend/importers.h"

namespace tamp::frontend {

// Layer normalisation (not `centered`: root mean square normalisation) of x over dimensions axis.., computed in f32 and rounded to x's
// type. scale and bias may be none; both are of one type, which is that of the result.
struct LayerNorm {
  int64_t axis = -1;
  float epsilon = 1e-5F;
  bool centered = true;
};
TensorId layer_norm(NodeImport& n, const LayerNorm& norm, TensorId x, TensorId scale, TensorId bias);

// ONNX Runtime's outputs that only training reads.
void refuse_outputs(const NodeImport& n, std::initializer_list<size_t> outputs);

}  // namespace tamp::frontend
