// A space is memory whose elements have one meaning: a buffer, or the scratch of a rOperator. The space of a constant is as long as the
// constant's data in the weights file. Within a space every element is written once, so only its reads must be proved to come later. For
// two spaces that overlap in the arena it is enough that one is done with before the other begins. Both questions are asked of whole spaces
// first, which decides nearly all of them by one comparison of clocks; only where that fails are elements looked at.
#include "compiler/schedule/verify_memory.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <map>
#include <utility>

#include "compiler/schedule/loop_lanes.h"
#include "compiler/schedule/memory_plan.h"
#include "compiler/schedule/owners.h"
#include "compiler/support/text.h"

namespace tamp::schedule {
namespace {

struct Access {
  uint32_t instruction = 0;  // Clocks::index
  bool is_write = false;
  Run run;
};

struct Space {
  std::string name;
  BufferKind kind = BufferKind::arena;
  int64_t elements = 0, element_bytes = 4;
  int64_t arena_offset = -1;
  std::vector<Access> accesses;  // rTask by rTask, in the order of (rOperator, phase, index)
};

constexpr int32_t kNobody = Owners::kNobody;
constexpr int64_t kEverything = std::numeric_limits<int64_t>::max();
constexpr int64_t kMaxComparisons = 20'000'000;  // limit of the element-wise comparison of two spaces

class MemoryVerifier {
 public:
  MemoryVerifier(const RProgram& program, const Clocks& clocks, const select::Families& families, Violations& violations)
      : program_(program), clocks_(clocks), families_(families), violations_(violations) {}

  void run() {
    make_spaces();
    if (!violations_.none()) return;
    collect_accesses();
    if (!violations_.none()) return;
    // From here on no access is outside its space, and no space is outside the arena.
    for (size_t s = 0; s < spaces_.size() && !violations_.full(); ++s) verify_space(s);
    if (!violations_.none()) return;
    // From here on an element of a space has one writer, and its readers come after it.
    verify_sharing();
  }

 private:
  size_t veus() const { return program_.lanes.size(); }
  std::string who(uint32_t instruction) const { return describe(program_, clocks_.at(instruction)); }
  bool before(uint32_t a, uint32_t b) const { return clocks_.before(clocks_.at(a), clocks_.at(b)); }

  // --- what is touched ---

  void make_spaces() {
    const Graph& graph = program_.graph;
    std::map<TensorId, int64_t> stored_bytes;  // of constants; constants that no rOperator reads in place have no entry
    for (const WeightBlob& blob : program_.weights) {
      if (blob.constant.valid()) stored_bytes[blob.constant] = blob.bytes;
    }
    for (size_t i = 0; i < graph.buffers.size(); ++i) {
      const Buffer& b = graph.buffers[i];
      const int64_t offset = b.kind == BufferKind::arena ? program_.memory.buffer_offset[i] : -1;
      const bool is_constant = b.kind == BufferKind::constant;
      const int64_t elements = is_constant ? std::min(b.elements, stored_bytes[b.constant] / bytes_of(b.dtype)) : b.elements;
      spaces_.push_back({fmt::format("buffer {}", i), b.kind, elements, bytes_of(b.dtype), offset, {}});
    }
    for (size_t i = 0; i < graph.rops.size(); ++i) {
      const std::string name = fmt::format("scratch of '{}'", printable(graph.rops[i].name));
      spaces_.push_back(
          {name, BufferKind::arena, program_.rkernels[i].scratch_elements, bytes_of(DType::f32), program_.memory.scratch_offset[i], {}});
    }
    for (const Space& space : spaces_) {
      if (space.arena_offset < 0) continue;
      const bool inside = space.arena_offset + space.elements * space.element_bytes <= program_.memory.arena_bytes;
      if (!inside)
        violations_.add(
            fmt::format("{} at byte {} leaves the arena of {} bytes", space.name, space.arena_offset, program_.memory.arena_bytes));
      if (space.arena_offset % kAlignmentBytes != 0)
        violations_.add(fmt::format("{} at byte {} is not aligned", space.name, space.arena_offset));
    }
  }

