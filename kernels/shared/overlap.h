// Boxes and how far two of them overlap, for NonMaxSuppression. The reference and the device compare by the same float arithmetic. Boxes
// are known at run time only: a box without an area, or with a NaN, overlaps nothing.
#pragma once

#include "kernels/shared/functions.h"

namespace rk {

struct BoxEdges {
  float top, left, bottom, right;
};

// Edges of the box given by two corners y, x, y, x in any order, or by centre x, centre y, width and height.
RK_FUNCTION BoxEdges box_edges(float a, float b, float c, float d, bool by_centre) {
  if (by_centre) return {b - d * 0.5f, a - c * 0.5f, b + d * 0.5f, a + c * 0.5f};
  return {a < c ? a : c, b < d ? b : d, a < c ? c : a, b < d ? d : b};
}

RK_FUNCTION float box_area(const BoxEdges& box) { return (box.bottom - box.top) * (box.right - box.left); }

// Whether the intersection is more than `share` of the union.
RK_FUNCTION bool boxes_overlap(const BoxEdges& x, const BoxEdges& y, float share) {
  const BoxEdges both = {x.top > y.top ? x.top : y.top, x.left > y.left ? x.left : y.left, x.bottom < y.bottom ? x.bottom : y.bottom,
                         x.right < y.right ? x.right : y.right};
  if (!(both.bottom > both.top) || !(both.right > both.left)) return false;
  const float common = box_area(both), all = box_area(x) + box_area(y) - common;
  return all > 0.0f && common / all > share;
}

}  // namespace rk
