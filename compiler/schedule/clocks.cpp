#include "compiler/schedule/clocks.h"

#include <algorithm>
#include <deque>
#include <map>
#include <tuple>

namespace tamp::schedule {
namespace {

struct EventState {
  int64_t signals = 0, seen = 0;  // in the whole program, and so far
  Clock clock;
  std::vector<size_t> sleepers;  // vEUs that wait for this event
};

// The rTasks of a gang, or of a cluster, that are at the head of their lane with all their Waits passed.
struct GangState {
  int64_t rtasks = 0;
  std::vector<size_t> ready;  // vEUs
  bool runs = false;
};

}  // namespace

Clocks::Clocks(const RProgram& program, LaneOrder lane_order) {
  const size_t veus = program.lanes.size();
  size_t count = 0;
  for (const auto& lane : program.lanes) {
    lane_begin_.push_back(count);
    count += lane.size();
  }
  row_of_.assign(count, -1);
  for (const auto& lane : program.lanes) {
    for (const Instruction& i : lane) {
      const RKernel* const rkernel = i.rtask.rop.valid() ? &program.rkernels[i.rtask.rop.index()] : nullptr;
      const bool has_boxes = rkernel != nullptr && !rkernel->gang && rkernel->phases[static_cast<size_t>(i.rtask.phase)].boxes.has_value();
      starts_early_.push_back(has_boxes || lane_order == LaneOrder::none);
    }
  }
  std::vector<EventState> events(program.events.size());
  for (EventState& event : events) event.clock.assign(veus, 0);
  for (const auto& lane : program.lanes) {
    for (const Instruction& i : lane) {
      if (i.signal.valid()) ++events[i.signal.index()].signals;
    }
  }
  // A Wait passes when the event has reached its count. That is certain to be after all signals only if the program has no more signals
  // than that.
  const auto passed = [&](EventId id) {
    const EventState& event = events[id.index()];
    return event.seen >= event.signals && event.seen >= program.events[id.index()].count;
  };

  // By rOperator, phase and tile; a gang is one of phase 0 and tile 0.
  std::map<std::tuple<size_t, int32_t, int64_t>, GangState> gangs;
  const auto gang_of = [&](const Instruction& i) -> GangState* {
    if (!i.rtask.rop.valid()) return nullptr;
    const RKernel& rkernel = program.rkernels[i.rtask.rop.index()];
    if (rkernel.gang) return &gangs[{i.rtask.rop.index(), 0, 0}];
    const Phase& phase = rkernel.phases[static_cast<size_t>(i.rtask.phase)];
    return phase.cluster > 1 ? &gangs[{i.rtask.rop.index(), i.rtask.phase, phase.shared_tile_of(i.rtask.index)}] : nullptr;
  };
  for (const auto& lane : program.lanes) {
    for (const Instruction& i : lane) {
      if (GangState* const gang = gang_of(i)) ++gang->rtasks;
    }
  }

  std::vector<size_t> next(veus, 0);
  std::vector<int32_t> row(veus, 0);  // per vEU: its newest row
  rows_.assign(1, Clock(veus, 0));
  std::deque<size_t> awake;
  for (size_t veu = 0; veu < veus; ++veu) awake.push_back(veu);
  while (!awake.empty()) {
    const size_t veu = awake.front();
    awake.pop_front();
    const auto& lane = program.lanes[veu];
    for (size_t& p = next[veu]; p < lane.size(); ++p) {
      const auto& waits = lane[p].waits;
      const auto blocked = std::find_if(waits.begin(), waits.end(), [&](EventId id) { return !passed(id); });
      if (blocked != waits.end()) {
        events[blocked->index()].sleepers.push_back(veu);
        break;
      }
      GangState* const gang = gang_of(lane[p]);
      if (gang && !gang->runs) {
        gang->ready.push_back(veu);
        gang->runs = static_cast<int64_t>(gang->ready.size()) == gang->rtasks;
        if (gang->runs) awake.insert(awake.begin(), gang->ready.begin(), gang->ready.end());
        break;
      }
      if (!waits.empty()) {
        Clock joined = rows_[static_cast<size_t>(row[veu])];
        for (const EventId id : waits) {
          for (size_t i = 0; i < veus; ++i) joined[i] = std::max(joined[i], events[id.index()].clock[i]);
        }
        row[veu] = static_cast<int32_t>(rows_.size());
        rows_.push_back(std::move(joined));
      }
      const At here{static_cast<int32_t>(veu), static_cast<int32_t>(p)};
      row_of_[index(here)] = row[veu];
      order_.push_back(here);
      if (!lane[p].signal.valid()) continue;
      EventState& event = events[lane[p].signal.index()];
      const Clock& mine = rows_[static_cast<size_t>(row[veu])];
      for (size_t i = 0; i < veus; ++i) event.clock[i] = std::max(event.clock[i], mine[i]);
      event.clock[veu] = std::max(event.clock[veu], here.position + 1);
      ++event.seen;
      if (!passed(lane[p].signal)) continue;
      awake.insert(awake.end(), event.sleepers.begin(), event.sleepers.end());
      event.sleepers.clear();
    }
  }
}

void Clocks::meet(Clock& clock, At at) const {
  const Clock& row = rows_[static_cast<size_t>(row_of_[index(at)])];
  const auto own = static_cast<size_t>(at.veu);
  const int32_t before = clock[own];
  for (size_t i = 0; i < clock.size(); ++i) clock[i] = std::min(clock[i], row[i]);
  clock[own] = std::min(before, starts_early_[index(at)] ? row[own] : at.position);
}

At Clocks::at(size_t index) const {
  const auto lane = std::upper_bound(lane_begin_.begin(), lane_begin_.end(), index) - lane_begin_.begin() - 1;
  return {static_cast<int32_t>(lane), static_cast<int32_t>(index - lane_begin_[static_cast<size_t>(lane)])};
}

void Extent::add(At at, const Clocks& clocks) {
  last[static_cast<size_t>(at.veu)] = std::max(last[static_cast<size_t>(at.veu)], at.position + 1);
  clocks.meet(known, at);
}

void Extent::add(const Extent& other) {
  for (size_t i = 0; i < last.size(); ++i) {
    last[i] = std::max(last[i], other.last[i]);
    known[i] = std::min(known[i], other.known[i]);
  }
}

bool Extent::before(const Extent& other) const {
  for (size_t i = 0; i < last.size(); ++i) {
    if (last[i] > other.known[i]) return false;
  }
  return true;
}

}  // namespace tamp::schedule
