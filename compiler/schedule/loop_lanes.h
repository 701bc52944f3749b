// The loops of a rProgram as its lanes have them (docs/adr/0050).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "compiler/schedule/clocks.h"

namespace tamp::schedule {

struct LoopLanes {
  struct Span {
    int32_t veu = 0, enter = -1, repeat = -1;  // positions of the turns
  };
  std::string wrong;                          // what keeps the lanes from having loops at all; else empty
  std::vector<std::vector<Span>> spans;       // per loop, in the order of the vEUs
  std::vector<std::vector<int32_t>> loop_of;  // per vEU and instruction; a `repeat` is in its loop, an `enter` is not
  std::vector<int32_t> loop_of_event;         // per event: the loop whose iterations it counts, or -1
};
LoopLanes loop_lanes(const RProgram& program);

// Adds to an extent what keeps memory in use that is written in some loops and touched in others: memory that is not written anew in each
// iteration of a loop is in use until the lanes have left it. Returns whether there was something to add.
bool add_repeats(const RProgram& program, const LoopLanes& lanes, const Clocks& clocks, const std::vector<int32_t>& touched_in,
                 const std::vector<int32_t>& written_in, Extent& extent);

}  // namespace tamp::schedule
