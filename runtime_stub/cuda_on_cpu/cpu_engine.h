// Stand-in, part 2: fibers and the order in which they run.
//
// A vEU is a Block, a CUDA thread a Fiber. A fiber runs until it must wait; then it jumps straight to the next fiber, so a
// switch costs some 10 ns and waiting costs nothing. As long as a fiber of the same warp is ready, the next fiber is mostly one of that
// warp (whose stacks are in the cache); else a warp of any vEU is drawn at random. A fiber that polls memory
// spins until it has seen the same twice, and then sleeps until one of the words that it looked at changes. If all fibers that can run have
// only polled, for several rounds in a row, that is a deadlock (end_round).
#pragma once

#include <boost/context/detail/fcontext.hpp>
#include <cstdarg>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <vector>

#include "cpu_types.h"
#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif

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
  uint32_t polled_round;          // last round in which it polled
  uint32_t naps;                  // how often it slept
  std::vector<Seen> seen;         // since it did anything but poll and vote
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

inline uint32_t draw() {
  random_state ^= random_state << 13;
  random_state ^= random_state >> 7;
  random_state ^= random_state << 17;
  return static_cast<uint32_t>(random_state >> 32);
}
inline bool one_in(uint32_t n) { return (draw() & (n - 1)) == 0; }  // n is a power of two

// A number below `count`, each as likely as the others.
inline size_t draw_below(size_t count) { return (uint64_t{draw()} * count) >> 32; }

// The index of one set bit.
inline uint32_t draw_bit(uint32_t mask) {
  for (size_t skip = draw_below(static_cast<size_t>(__builtin_popcount(mask))); skip > 0; --skip) mask &= mask - 1;
  return static_cast<uint32_t>(__builtin_ctz(mask));
}

// --- switching -------------------------------------------------------------------------------------------------------

inline void switch_to(Fiber& next) {
  Fiber* const self = current;
  if (&next == self) return;
  current = &next;
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_start_switch_fiber(self->parked == Parked::ended ? nullptr : &self->fake_stack, next.stack, next.stack_bytes);
#endif
  const boost::context::detail::transfer_t from = boost::context::detail::jump_fcontext(next.context, self);
  static_cast<Fiber*>(from.data)->context = from.fctx;
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_finish_switch_fiber(self->fake_stack, nullptr, nullptr);
#endif
}

[[noreturn]] inline void leave(Outcome outcome) {
  launch->outcome = outcome;
  switch_to(launch->host);
  __builtin_unreachable();  // nobody jumps back: the fibers are abandoned
}

// For errors at which a GPU would fault or stay silent: names the thread and ends the launch with cudaErrorLaunchFailure.
[[noreturn, gnu::format(printf, 1, 2), gnu::cold, gnu::noinline]] inline void fail(const char* format, ...) {
  std::fprintf(stderr, "cuda_on_cpu: vEU %u, thread %u: ", current->block_idx.x, current->thread_idx.x);
  va_list arguments;
  va_start(arguments, format);
  std::vfprintf(stderr, format, arguments);
  va_end(arguments);
  std::fputc('\n', stderr);
  leave(Outcome::failed);
}

inline void make_ready(Warp& warp, uint32_t lanes) {
  Block& block = *warp.block;
  warp.ready |= lanes;
  block.ready |= 1u << warp.index;
  if (block.ready_at != kNowhere) return;
  block.ready_at = static_cast<uint32_t>(launch->ready.size());
  launch->ready.push_back(&block);
}

// Removes the vEU from the list of those that can do something, if it can do nothing.
inline void leave_ready(Block& block) {
  if (block.ready != 0 || !block.copies.empty() || block.ready_at == kNowhere) return;
  Block* const last = launch->ready.back();
  last->ready_at = block.ready_at;
  launch->ready[block.ready_at] = last;
  launch->ready.pop_back();
  block.ready_at = kNowhere;
}

// --- barriers and copies, as far as the switching needs them -------------------------------------------------------------

inline long shared_offset(const Block& block, const void* p) { return static_cast<long>(static_cast<const char*>(p) - block.shared); }

inline void check(const Block& block, const Barrier& barrier) {
  if (barrier.first_waiter <= block.threads && barrier.pending != 0 && barrier.pending <= barrier.count) return;
  fail("the barrier at byte %ld of shared memory was never initialised, or is overwritten", shared_offset(block, &barrier));
}

inline void arrive_in(Block& block, Barrier& barrier) {
  check(block, barrier);
  launch->progress = true;
  if (--barrier.pending != 0) return;
  barrier.pending = barrier.count;
  ++barrier.phase;
  uint32_t waiter = barrier.first_waiter;
  barrier.first_waiter = 0;
  while (waiter != 0) {
    Fiber& fiber = block.fibers[waiter - 1];
    waiter = fiber.next_waiter;
    make_ready(*fiber.warp, 1u << fiber.lane);
  }
}

