// Stand-in, part 4: fibers that poll memory, and deadlocks.
//
// A loop of polls calls stuck() at the end of each pass. A pass is in vain if all words that it looked at are still as it saw them. After
// two of these a fiber sleeps until one of the words changes: two, because a loop may decide by what the pass before saw. Within a pass it
// never sleeps, however often it looks at the same word: what it has not looked at yet may be there. If all fibers that can run have made
// nothing but passes in vain, for several rounds in a row, that is a deadlock (end_round).
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
  current->passes = current->looks = 0;
}

// Whether all that the running fiber has seen is still so.
inline bool would_see_the_same() {
  for (const Seen& seen : current->seen) {
    if (value_at(seen.word, seen.bytes) != seen.value) return false;
  }
  return true;
}

inline void note_seen(const void* word, uint32_t bytes, uint64_t value) {
  Fiber& self = *current;
  ++self.looks;
  for (Seen& seen : self.seen) {
    if (seen.word != word) continue;
    if (seen.value != value) self.passes = 0;
    seen.value = value;
    return;
  }
  self.seen.push_back({word, value, bytes});
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

// The running fiber looked in vain at memory that another one may change, and will look again.
inline void note_poll() {
  current->polled_round = launch->round;
  if (++launch->polls >= launch->polls_per_round) end_round();
}

// Called at the end of each pass of a loop of polls. True once every thread that can run polls in vain. A GPU's loops ask the clock.
inline bool stuck() {
  if (launch->stuck || current->seen.empty()) return launch->stuck;
  if (!would_see_the_same()) {
    forget_seen();
    return false;
  }
  note_poll();
  if (launch->stuck) return true;
  if (++current->passes < 2)
    yield();
  else
    sleep();
  return launch->stuck;
}

// Before a look. A loop that never calls stuck() sleeps as well, after more looks than two passes have.
inline void begin_look() {
  const size_t many_looks = 1024 + 16 * current->seen.size();
  if (launch->stuck) {
    note_poll();
    yield();
  } else if (current->looks < many_looks) {
    if (one_in(4)) yield();
  } else if (would_see_the_same()) {
    note_poll();
    sleep();
  } else {
    forget_seen();
  }
}

}  // namespace cuda_on_cpu
