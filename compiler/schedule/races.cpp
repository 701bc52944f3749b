#include "compiler/schedule/races.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <tuple>
#include <utility>

#include "compiler/schedule/launches.h"
#include "compiler/schedule/memory_plan.h"
#include "compiler/schedule/verify_memory.h"
#include "compiler/schedule/words.h"
#include "compiler/support/error.h"
#include "compiler/support/text.h"

namespace tamp::schedule {
namespace {

// A range of bytes of a base. Reads and writes are kept in lists of their own.
struct Stretch {
  int32_t base = 0;
  int64_t begin = 0, end = 0;
  auto operator<=>(const Stretch&) const = default;
};
using Stretches = std::vector<Stretch>;

void merge(Stretches& all) {
  std::sort(all.begin(), all.end());
  size_t kept = 0;
  for (const Stretch& s : all) {
    if (s.begin == s.end) continue;
    if (kept > 0 && all[kept - 1].base == s.base && s.begin <= all[kept - 1].end)
      all[kept - 1].end = std::max(all[kept - 1].end, s.end);
    else
      all[kept++] = s;
  }
  all.resize(kept);
}

// The first byte of `wanted` that is not in `merged`, or -1.
int64_t first_outside(const Stretch& wanted, const Stretches& merged) {
  const auto after = std::upper_bound(merged.begin(), merged.end(), Stretch{wanted.base, wanted.begin, INT64_MAX});
  if (after == merged.begin()) return wanted.begin;
  const Stretch& at = *std::prev(after);
  if (at.base != wanted.base || at.end <= wanted.begin) return wanted.begin;
  return at.end >= wanted.end ? -1 : at.end;
}

struct Declared {
  Stretches reads, writes;  // a rTask may also read what it writes
};

struct Declarations {
  const RProgram& program;
  const select::Families& families;

  Declared of(const RTask& rtask) const {
    const ROperator& rop = program.graph.rop(rtask.rop);
    const RKernel& rkernel = program.rkernels[rtask.rop.index()];
    Accesses accesses;
    select::family_of(families, rkernel).accesses(program.graph, rop, rkernel, rtask.phase, rtask.index, accesses);
    Declared declared;
    const Phase& phase = rkernel.phases[static_cast<size_t>(rtask.phase)];
    for (const Region& region : accesses.writes) {
      add(declared.writes, rtask, region);
      if (region.tensor.valid() && publishes_words(phase, buffer_of(region))) add_words(declared.writes, region);
    }
    add_words(declared.writes, rtask, accesses.publishes);
    merge(declared.writes);
    declared.reads = declared.writes;
    for (const Region& region : accesses.reads) {
      add(declared.reads, rtask, region);
      if (region.tensor.valid() && awaits_words(phase, buffer_of(region))) add_words(declared.reads, region);
    }
    add_words(declared.reads, rtask, accesses.awaits);
    add_packed(declared.reads, rtask);
    merge(declared.reads);
    return declared;
  }

  // "byte 12 of the weights", "element 3 of 'x'"
  std::string place(int32_t base, int64_t byte) const {
    if (base == kWeightsBase) return fmt::format("byte {} of the weights{}", byte, blob_at(byte));
    const Graph& graph = program.graph;
    for (size_t i = 0; base == kArenaBase && i < program.rkernels.size(); ++i) {
      const std::string name = printable(graph.rops[i].name);
      const int64_t scratch = byte - program.memory.scratch_offset[i], word = byte - program.memory.exchange_offset[i];
      if (program.memory.scratch_offset[i] >= 0 && scratch >= 0 && scratch < program.rkernels[i].scratch_elements * 4)
        return fmt::format("element {} of the scratch of '{}' (byte {} of the arena)", scratch / 4, name, byte);
      if (program.memory.exchange_offset[i] >= 0 && word >= 0 && word < program.rkernels[i].exchange_words * kExchangeWordBytes)
        return fmt::format("word {} of the exchange of '{}'", word / kExchangeWordBytes, name);
    }
    for (size_t b = 0; base == kArenaBase && b < graph.buffers.size(); ++b) {
      if (program.memory.words_offset[b] < 0) continue;
      for (const int64_t copy : {int64_t{0}, program.memory.words_bytes}) {
        const int64_t word = byte - program.memory.words_offset[b] - copy;
        if (word >= 0 && word < graph.buffers[b].elements * kWordBytes) return fmt::format("word {} of buffer {}", word / kWordBytes, b);
      }
    }
    std::vector<std::string> tensors;
    for (size_t b = 0; b < graph.buffers.size(); ++b) {
      const auto [at, offset] = place_of_buffer(b);
      const int64_t element = (byte - offset) / bytes_of(graph.buffers[b].dtype);
      if (at != base || byte < offset || element >= graph.buffers[b].elements) continue;
      std::vector<std::string> names;
      for (const Tensor& tensor : graph.tensors) {
        if (tensor.place.buffer.valid() && tensor.place.buffer.index() == b) names.push_back(fmt::format("'{}'", printable(tensor.name)));
      }
      tensors.push_back(fmt::format("element {} of buffer {} ({})", element, b, join(names, ", ")));
    }
    const std::string where =
        base == kArenaBase ? fmt::format("byte {} of the arena", byte) : fmt::format("byte {} of port {}", byte, base - kFirstPortBase);
    return tensors.empty() ? where : fmt::format("{}, {}", where, join(tensors, " or "));
  }

