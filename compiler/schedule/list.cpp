// The policy `list`: critical-path list scheduling of rTasks. Of the rOperators whose inputs are placed, the one with the longest way to
// the end (its upward rank: times and edges) comes next; each of its rTasks goes where it ends earliest, also into a gap between rTasks
// that are there already.
//
// From there a local search goes on as long as the simulator says that the plan ends earlier, within ScheduleOptions::search_plans
// simulated plans. It exchanges the rKernels of all rOperators of a level, or of one rOperator, and moves rOperators up or down in the
// order, along the critical path first. It begins with the best of several choices of rKernels: the wavefront policy's, and those that are
// fastest on a part of the vEUs. The wavefront policy's own plan is also among the plans that it may choose. Nothing is random: equal input
// gives an equal plan.
#include <spdlog/spdlog.h>

#include <algorithm>
#include <array>
#include <functional>
#include <limits>
#include <queue>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "compiler/schedule/choose.h"
#include "compiler/schedule/plan.h"
#include "compiler/schedule/simulate.h"
#include "compiler/schedule/timetable.h"
#include "compiler/select/records.h"
#include "compiler/support/error.h"

namespace tamp::schedule {
namespace {

constexpr double kForEver = std::numeric_limits<double>::infinity();
constexpr double kGainUs = 0.01;  // less is noise
constexpr double kMoveUs = 8;     // added to a rank: about two rOperators' way, so that neighbours change places
// Into how many parts the vEUs are cut when choosing rKernels for rOperators that run side by side. The rKernels for all vEUs (1) are done
// soonest, each by itself; those for an eighth (8) take the least time of vEUs.
constexpr std::array<int64_t, 5> kParts = {1, 2, 3, 4, 8};

// A vEU's idle times; the last one has no end.
class Gaps {
 public:
  struct Place {
    size_t gap = 0;
    double begin_us = 0;
  };

  // `early_us`: Cost::early_us.
  Place find(double ready_us, double us, double early_us = 0) const {
    const auto ends_before = [](const std::pair<double, double>& gap, double at_us) { return gap.second < at_us; };
    // Gaps are in order and apart; most often only the last one is late enough.
    const bool is_last = gaps_.size() == 1 || ends_before(gaps_[gaps_.size() - 2], ready_us + us);
    const auto first = is_last ? gaps_.end() - 1 : std::lower_bound(gaps_.begin(), gaps_.end(), ready_us + us, ends_before);
    for (size_t i = static_cast<size_t>(first - gaps_.begin()); i < gaps_.size(); ++i) {
      const double begin_us = std::max(gaps_[i].first + early_us, ready_us);
      if (begin_us + us <= gaps_[i].second) return {i, begin_us};
    }
    TAMP_CHECK(false, "a gap that ends");
  }
  // Of a gap, what remains before and after the rTask stays a gap if another rTask could fit.
  void take(const Place& place, double us, double least_us) {
    const auto [begin_us, end_us] = gaps_[place.gap];
    const auto at = gaps_.erase(gaps_.begin() + static_cast<std::ptrdiff_t>(place.gap));
    const auto behind = gaps_.insert(at, {place.begin_us + us, end_us});
    if (place.begin_us - begin_us >= least_us) {
      gaps_.insert(behind, {begin_us, place.begin_us});
    }
  }
  double begin_of(size_t gap) const { return gaps_[gap].first; }
  double last_us() const { return gaps_.back().first; }

 private:
  std::vector<std::pair<double, double>> gaps_ = {{0, kForEver}};
};

// Where and when the placed rTasks run, as this policy estimates it while placing.
class Lanes {
 public:
  explicit Lanes(const select::Machine& machine)
      : machine_(machine), edges_(edges_of(machine.vdevice)), gaps_(static_cast<size_t>(machine.vdevice.veus())) {}

