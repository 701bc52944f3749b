// NextToken: which word follows, by kernels/shared/sampling.h. First each rTask penalises and divides its share of the scores, and finds
// the best of them; then one rTask draws. Without a temperature it takes the best of the shares, and that is all.
//
// It looks for the distances of top-k and top-p by digits of 10 bits, the highest first: one walk over the scores counts elements, or their
// mass, per value of the digit. Example: 128256 scores are 501 for each thread; top-k and top-p take three walks each, and the masses of
// segments of the scores, in which the random number is found, one.
#pragma once

#include "kernels/shared/sampling.h"
#include "kernels/vdevice/cells.cuh"

namespace rk {

struct NextTokenArgs {  // in tables
  TensorRef scores, amounts, draw, seen, token;
  TensorRef divided, best;  // scratch: a score of each word, and score and word of each share
  uint32_t words, words_per_rtask, shares;
};

// A NaN is behind every number.
RK_INLINE bool beats(float a, uint32_t i, float b, uint32_t j) {
  if (a > b || (b != b && a == a)) return true;
  return (a == b || (a != a && b != b)) && i < j;
}

// The best of all threads' in `score` and `word` of thread 0. `work`: 16 words.
template <class Veu>
RK_INLINE void best_of_threads(float& score, uint32_t& word, uint32_t* work) {
  const auto take = [&](float other, uint32_t at) {
    if (beats(other, at, score, word)) {
      score = other;
      word = at;
    }
  };
#pragma unroll
  for (int step = kWarp / 2; step > 0; step /= 2) {
    const float other = __shfl_xor_sync(kFullMask, score, step);
    const uint32_t at = __shfl_xor_sync(kFullMask, word, step);
    take(other, at);
  }
  const uint32_t warp = threadIdx.x / kWarp;
  if (lane_id() == 0) {
    work[2 * warp] = __float_as_uint(score);
    work[2 * warp + 1] = word;
  }
  sync_compute<Veu>();
  if (threadIdx.x == 0) {
    for (uint32_t w = 1; w < Veu::kComputeThreads / kWarp; ++w) take(__uint_as_float(work[2 * w]), work[2 * w + 1]);
  }
}

template <class Veu>
RK_BODY void next_token_scores(const Task<Veu>& caller) {
  const Task<Veu> task = caller;  // a copy in registers, since the caller's task is in a stack frame
  const NextTokenArgs& args = task.template arguments<NextTokenArgs>();
  const float* const scores = task.address(args.scores);
  const float* const amounts = task.address(args.amounts);
  const uint8_t* const seen = reinterpret_cast<const uint8_t*>(task.address(args.seen));
  float* const divided = task.address(args.divided);
  const float temperature = load1(amounts), penalty = load1(amounts + 2);
  const uint32_t end = min((task.index + 1) * args.words_per_rtask, args.words);
  float best = __uint_as_float(0x7fffffffu);
  uint32_t word = 0xffffffffu;
#pragma unroll 4
  for (uint32_t i = task.index * args.words_per_rtask + threadIdx.x; i < end; i += Veu::kComputeThreads) {
    float score = sampling::penalised(load1(scores + i), load_cell(seen + i) != 0, penalty);
    if (temperature > 0) score /= temperature;
    store1(divided + i, score);
    if (beats(score, i, best, word)) {
      best = score;
      word = i;
    }
  }
  best_of_threads<Veu>(best, word, task.template work_as<uint32_t>());
  if (threadIdx.x != 0) return;
  float* const out = task.address(args.best) + 2 * task.index;
  store1(out, best);
  store1(out + 1, __uint_as_float(word));
}

inline constexpr uint32_t kDigitBits = 10, kDigits = 1u << kDigitBits;
struct NextTokenWork {
  unsigned long long sums[kDigits];  // per value of a digit; then per segment of the scores
  uint32_t best[2 * kComputeWarps];
};

// What a draw walks over: the scores, and the largest of them.
struct DrawnScores {
  const float* scores;
  float largest;
  uint32_t count;
  RK_INLINE uint32_t distance(uint32_t i) const { return sampling::distance(load1(scores + i), largest); }
  RK_INLINE unsigned long long mass(uint32_t i, uint32_t limit) const {
    const uint32_t far = distance(i);
    return far <= limit ? sampling::mass(far) : 0;
  }
};

// The sums of all threads' up to and with each of kDigits; in place.
template <class Veu>
RK_INLINE void add_up(NextTokenWork& work) {
  sync_compute<Veu>();
  if (threadIdx.x < kWarp) {
    constexpr uint32_t kEach = kDigits / kWarp;
    unsigned long long sum = 0;
    for (uint32_t d = 0; d < kEach; ++d) sum += work.sums[threadIdx.x * kEach + d];
    unsigned long long before = 0;
    for (uint32_t lane = 0; lane < kWarp; ++lane) {
      const unsigned long long other = __shfl_sync(kFullMask, sum, static_cast<int>(lane));
      if (lane < threadIdx.x) before += other;
    }
    for (uint32_t d = 0; d < kEach; ++d) work.sums[threadIdx.x * kEach + d] = before += work.sums[threadIdx.x * kEach + d];
  }
  sync_compute<Veu>();
}

// The least distance up to which `weight` of elements no farther than `limit` adds up to `wanted`; `limit` if it never does.
template <class Veu, class Weight>
RK_INLINE uint32_t cut_at(const DrawnScores& drawn, uint32_t limit, unsigned long long wanted, const Weight& weight, NextTokenWork& work) {
  uint32_t prefix = 0;
  unsigned long long before = 0;  // what is nearer than the prefix
#pragma unroll 1
  for (int shift = sampling::kDistanceBits - static_cast<int>(kDigitBits); shift >= 0; shift -= static_cast<int>(kDigitBits)) {
    for (uint32_t d = threadIdx.x; d < kDigits; d += Veu::kComputeThreads) work.sums[d] = 0;
    sync_compute<Veu>();
#pragma unroll 4
    for (uint32_t i = threadIdx.x; i < drawn.count; i += Veu::kComputeThreads) {
      const uint32_t distance = drawn.distance(i);
      if (distance > limit || distance >> shift >> kDigitBits != prefix) continue;
      atomicAdd(&work.sums[distance >> shift & (kDigits - 1)], static_cast<unsigned long long>(weight(distance)));
    }
    add_up<Veu>(work);
    uint32_t low = 0, high = kDigits - 1;  // the first digit at which there is enough, else the last
    while (low < high) {
      const uint32_t middle = (low + high) / 2;
      if (before + work.sums[middle] >= wanted)
        high = middle;
      else
        low = middle + 1;
    }
    if (low > 0) before += work.sums[low - 1];
    prefix = prefix << kDigitBits | low;
    sync_compute<Veu>();
  }
  return min(prefix, limit);
}

// The mass of the elements up to `limit`; and in work.sums of those in and before each of kDigits segments.
template <class Veu>
RK_INLINE unsigned long long masses(const DrawnScores& drawn, uint32_t limit, NextTokenWork& work) {
  const uint32_t each = (drawn.count + kDigits - 1) / kDigits;
#pragma unroll 1
  for (uint32_t s = threadIdx.x / kWarp; s < kDigits; s += Veu::kComputeThreads / kWarp) {
    unsigned long long sum = 0;
    const uint32_t end = min((s + 1) * each, drawn.count);
    for (uint32_t i = s * each + threadIdx.x % kWarp; i < end; i += kWarp) sum += drawn.mass(i, limit);
#pragma unroll
    for (int step = kWarp / 2; step > 0; step /= 2) sum += __shfl_xor_sync(kFullMask, sum, step);
    if (lane_id() == 0) work.sums[s] = sum;
  }
  add_up<Veu>(work);
  return work.sums[kDigits - 1];
}

// The word on which `number` falls, behind `masses`. One thread.
RK_INLINE uint32_t word_at(const DrawnScores& drawn, uint32_t limit, unsigned long long number, const NextTokenWork& work) {
  const uint32_t each = (drawn.count + kDigits - 1) / kDigits;
  uint32_t s = 0;
  while (s + 1 < kDigits && work.sums[s] <= number) ++s;
  unsigned long long left = number - (s > 0 ? work.sums[s - 1] : 0);
  uint32_t word = s * each;
  for (;; ++word) {
    const unsigned long long mass = drawn.mass(word, limit);
    if (left < mass) return word;
    left -= mass;
  }
}

template <class Veu>
RK_BODY void next_token(const Task<Veu>& caller) {
  const Task<Veu> task = caller;  // a copy in registers, since the caller's task is in a stack frame
  const NextTokenArgs& args = task.template arguments<NextTokenArgs>();
  NextTokenWork& work = *task.template work_as<NextTokenWork>();
  const float* const amounts = task.address(args.amounts);
  const int64_t* const numbers = reinterpret_cast<const int64_t*>(task.address(args.draw));
  const float* const shares = task.address(args.best);
  float best = __uint_as_float(0x7fffffffu);
  uint32_t word = 0xffffffffu;
  for (uint32_t s = threadIdx.x; s < args.shares; s += Veu::kComputeThreads) {
    const float score = load1(shares + 2 * s);
    const uint32_t at = __float_as_uint(load1(shares + 2 * s + 1));
    if (beats(score, at, best, word)) {
      best = score;
      word = at;
    }
  }
  best_of_threads<Veu>(best, word, work.best);
  if (threadIdx.x == 0) work.best[0] = __float_as_uint(best);
  if (!(load1(amounts) > 0)) {
    if (threadIdx.x == 0) store_cell(reinterpret_cast<int64_t*>(task.address(args.token)), static_cast<int64_t>(word));
    return;
  }
  sync_compute<Veu>();
  const DrawnScores drawn{task.address(args.divided), __uint_as_float(work.best[0]), args.words};
  const float top_p = load1(amounts + 1);
  const int64_t top_k = load_cell(numbers);
  uint32_t limit = sampling::kTooFar - 1;
  if (sampling::cuts_count(top_k, drawn.count))
    limit = cut_at<Veu>(
        drawn, limit, static_cast<unsigned long long>(top_k), [](uint32_t) { return 1u; }, work);
  unsigned long long total = masses<Veu>(drawn, limit, work);
  if (sampling::cuts_mass(top_p) && total > 0) {
    sync_compute<Veu>();
    limit = cut_at<Veu>(
        drawn, limit, sampling::wanted_mass(total, top_p), [](uint32_t distance) { return sampling::mass(distance); }, work);
    total = masses<Veu>(drawn, limit, work);
  }
  if (threadIdx.x != 0) return;
  const uint64_t bits = sampling::random_bits(static_cast<uint64_t>(load_cell(numbers + 1)), static_cast<uint64_t>(load_cell(numbers + 2)));
  const uint32_t token = total > 0 ? word_at(drawn, limit, sampling::share_of(bits, total), work) : 0;  // 0: no score is a number
  store_cell(reinterpret_cast<int64_t*>(task.address(args.token)), static_cast<int64_t>(token));
}

}  // namespace rk
