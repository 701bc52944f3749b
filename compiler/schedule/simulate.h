// How long a plan or a rProgram takes, and when each of its rTasks runs. Nothing else in the compiler answers this question
// (docs/adr/0011). One pass puts the rTasks on their vEUs in an order in which they can run. A rTask begins when its vEU is free and its
// Waits have been seen; an edge's cost depends on its kind (the same vEU, another vEU, another kernel). As much of the rTask's weights is
// there as the loader could fetch ahead. A rTask's time depends on how many vEUs share L2 and DRAM with it. That number is counted from the
// times of the pass before, so there are kPasses passes.
//
// In graph execution the hardware gives the blocks of a kernel to vEUs as they become free, and nothing is fetched before a kernel begins.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "compiler/ir/rprogram.h"
#include "compiler/schedule/plan.h"
#include "compiler/schedule/schedule.h"
#include "compiler/select/cost.h"

namespace tamp::schedule {

// An object keeps its memory from one plan to the next, for policies that try thousands of plans.
class Simulator {
 public:
  explicit Simulator(const select::Machine& machine);

  // Returns microseconds, the launch included.
  double run(const Draft& draft, Execution execution = Execution::persistent);
  double run(const Plan& plan, Execution execution = Execution::persistent) { return run(draft_of(plan), execution); }
  double run(const RProgram& program);

  // About the last run. shares(): of the time of all phases together, the share of phases with rTasks for nearly all vEUs, and the share of
  // phases that read boxes or are squeeze-and-excite. span_of(): begin and end of an rTask, whose index counts within its phase, also in a
  // gang.
  struct Shares {
    double full = 0, maps = 0;
  };
  Shares shares(const Graph& graph) const;
  Span span_of(const RTask& rtask) const { return spans_[first_span_[step_of(rtask.rop, rtask.phase)] + static_cast<size_t>(rtask.index)]; }

 private:
  // One phase of one rOperator: all rTasks alike.
  struct Step {
    const Phase* phase = nullptr;
    int32_t rop = 0;
    bool gang = false;
    int64_t active = 1;  // vEUs that are busy while the step runs
    select::RTaskCost cost;
  };
  // One entry of a lane. Signals and Waits are numbers of events.
  struct Item {
    int32_t veu = 0;
    int32_t step = -1;  // -1: the entry only waits and signals
    int32_t waits_begin = 0, waits_end = 0;
    int32_t signal = -1;
    int64_t span = 0;  // index in spans_
  };
  // All that an event's Waits need: the latest signal, the latest one from another vEU than the latest's, and how many signals there are.
  struct Signals {
    double latest_us = 0, other_us = 0;
    int32_t latest_veu = -1, count = 0;

    void add(double us, int32_t veu);
    // `words_us`: the edge, if the event's rows are awaited word by word (words.h).
    double seen_us(int32_t veu, const ShapedVDevice& d, std::optional<double> words_us) const;
  };
  // For an event, or a step whose rTasks signal. `in_words`: its rows are awaited word by word (words.h).
  struct Wait {
    int32_t event = 0;
    bool in_words = false;
  };
  struct Kernel {
    int32_t step = 0;
    std::vector<int32_t> after;  // numbers of kernels
    bool dependent = false;      // PhaseLaunch::dependent
  };

  size_t step_of(ROperatorId rop, int32_t phase) const { return first_step_[rop.index()] + static_cast<size_t>(phase); }
  void take_steps(const std::vector<const RKernel*>& rkernels);
  void take_lanes(const Draft& draft);
  void take_lanes(const RProgram& program);
  void take_kernels(const Draft& draft);
  void take_kernels(const RProgram& program);
  void collect_waits(const Draft& draft);
  double passes(bool by_kernels);
  void pass_lanes();
  void pass_kernels();
  double begin_of_gang(size_t item) const;
  double ready_us(const Item& item) const;
  void count_active();

  select::Machine machine_;
  double words_us_;
  std::vector<Step> steps_;
  std::vector<size_t> first_step_;  // per rOperator
  std::vector<size_t> first_span_;  // per step
  std::vector<int32_t> step_waits_begin_;
  std::vector<Wait> waits_;
  std::vector<Item> items_;
  std::vector<size_t> boundaries_;
  std::vector<Kernel> kernels_;
  size_t events_ = 0;

  // State of one pass.
  std::vector<select::VEUTime> veus_;
  std::vector<int32_t> newest_step_;  // per vEU
  std::vector<Signals> signals_;
  std::vector<double> gang_begin_us_;            // per rOperator; negative: not yet
  std::vector<std::vector<size_t>> gang_items_;  // per rOperator
  std::vector<Span> spans_;
  std::vector<double> busy_;
  double end_us_ = 0;
};

}  // namespace tamp::schedule
