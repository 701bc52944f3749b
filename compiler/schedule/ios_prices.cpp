#include "compiler/schedule/ios_prices.h"

#include <algorithm>
#include <iterator>
#include <limits>
#include <utility>

#include "compiler/schedule/choose.h"
#include "compiler/select/records.h"
#include "compiler/support/error.h"
#include "compiler/support/parallel.h"

namespace tamp::schedule {
namespace {

constexpr size_t kStagesPerThread = 100;  // some milliseconds

int64_t widest(const RKernel& rkernel) {
  if (rkernel.gang) return rkernel.rtasks();
  int64_t most = 0;
  for (const Phase& phase : rkernel.phases) most = std::max(most, phase.rtasks);
  return most;
}

}  // namespace

void append_stage(Timetable& timetable, const Stage& stage, const Draft& draft, const select::Machine& machine,
                  std::vector<Finish>& finish) {
  size_t longest = 0;
  for (const Group& group : stage) longest = std::max(longest, group.size());
  std::vector<std::pair<double, ROperatorId>> row;
  std::vector<Finish> waits;
  for (size_t k = 0; k < longest; ++k) {
    row.clear();
    int64_t rtasks = 0;
    for (const Group& group : stage) {
      if (k >= group.size()) continue;
      const RKernel& rkernel = *draft.rkernels[group[k].index()];
      row.emplace_back(-select::veu_us(rkernel, machine), group[k]);
      rtasks += widest(rkernel);
    }
    std::sort(row.begin(), row.end());
    for (const auto& [us, id] : row) {
      waits.clear();
      for (const ROperatorId producer : draft.waits[id.index()]) waits.push_back(finish[producer.index()]);
      const RKernel& rkernel = *draft.rkernels[id.index()];
      finish[id.index()] = timetable.append(id, rkernel, waits, rtasks - widest(rkernel));
    }
  }
}

StageSimulator::StageSimulator(const select::Machine& machine, Execution execution)
    : machine_(machine), execution_(execution), simulator_(machine) {
  source_.phases.emplace_back();
  source_.phases.back().rtasks = 1;
}

double StageSimulator::run(const std::vector<const RKernel*>& rkernels, const std::vector<std::vector<size_t>>& needs,
                           const UnitStage& groups) {
  const ROperatorId source(0);
  const auto number = [](size_t i) { return ROperatorId(static_cast<int64_t>(i) + 1); };
  Draft draft;
  draft.rkernels = {&source_};
  draft.rkernels.insert(draft.rkernels.end(), rkernels.begin(), rkernels.end());
  draft.waits.emplace_back();
  for (const auto& of_one : needs) {
    draft.waits.emplace_back();
    for (const size_t need : of_one) draft.waits.back().push_back(number(need));
    draft.waits.back().push_back(source);
  }
  Stage stage;
  for (const auto& group : groups) {
    stage.emplace_back();
    for (const size_t i : group) stage.back().push_back(number(i));
  }
  Timetable timetable(machine_);
  std::vector<Finish> finish(draft.rkernels.size());
  finish[0] = timetable.append(source, source_, {});
  append_stage(timetable, stage, draft, machine_, finish);
  draft.order = timetable.take_appended();
  const ShapedVDevice& d = machine_.vdevice;
  return simulator_.run(draft, execution_) - d.launch_us - d.rtask_us;
}

StagePrices::StagePrices(const PolicyInput& input, KnownTimes& known) : input_(input), known_(known) {
  Unsupported unsupported;
  const std::vector<bool> alone = alone_of(input);
  std::vector<size_t> unit_of(input.graph.rops.size(), 0);
  for (size_t i = 0; i < input.graph.rops.size(); ++i) {
    if (input.is_view[i]) continue;
    const ROperatorId id(static_cast<int64_t>(i));
    candidates_.push_back(candidates_of(input, id, alone[i], unsupported));
    unit_of[i] = units_.size();
    units_.push_back(id);
    needs_.emplace_back();
    for (const ROperatorId producer : input.producers[i]) needs_.back().push_back(unit_of[producer.index()]);
    const std::string signature = select::signature(input.graph, input.graph.rops[i]);
    kinds_.push_back(known.kinds.try_emplace(signature, static_cast<int64_t>(known.kinds.size())).first->second);
  }
  refuse_unsupported(input, unsupported);
}

const RKernel& StagePrices::rkernel_for(size_t unit, int64_t share) {
  const int64_t all = input_.machine.vdevice.veus();
  const auto [at, is_new] = by_share_.try_emplace({unit, share}, 0);
  if (is_new) {
    const auto& found = candidates_[unit];
    at->second = share == all ? select::fastest(found, input_.machine) : select::fastest_on(found, input_.machine, share);
  }
  return candidates_[unit][at->second];
}

// What decides the time of a stage: the kinds of its rOperators, and which of them needs which. Stages that are equal in this have one
// price.
std::vector<int64_t> StagePrices::structure_of(const UnitStage& stage) const {
  std::vector<std::vector<int64_t>> groups;
  for (const auto& group : stage) {
    groups.emplace_back();
    for (size_t k = 0; k < group.size(); ++k) {
      groups.back().push_back(kinds_[group[k]]);
      for (size_t j = 0; j < k; ++j) {
        const auto& needs = needs_[group[k]];
        if (std::find(needs.begin(), needs.end(), group[j]) != needs.end()) groups.back().push_back(-2 - static_cast<int64_t>(j));
      }
    }
  }
  std::sort(groups.begin(), groups.end());
  std::vector<int64_t> all;
  for (const auto& group : groups) {
    all.insert(all.end(), group.begin(), group.end());
    all.push_back(-1);
  }
  return all;
}

std::vector<StageTime> StagePrices::of_all(const std::vector<UnitStage>& stages) {
  std::vector<const StageTime*> times;
  std::vector<Unknown> unknown;
  for (const UnitStage& stage : stages) {
    const auto [at, is_new] = known_.stages.try_emplace(structure_of(stage));
    times.push_back(&at->second);
    if (is_new) unknown.push_back({&at->second, trials_of(stage)});
  }
  asked_ += static_cast<int64_t>(unknown.size());
  if (!input_.options.meter)
    simulate(unknown);
  else if (gathering_)
    std::move(unknown.begin(), unknown.end(), std::back_inserter(gathered_));
  else
    measure(unknown);
  std::vector<StageTime> result;
  for (const StageTime* time : times) result.push_back(*time);
  return result;
}

void StagePrices::simulate(std::vector<Unknown>& unknown) const {
  const size_t parts = std::min(processor_count(), unknown.size() / kStagesPerThread + 1);
  in_parallel(parts, parts, [&](size_t part) {
    StageSimulator simulator(input_.machine, input_.options.execution);
    for (size_t i = part; i < unknown.size(); i += parts) {
      StageTime& best = *unknown[i].time;
      best.us = std::numeric_limits<double>::infinity();
      for (const Trial& trial : unknown[i].trials) {
        const double us = simulator.run(trial.rkernels, trial.needs, trial.groups);
        if (us < best.us) best = {us, trial.share};
      }
    }
  });
}

void StagePrices::measure_gathered() {
  gathering_ = false;
  measure(gathered_);
  gathered_.clear();
}

// Builds a program for each share and measures the stages there with rKernels for that share. Shares with the same rKernels use one
// program.
void StagePrices::measure(std::vector<Unknown>& unknown) {
  if (unknown.empty()) return;
  std::map<int64_t, size_t> job_of_share;
  std::map<std::vector<const RKernel*>, size_t> job_of_rkernels;
  std::vector<StageJob> jobs;
  for (const Unknown& one : unknown) {
    for (const Trial& trial : one.trials) {
      const auto [of_share, is_new] = job_of_share.try_emplace(trial.share, 0);
      if (is_new) {
        const std::vector<const RKernel*> rkernels = rkernels_for(trial.share);
        const auto [same, is_other] = job_of_rkernels.try_emplace(rkernels, jobs.size());
        if (is_other) jobs.push_back({program_to_measure(input_, rkernels), {}});
        of_share->second = same->second;
      }
      jobs[of_share->second].stages.push_back(trial.stage);
    }
  }
  const std::vector<std::vector<double>> us = measured(*input_.options.meter, jobs);
  std::vector<size_t> next(jobs.size(), 0);
  for (const Unknown& one : unknown) {
    one.time->us = std::numeric_limits<double>::infinity();
    for (const Trial& trial : one.trials) {
      const size_t job = job_of_share[trial.share];
      const double trial_us = us[job][next[job]++];
      if (trial_us < one.time->us) *one.time = {trial_us, trial.share};
    }
  }
}

std::vector<const RKernel*> StagePrices::rkernels_for(int64_t share) {
  static const RKernel kNothing;
  std::vector<const RKernel*> rkernels(input_.graph.rops.size(), &kNothing);
  for (size_t unit = 0; unit < units_.size(); ++unit) rkernels[units_[unit].index()] = &rkernel_for(unit, share);
  return rkernels;
}

// Two trials: with the rKernels that are fastest on all vEUs, and, where they differ, with those that are fastest on a group's part of the
// vEUs.
std::vector<StagePrices::Trial> StagePrices::trials_of(const UnitStage& stage) {
  const int64_t all = input_.machine.vdevice.veus();
  std::vector<Trial> trials = {trial_of(stage, all)};
  const int64_t part = std::max<int64_t>(1, all / static_cast<int64_t>(stage.size()));
  if (part == all) return trials;
  trials.push_back(trial_of(stage, part));
  if (trials[0].rkernels == trials[1].rkernels) trials.pop_back();
  return trials;
}

StagePrices::Trial StagePrices::trial_of(const UnitStage& stage, int64_t share) {
  Trial trial{share, {}, {}, {}, {}};
  std::vector<size_t> members;
  for (const auto& group : stage) {
    trial.groups.emplace_back();
    trial.stage.emplace_back();
    for (const size_t unit : group) {
      trial.stage.back().push_back(units_[unit]);
      trial.groups.back().push_back(members.size());
      trial.rkernels.push_back(&rkernel_for(unit, share));
      trial.needs.emplace_back();
      for (const size_t need : needs_[unit]) {
        const auto inside = std::find(members.begin(), members.end(), need);
        if (inside != members.end()) trial.needs.back().push_back(static_cast<size_t>(inside - members.begin()));
      }
      members.push_back(unit);
    }
  }
  return trial;
}

RProgram program_to_measure(const PolicyInput& input, const std::vector<const RKernel*>& rkernels) {
  Draft draft{rkernels, input.producers, {}, {}, {}};
  Timetable timetable(input.machine);
  std::vector<Finish> finish(rkernels.size());
  for (size_t i = 0; i < rkernels.size(); ++i) {
    if (rkernels[i]->rtasks() == 0) continue;
    draft.stages.push_back({{ROperatorId(static_cast<int64_t>(i))}});
    append_stage(timetable, draft.stages.back(), draft, input.machine, finish);
  }
  draft.order = timetable.take_appended();
  RProgram program;
  program.vdevice = input.machine.vdevice;
  program.precision = input.machine.precision;
  program.policy = name_of(input.options.policy);
  program.graph = input.graph;
  ScheduleOptions options = input.options;
  options.share_memory = false;
  complete(program, plan_of(draft), options, input.families);
  return program;
}

std::vector<std::vector<double>> measured(const StageMeter& meter, const std::vector<StageJob>& jobs) {
  std::vector<std::vector<double>> us = meter(jobs);
  TAMP_CHECK(us.size() == jobs.size(), "stages of other programs were measured");
  for (size_t i = 0; i < jobs.size(); ++i) TAMP_CHECK(us[i].size() == jobs[i].stages.size(), "other stages were measured");
  return us;
}

}  // namespace tamp::schedule
