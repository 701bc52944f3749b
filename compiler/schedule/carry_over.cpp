#include "compiler/schedule/carry_over.h"

#include <algorithm>
#include <cstddef>
#include <functional>
#include <map>
#include <queue>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "compiler/schedule/choose.h"
#include "compiler/schedule/clocks.h"
#include "compiler/schedule/launches.h"
#include "compiler/schedule/timetable.h"
#include "compiler/select/records.h"
#include "compiler/support/error.h"

namespace tamp::schedule {
namespace {

// What a schedule decided about one rOperator.
struct Decision {
  std::string family, rkernel;  // select::identity
  size_t stage = 0;             // between two stages everything before ends ahead of everything behind
  std::vector<double> ranks;    // per phase: its place in the order of all phases of the schedule
  Extent when{0};               // tells which rOperators are before which others
};

class Decisions {
 public:
  explicit Decisions(const RProgram& program) : program_(program), of_rop_(program.rkernels.size()) {
    for (size_t i = 0; i < of_rop_.size(); ++i) {
      const RKernel& rkernel = program.rkernels[i];
      if (rkernel.phases.empty()) continue;  // a view
      of_rop_[i].family = rkernel.family;
      of_rop_[i].rkernel = select::identity(rkernel);
      of_rop_[i].ranks.assign(rkernel.phases.size(), 0);
    }
    find_ranks();
    find_stages();
  }

  std::map<std::string, Decision> by_name() && {
    std::map<std::string, Decision> out;
    for (size_t i = 0; i < of_rop_.size(); ++i) {
      if (!of_rop_[i].rkernel.empty()) out.try_emplace(program_.graph.rops[i].name, std::move(of_rop_[i]));
    }
    return out;
  }

 private:
  // Ranks are the order in which the phases' first rTasks begin in the simulation; launches have an order already.
  void find_ranks() {
    std::vector<std::tuple<double, int64_t, int32_t>> begins;
    if (program_.launches) {
      for (const PhaseLaunch& launch : *program_.launches)
        begins.emplace_back(static_cast<double>(begins.size()), launch.rop.value, launch.phase);
    } else {
      const Timeline timeline = schedule::timeline(program_);
      std::map<std::pair<int64_t, int32_t>, double> first;
      for (size_t veu = 0; veu < program_.lanes.size(); ++veu) {
        for (size_t i = 0; i < program_.lanes[veu].size(); ++i) {
          const RTask& rtask = program_.lanes[veu][i].rtask;
          if (!rtask.rop.valid()) continue;
          const double begin_us = timeline.lanes[veu][i].begin_us;
          const auto [at, is_new] = first.try_emplace({rtask.rop.value, rtask.phase}, begin_us);
          at->second = std::min(at->second, begin_us);
        }
      }
      for (const auto& [step, begin_us] : first) begins.emplace_back(begin_us, step.first, step.second);
      std::sort(begins.begin(), begins.end());
    }
    for (size_t n = 0; n < begins.size(); ++n) {
      const auto [begin, rop, phase] = begins[n];
      of_rop_[static_cast<size_t>(rop)].ranks[static_cast<size_t>(phase)] = static_cast<double>(n + 1);
    }
  }

  static double first_rank(const Decision& decision) {
    double first = 0;
    for (const double rank : decision.ranks) first = first == 0 || (rank > 0 && rank < first) ? rank : first;
    return first;
  }

  void find_stages() {
    const RProgram in_order = with_lanes_in_order(program_);
    const Clocks clocks(in_order);
    TAMP_CHECK(clocks.is_complete(), "a schedule that cannot end");
    std::vector<Extent> extents(of_rop_.size(), Extent(in_order.lanes.size()));
    for (const At at : clocks.order()) {
      const ROperatorId rop = in_order.lanes[static_cast<size_t>(at.veu)][static_cast<size_t>(at.position)].rtask.rop;
      if (rop.valid()) extents[rop.index()].add(at, clocks);
    }
    std::vector<size_t> rops;
    for (size_t i = 0; i < of_rop_.size(); ++i) {
      if (first_rank(of_rop_[i]) > 0) rops.push_back(i);
    }
    std::sort(rops.begin(), rops.end(), [&](size_t a, size_t b) { return first_rank(of_rop_[a]) < first_rank(of_rop_[b]); });
    std::vector<Extent> behind(rops.size(), Extent(in_order.lanes.size()));
    for (size_t k = rops.size(); k-- > 0;) {
      if (k + 1 < rops.size()) behind[k] = behind[k + 1];
      behind[k].add(extents[rops[k]]);
    }
    Extent before(in_order.lanes.size());
    size_t stage = 0;
    for (size_t k = 0; k < rops.size(); ++k) {
      if (k > 0 && before.before(behind[k])) ++stage;
      before.add(extents[rops[k]]);
      of_rop_[rops[k]].stage = stage;
      of_rop_[rops[k]].when = std::move(extents[rops[k]]);
    }
  }

