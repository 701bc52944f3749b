// Whether values keep the bounds that compilation has proven (`tamp run --check` on the stand-in).
#pragma once

#include <string>
#include <vector>

#include "compiler/ir/rprogram.h"

namespace tamp::cli {

struct BoundsReport {
  int64_t checked = 0;                  // buffers that have a bound
  std::vector<std::string> violations;  // sentences
};

// Compares the values of each buffer that is narrow because they are bounded (Buffer::largest, passes/value_bounds.h) with the bound.
// `arena` is the device's memory after a run of a program in which such buffers share theirs with nothing (CompileOptions::keep_bounded).
BoundsReport check_bounds(const RProgram& program, const Bytes& arena);

}  // namespace tamp::cli
