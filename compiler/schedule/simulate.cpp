// Estimated time of a rProgram: every vEU's instructions one after another, a Wait passing when the last signal has travelled
// from its vEU. The rTasks that share L2 and DRAM are taken to be those of the same wave and phase.
#include <algorithm>
#include <map>
#include <set>

#include "compiler/schedule/clocks.h"
#include "compiler/schedule/schedule.h"
#include "compiler/select/cost.h"
#include "compiler/support/error.h"

namespace tamp::schedule {
namespace {

// The latest signal of an event, and the latest from another vEU than that.
struct Signals {
  double latest_us = 0, other_us = 0;
  int32_t latest_veu = -1;

  void add(double us, int32_t veu) {
    if (veu == latest_veu) {
      latest_us = std::max(latest_us, us);
    } else if (latest_veu < 0 || us > latest_us) {
      if (latest_veu >= 0) other_us = latest_us;
      latest_us = us, latest_veu = veu;
    } else {
      other_us = std::max(other_us, us);
    }
  }
  double seen_us(int32_t veu, const VDevice& d, bool by_kernels) const {
    if (latest_veu < 0) return 0;
    if (by_kernels) return latest_us + d.kernel_edge_us;
    if (veu != latest_veu) return latest_us + d.edge_us;
    return std::max(latest_us + d.same_veu_us, other_us > 0 ? other_us + d.edge_us : 0.0);
  }
};

// Per rOperator and phase, from the vEUs that have rTasks of the same wave and phase.
std::vector<std::vector<select::RTaskCost>> costs_of(const RProgram& program) {
  std::map<std::pair<int32_t, int32_t>, std::set<size_t>> busy;
  for (size_t veu = 0; veu < program.lanes.size(); ++veu) {
    for (const Instruction& i : program.lanes[veu]) {
      if (i.rtask.rop.valid()) busy[{program.wave[i.rtask.rop.index()], i.rtask.phase}].insert(veu);
    }
  }
  const select::Machine machine = select::machine_for(program.graph, program.vdevice, program.precision);
  std::vector<std::vector<select::RTaskCost>> costs(program.rkernels.size());
  for (size_t i = 0; i < costs.size(); ++i) {
    const auto& phases = program.rkernels[i].phases;
    for (size_t p = 0; p < phases.size(); ++p) {
      const auto active = static_cast<int64_t>(busy[{program.wave[i], static_cast<int32_t>(p)}].size());
      costs[i].push_back(select::cost_of(phases[p], machine, active));
    }
  }
  return costs;
}

std::vector<At> members_of(const RProgram& program, ROperatorId rop) {
  std::vector<At> members;
  for (size_t veu = 0; veu < program.lanes.size(); ++veu) {
    for (size_t p = 0; p < program.lanes[veu].size(); ++p) {
      if (program.lanes[veu][p].rtask.rop == rop) members.push_back({static_cast<int32_t>(veu), static_cast<int32_t>(p)});
    }
  }
  return members;
}

}  // namespace

Timeline timeline(const RProgram& program) {
  const VDevice& d = program.vdevice;
  const auto costs = costs_of(program);
  const Clocks clocks(program);
  TAMP_CHECK(clocks.is_complete(), "simulation of a rProgram that cannot end");
  Timeline result;
  for (const auto& lane : program.lanes) result.lanes.emplace_back(lane.size());
  std::vector<select::VEUTime> veus(program.lanes.size());
  std::vector<Signals> events(program.events.size());
  const auto ready_at = [&](At at) {
    double ready_us = 0;
    const Instruction& instruction = program.lanes[static_cast<size_t>(at.veu)][static_cast<size_t>(at.position)];
    for (const EventId id : instruction.waits)
      ready_us = std::max(ready_us, events[id.index()].seen_us(at.veu, d, program.launches.has_value()));
    return ready_us;
  };
  std::vector<double> gang_us(program.rkernels.size(), -1);  // when a gang begins, once its first rTask has been met
  for (size_t n = 0; n < clocks.order().size(); ++n) {
    const At at = clocks.order()[n];
    const auto lane = static_cast<size_t>(at.veu);
    const auto position = static_cast<size_t>(at.position);
    const Instruction& instruction = program.lanes[lane][position];
    double ready_us = ready_at(at);
    select::VEUTime& veu = veus[lane];
    const RTask& rtask = instruction.rtask;
    if (rtask.rop.valid() && program.rkernels[rtask.rop.index()].gang) {
      double& begin_us = gang_us[rtask.rop.index()];
      if (begin_us < 0) {
        for (const At other : members_of(program, rtask.rop)) {
          begin_us = std::max({begin_us, ready_at(other), veus[static_cast<size_t>(other.veu)].free_us});
        }
      }
      ready_us = begin_us;
    }
    if (rtask.rop.valid()) {
      veu = select::after(veu, costs[rtask.rop.index()][static_cast<size_t>(rtask.phase)], ready_us);
      result.lanes[lane][position] = {veu.began_us, veu.free_us};
    } else {
      veu.free_us = std::max(veu.free_us, ready_us);
      result.lanes[lane][position] = {veu.free_us, veu.free_us};
    }
    result.us = std::max(result.us, veu.free_us);
    if (instruction.signal.valid()) events[instruction.signal.index()].add(veu.free_us, at.veu);
    veu.free_us += d.same_veu_us;
  }
  for (auto& lane : result.lanes) {
    for (Span& span : lane) span.begin_us += d.launch_us, span.end_us += d.launch_us;
  }
  result.us += d.launch_us;
  return result;
}

double simulate(const RProgram& program) { return timeline(program).us; }

}  // namespace tamp::schedule
