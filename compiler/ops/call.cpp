// Helpers shared by the operators' files.
#include "compiler/ops/call.h"

#include <algorithm>

#include "compiler/support/text.h"

namespace tamp::ops {

std::string where(const ROperator& rop) { return "node '" + printable(rop.name) + "' (" + name_of(rop.attrs) + ")"; }

std::vector<int64_t> dense_strides(const Shape& shape) {
  std::vector<int64_t> strides(shape.size());
  int64_t stride = 1;
  for (size_t d = shape.size(); d-- > 0;) {
    strides[d] = stride;
    stride *= shape[d];
  }
  return strides;
}

std::vector<int64_t> broadcast_strides(const Shape& from, const Shape& to) {
  TAMP_CHECK(from.size() <= to.size(), "broadcast of " + shape_text(from) + " to " + shape_text(to));
  const std::vector<int64_t> dense = dense_strides(from);
  std::vector<int64_t> strides(to.size(), 0);
  const size_t shift = to.size() - from.size();
  for (size_t d = 0; d < from.size(); ++d) {
    if (from[d] != 1) strides[d + shift] = dense[d];
  }
  return strides;
}

int64_t product(const Shape& shape, int64_t begin, int64_t end) {
  int64_t result = 1;
  for (int64_t d = begin; d < end; ++d) result *= shape[static_cast<size_t>(d)];
  return result;
}

std::optional<Shape> joint_shape(const Shape& a, const Shape& b) {
  Shape result(std::max(a.size(), b.size()), 1);
  for (size_t d = 0; d < result.size(); ++d) {  // d counts from the last dimension
    const int64_t x = d < a.size() ? a[a.size() - 1 - d] : 1;
    const int64_t y = d < b.size() ? b[b.size() - 1 - d] : 1;
    if (x != y && x != 1 && y != 1) return std::nullopt;
    result[result.size() - 1 - d] = x == 1 ? y : x;
  }
  return result;
}

Shape broadcast(const Shape& a, const Shape& b) {
  const std::optional<Shape> joint = joint_shape(a, b);
  if (!joint) throw bad_input("shapes " + shape_text(a) + " and " + shape_text(b) + " do not broadcast");
  return *joint;
}

}  // namespace tamp::ops
