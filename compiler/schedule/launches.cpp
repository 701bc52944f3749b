// Order, dependencies and streams of graph execution. The arena was planned for the lanes: two buffers may share memory where the lanes and
// events finish with one before they write the other. So the launches keep the order that the lanes have, and every two buffers that share
// memory get a dependency, as data do.
#include "compiler/schedule/launches.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "compiler/schedule/clocks.h"
#include "compiler/schedule/dependencies.h"
#include "compiler/schedule/schedule.h"
#include "compiler/schedule/verify_memory.h"
#include "compiler/support/error.h"
#include "compiler/support/nearest.h"
#include "compiler/support/text.h"

namespace tamp::schedule {
namespace {

// A piece of the arena with the rOperators that use it.
struct Block {
  int64_t begin = 0, end = 0;  // bytes
  std::vector<size_t> users, writers;
};

class Launches {
 public:
  Launches(const RProgram& program, const std::vector<Stage>& stages)
      : program_(program), stages_(stages), of_rop_(program.graph.rops.size()), before_(program.graph.rops.size()) {}

  std::vector<PhaseLaunch> run() {
    refuse_gangs();
    order();
    require_data();
    require_memory();
    require_stages();
    connect();
    mark_dependents(launches_, program_.vdevice);
    return std::move(launches_);
  }

 private:
  void refuse_gangs() const {
    for (size_t i = 0; i < program_.rkernels.size(); ++i) {
      if (!program_.rkernels[i].gang) continue;
      throw unsupported(
          "execution graph: '{}' is a recurrent layer whose rTasks run at the same time and talk to each other, which one "
          "kernel per phase cannot; "
          "supported: persistent",
          printable(program_.graph.rops[i].name));
    }
  }

  // Phases in the order of their first rTask. Where a plan has stages: stage by stage, and within a stage first the first rOperators of all
  // groups, then the second ones, as in the plan.
  void order() {
    const Clocks clocks(program_);
    TAMP_CHECK(clocks.is_complete(), "launches of a rProgram that cannot end");
    std::vector<std::vector<bool>> seen(program_.rkernels.size());
    for (size_t i = 0; i < seen.size(); ++i) seen[i].assign(program_.rkernels[i].phases.size(), false);
    for (const At at : clocks.order()) {
      const RTask& rtask = program_.lanes[static_cast<size_t>(at.veu)][static_cast<size_t>(at.position)].rtask;
      if (!rtask.rop.valid() || seen[rtask.rop.index()][static_cast<size_t>(rtask.phase)]) continue;
      seen[rtask.rop.index()][static_cast<size_t>(rtask.phase)] = true;
      launches_.push_back({rtask.rop, rtask.phase, {}, 0, false});
    }
    std::vector<std::pair<size_t, size_t>> place_of(program_.rkernels.size());  // stage, place in its group
    for (size_t i = 0; i < stages_.size(); ++i) {
      for (const Group& group : stages_[i]) {
        for (size_t k = 0; k < group.size(); ++k) place_of[group[k].index()] = {i, k};
      }
    }
    std::stable_sort(launches_.begin(), launches_.end(),
                     [&](const PhaseLaunch& a, const PhaseLaunch& b) { return place_of[a.rop.index()] < place_of[b.rop.index()]; });
    for (size_t n = 0; n < launches_.size(); ++n) of_rop_[launches_[n].rop.index()].push_back(n);
  }

  // Every launch of `first` is to be done before any launch of `second` begins.
  void require(size_t first, size_t second) {
    if (first != second) before_[second].push_back(first);
  }

  void require_data() {
    const Dependencies dependencies = find_dependencies(program_.graph);
    for (size_t i = 0; i < dependencies.producers.size(); ++i) {
      for (const ROperatorId producer : dependencies.producers[i]) require(producer.index(), i);
    }
  }

