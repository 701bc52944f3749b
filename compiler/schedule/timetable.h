// What most policies place rTasks with: the vEUs' times with all rTasks appended so far. It tells on which vEU the next rTask would end
// earliest. Costs and edges are the simulator's (simulate.h). How many vEUs are busy beside a rTask must be given, since what will run
// there is not known yet. A Timetable is small, so that a policy can try something on a copy.
#pragma once

#include <span>
#include <utility>
#include <vector>

#include "compiler/schedule/plan.h"

namespace tamp::schedule {

// When the last rTask of a rOperator (or of a phase) ends, and on which vEU if all are on one.
struct Finish {
  double at_us = 0;
  VEU only;
  bool many = false;  // on several vEUs; if false and `only` is none, there is nothing to wait for
  BufferId words;     // what may be awaited word by word instead (words.h), or none
};

// Of a phase none of whose rTasks has been placed yet.
Finish begin_finish(const Phase& phase);

// When a rTask of `phase` on `veu` may begin: after each of `waits`, with the edge from its vEU to `veu`.
double ready_us(VEU veu, const Phase& phase, std::span<const Finish> waits, const VDevice& vdevice);

// From the last word of a row to its readers on other vEUs.
double words_edge_us(const VDevice& vdevice);

class Timetable {
 public:
  explicit Timetable(const select::Machine& machine, double start_us = 0);

  // SelectVEU, Wait and Append for all rTasks of one phase. Each goes to the vEU on which it ends earliest (of equals the first), after all
  // of `waits`. `active` is how many vEUs are busy at the same time.
  Finish append_phase(ROperatorId rop, int32_t phase, const RKernel& rkernel, std::span<const Finish> waits, int64_t active);

  // The same for a gang: all rTasks of all phases begin together, each on its own vEU; the vEUs that are free first are taken.
  Finish append_gang(ROperatorId rop, const RKernel& rkernel, std::span<const Finish> waits);

  // All phases of a rOperator one after another, or a gang. For each phase, the vEUs counted as busy are its own and `others` more.
  Finish append(ROperatorId rop, const RKernel& rkernel, std::span<const Finish> waits, int64_t others = 0);

  // A grid-wide boundary: what is appended later begins after everything appended before has ended.
  void begin_together();

  double end_us() const { return end_us_; }
  const std::vector<Placed>& appended() const { return appended_; }  // since the start or the last take_appended
  std::vector<Placed> take_appended() { return std::exchange(appended_, {}); }

 private:
  const select::Machine* machine_;
  std::vector<select::VEUTime> veus_;
  std::vector<Placed> appended_;
  double end_us_ = 0;
};

}  // namespace tamp::schedule
