// What it would take to make one convolution of several (IOS-Merge): the one that the pass makes of them (compiler/ir/merge.h) in a graph
// with nothing else changed, and what that costs elsewhere: slices of its result that must be copied to where a Concat or a graph output
// wants them.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "compiler/schedule/ios_prices.h"

namespace tamp::schedule {

class MergePrices {
 public:
  // Of a graph whose options have a merger; `prices` are of the same.
  MergePrices(const PolicyInput& input, StagePrices& prices);

  // Per unit: the class of units that it may become one with, or -1.
  const std::vector<int64_t>& classes() const { return class_of_; }
  // Of units of one class; infinite if nobody can run what they become.
  double of(const std::vector<size_t>& units);
  Merge names_of(const std::vector<size_t>& units) const;
  int64_t asked() const { return static_cast<int64_t>(known_.size()); }

 private:
  double simulate(const std::vector<size_t>& units);

  const PolicyInput& input_;
  StagePrices& prices_;
  StageSimulator simulator_;
  std::vector<int64_t> class_of_;
  std::map<std::string, size_t> unit_of_;  // by the rOperator's name
  std::map<std::vector<size_t>, double> known_;
};

}  // namespace tamp::schedule