  void collect_accesses() {
    std::vector<std::vector<std::vector<At>>> where(program_.rkernels.size());
    for (size_t i = 0; i < where.size(); ++i) {
      for (const Phase& phase : program_.rkernels[i].phases) where[i].emplace_back(static_cast<size_t>(phase.rtasks));
    }
    for (const At at : clocks_.order()) {
      const Instruction& instruction = program_.lanes[static_cast<size_t>(at.veu)][static_cast<size_t>(at.position)];
      const RTask& t = instruction.rtask;
      if (t.rop.valid()) where[t.rop.index()][static_cast<size_t>(t.phase)][static_cast<size_t>(t.index)] = at;
      if (instruction.turn == Turn::none) continue;
      const TensorId condition = program_.graph.loops[static_cast<size_t>(instruction.loop)].condition;
      note(0, at, {condition, {program_.graph.tensor(condition).place.offset, 1, 0, 1}}, /*is_write=*/false);
    }
    Accesses found;
    for (size_t i = 0; i < where.size(); ++i) {
      const RKernel& rkernel = program_.rkernels[i];
      if (rkernel.rtasks() == 0) continue;
      const kernels::Family& family = select::family_of(families_, rkernel);
      for (size_t p = 0; p < where[i].size(); ++p) {
        for (size_t t = 0; t < where[i][p].size(); ++t) {
          found.reads.clear(), found.writes.clear();
          family.accesses(program_.graph, program_.graph.rops[i], rkernel, static_cast<int>(p), static_cast<int64_t>(t), found);
          for (const Region& region : found.reads) note(i, where[i][p][t], region, /*is_write=*/false);
          for (const Region& region : found.writes) note(i, where[i][p][t], region, /*is_write=*/true);
        }
      }
    }
  }

  void note(size_t rop, At at, const Region& region, bool is_write) {
    const Run& run = region.run;
    if (run.count <= 0 || run.length <= 0) return;
    const char* verb = is_write ? "writes" : "reads";
    size_t s = program_.graph.buffers.size() + rop;
    if (region.tensor.valid()) {
      const Tensor& tensor = program_.graph.tensor(region.tensor);
      if (!tensor.place.buffer.valid())
        return violations_.add(fmt::format("{} {} '{}', which is not placed", describe(program_, at), verb, printable(tensor.name)));
      s = tensor.place.buffer.index();
    }
    Space& space = spaces_[s];
    const bool is_read_only = space.kind == BufferKind::input || space.kind == BufferKind::constant;
    if (is_write && is_read_only)
      return violations_.add(fmt::format("{} writes {}, which is an input or a constant", describe(program_, at), space.name));
    if (space.kind == BufferKind::arena && space.arena_offset < 0) {
      return violations_.add(fmt::format("{} {} {}, which has no place in the arena", describe(program_, at), verb, space.name));
    }
    const int64_t far = run.offset + (run.count - 1) * run.stride;
    if (std::min(run.offset, far) < 0 || std::max(run.offset, far) + run.length > space.elements) {
      return violations_.add(fmt::format("{} {} elements {} to {} of {}, which has {}", describe(program_, at), verb,
                                         std::min(run.offset, far), std::max(run.offset, far) + run.length, space.name, space.elements));
    }
    // What ends an iteration writes what was written before the loop once more; verify_loops says when.
    const bool owns = is_write && !(region.tensor.valid() && program_.graph.rops[rop].ends_iteration);
    if (!is_read_only) space.accesses.push_back({static_cast<uint32_t>(clocks_.index(at)), owns, run});
  }

  // --- one space ---

  void verify_space(size_t s) {
    const Space& space = spaces_[s];
    if (space.kind == BufferKind::input || space.kind == BufferKind::constant) return;
    int64_t spans = 0;
    for (const Access& access : space.accesses) spans += access.is_write ? spans_of(access.run) : 0;
    const std::vector<const Access*> doubtful = reads_in_doubt(space);
    owners_.begin_space(space.elements, spans);
    for (int64_t low = 0; low < space.elements && !violations_.full(); low += owners_.window()) {
      low_ = low, high_ = std::min(space.elements, low + owners_.window());
      const int64_t written = find_owners(space);
      if (written < high_ - low_ && s < program_.graph.buffers.size()) verify_coverage(BufferId(static_cast<int64_t>(s)));
      if (written < high_ - low_ && s >= program_.graph.buffers.size()) verify_scratch(space);
      for (const Access* access : doubtful) {
        if (!violations_.full()) verify_read(space, *access);
      }
    }
  }

  // Of the window; returns how many elements are written.
  int64_t find_owners(const Space& space) {
    owners_.begin_window(low_, high_);
    for (const Access& access : space.accesses) {
      if (access.is_write) owners_.add(access.run, static_cast<int32_t>(access.instruction));
    }
    int32_t reported = kNobody;
    return owners_.settle([&](int64_t element, int32_t first, int32_t second) {
      if (violations_.full() || std::exchange(reported, second) == second) return;
      violations_.add(fmt::format("element {} of {} is written by {} and by {}", element, space.name, who(static_cast<uint32_t>(first)),
                                  who(static_cast<uint32_t>(second))));
    });
  }

