// The policy `wavefront`: Rammer's Algorithm 1, with the paper's names in this style's spelling. The algorithm goes wave by wave (a wave is
// the fringe of a breadth-first walk of the graph). Each rTask goes to the vEU on which it can end earliest, after the rTasks of its
// predecessors. A wave joins the current rProgram unless a new one, behind a grid-wide boundary, is estimated to be faster. The rPrograms
// (`Plans` of the listing) become parts of one resident program here, so a boundary costs a barrier and not a launch.
//
// Where the listing leaves things open, this is done: the rOperators of a wave are taken longest rTask first; phase p of all of them comes
// before phase p+1 of any; the rTasks of a gang take a vEU each. Beside "all fastest" and "all resource-efficient" rKernels a third choice
// is tried, each rOperator's fastest on its part of the vEUs. From the best of these choices the rKernels of a wave are exchanged one by
// one while the wave, and then its rOperators, end earlier.
#include <algorithm>
#include <array>

#include "compiler/schedule/choose.h"
#include "compiler/schedule/plan.h"
#include "compiler/schedule/timetable.h"

namespace tamp::schedule {
namespace {

enum Choice : size_t { kFastest, kShared, kEfficient, kRefined, kChoices };

struct WaveMember {
  ROperatorId id;
  std::vector<RKernel> candidates;
  std::array<size_t, kChoices> chosen{};  // indices in candidates
};
using Wave = std::vector<WaveMember>;

// P of the listing. The timetable holds everything appended so far, `finish` what the newest wave added.
struct Part {
  Timetable timetable;
  Choice choice = kFastest;
  std::vector<Finish> finish;
};

// What Rammer's ablation leaves out of the algorithm.
struct Variant {
  bool fastest_only = false;       // only each rOperator's fastest rKernel
  bool boundary_per_wave = false;  // a launch per wave: here a grid-wide boundary, in graph execution a stage of its own
};

class Wavefront {
 public:
  Wavefront(const PolicyInput& input, Variant variant) : input_(input), variant_(variant), finish_(input.graph.rops.size()) {}

  Plan schedule() {
    const std::vector<std::vector<ROperatorId>> waves = breadth_first_waves();
    Part current{Timetable(machine()), kFastest, {}};
    for (const auto& ids : waves) {
      Wave wave = members(ids);
      if (wave.empty()) continue;
      Part p1 = schedule_wave(wave, current, part_);
      // A new rProgram: all vEUs begin together behind the boundary, where all earlier results are visible.
      const double boundary_us = machine().vdevice.barrier_us;
      Wave alone = wave;
      Part p2 = schedule_wave(alone, {Timetable(machine(), boundary_us), kFastest, {}}, part_ + 1);
      const bool may_join = &ids == &waves.front() || !variant_.boundary_per_wave;
      if (may_join && (p1.timetable.end_us() <= current.timetable.end_us() + p2.timetable.end_us())) {
        current = std::move(p1);
      } else {
        current = std::move(p2);
        wave = std::move(alone);
        ++part_;
        const size_t last = plan_.boundaries.empty() ? 0 : plan_.boundaries.back();
        if (plan_.order.size() > last) plan_.boundaries.push_back(plan_.order.size());
      }
      commit(wave, current);
    }
    refuse_unsupported(input_, unsupported_);
    return std::move(plan_);
  }

 private:
  const select::Machine& machine() const { return input_.machine; }

  // A view belongs to the wave of its last producer, and is not scheduled.
  std::vector<std::vector<ROperatorId>> breadth_first_waves() {
    const size_t count = input_.graph.rops.size();
    plan_.rkernels.resize(count);
    part_of_.assign(count, 0);
    std::vector<int32_t> wave_of;
    plan_.waits = input_.producers;
    std::vector<std::vector<ROperatorId>> waves;
    for (size_t i = 0; i < count; ++i) {
      int32_t wave = input_.is_view[i] || input_.producers[i].empty() ? 0 : 1;
      for (const ROperatorId p : input_.producers[i]) {
        wave = std::max(wave, wave_of[p.index()] + (input_.is_view[i] ? 0 : 1));
      }
      wave_of.push_back(wave);
      if (input_.is_view[i]) continue;
      if (waves.size() <= static_cast<size_t>(wave)) waves.resize(static_cast<size_t>(wave) + 1);
      waves[static_cast<size_t>(wave)].push_back(ROperatorId(static_cast<int64_t>(i)));
    }
    return waves;
  }

  // The rOperators of the wave, with the rKernels that select_rkernels chooses from.
  Wave members(const std::vector<ROperatorId>& ids) {
    Wave wave;
    std::vector<double> efficient_us;
    double all_us = 0;
    for (const ROperatorId id : ids) {
      WaveMember member{id, candidates_of(input_, id, ids.size() == 1, unsupported_)};
      if (member.candidates.empty()) continue;
      member.chosen[kFastest] = select::fastest(member.candidates, machine());
      member.chosen[kEfficient] = select::efficient(member.candidates, machine());
      efficient_us.push_back(select::veu_us(member.candidates[member.chosen[kEfficient]], machine()));
      all_us += efficient_us.back();
      wave.push_back(std::move(member));
    }
    for (size_t i = 0; i < wave.size(); ++i) {
      const double share = all_us > 0 ? static_cast<double>(machine().vdevice.veus()) * efficient_us[i] / all_us : 1;
      wave[i].chosen[kShared] = select::fastest_on(wave[i].candidates, machine(), std::max<int64_t>(1, static_cast<int64_t>(share)));
    }
    return wave;
  }

