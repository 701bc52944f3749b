#include "compiler/schedule/buckets.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "compiler/schedule/memory_plan.h"

namespace tamp::schedule {
namespace {

std::vector<RProgram*> all_of(RProgram& program) {
  std::vector<RProgram*> programs = {&program};
  for (RProgram& smaller : program.smaller) programs.push_back(&smaller);
  return programs;
}

// Exchanges and words lie behind all that may be written at any time (memory_plan.cpp).
int64_t begin_of_kept(const MemoryPlan& memory) {
  int64_t begin = memory.arena_bytes;
  for (const auto* offsets : {&memory.exchange_offset, &memory.words_offset}) {
    for (const int64_t offset : *offsets) begin = offset < 0 ? begin : std::min(begin, offset);
  }
  return (begin + kAlignmentBytes - 1) / kAlignmentBytes * kAlignmentBytes;
}

void move_kept(MemoryPlan& memory, int64_t from, int64_t to) {
  for (auto* offsets : {&memory.exchange_offset, &memory.words_offset, &memory.buffer_offset}) {
    for (int64_t& offset : *offsets) offset += offset >= from ? to - from : 0;
  }
}

// Of the weights that a program reads itself; blobs with one offset are one.
int64_t own_weight_bytes(const RProgram& program) {
  std::map<int64_t, int64_t> blobs;
  for (const WeightBlob& blob : program.weights) blobs[blob.offset] = blob.bytes;
  int64_t bytes = 0;
  for (const auto& [offset, blob_bytes] : blobs) bytes += blob_bytes;
  return bytes;
}

struct Part {
  int64_t begin, end;
};

// Bytes of the arena: those that keep their contents from run to run, or all others that the program writes.
std::vector<Part> parts_of(const RProgram& program, bool kept) {
  const MemoryPlan& memory = program.memory;
  std::vector<Part> parts;
  const auto add = [&](int64_t offset, int64_t bytes) {
    if (offset >= 0 && bytes > 0) parts.push_back({offset, offset + bytes});
  };
  for (size_t b = 0; b < program.graph.buffers.size(); ++b) {
    const Buffer& buffer = program.graph.buffers[b];
    if (!kept) add(memory.buffer_offset[b], buffer.elements * bytes_of(buffer.dtype));
    if (kept && memory.words_offset[b] >= 0) {
      add(memory.words_offset[b], buffer.elements * kWordBytes);
      add(memory.words_offset[b] + memory.words_bytes, buffer.elements * kWordBytes);
    }
  }
  for (size_t i = 0; i < program.rkernels.size(); ++i) {
    if (kept) add(memory.exchange_offset[i], program.rkernels[i].exchange_words * kExchangeWordBytes);
    if (!kept) add(memory.scratch_offset[i], program.rkernels[i].scratch_elements * bytes_of(DType::f32));
  }
  return parts;
}

bool meet(const std::vector<Part>& a, const std::vector<Part>& b) {
  return std::any_of(a.begin(), a.end(), [&](const Part& of_a) {
    return std::any_of(b.begin(), b.end(), [&](const Part& of_b) { return of_a.begin < of_b.end && of_b.begin < of_a.end; });
  });
}

}  // namespace

void share_memory(RProgram& program, const select::Families& families) {
  const std::vector<RProgram*> programs = all_of(program);
  list_weights(programs, families);
  int64_t end = 0;
  for (const RProgram* one : programs) end = std::max(end, begin_of_kept(one->memory));
  for (RProgram* one : programs) {
    const int64_t begin = begin_of_kept(one->memory), bytes = std::max<int64_t>(one->memory.arena_bytes - begin, 0);
    move_kept(one->memory, begin, end);
    end += (bytes + kAlignmentBytes - 1) / kAlignmentBytes * kAlignmentBytes;
    const int64_t own = own_weight_bytes(*one);  // the share of L2 is one of all weights
    if (own > 0) one->weights_in_l2 *= static_cast<double>(one->weight_bytes) / static_cast<double>(own);
  }
  for (RProgram* one : programs) one->memory.arena_bytes = end;
}

std::vector<std::string> verify_apart(const RProgram& program) {
  std::vector<const RProgram*> programs = {&program};
  for (const RProgram& smaller : program.smaller) programs.push_back(&smaller);
  std::vector<std::string> violations;
  for (size_t a = 0; a < programs.size(); ++a) {
    const std::vector<Part> kept = parts_of(*programs[a], /*kept=*/true);
    for (size_t b = 0; b < programs.size() && !kept.empty(); ++b) {
      if (b != a && (meet(kept, parts_of(*programs[b], /*kept=*/false)) || meet(kept, parts_of(*programs[b], /*kept=*/true))))
        violations.push_back(fmt::format("program {} writes where program {} keeps words from run to run", b, a));
    }
  }
  return violations;
}

}  // namespace tamp::schedule
