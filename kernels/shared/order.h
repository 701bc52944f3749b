// The order in which TopK puts elements, for the reference and the device alike.
#pragma once

#include <cstdint>

#include "kernels/shared/functions.h"

namespace rk {

struct ElementOrder {
  bool largest;         // first, else the smallest
  bool last_of_equals;  // of equal elements the one at the higher place comes first
  bool nan_first;
};

// Whether x, which stands at i, comes before y, which stands at j. This is a total order: of two elements at different places exactly one
// comes before the other, and no element comes before itself.
template <class T>
RK_FUNCTION bool comes_before(T x, int64_t i, T y, int64_t j, const ElementOrder& order) {
  if constexpr (functions::kIsReal<T>) {
    const bool x_is_nan = x != x, y_is_nan = y != y;
    if (x_is_nan != y_is_nan) return x_is_nan == order.nan_first;
  }
  if (x < y) return !order.largest;
  if (y < x) return order.largest;
  return order.last_of_equals ? i > j : i < j;
}

}  // namespace rk
