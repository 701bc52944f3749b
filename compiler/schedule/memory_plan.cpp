// Arena offsets. In a static program without a common clock two buffers have no lifetimes to compare, only a partial order: buffer B may
// have A's memory if everything that touches A happens before anything that writes B. Vector clocks (clocks.h) answer that for a pair in
// one pass over the vEUs. Buffers are visited in the order of their first write. A buffer that is before all buffers still to come is
// compared no more, so that long programs do not cost n^2. Then the buffers are placed by size, largest first, each into the smallest gap
// that its conflicts leave.
#include "compiler/schedule/memory_plan.h"

#include <algorithm>

#include "compiler/schedule/clocks.h"
#include "compiler/schedule/loop_lanes.h"
#include "compiler/schedule/words.h"
#include "compiler/support/error.h"

namespace tamp::schedule {
namespace {

int64_t aligned(int64_t bytes) { return (bytes + kAlignmentBytes - 1) / kAlignmentBytes * kAlignmentBytes; }

int64_t bytes_of_buffer(const Buffer& buffer) { return buffer.elements * bytes_of(buffer.dtype); }

struct Item {
  int64_t bytes = 0;  // aligned
  int64_t* offset = nullptr;
  size_t first_write = SIZE_MAX;  // position in the order of the instructions
  Extent accesses, writes;
  std::vector<size_t> conflicts;
  std::vector<int32_t> touched_in, written_in;  // loops; see add_repeats
};

class Planner {
 public:
  Planner(RProgram& program, bool share) : program_(program), share_(share), clocks_(program), in_words_(buffers_in_words(program)) {}

  void run() {
    TAMP_CHECK(clocks_.is_complete(), "memory plan of a rProgram that cannot end");
    find_extents();
    collect();
    if (share_) find_conflicts();
    place();
    place_exchanges();
    place_words();
  }

 private:
  size_t veus() const { return program_.lanes.size(); }

  void find_extents() {
    extents_.assign(program_.graph.rops.size(), Extent(veus()));
    first_.assign(program_.graph.rops.size(), SIZE_MAX);
    for (size_t n = 0; n < clocks_.order().size(); ++n) {
      const At at = clocks_.order()[n];
      const ROperatorId rop = program_.lanes[static_cast<size_t>(at.veu)][static_cast<size_t>(at.position)].rtask.rop;
      if (!rop.valid()) continue;
      extents_[rop.index()].add(at, clocks_);
      first_[rop.index()] = std::min(first_[rop.index()], n);
    }
  }

  void collect() {
    MemoryPlan& memory = program_.memory;
    const Graph& graph = program_.graph;
    memory.buffer_offset.assign(graph.buffers.size(), -1);
    memory.scratch_offset.assign(graph.rops.size(), -1);
    memory.exchange_offset.assign(graph.rops.size(), -1);
    std::vector<size_t> item_of(graph.buffers.size(), SIZE_MAX);
    const auto use = [&](size_t rop, TensorId id, bool is_write) {
      const BufferId buffer = graph.tensor(id).place.buffer;
      if (!buffer.valid() || graph.buffers[buffer.index()].kind != BufferKind::arena) return;
      if (std::binary_search(in_words_.begin(), in_words_.end(), buffer)) return;  // place_words
      size_t& item = item_of[buffer.index()];
      if (item == SIZE_MAX) {
        item = items_.size();
        items_.push_back(item_at(memory.buffer_offset[buffer.index()], bytes_of_buffer(graph.buffers[buffer.index()])));
      }
      items_[item].accesses.add(extents_[rop]);
      items_[item].touched_in.push_back(graph.rops[rop].loop);
      if (is_write && !graph.rops[rop].ends_iteration) items_[item].written_in.push_back(graph.rops[rop].loop);
      if (!is_write) return;
      items_[item].writes.add(extents_[rop]);
      items_[item].first_write = std::min(items_[item].first_write, first_[rop]);
    };
    for (size_t i = 0; i < graph.rops.size(); ++i) {
      for (const TensorId id : reads_of(graph.rops[i])) use(i, id, /*is_write=*/false);
      for (const TensorId id : graph.rops[i].outputs) use(i, id, /*is_write=*/true);
      const int64_t scratch = program_.rkernels[i].scratch_elements * bytes_of(DType::f32);
      if (scratch <= 0) continue;
      items_.push_back(item_at(memory.scratch_offset[i], scratch));
      items_.back().accesses = items_.back().writes = extents_[i];
      items_.back().first_write = first_[i];
    }
    if (!graph.loops.empty()) {
      const LoopLanes lanes = loop_lanes(program_);  // the verifier refuses what is wrong
      for (Item& item : items_) {
        if (lanes.wrong.empty()) add_repeats(program_, lanes, clocks_, item.touched_in, item.written_in, item.accesses);
      }
    }
    std::stable_sort(items_.begin(), items_.end(), [](const Item& a, const Item& b) { return a.first_write < b.first_write; });
  }

