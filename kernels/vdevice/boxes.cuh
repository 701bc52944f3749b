// Boxes of input values: pixels x 32 channels (64 of 16 bits) of a channels-last tensor, copied to shared memory by the GPU's copy engine
// (cp.async.bulk.tensor, sm_90 and later), with zeros where the box leaves the tensor. That is a convolution's input with
// its halo and its padding, read once for all taps, and no thread computes an address.
//
// A pixel is a row of 128 bytes; its eight 16-byte cells are permuted: cell c of row r lies at (c ^ r % 8), so that eight
// neighbouring rows can be read at the same cell without bank conflicts. Boxes are 1024-byte aligned.
//
// Memory order: the values were stored by other vEUs through the generic proxy and are read through the async proxy. The
// waiter has polled the event with acquire; proxy_fence() between that and the copies orders the two proxies.
#pragma once

#include "kernels/vdevice/sync.cuh"

namespace rk {

#if defined(TAMP_CUDA_ON_CPU)
using TensorMap = cuda_on_cpu::TensorMap;
#else
struct alignas(64) TensorMap {  // CUtensorMap
  uint64_t words[16];
};
#endif

// Division by a number fixed at compile time of the model: q = (x * multiplier) >> 32 >> shift, exact for x < 2^31.
struct Divisor {
  uint32_t divisor;
  uint32_t multiplier;  // 0: the divisor is 1
  uint32_t shift;
};
RK_INLINE uint32_t divide(uint32_t x, const Divisor& d) {
#if defined(__CUDA_ARCH__)
  return d.multiplier == 0 ? x : __umulhi(x, d.multiplier) >> d.shift;
#else
  return d.multiplier == 0 ? x : static_cast<uint32_t>((static_cast<uint64_t>(x) * d.multiplier) >> 32) >> d.shift;
#endif
}
RK_INLINE uint32_t divide(uint32_t x, const Divisor& d, uint32_t& remainder) {
  const uint32_t q = divide(x, d);
  remainder = x - q * d.divisor;
  return q;
}

// InputBoxes of compiler/ir/rkernel.h.
struct InputCopy {
  uint32_t boxes;  // 0: the phase has none
  uint32_t boxes_per_split, boxes_per_chunk, boxes_per_copy;
  uint32_t box_bytes, copied_bytes;
  uint32_t channels_log2;  // of a box
  uint32_t map;            // row of Launch::maps
  int32_t group_channels;
  int32_t begin_w, begin_h, step_w, step_h;
  Divisor tiles, tiles_w, tiles_h, splits, n_blocks;
};

// The first box of a rTask, and how many follow each other along the channels.
struct BoxPlace {
  int32_t channel, w, h, image;
  uint32_t boxes;
};
RK_INLINE BoxPlace first_box(const InputCopy& input, uint32_t index) {
  uint32_t tile, split, n_block, w, h;
  const uint32_t block = divide(index, input.tiles, tile);
  const uint32_t group = divide(divide(block, input.splits, split), input.n_blocks, n_block);
  const uint32_t image = divide(divide(tile, input.tiles_w, w), input.tiles_h, h);
  const uint32_t before = split * input.boxes_per_split;
  const uint32_t left = input.boxes - before;
  return {static_cast<int32_t>(group) * input.group_channels + static_cast<int32_t>(before << input.channels_log2),
          input.begin_w + static_cast<int32_t>(w) * input.step_w, input.begin_h + static_cast<int32_t>(h) * input.step_h,
          static_cast<int32_t>(image), left < input.boxes_per_split ? left : input.boxes_per_split};
}

RK_INLINE void prefetch_map(const TensorMap* map) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  if (lane_id() == 0) asm volatile("prefetch.tensormap [%0];" ::"l"(map) : "memory");
#else
  (void)map;
#endif
}

// Between a Wait and the first copy of what was waited for.
RK_INLINE void proxy_fence() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("fence.proxy.async.global;" ::: "memory");
#endif
}

// Between what a body did to shared memory and the copies of boxes to the same bytes.
RK_INLINE void proxy_fence_shared() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
#endif
}

// Copies `count` boxes that follow each other along the channels, from `place` plus `channels` on, and arrives on `full` (made with
// count 1) when all are there. With boxes_per_copy that is one copy, else one for each. One lane calls both, in this order; what
// is waited for may come between them.
RK_INLINE void expect_boxes(const InputCopy& input, uint32_t count, Barrier& full) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  const uint32_t bytes = (input.boxes_per_copy > 1 ? input.boxes_per_copy : count) * input.copied_bytes;
  asm volatile("{\n\t.reg .b64 state;\n\tmbarrier.arrive.expect_tx.shared.b64 state, [%0], %1;\n\t}" ::"r"(smem_address(&full)), "r"(bytes)
               : "memory");
#else
  (void)input, (void)count, (void)full;
#endif
}
RK_INLINE void copy_boxes(char* smem, const TensorMap* map, const InputCopy& input, const BoxPlace& place, int32_t channels, uint32_t count,
                          Barrier& full) {
#if defined(TAMP_CUDA_ON_CPU)
  cuda_on_cpu::copy_boxes(smem, *map, place.channel + channels, place.w, place.h, place.image, count, input.box_bytes, input.copied_bytes,
                          full);
#elif defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  const uint32_t barrier = smem_address(&full);
  uint32_t to = smem_address(smem);
  int32_t channel = place.channel + channels, block = 0;
  if (input.boxes_per_copy > 1) {
    block = channel >> input.channels_log2;
    channel = 0;
    count = 1;
  }
#pragma unroll 1
  for (uint32_t box = 0; box < count; ++box, to += input.box_bytes, channel += 1 << input.channels_log2) {
    asm volatile(
        "cp.async.bulk.tensor.5d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3, %4, %5, %6}], [%7];" ::"r"(
            to),
        "l"(map), "r"(channel), "r"(place.w), "r"(place.h), "r"(place.image), "r"(block), "r"(barrier)
        : "memory");
  }
#else
  (void)smem, (void)map, (void)input, (void)place, (void)channels, (void)count, (void)full;
#if defined(__CUDA_ARCH__)
  __trap();  // the vDevice has no input stages; the compiler never makes boxes for it
#endif
#endif
}

}  // namespace rk
