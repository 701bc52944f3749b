// What iterations need of each other. The rest of the verifier sees each loop's body once, in the state that any iteration finds: before
// its first rTask all lanes have taken a turn, and all that they did before is done.
#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "compiler/ir/loops.h"
#include "compiler/schedule/dependencies.h"
#include "compiler/schedule/loop_lanes.h"
#include "compiler/schedule/verify_memory.h"
#include "compiler/support/text.h"

namespace tamp::schedule {
namespace {

class LoopVerifier {
 public:
  LoopVerifier(const RProgram& program, const Clocks& clocks, Violations& violations)
      : program_(program), graph_(program.graph), clocks_(clocks), violations_(violations), lanes_(loop_lanes(program)) {}

  void run() {
    if (!lanes_.wrong.empty()) return violations_.add(lanes_.wrong);
    for (size_t veu = 0; veu < program_.lanes.size(); ++veu) {
      for (size_t p = 0; p < program_.lanes[veu].size(); ++p) verify_place({static_cast<int32_t>(veu), static_cast<int32_t>(p)});
    }
    for (size_t loop = 0; loop < graph_.loops.size() && !violations_.full(); ++loop) verify_turns(static_cast<int32_t>(loop));
    verify_values();
  }

 private:
  const Instruction& instruction(At at) const { return program_.lanes[static_cast<size_t>(at.veu)][static_cast<size_t>(at.position)]; }
  int32_t loop_of(At at) const { return lanes_.loop_of[static_cast<size_t>(at.veu)][static_cast<size_t>(at.position)]; }
  const std::string& name(size_t loop) const { return graph_.loops[loop].name; }

  // A rTask is in its loop. A wait for an event counts the iterations of the event's loop, so it is in there or behind.
  void verify_place(At at) {
    const Instruction& i = instruction(at);
    if (i.rtask.rop.valid() && graph_.rop(i.rtask.rop).loop != loop_of(at))
      violations_.add(fmt::format("{} is not in the loop that it belongs to", describe(program_, at)));
    for (const EventId event : i.waits) {
      const int32_t loop = lanes_.loop_of_event[event.index()];
      const bool is_turn_back = i.turn == Turn::repeat && i.loop == loop;
      if (loop < 0 || is_turn_back || is_in_loop(graph_, loop_of(at), loop) || is_behind(at, loop)) continue;
      violations_.add(fmt::format("{} waits for event '{}' of loop '{}' in front of that", describe(program_, at),
                                  printable(program_.events[event.index()].name), printable(name(static_cast<size_t>(loop)))));
    }
  }
  bool is_behind(At at, int32_t loop) const {
    const auto& spans = lanes_.spans[static_cast<size_t>(loop)];
    return std::any_of(spans.begin(), spans.end(), [&](const auto& span) { return span.veu == at.veu && span.repeat < at.position; });
  }

  // Before a lane takes a turn back, all that any lane did in the loop is done. Before a rTask ends an iteration, so are all other rTasks,
  // and each lane has looked at the condition that led to this iteration.
  void verify_turns(int32_t loop) {
    std::vector<At> last, seen, ends;  // per vEU what ends last there, but for the ends; where it looks; rTasks that end the iteration
    for (const LoopLanes::Span& span : lanes_.spans[static_cast<size_t>(loop)]) {
      seen.push_back({span.veu, span.enter});
      for (At at{span.veu, span.enter + 1}; at.position < span.repeat; ++at.position) {
        const ROperatorId rop = instruction(at).rtask.rop;
        const bool is_end = rop.valid() && graph_.rop(rop).ends_iteration && graph_.rop(rop).loop == loop;
        if (is_end) ends.push_back(at);
        if (rop.valid() || instruction(at).signal.valid() || instruction(at).turn != Turn::none) last.push_back(at);
        if (rop.valid() && !is_end) seen.push_back(at);
      }
    }
    const auto require = [&](const std::vector<At>& earlier, At later) {
      for (const At at : earlier) {
        if (violations_.full() || at == later || clocks_.before(at, later)) continue;
        return violations_.add(fmt::format("{} of loop '{}' may run before {} of the iteration before", describe(program_, later),
                                           printable(name(static_cast<size_t>(loop))), describe(program_, at)));
      }
    };
    for (const At end : ends) require(seen, end);
    for (const LoopLanes::Span& span : lanes_.spans[static_cast<size_t>(loop)]) require(last, {span.veu, span.repeat});
  }

