#include "compiler/schedule/ios_merge.h"

#include <limits>
#include <utility>

#include "compiler/schedule/choose.h"
#include "compiler/schedule/dependencies.h"
#include "compiler/support/error.h"

namespace tamp::schedule {

MergePrices::MergePrices(const PolicyInput& input, StagePrices& prices)
    : input_(input), prices_(prices), simulator_(input.machine, input.options.execution), class_of_(prices.units().size(), -1) {
  for (size_t unit = 0; unit < prices.units().size(); ++unit) unit_of_[input.graph.rop(prices.units()[unit]).name] = unit;
  const std::vector<Merge>& classes = input.options.merger->classes;
  for (size_t c = 0; c < classes.size(); ++c) {
    for (const std::string& name : classes[c]) {
      if (const auto found = unit_of_.find(name); found != unit_of_.end()) class_of_[found->second] = static_cast<int64_t>(c);
    }
  }
}

Merge MergePrices::names_of(const std::vector<size_t>& units) const {
  Merge names;
  for (const size_t unit : units) names.push_back(input_.graph.rop(prices_.units()[unit]).name);
  return names;
}

double MergePrices::of(const Members& units) {
  const auto [at, is_new] = known_.try_emplace(units, 0);
  if (!is_new) return at->second;
  if (!input_.options.meter)
    at->second = simulate(units);
  else if (gathering_)
    gathered_.push_back(units);
  else
    measure({units});
  return at->second;
}

MergePrices::Change MergePrices::change_of(const Graph& graph, const Members& units) const {
  Change change;
  std::set<std::string> there;
  for (size_t i = 0; i < graph.rops.size(); ++i) {
    there.insert(graph.rops[i].name);
    if (!unit_of_.contains(graph.rops[i].name)) change.made.emplace_back(static_cast<int64_t>(i));
  }
  for (const std::string& name : names_of(units)) there.insert(name);
  for (const auto& [name, unit] : unit_of_) {
    if (!there.contains(name)) change.spared.push_back(unit);
  }
  return change;
}

// Microseconds of the copies that the merge makes unnecessary.
double MergePrices::spared_us(const Change& change) {
  double us = 0;
  for (const size_t unit : change.spared) us += prices_.of({{unit}}).us;
  return us;
}

double MergePrices::simulate(const Members& units) {
  const Graph graph = input_.options.merger->merged({names_of(units)});
  const PolicyInput other{graph, input_.machine, input_.producers, input_.is_view, input_.families, input_.options};
  const Change change = change_of(graph, units);
  std::vector<std::vector<RKernel>> found;
  std::vector<const RKernel*> rkernels;
  std::vector<std::vector<size_t>> needs;
  for (const ROperatorId id : change.made) {
    Unsupported unsupported;
    found.push_back(candidates_of(other, id, /*alone=*/true, unsupported));
    if (found.back().empty()) return std::numeric_limits<double>::infinity();
    needs.emplace_back();
    for (const TensorId read : reads_of(graph.rop(id))) {
      for (size_t j = 0; j + 1 < found.size(); ++j) {
        const TensorId made = graph.rop(change.made[j]).outputs[0];
        if (graph.tensor(read).place.buffer == graph.tensor(made).place.buffer) needs.back().push_back(j);
      }
    }
  }
  UnitStage one_group(1);
  for (size_t i = 0; i < found.size(); ++i) {
    rkernels.push_back(&found[i][select::fastest(found[i], input_.machine)]);
    one_group[0].push_back(i);
  }
  return simulator_.run(rkernels, needs, one_group) - spared_us(change);
}

void MergePrices::measure_gathered() {
  gathering_ = false;
  measure(gathered_);
  gathered_.clear();
}

// Measures in rounds; a round has at most one set of each class, so its merges do not touch each other.
void MergePrices::measure(const std::vector<Members>& asked) {
  std::vector<std::vector<Wanted>> rounds;
  std::map<int64_t, size_t> rounds_of;  // how many a class has so far
  for (const Members& units : asked) {
    const Graph graph = input_.options.merger->merged({names_of(units)});
    const Change change = change_of(graph, units);
    Wanted wanted{units, {}, spared_us(change)};
    bool can_run = true;
    const PolicyInput other{graph, input_.machine, input_.producers, input_.is_view, input_.families, input_.options};
    Unsupported unsupported;
    for (const ROperatorId id : change.made) {
      wanted.made.push_back(graph.rop(id).name);
      can_run = can_run && !candidates_of(other, id, /*alone=*/true, unsupported).empty();
    }
    if (!can_run) {
      known_[units] = std::numeric_limits<double>::infinity();
      continue;
    }
    const size_t round = rounds_of[class_of_[units[0]]]++;
    if (round == rounds.size()) rounds.emplace_back();
    rounds[round].push_back(std::move(wanted));
  }
  std::vector<std::vector<Wanted>> apart;
  for (const Wanted& wanted : measure_rounds(rounds)) apart.push_back({wanted});
  TAMP_CHECK(measure_rounds(apart).empty(), "a merge makes other rOperators than it did");
}

// Builds a program for each round. Returns the merges that make other rOperators beside the others of their round than they do alone.
std::vector<MergePrices::Wanted> MergePrices::measure_rounds(const std::vector<std::vector<Wanted>>& rounds) {
  std::vector<StageJob> jobs;
  std::vector<std::vector<const Wanted*>> wanted_of_job;
  std::vector<Wanted> apart;
  for (const std::vector<Wanted>& round : rounds) {
    std::vector<Merge> merges;
    for (const Wanted& wanted : round) merges.push_back(names_of(wanted.units));
    const Graph graph = input_.options.merger->merged(merges);
    std::map<std::string, ROperatorId> id_of;
    for (size_t i = 0; i < graph.rops.size(); ++i) id_of.emplace(graph.rops[i].name, ROperatorId(static_cast<int64_t>(i)));
    std::vector<Stage> stages;
    std::vector<const Wanted*> found;
    for (const Wanted& wanted : round) {
      Group group;
      for (const std::string& name : wanted.made) {
        if (const auto at = id_of.find(name); at != id_of.end()) group.push_back(at->second);
      }
      if (group.size() < wanted.made.size()) {
        apart.push_back(wanted);
        continue;
      }
      stages.push_back({std::move(group)});
      found.push_back(&wanted);
    }
    if (found.empty()) continue;
    jobs.push_back({fastest_program(graph), std::move(stages)});
    wanted_of_job.push_back(std::move(found));
  }
  if (jobs.empty()) return apart;
  const std::vector<std::vector<double>> us = measured(*input_.options.meter, jobs);
  for (size_t j = 0; j < jobs.size(); ++j) {
    for (size_t i = 0; i < us[j].size(); ++i) known_[wanted_of_job[j][i]->units] = us[j][i] - wanted_of_job[j][i]->less_us;
  }
  return apart;
}

RProgram MergePrices::fastest_program(const Graph& graph) const {
  static const RKernel kNothing;
  const Dependencies found = find_dependencies(graph);
  const PolicyInput input{graph, input_.machine, found.producers, found.is_view, input_.families, input_.options};
  Unsupported unsupported;
  std::vector<std::vector<RKernel>> candidates(graph.rops.size());
  std::vector<const RKernel*> rkernels(graph.rops.size(), &kNothing);
  for (size_t i = 0; i < graph.rops.size(); ++i) {
    if (found.is_view[i]) continue;
    candidates[i] = candidates_of(input, ROperatorId(static_cast<int64_t>(i)), /*alone=*/true, unsupported);
    if (!candidates[i].empty()) rkernels[i] = &candidates[i][select::fastest(candidates[i], input_.machine)];
  }
  refuse_unsupported(input, unsupported);
  return program_to_measure(input, rkernels);
}

}  // namespace tamp::schedule
