// Boxes of input values: pixels x 32 channels (64 of 16 bits) of a channels-last tensor, copied to shared memory by the GPU's copy engine
// (cp.async.bulk.tensor, sm_90 and later), with zeros where the box leaves the tensor. A box holds a convolution's input with
// halo and padding. The input is read once for all taps of the filter, and no thread computes an address.
//
// A pixel is a row of 128 bytes. The eight 16-byte cells of a row are permuted: cell c of row r lies in place c ^ (r % 8) of the row, so
// that eight neighbouring rows can be read at the same cell without bank conflicts. Boxes are 1024-byte aligned.
// Example: cell 2 of row 5 lies in place 2 ^ 5 = 7, which is byte 5 * 128 + 7 * 16 = 752 of the box. Cell 2 of rows 0 to 7 lies in
// places 2, 3, 0, 1, 6, 7, 4, 5: eight different ones.
//
// Memory order: other vEUs stored the values through the generic proxy; the copy engine reads them through the async proxy. The
// waiter polls the event with acquire, and then calls proxy_fence(), which orders the two proxies, before it starts the copies.
#pragma once

#include "kernels/vdevice/control.cuh"

namespace rk {

// The first box of a rTask, and how many boxes follow each other along the channels. rTasks are numbered, outermost first, by group,
// block of output channels, split, image, row of tiles, column of tiles; `tiles` counts those of all images.
// Example: tiles_w 3, tiles_h 2, two images (tiles 12), splits 2, n_blocks 1. rTask 43 is tile 43 % 12 = 7 of block 43 / 12 = 3. Block 3
// is split 1 of group 1. Tile 7 is column 7 % 3 = 1, row 2 % 2 = 0, image 1.
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

// The waiter calls this after a rTask's Waits have passed and before the first copy of the rTask's inputs.
RK_INLINE void proxy_fence() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("fence.proxy.async.global;" ::: "memory");
#endif
}

// A rTask's copies, a chunk of boxes to each input stage in turn. One lane calls them. All that a copy wants is known before its stage is
// free, and before the inputs are there: claim() waits until the stage is free and says how many bytes will come, copy() starts the copies
// after the Waits, next() goes on to the next chunk. When all boxes of a chunk are there, its `full`, a barrier of count 1, completes its
// phase. If boxes_per_copy is more than 1, one copy brings all boxes, else each box is one copy.
// Example: 3 stages of 26624 bytes, 12 boxes of 8192 bytes, 3 in a chunk. The rTask's first chunk is number 7 of the kernel: stage 1, in
// round 2 of the ring, which is free when `empty` has completed its phase of round 1, so parity is 1. Chunks 8, 9 and 10 go to stages 2, 0
// and 1, the last two in round 3.
template <class Veu>
struct BoxCopies {
  const TensorMap* map;
  uint32_t stage, parity;
  uint32_t boxes;           // that are left, with this chunk's
  uint32_t channel, block;  // of the chunk's first box; on the stand-in `block` is not used
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  uint32_t to, full, empty;  // the stage and its two barriers
  uint32_t bytes;            // of the chunk
#else
  char* to;
  Barrier *full, *empty;
#endif

  BoxCopies() = default;
  // `number`: the chunk's, counted from the start of the kernel. `stages`, `full`, `empty`: of stage 0.
  RK_INLINE BoxCopies(const TensorMap* map_, const InputCopy& input, const BoxPlace& place, uint32_t number, char* stages, Barrier* full_,
                      Barrier* empty_)
      : map(map_),
        stage(number % Veu::kInputStages),
        parity((number / Veu::kInputStages & 1u) ^ 1u),
        boxes(place.boxes),
        channel(static_cast<uint32_t>(place.channel)),
        block(0) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    if (input.boxes_per_copy > 1) {  // of the copy engine's tensor, whose last dimension are the boxes of a row of channels
      block = channel >> input.channels_log2;
      channel = 0;
    }
    to = smem_address(stages) + stage * Veu::kInputStageBytes;
    full = smem_address(full_) + stage * sizeof(Barrier);
    empty = smem_address(empty_) + stage * sizeof(Barrier);
    known_now(map);
#else
    to = stages + stage * Veu::kInputStageBytes;
    full = full_ + stage;
    empty = empty_ + stage;
#endif
    settle(input);
  }
  RK_INLINE void claim() const {
#if defined(TAMP_CUDA_ON_CPU)
    wait(*empty, parity);
#elif defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    wait(empty, parity);
    asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], %1;" ::"r"(full), "r"(bytes) : "memory");
