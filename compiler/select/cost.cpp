#include "compiler/select/cost.h"

#include <algorithm>
#include <limits>

#include "compiler/support/error.h"
#include "kernels/catalogue.h"

namespace tamp::select {
namespace {

// A vEU that runs alone cannot use the whole bandwidth of L2 or DRAM.
double share_gb_per_s(const ShapedVDevice& d, double total_gb_per_s, int64_t active) {
  const double fair = total_gb_per_s / static_cast<double>(d.veus());
  return std::min(total_gb_per_s / static_cast<double>(active), d.lone_veu_shares * fair);
}

double peak_tflops(const Cost& cost, const Machine& machine) {
  const ShapedVDevice& d = machine.vdevice;
  if (!cost.tensor_core) return d.fp32_tflops;
  return d.tf32_tflops > 0 ? d.tf32_tflops : d.fp32_tflops;  // at fp16 and bf16, too: products have no bodies of their own there
}

// The share of the weights' traffic that reaches DRAM: blocks of weights that several rTasks use come from DRAM once, then from L2.
double first_use_share(const Phase& phase) {
  const RingWeights& ring = phase.ring;
  if (ring.chunks_per_rtask == 0 || phase.rtasks == 0) return 1;
  const int64_t per_block = std::max<int64_t>(1, ring.rtasks_per_block);
  const int64_t used = std::min(ring.blocks, (phase.rtasks + per_block - 1) / per_block);
  return std::min(1.0, static_cast<double>(used) / static_cast<double>(phase.rtasks));
}

// A time that was measured in a network already contains the effect of fetching weights ahead there, so the corrected cost has no weights.
RTaskCost corrected(const RTaskCost& cost, double correction, const ShapedVDevice& d) {
  const double us = (after({}, cost, d.edge_us).free_us - d.edge_us) * correction;
  RTaskCost out;
  out.fixed_us = std::min(d.rtask_us, us);
  out.body_us = us - out.fixed_us;
  return out;
}

constexpr double kBytesPerUs = 1e3;  // of one GB/s
constexpr double kFlopsPerUs = 1e6;  // of one TFLOP/s

}  // namespace

Machine machine_for(const Graph& graph, const ShapedVDevice& vdevice, Precision precision) {
  double bytes = 0;
  for (const Tensor& tensor : graph.tensors) {
    if (tensor.data) bytes += static_cast<double>(tensor.data.size());
  }
  return {vdevice, precision, bytes <= vdevice.l2_bytes};
}

RTaskCost cost_of(const Phase& phase, const Machine& machine, int64_t active) {
  const ShapedVDevice& d = machine.vdevice;
  const int64_t veus = d.veus();
  active = std::clamp<int64_t>(active, 1, veus);
  const double peak = peak_tflops(phase.cost, machine) / static_cast<double>(veus) * kFlopsPerUs;
  const double arithmetic_us = phase.cost.flops / (peak * std::max(phase.cost.efficiency, 1e-3));
  const double l2 = share_gb_per_s(d, d.l2_gb_per_s, active) * kBytesPerUs;
  const double dram = share_gb_per_s(d, d.dram_gb_per_s, active) * kBytesPerUs;

  RTaskCost cost;
  cost.fixed_us = d.rtask_us;
  cost.early_us = phase.cost.early_us;
  const double calibrated_us = phase.cost.calibrated_cycles / (d.clock_ghz * 1e3);
  cost.body_us = calibrated_us > 0 ? std::max(calibrated_us - d.rtask_us, 0.0)
                                   : std::max(arithmetic_us, phase.cost.activation_bytes / l2) + phase.cost.latency_us;
  cost.weights_us = phase.cost.weight_bytes / l2;
  if (!machine.weights_in_l2) cost.weights_us = std::max(cost.weights_us, phase.cost.weight_bytes * first_use_share(phase) / dram);
  if (phase.ring.chunks_per_rtask > 0) {
    const double ring_share = static_cast<double>(d.weight_stages) / static_cast<double>(phase.ring.chunks_per_rtask);
    cost.ahead_us = cost.weights_us * std::min(1.0, ring_share);
  }
  return phase.cost.correction > 0 ? corrected(cost, phase.cost.correction, d) : cost;
}

VEUTime after(const VEUTime& veu, const RTaskCost& cost, double ready_us) {
  const double begin_us = std::max(veu.free_us + cost.early_us, ready_us);
  const double loader_us = std::max(veu.loader_us, veu.began_us);
  const double ahead_us = std::clamp(begin_us - loader_us, 0.0, cost.ahead_us);
  const double rest_us = cost.weights_us - ahead_us;
  VEUTime next;
  next.began_us = begin_us;
  next.free_us = begin_us + cost.fixed_us + std::max(cost.body_us, rest_us);
  next.loader_us = rest_us > 0 ? std::max(begin_us, loader_us) + rest_us : loader_us + cost.weights_us;
  return next;
}

std::optional<Estimate> estimate(const Graph& graph, const ROperator& rop, const ShapedVDevice& vdevice, Precision precision) {
  return kernels::estimate({graph, rop, vdevice, precision});
}

namespace {

// All phases of a gang run at once; with fewer vEUs than rTasks the gang cannot run, which costs infinity.
double gang_completion_us(const RKernel& rkernel, const Machine& machine, int64_t share, int64_t active) {
  if (rkernel.rtasks() > share) return std::numeric_limits<double>::infinity();
  double longest_us = 0;
  for (const Phase& phase : rkernel.phases) {
    longest_us = std::max(longest_us, after({}, cost_of(phase, machine, std::max(rkernel.rtasks(), active)), 0).free_us);
  }
  return machine.vdevice.edge_us + longest_us;
}

}  // namespace

double completion_us(const RKernel& rkernel, const Machine& machine, int64_t share, int64_t active) {
  TAMP_CHECK(share >= 1, "completion on no vEU");
  if (rkernel.gang) return gang_completion_us(rkernel, machine, share, active);
  const ShapedVDevice& d = machine.vdevice;
  double now_us = 0;
  for (const Phase& phase : rkernel.phases) {
    if (phase.rtasks == 0) continue;
    const int64_t used = std::min(share, phase.rtasks);
    const RTaskCost cost = cost_of(phase, machine, std::max(used, active));
    // The vEU with the most rTasks. Its loader runs while the inputs' events are on their way.
    VEUTime veu{now_us, now_us, now_us};
    const double ready_us = now_us + d.edge_us;
    const int64_t rounds = (phase.rtasks + used - 1) / used;
    veu = after(veu, cost, ready_us);
    if (rounds > 1) {
      const VEUTime second = after({veu.free_us + d.same_veu_us, veu.began_us, veu.loader_us}, cost, 0);
      // From the second rTask on, all take the same time.
      veu.free_us += static_cast<double>(rounds - 1) * (second.free_us - veu.free_us);
    }
    now_us = veu.free_us;
  }
  return now_us;
}

}  // namespace tamp::select
