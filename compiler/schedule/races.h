// verify() proves that the accesses that families declare for each rTask are in order. The other half of the proof is here: the declared
// accesses are compared with those that the rTasks were seen to make (`tamp run --races`; runtime_stub/cuda_on_cpu/cpu_races.h).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "compiler/ir/rprogram.h"
#include "compiler/select/select.h"
#include "kernels/catalogue.h"
#include "kernels/vdevice/numbers.cuh"

namespace tamp::schedule {

// Bytes [begin, end) of a base that a rTask touched. Bases are the device's: the arena, the weights, inputs, outputs.
struct Touch {
  RTask rtask;
  int32_t base = 0;
  bool is_write = false;
  int64_t begin = 0, end = 0;
};
inline constexpr int32_t kArenaBase = rk::kArena, kWeightsBase = rk::kWeights, kFirstPortBase = rk::kFirstPort;

// The bytes of the arena that hold words: exchanges of gangs, and words of buffers (words.h).
std::vector<std::pair<int64_t, int64_t>> exchange_bytes(const RProgram& program);

// One sentence per fault, at most `limit`. No sentence means: every rTask read and wrote no other bytes than its family declares, and wrote
// all of these; and of any two rTasks that touched the same byte, one of them writing, one is done before the other begins, whatever the
// order of the run. The program must be one that verify() accepts. In `touched`, the touches of a rTask follow each other. In a run of
// smaller lengths than the largest (`is_whole` false) a rTask need not write all, and declares nothing of inputs and outputs.
std::vector<std::string> races(const RProgram& program, const std::vector<Touch>& touched, size_t limit = 8,
                               const select::Families& families = kernels::families(), bool is_whole = true);

}  // namespace tamp::schedule
