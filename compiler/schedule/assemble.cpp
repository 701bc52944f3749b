// Turns a plan into lanes and events. Two decisions are made here.
//
// Which Waits are left out. Every vEU carries a vector clock: per vEU, how many of that vEU's instructions have happened before this point.
// A Wait is left out where the clock says already that the producer's rTasks are done: they ran on the same vEU, or this vEU has waited for
// them before, or it has waited for something that had waited for them. Order on the same vEU does not count for an rTask that starts early
// (its Phase has boxes).
//
// Which steps share an event. Steps that all of their consumers need together, as a Concat's inputs are, share one, since an instruction
// with one Wait begins sooner than one with four.
#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "compiler/schedule/plan.h"
#include "compiler/support/error.h"
#include "compiler/support/text.h"

namespace tamp::schedule {
namespace {

using Clock = std::vector<int32_t>;

void catch_up(Clock& into, const Clock& other) {
  for (size_t i = 0; i < into.size(); ++i) into[i] = std::max(into[i], other[i]);
}

// One phase of one rOperator, or a gang.
struct Step {
  ROperatorId rop;
  int32_t phase = 0;
  int64_t rtasks_left = 0;
  int64_t completed = -1;         // position in the plan's order of its last rTask
  std::map<size_t, size_t> last;  // per vEU that has such rTasks: position of the last of them in its lane
  Clock clock;                    // when all rTasks of the step are done
  bool is_waited_for = false;
  size_t group = 0;  // steps that are only needed together are a group and share an event
};

constexpr size_t kNoStep = static_cast<size_t>(-1);
constexpr size_t kNamesOfEvent = 3;

class Assembler {
 public:
  Assembler(const Plan& plan, RProgram& program)
      : plan_(plan),
        program_(program),
        veus_(static_cast<size_t>(program.vdevice.veus())),
        lanes_(veus_),
        clocks_(veus_, Clock(veus_, 0)),
        waited_own_(veus_, 0),
        newest_(veus_, kNoStep),
        part_of_(veus_, 0) {
    TAMP_CHECK(std::is_sorted(plan.boundaries.begin(), plan.boundaries.end()), "boundaries are out of order");
    for (size_t i = 0; i < plan.rkernels.size(); ++i) {
      first_step_.push_back(steps_.size());
      if (plan.rkernels[i].gang) {
        add_step(i, 0, plan.rkernels[i].rtasks());
        continue;
      }
      for (size_t p = 0; p < plan.rkernels[i].phases.size(); ++p) {
        add_step(i, static_cast<int32_t>(p), plan.rkernels[i].phases[p].rtasks);
      }
    }
  }

  void run() {
    for (const Placed& placed : plan_.order) launched_ = std::max(launched_, placed.veu.index() + 1);
    const auto members = static_cast<size_t>(program_.vdevice.cluster_veus);  // whole clusters
    launched_ = (launched_ + members - 1) / members * members;
    for (size_t at = 0; at < plan_.order.size(); ++at) {
      pass_marks(at);
      append(plan_.order[at], static_cast<int64_t>(at));
    }
    pass_marks(plan_.order.size());
    for (const Step& step : steps_) TAMP_CHECK(step.rtasks_left == 0, "rTasks of '" + name(step.rop) + "' were not appended");
    find_groups();
    emit();
  }

 private:
  struct Entry {
    RTask rtask;
    std::vector<size_t> waits;  // steps
    int32_t boundary = -1;      // waits for the end of this part
    Turn turn = Turn::none;
    int32_t loop = -1;
  };

  void add_step(size_t rop, int32_t phase, int64_t rtasks) {
    steps_.push_back({ROperatorId(static_cast<int64_t>(rop)), phase, rtasks, -1, {}, Clock(veus_, 0), false, steps_.size()});
  }

  const std::string& name(ROperatorId rop) const { return program_.graph.rop(rop).name; }

  bool is_gang(ROperatorId rop) const { return plan_.rkernels[rop.index()].gang; }

  size_t step_of(const RTask& rtask) const {
    return first_step_[rtask.rop.index()] + (is_gang(rtask.rop) ? 0 : static_cast<size_t>(rtask.phase));
  }

  size_t last_step_of(ROperatorId rop) const {
    if (is_gang(rop)) return first_step_[rop.index()];
    const auto& phases = plan_.rkernels[rop.index()].phases;
    for (size_t p = phases.size(); p-- > 0;) {
      if (phases[p].rtasks > 0) return first_step_[rop.index()] + p;
    }
    return kNoStep;
  }

  // The steps that must be done before this one may begin. The newest comes first, since waiting for the newest may imply the others.
  std::vector<size_t> required(const Step& step) const {
    for (int32_t p = step.phase; p-- > 0;) {
      const size_t before = first_step_[step.rop.index()] + static_cast<size_t>(p);
      if (!steps_[before].last.empty()) return {before};
    }
    std::vector<size_t> found;
    for (const ROperatorId producer : plan_.waits[step.rop.index()]) {
      const size_t s = last_step_of(producer);
      if (s != kNoStep) found.push_back(s);
    }
    std::sort(found.begin(), found.end(), [&](size_t a, size_t b) { return steps_[a].completed > steps_[b].completed; });
    return found;
  }

