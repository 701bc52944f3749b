// Data-as-flag (kernels/vdevice/exchange.cuh) needs no order between instructions. It needs three other things, which clocks do not tell:
// publisher and reader run at the same time, every word has one publisher, and no other data ever lies where a reader looks for an epoch.
// Words of buffers (compiler/schedule/words.h) are ordered by Waits besides, so that only the third has to be looked at here, and that
// every writer publishes.
#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "compiler/schedule/memory_plan.h"
#include "compiler/schedule/verify_memory.h"
#include "compiler/schedule/words.h"
#include "compiler/support/text.h"

namespace tamp::schedule {
namespace {

struct ArenaBytes {  // bytes of the arena
  int64_t begin = 0, end = 0;
  std::string name;
  BufferId buffer{};  // whose bytes they are, or none
};

std::vector<ArenaBytes> exchanges_of(const RProgram& program) {
  std::vector<ArenaBytes> found;
  for (size_t i = 0; i < program.rkernels.size(); ++i) {
    const int64_t at = program.memory.exchange_offset[i];
    if (at < 0) continue;
    const std::string name = fmt::format("exchange of '{}'", printable(program.graph.rops[i].name));
    found.push_back({at, at + program.rkernels[i].exchange_words * kExchangeWordBytes, name});
  }
  for (size_t b = 0; b < program.memory.words_offset.size(); ++b) {
    const int64_t at = program.memory.words_offset[b];
    const int64_t end = at + program.graph.buffers[b].elements * kWordBytes, other = program.memory.words_bytes;
    if (at >= 0) found.push_back({at, end, fmt::format("words of buffer {}", b)});
    if (at >= 0) found.push_back({at + other, end + other, fmt::format("the second copy of the words of buffer {}", b)});
  }
  return found;
}

std::vector<ArenaBytes> others_of(const RProgram& program) {
  std::vector<ArenaBytes> found;
  for (size_t b = 0; b < program.graph.buffers.size(); ++b) {
    const int64_t at = program.memory.buffer_offset[b];
    const Buffer& buffer = program.graph.buffers[b];
    if (at < 0) continue;
    found.push_back({at, at + buffer.elements * bytes_of(buffer.dtype), fmt::format("buffer {}", b), BufferId(static_cast<int64_t>(b))});
  }
  for (size_t i = 0; i < program.rkernels.size(); ++i) {
    const int64_t at = program.memory.scratch_offset[i];
    const std::string name = fmt::format("scratch of '{}'", printable(program.graph.rops[i].name));
    if (at >= 0) found.push_back({at, at + program.rkernels[i].scratch_elements * bytes_of(DType::f32), name});
  }
  return found;
}

void verify_places(const RProgram& program, Violations& violations) {
  const std::vector<ArenaBytes> exchanges = exchanges_of(program), others = others_of(program);
  const auto apart = [&](const ArenaBytes& a, const ArenaBytes& b) {
    if (a.begin < b.end && b.begin < a.end) violations.add(fmt::format("{} shares arena memory with {}", a.name, b.name));
  };
  for (size_t i = 0; i < exchanges.size(); ++i) {
    const ArenaBytes& e = exchanges[i];
    if (e.end > program.memory.arena_bytes)
      violations.add(fmt::format("{} ends at byte {} of an arena of {}", e.name, e.end, program.memory.arena_bytes));
    if (e.begin % kAlignmentBytes != 0) violations.add(fmt::format("{} at byte {} is not aligned", e.name, e.begin));
    for (size_t j = i + 1; j < exchanges.size(); ++j) apart(e, exchanges[j]);
    for (const ArenaBytes& other : others) apart(e, other);
  }
  // A buffer with words is stored before the Waits of its rTasks have passed, so its memory is nobody else's either.
  for (size_t i = 0; i < others.size(); ++i) {
    const bool has_words = others[i].buffer.valid() && program.memory.words_offset[others[i].buffer.index()] >= 0;
    for (size_t j = 0; has_words && j < others.size(); ++j) {
      if (i != j) apart(others[i], others[j]);
    }
  }
}

// Checks one gang.
struct Gang {
  const RProgram& program;
  size_t rop;
  const RKernel& rkernel;
  const select::Families& families;
  Violations& violations;
  std::vector<int32_t> publisher{};  // per word: the rTask that publishes it

