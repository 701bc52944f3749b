// The policy `ios`: stages of rOperators that run beside each other in groups, by the dynamic programme of IOS (ios_search.h). A network is
// cut into blocks at rOperators that everything else is before or behind, a block into parts of at most ScheduleOptions::ios.part_units,
// and a part that would take too long to search into halves. A stage costs what the simulator says of it alone, behind an edge; stages of
// the same rOperators (select::signature) needing each other alike are priced once.
//
// In graph execution the stages are as IOS means them: one behind the other, each group a stream. In the persistent kernel they are an
// order: a stage ends where its data are needed.
#include <spdlog/spdlog.h>

#include <algorithm>
#include <bit>
#include <chrono>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "compiler/schedule/choose.h"
#include "compiler/schedule/ios_search.h"
#include "compiler/schedule/plan.h"
#include "compiler/schedule/simulate.h"
#include "compiler/schedule/timetable.h"
#include "compiler/select/records.h"
#include "compiler/support/error.h"

namespace tamp::schedule {
namespace {

// Of a part; beyond them it is halved. The first is a second or so of search, the second of prices.
constexpr int64_t kMostTransitions = 1'000'000;
constexpr int64_t kMostStages = 20'000;

class Ios {
 public:
  explicit Ios(const PolicyInput& input) : input_(input), simulator_(input.machine) {
    source_.phases.emplace_back();
    source_.phases.back().rtasks = 1;
  }

  Plan plan() {
    const auto begin = std::chrono::steady_clock::now();
    collect_units();
    search();
    Plan plan = place_all();
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    spdlog::info(
        "ios: {} rOperators in {} parts of {} blocks, {} stages; {} states, {} transitions, {} stages looked at, {} priced ({:.1f} s)",
        units_.size(), parts_, blocks_, stages_.size(), counts_.states, counts_.transitions, counts_.stages, prices_.size(), seconds);
    return plan;
  }

 private:
  struct Priced {
    double us = 0;
    int64_t share = 0;  // vEUs for which each rOperator's rKernel is the fastest
  };

  // All that are to be scheduled, and what each of them needs, as numbers of units.
  void collect_units() {
    Unsupported unsupported;
    const std::vector<bool> alone = alone_of(input_);
    unit_of_.assign(input_.graph.rops.size(), 0);
    for (size_t i = 0; i < input_.graph.rops.size(); ++i) {
      if (input_.is_view[i]) continue;
      const ROperatorId id(static_cast<int64_t>(i));
      candidates_.push_back(candidates_of(input_, id, alone[i], unsupported));
      unit_of_[i] = units_.size();
      units_.push_back(id);
      needs_.emplace_back();
      for (const ROperatorId producer : input_.producers[i]) needs_.back().push_back(unit_of_[producer.index()]);
      const std::string signature = select::signature(input_.graph, input_.graph.rops[i]);
      kinds_.push_back(static_cast<int64_t>(kind_of_.try_emplace(signature, kind_of_.size()).first->second));
    }
    unsupported.raise(input_);
    chosen_.resize(units_.size());
  }

  void search() {
    size_t begin = 0;
    std::vector<size_t> ends;
    for (const size_t cut : cut_units(needs_)) ends.push_back(cut + 1);
    if (ends.empty() || ends.back() != units_.size()) ends.push_back(units_.size());
    const size_t part_units = std::clamp<size_t>(static_cast<size_t>(input_.options.ios.part_units), 1, kMostUnits);
    for (const size_t end : ends) {
      ++blocks_;
      for (; begin < end; begin = std::min(end, begin + part_units)) search_part(begin, std::min(end, begin + part_units));
      begin = end;
    }
  }

  void search_part(size_t begin, size_t end) {
    if (begin == end) return;
    std::vector<std::pair<size_t, size_t>> edges;
    for (size_t unit = begin; unit < end; ++unit) {
      for (const size_t need : needs_[unit]) {
        if (need >= begin) edges.emplace_back(need - begin, unit - begin);
      }
    }
    const UnitGraph graph(end - begin, edges);
    // The search without prices first: it is most of the work to find that there is too much of it.
    const auto size = search_stages(
        graph, input_.options.ios.pruning, [](const auto&) { return 1.0; }, kMostTransitions);
    if ((!size || size->counts.stages > kMostStages) && end - begin > 1) {
      const size_t middle = begin + (end - begin) / 2;
      search_part(begin, middle);
      search_part(middle, end);
      return;
    }
    const auto units_in = [&](const std::vector<Units>& groups) {
      std::vector<std::vector<size_t>> stage;
      for (Units group : groups) {
        stage.emplace_back();
        for (; group != 0; group &= group - 1) stage.back().push_back(begin + static_cast<size_t>(std::countr_zero(group)));
      }
      return stage;
    };
    const auto price = [&](const std::vector<Units>& groups) { return price_of(units_in(groups)).us; };
    const auto found = search_stages(graph, input_.options.ios.pruning, price, kMostTransitions);
    TAMP_CHECK(found.has_value(), "a search that was small enough");
    ++parts_;
    counts_.states += found->counts.states;
    counts_.transitions += found->counts.transitions;
    counts_.stages += found->counts.stages;
    for (const Units stage : found->stages) {
      stages_.push_back(units_in(graph.components(stage)));
      const int64_t share = price_of(stages_.back()).share;
      for (const auto& group : stages_.back()) {
        for (const size_t unit : group) chosen_[unit] = &rkernel_for(unit, share);
      }
    }
  }

  using UnitStage = std::vector<std::vector<size_t>>;

