// The places of buffers and scratch in the arena, and of constants in the weights file.
#pragma once

#include "compiler/ir/rprogram.h"
#include "compiler/select/select.h"

namespace tamp::schedule {

inline constexpr int64_t kAlignmentBytes = 256;  // of arena offsets and of weights
inline constexpr int64_t kExchangeWordBytes = 8;
inline constexpr int64_t kWordBytes = 4;  // of a buffer's word, one of two

// Fills RProgram::memory. Two buffers share memory only where the lanes and events already put every access to one before every write of
// the other; the plan never asks for another Wait. With `share` false no two buffers share memory.
void plan_memory(RProgram& program, bool share = true);

// Bytes of all arena buffers and scratch if none shared memory (for reports, to compare arena_bytes with).
int64_t unshared_bytes(const RProgram& program);

// Fills RProgram::weights and ::weight_bytes: first constants that a body reads in their own layout, then the data that the families pack.
// Several programs get one file, of that many bytes.
void list_weights(const std::vector<RProgram*>& programs, const select::Families& families);

}  // namespace tamp::schedule
