// What the policies share in asking the catalogue for rKernels.
#pragma once

#include <vector>

#include "compiler/schedule/plan.h"
#include "compiler/select/select.h"

namespace tamp::schedule {

// Collects the rOperators that nobody can run, so that a user hears of all of them at once.
class Unsupported {
 public:
  void add(ROperatorId rop) { rops_.push_back(rop); }
  void raise(const PolicyInput& input) const;  // Error (unsupported), or nothing

 private:
  std::vector<ROperatorId> rops_;
};

// Corrected by records, less what the options rule out. Empty, and noted in `unsupported`, if no family can run the rOperator.
// `alone`: nothing else is in its wave.
std::vector<RKernel> candidates_of(const PolicyInput& input, ROperatorId id, bool alone, Unsupported& unsupported);

// Per rOperator: it is the only one of its wave (views take no part), whatever the policy makes of waves. Equal for all policies, so that
// what measured times say of a rKernel is equal for all of them.
std::vector<bool> alone_of(const PolicyInput& input);

// All rOperators one after another, each as fast as it can be; infinite if one of them has no rKernel. For choosing between layouts of
// shared memory, so `vdevice` is as a program would have it; tensors are placed.
double one_after_another_us(const Graph& graph, const VDevice& vdevice, Precision precision, bool gangs);

}  // namespace tamp::schedule
