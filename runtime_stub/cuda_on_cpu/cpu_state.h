// Stand-in, part 2: what there is while a kernel runs: threads (fibers), warps, vEUs (blocks), copies that are under way, and launches.
#pragma once

#include <boost/context/detail/fcontext.hpp>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "cpu_types.h"

namespace cuda_on_cpu {

constexpr uint32_t kWarpSize = 32;
constexpr uint32_t kMaxThreads = 1024;  // of one vEU
constexpr uint32_t kNamedBarriers = 16;
constexpr uint32_t kMeetings = 4;  // different masks of the collectives of one warp

struct Fiber;
struct Warp;
struct Block;

// What a fiber that is not ready waits for; for the report of a deadlock.
enum class Parked : uint8_t { no, barrier, named_barrier, collective, ended, poll };

struct AsyncCopy {
  void* to;
  const void* from;
  uint32_t bytes;
  bool valid;
  uint32_t group;
};

// The rTask for which a thread accesses device memory: kernels/vdevice/control.cuh, accesses_of.
struct RTask {
  uint32_t record, index;
};

// A word that a fiber polled, and what it found there.
struct Seen {
  const void* word;
  uint64_t value;
  uint32_t bytes;
};

struct Fiber {
  uint3 thread_idx, block_idx;
  RTask rtask;
  uint32_t lane;
  Warp* warp;
  Block* block;
  boost::context::detail::fcontext_t context;
  Parked parked;
  const void* object;             // what it is parked on
  uint32_t next_waiter;           // of the same Barrier: number of the thread in its vEU plus 1
  uint32_t polled_round;          // last round in which it polled in vain
  uint32_t naps;                  // how often it slept
  std::vector<Seen> seen;         // since it did anything but poll and vote, or a pass was not in vain
  uint32_t looks, passes;         // since then; passes: in vain, with the same values
  bool votes;                     // it was in a collective since then
  std::vector<AsyncCopy> copies;  // cp.async, in order; [first_copy, end) are not done
  size_t first_copy;
  uint32_t groups;  // cp.async groups committed so far
#if defined(__SANITIZE_ADDRESS__)
  void* fake_stack;
  const void* stack;
  size_t stack_bytes;
#endif
};

// One warp-wide function under way, for one mask of lanes. Values are kept twice, because a quick lane may be in the next
// collective while a slow lane has not yet read the results of this one. The quick lane cannot get further than that.
struct Meeting {
  uint32_t mask, arrived;
  const char* function;
  uint32_t turn;
  uint64_t values[2][kWarpSize];
};

struct Warp {
  uint32_t ready;           // lanes that can run, the running one included
  uint32_t asleep, voters;  // lanes that sleep; those of them that may have to vote before anything changes
  uint32_t index;
  Block* block;
  Fiber* lanes;
  Meeting meetings[kMeetings];
};

struct NamedBarrier {
  uint32_t expected, arrived;
  uint32_t waiting[kMaxThreads / kWarpSize];  // lanes of each warp
};

// In a namespace of its own: argument-dependent lookup must not find wait(Barrier&) below beside the caller's own wait.
namespace types {
// An mbarrier. Odd fields so that it has the 8 bytes of the GPU's; waiters are a list through Fiber::next_waiter.
struct alignas(8) Barrier {
  uint16_t count, pending, phase, first_waiter;
};
static_assert(sizeof(Barrier) == 8);

// What the copy engine knows of a tensor; kernels/vdevice/boxes.cuh. The GPU's descriptor is 128 bytes of undocumented content.
struct alignas(64) TensorMap {
  const char* base;
  int64_t extents[4], strides[4];  // channel, w, h, image; bytes, so that strides[0] is those of a value
  int32_t box_w, box_h, boxes;     // boxes: of one copy
};
static_assert(sizeof(TensorMap) == 128);
}  // namespace types
using types::Barrier;
using types::TensorMap;

// Of `bytes` in a row, or, with a map, of `count` boxes at `at` (channel, w, h, image), box_bytes apart.
struct BulkCopy {
  char* to;
  const void* from;
  uint32_t bytes;
  Barrier* full;
  RTask rtask;
  const TensorMap* map = nullptr;
  int32_t at[4] = {};
  uint32_t count = 0, box_bytes = 0;
};

constexpr uint32_t kNowhere = 0xffffffffu;

struct Block {
  uint32_t ready;     // warps with a lane that can run
  uint32_t ready_at;  // place in Launch::ready, or kNowhere
  uint3 block_idx;
  char* shared;
  uint32_t threads;
  std::vector<Warp> warps;
  std::vector<Fiber> fibers;
  uint32_t in_cluster_barrier;   // threads that have come to cluster_barrier
  std::vector<BulkCopy> copies;  // issued, not yet done
  NamedBarrier named[kNamedBarriers];
};

// A fiber that sleeps until this word changes; or did, if it has had more naps since.
struct Sleeper {
  const void* word;
  Fiber* fiber;
  uint32_t nap;
};
constexpr size_t kSleeperLists = 1024;  // a power of two

enum class Outcome : uint8_t { running, done, deadlock, failed };

struct Launch {
  dim3 grid_dim, block_dim;
  uint32_t shared_bytes;
  void (*call)(const void* arguments);  // the kernel, with its arguments unpacked
  const void* arguments;
  std::vector<Block> blocks;  // the resident ones
  std::vector<Block*> ready;  // resident vEUs that can do something, in any order
  uint32_t live;              // fibers that have not ended
  uint32_t asleep;            // fibers that sleep
  std::vector<std::vector<Sleeper>> sleepers = std::vector<std::vector<Sleeper>>(kSleeperLists);  // by sleeper_list(word)
  Fiber host;                                                                                     // who called
  Outcome outcome;
  // Deadlock detection.
  bool progress;  // since the last round ended
  bool stuck;
  uint32_t round, quiet_rounds, polls, polls_per_round;
};

// The running thread. One OS thread runs all fibers of all launches one after the other (cpu_launch.h holds a lock), so
// this needs no thread_local, and reading threadIdx costs two loads.
inline constinit Fiber* current = nullptr;
inline constinit Launch* launch = nullptr;
inline constinit uint64_t random_state = 0;

// Gets all accesses to device memory for `tamp run --races` (cpu_races.h); null without --races.
struct Watcher {
  virtual void launch(bool cooperative) = 0;                     // begins
  virtual void bases(const uint64_t* addresses, int count) = 0;  // rk::Launch::bases
  virtual void access(RTask rtask, const void* at, size_t bytes, bool is_write) = 0;

 protected:
  ~Watcher() = default;
};
inline constinit Watcher* watcher = nullptr;
inline void accesses_of(const uint64_t* bases, int count, uint32_t record, uint32_t index) {
  current->rtask = {record, index};
  if (watcher != nullptr) watcher->bases(bases, count);
}

}  // namespace cuda_on_cpu
