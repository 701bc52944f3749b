// What most policies place rTasks with: the vEUs' times as far as rTasks were appended, and the question on which vEU the next would end
// earliest. The costs and the edges are those of the simulator (simulate.h); how many vEUs are busy beside a rTask it is told, since what
// will run there is not known yet. It is small, so that a policy can try something on a copy.
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
  bool many = false;  // on several vEUs; false with `only` none: nothing to wait for
};

// When a rTask on `veu` may begin: each of `waits` has been seen, by an edge of its kind.
double ready_us(VEU veu, std::span<const Finish> waits, const VDevice& vdevice);

class Timetable {
 public:
  explicit Timetable(const select::Machine& machine, double start_us = 0);

  // SelectVEU, Wait and Append for all rTasks of one phase, each on the vEU on which it ends earliest (of equals the first)
  // after all of `waits`. `active` vEUs are busy at the same time.
  Finish append_phase(ROperatorId rop, int32_t phase, const RKernel& rkernel, std::span<const Finish> waits, int64_t active);

  // The same for a gang: all rTasks of all phases, on as many vEUs, those that are free first. They begin together.
  Finish append_gang(ROperatorId rop, const RKernel& rkernel, std::span<const Finish> waits);

  // All phases of a rOperator, one after another, or a gang; each phase takes its own vEUs, and `others` more, to be busy.
  Finish append(ROperatorId rop, const RKernel& rkernel, std::span<const Finish> waits, int64_t others = 0);

  // A grid-wide boundary: nothing behind it begins before all has ended.
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