  const RProgram& program_;
  std::vector<Decision> of_rop_;
};

class CarryOver {
 public:
  CarryOver(const RProgram& from, const PolicyInput& to) : from_(from), to_(to), decisions_(Decisions(from).by_name()) {}

  Plan plan() {
    choose();
    find_stages();
    place();
    if (from_.launches && to_.options.execution == Execution::graph) name_stages();
    return std::move(plan_);
  }

 private:
  void choose() {
    const size_t count = to_.graph.rops.size();
    // The same costs as the policy that made the schedule had.
    const std::vector<bool> alone = from_.policy == name_of(Policy::sequential) ? std::vector<bool>(count, true) : alone_of(to_);
    Unsupported unsupported;
    plan_.rkernels.resize(count);
    decision_.assign(count, nullptr);
    for (size_t i = 0; i < count; ++i) {
      if (to_.is_view[i]) continue;
      std::vector<RKernel> found = candidates_of(to_, ROperatorId(static_cast<int64_t>(i)), alone[i], unsupported);
      if (found.empty()) continue;
      const auto decided = decisions_.find(to_.graph.rops[i].name);
      if (decided != decisions_.end()) decision_[i] = &decided->second;
      keep_nearest(found, decision_[i]);
      plan_.rkernels[i] = std::move(found[select::fastest(found, to_.machine)]);
    }
    refuse_unsupported(to_, unsupported);
  }

  // Keeps the rKernel that was decided on. Where that is no candidate, all of its family are kept; where there are none of these, all.
  static void keep_nearest(std::vector<RKernel>& found, const Decision* decision) {
    if (!decision) return;
    for (const bool exactly : {true, false}) {
      const auto fits = [&](const RKernel& rkernel) {
        return exactly ? select::identity(rkernel) == decision->rkernel : rkernel.family == decision->family;
      };
      if (std::none_of(found.begin(), found.end(), fits)) continue;
      std::erase_if(found, [&](const RKernel& rkernel) { return !fits(rkernel); });
      return;
    }
  }

  // A rOperator that is not in the schedule gets the latest stage and the highest rank of the rOperators that it needs.
  void find_stages() {
    const size_t count = to_.graph.rops.size();
    stage_.assign(count, 0);
    rank_.assign(count, 0);
    std::map<size_t, std::vector<ROperatorId>> members;
    for (size_t i = 0; i < count; ++i) {
      if (decision_[i]) stage_[i] = decision_[i]->stage, rank_[i] = decision_[i]->ranks.front();
      for (const ROperatorId producer : to_.producers[i]) {
        stage_[i] = std::max(stage_[i], stage_[producer.index()]);
        if (!decision_[i]) rank_[i] = std::max(rank_[i], rank_[producer.index()]);
      }
      if (!to_.is_view[i] && plan_.rkernels[i].rtasks() > 0) members[stage_[i]].push_back(ROperatorId(static_cast<int64_t>(i)));
    }
    plan_.waits = to_.producers;
    const std::vector<ROperatorId>* before = nullptr;
    for (const auto& [stage, rops] : members) {
      for (const ROperatorId rop : rops) {
        auto& waits = plan_.waits[rop.index()];
        if (before) waits.insert(waits.end(), before->begin(), before->end());
        std::sort(waits.begin(), waits.end());
        waits.erase(std::unique(waits.begin(), waits.end()), waits.end());
      }
      before = &rops;
    }
  }

  double rank_of(size_t rop, size_t phase) const {
    if (!decision_[rop]) return rank_[rop];
    const auto& ranks = decision_[rop]->ranks;
    return ranks[std::min(phase, ranks.size() - 1)];
  }

  // Places phase after phase, by stage and then by rank; a phase whose producers are not placed yet waits for them.
  void place() {
    const size_t count = to_.graph.rops.size();
    std::vector<std::vector<size_t>> awaited_by(count);
    std::vector<size_t> missing(count, 0);
    using Next = std::tuple<size_t, double, size_t, size_t>;  // stage, rank, rOperator, phase
    std::priority_queue<Next, std::vector<Next>, std::greater<>> ready;
    for (size_t i = 0; i < count; ++i) {
      for (const ROperatorId wait : plan_.waits[i]) awaited_by[wait.index()].push_back(i);
      missing[i] = plan_.waits[i].size();
    }
    for (size_t i = 0; i < count; ++i) {
      if (missing[i] == 0) ready.emplace(stage_[i], rank_of(i, 0), i, 0);
    }
    Timetable timetable(to_.machine);
    std::vector<Finish> finish(count);
    while (!ready.empty()) {
      const auto [stage, rank, rop, phase] = ready.top();
      ready.pop();
      const RKernel& rkernel = plan_.rkernels[rop];
      append(timetable, rop, phase, finish);
      if (!rkernel.gang && phase + 1 < rkernel.phases.size()) {
        ready.emplace(stage, rank_of(rop, phase + 1), rop, phase + 1);
        continue;
      }
      for (const size_t next : awaited_by[rop]) {
        if (--missing[next] == 0) ready.emplace(stage_[next], rank_of(next, 0), next, 0);
      }
    }
    plan_.order = timetable.take_appended();
  }

