#include "compiler/schedule/timetable.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <tuple>

#include "compiler/support/error.h"

namespace tamp::schedule {

Edges edges_of(const ShapedVDevice& d) { return {d.same_veu_us, d.edge_us, d.edge_us * d.cost("recurrent_gang.edges_per_hop")}; }

Finish begin_finish(const Phase& phase) {
  Finish finish;
  if (!phase.may_publish.empty()) finish.words = phase.may_publish[0].buffer;
  return finish;
}

ReadyTimes::ReadyTimes(const Phase& phase, std::span<const Finish> waits, const Edges& edges) {
  for (const Finish& finish : waits) {
    if (!finish.many && !finish.only.valid()) continue;
    const auto is_it = [&](const WordsUse& use) { return use.buffer == finish.words; };
    const bool in_words = finish.words.valid() && std::any_of(phase.may_await.begin(), phase.may_await.end(), is_it);
    const double elsewhere_us = finish.at_us + (in_words ? edges.words_us : edges.signal_us);
    if (finish.many)
      of_many_us_ = std::max(of_many_us_, elsewhere_us);
    else
      singles_.push_back({finish.only, finish.at_us + edges.same_veu_us, elsewhere_us});
  }
}

namespace {

constexpr double kLeastUs = 0.3;  // no rTask takes less; those that nobody has measured have rtask_us at least

}  // namespace

Timetable::Timetable(const select::Machine& machine, double start_us)
    : machine_(&machine),
      edges_(edges_of(machine.vdevice)),
      veus_(static_cast<size_t>(machine.vdevice.veus()), select::VEUTime{start_us, 0, 0}) {}

// The members of a cluster begin together, when the last of them can.
Finish Timetable::append_clusters(ROperatorId rop, int32_t phase, const Phase& p, std::span<const Finish> waits, int64_t active) {
  const select::RTaskCost cost = select::cost_of(p, *machine_, active);
  const ReadyTimes ready(p, waits, edges_);
  const auto members = static_cast<size_t>(p.cluster);
  TAMP_CHECK(veus_.size() % members == 0, "vEUs that are no whole clusters");
  Finish finish = begin_finish(p);
  for (int64_t index = 0; index < p.rtasks; index += p.cluster) {
    size_t chosen = 0;
    double begin_us = std::numeric_limits<double>::infinity();
    for (size_t first = 0; first < veus_.size(); first += members) {
      double us = 0;
      for (size_t m = first; m < first + members; ++m) us = std::max({us, veus_[m].free_us, ready.on(VEU(static_cast<int64_t>(m)))});
      if (us < begin_us) begin_us = us, chosen = first;
    }
    for (size_t m = 0; m < members; ++m) {
      select::VEUTime& veu = veus_[chosen + m];
      veu = select::after(veu, cost, begin_us);
      finish.at_us = std::max(finish.at_us, veu.free_us);
      veu.free_us += edges_.same_veu_us;
      finish.only = VEU(static_cast<int64_t>(chosen + m));
      appended_.push_back({{rop, phase, p.taken(index + static_cast<int64_t>(m))}, finish.only});
    }
  }
  finish.many = p.rtasks > 1;
  end_us_ = std::max(end_us_, finish.at_us);
  return finish;
}

Finish Timetable::append_phase(ROperatorId rop, int32_t phase, const RKernel& rkernel, std::span<const Finish> waits, int64_t active) {
  const Phase& p = rkernel.phases[static_cast<size_t>(phase)];
  if (p.cluster > 1) return append_clusters(rop, phase, p, waits, active);
  const select::RTaskCost cost = select::cost_of(p, *machine_, active);
  // SelectVEU. All rTasks of a phase cost the same, so after each of them only its vEU has a new end: a heap holds all vEUs by their end.
  // end; of equals the vEU that is free first, where the body can use that; vEU
  using Option = std::tuple<double, double, size_t>;
  const ReadyTimes ready(p, waits, edges_);
  const auto option = [&](size_t veu) {
    const double ready_us = ready.on(VEU(static_cast<int64_t>(veu)));
    return Option(select::after(veus_[veu], cost, ready_us).free_us, cost.early_us > 0 ? veus_[veu].free_us : 0, veu);
  };
  std::vector<Option> options;
  options.reserve(veus_.size());
  for (size_t veu = 0; veu < veus_.size(); ++veu) options.push_back(option(veu));
  std::make_heap(options.begin(), options.end(), std::greater<>{});

  // Edges have become shorter than edge_us, so of some short rTasks records say that they take less than an edge, or hardly more: such a
  // rTask would take no time, and a vEU would get one after the other. A second one is not taken to end sooner than on a vEU that waits for
  // a signal.
  const double least_us = cost.fixed_us + cost.body_us < kLeastUs ? edges_.signal_us - edges_.same_veu_us : 0;
  Finish finish = begin_finish(p);
  for (int64_t index = 0; index < p.rtasks; ++index) {
    const auto [end_us, free_us, chosen] = options.front();
    const VEU veu(static_cast<int64_t>(chosen));
    veus_[chosen] = select::after(veus_[chosen], cost, ready.on(veu));
    veus_[chosen].free_us = std::max(veus_[chosen].free_us, veus_[chosen].began_us + least_us) + edges_.same_veu_us;
    appended_.push_back({{rop, phase, p.taken(index)}, veu});
    finish.at_us = std::max(finish.at_us, end_us);
    finish.many = finish.many || (finish.only.valid() && finish.only != veu);
    finish.only = veu;
    replace_first(options, option(chosen));
  }
  end_us_ = std::max(end_us_, finish.at_us);
  return finish;
}

Finish Timetable::append_gang(ROperatorId rop, const RKernel& rkernel, std::span<const Finish> waits) {
  const auto count = static_cast<size_t>(rkernel.rtasks());
  TAMP_CHECK(rkernel.gang && count <= veus_.size(), "a gang of more rTasks than there are vEUs");
  const ReadyTimes ready(rkernel.phases[0], waits, edges_);
  const auto begin_on = [&](size_t veu) { return std::max(veus_[veu].free_us, ready.on(VEU(static_cast<int64_t>(veu)))); };
  std::vector<std::pair<double, size_t>> earliest;
  for (size_t veu = 0; veu < veus_.size(); ++veu) earliest.emplace_back(begin_on(veu), veu);
  std::sort(earliest.begin(), earliest.end());
  earliest.resize(count);
  const double begin_us = earliest.empty() ? 0 : earliest.back().first;
  Finish finish;
  size_t next = 0;
  for (size_t p = 0; p < rkernel.phases.size(); ++p) {
    const select::RTaskCost cost = select::cost_of(rkernel.phases[p], *machine_, rkernel.rtasks());
    for (int64_t index = 0; index < rkernel.phases[p].rtasks; ++index) {
      const size_t veu = earliest[next++].second;
      veus_[veu] = select::after(veus_[veu], cost, begin_us);
      finish.at_us = std::max(finish.at_us, veus_[veu].free_us);
      veus_[veu].free_us += edges_.same_veu_us;
      appended_.push_back({{rop, static_cast<int32_t>(p), index}, VEU(static_cast<int64_t>(veu))});
      finish.only = VEU(static_cast<int64_t>(veu));
    }
  }
  finish.many = count > 1;
  end_us_ = std::max(end_us_, finish.at_us);
  return finish;
}

Finish Timetable::append(ROperatorId rop, const RKernel& rkernel, std::span<const Finish> waits, int64_t others) {
  if (rkernel.gang) return append_gang(rop, rkernel, waits);
  Finish finish;
  for (size_t phase = 0; phase < rkernel.phases.size(); ++phase) {
    const int64_t rtasks = rkernel.phases[phase].rtasks;
    if (rtasks == 0) continue;
    const Finish before = finish;
    if (before.only.valid()) waits = std::span(&before, 1);
    finish = append_phase(rop, static_cast<int32_t>(phase), rkernel, waits, rtasks + others);
  }
  return finish;
}

}  // namespace tamp::schedule