  Item item_at(int64_t& offset, int64_t bytes) const {
    return {aligned(bytes), &offset, SIZE_MAX, Extent(veus()), Extent(veus()), {}, {}, {}};
  }

  // Items are in the order of their first writes, so a later item is never before an earlier one.
  void find_conflicts() {
    std::vector<Extent> from(items_.size() + 1, Extent(veus()));  // writes of items[i] and all later ones
    for (size_t i = items_.size(); i-- > 0;) {
      from[i] = items_[i].writes;
      from[i].add(from[i + 1]);
    }
    std::vector<size_t> active;
    for (size_t b = 0; b < items_.size(); ++b) {
      std::erase_if(active, [&](size_t a) { return items_[a].accesses.before(from[b]); });
      for (const size_t a : active) {
        if (items_[a].accesses.before(items_[b].writes)) continue;
        items_[a].conflicts.push_back(b);
        items_[b].conflicts.push_back(a);
      }
      active.push_back(b);
    }
  }

  void place() {
    std::vector<size_t> order(items_.size());
    for (size_t i = 0; i < order.size(); ++i) order[i] = i;
    std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return items_[a].bytes > items_[b].bytes; });
    for (const size_t i : order) {
      Item& item = items_[i];
      *item.offset = share_ ? best_gap(item) : program_.memory.arena_bytes;
      program_.memory.arena_bytes = std::max(program_.memory.arena_bytes, *item.offset + item.bytes);
    }
  }

  // Exchanges of gangs lie behind everything else: a reader must never take another tensor's number for a word's epoch.
  void place_exchanges() {
    MemoryPlan& memory = program_.memory;
    for (size_t i = 0; i < program_.rkernels.size(); ++i) {
      const int64_t words = program_.rkernels[i].exchange_words;
      if (words <= 0) continue;
      memory.exchange_offset[i] = aligned(memory.arena_bytes);
      memory.arena_bytes = memory.exchange_offset[i] + aligned(words * kExchangeWordBytes);
    }
  }

  // The same for the words of buffers, the second copy of all words, and the buffers themselves: they are stored before Waits have passed.
  void place_words() {
    MemoryPlan& memory = program_.memory;
    memory.words_offset.assign(program_.graph.buffers.size(), -1);
    const int64_t begin = memory.arena_bytes = aligned(memory.arena_bytes);
    for (const BufferId buffer : in_words_) {
      memory.words_offset[buffer.index()] = memory.arena_bytes;
      memory.arena_bytes += aligned(program_.graph.buffers[buffer.index()].elements * kWordBytes);
    }
    memory.words_bytes = memory.arena_bytes - begin;
    memory.arena_bytes += memory.words_bytes;
    for (const BufferId id : in_words_) {
      const Buffer& buffer = program_.graph.buffers[id.index()];
      if (buffer.kind != BufferKind::arena) continue;
      memory.buffer_offset[id.index()] = memory.arena_bytes;
      memory.arena_bytes += aligned(bytes_of_buffer(buffer));
    }
  }

  int64_t best_gap(const Item& item) const {
    std::vector<std::pair<int64_t, int64_t>> taken;  // begin, end
    for (const size_t c : item.conflicts) {
      if (*items_[c].offset >= 0) taken.emplace_back(*items_[c].offset, *items_[c].offset + items_[c].bytes);
    }
    std::sort(taken.begin(), taken.end());
    int64_t best = -1, best_bytes = INT64_MAX, end = 0;
    for (const auto& [from, to] : taken) {
      const int64_t gap = from - end;
      if (gap >= item.bytes && gap < best_bytes) best = end, best_bytes = gap;
      end = std::max(end, to);
    }
    return best >= 0 ? best : end;
  }

  RProgram& program_;
  bool share_;
  Clocks clocks_;
  std::vector<BufferId> in_words_;  // ascending
  std::vector<Extent> extents_;     // per rOperator
  std::vector<size_t> first_;       // per rOperator: position in the order of its first rTask
  std::vector<Item> items_;
};

}  // namespace

void plan_memory(RProgram& program, bool share) {
  program.memory = {};
  Planner(program, share).run();
}

int64_t unshared_bytes(const RProgram& program) {
  int64_t bytes = 0;
  for (size_t i = 0; i < program.graph.buffers.size(); ++i) {
    if (program.memory.buffer_offset[i] >= 0) bytes += aligned(bytes_of_buffer(program.graph.buffers[i]));
    if (program.memory.words_offset[i] >= 0) bytes += 2 * aligned(program.graph.buffers[i].elements * kWordBytes);
  }
  for (size_t i = 0; i < program.rkernels.size(); ++i) {
    if (program.memory.scratch_offset[i] >= 0) bytes += aligned(program.rkernels[i].scratch_elements * bytes_of(DType::f32));
    if (program.memory.exchange_offset[i] >= 0) bytes += aligned(program.rkernels[i].exchange_words * kExchangeWordBytes);
  }
  return bytes;
}

}  // namespace tamp::schedule
