// Stand-in, part 7: one launch: its memory, its fibers, how it ends, and the report when it ends badly.
#pragma once

#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "cpu_device.h"

namespace cuda_on_cpu {

constexpr size_t kPageBytes = 4096;  // guards; a system with larger pages rounds up
#if defined(__SANITIZE_ADDRESS__)
constexpr size_t kStackBytes = 256 * 1024;  // red zones
#else
constexpr size_t kStackBytes = 64 * 1024;
#endif

constexpr size_t round_up(size_t bytes, size_t to) { return (bytes + to - 1) / to * to; }

// Memory that ends at a page nobody may touch. It is filled with ones; the bytes around the user's part must stay ones.
struct Guarded {
  char* mapped = nullptr;
  size_t mapped_bytes = 0;
  char* begin = nullptr;
  size_t bytes = 0;
};

inline size_t page_bytes() { return std::max(kPageBytes, static_cast<size_t>(sysconf(_SC_PAGESIZE))); }

// begin is null where there is no memory.
inline Guarded map_guarded(size_t bytes, size_t alignment) {
  const size_t page = page_bytes();
  if (bytes / page >= static_cast<size_t>(sysconf(_SC_PHYS_PAGES))) return {};
  const size_t data = round_up(round_up(bytes, alignment), page);
  void* const mapped = mmap(nullptr, data + 2 * page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (mapped == MAP_FAILED) return {};
  char* const first = static_cast<char*>(mapped) + page;
  if (mprotect(first, data, PROT_READ | PROT_WRITE) != 0) {
    munmap(mapped, data + 2 * page);
    return {};
  }
  std::memset(first, 0xff, data);
  return {static_cast<char*>(mapped), data + 2 * page, first + data - round_up(bytes, alignment), bytes};
}

// False if the fringes were written to.
inline bool unmap_guarded(const Guarded& block) {
  const size_t page = page_bytes();
  const char* const first = block.mapped + page;
  const char* const last = block.mapped + block.mapped_bytes - page;
  const auto untouched = [](char c) { return c == '\xff'; };
  const bool clean = std::all_of(first, static_cast<const char*>(block.begin), untouched) &&
                     std::all_of(static_cast<const char*>(block.begin) + block.bytes, last, untouched);
  munmap(block.mapped, block.mapped_bytes);
  return clean;
}

// --- stacks ------------------------------------------------------------------------------------------------------------

// Kept from launch to launch; pages that a thread never touched cost nothing. The stacks of a warp lie side by side, with a page below
// them that nobody may touch. (Such a page below each stack would be more mappings than a process may have.) Between two stacks lies a
// mark, at the upper end of the lower one, where memory is in use anyway.
struct Stacks {
  static constexpr uint64_t kMark = 0x7c0ffee5ca1ab1e5;
  std::vector<char*> warps;

  // False where there is no memory.
  bool provide(size_t count) {
    while (warps.size() < count) {
      const size_t bytes = page_bytes() + kWarpSize * kStackBytes;
      void* const mapped = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
      if (mapped == MAP_FAILED) return false;
      if (mprotect(mapped, page_bytes(), PROT_NONE) != 0) return false;
      warps.push_back(static_cast<char*>(mapped) + page_bytes());
      for (uint32_t lane = 0; lane < kWarpSize; ++lane) mark_above(warps.size() - 1, lane) = kMark;
    }
    return true;
  }
  char* bottom(size_t warp, uint32_t lane) const { return warps[warp] + lane * kStackBytes; }
  uint64_t& mark_above(size_t warp, uint32_t lane) const {
    return *reinterpret_cast<uint64_t*>(bottom(warp, lane) + kStackBytes - sizeof kMark);
  }
  // False if a thread's stack grew into the one below it.
  bool whole(size_t warp_count) const {
    for (size_t warp = 0; warp < warp_count; ++warp) {
      for (uint32_t lane = 0; lane < kWarpSize; ++lane) {
        if (mark_above(warp, lane) != kMark) return false;
      }
    }
    return true;
  }
};

// Not std::mutex: every compilation of a model reads these headers, and <mutex> alone would be a tenth of that.
class Mutex {
 public:
  void lock() { pthread_mutex_lock(&mutex_); }
  void unlock() { pthread_mutex_unlock(&mutex_); }

 private:
  pthread_mutex_t mutex_ = PTHREAD_MUTEX_INITIALIZER;
};

class Lock {
 public:
  explicit Lock(Mutex& mutex) : mutex_(mutex) { mutex_.lock(); }
  ~Lock() { mutex_.unlock(); }
  Lock(const Lock&) = delete;
  Lock& operator=(const Lock&) = delete;

 private:
  Mutex& mutex_;
};

// What outlives a launch.
struct Process {
  Mutex one_launch;
  Stacks stacks;
};
inline Process& process() {
  static Process* const instance = new Process;  // never destroyed: fibers may have been abandoned on the stacks
  return *instance;
}

// --- seed --------------------------------------------------------------------------------------------------------------

// From here on, the order in which fibers run in this process depends on the seed alone.
inline void set_seed(uint64_t seed) {
  uint64_t z = seed * 0x9e3779b97f4a7c15u + 0x632be59bd9b4e019u;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  random_state = (z ^ (z >> 27)) | 1u;
}

inline void seed_from_environment() {
  const char* const text = std::getenv("TAMP_SEED");
  set_seed(text == nullptr ? 1 : std::strtoull(text, nullptr, 10));
}

// --- report of a deadlock ----------------------------------------------------------------------------------------------

inline const char* name_of(Parked parked) {
  constexpr const char* kNames[] = {"polling", "barrier", "bar.sync", "collective", "ended", "polling"};
  return kNames[static_cast<int>(parked)];
}

inline std::string describe(const Block& block, const Fiber& fiber) {
  char text[160];
  if (fiber.parked == Parked::barrier) {
    const Barrier& barrier = *static_cast<const Barrier*>(fiber.object);
    std::snprintf(text, sizeof text, "the barrier at byte %ld of shared memory, phase %u, %u of %u arrivals missing",
                  shared_offset(block, &barrier), unsigned{barrier.phase}, unsigned{barrier.pending}, unsigned{barrier.count});
  } else if (fiber.parked == Parked::named_barrier) {
    const NamedBarrier& barrier = *static_cast<const NamedBarrier*>(fiber.object);
    std::snprintf(text, sizeof text, "bar.sync %ld, %u of %u threads missing", static_cast<long>(&barrier - block.named),
                  barrier.expected - barrier.arrived, barrier.expected);
  } else if (fiber.parked == Parked::collective) {
    const Meeting& meeting = *static_cast<const Meeting*>(fiber.object);
    std::snprintf(text, sizeof text, "%s, lanes %08x missing", meeting.function, meeting.mask & ~meeting.arrived);
  } else {
    std::snprintf(text, sizeof text, "%s", name_of(fiber.parked));
  }
  return text;
}

// One line for the lanes of a warp that wait for the same thing.
inline void report_warp(const Block& block, const Warp& warp, uint32_t lanes_of_warp) {
  std::map<std::pair<Parked, const void*>, uint32_t> groups;
  for (uint32_t lane = 0; lane < lanes_of_warp; ++lane) {
    const Fiber& fiber = warp.lanes[lane];
    groups[{fiber.parked, fiber.parked == Parked::no ? nullptr : fiber.object}] |= 1u << lane;
  }
  for (const auto& [key, lanes] : groups) {
    if (key.first == Parked::ended) continue;
    const Fiber& fiber = warp.lanes[__builtin_ctz(lanes)];
    std::fprintf(stderr, "cuda_on_cpu:   vEU %u, warp %u, lanes %08x: %s\n", block.block_idx.x, warp.index, lanes,
                 describe(block, fiber).c_str());
  }
}

inline void report_deadlock() {
  std::fprintf(stderr, "cuda_on_cpu: deadlock: no thread can go on\n");
  for (const Block& block : launch->blocks) {
    for (const Warp& warp : block.warps) report_warp(block, warp, std::min(kWarpSize, block.threads - warp.index * kWarpSize));
  }
}

// --- running -----------------------------------------------------------------------------------------------------------

inline void run_fiber(boost::context::detail::transfer_t from) {
  Fiber& came_from = *static_cast<Fiber*>(from.data);
  came_from.context = from.fctx;
#if defined(__SANITIZE_ADDRESS__)
  const void* stack = nullptr;
  size_t stack_bytes = 0;
  __sanitizer_finish_switch_fiber(nullptr, &stack, &stack_bytes);
  if (&came_from == &launch->host) {
    came_from.stack = stack;
    came_from.stack_bytes = stack_bytes;
  }
#endif
  launch->call(launch->arguments);
  --launch->live;
  launch->progress = true;
  park(Parked::ended, nullptr);
  __builtin_unreachable();
}

inline void make_fiber(Block& block, uint32_t thread, char* stack) {
  Fiber& fiber = block.fibers[thread];
  const dim3& dim = launch->block_dim;
  fiber.thread_idx = {thread % dim.x, thread / dim.x % dim.y, thread / dim.x / dim.y};
  fiber.block_idx = block.block_idx;
  fiber.rtask = {kNowhere, 0};
  fiber.lane = thread % kWarpSize;
  fiber.warp = &block.warps[thread / kWarpSize];
  fiber.block = &block;
#if defined(__SANITIZE_ADDRESS__)
  ASAN_UNPOISON_MEMORY_REGION(stack, kStackBytes);
  fiber.stack = stack;
  fiber.stack_bytes = kStackBytes;
#endif
  // Stacks a power of two apart would share the same few cache lines: each starts a little lower than the one before.
  const size_t usable = kStackBytes - 128 - thread % 32 * 128;
  fiber.context = boost::context::detail::make_fcontext(stack + usable, usable, run_fiber);
  make_ready(*fiber.warp, 1u << fiber.lane);
}

inline void make_block(uint32_t resident, uint32_t number, uint32_t threads, char* shared) {
  Block& block = launch->blocks[resident];
  const dim3& dim = launch->grid_dim;
  block.ready_at = kNowhere;
  block.block_idx = {number % dim.x, number / dim.x % dim.y, number / dim.x / dim.y};
  block.shared = shared;
  block.threads = threads;
  block.warps.resize((threads + kWarpSize - 1) / kWarpSize);
  block.fibers.resize(threads);
  for (uint32_t w = 0; w < block.warps.size(); ++w) {
    Warp& warp = block.warps[w];
    warp.index = w;
    warp.block = &block;
    warp.lanes = &block.fibers[w * kWarpSize];
    warp.meetings[0].mask = 0xffffffffu;
  }
  const size_t first_warp = resident * block.warps.size();
  for (uint32_t t = 0; t < threads; ++t) make_fiber(block, t, process().stacks.bottom(first_warp + t / kWarpSize, t % kWarpSize));
}

// Runs vEUs [first, first + count) to their end, all of them at once.
inline Outcome run_resident(uint32_t first, uint32_t count, uint32_t threads) {
  const size_t warps = size_t{count} * ((threads + kWarpSize - 1) / kWarpSize);
  if (!process().stacks.provide(warps)) return Outcome::failed;
  std::vector<Guarded> shared(count);
  launch->ready.clear();
  launch->live = count * threads;
  launch->asleep = 0;
  for (std::vector<Sleeper>& list : launch->sleepers) list.clear();
  launch->blocks.clear();
  launch->blocks.resize(count);
  for (uint32_t b = 0; b < count; ++b) {
    shared[b] = map_guarded(launch->shared_bytes, 1024);
    if (shared[b].begin == nullptr) return Outcome::failed;
    std::memset(shared[b].begin, 0xff, launch->shared_bytes);  // NaN in every type: whatever is there on a GPU, nothing may count on it
    make_block(b, first + b, threads, shared[b].begin);
  }
  current = &launch->host;
  switch_to(draw_anywhere());
  if (launch->outcome == Outcome::deadlock) report_deadlock();
  current = nullptr;
  bool clean = process().stacks.whole(warps);
  if (!clean) std::fprintf(stderr, "cuda_on_cpu: a thread needs more than %zu bytes of stack\n", kStackBytes);
  for (uint32_t b = 0; b < count; ++b) {
    if (unmap_guarded(shared[b])) continue;
    std::fprintf(stderr, "cuda_on_cpu: vEU %u wrote outside its %u bytes of shared memory\n", first + b, launch->shared_bytes);
    clean = false;
  }
  return clean ? launch->outcome : Outcome::failed;
}

constexpr uint32_t kGroup = 64;  // vEUs of a launch that is not cooperative

// A cooperative grid is resident as a whole; another one runs in groups.
inline bool run_grid(dim3 grid, dim3 block, size_t shared_bytes, bool cooperative, void (*call)(const void*), const void* arguments) {
  const Lock lock(process().one_launch);
  if (random_state == 0) seed_from_environment();
  Launch state{};
  state.grid_dim = grid;
  state.block_dim = block;
  state.shared_bytes = static_cast<uint32_t>(shared_bytes);
  state.call = call;
  state.arguments = arguments;
  state.polls_per_round = 64;
  launch = &state;
  if (watcher != nullptr) watcher->launch(cooperative);
  const uint32_t veus = grid.x * grid.y * grid.z;
  const uint32_t threads = block.x * block.y * block.z;
  Outcome outcome = Outcome::done;
  const uint32_t group = cooperative ? veus : std::min(kGroup, veus);
  for (uint32_t first = 0; first < veus && outcome == Outcome::done; first += group)
    outcome = run_resident(first, std::min(group, veus - first), threads);
  launch = nullptr;
  return outcome == Outcome::done;
}

}  // namespace cuda_on_cpu