  std::pair<int32_t, int64_t> place_of_buffer(size_t index) const {
    const Buffer& buffer = program.graph.buffers[index];
    switch (buffer.kind) {
      case BufferKind::arena: return {kArenaBase, program.memory.buffer_offset[index]};
      case BufferKind::input: return {kFirstPortBase + buffer.io_index, 0};
      case BufferKind::output: return {kFirstPortBase + static_cast<int32_t>(program.graph.inputs.size()) + buffer.io_index, 0};
      case BufferKind::constant: break;
    }
    for (const WeightBlob& blob : program.weights) {
      if (blob.constant.valid() && blob.constant == buffer.constant) return {kWeightsBase, blob.offset};
    }
    return {-1, 0};  // packed: no rOperator reads the constant where it was
  }

  void add(Stretches& to, const RTask& rtask, const Region& region) const {
    int32_t base = kArenaBase;
    int64_t offset = program.memory.scratch_offset[rtask.rop.index()], bytes = bytes_of(DType::f32);
    if (region.tensor.valid()) {
      const size_t buffer = program.graph.tensor(region.tensor).place.buffer.index();
      std::tie(base, offset) = place_of_buffer(buffer);
      bytes = bytes_of(program.graph.buffers[buffer].dtype);
    }
    add_run(to, base, offset, bytes, region.run);
  }

  BufferId buffer_of(const Region& region) const { return program.graph.tensor(region.tensor).place.buffer; }

  // The words of a region.
  void add_words(Stretches& to, const Region& region) const {
    const int64_t at = program.memory.words_offset[buffer_of(region).index()];
    for (const int64_t copy : {at, at + program.memory.words_bytes}) add_run(to, kArenaBase, copy, kWordBytes, region.run);
  }

  // Words of a gang's exchange.
  void add_words(Stretches& to, const RTask& rtask, const std::vector<Run>& runs) const {
    for (const Run& run : runs) add_run(to, kArenaBase, program.memory.exchange_offset[rtask.rop.index()], kExchangeWordBytes, run);
  }

  static void add_run(Stretches& to, int32_t base, int64_t offset, int64_t bytes, const Run& run) {
    for (int64_t i = 0; i < run.count; ++i) {
      const int64_t begin = offset + (run.offset + i * run.stride) * bytes;
      to.push_back({base, begin, begin + run.length * bytes});
    }
  }

  // Adds the data that was packed for the phase; Accesses does not have it.
  void add_packed(Stretches& to, const RTask& rtask) const {
    for (const WeightBlob& blob : program.weights) {
      if (!blob.constant.valid() && blob.rop == rtask.rop && blob.phase == rtask.phase)
        to.push_back({kWeightsBase, blob.offset, blob.offset + blob.bytes});
    }
  }