  // An rTask that starts early may begin before earlier rTasks of its own vEU are done, unless a Wait prevents that.
  bool is_implied(size_t veu, bool starts_early, const Step& step) const {
    return std::all_of(step.last.begin(), step.last.end(), [&](const auto& l) {
      const int32_t done = starts_early && l.first == veu ? waited_own_[veu] : clocks_[veu][l.first];
      return done > static_cast<int32_t>(l.second);
    });
  }

  bool starts_early(const Step& step) const {
    const RKernel& rkernel = plan_.rkernels[step.rop.index()];
    return !rkernel.gang && rkernel.phases[static_cast<size_t>(step.phase)].boxes.has_value();
  }

  void append(const Placed& placed, int64_t at) {
    const size_t veu = placed.veu.index();
    const size_t s = step_of(placed.rtask);
    Step& step = steps_[s];
    Clock& clock = clocks_[veu];
    Entry entry{placed.rtask, {}, -1};
    for (; boundaries_passed_ < plan_.boundaries.size() && plan_.boundaries[boundaries_passed_] <= static_cast<size_t>(at);
         ++boundaries_passed_)
      begin_part();
    enter_part(veu, entry);
    const bool follows_own = newest_[veu] == s;  // the rTask before has waited for everything already
    if (!follows_own) {
      for (const size_t r : required(step)) {
        TAMP_CHECK(steps_[r].rtasks_left == 0, "'" + name(step.rop) + "' is placed before '" + name(steps_[r].rop) + "' is");
        if (is_implied(veu, starts_early(step), steps_[r])) continue;
        entry.waits.push_back(r);
        steps_[r].is_waited_for = true;
        catch_up(clock, steps_[r].clock);
        waited_own_[veu] = std::max(waited_own_[veu], steps_[r].clock[veu]);
      }
    }
    newest_[veu] = s;
    ++clock[veu];
    step.last[veu] = lanes_[veu].size();
    if (follows_own)
      step.clock[veu] = clock[veu];
    else
      catch_up(step.clock, clock);
    if (--step.rtasks_left == 0) step.completed = at;
    lanes_[veu].push_back(std::move(entry));
  }

  // The vEU's next entry waits for the end of the part before, if it is the vEU's first in this part.
  void enter_part(size_t veu, Entry& entry) {
    if (part_of_[veu] == part_) return;
    entry.boundary = part_ - 1;
    catch_up(clocks_[veu], boundary_clock_);
    waited_own_[veu] = std::max(waited_own_[veu], boundary_clock_[veu]);
    part_of_[veu] = part_;
  }

  // A part ends at each mark. All vEUs that are launched take each turn, so each of them signals that it has seen what the turn looks at,
  // and whichever leaves last knows how many iterations there were.
  void pass_marks(size_t at) {
    for (; marks_passed_ < plan_.marks.size() && plan_.marks[marks_passed_].at <= at; ++marks_passed_) {
      const LoopMark& mark = plan_.marks[marks_passed_];
      begin_part();
      if (mark.kind == LoopMark::Kind::ends) continue;
      for (size_t veu = 0; veu < launched_; ++veu) {
        Entry entry{{}, {}, -1, mark.kind == LoopMark::Kind::enter ? Turn::enter : Turn::repeat, mark.loop};
        enter_part(veu, entry);
        newest_[veu] = kNoStep;
        ++clocks_[veu][veu];
        lanes_[veu].push_back(std::move(entry));
      }
    }
  }

  // Called when all rTasks of earlier parts are placed: the boundary's clock is all lanes' clocks together.
  void begin_part() {
    ++part_;
    boundary_clock_ = Clock(veus_, 0);
    for (const Clock& clock : clocks_) catch_up(boundary_clock_, clock);
    std::vector<size_t> ends;
    for (const auto& lane : lanes_) ends.push_back(lane.size());
    part_ends_.push_back(std::move(ends));
  }

  // Groups the steps that are waited for by their consumers. A consumer counts even where its Wait was left out.
  void find_groups() {
    std::vector<std::vector<size_t>> consumers(steps_.size());
    for (size_t s = 0; s < steps_.size(); ++s) {
      if (steps_[s].last.empty()) continue;
      for (const size_t r : required(steps_[s])) consumers[r].push_back(s);
    }
    std::map<std::vector<size_t>, size_t> first;
    for (size_t s = 0; s < steps_.size(); ++s) {
      if (steps_[s].is_waited_for) steps_[s].group = first.emplace(consumers[s], s).first->second;
    }
  }

