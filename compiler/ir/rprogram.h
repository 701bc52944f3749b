// rProgram: what every vEU runs, fixed at compile time (Rammer sections 3 and 4). Code generation gets nothing else.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "compiler/ir/generation.h"
#include "compiler/ir/graph.h"
#include "compiler/ir/merge.h"
#include "compiler/ir/rkernel.h"
#include "compiler/ir/shaped_vdevice.h"

namespace tamp {

using EventId = StrongId<struct EventTag>;

// The smallest unit that runs on one vEU: number `index` of phase `phase` of the rKernel of rOperator `rop`.
struct RTask {
  ROperatorId rop;
  int32_t phase = 0;
  int64_t index = 0;
};

// Where a lane enters a loop of Graph::loops, and where it goes back to the entry behind that. Both look at the loop's condition: if it
// does not hold, the lane goes on behind the `repeat`.
enum class Turn : uint8_t { none, enter, repeat };

// One entry of a vEU's lane: wait for every event in `waits`, run the rTask, then signal. An entry without rTask
// (rop none) only waits and signals, or is a turn, which does not signal.
struct Instruction {
  RTask rtask;
  std::vector<EventId> waits;
  EventId signal;  // or none
  Turn turn = Turn::none;
  int32_t loop = -1;  // of a turn
};

// A counter in device memory that only grows: in epoch e a wait passes when it has reached e * count (design: epochs,
// never resets). In a loop the epoch is the number of iterations that have begun since the program was created.
struct Event {
  std::string name;   // "conv1", "conv1.partial", "boundary 3"
  int64_t count = 0;  // signals per epoch
};

struct MemoryPlan {
  int64_t arena_bytes = 0;
  std::vector<int64_t> buffer_offset;    // bytes, per Graph::buffers; -1 where the buffer is not in the arena or unused
  std::vector<int64_t> scratch_offset;   // bytes, per rOperator; -1 = none
  std::vector<int64_t> exchange_offset;  // bytes, per rOperator; -1 = none. Zero at create, shared with nothing
  // Per Graph::buffers: a word of 4 bytes for each element (kernels/vdevice/words.cuh); -1 = none. All lie beside each other, a second time
  // words_bytes behind. Zero at create, shared with nothing.
  std::vector<int64_t> words_offset;
  int64_t words_bytes = 0;
};

// The read-only data that NAME.weights holds, 256-byte aligned. Blobs with equal bytes have the same offset.
struct WeightBlob {
  std::string name;   // "conv1 packed implicit_gemm<64x64>", "fc.bias"
  TensorId constant;  // a constant read in its own layout, or none
  ROperatorId rop;    // with `phase`: Phase data packed by the family
  int32_t phase = 0;
  int64_t offset = 0, bytes = 0;
};

// What packing weights may take in memory, unless one blob needs more.
inline constexpr size_t kPackingBytes = size_t{6} << 30;

// Graph execution: all rTasks of one phase as a kernel of its own.
struct PhaseLaunch {
  ROperatorId rop;
  int32_t phase = 0;
  std::vector<int32_t> after;  // launches that must be done before, ascending; not those that these wait for
  int32_t stream = 0;
  bool dependent = false;  // launched as the programmatic dependent of the launch before it in its stream (schedule/streams.h)
};

// Of a phase: its rTasks have nothing to do in a run in which `extent` is at most `begins` of the rTask.
struct Guard {
  Extent extent;
  std::vector<int64_t> begins;
};

// RProgram::weights_in_l2 (docs/adr/0036): of most programs, and of those that wait for device memory.
inline constexpr double kFewWeightsInL2 = 0.15, kManyWeightsInL2 = 0.4;

struct RProgram {
  ShapedVDevice vdevice;
  Precision precision = Precision::fp32;
  std::string policy;                           // as `tamp compile --policy` has it
  Graph graph;                                  // placed; one RKernel per rOperator
  std::vector<Merge> merges;                    // convolutions of the model that the policy merged; few or none
  std::vector<RKernel> rkernels;                // per rOperator
  int64_t depth = 0;                            // rOperators in the graph's longest chain of dependences, whatever the policy
  std::vector<std::vector<Instruction>> lanes;  // per vEU
  std::vector<Event> events;
  std::optional<std::vector<PhaseLaunch>> launches;  // graph execution, in order; none = one persistent kernel
  MemoryPlan memory;
  std::vector<WeightBlob> weights;
  int64_t weight_bytes = 0;
  std::vector<std::vector<std::optional<Guard>>> guards;  // per rOperator and phase; none at all without lengths (schedule/guards.h)
  // Those that the device is told: they follow the ports in the kernel's list of bases (rk::LaunchOf).
  std::vector<Extent> extents;
  double estimated_us = 0;
  double weights_in_l2 = kFewWeightsInL2;  // the share of L2 in which weights shall stay from one inference to the next
  // The program makes tokens. If it is of one token, each run is followed by the next in the same kernel. `boundary`: the event that the
  // last instruction of each lane with rTasks signals, and nothing else (schedule/token_boundary.h). Others fill caches with a prompt.
  std::optional<Generation> generation;
  EventId boundary;
  bool veus_by_sm = false;  // neighbouring vEUs are to be on neighbouring SMs (kernels/vdevice/placement.cuh)
  // Programs of the buckets below this one's, ascending: the same network up to smaller values of one of its lengths. All are in one arena,
  // and their weights in one file (schedule/buckets.h).
  std::vector<RProgram> smaller;
};

// Of several buckets: the length that they are of, and the largest value of the length of that name in a bucket. 0 if there is one program.
size_t bucket_length(const RProgram& program);
int64_t bucket_largest(const RProgram& bucket, const std::string& name);

// Summary, one line per rOperator, the lanes in short. (schedule::verify proves that a rProgram is right.)
std::string print(const RProgram& program);

}  // namespace tamp
