// Stand-in, part 5: what the GPU has for one vEU's threads and between vEUs: barriers, asynchronous copies, events,
// atomics. Checks are those that cost next to nothing; each names what a GPU would fault on or silently get wrong.
#pragma once

#include <cstdint>
#include <cstring>
#include <type_traits>
#include <utility>

#include "cpu_sleep.h"

namespace cuda_on_cpu {

// --- shared memory ---------------------------------------------------------------------------------------------------

// The dynamic shared memory of the running vEU, 1024-byte aligned, all ones (a NaN) at the start.
inline void* shared_memory() { return current->block->shared; }

inline bool in_shared(const void* p, size_t bytes) {
  const size_t offset = static_cast<size_t>(static_cast<const char*>(p) - current->block->shared);
  return offset <= launch->shared_bytes && bytes <= launch->shared_bytes - offset;
}
inline bool aligned(const void* p, size_t bytes) { return reinterpret_cast<uintptr_t>(p) % bytes == 0; }

// --- barriers --------------------------------------------------------------------------------------------------------

inline void init(Barrier& barrier, uint32_t count) {
  if (!in_shared(&barrier, sizeof barrier)) fail("barrier outside shared memory");
  if (count == 0 || count > 0xffff) fail("barrier for %u arrivals", count);
  barrier = Barrier{static_cast<uint16_t>(count), static_cast<uint16_t>(count), 0, 0};
}

inline void arrive(Barrier& barrier) {
  forget_seen();
  arrive_in(*current->block, barrier);
}

// True when the phase of this parity has completed. An answer of false counts as a poll.
inline bool passed(Barrier& barrier, uint32_t parity) {
  check(*current->block, barrier);
  if ((barrier.phase & 1u) != parity) return true;
  note_poll();
  yield();
  return (barrier.phase & 1u) != parity;
}

inline void wait(Barrier& barrier, uint32_t parity) {
  Fiber& self = *current;
  forget_seen();
  check(*self.block, barrier);
  if ((barrier.phase & 1u) != parity) return;
  const uint16_t phase = barrier.phase;
  self.next_waiter = barrier.first_waiter;
  barrier.first_waiter = static_cast<uint16_t>(&self - self.block->fibers.data() + 1);
  park(Parked::barrier, &barrier);
  if (static_cast<uint16_t>(barrier.phase - phase) != 1) {
    fail("slept through a phase of the barrier at byte %ld of shared memory: it completed twice during one wait",
         shared_offset(*self.block, &barrier));
  }
}

// --- polls ---------------------------------------------------------------------------------------------------------

// Others may run first. The loop that this look belongs to calls stuck() when it has looked at all that it waits for.
template <class Word>
Word look(const Word* word) {
  begin_look();
  const Word value = *static_cast<const volatile Word*>(word);
  note_seen(word, sizeof value, value);
  return value;
}

// --- clusters --------------------------------------------------------------------------------------------------------

// A block of the running vEU's cluster of `size` vEUs, which follow each other.
inline Block& member_of_cluster(uint32_t member, uint32_t size) {
  const size_t own = static_cast<size_t>(current->block - launch->blocks.data()), first = own / size * size;
  if (member >= size || first + size > launch->blocks.size()) fail("no vEU %u in a cluster of %u", member, size);
  return launch->blocks[first + member];
}

// barrier.cluster of all threads, once in a launch.
inline void cluster_barrier(uint32_t size) {
  launch->progress = true;
  if (++current->block->in_cluster_barrier == current->block->threads) changed(&current->block->in_cluster_barrier);
  for (uint32_t member = 0; member < size; ++member) {
    const Block& block = member_of_cluster(member, size);
    while (look(&block.in_cluster_barrier) < block.threads) stuck();
  }
}

// `own`: in this vEU's shared memory; the barrier at the same place of another member gets the arrival.
inline void arrive_at_member(Barrier& own, uint32_t member, uint32_t size) {
  if (!in_shared(&own, sizeof own)) fail("barrier outside shared memory");
  Block& block = member_of_cluster(member, size);
  arrive_in(block, *reinterpret_cast<Barrier*>(block.shared + shared_offset(*current->block, &own)));
}

inline void store_at_member(void* own, const void* value, size_t bytes, uint32_t member, uint32_t size) {
  if (!in_shared(own, bytes) || !aligned(own, bytes))
    fail("store of %zu bytes at another vEU, outside shared memory or not aligned", bytes);
  std::memcpy(member_of_cluster(member, size).shared + shared_offset(*current->block, own), value, bytes);
}

// --- inside a vEU ----------------------------------------------------------------------------------------------------

// bar.sync id, threads.
inline void named_barrier(uint32_t id, uint32_t threads) {
  Block& block = *current->block;
  const bool whole_warps = threads % kWarpSize == 0 || threads == block.threads;
  if (id >= kNamedBarriers || threads == 0 || threads > block.threads || !whole_warps) fail("bar.sync %u, %u", id, threads);
  forget_seen();
  NamedBarrier& barrier = block.named[id];
  if (barrier.arrived == 0) barrier.expected = threads;
  if (barrier.expected != threads) fail("bar.sync %u with %u threads, others came with %u", id, threads, barrier.expected);
  barrier.waiting[current->warp->index] |= 1u << current->lane;
  if (++barrier.arrived < threads) return park(Parked::named_barrier, &barrier);
  barrier.arrived = 0;
  launch->progress = true;
  for (Warp& warp : block.warps) {
    const uint32_t lanes = std::exchange(barrier.waiting[warp.index], 0u);
    if (lanes != 0) make_ready(warp, lanes);
  }
  maybe_yield();
}

// --- asynchronous copies -----------------------------------------------------------------------------------------------

// The destination's old bytes are lost at once, and the data arrive only at the wait: the earliest and the latest time at which a GPU may
// write. So a missing wait or barrier, before or after the copy, gives wrong results.
inline void cp_async(void* smem, const void* gmem, uint32_t bytes, bool valid) {
  if (!in_shared(smem, bytes)) fail("cp.async of %u bytes to byte %ld, outside shared memory", bytes, shared_offset(*current->block, smem));
  if (!aligned(smem, bytes) || (valid && !aligned(gmem, bytes))) fail("cp.async of %u bytes from %p to %p: not aligned", bytes, gmem, smem);
  std::memset(smem, 0xff, bytes);
  current->copies.push_back({smem, gmem, bytes, valid, current->groups});
}

inline void cp_async_commit() { ++current->groups; }

inline void cp_async_wait(uint32_t pending) {
  Fiber& self = *current;
  const int64_t done_below = static_cast<int64_t>(self.groups) - pending;
  for (; self.first_copy < self.copies.size(); ++self.first_copy) {
    const AsyncCopy& copy = self.copies[self.first_copy];
    if (copy.group >= done_below) return;
    if (copy.valid && watcher != nullptr) watcher->access(self.rtask, copy.from, copy.bytes, /*is_write=*/false);
    if (copy.valid)
      std::memcpy(copy.to, copy.from, copy.bytes);
    else
      std::memset(copy.to, 0, copy.bytes);
  }
  self.copies.clear();
  self.first_copy = 0;
}

// Called by one lane; `full` expects one arrival.
inline void copy_weights(void* smem, const void* gmem, uint32_t bytes, Barrier& full) {
  Block& block = *current->block;
  if (!in_shared(smem, bytes)) fail("copy of %u bytes of weights to byte %ld, outside shared memory", bytes, shared_offset(block, smem));
  if (bytes % 16 != 0 || !aligned(smem, 16) || !aligned(gmem, 16))
    fail("copy of %u bytes of weights from %p to %p: not aligned", bytes, gmem, smem);
  check(block, full);
  std::memset(smem, 0xff, bytes);
  block.copies.push_back({static_cast<char*>(smem), gmem, bytes, &full, current->rtask});
}

// Called by one lane; `full` expects one arrival.
inline void copy_boxes(char* smem, const TensorMap& map, int32_t channel, int32_t w, int32_t h, int32_t image, uint32_t count,
                       uint32_t box_bytes, uint32_t copied_bytes, Barrier& full) {
  Block& block = *current->block;
  if (map.boxes > 1) count = static_cast<uint32_t>(map.boxes);  // one copy is always as long
  const int64_t channels = 128 / map.strides[0];
  if (map.boxes > 1 && (channel % channels != 0 || map.extents[0] % channels != 0))
    fail("boxes of channel %d of %ld in one copy", channel, static_cast<long>(map.extents[0]));
  if (count == 0 || !in_shared(smem, count * static_cast<size_t>(box_bytes)))
    fail("copy of %u boxes of %u bytes to byte %ld, outside shared memory", count, box_bytes, shared_offset(block, smem));
  if (shared_offset(block, smem) % 1024 != 0 || (map.boxes <= 1 && box_bytes % 1024 != 0))
    fail("boxes at byte %ld of shared memory: not 1024-byte aligned", shared_offset(block, smem));
  if (copied_bytes != static_cast<uint32_t>(map.box_w * map.box_h) * 128u || copied_bytes > box_bytes)
    fail("boxes of %d x %d pixels with %u bytes", map.box_w, map.box_h, copied_bytes);
  check(block, full);
  std::memset(smem, 0xff, count * static_cast<size_t>(box_bytes));
  block.copies.push_back({smem, nullptr, 0, &full, current->rtask, &map, {channel, w, h, image}, count, box_bytes});
}

// --- between vEUs ------------------------------------------------------------------------------------------------------

inline uint32_t poll(const uint32_t* event) { return look(event); }

inline uint64_t poll(const uint64_t* word) {
  const uint64_t value = look(word);
  if (watcher != nullptr) watcher->access(current->rtask, word, sizeof *word, /*is_write=*/false);
  return value;
}

inline uint32_t poll_word(const uint32_t* word) {
  if (watcher != nullptr) watcher->access(current->rtask, word, sizeof *word, /*is_write=*/false);
  return poll(word);
}

template <class Word>  // of 4 or 8 bytes
void publish(Word* word, Word value) {
  if (watcher != nullptr) watcher->access(current->rtask, word, sizeof *word, /*is_write=*/true);
  forget_seen();
  *word = value;
  changed(word);
}

inline void signal(uint32_t* event) {
  forget_seen();
  ++*event;
  changed(event);
  yield();
}

// Applies `change` to a word as one step. A compare-and-swap that fails is a poll.
template <class T, class Change>
inline T atomic(T* word, Change change) {
  yield();
  const T before = *static_cast<volatile T*>(word);
  const T after = change(before);
  *static_cast<volatile T*>(word) = after;
  if (std::memcmp(&before, &after, sizeof before) != 0)
    changed(word);
  else
    note_poll();
  return before;
}

}  // namespace cuda_on_cpu

