// NumPy's .npy files, versions 1 and 2, as far as tensors need them: little-endian, C order, plain element types.
#pragma once

#include <string>

#include "compiler/ops/ops.h"

namespace tamp::cli {

// Error (bad input) names the file and its fault; sizes are checked before anything is allocated.
ops::Value read_npy(const std::string& path);

// Writes version 1. Error (bad input) if the file cannot be written or the element type has no .npy name.
void write_npy(const std::string& path, const ops::Value& value);

}  // namespace tamp::cli
