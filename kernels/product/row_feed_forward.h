// The feed-forward part of a transformer for one row, split along its inner columns; see row_feed_forward.cuh.
#pragma once

#include <optional>

#include "compiler/ir/fused.h"
#include "compiler/ir/fusion.h"
#include "kernels/family.h"

namespace tamp::kernels {

FusionPattern row_feed_forwards();

// Z = act(N(X) W1 + B1) W2 + B2 + R, or with `up` (act(N(X) W1 + B1) * (N(X) W3 + B3)) W2 + B2 + R. N normalises rows, or is none.
struct RowFeedSteps {
  FusedView view;
  const Normalize* normalize = nullptr;
  size_t first = 0;          // the step that is the product by W1
  std::optional<size_t> up;  // by W3

  size_t second() const { return view.count() - 1; }
  TensorId x() const { return view.input(0, 0); }
};
// None if the rOperator is another.
std::optional<RowFeedSteps> row_feed_steps(const ROperator& rop);

}  // namespace tamp::kernels