template <class T>
inline T atomicAdd(T* word, std::type_identity_t<T> v) {
  return cuda_on_cpu::atomic(word, [v](T old) { return static_cast<T>(old + v); });
}
template <class T>
inline T atomicSub(T* word, std::type_identity_t<T> v) {
  return cuda_on_cpu::atomic(word, [v](T old) { return static_cast<T>(old - v); });
}
template <class T>
inline T atomicExch(T* word, std::type_identity_t<T> v) {
  return cuda_on_cpu::atomic(word, [v](T) { return v; });
}
template <class T>
inline T atomicMax(T* word, std::type_identity_t<T> v) {
  return cuda_on_cpu::atomic(word, [v](T old) { return old < v ? v : old; });
}
template <class T>
inline T atomicMin(T* word, std::type_identity_t<T> v) {
  return cuda_on_cpu::atomic(word, [v](T old) { return v < old ? v : old; });
}
template <class T>
inline T atomicOr(T* word, std::type_identity_t<T> v) {
  return cuda_on_cpu::atomic(word, [v](T old) { return static_cast<T>(old | v); });
}
template <class T>
inline T atomicCAS(T* word, std::type_identity_t<T> expected, std::type_identity_t<T> desired) {
  return cuda_on_cpu::atomic(word, [=](T old) { return old == expected ? desired : old; });
}

// One OS thread runs all CUDA threads, so every store is visible at once.
inline void __threadfence() {}
inline void __threadfence_block() {}
inline void __threadfence_system() {}

inline void __syncthreads() { cuda_on_cpu::named_barrier(0, cuda_on_cpu::current->block->threads); }
inline void __nanosleep(unsigned) {
  cuda_on_cpu::note_poll();
  cuda_on_cpu::yield();
}
[[noreturn]] inline void __trap() { cuda_on_cpu::fail("__trap()"); }
