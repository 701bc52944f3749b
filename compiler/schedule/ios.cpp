// The policies `ios`, `ios-merge` and `ios-parallel`. They cut a network into stages, one after another. The rOperators of a stage run
// beside each other in groups, or are merged into one. The stages are found by the dynamic programme of IOS (ios_search.h) with the
// simulator's prices (ios_prices.h, ios_merge.h). To keep the search small, a network is cut into blocks at the rOperators that every other
// rOperator is before or behind, a block into parts of at most ScheduleOptions::ios.part_units, and a part that would take too long to
// search into halves.
//
// In graph execution the stages are as IOS means them: one behind the other, each group a stream. In the persistent kernel they are only an
// order: a rOperator begins when its data are there.
//
// A merge changes the graph, and so where tensors lie. So a first search says which convolutions to merge, the graph is made anew with
// these merges, and its stages are found like those of any graph. If that plan takes longer than a plan of the unmerged graph, nothing is
// merged.
#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <bit>
#include <chrono>
#include <limits>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "compiler/schedule/dependencies.h"
#include "compiler/schedule/ios_merge.h"
#include "compiler/schedule/ios_prices.h"
#include "compiler/schedule/ios_search.h"
#include "compiler/schedule/plan.h"
#include "compiler/support/error.h"

namespace tamp::schedule {
namespace {

// Limits for the search of one part; a part beyond them is halved. The first limit is a second or so of search, the second one of prices.
constexpr IosLimits kLimits{.transitions = 1'000'000, .stages = 20'000};

class Stopwatch {
 public:
  double seconds() const { return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin_).count(); }

 private:
  std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
};

class Ios {
 public:
  Ios(const PolicyInput& input, KnownTimes& known) : input_(input), prices_(input, known) {}

  // Sum of the times of the last plan's stages, each priced by itself.
  double stages_us() const { return stages_us_; }

  Plan stages() {
    const Stopwatch stopwatch;
    search(IosEndings::groups);
    Plan plan = place(found_);
    spdlog::info("ios: {} rOperators in {} parts of {} blocks, {} stages; {} ({:.1f} s)", prices_.units().size(), parts_, blocks_,
                 found_.size(), counts_text(), stopwatch.seconds());
    return plan;
  }

  // A plan with a stage for each unit.
  Plan singles() {
    std::vector<UnitStage> stages;
    for (size_t unit = 0; unit < prices_.units().size(); ++unit) stages.push_back({{unit}});
    return place(stages);
  }

  // The merges that a search chooses when it may choose any.
  std::vector<Merge> merges(IosEndings endings) {
    const Stopwatch stopwatch;
    merging_.emplace(input_, prices_);
    const int64_t asked = prices_.asked();
    search(endings);
    size_t convolutions = 0;
    for (const Merge& merge : merges_) convolutions += merge.size();
    spdlog::info("ios: {} parts with convolutions on the same input; {}, {} of them as merges; {} convolutions become {} ({:.1f} s)",
                 parts_, counts_text(asked), merging_->asked(), convolutions, merges_.size(), stopwatch.seconds());
    merging_.reset();
    return std::move(merges_);
  }

 private:
  std::string counts_text(int64_t asked_before = 0) const {
    return fmt::format("{} states, {} transitions, {} stages looked at, {} priced", counts_.states, counts_.transitions, counts_.stages,
                       prices_.asked() - asked_before + (merging_ ? merging_->asked() : 0));
  }

  // With a meter the search is made twice. Which stages are priced does not depend on their prices, so the first time finds all that must
  // be measured.
  void search(IosEndings endings) {
    if (input_.options.meter) {
      prices_.gather();
      if (merging_) merging_->gather();
      search_once(endings);
      prices_.measure_gathered();
      if (merging_) merging_->measure_gathered();
      known_parts_.clear();
    }
    search_once(endings);
  }

  void search_once(IosEndings endings) {
    counts_ = {};
    blocks_ = parts_ = 0;
    found_.clear();
    merges_.clear();
    size_t begin = 0;
    const size_t count = prices_.units().size();
    std::vector<size_t> ends;
    for (const size_t cut : cut_units(prices_.needs())) ends.push_back(cut + 1);
    if (ends.empty() || ends.back() != count) ends.push_back(count);
    const size_t part_units = std::clamp<size_t>(static_cast<size_t>(input_.options.ios.part_units), 1, kMostUnits);
    for (const size_t end : ends) {
      ++blocks_;
      for (; begin < end; begin = std::min(end, begin + part_units)) search_part(begin, std::min(end, begin + part_units), endings);
      begin = end;
    }
  }

