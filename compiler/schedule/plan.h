// What a policy decides, and the timetable it decides with. Append and Wait are Rammer's two calls: a policy is a program
// over them. A Timetable is a rProgram under construction as far as its times go; it is small, so that a policy can try
// something on a copy.
#pragma once

#include <span>
#include <utility>
#include <vector>

#include "compiler/ir/rprogram.h"
#include "compiler/schedule/schedule.h"
#include "compiler/select/select.h"

namespace tamp::schedule {

struct Placed {
  RTask rtask;
  VEU veu;
};

// All of a policy's decisions. `order` is one topological order of all rTasks; the rTasks of a (rOperator, phase) that others
// wait for come before theirs, and those of a gang follow each other.
struct Plan {
  std::vector<RKernel> rkernels;                // per rOperator; no phases where nothing is to be done
  std::vector<int32_t> wave, part;              // per rOperator
  std::vector<std::vector<ROperatorId>> waits;  // per rOperator: those that each of its rTasks waits for
  std::vector<Placed> order;
};

// When the last rTask of a rOperator (or of a phase) ends, and on which vEU if all are on one.
struct Finish {
  double at_us = 0;
  VEU only;
  bool many = false;  // on several vEUs; false with `only` none: nothing to wait for
};

class Timetable {
 public:
  explicit Timetable(const select::Machine& machine, double start_us = 0);

  // SelectVEU, Wait and Append for all rTasks of one phase, each on the vEU on which it ends earliest (of equals the first)
  // after all of `waits`. `active` vEUs are busy at the same time.
  Finish append_phase(ROperatorId rop, int32_t phase, const RKernel& rkernel, std::span<const Finish> waits, int64_t active);

  // The same for a gang: all rTasks of all phases, on as many vEUs, those that are free first. They begin together.
  Finish append_gang(ROperatorId rop, const RKernel& rkernel, std::span<const Finish> waits);

  double end_us() const { return end_us_; }
  const std::vector<Placed>& appended() const { return appended_; }  // since the start or the last take_appended
  std::vector<Placed> take_appended() { return std::exchange(appended_, {}); }

 private:
  const select::Machine* machine_;
  std::vector<select::VEUTime> veus_;
  std::vector<Placed> appended_;
  double end_us_ = 0;
};

// The policies. `producers` and `is_view` as found by find_dependencies. Error (unsupported) names all rOperators without
// any candidate.
struct PolicyInput {
  const Graph& graph;
  const select::Machine& machine;
  const std::vector<std::vector<ROperatorId>>& producers;
  const std::vector<bool>& is_view;
  const select::Families& families;
  ScheduleOptions options{};
};
Plan wavefront(const PolicyInput& input);
Plan sequential(const PolicyInput& input);

// Lanes and events of a plan: one event per (rOperator, phase) that somebody on another vEU waits for, one signal per vEU
// that has such rTasks, Waits that others imply left out. Fills RProgram::lanes and ::events; takes the rest from the plan.
void assemble(Plan plan, RProgram& program);

}  // namespace tamp::schedule
