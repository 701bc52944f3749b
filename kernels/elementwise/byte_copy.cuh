// y = x, byte by byte: both are dense and 16-byte aligned. For tensors that no body computes with, such as an output that is a constant of
// 64-bit integers. Threads copy words of four bytes; the last rTask also copies the up to three bytes behind the last word.
// Example: 1003 bytes are 250 words and a tail of 3. With 128 words a rTask, rTask 1 copies words 128 to 249 and bytes 1000 to 1002.
#pragma once

#include "kernels/vdevice/task.cuh"

namespace rk {

struct ByteCopyArgs {  // in tables
  TensorRef out, in;
  uint32_t words, words_per_rtask, tail_bytes;
};

template <class Veu>
RK_BODY void byte_copy(const Task<Veu>& task) {
  const ByteCopyArgs& args = task.template arguments<ByteCopyArgs>();
  const float* const in = task.address(args.in);
  float* const out = task.address(args.out);
  const uint32_t begin = task.index * args.words_per_rtask, left = args.words - begin;
  const uint32_t count = left < args.words_per_rtask ? left : args.words_per_rtask;
#pragma unroll 1
  for (uint32_t i = threadIdx.x; i < count; i += Veu::kComputeThreads) store1(out + begin + i, load1(in + begin + i));
  if (left >= args.words_per_rtask || threadIdx.x >= args.tail_bytes) return;
  const uint8_t* const from = as_global(reinterpret_cast<const uint8_t*>(in + args.words));
  as_global(reinterpret_cast<uint8_t*>(out + args.words))[threadIdx.x] = from[threadIdx.x];
}

}  // namespace rk
