// Decides whether a damaged rProgram still computes what the right one does, by brute force and without any of the verifier's code. The
// order is kept as sets of rTasks that have run before each rTask, memory as all pairs of rTasks that touch the same bytes, and whether the
// program ends is found by running it.
//
// Like the verifier, the oracle trusts the regions that the families declare. How programs run it knows by itself
// (kernels/vdevice/interpreter.cuh, runtime_stub/host/phases.h): a vEU's waiter passes the Waits of its lane in order; its compute warps
// run the bodies in order; boxes of inputs are copied once the Waits have passed; launches of one stream follow each other, and those of
// other streams wait for events that were recorded before.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "compiler/ir/rprogram.h"
#include "compiler/select/select.h"

namespace tamp::test {

class OrderOracle {
 public:
  // `right` is a right rProgram. Mutants may differ from it in lanes, events, launches, places in memory and in the weights file, and
  // the numbers of rKernels.
  OrderOracle(const RProgram& right, const select::Families& families);

  // Why the mutant may compute something else, or not end. None: in every order of its run it computes the same.
  std::optional<std::string> harm(const RProgram& mutant) const;

  int64_t rtasks() const { return count_; }
  size_t pairs() const { return pairs_.size() + shared_.size(); }

 private:
  struct Touch {
    int32_t rtask = 0;
    bool is_write = false;
    bool by_copy = false;  // a box: read as soon as the Waits have passed
    auto operator<=>(const Touch&) const = default;
  };
  struct Cell {  // bytes that the same rTasks touch
    std::vector<Touch> touches;
    bool is_written = false;
  };
  struct Stretch {  // bytes of a space
    int64_t begin = 0, end = 0;
    int32_t cell = 0;
  };
  struct Space {
    size_t buffer = SIZE_MAX, scratch_of = SIZE_MAX;
    bool in_arena = false;
    std::vector<Stretch> stretches;  // ascending
  };
  struct Pair {
    int32_t writer = 0, reader = 0;
    bool by_copy = false;
    auto operator<=>(const Pair&) const = default;
  };
  // Per rTask, which rTasks are done whenever it begins, and which are done whenever its boxes are copied.
  struct Order {
    size_t words = 0;
    std::vector<uint64_t> begins, copies;
    bool before(int32_t first, const Touch& then) const;
  };

  int32_t number(const RTask& rtask) const;
  void collect(const select::Families& families);
  void cut_up(Space& space, std::vector<std::pair<int64_t, std::pair<size_t, bool>>>& ends, const std::vector<Touch>& touches);
  void find_pairs();
  std::vector<std::pair<int32_t, int32_t>> shared_cells(const MemoryPlan& memory) const;
  int64_t offset_of(const Space& space, const MemoryPlan& memory) const;

  std::optional<std::string> runs_once(const RProgram& mutant) const;
  std::optional<Order> order_of_lanes(const RProgram& mutant) const;
  std::optional<Order> order_of_launches(const RProgram& mutant) const;
  std::optional<std::string> places(const RProgram& mutant) const;
  std::optional<std::string> exchanges(const RProgram& mutant) const;
  std::optional<std::string> weights(const RProgram& mutant) const;
  std::optional<std::string> numbers(const RProgram& mutant) const;
  std::optional<std::string> rings(const RProgram& mutant) const;
  bool in_order(const Order& order, const Cell& first, const Cell& then) const;

  RProgram right_;
  std::vector<std::vector<int64_t>> first_;  // per rOperator and phase: the number of its first rTask
  int64_t count_ = 0;
  std::vector<Space> spaces_;
  std::vector<Cell> cells_;
  std::vector<Pair> pairs_;                          // written by the first, read by the second
  std::vector<std::pair<int32_t, int32_t>> shared_;  // cells of different spaces at the same bytes of the right program's arena
};

}  // namespace tamp::test
