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

// Where element i of a tensor lies, counted in row-major order, in elements from the start of its buffer.
int64_t place_of(const Tensor& tensor, int64_t i);

// The elements of a tensor in row-major order, of which `start` is the start of the buffer.
Bytes elements_of(const Tensor& tensor, const std::byte* start);

}  // namespace tamp::cli
