// The cost model, the only one: microseconds of a rTask on a vDevice. Selection, the policies and the simulator all ask here,
// so that what one of them believes holds for the others. A rTask's time has three parts: a fixed cost, the body (arithmetic
// or activation traffic, whichever is longer: bodies overlap them), and its weights, which the loader warp fetches ahead into
// the ring while the vEU still works or waits; only what does not fit into that time is seen.
#pragma once

#include <optional>

#include "compiler/ir/estimator.h"
#include "compiler/ir/rkernel.h"
#include "compiler/ir/vdevice.h"

namespace tamp::select {

// What the rTasks of a whole model have in common.
struct Machine {
  const VDevice& vdevice;
  Precision precision = Precision::fp32;
  bool weights_in_l2 = true;  // false: the model's weights exceed L2, so every run reads them from DRAM
};
Machine machine_for(const Graph& graph, const VDevice& vdevice, Precision precision);

struct RTaskCost {
  double fixed_us = 0;
  double body_us = 0;     // arithmetic or activation traffic, the longer of the two
  double weights_us = 0;  // to fetch the weights, however early that begins
  double ahead_us = 0;    // the part of weights_us that fits into the ring before the rTask begins
};

// Of one rTask of the phase while `active` vEUs share L2 and DRAM.
RTaskCost cost_of(const Phase& phase, const Machine& machine, int64_t active);

// Before tensors have places, what Estimator promises passes (compiler/ir/estimator.h).
std::optional<Estimate> estimate(const Graph& graph, const ROperator& rop, const VDevice& vdevice, Precision precision);

// One vEU's time while rTasks are put on it one after another.
struct VEUTime {
  double free_us = 0;    // the last rTask has ended
  double began_us = 0;   // and this is when it began,
  double loader_us = 0;  // and when its weights had all been fetched
};
// When a rTask whose inputs are there at `ready_us` would end, and the vEU's time after it.
VEUTime after(const VEUTime& veu, const RTaskCost& cost, double ready_us);

// From a rOperator's inputs being there to its end, with `share` vEUs to itself while `active` in all are busy.
double completion_us(const RKernel& rkernel, const Machine& machine, int64_t share, int64_t active);

}  // namespace tamp::select
