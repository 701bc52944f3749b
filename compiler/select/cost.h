// The only cost model: microseconds of a rTask on a vDevice. Selection, the policies and the simulator all use it, so that they agree. A
// rTask's time has three parts: a fixed cost; the body (arithmetic or activation traffic, whichever is longer, since bodies overlap them);
// and its weights. The loader warp fetches weights ahead into the ring while the vEU still works or waits; only the time beyond that is
// added.
#pragma once

#include <optional>

#include "compiler/ir/estimator.h"
#include "compiler/ir/rkernel.h"
#include "compiler/ir/shaped_vdevice.h"

namespace tamp::select {

// Conditions that all rTasks of a model have in common.
struct Machine {
  const ShapedVDevice& vdevice;
  Precision precision = Precision::fp32;
  bool weights_in_l2 = true;  // false: the model's weights exceed L2, so every run reads them from DRAM
};
Machine machine_for(const Graph& graph, const ShapedVDevice& vdevice, Precision precision);

struct RTaskCost {
  double fixed_us = 0;
  double body_us = 0;     // arithmetic or activation traffic, the longer of the two
  double weights_us = 0;  // time to fetch the weights, however early that begins
  double ahead_us = 0;    // the part of weights_us that fits into the ring before the rTask begins
  double early_us = 0;    // Cost::early_us
};

// Cost of one rTask of the phase while `active` vEUs share L2 and DRAM.
RTaskCost cost_of(const Phase& phase, const Machine& machine, int64_t active);

// The estimate that passes ask for before tensors have places (Estimator, compiler/ir/estimator.h).
std::optional<Estimate> estimate(const Graph& graph, const ROperator& rop, const ShapedVDevice& vdevice, Precision precision);

// One vEU's time while rTasks are put on it one after another.
struct VEUTime {
  double free_us = 0;    // when the last rTask ended
  double began_us = 0;   // when the last rTask began
  double loader_us = 0;  // when the last rTask's weights had all been fetched
};
// The vEU's time after a rTask whose inputs are there at `ready_us`; free_us is when the rTask ends.
VEUTime after(const VEUTime& veu, const RTaskCost& cost, double ready_us);

// Time from when a rOperator's inputs are there to its end, with `share` vEUs to itself while `active` vEUs in all are busy.
double completion_us(const RKernel& rkernel, const Machine& machine, int64_t share, int64_t active);

}  // namespace tamp::select
