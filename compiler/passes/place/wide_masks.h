// Which activations may hold numbers by which keys of attention are masked. These are as large as a float, or as fp16; in 16 bits they, or
// sums of them and scores, would be -infinity, so that a query whose keys are all masked had no weights instead of equal ones.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "compiler/ir/graph.h"

namespace tamp::passes {

// The largest finite magnitudes by constants, so that questions about many graphs read each constant once.
class MagnitudeCache {
 public:
  double of(const Tensor& constant);  // of f32

 private:
  std::mutex mutex_;
  std::map<TensorData, double> magnitudes_;
};

// For each buffer of a placed graph whether it may lie in 16 bits of type `to` as far as masks are concerned. It may not if
//  - its values come from a constant with finite numbers near the largest of `to` or beyond, by selections, sums and products;
//  - they come so from an input of the model, whose values are unknown, and go so to a Softmax or to the bias of an attention.
// Example: (1 - mask) * -3.4e38 of a mask of run time stays f32, and so do scores plus that if a Softmax reads them.
std::vector<bool> holds_no_mask(const Graph& placed, DType to, MagnitudeCache& magnitudes);

}  // namespace tamp::passes