  // The first element of the run in the window that nobody writes; -1 if there is none.
  int64_t missing_of(const Run& run) const {
    int64_t missing = -1;
    for_each_span(run, low_, high_, [&](int64_t begin, int64_t end) {
      if (missing >= 0) return;
      owners_.for_each(begin, end, [&](int64_t e, int32_t owner) {
        if (owner == kNobody) missing = e;
        return missing < 0;
      });
    });
    return missing;
  }
  // Of a tensor that is larger than its buffer, an element behind or before it.
  static int64_t outside(const Run& run, int64_t elements) {
    const int64_t far = run.offset + (run.count - 1) * run.stride, low = std::min(run.offset, far), high = std::max(run.offset, far);
    if (run.count <= 0 || run.length <= 0 || (low >= 0 && high + run.length <= elements)) return -1;
    return low < 0 ? low : std::max(elements, high);
  }

  // Every element of each tensor in this buffer that is made, read, or an output of the graph must be written.
  void verify_coverage(BufferId buffer) {
    if (needed_.empty()) find_needed();
    for (const TensorId id : needed_[buffer.index()]) {
      const Tensor& tensor = program_.graph.tensor(id);
      int64_t missing = kEverything;
      for (const Run& run : whole_runs(tensor)) {
        const int64_t inside = missing_of(run), beyond = outside(run, spaces_[buffer.index()].elements);
        if (inside >= 0) missing = std::min(missing, inside);
        if (beyond != -1) missing = std::min(missing, beyond);
      }
      if (missing != kEverything)
        violations_.add(
            fmt::format("element {} of buffer {} belongs to '{}' and is never written", missing, buffer.value, printable(tensor.name)));
    }
  }

  // No tensor says which elements of a scratch matter, so every element that is declared as read must be written.
  void verify_scratch(const Space& space) {
    for (const Access& access : space.accesses) {
      if (access.is_write || violations_.full()) continue;
      if (const int64_t missing = missing_of(access.run); missing >= 0)
        violations_.add(fmt::format("{} reads element {} of {}, which is never written", who(access.instruction), missing, space.name));
    }
  }

  void find_needed() {
    const Graph& graph = program_.graph;
    std::vector<bool> seen(graph.tensors.size(), false);
    needed_.resize(graph.buffers.size());
    const auto need = [&](TensorId id) {
      const BufferId buffer = graph.tensor(id).place.buffer;
      if (seen[id.index()] || !buffer.valid()) return;
      seen[id.index()] = true;
      needed_[buffer.index()].push_back(id);
    };
    for (const ROperator& rop : graph.rops) {
      for (const TensorId id : reads_of(rop)) need(id);
      for (const TensorId id : rop.outputs) need(id);
    }
    for (const TensorId id : graph.outputs) need(id);
  }

  const RTask& rtask_of(const Access& access) const {
    const At at = clocks_.at(access.instruction);
    return program_.lanes[static_cast<size_t>(at.veu)][static_cast<size_t>(at.position)].rtask;
  }

  // The reads whose elements must be looked at. One phase of the readers at a time: in the common case all writers are done before all
  // readers of the phase, which one comparison shows.
  std::vector<const Access*> reads_in_doubt(const Space& space) const {
    std::vector<const Access*> doubtful;
    Extent writes(veus());
    add_extents(space.accesses.begin(), space.accesses.end(), /*writes_only=*/true, writes);
    for (auto begin = space.accesses.begin(); begin != space.accesses.end();) {
      const RTask& first = rtask_of(*begin);
      const auto end = std::find_if(begin, space.accesses.end(), [&](const Access& a) {
        const RTask& t = rtask_of(a);
        return t.rop != first.rop || t.phase != first.phase;
      });
      Extent reads(veus());
      for (auto a = begin; a != end; ++a) {
        if (!a->is_write) reads.add(clocks_.at(a->instruction), clocks_);
      }
      if (!writes.before(reads)) {
        for (auto a = begin; a != end; ++a) {
          if (!a->is_write) doubtful.push_back(&*a);
        }
      }
      begin = end;
    }
    return doubtful;
  }

  template <class It>
  void add_extents(It begin, It end, bool writes_only, Extent& extent) const {
    uint32_t last = UINT32_MAX;
    for (; begin != end; ++begin) {
      if ((writes_only && !begin->is_write) || begin->instruction == last) continue;
      last = begin->instruction;
      extent.add(clocks_.at(last), clocks_);
    }
  }