  Finish insert(ROperatorId rop, const RKernel& rkernel, const std::vector<Finish>& waits) {
    if (rkernel.gang) return insert_gang(rop, rkernel, waits);
    Finish finish;
    for (size_t phase = 0; phase < rkernel.phases.size(); ++phase) {
      if (rkernel.phases[phase].rtasks == 0) continue;
      finish = insert_phase(rop, static_cast<int32_t>(phase), rkernel.phases[phase], finish.only.valid() ? std::vector{finish} : waits);
    }
    return finish;
  }

  std::vector<Placed> in_order() {
    std::stable_sort(placed_.begin(), placed_.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
    std::vector<Placed> order;
    for (const auto& [us, placed] : placed_) order.push_back(placed);
    return order;
  }

 private:
  // Assumes that the loader always has as much time before the rTask as it can use.
  double us_of(const Phase& phase) const {
    const select::RTaskCost cost = select::cost_of(phase, machine_, machine_.vdevice.veus());
    return cost.fixed_us + std::max(cost.body_us, cost.weights_us - cost.ahead_us);
  }

  // Members of a cluster go behind everything that is on its vEUs, as a gang does.
  Finish insert_clusters(ROperatorId rop, int32_t phase, const Phase& p, const std::vector<Finish>& waits) {
    const double us = us_of(p), taken_us = us + machine_.vdevice.same_veu_us + machine_.vdevice.signal_us;
    const ReadyTimes ready(p, waits, edges_);
    const auto members = static_cast<size_t>(p.cluster);
    Finish finish = begin_finish(p);
    for (int64_t index = 0; index < p.rtasks; index += p.cluster) {
      size_t chosen = 0;
      double begin_us = kForEver;
      for (size_t first = 0; first < gaps_.size(); first += members) {
        double at_us = 0;
        for (size_t m = first; m < first + members; ++m)
          at_us = std::max({at_us, gaps_[m].last_us(), ready.on(VEU(static_cast<int64_t>(m)))});
        if (at_us < begin_us) begin_us = at_us, chosen = first;
      }
      for (size_t m = 0; m < members; ++m) {
        Gaps& gaps = gaps_[chosen + m];
        gaps.take(gaps.find(begin_us, taken_us), taken_us, machine_.vdevice.rtask_us);
        note(finish, {{rop, phase, p.taken(index + static_cast<int64_t>(m))}, VEU(static_cast<int64_t>(chosen + m))}, begin_us,
             begin_us + us);
      }
    }
    return finish;
  }

  Finish insert_phase(ROperatorId rop, int32_t phase, const Phase& p, const std::vector<Finish>& waits) {
    if (p.cluster > 1) return insert_clusters(rop, phase, p, waits);
    const ShapedVDevice& d = machine_.vdevice;
    const double us = us_of(p);
    using Option = std::tuple<double, double, size_t>;  // begin; of equals the vEU that is free first, where the body can use that; vEU
    const double taken_us = us + d.same_veu_us + d.signal_us, early_us = p.cost.early_us;
    const ReadyTimes ready(p, waits, edges_);
    const auto option = [&](size_t veu) {
      const Gaps::Place place = gaps_[veu].find(ready.on(VEU(static_cast<int64_t>(veu))), taken_us, early_us);
      return Option(place.begin_us, early_us > 0 ? gaps_[veu].begin_of(place.gap) : 0, veu);
    };
    std::vector<Option> options;
    options.reserve(gaps_.size());
    for (size_t veu = 0; veu < gaps_.size(); ++veu) options.push_back(option(veu));
    if (p.rtasks > 1)
      std::make_heap(options.begin(), options.end(), std::greater<>{});
    else
      std::iter_swap(options.begin(), std::min_element(options.begin(), options.end()));
    Finish finish = begin_finish(p);
    for (int64_t index = 0; index < p.rtasks; ++index) {
      const auto [begin_us, free_us, veu] = options.front();
      gaps_[veu].take(gaps_[veu].find(begin_us, taken_us, early_us), taken_us, d.rtask_us);
      note(finish, {{rop, phase, p.taken(index)}, VEU(static_cast<int64_t>(veu))}, begin_us, begin_us + us);
      if (index + 1 < p.rtasks) replace_first(options, option(veu));
    }
    return finish;
  }

  // A gang goes behind everything that is on its vEUs: gaps are not used.
  Finish insert_gang(ROperatorId rop, const RKernel& rkernel, const std::vector<Finish>& waits) {
    std::vector<std::pair<double, size_t>> earliest;
    const ReadyTimes ready(rkernel.phases[0], waits, edges_);
    for (size_t veu = 0; veu < gaps_.size(); ++veu)
      earliest.emplace_back(std::max(gaps_[veu].last_us(), ready.on(VEU(static_cast<int64_t>(veu)))), veu);
    std::sort(earliest.begin(), earliest.end());
    const auto count = static_cast<size_t>(rkernel.rtasks());
    TAMP_CHECK(count <= earliest.size(), "a gang of more rTasks than there are vEUs");
    const double begin_us = count == 0 ? 0 : earliest[count - 1].first;
    Finish finish;
    size_t next = 0;
    for (size_t p = 0; p < rkernel.phases.size(); ++p) {
      const double us = us_of(rkernel.phases[p]) + machine_.vdevice.same_veu_us + machine_.vdevice.signal_us;
      for (int64_t index = 0; index < rkernel.phases[p].rtasks; ++index) {
        const size_t veu = earliest[next++].second;
        gaps_[veu].take(gaps_[veu].find(std::max(begin_us, gaps_[veu].last_us()), us), us, machine_.vdevice.rtask_us);
        note(finish, {{rop, static_cast<int32_t>(p), index}, VEU(static_cast<int64_t>(veu))}, begin_us, begin_us + us);
      }
    }
    return finish;
  }

  void note(Finish& finish, const Placed& placed, double begin_us, double end_us) {
    placed_.emplace_back(begin_us, placed);
    finish.at_us = std::max(finish.at_us, end_us);
    finish.many = finish.many || (finish.only.valid() && finish.only != placed.veu);
    finish.only = placed.veu;
  }

  const select::Machine& machine_;
  Edges edges_;
  std::vector<Gaps> gaps_;
  std::vector<std::pair<double, Placed>> placed_;  // with the time when it begins
};

class List {
 public:
  List(const PolicyInput& input, Plan wavefront) : input_(input), simulator_(input.machine), wavefront_(std::move(wavefront)) {}

