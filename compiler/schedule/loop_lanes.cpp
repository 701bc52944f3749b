#include "compiler/schedule/loop_lanes.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "compiler/ir/loops.h"

namespace tamp::schedule {
namespace {

class LoopReader {
 public:
  explicit LoopReader(const RProgram& program) : program_(program), launched_(launched(program)) {
    lanes_.spans.resize(program.graph.loops.size());
    lanes_.loop_of_event.assign(program.events.size(), kUnknown);
  }

  LoopLanes run() {
    for (size_t veu = 0; veu < program_.lanes.size(); ++veu) read_lane(veu);
    std::replace(lanes_.loop_of_event.begin(), lanes_.loop_of_event.end(), kUnknown, -1);
    return std::move(lanes_);
  }

 private:
  static constexpr int32_t kUnknown = -2;

  void refuse(size_t veu, size_t position, const char* why) {
    if (lanes_.wrong.empty()) lanes_.wrong = fmt::format("vEU {} instruction {} {}", veu, position, why);
  }

  void read_lane(size_t veu) {
    std::vector<int32_t>& loop_of = lanes_.loop_of.emplace_back();
    int32_t loop = -1;
    for (size_t p = 0; p < program_.lanes[veu].size(); ++p) {
      const Instruction& i = program_.lanes[veu][p];
      const auto position = static_cast<int32_t>(p);
      loop_of.push_back(loop);
      if (i.turn == Turn::none) {
        note_signal(veu, p, loop);
        continue;
      }
      const bool exists = i.loop >= 0 && static_cast<size_t>(i.loop) < lanes_.spans.size();
      if (!exists || i.rtask.rop.valid() || i.signal.valid()) return refuse(veu, p, "is a turn of no loop, or more than a turn");
      std::vector<LoopLanes::Span>& spans = lanes_.spans[static_cast<size_t>(i.loop)];
      const bool is_open = !spans.empty() && spans.back().veu == static_cast<int32_t>(veu);
      const int32_t parent = program_.graph.loops[static_cast<size_t>(i.loop)].parent;
      if (i.turn == Turn::enter) {
        if (is_open || parent != loop) return refuse(veu, p, "enters a loop twice, or where it is not");
        spans.push_back({static_cast<int32_t>(veu), position, -1});
        loop = i.loop;
      } else {
        if (!is_open || loop != i.loop) return refuse(veu, p, "goes back in another loop than it is in");
        spans.back().repeat = position;
        loop = parent;
      }
    }
    if (loop >= 0) refuse(veu, program_.lanes[veu].size(), "is the end of the lane in a loop");
    for (const auto& spans : lanes_.spans) {
      const bool takes_part = !spans.empty() && spans.back().veu == static_cast<int32_t>(veu);
      if (veu < launched_ && !takes_part) refuse(veu, 0, "and those behind it leave out a loop");
    }
  }

  // The vEUs up to the last one that has something to do, in whole clusters.
  static size_t launched(const RProgram& program) {
    size_t veus = program.lanes.size();
    while (veus > 0 && program.lanes[veus - 1].empty()) --veus;
    const auto members = static_cast<size_t>(program.vdevice.cluster_veus);
    return std::min((veus + members - 1) / members * members, program.lanes.size());
  }

  void note_signal(size_t veu, size_t position, int32_t loop) {
    const EventId event = program_.lanes[veu][position].signal;
    if (!event.valid() || event.index() >= lanes_.loop_of_event.size()) return;
    int32_t& known = lanes_.loop_of_event[event.index()];
    if (known != kUnknown && known != loop) refuse(veu, position, "signals an event that is signalled in another loop, too");
    known = loop;
  }

  const RProgram& program_;
  size_t launched_;
  LoopLanes lanes_;
};

}  // namespace

LoopLanes loop_lanes(const RProgram& program) { return LoopReader(program).run(); }

bool add_repeats(const RProgram& program, const LoopLanes& lanes, const Clocks& clocks, const std::vector<int32_t>& touched_in,
                 const std::vector<int32_t>& written_in, Extent& extent) {
  std::set<int32_t> kept;
  for (const int32_t touched : touched_in) {
    for (int32_t loop = touched; loop >= 0; loop = program.graph.loops[static_cast<size_t>(loop)].parent) {
      if (std::any_of(written_in.begin(), written_in.end(), [&](int32_t written) { return !is_in_loop(program.graph, written, loop); }))
        kept.insert(loop);
    }
  }
  for (const int32_t loop : kept) {
    for (const LoopLanes::Span& span : lanes.spans[static_cast<size_t>(loop)]) extent.add({span.veu, span.repeat}, clocks);
  }
  return !kept.empty();
}

}  // namespace tamp::schedule