  void append(Timetable& timetable, size_t rop, size_t phase, std::vector<Finish>& finish) const {
    const RKernel& rkernel = plan_.rkernels[rop];
    if (rkernel.phases.empty()) return;
    const ROperatorId id(static_cast<int64_t>(rop));
    std::vector<Finish> waits;
    for (const ROperatorId wait : plan_.waits[rop]) waits.push_back(finish[wait.index()]);
    if (rkernel.gang) {
      finish[rop] = timetable.append_gang(id, rkernel, waits);
      return;
    }
    if (rkernel.phases[phase].rtasks == 0) return;
    if (finish[rop].only.valid()) waits = {finish[rop]};
    finish[rop] = timetable.append_phase(id, static_cast<int32_t>(phase), rkernel, waits, rkernel.phases[phase].rtasks);
  }

  // For graph execution: the groups of a stage are its connected components. Where one of these did not run in a row, the schedule had no
  // groups, and no stages but those of the network itself.
  void name_stages() {
    std::vector<size_t> position(to_.graph.rops.size(), plan_.order.size());
    for (size_t n = plan_.order.size(); n-- > 0;) position[plan_.order[n].rtask.rop.index()] = n;
    std::map<size_t, std::vector<ROperatorId>> members;
    for (size_t i = 0; i < position.size(); ++i) {
      if (position[i] < plan_.order.size()) members[stage_[i]].push_back(ROperatorId(static_cast<int64_t>(i)));
    }
    for (auto& [number, rops] : members) {
      std::sort(rops.begin(), rops.end(), [&](ROperatorId a, ROperatorId b) { return position[a.index()] < position[b.index()]; });
      Stage stage = groups_of(rops, number);
      for (const Group& group : stage) {
        for (size_t k = 1; k < group.size(); ++k) {
          if (was_before(group[k - 1], group[k])) continue;
          plan_.stages.clear();
          return;
        }
      }
      plan_.stages.push_back(std::move(stage));
    }
  }

  bool was_before(ROperatorId a, ROperatorId b) const {
    if (const auto& first = decision_[a.index()], &second = decision_[b.index()]; first && second) return first->when.before(second->when);
    const auto& needs = to_.producers[b.index()];
    return std::find(needs.begin(), needs.end(), a) != needs.end();
  }

  Stage groups_of(const std::vector<ROperatorId>& rops, size_t number) const {
    Stage groups;
    for (const ROperatorId rop : rops) {
      const auto& needs = to_.producers[rop.index()];
      Group joined;
      std::erase_if(groups, [&](const Group& group) {
        const bool is_needed = std::any_of(group.begin(), group.end(),
                                           [&](ROperatorId id) { return std::find(needs.begin(), needs.end(), id) != needs.end(); });
        if (is_needed) joined.insert(joined.end(), group.begin(), group.end());
        return is_needed;
      });
      TAMP_CHECK(stage_[rop.index()] == number, "a rOperator of another stage");
      joined.push_back(rop);
      groups.push_back(std::move(joined));
    }
    return groups;
  }

  const RProgram& from_;
  const PolicyInput& to_;
  const std::map<std::string, Decision> decisions_;
  std::vector<const Decision*> decision_;  // per rOperator; none: not in the schedule, or a view
  std::vector<size_t> stage_;
  std::vector<double> rank_;
  Plan plan_;
};

}  // namespace

Plan carry_over(const RProgram& from, const PolicyInput& to) { return CarryOver(from, to).plan(); }

Carried carried(const RProgram& from, const RProgram& to) {
  std::map<std::string, const RKernel*> was;
  for (size_t i = 0; i < from.rkernels.size(); ++i) {
    if (!from.rkernels[i].phases.empty()) was.try_emplace(from.graph.rops[i].name, &from.rkernels[i]);
  }
  Carried counts;
  for (size_t i = 0; i < to.rkernels.size(); ++i) {
    const RKernel& is = to.rkernels[i];
    if (is.phases.empty()) continue;
    const auto found = was.find(to.graph.rops[i].name);
    if (found == was.end())
      ++counts.unknown;
    else if (select::identity(*found->second) == select::identity(is))
      ++counts.same;
    else
      ++(found->second->family == is.family ? counts.family : counts.other);
  }
  return counts;
}

}  // namespace tamp::schedule
