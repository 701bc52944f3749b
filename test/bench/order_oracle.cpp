#include "test/bench/order_oracle.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

namespace tamp::test {
namespace {

constexpr int64_t kAccessBytes = 16;  // vectors of four floats, bulk copies
constexpr int64_t kWordBytes = 8;     // of an exchange

void add(std::vector<uint64_t>& set, const std::vector<uint64_t>& other) {
  for (size_t i = 0; i < set.size(); ++i) set[i] |= other[i];
}
void add(std::vector<uint64_t>& set, int64_t member) { set[static_cast<size_t>(member / 64)] |= uint64_t{1} << (member % 64); }

}  // namespace

bool OrderOracle::Order::before(int32_t first, const Touch& then) const {
  const std::vector<uint64_t>& sets = then.by_copy ? copies : begins;
  return (sets[static_cast<size_t>(then.rtask) * words + static_cast<size_t>(first / 64)] >> (first % 64) & 1) != 0;
}

OrderOracle::OrderOracle(const RProgram& right, const select::Families& families) : right_(right) {
  for (const RKernel& rkernel : right_.rkernels) {
    first_.emplace_back();
    for (const Phase& phase : rkernel.phases) {
      first_.back().push_back(count_);
      count_ += phase.rtasks;
    }
  }
  collect(families);
  find_pairs();
  shared_ = shared_cells(right_.memory);
}

int32_t OrderOracle::number(const RTask& rtask) const {
  return static_cast<int32_t>(first_[rtask.rop.index()][static_cast<size_t>(rtask.phase)] + rtask.index);
}

// --- who touches what ------------------------------------------------------------------------------------------------

void OrderOracle::collect(const select::Families& families) {
  const size_t buffers = right_.graph.buffers.size();
  std::vector<std::vector<Touch>> touches(buffers + right_.rkernels.size());
  std::vector<std::vector<std::pair<int64_t, std::pair<size_t, bool>>>> ends(touches.size());  // byte, (touch, whether it begins)
  for (size_t i = 0; i < right_.rkernels.size(); ++i) {
    const RKernel& rkernel = right_.rkernels[i];
    for (size_t p = 0; p < rkernel.phases.size(); ++p) {
      const Phase& phase = rkernel.phases[p];
      for (int64_t t = 0; t < phase.rtasks; ++t) {
        Accesses found;
        select::family_of(families, rkernel).accesses(right_.graph, right_.graph.rops[i], rkernel, static_cast<int>(p), t, found);
        std::map<std::pair<size_t, Touch>, std::vector<std::pair<int64_t, int64_t>>> spans;  // bytes
        for (const bool is_write : {false, true}) {
          for (const Region& region : is_write ? found.writes : found.reads) {
            size_t space = buffers + i;
            int64_t bytes = bytes_of(DType::f32);
            bool by_copy = false;
            if (region.tensor.valid()) {
              const BufferId buffer = right_.graph.tensor(region.tensor).place.buffer;
              space = buffer.index();
              bytes = bytes_of(right_.graph.buffers[space].dtype);
              by_copy = !is_write && !rkernel.gang && phase.boxes && right_.graph.tensor(phase.boxes->tensor).place.buffer == buffer;
            }
            auto& list = spans[{space, Touch{static_cast<int32_t>(first_[i][p] + t), is_write, by_copy}}];
            for (int64_t n = 0; n < region.run.count; ++n) {
              const int64_t at = region.run.offset + n * region.run.stride;
              if (region.run.length > 0) list.emplace_back(at * bytes, (at + region.run.length) * bytes);
            }
          }
        }
        for (auto& [key, list] : spans) {
          std::sort(list.begin(), list.end());
          auto& marks = ends[key.first];
          int64_t end = INT64_MIN;
          for (const auto& [from, to] : list) {  // their union: a rTask may state the same bytes twice
            if (from > end) {
              if (end != INT64_MIN) marks.push_back({end, {touches[key.first].size(), false}});
              marks.push_back({from, {touches[key.first].size(), true}});
            }
            end = std::max(end, to);
          }
          if (end != INT64_MIN) marks.push_back({end, {touches[key.first].size(), false}});
          touches[key.first].push_back(key.second);
        }
      }
    }
  }
  for (size_t s = 0; s < touches.size(); ++s) {
    Space space;
    const bool is_buffer = s < buffers;
    (is_buffer ? space.buffer : space.scratch_of) = is_buffer ? s : s - buffers;
    const BufferKind kind = is_buffer ? right_.graph.buffers[s].kind : BufferKind::arena;
    if (kind == BufferKind::input || kind == BufferKind::constant) continue;  // never written
    space.in_arena = kind == BufferKind::arena;
    cut_up(space, ends[s], touches[s]);
    spaces_.push_back(std::move(space));
  }
}

// Cuts a space into cells: the same rTasks touch each byte of a cell.
void OrderOracle::cut_up(Space& space, std::vector<std::pair<int64_t, std::pair<size_t, bool>>>& ends, const std::vector<Touch>& touches) {
  std::sort(ends.begin(), ends.end());
  std::map<std::set<size_t>, int32_t> known;
  std::set<size_t> here;
  for (size_t i = 0; i < ends.size(); ++i) {
    const auto& [touch, begins] = ends[i].second;
    if (begins)
      here.insert(touch);
    else
      here.erase(touch);
    if (here.empty() || i + 1 == ends.size() || ends[i + 1].first == ends[i].first) continue;
    const auto [at, is_new] = known.emplace(here, static_cast<int32_t>(cells_.size()));
    if (is_new) {
      Cell cell;
      for (const size_t n : here) {
        cell.touches.push_back(touches[n]);
        cell.is_written = cell.is_written || touches[n].is_write;
      }
      cells_.push_back(std::move(cell));
    }
    space.stretches.push_back({ends[i].first, ends[i + 1].first, at->second});
  }
}

void OrderOracle::find_pairs() {
  for (const Cell& cell : cells_) {
    for (const Touch& writer : cell.touches) {
      for (const Touch& reader : cell.touches) {
        if (writer.is_write && !reader.is_write && writer.rtask != reader.rtask)
          pairs_.push_back({writer.rtask, reader.rtask, reader.by_copy});
      }
    }
  }
  std::sort(pairs_.begin(), pairs_.end());
  pairs_.erase(std::unique(pairs_.begin(), pairs_.end()), pairs_.end());
}

int64_t OrderOracle::offset_of(const Space& space, const MemoryPlan& memory) const {
  return space.buffer != SIZE_MAX ? memory.buffer_offset[space.buffer] : memory.scratch_offset[space.scratch_of];
}

// Pairs of cells of two spaces that have a byte of the arena in common and are both written: a cell that is only read has no value to lose.
std::vector<std::pair<int32_t, int32_t>> OrderOracle::shared_cells(const MemoryPlan& memory) const {
  std::set<std::pair<int32_t, int32_t>> found;
  for (size_t a = 0; a < spaces_.size(); ++a) {
    for (size_t b = a + 1; b < spaces_.size(); ++b) {
      const auto &of_a = spaces_[a].stretches, &of_b = spaces_[b].stretches;
      if (!spaces_[a].in_arena || !spaces_[b].in_arena || of_a.empty() || of_b.empty()) continue;
      const int64_t shift = offset_of(spaces_[b], memory) - offset_of(spaces_[a], memory);  // from bytes of b to bytes of a
      for (size_t i = 0, j = 0; i < of_a.size() && j < of_b.size();) {
        const bool overlap = of_a[i].begin < of_b[j].end + shift && of_b[j].begin + shift < of_a[i].end;
        if (overlap && cells_[static_cast<size_t>(of_a[i].cell)].is_written && cells_[static_cast<size_t>(of_b[j].cell)].is_written)
          found.insert({of_a[i].cell, of_b[j].cell});
        if (of_a[i].end < of_b[j].end + shift)
          ++i;
        else
          ++j;
      }
    }
  }
  return {found.begin(), found.end()};
}

// --- in which order programs run -------------------------------------------------------------------------------------

std::optional<std::string> OrderOracle::runs_once(const RProgram& mutant) const {
  std::vector<int> runs(static_cast<size_t>(count_), 0);
  if (mutant.launches) {
    for (const PhaseLaunch& launch : *mutant.launches) {
      const int64_t rtasks = mutant.rkernels[launch.rop.index()].phases[static_cast<size_t>(launch.phase)].rtasks;
      for (int64_t t = 0; t < rtasks; ++t) ++runs[static_cast<size_t>(number({launch.rop, launch.phase, t}))];
    }
  } else {
    for (const auto& lane : mutant.lanes) {
      for (const Instruction& i : lane) {
        if (i.rtask.rop.valid()) ++runs[static_cast<size_t>(number(i.rtask))];
      }
    }
  }
  if (std::all_of(runs.begin(), runs.end(), [](int n) { return n == 1; })) return std::nullopt;
  return "a rTask does not run once";
}

// Runs the lanes: each goes on while it can, until all are at their ends or none can go on. Counters only grow, so a real run comes exactly
// as far as this one, in whatever order it goes. During the run, sets of rTasks are kept: what a vEU's Waits have seen, what its bodies
// have done, and which rTasks each event's signals stand for.
//
// Counters also grow from one run to the next. An event whose count is less than the signals that it gets runs ahead a little more in each
// run, so that in the end its Waits pass at once and order nothing; an event whose count is more stays behind.
std::optional<OrderOracle::Order> OrderOracle::order_of_lanes(const RProgram& mutant) const {
  Order order;
  order.words = static_cast<size_t>(count_ + 63) / 64;
  order.begins.assign(static_cast<size_t>(count_) * order.words, 0);
  order.copies = order.begins;
  std::vector<int64_t> signals(mutant.events.size(), 0), seen(mutant.events.size(), 0);
  for (const auto& lane : mutant.lanes) {
    for (const Instruction& i : lane) {
      if (i.signal.valid()) ++signals[i.signal.index()];
    }
  }
  const auto passed = [&](EventId e) {
    const int64_t wanted = mutant.events[e.index()].count;
    return wanted < signals[e.index()] || seen[e.index()] >= wanted;
  };
  const std::vector<uint64_t> nobody(order.words, 0);
  std::vector<std::vector<uint64_t>> awaited(mutant.lanes.size(), nobody), done(mutant.lanes.size(), nobody),
      signalled(mutant.events.size(), nobody);
  std::vector<size_t> next(mutant.lanes.size(), 0);
  const auto head = [&](size_t veu) -> const Instruction* {
    if (next[veu] == mutant.lanes[veu].size()) return nullptr;
    const Instruction& i = mutant.lanes[veu][next[veu]];
    return std::all_of(i.waits.begin(), i.waits.end(), passed) ? &i : nullptr;
  };
  const auto gang_of = [&](const Instruction& i) {
    return i.rtask.rop.valid() && mutant.rkernels[i.rtask.rop.index()].gang ? i.rtask.rop.index() : SIZE_MAX;
  };
  const auto run = [&](size_t veu, const Instruction& i) {
    for (const EventId e : i.waits) {
      if (mutant.events[e.index()].count == signals[e.index()]) add(awaited[veu], signalled[e.index()]);
    }
    add(done[veu], awaited[veu]);
    if (i.rtask.rop.valid()) {
      const auto row = static_cast<std::ptrdiff_t>(static_cast<size_t>(number(i.rtask)) * order.words);
      std::copy(awaited[veu].begin(), awaited[veu].end(), order.copies.begin() + row);
      std::copy(done[veu].begin(), done[veu].end(), order.begins.begin() + row);
      add(done[veu], number(i.rtask));
    }
    if (i.signal.valid()) {
      ++seen[i.signal.index()];
      add(signalled[i.signal.index()], done[veu]);
    }
    ++next[veu];
  };
  for (bool goes_on = true; goes_on;) {
    goes_on = false;
    std::map<size_t, std::vector<size_t>> ready;  // per gang, vEUs
    for (size_t veu = 0; veu < mutant.lanes.size(); ++veu) {
      for (const Instruction* i = head(veu); i != nullptr; i = head(veu)) {
        if (gang_of(*i) != SIZE_MAX) {
          ready[gang_of(*i)].push_back(veu);
          break;
        }
        run(veu, *i);
        goes_on = true;
      }
    }
    for (const auto& [gang, veus] : ready) {  // a gang's rTasks need each other: all at once or none
      if (static_cast<int64_t>(veus.size()) != mutant.rkernels[gang].rtasks()) continue;
      for (const size_t veu : veus) run(veu, mutant.lanes[veu][next[veu]]);
      goes_on = true;
    }
  }
  for (size_t veu = 0; veu < mutant.lanes.size(); ++veu) {
    if (next[veu] < mutant.lanes[veu].size()) return std::nullopt;
  }
  return order;
}

// A launch comes after the one before it on its stream, and after those launches of its list that were given to the device before it: a
// wait for an event that is recorded later has no effect. All rTasks of a launch run at the same time.
std::optional<OrderOracle::Order> OrderOracle::order_of_launches(const RProgram& mutant) const {
  Order order;
  order.words = static_cast<size_t>(count_ + 63) / 64;
  order.begins.assign(static_cast<size_t>(count_) * order.words, 0);
  const std::vector<PhaseLaunch>& launches = *mutant.launches;
  std::vector<std::vector<uint64_t>> done;  // when a launch is, with its own rTasks
  std::map<int32_t, size_t> newest;         // per stream
  for (size_t n = 0; n < launches.size(); ++n) {
    if (launches[n].stream < 0) return std::nullopt;
    std::vector<uint64_t> before(order.words, 0);
    if (newest.count(launches[n].stream) > 0) add(before, done[newest[launches[n].stream]]);
    for (const int32_t m : launches[n].after) {
      if (m >= 0 && static_cast<size_t>(m) < n) add(before, done[static_cast<size_t>(m)]);
    }
    newest[launches[n].stream] = n;
    const RTask first{launches[n].rop, launches[n].phase, 0};
    const int64_t rtasks = mutant.rkernels[first.rop.index()].phases[static_cast<size_t>(first.phase)].rtasks;
    done.push_back(before);
    for (int64_t t = 0; t < rtasks; ++t) {
      const auto at = static_cast<size_t>(number(first) + t);
      std::copy(before.begin(), before.end(), order.begins.begin() + static_cast<std::ptrdiff_t>(at * order.words));
      add(done.back(), static_cast<int64_t>(at));
    }
  }
  order.copies = order.begins;
  return order;
}

// --- places ----------------------------------------------------------------------------------------------------------

std::optional<std::string> OrderOracle::places(const RProgram& mutant) const {
  for (const Space& space : spaces_) {
    if (!space.in_arena || space.stretches.empty()) continue;
    const int64_t at = offset_of(space, mutant.memory);
    if (at < 0 || at + space.stretches.front().begin < 0 || at + space.stretches.back().end > mutant.memory.arena_bytes)
      return "a buffer leaves the arena";
    if (at % kAccessBytes != 0) return "a buffer is not aligned";
  }
  return std::nullopt;
}

// An exchange's words are compared with an epoch, and any other data that is written there may look like one.
std::optional<std::string> OrderOracle::exchanges(const RProgram& mutant) const {
  std::vector<std::pair<int64_t, int64_t>> taken;
  for (size_t i = 0; i < mutant.rkernels.size(); ++i) {
    const int64_t words = mutant.rkernels[i].exchange_words, at = mutant.memory.exchange_offset[i];
    if (words <= 0) continue;
    const int64_t end = at + words * kWordBytes;
    if (at < 0 || end > mutant.memory.arena_bytes || at % kAccessBytes != 0) return "an exchange leaves the arena or is not aligned";
    for (const auto& [from, to] : taken) {
      if (at < to && from < end) return "two exchanges share memory";
    }
    taken.emplace_back(at, end);
    for (const Space& space : spaces_) {
      if (!space.in_arena) continue;
      for (const Stretch& s : space.stretches) {
        const int64_t offset = offset_of(space, mutant.memory);
        if (cells_[static_cast<size_t>(s.cell)].is_written && offset + s.begin < end && at < offset + s.end)
          return "an exchange shares memory with a buffer";
      }
    }
  }
  return std::nullopt;
}

// Blobs that lie at one place in the right program have equal bytes; other blobs differ.
std::optional<std::string> OrderOracle::weights(const RProgram& mutant) const {
  for (size_t a = 0; a < mutant.weights.size(); ++a) {
    const WeightBlob& blob = mutant.weights[a];
    if (blob.offset < 0 || blob.offset + blob.bytes > mutant.weight_bytes) return "weights leave their file";
    if (blob.offset % kAccessBytes != 0) return "weights are not aligned";
    for (size_t b = 0; b < a; ++b) {
      const WeightBlob& other = mutant.weights[b];
      const bool overlap = blob.offset < other.offset + other.bytes && other.offset < blob.offset + blob.bytes;
      const bool equal = blob.offset == other.offset && right_.weights[a].offset == right_.weights[b].offset;
      if (overlap && !equal) return "weights overlap others";
    }
  }
  return std::nullopt;
}

// A body must take the same chunks as in the right program.
// The right program's numbers are right, and any other number is taken to be wrong. (Rings are looked at by rings().)
std::optional<std::string> OrderOracle::numbers(const RProgram& mutant) const {
  for (size_t i = 0; i < mutant.rkernels.size(); ++i) {
    for (size_t p = 0; p < mutant.rkernels[i].phases.size(); ++p) {
      Phase now = mutant.rkernels[i].phases[p];
      now.ring = right_.rkernels[i].phases[p].ring;
      if (now != right_.rkernels[i].phases[p]) return "an rKernel has another number";
    }
  }
  return std::nullopt;
}

std::optional<std::string> OrderOracle::rings(const RProgram& mutant) const {
  for (size_t i = 0; i < mutant.rkernels.size(); ++i) {
    for (size_t p = 0; p < mutant.rkernels[i].phases.size(); ++p) {
      const RingWeights &now = mutant.rkernels[i].phases[p].ring, &was = right_.rkernels[i].phases[p].ring;
      if (was.chunks_per_rtask == 0 && now.chunks_per_rtask == 0) continue;
      if (now.chunks_per_rtask != was.chunks_per_rtask || now.chunk_bytes != was.chunk_bytes) return "a ring has other chunks";
      for (int64_t t = 0; t < mutant.rkernels[i].phases[p].rtasks; ++t) {
        if (t / now.rtasks_per_block % now.blocks != t / was.rtasks_per_block % was.blocks) return "a ring has other blocks";
      }
    }
  }
  return std::nullopt;
}

// --- the verdict -----------------------------------------------------------------------------------------------------

bool OrderOracle::in_order(const Order& order, const Cell& first, const Cell& then) const {
  for (const Touch& a : first.touches) {
    for (const Touch& b : then.touches) {
      if (!order.before(a.rtask, b)) return false;
    }
  }
  return true;
}

std::optional<std::string> OrderOracle::harm(const RProgram& mutant) const {
  if (auto found = numbers(mutant)) return found;
  for (const auto& found : {runs_once(mutant), places(mutant), exchanges(mutant), weights(mutant), rings(mutant)}) {
    if (found) return found;
  }
  const std::optional<Order> order = mutant.launches ? order_of_launches(mutant) : order_of_lanes(mutant);
  if (!order) return "it does not end";
  for (const Pair& pair : pairs_) {
    if (!order->before(pair.writer, {pair.reader, false, pair.by_copy})) return "something is read before it is written";
  }
  const bool moved =
      mutant.memory.buffer_offset != right_.memory.buffer_offset || mutant.memory.scratch_offset != right_.memory.scratch_offset;
  for (const auto& [a, b] : moved ? shared_cells(mutant.memory) : shared_) {
    const Cell &of_a = cells_[static_cast<size_t>(a)], &of_b = cells_[static_cast<size_t>(b)];
    if (!in_order(*order, of_a, of_b) && !in_order(*order, of_b, of_a)) return "memory is used again too early";
  }
  return std::nullopt;
}

}  // namespace tamp::test
