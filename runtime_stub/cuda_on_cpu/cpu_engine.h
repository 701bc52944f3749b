// Stand-in, part 3: the order in which fibers run.
//
// A vEU is a Block, a CUDA thread a Fiber. A fiber runs until it must wait; then it jumps straight to the next fiber, so a
// switch costs some 10 ns and waiting costs nothing. As long as a fiber of the same warp is ready, the next fiber is mostly one of that
// warp (whose stacks are in the cache); else a warp of any vEU is drawn at random.
#pragma once

#include <cstdarg>
#include <cstdint>
#include <cstdio>
#include <cstring>

#include "cpu_state.h"
#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif

namespace cuda_on_cpu {

// --- chance ----------------------------------------------------------------------------------------------------------

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

}  // namespace cuda_on_cpu
