// What it would take to make one convolution of several (IOS-Merge): the one that the pass makes of them (compiler/ir/merge.h) in a graph
// with nothing else changed, and what that costs elsewhere: slices of its result that must be copied to where a Concat or a graph output
// wants them.
//
// With a meter, merges of convolutions on different inputs are measured in one program, so that there are as many programs as one input
// has sets of convolutions that may become one.
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
  // As those of StagePrices; its own are called by the caller, first.
  void gather() { gathering_ = true; }
  void measure_gathered();
  Merge names_of(const std::vector<size_t>& units) const;
  int64_t asked() const { return static_cast<int64_t>(known_.size()); }

 private:
  using Members = std::vector<size_t>;
  // rOperators that are not in the graph without merges, and the units whose rOperators are not in this one, for other reasons than that
  // they are merged.
  struct Change {
    std::vector<ROperatorId> made;
    std::vector<size_t> spared;
  };
  Change change_of(const Graph& graph, const Members& units) const;
  double spared_us(const Change& change);
  double simulate(const Members& units);
  // Names of what it makes, and what it spares.
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
