// The vEUs' times with all rTasks appended so far. It tells on which vEU the next rTask would end earliest; most policies place rTasks by
// that. Costs and edges are the simulator's (simulate.h). The number of vEUs that are busy beside a rTask must be given: their rTasks are
// not placed yet. A Timetable is small, so that a policy can try something on a copy.
#pragma once

#include <algorithm>
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
  BufferId words;     // the buffer that may be awaited word by word instead (words.h), or none
};

// Of a phase none of whose rTasks has been placed yet.
Finish begin_finish(const Phase& phase);

// Times from the end of a rTask until another may begin. Policies ask millions of times.
struct Edges {
  double same_veu_us = 0, signal_us = 0;  // on the same vEU; from a signal to a Wait on another one
  double words_us = 0;                    // from the last word of a row to its readers on other vEUs
};
Edges edges_of(const ShapedVDevice& vdevice);

// When a rTask of a phase may begin: after each of `waits`, with the edge from there.
class ReadyTimes {
 public:
  ReadyTimes(const Phase& phase, std::span<const Finish> waits, const Edges& edges);
  double on(VEU veu) const {
    double us = of_many_us_;
    for (const Single& single : singles_) us = std::max(us, single.veu == veu ? single.here_us : single.elsewhere_us);
    return us;
  }

 private:
  // A Finish whose rTasks are all on one vEU.
  struct Single {
    VEU veu;
    double here_us = 0, elsewhere_us = 0;
  };
  double of_many_us_ = 0;
  std::vector<Single> singles_;
};

// Replaces the least element of a heap, which is its first.
template <class T>
void replace_first(std::vector<T>& heap, const T& by) {
  size_t at = 0;
  for (size_t child = 1; child < heap.size(); child = 2 * at + 1) {
    if (child + 1 < heap.size() && heap[child + 1] < heap[child]) ++child;
    if (by < heap[child]) break;
    heap[at] = heap[child];
    at = child;
  }
  heap[at] = by;
}

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

  double end_us() const { return end_us_; }
  const std::vector<Placed>& appended() const { return appended_; }  // since the start or the last take_appended
  std::vector<Placed> take_appended() { return std::exchange(appended_, {}); }

 private:
  Finish append_clusters(ROperatorId rop, int32_t phase, const Phase& p, std::span<const Finish> waits, int64_t active);

  const select::Machine* machine_;
  Edges edges_;
  std::vector<select::VEUTime> veus_;
  std::vector<Placed> appended_;
  double end_us_ = 0;
};

}  // namespace tamp::schedule