  Plan plan() {
    collect();
    best_ = draft_of(wavefront_);
    best_us_ = simulator_.run(best_, input_.options.execution);
    const double wavefront_us = best_us_;
    plans_ = 1;
    Trial at = trial(choice_of_wavefront());
    for (const int64_t parts : kParts) {
      if (!may_try()) break;
      Choice other = at.choice;
      for (size_t i = 0; i < other.rkernel.size(); ++i) take_part(i, parts, other);
      Trial found = trial(std::move(other));
      if (found.us < at.us) at = std::move(found);
    }
    improve(std::move(at));
    if (best_us_ > worth_of(input_.options.execution) * wavefront_us) best_ = draft_of(wavefront_), best_us_ = wavefront_us;
    spdlog::info("list: {} plans simulated; by the costs that choose {:.1f} us, the wavefront policy's plan {:.1f} us", plans_, best_us_,
                 wavefront_us);
    return plan_of(best_);
  }

 private:
  // The decisions from which place() makes a plan.
  struct Choice {
    std::vector<size_t> rkernel;   // per rOperator: index in candidates_
    std::vector<double> moved_us;  // per rOperator: what is added to its rank
  };
  struct Trial {
    Choice choice;
    double us = 0;
    std::vector<size_t> path;  // rOperators of the critical path, from the end
  };

  void collect() {
    const size_t count = input_.graph.rops.size();
    Unsupported unsupported;
    alone_ = alone_of(input_);
    level_.resize(count, 0);
    candidates_.resize(count);
    front_.resize(count);
    consumers_.resize(count);
    for (size_t i = 0; i < count; ++i) {
      if (input_.is_view[i]) continue;
      candidates_[i] = candidates_of(input_, ROperatorId(static_cast<int64_t>(i)), alone_[i], unsupported);
      for (const ROperatorId producer : input_.producers[i]) {
        consumers_[producer.index()].push_back(i);
        level_[i] = std::max(level_[i], level_[producer.index()] + 1);
      }
      keep_front(i);
    }
    refuse_unsupported(input_, unsupported);
  }

