// Proves that an rProgram is correct, so that a bug of a policy cannot become a wrong answer. Nothing is taken over from the policies and
// the memory plan: the proof starts from the lanes, the events' counts, the offsets, and the regions that the families declare for each
// rTask. Each check assumes that the checks before it passed, so the first check that fails is the last to run.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <tuple>

#include "compiler/ir/over_inputs.h"
#include "compiler/schedule/memory_plan.h"
#include "compiler/schedule/schedule.h"
#include "compiler/schedule/verify_memory.h"
#include "compiler/support/error.h"
#include "compiler/support/text.h"

namespace tamp::schedule {
namespace {

bool in_range(int64_t value, size_t count) { return value >= 0 && value < static_cast<int64_t>(count); }

void verify_instruction(const RProgram& program, At at, const Instruction& i, Violations& violations) {
  const auto where = [&] { return fmt::format("vEU {} instruction {}", at.veu, at.position); };
  for (const EventId id : i.waits) {
    if (!in_range(id.value, program.events.size()))
      violations.add(fmt::format("{} waits for event {}, which does not exist", where(), id.value));
  }
  if (i.signal.valid() && !in_range(i.signal.value, program.events.size())) {
    violations.add(fmt::format("{} signals event {}, which does not exist", where(), i.signal.value));
  }
  const RTask& t = i.rtask;
  if (!t.rop.valid()) return;
  const bool exists = in_range(t.rop.value, program.rkernels.size()) && in_range(t.phase, program.rkernels[t.rop.index()].phases.size()) &&
                      in_range(t.index, static_cast<size_t>(program.rkernels[t.rop.index()].phases[static_cast<size_t>(t.phase)].rtasks));
  if (!exists) violations.add(fmt::format("{} runs a rTask that does not exist", where()));
}

void verify_shape(const RProgram& program, Violations& violations) {
  const size_t rops = program.graph.rops.size();
  if (static_cast<int64_t>(program.lanes.size()) != program.vdevice.veus()) {
    violations.add(fmt::format("{} lanes for the {} vEUs of '{}'", program.lanes.size(), program.vdevice.veus(), program.vdevice.name));
  }
  if (program.rkernels.size() != rops || program.memory.scratch_offset.size() != rops || program.memory.exchange_offset.size() != rops ||
      program.memory.buffer_offset.size() != program.graph.buffers.size() ||
      program.memory.words_offset.size() != program.graph.buffers.size()) {
    violations.add("a list that has one entry per rOperator or buffer has another length");
  }
  if (!violations.none()) return;
  for (size_t veu = 0; veu < program.lanes.size(); ++veu) {
    for (size_t p = 0; p < program.lanes[veu].size(); ++p) {
      verify_instruction(program, {static_cast<int32_t>(veu), static_cast<int32_t>(p)}, program.lanes[veu][p], violations);
    }
  }
}

void verify_fits(const RProgram& program, Violations& violations) {
  const ShapedVDevice& d = program.vdevice;
  for (size_t i = 0; i < program.rkernels.size(); ++i) {
    for (const Phase& phase : program.rkernels[i].phases) {
      const std::string who = fmt::format("'{}' ({})", printable(program.graph.rops[i].name), program.rkernels[i].name);
      const int64_t room = !phase.boxes ? over_inputs(d).work_bytes() : phase.stores_behind_boxes ? d.work_bytes() : d.work_beside_inputs();
      if (phase.work_bytes > room)
        violations.add(fmt::format("{} needs {} bytes of shared memory, a vEU of '{}' has {}", who, phase.work_bytes, d.name, room));
      if (phase.boxes && (d.input_stages == 0 || phase.boxes->boxes_per_chunk < 1 ||
                          phase.boxes->boxes_per_chunk * phase.boxes->box_bytes() > d.input_stage_bytes)) {
        violations.add(fmt::format("{} has input chunks of {} boxes of {} bytes, '{}' has {} stages of {} bytes", who,
                                   phase.boxes->boxes_per_chunk, phase.boxes->box_bytes(), d.name, d.input_stages, d.input_stage_bytes));
      }
      const RingWeights& ring = phase.ring;
      if (ring.chunks_per_rtask == 0) continue;
      if (ring.chunk_bytes <= 0 || ring.chunk_bytes % 16 != 0 || ring.chunk_bytes > d.weight_stage_bytes) {
        violations.add(
            fmt::format("{} has weight chunks of {} bytes, a stage of '{}' has {}", who, ring.chunk_bytes, d.name, d.weight_stage_bytes));
      }
      if (ring.chunks_per_rtask < 0 || ring.rtasks_per_block < 1 || ring.blocks < 1)
        violations.add(who + " has a malformed ring of weights");
    }
  }
}

void verify_each_rtask_once(const RProgram& program, Violations& violations) {
  std::vector<std::vector<std::vector<int32_t>>> runs(program.rkernels.size());
  for (size_t i = 0; i < runs.size(); ++i) {
    for (const Phase& phase : program.rkernels[i].phases) runs[i].emplace_back(static_cast<size_t>(phase.rtasks), 0);
  }
  for (const auto& lane : program.lanes) {
    for (const Instruction& i : lane) {
      if (i.rtask.rop.valid()) ++runs[i.rtask.rop.index()][static_cast<size_t>(i.rtask.phase)][static_cast<size_t>(i.rtask.index)];
    }
  }
  for (size_t i = 0; i < runs.size(); ++i) {
    for (size_t p = 0; p < runs[i].size(); ++p) {
      for (size_t t = 0; t < runs[i][p].size(); ++t) {
        if (runs[i][p][t] == 1) continue;
        violations.add(fmt::format("'{}' phase {} rTask {} runs {} times", printable(program.graph.rops[i].name), p, t, runs[i][p][t]));
      }
    }
  }
}

void verify_counts(const RProgram& program, Violations& violations) {
  std::vector<int64_t> signals(program.events.size(), 0);
  for (const auto& lane : program.lanes) {
    for (const Instruction& i : lane) {
      if (i.signal.valid()) ++signals[i.signal.index()];
    }
  }
  for (size_t e = 0; e < signals.size(); ++e) {
    if (signals[e] == program.events[e].count) continue;
    violations.add(fmt::format("event '{}' counts {} signals, but {} instructions signal it", printable(program.events[e].name),
                               program.events[e].count, signals[e]));
  }
}

void verify_ends(const RProgram& program, const Clocks& clocks, Violations& violations) {
  if (clocks.is_complete()) return;
  for (size_t veu = 0; veu < program.lanes.size(); ++veu) {
    for (size_t p = 0; p < program.lanes[veu].size(); ++p) {
      const At at{static_cast<int32_t>(veu), static_cast<int32_t>(p)};
      if (clocks.runs(at)) continue;
      violations.add(fmt::format("{} waits for ever", describe(program, at)));
      break;
    }
  }
}

// Each blob is a constant's, or what a family packs for a phase, and there are no two of the same.
void verify_ids_of_weights(const RProgram& program, Violations& violations) {
  std::set<std::tuple<TensorId, ROperatorId, int32_t>> known;
  for (const WeightBlob& blob : program.weights) {
    const bool is_packed = in_range(blob.rop.value, program.rkernels.size()) && !blob.constant.valid() &&
                           in_range(blob.phase, program.rkernels[blob.rop.index()].phases.size());
    const bool is_constant = in_range(blob.constant.value, program.graph.tensors.size()) && !blob.rop.valid() &&
                             program.graph.tensor(blob.constant).data != nullptr;
    if (!is_packed && !is_constant) violations.add(fmt::format("weights '{}' are of nothing that exists", printable(blob.name)));
    if (is_constant && blob.bytes != static_cast<int64_t>(program.graph.tensor(blob.constant).data.size()))
      violations.add(fmt::format("weights '{}' have {} bytes, their constant has others", printable(blob.name), blob.bytes));
    if (!known.emplace(blob.constant, blob.rop, blob.phase).second)
      violations.add(fmt::format("weights '{}' are there twice", printable(blob.name)));
  }
}

// What families divide by, and what is left of shared memory.
void verify_vdevice(const RProgram& program, Violations& violations) {
  constexpr int64_t kMostThreads = 1024;
  const ShapedVDevice& d = program.vdevice;
  const bool has_all = d.compute_threads > 0 && d.compute_threads % 32 == 0 && d.compute_threads <= kMostThreads && d.weight_stages > 0 &&
                       d.weight_stage_bytes > 0 && d.input_stages >= 0 && (d.input_stages == 0 || d.input_stage_bytes > 0) &&
                       d.work_beside_inputs() >= 0;
  if (!has_all) violations.add(fmt::format("vDevice '{}' has threads, stages or shared memory that no device has", printable(d.name)));
}

constexpr int64_t kClusterMembers = 4;

// A launch in clusters has whole ones, of the one size that bodies know.
void verify_clusters_of_launch(const RProgram& program, Violations& violations) {
  const int64_t members = program.vdevice.cluster_veus;
  const bool fits = members == 1 || (members == kClusterMembers && !program.launches && program.vdevice.veus() % members == 0);
  if (!fits) violations.add(fmt::format("{} vEUs cannot be in clusters of {}", program.vdevice.veus(), members));
}

// Every two blobs are apart, or lie in the same place with equal contents.
void verify_weights(const RProgram& program, Violations& violations) {
  std::set<std::pair<int64_t, int64_t>> stretches;
  for (const WeightBlob& blob : program.weights) {
    const bool inside = blob.offset >= 0 && blob.bytes >= 0 && blob.offset + blob.bytes <= program.weight_bytes;
    if (!inside)
      violations.add(
          fmt::format("weights '{}' end at byte {} of {}", printable(blob.name), blob.offset + blob.bytes, program.weight_bytes));
    if (blob.offset % kAlignmentBytes != 0)
      violations.add(fmt::format("weights '{}' at byte {} are not aligned", printable(blob.name), blob.offset));
    stretches.insert({blob.offset, blob.offset + blob.bytes});
  }
  int64_t end = 0;
  for (const auto& [from, to] : stretches) {
    if (from < end) violations.add(fmt::format("weights at byte {} overlap those before", from));
    end = std::max(end, to);
  }
}

void packed_places(const ArgValue& value, std::vector<int64_t>& places) {
  if (const auto* packed = std::get_if<PackedArg>(&value.value)) places.push_back(packed->offset_bytes);
  if (const auto* list = std::get_if<ArgList>(&value.value)) {
    for (const ArgValue& inner : *list) packed_places(inner, places);
  }
}

// Packed data must hold all blocks of the ring and every place that an argument points to. The ring must use all of its part of the data,
// which ends at the first place that an argument points to, or with the data: with a ring that is too short the body would wait for ever.
void verify_packed(const RProgram& program, Violations& violations) {
  std::map<std::pair<ROperatorId, int32_t>, int64_t> bytes;
  for (const WeightBlob& blob : program.weights) {
    if (blob.rop.valid()) bytes[{blob.rop, blob.phase}] = blob.bytes;
  }
  for (size_t i = 0; i < program.rkernels.size(); ++i) {
    for (size_t p = 0; p < program.rkernels[i].phases.size(); ++p) {
      const Phase& phase = program.rkernels[i].phases[p];
      if (phase.rtasks == 0) continue;
      const RingWeights& ring = phase.ring;
      const int64_t ring_bytes = ring.chunks_per_rtask > 0 ? ring.chunk_bytes * ring.chunks_per_rtask * ring.blocks : 0;
      std::vector<int64_t> places;
      for (const Arg& arg : phase.args) packed_places(arg.value, places);
      int64_t wanted = ring_bytes;
      for (const int64_t place : places) wanted = std::max(wanted, place + 1);
      const auto found = bytes.find({ROperatorId(static_cast<int64_t>(i)), static_cast<int32_t>(p)});
      const int64_t held = found == bytes.end() ? 0 : found->second;
      const std::string who = fmt::format("'{}' ({}) phase {}", printable(program.graph.rops[i].name), program.rkernels[i].name, p);
      if (wanted > held) violations.add(fmt::format("{} reads {} bytes of packed weights, which has {}", who, wanted, held));
      places.push_back(held);
      const int64_t part = *std::min_element(places.begin(), places.end());
      if (ring_bytes < part) violations.add(fmt::format("{} takes {} bytes by its ring of weights, which has {}", who, ring_bytes, part));
    }
  }
}

}  // namespace

std::string describe(const RProgram& program, At at) {
  const RTask& t = program.lanes[static_cast<size_t>(at.veu)][static_cast<size_t>(at.position)].rtask;
  if (!t.rop.valid()) return fmt::format("vEU {} instruction {}", at.veu, at.position);
  const std::string name = printable(program.graph.rop(t.rop).name);
  if (program.rkernels[t.rop.index()].phases.size() == 1) return fmt::format("'{}' rTask {} (vEU {})", name, t.index, at.veu);
  return fmt::format("'{}' phase {} rTask {} (vEU {})", name, t.phase, t.index, at.veu);
}

std::vector<std::string> verify(const RProgram& program, size_t limit, const select::Families& families) {
  Violations violations(limit);
  const auto checks = {verify_shape, verify_vdevice, verify_graph, verify_ids_of_weights, verify_fits, verify_clusters_of_launch};
  for (const auto check : checks) {
    check(program, violations);
    if (!violations.none()) return violations.take();
  }
  try {
    verify_rkernels(program, families, violations);
    if (!violations.none()) return violations.take();
    // From here on families get rKernels that they have listed.
    verify_boxes(program, families, violations);
    if (!violations.none()) return violations.take();
    return verify_in(LaneOrder::kept, program, limit, families);
  } catch (const InternalError& error) {  // of a family, about what it got
    violations.add(error.what());
  }
  return violations.take();
}

std::vector<std::string> verify_in(LaneOrder lane_order, const RProgram& program, size_t limit, const select::Families& families) {
  Violations violations(limit);
  verify_shape(program, violations);
  if (!violations.none()) return violations.take();
  // From here on all ids are known to be in range.
  verify_fits(program, violations);
  verify_weights(program, violations);
  verify_packed(program, violations);
  verify_each_rtask_once(program, violations);
  verify_counts(program, violations);
  verify_exchanges(program, families, violations);
  verify_guards(program, families, violations);
  verify_generation(program, violations);
  if (!violations.none()) return violations.take();
  const Clocks clocks(program, lane_order);
  verify_ends(program, clocks, violations);
  if (!violations.none()) return violations.take();
  // From here on every instruction is known to have a clock.
  verify_loops(program, clocks, violations);
  if (!violations.none()) return violations.take();
  verify_memory(program, clocks, families, violations);
  return violations.take();
}

}  // namespace tamp::schedule