  void verify() {
    verify_veus();
    if (program.memory.exchange_offset[rop] < 0 && rkernel.exchange_words > 0)
      return violations.add(fmt::format("exchange of {} has no place in the arena", name()));
    publisher.assign(static_cast<size_t>(rkernel.exchange_words), -1);
    each_rtask([&](int32_t rtask, const Accesses& accesses) {
      each_word(accesses.publishes, rtask, "publishes", [&](int64_t word) { publish(word, rtask); });
    });
    if (!violations.none()) return;
    each_rtask([&](int32_t rtask, const Accesses& accesses) {
      each_word(accesses.awaits, rtask, "awaits", [&](int64_t word) {
        if (publisher[static_cast<size_t>(word)] < 0)
          violations.add(fmt::format("{} of {} awaits word {}, which nobody publishes", who(rtask), name(), word));
      });
    });
  }

  std::string name() const { return fmt::format("'{}'", printable(program.graph.rops[rop].name)); }

  // `rtask` counts through all phases of the gang.
  std::string who(int32_t rtask) const {
    for (size_t p = 0; p < rkernel.phases.size(); ++p) {
      if (rtask < rkernel.phases[p].rtasks) return fmt::format("phase {} rTask {}", p, rtask);
      rtask -= static_cast<int32_t>(rkernel.phases[p].rtasks);
    }
    return "no rTask";
  }

  void verify_veus() {
    for (size_t veu = 0; veu < program.lanes.size(); ++veu) {
      const auto count = std::count_if(program.lanes[veu].begin(), program.lanes[veu].end(),
                                       [&](const Instruction& i) { return i.rtask.rop.valid() && i.rtask.rop.index() == rop; });
      if (count > 1) violations.add(fmt::format("vEU {} has {} rTasks of the gang {}", veu, count, name()));
    }
  }

  void each_rtask(auto f) {
    const kernels::Family& family = select::family_of(families, rkernel);
    int32_t rtask = 0;
    for (size_t p = 0; p < rkernel.phases.size(); ++p) {
      for (int64_t t = 0; t < rkernel.phases[p].rtasks && !violations.full(); ++t, ++rtask) {
        Accesses accesses;
        family.accesses(program.graph, program.graph.rops[rop], rkernel, static_cast<int>(p), t, accesses);
        f(rtask, accesses);
      }
    }
  }

  void each_word(const std::vector<Run>& runs, int32_t rtask, const char* verb, auto f) {
    for (const Run& run : runs) {
      for (int64_t i = 0; i < run.count && !violations.full(); ++i) {
        const int64_t begin = run.offset + i * run.stride, end = begin + run.length;
        if (begin < 0 || end > rkernel.exchange_words) {
          violations.add(fmt::format("{} of {} {} words {} to {} of {}", who(rtask), name(), verb, begin, end, rkernel.exchange_words));
          continue;
        }
        for (int64_t word = begin; word < end; ++word) f(word);
      }
    }
  }

  void publish(int64_t word, int32_t rtask) {
    int32_t& known = publisher[static_cast<size_t>(word)];
    if (known >= 0) violations.add(fmt::format("word {} of {} is published by {} and by {}", word, name(), who(known), who(rtask)));
    known = rtask;
  }
};

// Words of buffers: whoever writes an element publishes its word. That an element is written once, and before it is read, is proved for the
// buffer itself (verify_memory.cpp), and so proved for its words.
struct Words {
  const RProgram& program;
  const select::Families& families;
  Violations& violations;