  // Searches with merges only where there is something to merge.
  void search_part(size_t begin, size_t end, IosEndings endings) {
    if (begin == end) return;
    UnitGraph graph(end - begin, edges_of(begin, end));
    if (merging_ && !mark_kin(graph, begin, end)) return;
    const auto units_in = [&](const std::vector<Units>& groups) {
      UnitStage stage;
      for (Units group : groups) {
        stage.emplace_back();
        for (; group != 0; group &= group - 1) stage.back().push_back(begin + static_cast<size_t>(std::countr_zero(group)));
      }
      return stage;
    };
    const auto prices = [&](const std::vector<std::vector<Units>>& stages) {
      std::vector<double> us(stages.size(), std::numeric_limits<double>::infinity());
      std::vector<size_t> apart;
      std::vector<UnitStage> units_apart;
      for (size_t i = 0; i < stages.size(); ++i) {
        const bool one = merging_ && may_be_one(graph, stages[i]);
        if (one) us[i] = merging_->of(flat(units_in(stages[i])));
        if (one && endings == IosEndings::merges) continue;
        apart.push_back(i);
        units_apart.push_back(units_in(stages[i]));
      }
      const std::vector<StageTime> times = prices_.of_all(units_apart);
      for (size_t k = 0; k < apart.size(); ++k) us[apart[k]] = std::min(us[apart[k]], times[k].us);
      return us;
    };
    const auto search = [&] { return search_stages(graph, input_.options.ios.pruning, prices, kLimits, endings); };
    // For merges, units of the same kind are not interchangeable, since a merge names its rOperators; so known results are not used.
    const std::optional<IosResult> result = merging_ ? search() : known_or(begin, end, search);
    if (!result) {
      TAMP_CHECK(end - begin > 1, "a search of one rOperator is too large");
      const size_t middle = begin + (end - begin) / 2;
      search_part(begin, middle, endings);
      search_part(middle, end, endings);
      return;
    }
    ++parts_;
    counts_.states += result->counts.states;
    counts_.transitions += result->counts.transitions;
    counts_.stages += result->counts.stages;
    for (const Units units : result->stages) {
      const std::vector<Units> groups = graph.components(units);
      found_.push_back(units_in(groups));
      if (!merging_ || !may_be_one(graph, groups)) continue;
      const std::vector<size_t> members = flat(found_.back());
      if (endings == IosEndings::merges || merging_->of(members) < prices_.of(found_.back()).us)
        merges_.push_back(merging_->names_of(members));
    }
  }

  // Networks repeat themselves. Parts whose units have the same kinds and need each other in the same way have the same stages.
  std::optional<IosResult> known_or(size_t begin, size_t end, const auto& search) {
    std::vector<int64_t> structure;
    for (size_t unit = begin; unit < end; ++unit) {
      structure.push_back(prices_.kinds()[unit]);
      for (const size_t need : prices_.needs()[unit]) {
        if (need >= begin) structure.push_back(-1 - static_cast<int64_t>(need - begin));
      }
    }
    const auto found = known_parts_.find(structure);
    if (found != known_parts_.end()) return found->second;
    return known_parts_.emplace(std::move(structure), search()).first->second;
  }

  std::vector<std::pair<size_t, size_t>> edges_of(size_t begin, size_t end) const {
    std::vector<std::pair<size_t, size_t>> edges;
    for (size_t unit = begin; unit < end; ++unit) {
      for (const size_t need : prices_.needs()[unit]) {
        if (need >= begin) edges.emplace_back(need - begin, unit - begin);
      }
    }
    return edges;
  }

  // Tells the graph which units may be merged; whether there are any.
  bool mark_kin(UnitGraph& graph, size_t begin, size_t end) const {
    const std::vector<int64_t>& classes = merging_->classes();
    bool any = false;
    for (size_t unit = begin; unit < end; ++unit) {
      Units kin = 0;
      for (size_t other = begin; other < end; ++other) {
        if (other == unit || (classes[unit] >= 0 && classes[other] == classes[unit])) kin |= Units{1} << (other - begin);
      }
      any = any || std::popcount(kin) > 1;
      graph.set_kin(unit - begin, kin);
    }
    return any;
  }

