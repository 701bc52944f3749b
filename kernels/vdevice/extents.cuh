// Lengths of run time (docs/adr/0049-lengths.md), in programs that have some. The kernel's parameter has their extents behind the addresses
// of the ports. Two things depend on them: a rTask whose results begin behind its extent has nothing to do, and numbers in the arguments of
// bodies. Example: rows of 768 columns in rTasks of 64 rows, in a run of 100 of 512 rows. rTasks 0 and 1 run; rTask 2, which begins at row
// 128, waits for its events and signals, and no more.
#pragma once

#include "kernels/vdevice/control.cuh"

namespace rk {

// What the upper bits of Instruction::index say in such a program, since a table of its own would be one more load of 0.3 us on the way of
// each instruction: 1 plus the number of the extent behind which the rTask has nothing to do, or 0; and whether its arguments have patches.
inline constexpr int kIndexBits = 27;        // in tables
inline constexpr uint32_t kHasPatches = 16;  // in tables
// Of a record: its patches.
struct PatchRange {  // in tables
  uint16_t first, count;
};
// An integer of the arguments, `offset` bytes from their begin: factor times one extent or two, of which the second may be kNone16.
struct Patch {  // in tables
  uint16_t offset, a, b;
  int32_t factor;
};

// From shared memory, where addresses are copied at the start: a load from the kernel's parameter by a number of run time takes 0.6 us.
template <class Veu>
RK_INLINE int32_t extent_of(const Control<Veu>& control, uint32_t extent) {
  const uint32_t number = Veu::kFirstExtent + extent;
  if constexpr (Veu::kBases > Veu::kSharedBases) {
    if (number >= Veu::kSharedBases)
      return static_cast<int32_t>(reinterpret_cast<const uint64_t*>(control.bases[Veu::kSharedBases])[number]);
  }
  return static_cast<int32_t>(control.bases[number]);
}

// Whether the instruction's rTask has nothing to do. Leaves the rTask's number in `index`, and in `detail` whether there are patches.
template <class Veu>
RK_INLINE bool take_end(const Control<Veu>& control, Instruction& instruction) {
  const uint32_t code = instruction.index >> kIndexBits, extent = code % kHasPatches;
  const bool is_behind = extent != 0 && extent_of(control, extent - 1) <= static_cast<int32_t>(instruction.detail);
  instruction.index &= (1u << kIndexBits) - 1u;
  instruction.detail = code >= kHasPatches;
  return is_behind;
}

// The lanes of a warp call it, behind the copy of the arguments.
template <class Veu>
RK_INLINE void patch_arguments(const Control<Veu>& control, const Instruction& instruction, char* args, int lane) {
  if (instruction.detail == 0) return;
  __syncwarp();
  const PatchRange range = Veu::patch_ranges()[instruction.record];
  for (int p = lane; p < range.count; p += kWarp) {
    const Patch patch = Veu::patches()[range.first + p];
    int32_t value = patch.factor * extent_of(control, patch.a);
    if (patch.b != kNone16) value *= extent_of(control, patch.b);
    *reinterpret_cast<int32_t*>(args + patch.offset) = value;
  }
}

}  // namespace rk
