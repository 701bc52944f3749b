// NextToken: a token drawn among all words, as kernels/shared/sampling.h says. The reference sorts; the device counts.
#include <algorithm>
#include <numeric>

#include "compiler/ops/operator.h"
#include "compiler/support/text.h"
#include "kernels/shared/sampling.h"

namespace tamp::ops {
namespace {

namespace sampling = rk::sampling;

// Cuts off the words behind the first, nearest first, that is enough, but for those of the same distance.
template <class Enough>
void cut(std::vector<uint32_t>& words, const std::vector<uint32_t>& distances, const Enough& enough) {
  size_t kept = 0;
  while (kept < words.size() && !enough(words[kept])) ++kept;
  if (kept == words.size()) return;
  const uint32_t farthest = distances[words[kept]];
  while (kept < words.size() && distances[words[kept]] <= farthest) ++kept;
  words.resize(kept);
}

int64_t drawn(std::vector<float> scores, float top_p, int64_t top_k, uint64_t seed, uint64_t number) {
  float largest = scores[0];
  for (const float score : scores) largest = score > largest || largest != largest ? score : largest;
  std::vector<uint32_t> distances, words;
  for (size_t i = 0; i < scores.size(); ++i) {
    distances.push_back(sampling::distance(scores[i], largest));
    if (distances[i] < sampling::kTooFar) words.push_back(static_cast<uint32_t>(i));
  }
  std::stable_sort(words.begin(), words.end(), [&](uint32_t a, uint32_t b) { return distances[a] < distances[b]; });
  if (sampling::cuts_count(top_k, static_cast<uint32_t>(scores.size()))) {
    int64_t kept = 0;
    cut(words, distances, [&](uint32_t) { return ++kept >= top_k; });
  }
  const auto mass_of = [&](uint64_t sum, uint32_t word) { return sum + sampling::mass(distances[word]); };
  uint64_t total = std::accumulate(words.begin(), words.end(), uint64_t{0}, mass_of);
  if (sampling::cuts_mass(top_p)) {
    const uint64_t wanted = sampling::wanted_mass(total, top_p);
    uint64_t kept = 0;
    cut(words, distances, [&](uint32_t word) { return (kept = mass_of(kept, word)) >= wanted; });
    total = std::accumulate(words.begin(), words.end(), uint64_t{0}, mass_of);
  }
  std::sort(words.begin(), words.end());
  uint64_t left = sampling::share_of(sampling::random_bits(seed, number), total);
  for (const uint32_t word : words) {
    const uint64_t mass = sampling::mass(distances[word]);
    if (left < mass) return word;
    left -= mass;
  }
  return 0;  // no score is a number
}

}  // namespace

TensorTypes infer(const NextToken&, const Given& given) {
  given.expect(4);
  const Shape& scores = given.shape(0);
  if (scores.empty() || given.elements(0) != scores.back() || given.elements(0) == 0)
    throw bad_input("the scores have shape {}, expected those of one token", shape_text(scores));
  given.expect_shape(1, "amounts", {3});
  given.expect_shape(2, "draw", {3});
  given.expect_shape(3, "seen", {scores.back()});
  if (given.dtype(1) != DType::f32 || given.dtype(2) != DType::i64 || given.dtype(3) != DType::boolean)
    throw bad_input("amounts, draw and seen are f32, i64 and bool");
  return {{DType::i64, {1}}};
}

std::vector<Value> evaluate(const NextToken&, const Call& call) {
  const Numbers<float> x(call.input(0)), amounts(call.input(1));
  const Numbers<int64_t> draw(call.input(2)), seen(call.input(3));
  std::vector<float> scores;
  for (int64_t i = 0; i < element_count(call.input(0).shape); ++i) scores.push_back(sampling::penalised(x[i], seen[i] != 0, amounts[2]));
  int64_t token = 0;
  if (amounts[0] > 0) {
    for (float& score : scores) score /= amounts[0];
    token = drawn(scores, amounts[1], draw[0], static_cast<uint64_t>(draw[1]), static_cast<uint64_t>(draw[2]));
  } else {
    for (size_t i = 1; i < scores.size(); ++i) {
      const float best = scores[static_cast<size_t>(token)];
      if (scores[i] > best || (best != best && scores[i] == scores[i])) token = static_cast<int64_t>(i);
    }
  }
  return {value_from(DType::i64, call.output().shape, std::vector<int64_t>{token})};
}

Traits traits_of(const NextToken&) { return {Layout::row_major, InF32::none}; }
int64_t own_work(const NextToken&, const Given& given, const TensorTypes&) { return saturating_product({given.elements(0), kWorkOfRead}); }

}  // namespace tamp::ops