  static bool may_be_one(const UnitGraph& graph, const std::vector<Units>& groups) {
    const Units kin = graph.kin(static_cast<size_t>(std::countr_zero(groups[0])));
    return groups.size() > 1 &&
           std::all_of(groups.begin(), groups.end(), [&](Units group) { return std::has_single_bit(group) && (group & kin) != 0; });
  }

  static std::vector<size_t> flat(const UnitStage& stage) {
    std::vector<size_t> units;
    for (const auto& group : stage) units.insert(units.end(), group.begin(), group.end());
    return units;
  }

  Plan place(const std::vector<UnitStage>& stages) {
    static const RKernel kNothing;
    const std::vector<StageTime> times = prices_.of_all(stages);
    stages_us_ = 0;
    Draft draft;
    draft.rkernels.assign(input_.graph.rops.size(), &kNothing);
    draft.waits = input_.producers;
    Timetable timetable(input_.machine);
    std::vector<Finish> finish(draft.rkernels.size());
    for (size_t s = 0; s < stages.size(); ++s) {
      const UnitStage& units = stages[s];
      const int64_t share = times[s].share;
      stages_us_ += times[s].us;
      Stage stage, named;
      for (const auto& group : units) {
        stage.emplace_back();
        Group with_rtasks;
        for (const size_t unit : group) {
          const ROperatorId id = prices_.units()[unit];
          draft.rkernels[id.index()] = &prices_.rkernel_for(unit, share);
          stage.back().push_back(id);
          if (draft.rkernels[id.index()]->rtasks() > 0) with_rtasks.push_back(id);
        }
        if (!with_rtasks.empty()) named.push_back(std::move(with_rtasks));
      }
      append_stage(timetable, stage, draft, input_.machine, finish);
      if (!named.empty()) draft.stages.push_back(std::move(named));
    }
    draft.order = timetable.take_appended();
    return plan_of(draft);
  }

  const PolicyInput& input_;
  StagePrices prices_;
  std::optional<MergePrices> merging_;  // while merges are looked for
  std::map<std::vector<int64_t>, std::optional<IosResult>> known_parts_;
  std::vector<UnitStage> found_;
  std::vector<Merge> merges_;
  IosCounts counts_;
  int64_t blocks_ = 0, parts_ = 0;
  double stages_us_ = 0;
};

Plan plan_with(Ios& ios, IosEndings endings) { return endings == IosEndings::merges ? ios.singles() : ios.stages(); }

Planned plan_merged(const PolicyInput& input, IosEndings endings) {
  const Stopwatch stopwatch;
  KnownTimes known;
  Ios as_it_is(input, known);
  Planned planned{{}, std::nullopt, plan_with(as_it_is, endings)};
  std::vector<Merge> merges = as_it_is.merges(endings);
  if (merges.empty()) return planned;

  Graph graph = input.options.merger->merged(merges);
  const Dependencies found = find_dependencies(graph);
  const select::Machine machine = select::machine_for(graph, input.machine.vdevice, input.machine.precision);
  const PolicyInput other{graph, machine, found.producers, found.is_view, input.families, input.options};
  Ios merged(other, known);
  Plan plan = plan_with(merged, endings);
  const Execution execution = input.options.execution;
  const bool is_measured = input.options.meter != nullptr;
  const double us = is_measured ? merged.stages_us() : Simulator(machine).run(plan, execution);
  const double unmerged_us = is_measured ? as_it_is.stages_us() : Simulator(input.machine).run(planned.plan, execution);
  spdlog::info("ios: {} {:.1f} us with merged convolutions, {:.1f} us without: {} ({:.1f} s)", is_measured ? "measured" : "estimated", us,
               unmerged_us, us < unmerged_us ? "merged" : "not merged", stopwatch.seconds());
  if (us < unmerged_us) planned = {std::move(merges), std::move(graph), std::move(plan)};
  return planned;
}

}  // namespace

Plan ios(const PolicyInput& input) {
  KnownTimes known;
  return Ios(input, known).stages();
}

Plan ios_merge(const PolicyInput& input) {
  KnownTimes known;
  return Ios(input, known).singles();
}

Planned ios_merged(const PolicyInput& input) { return plan_merged(input, IosEndings::groups); }
Planned ios_merge_merged(const PolicyInput& input) { return plan_merged(input, IosEndings::merges); }

}  // namespace tamp::schedule