  // By default each rOperator gets its fastest rKernel. Where the rTasks of the wave would more than fill the vEUs, the more
  // resource-efficient rKernels are taken if the wave ends earlier with them. `part` is the number of P.
  Part schedule_wave(Wave& wave, const Part& p, int32_t part) const {
    Part best = append_wave(wave, p, kFastest, part);
    if (variant_.fastest_only) return best;
    if (rtasks_of_widest_phase(wave, kFastest) > machine().vdevice.veus()) {
      for (const Choice choice : {kShared, kEfficient}) {
        Part other = append_wave(wave, p, choice, part);
        if (other.timetable.end_us() < best.timetable.end_us()) best = std::move(other);
      }
    }
    balance(wave, p, part, best);
    refine(wave, p, part, best);
    return best;
  }

  // Tries one deadline after another: each member gets the rKernel that takes the least time of vEUs and meets the deadline.
  void balance(Wave& wave, const Part& p, int32_t part, Part& best) const {
    constexpr int kDeadlines = 16;
    constexpr double kStep = 1.12;
    if (wave.size() < 2) return;
    const int64_t veus = machine().vdevice.veus();
    double deadline_us = 0;
    for (const WaveMember& member : wave)
      deadline_us = std::max(deadline_us, select::completion_us(rkernel_of(member, kFastest), machine(), veus, 1));
    std::vector<size_t> kept;
    for (int d = 0; d < kDeadlines; ++d, deadline_us *= kStep) {
      for (WaveMember& member : wave) member.chosen[kRefined] = least_that_meets(member, deadline_us);
      Part other = append_wave(wave, p, kRefined, part);
      if (worth_us(other) >= worth_us(best)) continue;
      best = std::move(other);
      kept.clear();
      for (const WaveMember& member : wave) kept.push_back(member.chosen[kRefined]);
    }
    for (size_t i = 0; i < kept.size(); ++i) wave[i].chosen[kRefined] = kept[i];
  }

  size_t least_that_meets(const WaveMember& member, double deadline_us) const {
    size_t least = member.chosen[kFastest];
    for (size_t c = 0; c < member.candidates.size(); ++c) {
      if (select::completion_us(member.candidates[c], machine(), machine().vdevice.veus(), 1) > deadline_us) continue;
      if (select::veu_us(member.candidates[c], machine()) < select::veu_us(member.candidates[least], machine())) least = c;
    }
    return least;
  }

  // Compares waves: by when the wave ends, then by when its members end on average. Differences below a hundredth of a microsecond are
  // noise.
  static double worth_us(const Part& part) {
    double sum_us = 0;
    for (const Finish& finish : part.finish) sum_us += finish.at_us;
    return part.timetable.end_us() + 0.1 * sum_us / static_cast<double>(part.finish.size());
  }

  // Tries for one member after another every other rKernel, and keeps it if worth_us gets better; at most kMostSweeps times over.
  void refine(Wave& wave, const Part& p, int32_t part, Part& best) const {
    constexpr int kMostSweeps = 2;
    constexpr double kGainUs = 0.01;
    constexpr size_t kMostMembers = 24;  // more would take too long to compile
    if (wave.size() > kMostMembers) return;
    for (WaveMember& member : wave) member.chosen[kRefined] = member.chosen[best.choice];
    bool better = true;
    for (int sweep = 0; sweep < kMostSweeps && better; ++sweep) {
      better = false;
      for (WaveMember& member : wave) {
        const size_t before = member.chosen[kRefined];
        size_t chosen = before;
        for (size_t c = 0; c < member.candidates.size(); ++c) {
          if (c == before || is_hopeless(member.candidates[c], member.candidates[before])) continue;
          member.chosen[kRefined] = c;
          Part other = append_wave(wave, p, kRefined, part);
          if (worth_us(other) >= worth_us(best) - kGainUs) continue;
          best = std::move(other);
          chosen = c;
          better = true;
        }
        member.chosen[kRefined] = chosen;
      }
    }
    best.choice = kRefined;
  }

  // An rKernel whose rTasks take longer, and in all take more time of vEUs, cannot make a wave better.
  bool is_hopeless(const RKernel& other, const RKernel& chosen) const {
    return select::veu_us(other, machine()) > 2 * select::veu_us(chosen, machine()) &&
           select::completion_us(other, machine(), machine().vdevice.veus(), 1) >
               select::completion_us(chosen, machine(), machine().vdevice.veus(), 1);
  }

