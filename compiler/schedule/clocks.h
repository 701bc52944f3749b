// Happens-before among the instructions of a rProgram, as vector clocks: an instruction's clock says, per vEU, how many of that vEU's
// instructions are done whenever this instruction begins. Two rules order instructions: those of one vEU run in order, and every Wait for
// an event comes after the event's signals. For a rTask that starts early (its Phase has boxes) only the second rule holds: it copies its
// inputs while the rTasks before it on the same vEU may still run. The rTasks of a gang need each other, so none of them is taken to run
// before all of them can begin. The memory plan and the verifier use these clocks.
#pragma once

#include <cstdint>
#include <vector>

#include "compiler/ir/rprogram.h"

namespace tamp::schedule {

// An instruction: its lane and its position there.
struct At {
  int32_t veu = 0, position = 0;
  auto operator<=>(const At&) const = default;
};

using Clock = std::vector<int32_t>;  // per vEU

// Whether a vEU runs its rTasks one after another (kept), or each as soon as its Waits have passed, as the blocks of a launch run (none).
enum class LaneOrder { kept, none };

class Clocks {
 public:
  explicit Clocks(const RProgram& program, LaneOrder lane_order = LaneOrder::kept);

  // All instructions that can run, in one possible order. If the program has more instructions than this, the others wait for ever.
  const std::vector<At>& order() const { return order_; }
  bool is_complete() const { return order_.size() == row_of_.size(); }
  bool runs(At at) const { return row_of_[index(at)] >= 0; }

  // Whether `a` is done before `b` begins. Both must be among order().
  bool before(At a, At b) const {
    if (a.veu == b.veu && (a.position >= b.position || !starts_early_[index(b)])) return a.position < b.position;
    return rows_[static_cast<size_t>(row_of_[index(b)])][static_cast<size_t>(a.veu)] > a.position;
  }
  // Lowers `clock` to those instructions that are done before `at` begins, too.
  void meet(Clock& clock, At at) const;

  // Consecutive numbers of the instructions, lane after lane.
  size_t index(At at) const { return lane_begin_[static_cast<size_t>(at.veu)] + static_cast<size_t>(at.position); }
  At at(size_t index) const;
  size_t count() const { return row_of_.size(); }

 private:
  std::vector<At> order_;
  std::vector<size_t> lane_begin_;
  std::vector<bool> starts_early_;  // per instruction
  std::vector<int32_t> row_of_;     // per instruction: its clock, of its own vEU's entry only what Waits say; -1 = never runs
  std::vector<Clock> rows_;
};

// Summary of a set of accesses, to compare it with another set: the latest of the set's instructions on every vEU, and which instructions
// are done before any of the set begins.
struct Extent {
  Clock last;   // per vEU: position of the latest + 1
  Clock known;  // the least of the instructions' clocks, entry by entry
  explicit Extent(size_t veus) : last(veus, 0), known(veus, INT32_MAX) {}
  void add(At at, const Clocks& clocks);
  void add(const Extent& other);
  // Everything in this set is done before anything in `other` begins.
  bool before(const Extent& other) const;
};

}  // namespace tamp::schedule
