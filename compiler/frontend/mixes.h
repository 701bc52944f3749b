// For rules that follow something through all rOperators of a graph: a batch (rebatch.h) or lengths of run time (lengths.h).
#pragma once

#include <string>

#include "compiler/ir/tensor.h"

namespace tamp::frontend {

// Work of an rOperator that no rule allows.
struct Mixes {
  std::string why;
};

// Of the extents of dimensions begin to end - 1.
inline int64_t product(const Shape& shape, size_t begin, size_t end) {
  int64_t elements = 1;
  for (size_t d = begin; d < end; ++d) elements *= shape[d];
  return elements;
}

}  // namespace tamp::frontend