  double us_of(const RKernel& rkernel) const { return select::completion_us(rkernel, input_.machine, input_.machine.vdevice.veus(), 1); }

  // Keeps the candidates for which no other candidate is as good both in time and in time x vEUs.
  void keep_front(size_t rop) {
    std::vector<std::pair<double, double>> times;
    for (const RKernel& rkernel : candidates_[rop]) times.emplace_back(us_of(rkernel), select::veu_us(rkernel, input_.machine));
    for (size_t c = 0; c < times.size(); ++c) {
      const bool beaten = std::any_of(times.begin(), times.end(), [&](const auto& t) {
        return t.first <= times[c].first && t.second <= times[c].second && t != times[c];
      });
      if (!beaten) front_[rop].push_back(c);
    }
  }

  Choice choice_of_wavefront() const {
    Choice choice{std::vector<size_t>(candidates_.size(), 0), std::vector<double>(candidates_.size(), 0)};
    for (size_t i = 0; i < candidates_.size(); ++i) {
      if (candidates_[i].empty()) continue;
      const std::string identity = select::identity(wavefront_.rkernels[i]);
      for (size_t c = 0; c < candidates_[i].size(); ++c) {
        if (select::identity(candidates_[i][c]) == identity) choice.rkernel[i] = c;
      }
    }
    return choice;
  }

  // Fills draft_.
  void place(const Choice& choice) {
    static const RKernel kNothing;
    const size_t count = candidates_.size();
    Draft& draft = draft_;
    draft.rkernels.clear();
    if (draft.waits.empty()) draft.waits = input_.producers;
    for (size_t i = 0; i < count; ++i) draft.rkernels.push_back(candidates_[i].empty() ? &kNothing : &candidates_[i][choice.rkernel[i]]);
    std::vector<double> rank_us(count, 0);
    std::vector<size_t> missing(count, 0);
    using Next = std::pair<double, int64_t>;
    std::priority_queue<Next> ready;
    for (size_t i = count; i-- > 0;) {
      for (const size_t consumer : consumers_[i]) rank_us[i] = std::max(rank_us[i], rank_us[consumer]);
      if (!candidates_[i].empty()) rank_us[i] += us_of(*draft.rkernels[i]);
    }
    for (size_t i = 0; i < count; ++i) {
      missing[i] = input_.producers[i].size();
      if (!candidates_[i].empty() && missing[i] == 0) ready.emplace(rank_us[i] + choice.moved_us[i], -static_cast<int64_t>(i));
    }
    Lanes lanes(input_.machine);
    std::vector<Finish> finish(count);
    while (!ready.empty()) {
      const auto i = static_cast<size_t>(-ready.top().second);
      ready.pop();
      std::vector<Finish> waits;
      for (const ROperatorId producer : input_.producers[i]) waits.push_back(finish[producer.index()]);
      finish[i] = lanes.insert(ROperatorId(static_cast<int64_t>(i)), *draft.rkernels[i], waits);
      for (const size_t consumer : consumers_[i]) {
        if (--missing[consumer] == 0) ready.emplace(rank_us[consumer] + choice.moved_us[consumer], -static_cast<int64_t>(consumer));
      }
    }
    draft.order = lanes.in_order();
  }

  // A rOperator that runs beside others gets the rKernel that is fastest on its part of the vEUs.
  void take_part(size_t rop, int64_t parts, Choice& choice) const {
    if (candidates_[rop].empty() || alone_[rop]) return;
    const int64_t share = std::max<int64_t>(1, input_.machine.vdevice.veus() / parts);
    choice.rkernel[rop] = select::fastest_on(candidates_[rop], input_.machine, share);
  }

  Trial trial(Choice choice) {
    ++plans_;
    place(choice);
    const double us = simulator_.run(draft_, input_.options.execution);
    Trial result{std::move(choice), us, critical_path(draft_)};
    if (us < best_us_ - kGainUs) best_ = draft_, best_us_ = us;
    return result;
  }