  // Adds the event of a group. Each vEU that has rTasks of any of the group's steps signals once, with its last one of them.
  EventId signal_group(const std::vector<size_t>& members, std::vector<std::vector<EventId>>& signals) {
    std::map<size_t, size_t> last;
    for (const size_t s : members) {
      for (const auto& [veu, at] : steps_[s].last) last[veu] = std::max(last[veu], at);
    }
    const EventId id = add_event(group_name(members), static_cast<int64_t>(last.size()));
    for (const auto& [veu, at] : last) signals[veu][at] = id;
    return id;
  }

  void emit() {
    std::vector<EventId> event_of(steps_.size());  // of groups, by the first step of the group
    std::vector<std::vector<size_t>> members(steps_.size());
    std::vector<std::vector<EventId>> signals(veus_);
    for (size_t veu = 0; veu < veus_; ++veu) signals[veu].resize(lanes_[veu].size());
    for (size_t s = 0; s < steps_.size(); ++s) members[steps_[s].group].push_back(s);
    for (size_t s = 0; s < steps_.size(); ++s) {
      if (steps_[s].group == s && steps_[s].is_waited_for) event_of[s] = signal_group(members[s], signals);
    }
    std::vector<EventId> boundary_of;
    for (size_t part = 0; part < part_ends_.size(); ++part) {
      boundary_of.push_back(add_event(fmt::format("boundary {}", part), lanes_in_part(part)));
    }
    program_.lanes.assign(veus_, {});
    for (size_t veu = 0; veu < veus_; ++veu) {
      for (size_t at = 0; at < lanes_[veu].size(); ++at) {
        const Entry& entry = lanes_[veu][at];
        Instruction instruction{entry.rtask, {}, signals[veu][at], entry.turn, entry.loop};
        if (entry.boundary >= 0) instruction.waits.push_back(boundary_of[static_cast<size_t>(entry.boundary)]);
        for (const size_t s : entry.waits) instruction.waits.push_back(event_of[steps_[s].group]);
        std::sort(instruction.waits.begin(), instruction.waits.end());
        instruction.waits.erase(std::unique(instruction.waits.begin(), instruction.waits.end()), instruction.waits.end());
        program_.lanes[veu].push_back(std::move(instruction));
        end_parts(veu, at + 1, boundary_of);
      }
    }
  }

  // If a part ends behind this vEU's first `count` entries, signals that part's boundary. The last rTask does so itself if it has nothing
  // else to signal.
  void end_parts(size_t veu, size_t count, const std::vector<EventId>& boundary_of) {
    for (size_t part = 0; part < part_ends_.size(); ++part) {
      const size_t begin = part == 0 ? 0 : part_ends_[part - 1][veu];
      if (part_ends_[part][veu] != count || begin == count) continue;
      auto& lane = program_.lanes[veu];
      if (lane.back().signal.valid() || lane.back().turn != Turn::none) lane.push_back({});
      lane.back().signal = boundary_of[part];
    }
  }

  int64_t lanes_in_part(size_t part) const {
    int64_t count = 0;
    for (size_t veu = 0; veu < veus_; ++veu) count += part_ends_[part][veu] > (part == 0 ? 0 : part_ends_[part - 1][veu]);
    return count;
  }

  EventId add_event(std::string event_name, int64_t count) {
    program_.events.push_back({std::move(event_name), count});
    return EventId(static_cast<int64_t>(program_.events.size()) - 1);
  }

  std::string group_name(const std::vector<size_t>& members) const {
    std::vector<std::string> names;
    for (size_t i = 0; i < std::min(members.size(), kNamesOfEvent); ++i) names.push_back(event_name(steps_[members[i]]));
    const size_t more = members.size() - names.size();
    return tamp::join(names, ", ") + (more > 0 ? fmt::format(" and {} more", more) : "");
  }

  std::string event_name(const Step& step) const {
    const size_t phases = plan_.rkernels[step.rop.index()].phases.size();
    if (is_gang(step.rop) || static_cast<size_t>(step.phase) + 1 == phases) return name(step.rop);
    return phases == 2 ? name(step.rop) + ".partial" : fmt::format("{}.partial {}", name(step.rop), step.phase);
  }

  const Plan& plan_;
  RProgram& program_;
  size_t veus_;
  std::vector<Step> steps_;
  std::vector<size_t> first_step_;  // per rOperator
  std::vector<std::vector<Entry>> lanes_;
  std::vector<Clock> clocks_;        // per vEU, now
  std::vector<int32_t> waited_own_;  // per vEU: how many of its own instructions are done according to its Waits
  std::vector<size_t> newest_;       // per vEU: step of its last entry
  std::vector<int32_t> part_of_;     // per vEU
  size_t boundaries_passed_ = 0, marks_passed_ = 0;
  size_t launched_ = 0;  // vEUs
  int32_t part_ = 0;
  Clock boundary_clock_;
  std::vector<std::vector<size_t>> part_ends_;  // per part but the last, per vEU: entries up to its end
};

}  // namespace

void assemble(Plan plan, RProgram& program) {
  program.lanes.clear();
  program.events.clear();
  Assembler(plan, program).run();
  program.rkernels = std::move(plan.rkernels);
}

}  // namespace tamp::schedule
