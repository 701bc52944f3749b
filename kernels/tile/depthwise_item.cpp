#include "kernels/tile/depthwise_item.h"

#include <bit>

#include "kernels/args.h"

namespace tamp::kernels {

int64_t DepthwiseItem::own() const { return static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(pixels))) / parts; }

int64_t DepthwiseItem::trips(int64_t taps) const { return taps <= 3 ? 1 : ceil_div(taps, parts); }

std::string DepthwiseItem::text() const {
  return std::to_string(pixels) + " pixels" + (parts > 1 ? " by " + std::to_string(parts) : std::string());
}

}  // namespace tamp::kernels
