// The price of a merge of several convolutions into one (IOS-Merge). The convolution is made by the pass (compiler/ir/merge.h) in a graph
// with nothing else changed. Its price includes costs elsewhere: slices of its result that must be copied to where a Concat
// or a graph output needs them.
//
// With a meter, merges of convolutions on different inputs are measured in one program. So there are only as many programs as one input has
// sets of convolutions that may become one.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "compiler/schedule/ios_prices.h"

namespace tamp::schedule {

class MergePrices {
 public:
  // The options of `input` have a merger; `prices` belong to the same graph.
  MergePrices(const PolicyInput& input, StagePrices& prices);

  // Per unit: the number of its class, or -1. Units of one class may become one.
  const std::vector<int64_t>& classes() const { return class_of_; }
  // Price of a merge of units of one class; infinite if no family can run the merged convolution.
  double of(const std::vector<size_t>& units);
  // As in StagePrices. The caller calls those of `prices` first.
  void gather() { gathering_ = true; }
  void measure_gathered();
  Merge names_of(const std::vector<size_t>& units) const;
  int64_t asked() const { return static_cast<int64_t>(known_.size()); }

 private:
  using Members = std::vector<size_t>;
  // Changes of a merge beside the merged units: rOperators of the new graph that the old one does not have, and units whose rOperators
  // the new graph has no more.
  struct Change {
    std::vector<ROperatorId> made;
    std::vector<size_t> spared;
  };
  Change change_of(const Graph& graph, const Members& units) const;
  double spared_us(const Change& change);
  double simulate(const Members& units);
  // A merge to be measured: names of the rOperators that it makes, and the time that it saves elsewhere.
  struct Wanted {
    Members units;
    std::vector<std::string> made;
    double less_us = 0;
  };
  void measure(const std::vector<Members>& asked);
  std::vector<Wanted> measure_rounds(const std::vector<std::vector<Wanted>>& rounds);
  RProgram fastest_program(const Graph& graph) const;

  const PolicyInput& input_;
  StagePrices& prices_;
  StageSimulator simulator_;
  std::vector<int64_t> class_of_;
  std::map<std::string, size_t> unit_of_;  // by the rOperator's name
  std::map<Members, double> known_;
  bool gathering_ = false;
  std::vector<Members> gathered_;
};

}  // namespace tamp::schedule