  static const RKernel& rkernel_of(const WaveMember& member, Choice choice) { return member.candidates[member.chosen[choice]]; }

  static int64_t rtasks_of_phase(const Wave& wave, Choice choice, size_t phase) {
    int64_t rtasks = 0;
    for (const WaveMember& member : wave) {
      const RKernel& rkernel = rkernel_of(member, choice);
      if (rkernel.gang)
        rtasks += phase == 0 ? rkernel.rtasks() : 0;
      else if (phase < rkernel.phases.size())
        rtasks += rkernel.phases[phase].rtasks;
    }
    return rtasks;
  }

  static size_t phases_of(const Wave& wave, Choice choice) {
    size_t phases = 0;
    for (const WaveMember& member : wave) phases = std::max(phases, rkernel_of(member, choice).phases.size());
    return phases;
  }

  static int64_t rtasks_of_widest_phase(const Wave& wave, Choice choice) {
    int64_t rtasks = 0;
    for (size_t phase = 0; phase < phases_of(wave, choice); ++phase) rtasks = std::max(rtasks, rtasks_of_phase(wave, choice, phase));
    return rtasks;
  }

  // For each rOperator of the wave, and each of its rTasks: SelectVEU, Wait, Append (all three in Timetable).
  Part append_wave(const Wave& wave, const Part& p, Choice choice, int32_t part) const {
    Part next{p.timetable, choice, std::vector<Finish>(wave.size())};
    std::vector<Finish> waits;
    for (size_t phase = 0; phase < phases_of(wave, choice); ++phase) {
      const int64_t active = rtasks_of_phase(wave, choice, phase);
      for (const size_t i : longest_first(wave, choice, phase, active)) {
        const RKernel& rkernel = rkernel_of(wave[i], choice);
        if (rkernel.gang) {
          next.finish[i] = next.timetable.append_gang(wave[i].id, rkernel, predecessors(wave[i].id, part));
          continue;
        }
        if (!next.finish[i].only.valid())
          waits = predecessors(wave[i].id, part);
        else
          waits = {next.finish[i]};  // a later phase waits only for the phase before
        next.finish[i] = next.timetable.append_phase(wave[i].id, static_cast<int32_t>(phase), rkernel, waits, active);
      }
    }
    return next;
  }

  // Members that have rTasks in this phase. A gang has all of its rTasks in the first.
  std::vector<size_t> longest_first(const Wave& wave, Choice choice, size_t phase, int64_t active) const {
    std::vector<std::pair<double, size_t>> order;
    for (size_t i = 0; i < wave.size(); ++i) {
      const auto& phases = rkernel_of(wave[i], choice).phases;
      if (phase >= phases.size() || phases[phase].rtasks == 0 || (phase > 0 && rkernel_of(wave[i], choice).gang)) continue;
      const select::RTaskCost cost = select::cost_of(phases[phase], machine(), active);
      order.emplace_back(-std::max(cost.body_us, cost.weights_us), i);
    }
    std::sort(order.begin(), order.end());
    std::vector<size_t> members;
    for (const auto& [us, i] : order) members.push_back(i);
    return members;
  }

  // Only predecessors of this part: those of earlier parts have ended before the boundary.
  std::vector<Finish> predecessors(ROperatorId id, int32_t part) const {
    std::vector<Finish> waits;
    for (const ROperatorId p : input_.producers[id.index()]) {
      if (part_of_[p.index()] == part) waits.push_back(finish_[p.index()]);
    }
    return waits;
  }

  void commit(Wave& wave, Part& part) {
    for (size_t i = 0; i < wave.size(); ++i) {
      const size_t rop = wave[i].id.index();
      finish_[rop] = part.finish[i];
      part_of_[rop] = part_;
      plan_.rkernels[rop] = std::move(wave[i].candidates[wave[i].chosen[part.choice]]);
    }
    for (const Placed& placed : part.timetable.take_appended()) plan_.order.push_back(placed);
    if (!variant_.boundary_per_wave) return;
    Stage stage;
    for (const WaveMember& member : wave) {
      if (plan_.rkernels[member.id.index()].rtasks() > 0) stage.push_back({member.id});
    }
    if (!stage.empty()) plan_.stages.push_back(std::move(stage));
  }

  const PolicyInput& input_;
  Variant variant_;
  Plan plan_;
  std::vector<int32_t> part_of_;  // per rOperator
  std::vector<Finish> finish_;    // per rOperator, in its part's time
  int32_t part_ = 0;
  Unsupported unsupported_;
};

}  // namespace

Plan wavefront(const PolicyInput& input) { return Wavefront(input, {}).schedule(); }
Plan wavefront_fastest(const PolicyInput& input) { return Wavefront(input, {.fastest_only = true}).schedule(); }
Plan wavefront_launches(const PolicyInput& input) { return Wavefront(input, {.boundary_per_wave = true}).schedule(); }
Plan greedy(const PolicyInput& input) { return Wavefront(input, {.fastest_only = true, .boundary_per_wave = true}).schedule(); }

}  // namespace tamp::schedule