// Rows of 128 bytes of channels, zeros outside of the tensor, cells permuted. first: rows of the stage before the box.
inline void copy_box(char* to, const TensorMap& map, const int32_t (&at)[4], int32_t first, RTask rtask) {
  constexpr int kRowBytes = 128, kCellBytes = 16;
  const int bytes = static_cast<int>(map.strides[0]), channels = kRowBytes / bytes;  // of a value; of a row
  for (int32_t row = 0; row < map.box_w * map.box_h; ++row) {
    const int64_t w = at[1] + row % map.box_w, h = at[2] + row / map.box_w;
    const bool inside = w >= 0 && w < map.extents[1] && h >= 0 && h < map.extents[2] && at[3] >= 0 && at[3] < map.extents[3];
    for (int c = 0; c < channels; ++c) {
      uint32_t v = 0;
      const int64_t channel = at[0] + c;
      if (inside && channel >= 0 && channel < map.extents[0]) {
        const char* const from = map.base + channel * map.strides[0] + w * map.strides[1] + h * map.strides[2] + at[3] * map.strides[3];
        if (watcher != nullptr) watcher->access(rtask, from, static_cast<uint32_t>(bytes), /*is_write=*/false);
        std::memcpy(&v, from, static_cast<size_t>(bytes));
      }
      std::memcpy(to + row * kRowBytes + (c * bytes / kCellBytes ^ (first + row) % 8) * kCellBytes + c * bytes % kCellBytes, &v,
                  static_cast<size_t>(bytes));
    }
  }
}

inline void carry_out(const BulkCopy& copy) {
  if (copy.map == nullptr) {
    if (watcher != nullptr) watcher->access(copy.rtask, copy.from, copy.bytes, /*is_write=*/false);
    std::memcpy(copy.to, copy.from, copy.bytes);
    return;
  }
  int32_t at[4] = {copy.at[0], copy.at[1], copy.at[2], copy.at[3]};
  for (uint32_t box = 0; box < copy.count; ++box, at[0] += static_cast<int32_t>(128 / copy.map->strides[0]))
    copy_box(copy.to + box * copy.box_bytes, *copy.map, at, static_cast<int32_t>(box * copy.box_bytes / 128), copy.rtask);
}

// Carries out one of the vEU's bulk copies, any of them: they overtake each other on a GPU too.
inline void finish_a_copy(Block& block) {
  const size_t n = draw_below(block.copies.size());
  const BulkCopy copy = block.copies[n];
  block.copies[n] = block.copies.back();
  block.copies.pop_back();
  leave_ready(block);
  const RTask mine = current->rtask;
  current->rtask = copy.rtask;  // the running thread makes these accesses for the rTask that issued the copy
  carry_out(copy);
  current->rtask = mine;
  launch->progress = true;
  arrive_in(block, *copy.full);
}

// The fast path of every collective, so lanes are not drawn quite evenly.
inline Fiber& draw_lane(const Warp& warp) {
  const uint32_t turn = draw() & 31;
  const uint32_t rotated = (warp.ready >> turn) | (warp.ready << ((32 - turn) & 31));
  return warp.lanes[(static_cast<uint32_t>(__builtin_ctz(rotated)) + turn) & 31];
}

// Bulk copies come late: when the vEU has nothing else to do, and now and then before.
inline Fiber* draw_in(Block& block) {
  if (!block.copies.empty() && (block.ready == 0 || one_in(16))) finish_a_copy(block);
  while (block.ready == 0 && !block.copies.empty()) finish_a_copy(block);
  if (block.ready == 0) return nullptr;
  return &draw_lane(block.warps[draw_bit(block.ready)]);
}

void end_round();

inline Fiber& draw_anywhere() {
  do {
    while (!launch->ready.empty()) {
      Fiber* const fiber = draw_in(*launch->ready[draw_below(launch->ready.size())]);
      if (fiber != nullptr) return *fiber;
    }
    if (launch->asleep != 0) end_round();
  } while (!launch->ready.empty());
  if (launch->live != 0) leave(Outcome::deadlock);
  leave(Outcome::done);
}

// The running fiber can go on, but others may go first.
inline void yield() { switch_to(draw_anywhere()); }
inline void maybe_yield() {
  const uint32_t dice = draw();
  if ((dice & 63) == 0) return yield();
  if ((dice & 15) == 0) switch_to(*draw_in(*current->block));
}

// The running fiber cannot go on until make_ready is called for it.
inline void park(Parked parked, const void* object) {
  Fiber& self = *current;
  Warp& warp = *self.warp;
  self.parked = parked;
  self.object = object;
  warp.ready &= ~(1u << self.lane);
  if (warp.ready != 0) {
    switch_to(draw_lane(warp));
  } else {
    Block& block = *self.block;
    block.ready &= ~(1u << warp.index);
    leave_ready(block);
    Fiber* const next = draw_in(block);
    switch_to(next != nullptr ? *next : draw_anywhere());
  }
  self.parked = Parked::no;
}

// --- sleep -----------------------------------------------------------------------------------------------------------