  // An element without a writer is skipped: the read's region is wider than the tensor there. Missing elements of tensors are found by
  // verify_coverage, those of scratch by verify_scratch.
  void verify_read(const Space& space, const Access& access) {
    auto good = static_cast<int32_t>(access.instruction);  // the last writer found to be in order; at first the rTask itself
    bool clean = true;
    for_each_span(access.run, low_, high_, [&](int64_t begin, int64_t end) {
      if (!clean) return;
      owners_.for_each(begin, end, [&](int64_t e, int32_t writer) {
        if (writer == good || writer == kNobody || writer == static_cast<int32_t>(access.instruction)) return true;
        clean = before(static_cast<uint32_t>(writer), access.instruction);
        good = writer;
        if (!clean)
          violations_.add(fmt::format("{} reads element {} of {} without waiting for {}", who(access.instruction), e, space.name,
                                      who(static_cast<uint32_t>(writer))));
        return clean;
      });
    });
  }

  // --- spaces that share arena memory ---

  struct Tenant {
    const Space* space = nullptr;
    int64_t begin = 0, end = 0;  // bytes of the arena
    size_t first_write = SIZE_MAX;
    Extent extent;
    bool is_kept = false;  // in use in loops where nothing touches it
  };

  bool keep_in_loops(const Space& space, const LoopLanes& lanes, Extent& extent) const {
    std::vector<int32_t> touched_in, written_in;
    for (const Access& access : space.accesses) {
      const At at = clocks_.at(access.instruction);
      touched_in.push_back(lanes.loop_of[static_cast<size_t>(at.veu)][static_cast<size_t>(at.position)]);
      if (access.is_write) written_in.push_back(touched_in.back());
    }
    for (std::vector<int32_t>* loops : {&touched_in, &written_in}) {
      std::sort(loops->begin(), loops->end());
      loops->erase(std::unique(loops->begin(), loops->end()), loops->end());
    }
    return add_repeats(program_, lanes, clocks_, touched_in, written_in, extent);
  }

  std::vector<Tenant> tenants() const {
    const LoopLanes lanes = program_.graph.loops.empty() ? LoopLanes() : loop_lanes(program_);
    std::vector<size_t> rank(clocks_.count(), 0);
    for (size_t n = 0; n < clocks_.order().size(); ++n) rank[clocks_.index(clocks_.order()[n])] = n;
    std::vector<Tenant> found;
    for (const Space& space : spaces_) {
      if (space.arena_offset < 0 || space.elements == 0) continue;
      Tenant tenant{&space, space.arena_offset, space.arena_offset + space.elements * space.element_bytes, SIZE_MAX, Extent(veus()), false};
      add_extents(space.accesses.begin(), space.accesses.end(), /*writes_only=*/false, tenant.extent);
      for (const Access& a : space.accesses) {
        if (a.is_write) tenant.first_write = std::min(tenant.first_write, rank[a.instruction]);
      }
      if (!program_.graph.loops.empty()) tenant.is_kept = keep_in_loops(space, lanes, tenant.extent);
      if (tenant.first_write != SIZE_MAX) found.push_back(std::move(tenant));
    }
    std::stable_sort(found.begin(), found.end(), [](const Tenant& a, const Tenant& b) { return a.first_write < b.first_write; });
    return found;
  }

  void verify_sharing() {
    const std::vector<Tenant> all = tenants();
    if (succeed_each_other(all)) return;
    for (size_t a = 0; a < all.size(); ++a) {
      for (size_t b = a + 1; b < all.size() && !violations_.full(); ++b) {
        const bool overlap = all[a].begin < all[b].end && all[b].begin < all[a].end;
        if (!overlap || all[a].extent.before(all[b].extent) || all[b].extent.before(all[a].extent)) continue;
        if (all[a].is_kept || all[b].is_kept)
          violations_.add(fmt::format("{} and {} share arena bytes, and a loop needs one of them in each iteration", all[a].space->name,
                                      all[b].space->name));
        else
          verify_pair(all[a], all[b]);
      }
    }
  }

