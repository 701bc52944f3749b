// Values that are their own flags (docs/adr/0030). An edge between two vEUs takes a store, a signal, a poll and a load, one after another.
// For a row of some hundred numbers that is longer than the work on it. So bodies that make or take such rows have a second way: the maker
// of an element stores it once more as a word, a value that is its own flag (kernels/vdevice/words.cuh), and its readers poll the word. A
// buffer that has words has one for each of its elements, in memory that nothing else ever uses.
//
// Waits and signals stay as they are, so everything that the verifier proves from Waits still holds: an element is written once and before
// it is read, and so is its word. A body that takes words waits for its Waits only before it stores to memory that it shares with others.
// A buffer with words has its memory for itself, so a body that stores to such buffers alone does not wait at all. Its signal waits
// instead.
#pragma once

#include <vector>

#include "compiler/ir/rprogram.h"

namespace tamp::schedule {

// Sets Phase::words of all rKernels. A buffer that the program makes, also an output, has words if one rOperator makes all of it and can
// publish them, if some reader can await them, and if it has at most kMostWords elements. For persistent kernels: the end of a kernel needs
// no flags.
void choose_words(RProgram& program);
inline constexpr int64_t kMostWords = 65536;

// Sets Phase::words and the body's template argument for them.
void set_words(Phase& phase, uint32_t words);

// Whether the phase awaits, or publishes, words of the buffer, as Phase::may_await and may_publish say that it can.
bool awaits_words(const Phase& phase, BufferId buffer);
bool publishes_words(const Phase& phase, BufferId buffer);

// The buffers that some phase publishes or awaits, ascending.
std::vector<BufferId> buffers_in_words(const RProgram& program);

// For plans, before words are chosen: whether `maker` could publish words that `reader` could await.
bool may_be_in_words(const Phase& maker, const Phase& reader);

}  // namespace tamp::schedule