  std::string blob_at(int64_t byte) const {
    for (const WeightBlob& blob : program.weights) {
      if (byte >= blob.offset && byte < blob.offset + blob.bytes) return fmt::format(", in '{}'", printable(blob.name));
    }
    return "";
  }
};

// Whether one rTask is done before another begins: by the lanes and Waits, or by the launches of graph execution.
class Order {
 public:
  explicit Order(const RProgram& program) : program_(with_lanes_in_order(program)), clocks_(program_) {
    TAMP_CHECK(clocks_.is_complete(), "races of a rProgram that cannot end");
    by_launch_ = program.launches.has_value();
    for (size_t i = 0; i < program.rkernels.size(); ++i) {
      where_.emplace_back();
      for (const Phase& phase : program.rkernels[i].phases) where_.back().emplace_back(by_launch_ ? 1 : static_cast<size_t>(phase.rtasks));
    }
    for (const At at : clocks_.order()) {
      const RTask& t = program_.lanes[static_cast<size_t>(at.veu)][static_cast<size_t>(at.position)].rtask;
      if (t.rop.valid()) where_[t.rop.index()][static_cast<size_t>(t.phase)][static_cast<size_t>(t.index)] = at;
    }
  }

  bool ordered(const RTask& a, const RTask& b) const {
    const At x = at(a), y = at(b);
    return x != y && (clocks_.before(x, y) || clocks_.before(y, x));  // rTasks of one launch run side by side
  }
  std::string on_veu(const RTask& rtask) const { return by_launch_ ? "" : fmt::format(" (vEU {})", at(rtask).veu); }

 private:
  At at(const RTask& t) const { return where_[t.rop.index()][static_cast<size_t>(t.phase)][by_launch_ ? 0 : static_cast<size_t>(t.index)]; }

  RProgram program_;
  Clocks clocks_;
  bool by_launch_ = false;
  std::vector<std::vector<std::vector<At>>> where_;  // per rOperator, phase, rTask
};

using Key = std::tuple<int32_t, int32_t, int64_t>;
Key key(const RTask& t) { return {t.rop.value, t.phase, t.index}; }
bool same(const RTask& a, const RTask& b) { return key(a) == key(b); }

class RaceChecker {
 public:
  RaceChecker(const RProgram& program, const std::vector<Touch>& touched, const select::Families& families, bool is_whole,
              Violations& violations)
      : program_(program),
        touched_(touched),
        declarations_{program, families},
        order_(program),
        is_whole_(is_whole),
        violations_(violations) {}

  void run() {
    for (size_t begin = 0; begin < touched_.size() && !violations_.full();) {
      size_t end = begin + 1;
      while (end < touched_.size() && same(touched_[end].rtask, touched_[begin].rtask)) ++end;
      check_declared(begin, end);
      begin = end;
    }
    if (is_whole_) check_all_ran();
    check_order();
  }

 private:
  std::string who(const RTask& t) const {
    const RKernel& rkernel = program_.rkernels[t.rop.index()];
    const std::string phase = rkernel.phases.size() > 1 ? fmt::format(" phase {}", t.phase) : "";
    return fmt::format("'{}'{} rTask {}{}, rKernel {},", printable(program_.graph.rop(t.rop).name), phase, t.index, order_.on_veu(t),
                       rkernel.name);
  }

  void check_declared(size_t begin, size_t end) {
    const RTask& rtask = touched_[begin].rtask;
    const Declared declared = declarations_.of(rtask);
    Stretches written;
    for (size_t i = begin; i < end; ++i) {
      const Touch& t = touched_[i];
      const Stretch stretch{t.base, t.begin, t.end};
      if (t.is_write) written.push_back(stretch);
      if (!is_whole_ && t.base >= kFirstPortBase) continue;  // ports are dense in each run, and their elements lie elsewhere
      const Stretches& allowed = t.is_write ? declared.writes : declared.reads;
      const int64_t byte = first_outside(stretch, allowed);
      if (byte < 0) continue;
      if (!blamed_.insert({rtask.rop.value, rtask.phase, t.is_write}).second) return;
      violations_.add(fmt::format("{} {} {}, which it does not declare; {}", who(rtask), t.is_write ? "writes" : "reads",
                                  declarations_.place(t.base, byte), declared_text(allowed, t)));
      return;
    }
    if (!is_whole_) return;
    merge(written);
    for (const Stretch& promised : declared.writes) {
      const int64_t byte = first_outside(promised, written);
      if (byte < 0) continue;
      violations_.add(
          fmt::format("{} does not write {}, which it declares to write", who(rtask), declarations_.place(promised.base, byte)));
      return;
    }
  }

