// The boxes of one class of one image that stay: rTask r is class r % classes of image r / classes. Thread t has boxes t, t + threads, ..
// In each round all threads together find the box of the highest score, and then each drops those of its boxes that overlap it too much.
// Shared memory: the best box of each warp (score and number), then a bit for each box, which is set when the box is out: word w of thread
// t has the bits of the thread's boxes 32 w to 32 w + 31.
// Example: with 256 threads box 9000 = 35 * 256 + 40 is box 35 of thread 40: bit 3 of the thread's word 1.
#pragma once

#include "kernels/shared/overlap.h"
#include "kernels/vdevice/cells.cuh"
#include "kernels/vdevice/sync.cuh"

namespace rk {

struct NonMaxSuppressionArgs {  // in tables
  TensorRef boxes, scores, out;
  int32_t box_strides[3], score_strides[3], out_strides[3];
  Divisor classes;
  uint32_t count, most, words;  // boxes of an image; boxes that may stay; words of bits for each thread
  float overlap, least_score;
  int32_t has_threshold, by_centre;
};

inline constexpr uint32_t kNoBox = 0xffffffffu;

struct BestBox {
  float score;
  uint32_t number;  // kNoBox: none

  // Takes the other box if its score is higher or, with equal scores, its number is lower.
  RK_INLINE void take(float other_score, uint32_t other) {
    const bool is_better = other != kNoBox && (number == kNoBox || other_score > score || (other_score == score && other < number));
    score = is_better ? other_score : score;
    number = is_better ? other : number;
  }
};

RK_INLINE BoxEdges edges_at(const NonMaxSuppressionArgs& args, const float* boxes, uint32_t number) {
  const float* const box = boxes + static_cast<int64_t>(number) * args.box_strides[1];
  const int64_t step = args.box_strides[2];
  return box_edges(load1(box), load1(box + step), load1(box + 2 * step), load1(box + 3 * step), args.by_centre != 0);
}

template <class Veu>
RK_BODY void non_max_suppression(const Task<Veu>& caller) {
  const Task<Veu> task = caller;  // a copy in registers, since the caller's task is in a stack frame
  const NonMaxSuppressionArgs& args = task.template arguments<NonMaxSuppressionArgs>();
  constexpr uint32_t kThreads = Veu::kComputeThreads, kWarps = kThreads / kWarp;
  uint32_t which;
  const uint32_t image = divide(task.index, args.classes, which);
  const float* const boxes = task.address(args.boxes) + static_cast<int64_t>(image) * args.box_strides[0];
  const float* const scores =
      task.address(args.scores) + static_cast<int64_t>(image) * args.score_strides[0] + static_cast<int64_t>(which) * args.score_strides[1];
  uint64_t* const out = reinterpret_cast<uint64_t*>(task.address(args.out)) + static_cast<int64_t>(image) * args.out_strides[0] +
                        static_cast<int64_t>(which) * args.out_strides[1];
  BestBox* const of_warps = task.template work_as<BestBox>();
  uint32_t* const is_out = task.template work_as<uint32_t>() + 2 * kWarps + threadIdx.x;
#pragma unroll 1
  for (uint32_t w = 0; w < args.words; ++w) is_out[w * kThreads] = 0;
  uint32_t round = 0;
#pragma unroll 1
  for (; round < args.most; ++round) {
    BestBox best{0.0f, kNoBox};
#pragma unroll 1
    for (uint32_t i = threadIdx.x, k = 0; i < args.count; i += kThreads, ++k) {
      if ((is_out[k / 32 * kThreads] >> (k % 32) & 1u) != 0) continue;
      const float score = load1(scores + static_cast<int64_t>(i) * args.score_strides[2]);
      const bool counts = score == score && (args.has_threshold == 0 || score > args.least_score);
      if (counts) best.take(score, i);
    }
#pragma unroll
    for (int step = kWarp / 2; step > 0; step /= 2) {
      const float score = __shfl_xor_sync(kFullMask, best.score, step);
      const uint32_t number = __shfl_xor_sync(kFullMask, best.number, step);
      best.take(score, number);
    }
    if (lane_id() == 0) of_warps[threadIdx.x / kWarp] = best;
    sync_compute<Veu>();
#pragma unroll
    for (uint32_t w = 0; w < kWarps; ++w) best.take(of_warps[w].score, of_warps[w].number);
    sync_compute<Veu>();  // before the next round writes there
    if (best.number == kNoBox) break;
    if (threadIdx.x == 0) store_cell(out + static_cast<int64_t>(round) * args.out_strides[2], static_cast<uint64_t>(best.number));
    const BoxEdges edges = edges_at(args, boxes, best.number);
#pragma unroll 1
    for (uint32_t i = threadIdx.x, k = 0; i < args.count; i += kThreads, ++k) {
      const bool goes = i == best.number || boxes_overlap(edges, edges_at(args, boxes, i), args.overlap);
      if (goes) is_out[k / 32 * kThreads] |= 1u << (k % 32);
    }
  }
#pragma unroll 1
  for (uint32_t i = round + threadIdx.x; i < args.most; i += kThreads)
    store_cell(out + static_cast<int64_t>(i) * args.out_strides[2], ~uint64_t{0});
}

}  // namespace rk
