// How policies ask the catalogue for rKernels.
#pragma once

#include <vector>

#include "compiler/schedule/plan.h"

namespace tamp::schedule {

// The rOperators that no family can run, collected so that a user hears of all of them at once: an Error (unsupported) if there are any.
using Unsupported = std::vector<ROperatorId>;
void refuse_unsupported(const PolicyInput& input, const Unsupported& rops);

// The rKernels for a rOperator, their costs corrected by records, without those that the options rule out. If no family can run the
// rOperator, the result is empty and `unsupported` gets a note. `alone`: nothing else is in the rOperator's wave.
std::vector<RKernel> candidates_of(const PolicyInput& input, ROperatorId id, bool alone, Unsupported& unsupported);

// Per rOperator: whether it is the only one of its wave (views take no part). All policies use this, even those without waves, so that
// measured times of a rKernel mean the same to all of them.
std::vector<bool> alone_of(const PolicyInput& input);

// Time of one rOperator with the whole vDevice to itself, by its fastest rKernel; infinite if it has none. The tensors are placed.
double alone_us(const Graph& graph, const ROperator& rop, const select::Machine& machine, bool gangs);

// Time of all rOperators one after another, each with its fastest rKernel; infinite if one of them has no rKernel. It serves to choose
// between layouts of shared memory, so `vdevice` is as a program would have it, and the tensors are placed.
double one_after_another_us(const Graph& graph, const ShapedVDevice& vdevice, Precision precision, bool gangs);

// Bytes of inputs that are not on their way when a rTask's first products are made, since its ring is too short. One rTask of each
// rOperator's fastest rKernel counts. A product over the input stages has a barrier more, which counts as so many bytes. It serves to
// choose between rings, as above.
double late_bytes(const Graph& graph, const ShapedVDevice& vdevice, Precision precision, bool gangs);

}  // namespace tamp::schedule