  void verify() {
    for (const BufferId buffer : buffers_in_words(program)) {
      if (buffer.value < 0 || buffer.index() >= program.graph.buffers.size()) {
        violations.add(fmt::format("words of buffer {}, which does not exist", buffer.value));
        return;
      }
      if (program.memory.words_offset[buffer.index()] < 0)
        violations.add(fmt::format("words of buffer {} have no place in the arena", buffer.value));
      for (size_t i = 0; i < program.rkernels.size(); ++i) verify_writer(i, buffer);
    }
    for (size_t i = 0; i < program.rkernels.size(); ++i) {
      for (const Phase& phase : program.rkernels[i].phases) {
        verify_bits(i, phase);
        verify_reader(i, phase);
      }
    }
    verify_copies();
  }

  // Each bit of a phase is for a buffer that the rOperator reads or makes, which has words. A body would poll others for ever.
  void verify_bits(size_t rop, const Phase& phase) {
    const std::string name = printable(program.graph.rops[rop].name);
    if (phase.words != 0 && program.launches) violations.add(fmt::format("'{}' has words in graph execution", name));
    uint32_t known = 0;
    const auto verify_uses = [&](const std::vector<WordsUse>& uses, const std::vector<TensorId>& tensors, const char* verb) {
      for (const WordsUse& use : uses) {
        if (use.bit < 0 || use.bit > 31) {
          violations.add(fmt::format("'{}' {} words by bit {}", name, verb, use.bit));
          continue;
        }
        known |= 1U << use.bit;
        if ((phase.words >> use.bit & 1U) == 0) continue;
        const bool is_its = std::any_of(tensors.begin(), tensors.end(),
                                        [&](TensorId id) { return id.valid() && program.graph.tensor(id).place.buffer == use.buffer; });
        if (!is_its) violations.add(fmt::format("'{}' {} words of buffer {}, where it has no tensor", name, verb, use.buffer.value));
        const BufferKind kind = is_its ? program.graph.buffers[use.buffer.index()].kind : BufferKind::arena;
        if (kind == BufferKind::input || kind == BufferKind::constant)
          violations.add(fmt::format("'{}' {} words of buffer {}, which nobody makes", name, verb, use.buffer.value));
      }
    };
    verify_uses(phase.may_await, reads_of(program.graph.rops[rop]), "awaits");
    verify_uses(phase.may_publish, program.graph.rops[rop].outputs, "publishes");
    const std::pair<std::string, std::string> none = {"WORDS", "0"};
    const auto argument =
        std::find_if(phase.template_args.begin(), phase.template_args.end(), [](const auto& a) { return a.first == "WORDS"; });
    if ((argument == phase.template_args.end() ? none : *argument).second != std::to_string(phase.words))
      violations.add(fmt::format("the body of '{}' has other words than the phase", name));
    if ((phase.words & ~known) != 0) violations.add(fmt::format("'{}' has words by bits {:#x}, which are of no buffer", name, phase.words));
  }

  // The first copies of all words lie within words_bytes, so that all second ones lie behind them.
  void verify_copies() {
    const int64_t bytes = program.memory.words_bytes;
    int64_t first = INT64_MAX, end = 0;
    for (const BufferId buffer : buffers_in_words(program)) {
      const int64_t at = program.memory.words_offset[buffer.index()];
      first = std::min(first, at);
      end = std::max(end, at + program.graph.buffers[buffer.index()].elements * kWordBytes);
    }
    if (bytes < 0 || bytes % kAlignmentBytes != 0 || (end == 0 && bytes > 0) || (end > 0 && end - first > bytes))
      violations.add(fmt::format("the second copy of all words is {} bytes behind the first", bytes));
  }

  void verify_reader(size_t rop, const Phase& phase) {
    const auto is_taken = [&](const WordsUse& use) { return (phase.words >> use.bit & 1U) != 0; };
    const auto taken = std::count_if(phase.may_await.begin(), phase.may_await.end(), is_taken);
    if (phase.awaits_all_or_none && taken != 0 && taken != static_cast<std::ptrdiff_t>(phase.may_await.size()))
      violations.add(fmt::format("'{}' awaits words of {} of {} operands, and can await all of them or none",
                                 printable(program.graph.rops[rop].name), taken, phase.may_await.size()));
  }

