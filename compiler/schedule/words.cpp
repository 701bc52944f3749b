#include "compiler/schedule/words.h"

#include <algorithm>

namespace tamp::schedule {
namespace {

bool does(const Phase& phase, const std::vector<WordsUse>& uses, BufferId buffer) {
  return std::any_of(uses.begin(), uses.end(),
                     [&](const WordsUse& use) { return (phase.words >> use.bit & 1U) != 0 && use.buffer == buffer; });
}

// Who makes a buffer.
struct Makers {
  int writers = 0, publishers = 0;
};

}  // namespace

void choose_words(RProgram& program) {
  if (!program.graph.loops.empty()) return;  // the warps beside these take no turns
  const Graph& graph = program.graph;
  std::vector<Makers> makers(graph.buffers.size());
  for (size_t i = 0; i < graph.rops.size(); ++i) {
    if (program.rkernels[i].phases.empty()) continue;  // a view
    for (const TensorId id : graph.rops[i].outputs) {
      const BufferId buffer = graph.tensor(id).place.buffer;
      if (buffer.valid()) ++makers[buffer.index()].writers;
    }
    for (const Phase& phase : program.rkernels[i].phases) {
      for (const WordsUse& use : phase.may_publish) ++makers[use.buffer.index()].publishers;
    }
  }
  const auto can_have = [&](const WordsUse& use) {
    const Buffer& buffer = graph.buffers[use.buffer.index()];
    const Makers& made = makers[use.buffer.index()];
    const bool is_made = buffer.kind == BufferKind::arena || buffer.kind == BufferKind::output;
    // Behind the end of a length nobody would publish the words that readers poll.
    return graph.lengths.empty() && is_made && buffer.elements <= kMostWords && made.writers == 1 && made.publishers == 1;
  };
  std::vector<bool> awaited(graph.buffers.size(), false);
  const auto take = [](Phase& phase, const WordsUse& use) { phase.words |= 1U << use.bit; };
  for (RKernel& rkernel : program.rkernels) {
    for (Phase& phase : rkernel.phases) {
      if (phase.awaits_all_or_none && !std::all_of(phase.may_await.begin(), phase.may_await.end(), can_have)) continue;
      for (const WordsUse& use : phase.may_await) {
        if (!can_have(use)) continue;
        take(phase, use);
        awaited[use.buffer.index()] = true;
      }
    }
  }
  for (RKernel& rkernel : program.rkernels) {
    for (Phase& phase : rkernel.phases) {
      for (const WordsUse& use : phase.may_publish) {
        if (awaited[use.buffer.index()]) take(phase, use);
      }
      set_words(phase, phase.words);
    }
  }
}

void set_words(Phase& phase, uint32_t words) {
  phase.words = words;
  if (words == 0) return;
  for (auto& [name, text] : phase.template_args) {
    if (name == "WORDS") text = std::to_string(words);
  }
}

bool awaits_words(const Phase& phase, BufferId buffer) { return does(phase, phase.may_await, buffer); }
bool publishes_words(const Phase& phase, BufferId buffer) { return does(phase, phase.may_publish, buffer); }

std::vector<BufferId> buffers_in_words(const RProgram& program) {
  std::vector<BufferId> found;
  for (const RKernel& rkernel : program.rkernels) {
    for (const Phase& phase : rkernel.phases) {
      for (const auto* uses : {&phase.may_publish, &phase.may_await}) {
        for (const WordsUse& use : *uses) {
          if ((phase.words >> use.bit & 1U) != 0) found.push_back(use.buffer);
        }
      }
    }
  }
  std::sort(found.begin(), found.end());
  found.erase(std::unique(found.begin(), found.end()), found.end());
  return found;
}

bool may_be_in_words(const Phase& maker, const Phase& reader) {
  return std::any_of(maker.may_publish.begin(), maker.may_publish.end(), [&](const WordsUse& made) {
    return std::any_of(reader.may_await.begin(), reader.may_await.end(), [&](const WordsUse& read) { return read.buffer == made.buffer; });
  });
}

}  // namespace tamp::schedule
