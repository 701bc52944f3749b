#include "test/bench/mutants.h"

#include <algorithm>
#include <utility>

#include "compiler/schedule/launches.h"
#include "compiler/schedule/memory_plan.h"

namespace tamp::test {
namespace {

using Random = std::mt19937;

size_t any(Random& random, size_t count) { return random() % count; }
bool chance(Random& random) { return random() % 2 == 0; }

struct Spot {
  size_t veu = 0, position = 0;
};

// A random instruction for which `wanted` is true.
template <class Wanted>
bool pick(const RProgram& program, Random& random, Spot& spot, Wanted wanted) {
  std::vector<Spot> found;
  for (size_t veu = 0; veu < program.lanes.size(); ++veu) {
    for (size_t p = 0; p < program.lanes[veu].size(); ++p) {
      if (wanted(program.lanes[veu][p], p, program.lanes[veu].size())) found.push_back({veu, p});
    }
  }
  if (found.empty()) return false;
  spot = found[any(random, found.size())];
  return true;
}

Instruction& at(RProgram& program, Spot spot) { return program.lanes[spot.veu][spot.position]; }

bool has_waits(const Instruction& i, size_t, size_t) { return !i.waits.empty(); }
bool signals(const Instruction& i, size_t, size_t) { return i.signal.valid(); }
bool runs(const Instruction& i, size_t, size_t) { return i.rtask.rop.valid(); }

// --- Waits and signals -----------------------------------------------------------------------------------------------

bool drop_wait(RProgram& program, Random& random) {
  Spot spot;
  if (!pick(program, random, spot, has_waits)) return false;
  auto& waits = at(program, spot).waits;
  waits.erase(waits.begin() + static_cast<std::ptrdiff_t>(any(random, waits.size())));
  return true;
}

bool wait_for_another_event(RProgram& program, Random& random) {
  Spot spot;
  if (program.events.size() < 2 || !pick(program, random, spot, has_waits)) return false;
  auto& waits = at(program, spot).waits;
  EventId& wait = waits[any(random, waits.size())];
  const EventId was = wait;
  while (wait == was) wait = EventId(static_cast<int64_t>(any(random, program.events.size())));
  return true;
}

bool wait_one_later(RProgram& program, Random& random) {
  Spot spot;
  if (!pick(program, random, spot, [](const Instruction& i, size_t p, size_t size) { return !i.waits.empty() && p + 1 < size; }))
    return false;
  auto& waits = at(program, spot).waits;
  const size_t which = any(random, waits.size());
  program.lanes[spot.veu][spot.position + 1].waits.push_back(waits[which]);
  waits.erase(waits.begin() + static_cast<std::ptrdiff_t>(which));
  return true;
}

bool drop_signal(RProgram& program, Random& random) {
  Spot spot;
  if (!pick(program, random, spot, signals)) return false;
  at(program, spot).signal = {};
  return true;
}

bool drop_signal_and_count(RProgram& program, Random& random) {
  Spot spot;
  if (!pick(program, random, spot, signals)) return false;
  --program.events[std::exchange(at(program, spot).signal, EventId()).index()].count;
  return true;
}

bool signal_one_earlier(RProgram& program, Random& random) {
  Spot spot;
  if (!pick(program, random, spot, [](const Instruction& i, size_t p, size_t) { return i.signal.valid() && p > 0; })) return false;
  std::swap(at(program, spot).signal, program.lanes[spot.veu][spot.position - 1].signal);
  return true;
}

bool count_less(RProgram& program, Random& random) {
  if (program.events.empty()) return false;
  --program.events[any(random, program.events.size())].count;
  return true;
}

bool count_more(RProgram& program, Random& random) {
  if (program.events.empty()) return false;
  ++program.events[any(random, program.events.size())].count;
  return true;
}

// --- the order of lanes ----------------------------------------------------------------------------------------------

// Two instructions of one lane; half of the time they are neighbours.
bool pick_two(const RProgram& program, Random& random, Spot& first, size_t& second) {
  if (!pick(program, random, first, [](const Instruction&, size_t p, size_t size) { return p + 1 < size; })) return false;
  const size_t behind = program.lanes[first.veu].size() - first.position - 1;
  second = first.position + 1 + (chance(random) ? 0 : any(random, behind));
  return true;
}

bool swap_instructions(RProgram& program, Random& random) {
  Spot first;
  size_t second = 0;
  if (!pick_two(program, random, first, second)) return false;
  std::swap(at(program, first), program.lanes[first.veu][second]);
  return true;
}

bool swap_rtasks(RProgram& program, Random& random) {
  Spot first;
  size_t second = 0;
  if (!pick_two(program, random, first, second)) return false;
  std::swap(at(program, first).rtask, program.lanes[first.veu][second].rtask);
  return true;
}

bool move_to_another_lane(RProgram& program, Random& random) {
  Spot spot;
  if (program.lanes.size() < 2 || !pick(program, random, spot, runs)) return false;
  const Instruction moved = at(program, spot);
  size_t to = spot.veu;
  while (to == spot.veu) to = any(random, program.lanes.size());
  auto &from = program.lanes[spot.veu], &lane = program.lanes[to];
  from.erase(from.begin() + static_cast<std::ptrdiff_t>(spot.position));
  lane.insert(
      lane.begin() + static_cast<std::ptrdiff_t>(chance(random) ? std::min(spot.position, lane.size()) : any(random, lane.size() + 1)),
      moved);
  return true;
}

bool once_too_few_or_often(RProgram& program, Random& random) {
  Spot spot;
  if (!pick(program, random, spot, runs)) return false;
  if (chance(random))
    at(program, spot).rtask = {};
  else
    program.lanes[any(random, program.lanes.size())].push_back({at(program, spot).rtask, {}, {}});
  return true;
}

// --- places ----------------------------------------------------------------------------------------------------------

// Moves an offset: to where another one is, by a few steps of the alignment, or by less than one step.
void shift(int64_t& offset, const std::vector<int64_t*>& all, Random& random) {
  const int64_t steps[] = {-4, -2, -1, 1, 2, 4, 16, 64};
  switch (random() % 8) {
    case 0: offset += chance(random) ? 16 : 4; return;
    case 1:
    case 2:
    case 3: offset = *all[any(random, all.size())]; return;
    default: offset += schedule::kAlignmentBytes * steps[any(random, std::size(steps))];
  }
}

bool shift_buffer(RProgram& program, Random& random) {
  std::vector<int64_t*> offsets;
  for (auto* list : {&program.memory.buffer_offset, &program.memory.scratch_offset}) {
    for (int64_t& offset : *list) {
      if (offset >= 0) offsets.push_back(&offset);
    }
  }
  if (offsets.empty()) return false;
  int64_t& offset = *offsets[any(random, offsets.size())];
  const int64_t was = offset;
  while (offset == was) shift(offset, offsets, random);
  return true;
}

bool shift_exchange(RProgram& program, Random& random) {
  std::vector<int64_t*> exchanges, all;
  for (int64_t& offset : program.memory.exchange_offset) {
    if (offset >= 0) exchanges.push_back(&offset);
  }
  for (auto* list : {&program.memory.buffer_offset, &program.memory.scratch_offset, &program.memory.exchange_offset}) {
    for (int64_t& offset : *list) {
      if (offset >= 0) all.push_back(&offset);
    }
  }
  if (exchanges.empty()) return false;
  int64_t& offset = *exchanges[any(random, exchanges.size())];
  const int64_t was = offset;
  while (offset == was) shift(offset, all, random);
  return true;
}

bool shift_weights(RProgram& program, Random& random) {
  std::vector<int64_t*> offsets;
  for (WeightBlob& blob : program.weights) offsets.push_back(&blob.offset);
  if (offsets.empty()) return false;
  int64_t& offset = *offsets[any(random, offsets.size())];
  const int64_t was = offset;
  for (int tries = 0; offset == was; ++tries) {
    if (tries == 100) return false;
    shift(offset, offsets, random);
  }
  return true;
}

bool shorten_ring(RProgram& program, Random& random) {
  std::vector<RingWeights*> rings;
  for (RKernel& rkernel : program.rkernels) {
    for (Phase& phase : rkernel.phases) {
      if (phase.ring.chunks_per_rtask > 0) rings.push_back(&phase.ring);
    }
  }
  if (rings.empty()) return false;
  RingWeights& ring = *rings[any(random, rings.size())];
  if (ring.blocks > 1 && chance(random))
    --ring.blocks;
  else
    --ring.chunks_per_rtask;
  return true;
}

// --- what an rKernel says of itself ---

std::vector<Phase*> phases_that(RProgram& program, bool (*wanted)(const Phase&)) {
  std::vector<Phase*> found;
  for (RKernel& rkernel : program.rkernels) {
    for (Phase& phase : rkernel.phases) {
      if (phase.rtasks > 0 && wanted(phase)) found.push_back(&phase);
    }
  }
  return found;
}

Phase* phase_that(RProgram& program, Random& random, bool (*wanted)(const Phase&)) {
  const std::vector<Phase*> found = phases_that(program, wanted);
  return found.empty() ? nullptr : found[any(random, found.size())];
}

bool has_boxes(const Phase& phase) { return phase.boxes.has_value(); }

bool boxes_of_another(RProgram& program, Random& random) {
  Phase* const phase = phase_that(program, random, has_boxes);
  if (phase == nullptr || program.graph.tensors.size() < 2) return false;
  TensorId& tensor = phase->boxes->tensor;
  const TensorId was = tensor;
  while (tensor == was) tensor = TensorId(static_cast<int64_t>(any(random, program.graph.tensors.size())));
  return true;
}

// Another number: a little away, far away, or not there.
bool change(int64_t& number, Random& random) {
  const int64_t was = number, others[] = {was + 1, was - 1, was * 1000, -1000, 0, 2 * was};
  while (number == was) number = others[any(random, std::size(others))];
  return true;
}

bool change_boxes(RProgram& program, Random& random) {
  Phase* const phase = phase_that(program, random, has_boxes);
  if (phase == nullptr) return false;
  InputBoxes& b = *phase->boxes;
  int64_t* const numbers[] = {&b.extents[0],     &b.extents[1],   &b.extents[2],  &b.extents[3],     &b.strides[0],      &b.strides[1],
                              &b.strides[2],     &b.strides[3],   &b.box_w,       &b.box_h,          &b.tiles_w,         &b.tiles_h,
                              &b.images,         &b.begin_w,      &b.begin_h,     &b.step_w,         &b.step_h,          &b.splits,
                              &b.n_blocks,       &b.boxes,        &b.value_bytes, &b.group_channels, &b.boxes_per_split, &b.boxes_per_chunk,
                              &b.boxes_per_copy, &b.blocks_beside};
  return change(*numbers[any(random, std::size(numbers))], random);
}

bool change_words(RProgram& program, Random& random) {
  Phase* const phase = phase_that(program, random, [](const Phase& p) { return p.words != 0; });
  if (phase == nullptr) return false;
  std::vector<WordsUse>& uses = phase->may_await.empty() ? phase->may_publish : phase->may_await;
  switch (random() % 3) {
    case 0: phase->words ^= 1U << (random() % 32); return true;
    case 1: phase->words = 0; return true;
    default: break;
  }
  if (uses.empty() || program.graph.buffers.size() < 2) return false;
  BufferId& buffer = uses[any(random, uses.size())].buffer;
  const BufferId was = buffer;
  while (buffer == was) buffer = BufferId(static_cast<int64_t>(any(random, program.graph.buffers.size())));
  return true;
}

bool change_cluster(RProgram& program, Random& random) {
  Phase* phase = phase_that(program, random, [](const Phase& p) { return p.cluster > 1; });
  if (phase == nullptr) phase = phase_that(program, random, has_boxes);
  if (phase == nullptr) return false;
  phase->cluster = phase->cluster > 1 ? 1 : 4;
  return true;
}

bool change_work(RProgram& program, Random& random) {
  Phase* const phase = phase_that(program, random, [](const Phase& p) { return p.work_bytes > 0; });
  if (phase == nullptr) return false;
  phase->work_bytes = chance(random) ? 0 : phase->work_bytes / 2;
  return true;
}

bool change_flag(RProgram& program, Random& random) {
  Phase* const phase = phase_that(program, random, [](const Phase&) { return true; });
  if (phase == nullptr) return false;
  bool* const flags[] = {&phase->awaits_inputs, &phase->stores_behind_boxes, &phase->awaits_all_or_none, &phase->many_registers};
  bool& flag = *flags[any(random, std::size(flags))];
  flag = !flag;
  return true;
}

bool change_argument(RProgram& program, Random& random) {
  Phase* const phase = phase_that(program, random, [](const Phase& p) { return !p.args.empty(); });
  if (phase == nullptr) return false;
  ArgValue* value = &phase->args[any(random, phase->args.size())].value;
  while (auto* const list = std::get_if<ArgList>(&value->value)) {
    if (list->empty()) return false;
    value = &(*list)[any(random, list->size())];
  }
  if (auto* const number = std::get_if<int64_t>(&value->value)) return change(*number, random);
  if (auto* const tensor = std::get_if<TensorArg>(&value->value)) return change(tensor->extra, random);
  return false;
}

// --- launches --------------------------------------------------------------------------------------------------------

PhaseLaunch* launch_with_edges(RProgram& program, Random& random) {
  std::vector<PhaseLaunch*> found;
  for (PhaseLaunch& launch : *program.launches) {
    if (!launch.after.empty()) found.push_back(&launch);
  }
  return found.empty() ? nullptr : found[any(random, found.size())];
}

bool drop_edge(RProgram& program, Random& random) {
  PhaseLaunch* const launch = launch_with_edges(program, random);
  if (launch == nullptr) return false;
  launch->after.erase(launch->after.begin() + static_cast<std::ptrdiff_t>(any(random, launch->after.size())));
  return true;
}

bool edge_to_another(RProgram& program, Random& random) {
  PhaseLaunch* const launch = launch_with_edges(program, random);
  if (launch == nullptr) return false;
  int32_t& edge = launch->after[any(random, launch->after.size())];
  const int32_t was = edge;
  while (edge == was) edge = static_cast<int32_t>(any(random, program.launches->size()));
  return true;
}

// The two launches swap, but their numbers stay: a launch that was after the one is now after the other.
bool swap_launches(RProgram& program, Random& random) {
  auto& launches = *program.launches;
  if (launches.size() < 2) return false;
  const size_t first = any(random, launches.size() - 1);
  const size_t second = first + 1 + (chance(random) ? 0 : any(random, launches.size() - first - 1));
  std::swap(launches[first], launches[second]);
  return true;
}

// The two launches exchange places, and a launch that was after one of them still is, at the new place.
bool exchange_places(RProgram& program, Random& random) {
  auto& launches = *program.launches;
  if (launches.size() < 2) return false;
  const size_t first = any(random, launches.size() - 1);
  const size_t second = first + 1 + (chance(random) ? 0 : any(random, launches.size() - first - 1));
  std::swap(launches[first], launches[second]);
  const auto a = static_cast<int32_t>(first), b = static_cast<int32_t>(second);
  for (PhaseLaunch& launch : launches) {
    for (int32_t& m : launch.after) m = m == a ? b : m == b ? a : m;
    std::sort(launch.after.begin(), launch.after.end());
  }
  return true;
}

bool another_stream(RProgram& program, Random& random) {
  if (program.launches->empty()) return false;
  int32_t& stream = (*program.launches)[any(random, program.launches->size())].stream;
  const int32_t was = stream;
  while (stream == was) stream = static_cast<int32_t>(any(random, static_cast<size_t>(schedule::kMostStreams)));
  return true;
}

bool launch_too_few_or_often(RProgram& program, Random& random) {
  auto& launches = *program.launches;
  if (launches.size() < 2) return false;
  launches[any(random, launches.size())] = launches[any(random, launches.size())];
  return true;
}

}  // namespace

const std::vector<MutantKind>& lane_mutants() {
  static const std::vector<MutantKind> kinds = {{"a Wait left out", drop_wait},
                                                {"a Wait for another event", wait_for_another_event},
                                                {"a Wait one instruction later", wait_one_later},
                                                {"a signal left out", drop_signal},
                                                {"a signal left out, and counted so", drop_signal_and_count},
                                                {"a signal one instruction earlier", signal_one_earlier},
                                                {"an event that counts one less", count_less},
                                                {"an event that counts one more", count_more},
                                                {"two instructions of a lane exchanged", swap_instructions},
                                                {"two rTasks of a lane exchanged", swap_rtasks},
                                                {"an instruction on another lane", move_to_another_lane},
                                                {"a rTask left out or run twice", once_too_few_or_often},
                                                {"a buffer at another place", shift_buffer},
                                                {"an exchange at another place", shift_exchange},
                                                {"weights at another place", shift_weights},
                                                {"a ring of weights shorter", shorten_ring},
                                                {"boxes of another tensor", boxes_of_another},
                                                {"a number of boxes", change_boxes},
                                                {"words of others", change_words},
                                                {"a cluster", change_cluster},
                                                {"less shared memory", change_work},
                                                {"a flag", change_flag},
                                                {"an argument", change_argument}};
  return kinds;
}

const std::vector<MutantKind>& launch_mutants() {
  static const std::vector<MutantKind> kinds = {{"an edge between launches left out", drop_edge},
                                                {"an edge from another launch", edge_to_another},
                                                {"two launches exchanged, edges by number", swap_launches},
                                                {"two launches exchanged, edges with them", exchange_places},
                                                {"a launch on another stream", another_stream},
                                                {"a launch left out, another twice", launch_too_few_or_often},
                                                {"a buffer at another place", shift_buffer},
                                                {"weights at another place", shift_weights},
                                                {"a ring of weights shorter", shorten_ring},
                                                {"boxes of another tensor", boxes_of_another},
                                                {"a number of boxes", change_boxes},
                                                {"less shared memory", change_work},
                                                {"a flag", change_flag},
                                                {"an argument", change_argument}};
  return kinds;
}

void mend(RProgram& program, const RProgram& right) {
  program.lanes = right.lanes;
  program.events = right.events;
  program.launches = right.launches;
  program.memory = right.memory;
  program.weights = right.weights;
  program.rkernels = right.rkernels;
}

}  // namespace tamp::test
