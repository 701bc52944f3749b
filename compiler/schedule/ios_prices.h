// Prices of the stages of IOS, from the simulator or a meter, and how the rTasks of a stage are put on vEUs. A stage is priced alone,
// behind one rTask that all of the stage waits for. Two choices of rKernels are priced, those that are fastest on all vEUs and those that
// are fastest on each group's share of the vEUs; the better counts. Stages of rOperators with the same signatures (select/records.h) that
// need each other in the same way are priced once.
//
// A meter measures in a program, which takes a build, so it is asked for many stages at once. For this a search is made twice: the first
// time only notes which stages it needs.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "compiler/schedule/plan.h"
#include "compiler/schedule/simulate.h"
#include "compiler/schedule/timetable.h"

namespace tamp::schedule {

// Groups of units, each in an order in which it can run.
using UnitStage = std::vector<std::vector<size_t>>;

struct StageTime {
  double us = 0;
  int64_t share = 0;  // vEUs for which each rOperator's rKernel is the fastest
};

// May be used for several graphs of one model, on the same vDevice.
struct KnownTimes {
  std::map<std::string, int64_t> kinds;  // of signatures: their numbers
  std::map<std::vector<int64_t>, StageTime> stages;
};

// Appends all rTasks of a stage: first the first rOperators of all groups (those with most to do first), then the second ones of all
// groups, and so on. `finish` is per rOperator of the draft.
void append_stage(Timetable& timetable, const Stage& stage, const Draft& draft, const select::Machine& machine,
                  std::vector<Finish>& finish);

// Needs no graph, so that stages can be priced whose rOperators are in no graph yet.
class StageSimulator {
 public:
  StageSimulator(const select::Machine& machine, Execution execution);
  // `needs`: per rKernel, the rKernels of the stage that it needs. `groups` has numbers of rKernels. Returns the microseconds from the end
  // of the rTask that all wait for to the end of the stage.
  double run(const std::vector<const RKernel*>& rkernels, const std::vector<std::vector<size_t>>& needs, const UnitStage& groups);

 private:
  const select::Machine& machine_;
  Execution execution_;
  Simulator simulator_;
  RKernel source_;  // one rTask that does nothing
};

// The rOperators of a graph that have something to do are its units, in the order of the graph.
class StagePrices {
 public:
  // Error (unsupported) where no family can run one of the units.
  StagePrices(const PolicyInput& input, KnownTimes& known);

  const std::vector<ROperatorId>& units() const { return units_; }
  const std::vector<std::vector<size_t>>& needs() const { return needs_; }  // per unit
  const std::vector<int64_t>& kinds() const { return kinds_; }              // per unit; equal for units that run alike
  StageTime of(const UnitStage& stage) { return of_all({stage})[0]; }
  // Prices of many stages, simulated on all processors.
  std::vector<StageTime> of_all(const std::vector<UnitStage>& stages);
  // With a meter: from here to measure_gathered() the stages that are not known yet are noted, and reported to take no time.
  void gather() { gathering_ = true; }
  void measure_gathered();
  // The rKernel of a unit in a stage whose StageTime has this share.
  const RKernel& rkernel_for(size_t unit, int64_t share);
  int64_t asked() const { return asked_; }  // stages that were simulated or measured

 private:
  // One way to run a stage: with the rKernels for one share.
  struct Trial {
    int64_t share = 0;
    std::vector<const RKernel*> rkernels;
    std::vector<std::vector<size_t>> needs;
    UnitStage groups;  // numbers of rKernels
    Stage stage;
  };
  struct Unknown {
    StageTime* time;
    std::vector<Trial> trials;
  };

  std::vector<int64_t> structure_of(const UnitStage& stage) const;
  std::vector<Trial> trials_of(const UnitStage& stage);
  Trial trial_of(const UnitStage& stage, int64_t share);
  void simulate(std::vector<Unknown>& unknown) const;
  void measure(std::vector<Unknown>& unknown);
  std::vector<const RKernel*> rkernels_for(int64_t share);  // per rOperator

  const PolicyInput& input_;
  KnownTimes& known_;
  std::vector<ROperatorId> units_;
  std::vector<std::vector<size_t>> needs_;
  std::vector<std::vector<RKernel>> candidates_;
  std::vector<int64_t> kinds_;
  std::map<std::pair<size_t, int64_t>, size_t> by_share_;  // of a unit and a share: which candidate
  bool gathering_ = false;
  std::vector<Unknown> gathered_;
  int64_t asked_ = 0;
};

// All rOperators of a graph one behind another, each with its rKernel of `rkernels` (for a view, one without phases), no memory shared: a
// program in which a meter can measure stages.
RProgram program_to_measure(const PolicyInput& input, const std::vector<const RKernel*>& rkernels);

// Asks the meter. InternalError if the answer does not have the shape of the question.
std::vector<std::vector<double>> measured(const StageMeter& meter, const std::vector<StageJob>& jobs);

}  // namespace tamp::schedule
