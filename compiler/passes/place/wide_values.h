// Which activations must stay f32, whatever bodies take:
//  - numbers by which keys of attention are masked. These are as large as a float, or as fp16; in 16 bits they, or sums of them and
//    scores, would be -infinity, so that a query whose keys are all masked had no weights instead of equal ones;
//  - angles. Their absolute error is what a sine sees: of a rotary embedding at position 1000, bf16 would lose whole turns.
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

// For each buffer of a placed graph whether it may lie in 16 bits of type `to`. It may not if
//  - its values come from a constant with finite numbers near the largest of `to` or beyond, by selections, sums and products;
//  - they come so from an input of the model, whose values are unknown, and go so to a Softmax or to the bias of an attention;
//  - they go so to a sine, cosine or tangent;
//  - they are sums of products of whole numbers, as quantised models have them.
// Examples: (1 - mask) * -3.4e38 of a mask of run time stays f32, and so do scores plus that if a Softmax reads them; so do positions times
// frequencies of which a cosine is taken.
std::vector<bool> may_be_narrow(const Graph& placed, DType to, MagnitudeCache& magnitudes);

}  // namespace tamp::passes