  // From the rOperator that ends last, back: each step goes to the producer that ends last.
  std::vector<size_t> critical_path(const Draft& draft) const {
    std::vector<double> end_us(draft.rkernels.size(), -1);
    for (const Placed& placed : draft.order)
      end_us[placed.rtask.rop.index()] = std::max(end_us[placed.rtask.rop.index()], simulator_.span_of(placed.rtask).end_us);
    std::vector<size_t> path;
    auto at = static_cast<size_t>(std::max_element(end_us.begin(), end_us.end()) - end_us.begin());
    while (at < end_us.size() && end_us[at] >= 0) {
      path.push_back(at);
      size_t before = end_us.size();
      for (const ROperatorId producer : input_.producers[at]) {
        if (before == end_us.size() || end_us[producer.index()] > end_us[before]) before = producer.index();
      }
      at = before;
    }
    return path;
  }

  bool may_try() const { return plans_ < input_.options.search_plans; }

  // Tries one change after another, on the critical path first, then elsewhere. A change that helps stays.
  void improve(Trial at) {
    bool better = true;
    while (better && may_try()) {
      better = false;
      std::vector<size_t> order = at.path;
      const std::set<size_t> in_path(at.path.begin(), at.path.end());
      for (size_t i = 0; i < candidates_.size(); ++i) {
        if (!candidates_[i].empty() && !in_path.contains(i)) order.push_back(i);
      }
      std::set<size_t> levels;
      for (const size_t rop : order) {
        if (levels.insert(level_[rop]).second) better = change_level(level_[rop], at) || better;
        better = change_rop(rop, at) || better;
        if (!may_try()) return;
      }
    }
  }

  // Tries `choice`. If the plan is better, `at` becomes the new one and the result is true.
  bool try_choice(Choice choice, Trial& at) {
    if (!may_try() || (choice.rkernel == at.choice.rkernel && choice.moved_us == at.choice.moved_us)) return false;
    Trial found = trial(std::move(choice));
    if (found.us >= at.us - kGainUs) return false;
    at = std::move(found);
    return true;
  }

  // rOperators side by side are exchanged together: an rKernel for all vEUs is of no use to one of them while the others keep to their
  // parts.
  bool change_level(size_t level, Trial& at) {
    bool better = false;
    for (const int64_t parts : kParts) {
      Choice other = at.choice;
      for (size_t i = 0; i < candidates_.size(); ++i) {
        if (level_[i] == level) take_part(i, parts, other);
      }
      better = try_choice(std::move(other), at) || better;
    }
    return better;
  }

  bool change_rop(size_t rop, Trial& at) {
    bool better = false;
    for (const size_t c : front_[rop]) {
      Choice other = at.choice;
      other.rkernel[rop] = c;
      better = try_choice(std::move(other), at) || better;
    }
    for (const double moved_us : {-kMoveUs, kMoveUs}) {
      Choice other = at.choice;
      other.moved_us[rop] += moved_us;
      better = try_choice(std::move(other), at) || better;
    }
    return better;
  }

  const PolicyInput& input_;
  Simulator simulator_;
  Plan wavefront_;
  std::vector<std::vector<RKernel>> candidates_;  // per rOperator; none: a view
  std::vector<std::vector<size_t>> front_;        // per rOperator: indices in candidates_
  std::vector<std::vector<size_t>> consumers_;
  std::vector<bool> alone_;    // per rOperator: nothing else in its wave
  std::vector<size_t> level_;  // per rOperator: length of the longest way from the inputs
  Draft draft_;                // the newest plan
  Draft best_;
  double best_us_ = 0;
  int64_t plans_ = 0;
};

}  // namespace

double worth_of(Execution execution) { return execution == Execution::graph ? 0.94 : 0.99; }

Plan list(const PolicyInput& input) { return list_from(input, wavefront(input)); }

Plan list_from(const PolicyInput& input, Plan wavefront) { return List(input, std::move(wavefront)).plan(); }

}  // namespace tamp::schedule