  void verify_values() {
    if (program_.memory.words_bytes > 0) violations_.add("a program with loops has words, whose warps take no turns");
    for (size_t i = 0; i < graph_.rops.size(); ++i) {
      if (program_.rkernels[i].gang && graph_.rops[i].loop >= 0)
        violations_.add(fmt::format("'{}' is a gang in a loop, whose words know one epoch", printable(graph_.rops[i].name)));
    }
    for (size_t l = 0; l < graph_.loops.size(); ++l) verify_condition(l);
    std::vector<std::set<BufferId>> ended(graph_.loops.size());  // buffers with values of the next iteration
    for (const ROperator& rop : graph_.rops) {
      if (rop.ends_iteration) ended[static_cast<size_t>(rop.loop)].insert(buffer_of(rop.outputs[0]));
    }
    const std::vector<std::vector<ROperatorId>> producers = find_dependencies(graph_).producers;
    for (size_t i = 0; i < graph_.rops.size(); ++i) {
      const ROperator& rop = graph_.rops[i];
      const auto refuse = [&](const char* why) { violations_.add(fmt::format("'{}' {}", printable(rop.name), why)); };
      for (const ROperatorId producer : producers[i]) {
        if (!is_in_loop(graph_, rop.loop, loop_behind(graph_.rop(producer)))) refuse("reads what is made in a loop that it is not in");
      }
      if (rop.loop < 0) continue;
      const auto& values = ended[static_cast<size_t>(rop.loop)];
      const std::vector<TensorId> reads = reads_of(rop);
      if (rop.ends_iteration && std::any_of(reads.begin(), reads.end(), [&](TensorId id) { return values.contains(buffer_of(id)); }))
        refuse("reads a value of the iteration while another is made of it");
      for (const TensorId id : rop.outputs) {
        if (rop.ends_iteration) continue;
        if (values.contains(buffer_of(id))) refuse("writes where a value of the next iteration will be");
        if (graph_.buffers[buffer_of(id).index()].kind == BufferKind::output) refuse("writes an output in a loop, which may not run");
      }
    }
  }
  BufferId buffer_of(TensorId id) const { return graph_.tensor(id).place.buffer; }
  // The loop that what it makes is in.
  int32_t loop_behind(const ROperator& rop) const {
    return rop.ends_iteration ? graph_.loops[static_cast<size_t>(rop.loop)].parent : rop.loop;
  }

  void verify_condition(size_t loop) {
    const Tensor& condition = graph_.tensor(graph_.loops[loop].condition);
    const bool is_whole = condition.dtype == DType::boolean && element_count(condition.shape) == 1 &&
                          graph_.buffers[condition.place.buffer.index()].kind == BufferKind::arena && condition.place.offset % 4 == 0;
    if (!is_whole) violations_.add(fmt::format("the condition of loop '{}' is not where lanes can look at it", printable(name(loop))));
  }

  const RProgram& program_;
  const Graph& graph_;
  const Clocks& clocks_;
  Violations& violations_;
  LoopLanes lanes_;
};

}  // namespace

void verify_loops(const RProgram& program, const Clocks& clocks, Violations& violations) {
  const bool has_turns = std::any_of(program.lanes.begin(), program.lanes.end(), [](const auto& lane) {
    return std::any_of(lane.begin(), lane.end(), [](const Instruction& i) { return i.turn != Turn::none; });
  });
  if (has_turns || !program.graph.loops.empty()) LoopVerifier(program, clocks, violations).run();
}

}  // namespace tamp::schedule