#endif
  }
  RK_INLINE void copy(const InputCopy& input, const BoxPlace& place) const {
    const uint32_t count = min(boxes, input.boxes_per_chunk);
#if defined(TAMP_CUDA_ON_CPU)
    cuda_on_cpu::copy_boxes(to, *map, static_cast<int32_t>(channel), place.w, place.h, place.image, count, input.box_bytes,
                            input.copied_bytes, *full);
#elif defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    uint32_t left = input.boxes_per_copy > 1 ? 1 : count, box_to = to, box_channel = channel;
#pragma unroll 1
    do {
      asm volatile(
          "cp.async.bulk.tensor.5d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3, %4, %5, %6}], [%7];" ::"r"(
              box_to),
          "l"(map), "r"(box_channel), "r"(place.w), "r"(place.h), "r"(place.image), "r"(block), "r"(full)
          : "memory");
      box_to += input.box_bytes;
      box_channel += 1u << input.channels_log2;
    } while (--left > 0);
#else
    (void)count, (void)input, (void)place;
#if defined(__CUDA_ARCH__)
    __trap();  // the vDevice has no input stages; the compiler never makes boxes for it
#endif
#endif
  }
  // False: there is no further chunk.
  RK_INLINE bool next(const InputCopy& input) {
    if (boxes <= input.boxes_per_chunk) return false;
    boxes -= input.boxes_per_chunk;
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    if (input.boxes_per_copy > 1)
      block += input.boxes_per_chunk;
    else
#endif
      channel += input.boxes_per_chunk << input.channels_log2;
    move(1);
    if (stage == Veu::kInputStages) {
      move(-Veu::kInputStages);
      parity ^= 1u;
    }
    settle(input);
    return true;
  }

 private:
  // To the stage that lies `by` stages further.
  RK_INLINE void move(int by) {
    stage += by;
    to += by * Veu::kInputStageBytes;
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    full += by * static_cast<int>(sizeof(Barrier));
    empty += by * static_cast<int>(sizeof(Barrier));
#else
    full += by;
    empty += by;
#endif
  }
  // Has all that the chunk's copy wants in registers before the next wait.
  RK_INLINE void settle(const InputCopy& input) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    bytes = (input.boxes_per_copy > 1 ? input.boxes_per_copy : min(boxes, input.boxes_per_chunk)) * input.copied_bytes;
    known_now(to);
    known_now(full);
    known_now(empty);
    known_now(bytes);
    known_now(channel);
    known_now(block);
#else
    (void)input;
#endif
  }
};

// What one lane does for a rTask. begin() is what can be done before the rTask's Waits: it waits for the stage of the first chunk, which is
// number `number`. copy() comes after the Waits, copies all chunks and returns the number of the next rTask's first.
template <class Veu>
struct Boxes<Veu, true> {
  using Place = BoxPlace;
  using Copies = BoxCopies<Veu>;

  RK_INLINE static void prefetch(const TensorMap* map) { prefetch_map(map); }
  RK_INLINE static Place first(const InputCopy& input, uint32_t index) { return first_box(input, index); }
  RK_INLINE static Copies begin(const TensorMap* map, const InputCopy& input, const Place& place, uint32_t number, Control<Veu>& control,
                                char* stages) {
    const Copies copies(map, input, place, number, stages, control.input_full, control.input_empty);
    copies.claim();
    return copies;
  }
  RK_INLINE static uint32_t copy(const InputCopy& input, const Place& place, Copies copies, uint32_t number) {
    proxy_fence();
#pragma unroll 1
    while (true) {
      copies.copy(input, place);
      ++number;
      if (!copies.next(input)) return number;
      copies.claim();
    }
  }
};

}  // namespace rk
