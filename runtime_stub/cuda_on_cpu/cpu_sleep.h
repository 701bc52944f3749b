// Stand-in, part 4: fibers that poll memory, and deadlocks.
//
// A fiber that polls memory spins until it has seen the same twice, and then sleeps until one of the words that it looked at changes. If
// all fibers that can run have only polled, for several rounds in a row, that is a deadlock (end_round).
#pragma once

#include "cpu_engine.h"

namespace cuda_on_cpu {

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
