#include "compiler/ir/length_rules.h"

#include <numeric>

namespace tamp {
namespace {

int64_t product(const Shape& shape, size_t begin, size_t end) {
  int64_t elements = 1;
  for (size_t d = begin; d < end; ++d) elements *= shape[d];
  return elements;
}

}  // namespace

std::optional<LengthAxis> reshaped(const LengthAxis& axis, const Shape& from, const Shape& to) {
  const auto d = static_cast<size_t>(axis.dim);
  const int64_t before = product(from, 0, d), inner = product(from, d + 1, from.size());
  size_t r = 0;
  int64_t seen = 1;
  while (r < to.size() && (seen < before || to[r] == 1)) seen *= to[r++];
  if (seen != before || r == to.size()) return std::nullopt;
  const int64_t extent = to[r], behind = product(to, r + 1, to.size());
  Extent made = axis.extent;
  if (extent >= from[d]) {  // joined with dimensions behind it
    const int64_t factor = extent / from[d];
    if (extent % from[d] != 0 || behind * factor != inner || (factor > 1 && made.over > 1)) return std::nullopt;
    made.times *= factor;
    made.plus *= factor;
  } else {  // apart
    const int64_t factor = from[d] / extent;
    if (from[d] % extent != 0 || made.over > 1 || made.times % factor != 0 || made.plus % factor != 0) return std::nullopt;
    made.times /= factor;
    made.plus /= factor;
  }
  return LengthAxis{static_cast<int64_t>(r), made};
}

Extent windowed(const Extent& e, int64_t pads, int64_t kernel, int64_t stride, int64_t dilation, const std::vector<Length>& lengths) {
  const int64_t plus = pads - ((kernel - 1) * dilation + 1) + stride;
  return reduced({e.length, e.times, e.plus + plus * e.over, e.over * stride}, lengths);
}

bool is_exact(const Extent& e, const std::vector<Length>& lengths) {
  const int64_t step = e.length >= 0 ? lengths.at(static_cast<size_t>(e.length)).step : 1;
  return e.times * step % e.over == 0 && e.plus % e.over == 0;
}

Extent reduced(Extent e, const std::vector<Length>& lengths) {
  const int64_t step = e.length >= 0 ? lengths.at(static_cast<size_t>(e.length)).step : 1;
  if (step == 1 || e.times * step % e.over != 0) return e;
  e.plus -= (e.plus % e.over + e.over) % e.over;
  const int64_t common = std::gcd(std::gcd(e.times, e.over), e.plus);
  return {e.length, e.times / common, e.plus / common, e.over / common};
}

}  // namespace tamp