  const RKernel& rkernel_for(size_t unit, int64_t share) {
    const int64_t all = input_.machine.vdevice.veus();
    const auto [at, is_new] = by_share_.try_emplace({unit, share}, 0);
    if (is_new) {
      const auto& found = candidates_[unit];
      at->second = share == all ? select::fastest(found, input_.machine) : select::fastest_on(found, input_.machine, share);
    }
    return candidates_[unit][at->second];
  }

  // What tells stages apart that take different times: the kinds of their rOperators, and who of them needs whom.
  std::vector<int64_t> structure_of(const UnitStage& stage) const {
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

  Priced price_of(const UnitStage& stage) {
    const auto [at, is_new] = prices_.try_emplace(structure_of(stage));
    if (!is_new) return at->second;
    const int64_t all = input_.machine.vdevice.veus();
    Priced best{simulate_stage(stage, all), all};
    const int64_t part = std::max<int64_t>(1, all / static_cast<int64_t>(stage.size()));
    if (part < all) {
      const double us = simulate_stage(stage, part);
      if (us < best.us) best = {us, part};
    }
    return at->second = best;
  }

  // Behind a rTask that all of the stage waits for: from its end to that of the stage.
  double simulate_stage(const UnitStage& stage, int64_t share) {
    Draft draft;
    std::map<size_t, int64_t> number_of;  // rOperator of the draft; 0 is the one before
    draft.rkernels.push_back(&source_);
    draft.waits.emplace_back();
    std::vector<const RKernel*> rkernels;
    for (const auto& group : stage) {
      for (const size_t unit : group) {
        number_of[unit] = static_cast<int64_t>(draft.rkernels.size());
        draft.rkernels.push_back(&rkernel_for(unit, share));
        draft.waits.emplace_back();
        for (const size_t need : needs_[unit]) {
          if (const auto inside = number_of.find(need); inside != number_of.end())
            draft.waits.back().push_back(ROperatorId(inside->second));
        }
        draft.waits.back().push_back(ROperatorId(0));
      }
    }
    Timetable timetable(input_.machine);
    std::vector<Finish> finish(draft.rkernels.size());
    finish[0] = timetable.append(ROperatorId(0), source_, {});
    append_stage(
        timetable, stage, [&](size_t unit) { return ROperatorId(number_of.at(unit)); }, draft, finish);
    draft.order = timetable.take_appended();
    const VDevice& d = input_.machine.vdevice;
    return simulator_.run(draft, input_.options.execution) - d.launch_us - d.rtask_us;
  }

  // The first rOperators of all groups, those with most to do first, then the second of all, ...
  template <class Id>
  void append_stage(Timetable& timetable, const UnitStage& stage, const Id& id_of, const Draft& draft, std::vector<Finish>& finish) const {
    size_t longest = 0;
    for (const auto& group : stage) longest = std::max(longest, group.size());
    for (size_t k = 0; k < longest; ++k) {
      std::vector<std::pair<double, ROperatorId>> row;
      int64_t rtasks = 0;
      for (const auto& group : stage) {
        if (k >= group.size()) continue;
        const ROperatorId id = id_of(group[k]);
        const RKernel& rkernel = *draft.rkernels[id.index()];
        row.emplace_back(-select::veu_us(rkernel, input_.machine), id);
        rtasks += widest(rkernel);
      }
      std::sort(row.begin(), row.end());
      for (const auto& [us, id] : row) {
        std::vector<Finish> waits;
        for (const ROperatorId producer : draft.waits[id.index()]) waits.push_back(finish[producer.index()]);
        const RKernel& rkernel = *draft.rkernels[id.index()];
        finish[id.index()] = timetable.append(id, rkernel, waits, rtasks - widest(rkernel));
      }
    }
  }

  static int64_t widest(const RKernel& rkernel) {
    if (rkernel.gang) return rkernel.rtasks();
    int64_t most = 0;
    for (const Phase& phase : rkernel.phases) most = std::max(most, phase.rtasks);
    return most;
  }

  Plan place_all() {
    static const RKernel kNothing;
    Draft draft;
    draft.rkernels.assign(input_.graph.rops.size(), &kNothing);
    draft.waits = input_.producers;
    for (size_t unit = 0; unit < units_.size(); ++unit) draft.rkernels[units_[unit].index()] = chosen_[unit];
    Timetable timetable(input_.machine);
    std::vector<Finish> finish(draft.rkernels.size());
    for (const UnitStage& stage : stages_) {
      append_stage(
          timetable, stage, [&](size_t unit) { return units_[unit]; }, draft, finish);
      Stage named;
      for (const auto& group : stage) {
        Group ids;
        for (const size_t unit : group) {
          if (chosen_[unit]->rtasks() > 0) ids.push_back(units_[unit]);
        }
        if (!ids.empty()) named.push_back(std::move(ids));
      }
      if (!named.empty()) draft.stages.push_back(std::move(named));
    }
    draft.order = timetable.take_appended();
    return plan_of(draft);
  }

  const PolicyInput& input_;
  Simulator simulator_;
  RKernel source_;                  // one rTask that does nothing
  std::vector<ROperatorId> units_;  // in the order of the graph
  std::vector<size_t> unit_of_;     // per rOperator
  std::vector<std::vector<size_t>> needs_;
  std::vector<std::vector<RKernel>> candidates_;
  std::vector<int64_t> kinds_;  // equal for rOperators that run alike
  std::map<std::string, size_t> kind_of_;
  std::map<std::pair<size_t, int64_t>, size_t> by_share_;
  std::map<std::vector<int64_t>, Priced> prices_;
  std::vector<UnitStage> stages_;
  std::vector<const RKernel*> chosen_;  // per unit
  IosCounts counts_;
  int64_t blocks_ = 0, parts_ = 0;
};

}  // namespace

Plan ios(const PolicyInput& input) { return Ios(input).plan(); }

}  // namespace tamp::schedule
