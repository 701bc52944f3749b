// Two products of rows with an activation between them in one rTask, with the rows' normalisation or without; see feed_forward.cuh.
#pragma once

#include <optional>

#include "compiler/ir/fused.h"
#include "compiler/ir/fusion.h"
#include "kernels/family.h"

namespace tamp::kernels {

FusionPattern feed_forwards();
FusionPattern normalised_feed_forwards();  // with a normalisation behind that alone reads the result

// Z = act(N(X) * W1 + B1) * W2 + B2 + R. N normalises rows, or does nothing. The result is Z, or Z with its moments, or Z normalised.
struct FeedForwardSteps {
  FusedView view;
  size_t first = 0;                                         // the product with W1; that with W2 is the next step
  const Normalize *normalize = nullptr, *result = nullptr;  // of X and of Z, or null
  bool keeps_moments = false;

  size_t second() const { return first + 1; }
  const Epilogue& between() const { return view.step(first).epilogue; }
};
std::optional<FeedForwardSteps> feed_forward_steps(const ROperator& rop);

// Sums of both products are in registers, X as it comes, too: more columns would not fit.
inline constexpr int64_t kMostFeedColumns = 192;
// The body's function for the activation, or null.
const char* feed_activation(Activation activation);

}  // namespace tamp::kernels
