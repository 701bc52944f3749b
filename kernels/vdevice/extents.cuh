// Lengths of run time (docs/adr/0049-lengths.md), in programs that have some. The kernel's parameter has their extents behind the addresses
// of the ports. Two things depend on them: a rTask whose results begin behind its extent has nothing to do, and numbers in the arguments of
// bodies. Example: rows of 768 columns in rTasks of 64 rows, in a run of 100 of 512 rows. rTasks 0 and 1 run; rTask 2, which begins at row
// 128, waits for its events and signals, and no more.
#pragma once

#include "kernels/vdevice/control.cuh"

namespace rk {

// Of a record: the extent behind which its rTasks have nothing to do, or kNone16; and its patches.
struct Ends {  // in tables
  uint16_t extent, first_patch, patches;
};
// An integer of the arguments, `offset` bytes from their begin: factor times one extent or two, of which the second may be kNone16.
struct Patch {  // in tables
  uint16_t offset, a, b;
  int32_t factor;
};

template <class Veu>
RK_INLINE int32_t extent_of(const Launch& launch, uint32_t extent) {
  const auto& all = static_cast<const LaunchOf<Veu::kBases>&>(launch);
  return static_cast<int32_t>(all.bases[Veu::kFirstExtent + extent]);
}

// Whether the instruction's rTask has nothing to do.
template <class Veu>
RK_INLINE bool is_behind_end(const Control<Veu>&, const Launch& launch, const Instruction& instruction) {
  const uint16_t extent = Veu::ends()[instruction.record].extent;
  return extent != kNone16 && extent_of<Veu>(launch, extent) <= static_cast<int32_t>(instruction.begin);
}

// The lanes of a warp call it, behind the copy of the arguments.
template <class Veu>
RK_INLINE void patch_arguments(const Control<Veu>&, const Launch& launch, uint32_t record, char* args, int lane) {
  const Ends ends = Veu::ends()[record];
  for (int p = lane; p < ends.patches; p += kWarp) {
    const Patch patch = Veu::patches()[ends.first_patch + p];
    int32_t value = patch.factor * extent_of<Veu>(launch, patch.a);
    if (patch.b != kNone16) value *= extent_of<Veu>(launch, patch.b);
    *reinterpret_cast<int32_t*>(args + patch.offset) = value;
  }
}

}  // namespace rk