  void require_memory() {
    const std::vector<Block> blocks = blocks_of_arena();
    for (size_t a = 0; a < blocks.size(); ++a) {
      for (size_t b = a + 1; b < blocks.size() && blocks[b].begin < blocks[a].end; ++b) {
        const bool a_first = earliest(blocks[a].writers) < earliest(blocks[b].writers);
        const Block& old = blocks[a_first ? a : b];
        for (const size_t writer : blocks[a_first ? b : a].writers) {
          for (const size_t user : old.users) require(user, writer);
        }
      }
    }
  }

  void require_stages() {
    for (size_t i = 0; i < stages_.size(); ++i) {
      for (const Group& group : stages_[i]) {
        for (size_t k = 1; k < group.size(); ++k) require(group[k - 1].index(), group[k].index());
        if (i == 0 || group.empty()) continue;
        for (const Group& other : stages_[i - 1]) require(other.back().index(), group.front().index());
      }
    }
  }

  // Sorted by where they begin; only blocks that something is written to.
  std::vector<Block> blocks_of_arena() const {
    const Graph& graph = program_.graph;
    std::vector<Block> blocks(graph.buffers.size());
    const auto use = [&](size_t rop, TensorId id, bool is_write) {
      const BufferId buffer = graph.tensor(id).place.buffer;
      if (!buffer.valid() || of_rop_[rop].empty()) return;
      const int64_t offset = program_.memory.buffer_offset[buffer.index()];
      if (offset < 0) return;
      Block& block = blocks[buffer.index()];
      block.begin = offset;
      block.end = offset + graph.buffers[buffer.index()].elements * bytes_of(graph.buffers[buffer.index()].dtype);
      block.users.push_back(rop);
      if (is_write) block.writers.push_back(rop);
    };
    for (size_t i = 0; i < graph.rops.size(); ++i) {
      for (const TensorId id : reads_of(graph.rops[i])) use(i, id, /*is_write=*/false);
      for (const TensorId id : graph.rops[i].outputs) use(i, id, /*is_write=*/true);
      const int64_t scratch = program_.memory.scratch_offset[i];
      if (scratch >= 0) blocks.push_back({scratch, scratch + program_.rkernels[i].scratch_elements * bytes_of(DType::f32), {i}, {i}});
    }
    std::erase_if(blocks, [](const Block& block) { return block.writers.empty(); });
    std::sort(blocks.begin(), blocks.end(), [](const Block& a, const Block& b) { return a.begin < b.begin; });
    return blocks;
  }

  size_t earliest(const std::vector<size_t>& rops) const {
    size_t first = SIZE_MAX;
    for (const size_t rop : rops) first = std::min(first, of_rop_[rop].front());
    return first;
  }

  // Fills PhaseLaunch::after, without the launches that others of them imply, and chooses streams.
  void connect() {
    Streams streams(launches_.size());
    for (size_t n = 0; n < launches_.size(); ++n) {
      const size_t rop = launches_[n].rop.index();
      std::vector<size_t> wanted;
      if (of_rop_[rop].front() != n)
        wanted.push_back(phase_before(rop, n));
      else
        collect(rop, wanted);
      for (const size_t m : wanted) {
        TAMP_CHECK(m < n, "'" + program_.graph.rops[rop].name + "' comes before what it needs");
        launches_[n].after.push_back(static_cast<int32_t>(m));
      }
      launches_[n].stream = streams.add(launches_[n].after).stream;
    }
  }

  size_t phase_before(size_t rop, size_t n) const { return *(std::find(of_rop_[rop].begin(), of_rop_[rop].end(), n) - 1); }

  // The last launch of each rOperator that must be done before `rop`. A view has no launch; what must be done before the view counts in its
  // place.
  void collect(size_t rop, std::vector<size_t>& wanted) const {
    for (const size_t other : before_[rop]) {
      if (!of_rop_[other].empty())
        wanted.push_back(of_rop_[other].back());
      else
        collect(other, wanted);
    }
  }