  // The declared bytes that lie nearest to the touch.
  static std::string declared_text(const Stretches& declared, const Touch& touch) {
    std::vector<std::string> near;
    for (const Stretch& s : declared) {
      if (s.base != touch.base) continue;
      if (s.end + 4096 < touch.begin || s.begin > touch.end + 4096) continue;
      near.push_back(fmt::format("[{}, {})", s.begin, s.end));
      if (near.size() == 4) break;
    }
    return near.empty() ? "it declares nothing near there" : fmt::format("it declares bytes {} there", join(near, ", "));
  }

  void check_all_ran() {
    std::set<Key> seen;
    for (const Touch& t : touched_) seen.insert(key(t.rtask));
    for (size_t i = 0; i < program_.rkernels.size(); ++i) {
      for (size_t p = 0; p < program_.rkernels[i].phases.size(); ++p) {
        for (int64_t index = 0; index < program_.rkernels[i].phases[p].rtasks && !violations_.full(); ++index) {
          const RTask rtask{ROperatorId(static_cast<int64_t>(i)), static_cast<int32_t>(p), index};
          const bool may_not_run = program_.graph.rops[i].loop >= 0;
          if (!may_not_run && !seen.contains(key(rtask)) && !declarations_.of(rtask).writes.empty())
            violations_.add(fmt::format("{} touched no memory at all", who(rtask)));
        }
      }
    }
  }

  // Sweeps over the bytes of every base. Two touches that overlap are compared when the sweep reaches the begin of the later one.
  void check_order() {
    std::vector<const Touch*> all;
    const auto exchanges = exchange_bytes(program_);  // an exchange's words order themselves; verify_exchanges proves that
    for (const Touch& t : touched_) {
      const bool is_word = t.base == kArenaBase && std::any_of(exchanges.begin(), exchanges.end(),
                                                               [&](const auto& e) { return t.begin >= e.first && t.end <= e.second; });
      if (t.base != kWeightsBase && !is_word) all.push_back(&t);
    }
    std::sort(all.begin(), all.end(),
              [](const Touch* a, const Touch* b) { return std::tie(a->base, a->begin) < std::tie(b->base, b->begin); });
    std::vector<const Touch*> open;
    for (const Touch* t : all) {
      std::erase_if(open, [&](const Touch* o) { return o->base != t->base || o->end <= t->begin; });
      for (const Touch* o : open) {
        if (violations_.full()) return;
        if ((t->is_write || o->is_write) && !same(t->rtask, o->rtask)) compare(*o, *t);
      }
      open.push_back(t);
    }
  }

  void compare(const Touch& a, const Touch& b) {
    if (!compared_.insert({std::min(key(a.rtask), key(b.rtask)), std::max(key(a.rtask), key(b.rtask))}).second) return;
    if (order_.ordered(a.rtask, b.rtask)) return;
    violations_.add(fmt::format("{} {} {}, which {} {}, and neither is done before the other begins", who(a.rtask),
                                a.is_write ? "writes" : "reads", declarations_.place(b.base, b.begin), who(b.rtask),
                                b.is_write ? "writes" : "reads"));
  }

  const RProgram& program_;
  const std::vector<Touch>& touched_;
  Declarations declarations_;
  Order order_;
  bool is_whole_;
  Violations& violations_;
  std::set<std::pair<Key, Key>> compared_;
  std::set<std::tuple<int32_t, int32_t, bool>> blamed_;  // rOperator, phase, is_write: only the first of their rTasks is reported
};

}  // namespace

std::vector<std::pair<int64_t, int64_t>> exchange_bytes(const RProgram& program) {
  std::vector<std::pair<int64_t, int64_t>> found;
  for (size_t i = 0; i < program.rkernels.size(); ++i) {
    const int64_t at = program.memory.exchange_offset[i];
    if (at >= 0) found.emplace_back(at, at + program.rkernels[i].exchange_words * kExchangeWordBytes);
  }
  for (size_t b = 0; b < program.memory.words_offset.size(); ++b) {
    const int64_t at = program.memory.words_offset[b];
    const int64_t end = at + program.graph.buffers[b].elements * kWordBytes, other = program.memory.words_bytes;
    if (at >= 0) found.emplace_back(at, end);
    if (at >= 0) found.emplace_back(at + other, end + other);
  }
  return found;
}

std::vector<std::string> races(const RProgram& program, const std::vector<Touch>& touched, size_t limit, const select::Families& families,
                               bool is_whole) {
  Violations violations(limit);
  RaceChecker(program, touched, families, is_whole, violations).run();
  return violations.take();
}

}  // namespace tamp::schedule