  // Whether, at every byte, each tenant is done before the next one begins, in the order of their first writes. That order is transitive,
  // so only the newest tenant of every byte needs to be remembered.
  static bool succeed_each_other(const std::vector<Tenant>& all) {
    struct Written {
      int64_t end;
      size_t tenant;
    };
    std::map<int64_t, Written> newest;  // by begin
    for (size_t t = 0; t < all.size(); ++t) {
      const int64_t begin = all[t].begin, end = all[t].end;
      auto at = newest.lower_bound(begin);
      if (at != newest.begin() && std::prev(at)->second.end > begin) --at;
      while (at != newest.end() && at->first < end) {
        const int64_t old_begin = at->first;
        const Written old = at->second;
        if (!all[old.tenant].extent.before(all[t].extent)) return false;
        at = newest.erase(at);
        if (old_begin < begin) newest[old_begin] = {begin, old.tenant};
        if (old.end > end) at = newest.emplace(end, old).first;
      }
      newest[begin] = {end, t};
    }
    return true;
  }

  // Element by element: at every byte that both tenants write, all accesses of one must be before all accesses of the other.
  void verify_pair(const Tenant& a, const Tenant& b) {
    const int64_t low = std::max(a.begin, b.begin), high = std::min(a.end, b.end);
    std::vector<int64_t> cuts = {low, high};
    int64_t spans = 0;
    const auto refuse = [&] {
      violations_.add(fmt::format("{} and {} share arena bytes {} to {}, and neither is done before the other begins", a.space->name,
                                  b.space->name, low, high));
    };
    const auto for_each_clipped = [&](const Space& space, auto f) {
      for (const Access& access : space.accesses) {
        for_each_span(access.run, 0, space.elements, [&](int64_t begin, int64_t end) {
          const int64_t from = std::max(low, space.arena_offset + begin * space.element_bytes);
          const int64_t to = std::min(high, space.arena_offset + end * space.element_bytes);
          if (from < to) f(access, from, to);
        });
      }
    };
    for (const Space* space : {a.space, b.space}) {
      for_each_clipped(*space, [&](const Access&, int64_t from, int64_t to) {
        if (++spans > kMaxComparisons / 2) return;
        cuts.push_back(from);
        cuts.push_back(to);
      });
    }
    if (spans > kMaxComparisons / 2) return refuse();
    std::sort(cuts.begin(), cuts.end());
    cuts.erase(std::unique(cuts.begin(), cuts.end()), cuts.end());
    if (static_cast<int64_t>(cuts.size()) * spans > kMaxComparisons) return refuse();
    struct Cell {
      std::vector<const Access*> of_a, of_b;
    };
    std::vector<Cell> cells(cuts.size());
    for (const Space* space : {a.space, b.space}) {
      for_each_clipped(*space, [&](const Access& access, int64_t from, int64_t to) {
        auto cut = static_cast<size_t>(std::lower_bound(cuts.begin(), cuts.end(), from) - cuts.begin());
        for (; cuts[cut] < to; ++cut) (space == a.space ? cells[cut].of_a : cells[cut].of_b).push_back(&access);
      });
    }
    for (size_t c = 0; c < cells.size(); ++c) {
      if (!is_written(cells[c].of_a) || !is_written(cells[c].of_b)) continue;
      const Access* bad_a = nullptr;
      const Access* bad_b = nullptr;
      if (all_before(cells[c].of_a, cells[c].of_b, bad_a, bad_b) || all_before(cells[c].of_b, cells[c].of_a, bad_b, bad_a)) continue;
      return violations_.add(fmt::format("{} and {} share arena byte {}, but {} and {} are not in order", a.space->name, b.space->name,
                                         cuts[c], who(bad_a->instruction), who(bad_b->instruction)));
    }
  }

  static bool is_written(const std::vector<const Access*>& accesses) {
    return std::any_of(accesses.begin(), accesses.end(), [](const Access* a) { return a->is_write; });
  }

  bool all_before(const std::vector<const Access*>& first, const std::vector<const Access*>& second, const Access*& bad_first,
                  const Access*& bad_second) const {
    for (const Access* f : first) {
      for (const Access* s : second) {
        if (before(f->instruction, s->instruction)) continue;
        bad_first = f;
        bad_second = s;
        return false;
      }
    }
    return true;
  }

  const RProgram& program_;
  const Clocks& clocks_;
  const select::Families& families_;
  Violations& violations_;
  std::vector<Space> spaces_;                  // buffers, then scratch per rOperator
  Owners owners_;                              // who writes the elements of the current window
  int64_t low_ = 0, high_ = 0;                 // the window, a part of the current space
  std::vector<std::vector<TensorId>> needed_;  // per buffer
};

}  // namespace

void verify_memory(const RProgram& program, const Clocks& clocks, const select::Families& families, Violations& violations) {
  MemoryVerifier(program, clocks, families, violations).run();
}

}  // namespace tamp::schedule