  const RProgram& program_;
  const std::vector<Stage>& stages_;
  std::vector<PhaseLaunch> launches_;
  std::vector<std::vector<size_t>> of_rop_;  // per rOperator: its launches, in order
  std::vector<std::vector<size_t>> before_;  // per rOperator: the rOperators to be done before it begins
};

}  // namespace

Execution parse_execution(const std::string& name) {
  if (name == "persistent") return Execution::persistent;
  if (name == "graph") return Execution::graph;
  throw bad_input("execution '{}' is not known, supported: persistent, graph{}", printable(name),
                  did_you_mean(name, {"persistent", "graph"}));
}

std::vector<PhaseLaunch> launches_of(const RProgram& program, const std::vector<Stage>& stages) { return Launches(program, stages).run(); }

RProgram with_lanes_in_order(const RProgram& program) {
  if (!program.launches) return program;
  RProgram out = program;
  out.lanes.clear();
  out.events.clear();
  for (size_t n = 0; n < program.launches->size(); ++n) {
    const PhaseLaunch& launch = (*program.launches)[n];
    Instruction all{{launch.rop, launch.phase, 0}, {}, EventId(static_cast<int64_t>(n))};
    for (const int32_t m : launch.after) all.waits.emplace_back(m);
    out.lanes.push_back({std::move(all)});
    out.events.push_back({fmt::format("launch {}", n), 1});
  }
  return out;
}

namespace {

// The host gives launches to the device in their order, so a launch cannot wait for a later one: what that one records would come too late.
void verify_each_launch(const RProgram& program, Violations& violations) {
  const std::vector<PhaseLaunch>& launches = *program.launches;
  for (size_t n = 0; n < launches.size(); ++n) {
    const PhaseLaunch& launch = launches[n];
    const bool has_rop = launch.rop.valid() && launch.rop.index() < program.rkernels.size();
    const bool exists = has_rop && launch.phase >= 0 &&
                        static_cast<size_t>(launch.phase) < program.rkernels[launch.rop.index()].phases.size() &&
                        program.rkernels[launch.rop.index()].phases[static_cast<size_t>(launch.phase)].rtasks > 0;
    if (!exists) violations.add(fmt::format("launch {} is of a phase that does not exist or has no rTasks", n));
    if (exists && (program.rkernels[launch.rop.index()].gang ||
                   program.rkernels[launch.rop.index()].phases[static_cast<size_t>(launch.phase)].cluster != 1))
      violations.add(fmt::format("launch {} is of rTasks that must run at the same time", n));
    if (launch.stream < 0 || launch.stream >= kMostStreams)
      violations.add(fmt::format("launch {} is on stream {}, there are {}", n, launch.stream, kMostStreams));
    for (const int32_t m : launch.after) {
      if (m < 0 || static_cast<size_t>(m) >= n) violations.add(fmt::format("launch {} is after launch {}, which is not before it", n, m));
    }
  }
}

}  // namespace

// A program with a lane and an event per launch: nothing but PhaseLaunch::after orders the launches, and nothing orders the rTasks of one
// launch.
std::vector<std::string> verify_launches(const RProgram& program, size_t limit, const select::Families& families) {
  TAMP_CHECK(program.launches.has_value(), "launches of a rProgram for persistent execution");
  Violations violations(limit);
  verify_each_launch(program, violations);
  if (!violations.none()) return violations.take();
  const std::vector<std::string> wrong = verify_dependents(program);
  if (!wrong.empty()) return wrong;
  RProgram apart = with_lanes_in_order(program);
  for (std::vector<Instruction>& lane : apart.lanes) {
    const Instruction all = std::move(lane.front());
    lane.clear();
    const int64_t rtasks = program.rkernels[all.rtask.rop.index()].phases[static_cast<size_t>(all.rtask.phase)].rtasks;
    for (int64_t i = 0; i < rtasks; ++i) lane.push_back({{all.rtask.rop, all.rtask.phase, i}, {}, EventId()});
    lane.front().waits = all.waits;
    lane.back().signal = all.signal;
  }
  apart.vdevice.sms = static_cast<int64_t>(apart.lanes.size());
  apart.vdevice.veus_per_sm = 1;
  return verify_in(LaneOrder::none, apart, limit, families);
}

}  // namespace tamp::schedule