  void verify_writer(size_t rop, BufferId buffer) {
    const RKernel& rkernel = program.rkernels[rop];
    const auto is_of_buffer = [&](TensorId id) { return id.valid() && program.graph.tensor(id).place.buffer == buffer; };
    const auto& outputs = program.graph.rops[rop].outputs;
    if (rkernel.rtasks() == 0 || std::none_of(outputs.begin(), outputs.end(), is_of_buffer)) return;
    const kernels::Family& family = select::family_of(families, rkernel);
    for (size_t p = 0; p < rkernel.phases.size(); ++p) {
      const bool publishes = publishes_words(rkernel.phases[p], buffer);
      for (int64_t t = 0; t < rkernel.phases[p].rtasks && !violations.full() && !publishes; ++t) {
        Accesses accesses;
        family.accesses(program.graph, program.graph.rops[rop], rkernel, static_cast<int>(p), t, accesses);
        const bool writes =
            std::any_of(accesses.writes.begin(), accesses.writes.end(), [&](const Region& r) { return is_of_buffer(r.tensor); });
        if (!writes) continue;
        violations.add(fmt::format("'{}' phase {} rTask {} writes buffer {} and does not publish its words",
                                   printable(program.graph.rops[rop].name), p, t, buffer.value));
        break;
      }
    }
  }
};

// The members of a cluster exchange values through shared memory, so split s of a tile is on vEU s of some cluster, and the other splits on
// the others of the same.
void verify_clusters(const RProgram& program, Violations& violations) {
  std::map<std::tuple<size_t, int32_t, int64_t>, int64_t> cluster_of;
  const int64_t members = program.vdevice.cluster_veus;
  for (size_t veu = 0; veu < program.lanes.size(); ++veu) {
    for (const Instruction& i : program.lanes[veu]) {
      if (!i.rtask.rop.valid() || program.rkernels[i.rtask.rop.index()].gang) continue;
      const Phase& phase = program.rkernels[i.rtask.rop.index()].phases[static_cast<size_t>(i.rtask.phase)];
      if (phase.cluster == 1) continue;
      const std::string who =
          fmt::format("'{}' phase {} rTask {}", printable(program.graph.rop(i.rtask.rop).name), i.rtask.phase, i.rtask.index);
      const int64_t shares = phase.boxes ? phase.boxes->splits : phase.ring.blocks;
      if (phase.cluster != members || shares != members || program.lanes.size() % static_cast<size_t>(members) != 0) {
        violations.add(fmt::format("{} is one of {} in a cluster; the program has clusters of {}", who, phase.cluster, members));
        continue;
      }
      const auto cluster = static_cast<int64_t>(veu) / members, member = static_cast<int64_t>(veu) % members;
      if (phase.member_of(i.rtask.index) != member)
        violations.add(fmt::format("{} is member {} of its cluster and on vEU {}, which is member {}", who, phase.member_of(i.rtask.index),
                                   veu, member));
      const auto [known, added] =
          cluster_of.try_emplace({i.rtask.rop.index(), i.rtask.phase, phase.shared_tile_of(i.rtask.index)}, cluster);
      if (!added && known->second != cluster)
        violations.add(fmt::format("{} is in cluster {}, another rTask of its tile in cluster {}", who, cluster, known->second));
    }
  }
}

}  // namespace

void verify_exchanges(const RProgram& program, const select::Families& families, Violations& violations) {
  verify_places(program, violations);
  Words{program, families, violations}.verify();
  verify_clusters(program, violations);
  for (size_t i = 0; i < program.rkernels.size(); ++i) {
    const RKernel& rkernel = program.rkernels[i];
    if (rkernel.gang)
      Gang{program, i, rkernel, families, violations}.verify();
    else if (rkernel.exchange_words > 0)
      violations.add(fmt::format("'{}' has an exchange but is no gang", printable(program.graph.rops[i].name)));
  }
}

}  // namespace tamp::schedule