inline std::vector<Sleeper>& sleeper_list(const void* word) {
  return launch->sleepers[(reinterpret_cast<uintptr_t>(word) * 0x9e3779b97f4a7c15u >> 40) & (kSleeperLists - 1)];
}
inline bool sleeps(const Sleeper& sleeper) {
  return sleeper.fiber->naps == sleeper.nap && (sleeper.fiber->warp->asleep >> sleeper.fiber->lane & 1) != 0;
}

inline void wake(Warp& warp, uint32_t lanes) {
  warp.asleep &= ~lanes;
  warp.voters &= ~lanes;
  launch->asleep -= static_cast<uint32_t>(__builtin_popcount(lanes));
  make_ready(warp, lanes);
}

// The word may be another one than before: whoever slept for it looks again.
inline void changed(const void* word) {
  launch->progress = true;
  if (launch->asleep == 0) return;
  size_t kept = 0;
  std::vector<Sleeper>& list = sleeper_list(word);
  for (const Sleeper& sleeper : list) {
    if (!sleeps(sleeper)) continue;
    if (sleeper.word == word)
      wake(*sleeper.fiber->warp, 1u << sleeper.fiber->lane);
    else
      list[kept++] = sleeper;
  }
  list.resize(kept);
}

// For stores that nobody called changed() for.
inline void wake_all() {
  for (Block& block : launch->blocks) {
    for (Warp& warp : block.warps) {
      if (warp.asleep != 0) wake(warp, warp.asleep);
    }
  }
}

// Of no rTask: --races does not see it.
__attribute__((no_sanitize("thread"))) inline uint64_t value_at(const void* word, uint32_t bytes) {
  return bytes == 4 ? *static_cast<const volatile uint32_t*>(word) : *static_cast<const volatile uint64_t*>(word);
}

// The running fiber has done something.
inline void forget_seen() {
  current->seen.clear();
  current->votes = false;
}

// True if the running fiber saw this word before, and all that it has seen is still so: it is in a loop of polls, and would see the same
// again.
inline bool would_see_the_same(const void* word) {
  bool again = false, same = true;
  for (const Seen& seen : current->seen) {
    again = again || seen.word == word;
    same = same && value_at(seen.word, seen.bytes) == seen.value;
  }
  if (!same) forget_seen();
  return again && same;
}

inline void note_seen(const void* word, uint32_t bytes, uint64_t value) {
  constexpr size_t kMostSeen = 64;
  std::vector<Seen>& all = current->seen;
  for (Seen& seen : all) {
    if (seen.word != word) continue;
    seen.value = value;
    return;
  }
  if (all.size() == kMostSeen) all.clear();
  all.push_back({word, value, bytes});
}

inline void sleep() {
  Fiber& self = *current;
  ++self.naps;
  for (const Seen& seen : self.seen) {
    std::vector<Sleeper>& list = sleeper_list(seen.word);
    if (list.size() == list.capacity()) {
      size_t kept = 0;
      for (const Sleeper& sleeper : list) {
        if (sleeps(sleeper)) list[kept++] = sleeper;
      }
      list.resize(kept);
      list.reserve(2 * kept + 16);
    }
    list.push_back({seen.word, &self, self.naps});
  }
  self.warp->asleep |= 1u << self.lane;
  if (self.votes) self.warp->voters |= 1u << self.lane;
  ++launch->asleep;
  park(Parked::poll, self.seen.front().word);
  forget_seen();
}

// --- deadlock --------------------------------------------------------------------------------------------------------

constexpr uint32_t kQuietRounds = 4;       // before stuck() is true
constexpr uint32_t kMaxQuietRounds = 256;  // of a kernel that goes on polling when it was told

// True once every thread that can run polls in vain. Poll loops ask this on the stand-in and the clock on a GPU.
inline bool stuck() { return launch->stuck; }

inline bool all_ready_have_polled(uint32_t& ready_count) {
  bool all = true;
  ready_count = 0;
  for (const Block& block : launch->blocks) {
    all = all && block.copies.empty();
    for (const Warp& warp : block.warps) {
      for (uint32_t lanes = warp.ready; lanes != 0; lanes &= lanes - 1) {
        ++ready_count;
        all = all && warp.lanes[__builtin_ctz(lanes)].polled_round == launch->round;
      }
    }
  }
  return all;
}

// Also when nobody can run who is awake.
[[gnu::noinline]] inline void end_round() {
  Launch& l = *launch;
  uint32_t ready_count = 0;
  const bool quiet = all_ready_have_polled(ready_count) && !l.progress;
  l.quiet_rounds = quiet ? l.quiet_rounds + 1 : 0;
  l.progress = false;
  ++l.round;
  if (l.quiet_rounds >= kQuietRounds) l.stuck = true;
  if (l.quiet_rounds >= kMaxQuietRounds) leave(Outcome::deadlock);
  if (quiet || l.ready.empty()) {
    ready_count += l.asleep;
    wake_all();
  }
  l.polls = 0;
  l.polls_per_round = 64 + 16 * ready_count;
}

// The running fiber looked at memory that another one may change, and will look again.
inline void note_poll() {
  current->polled_round = launch->round;
  if (++launch->polls >= launch->polls_per_round) end_round();
}

}  // namespace cuda_on_cpu
