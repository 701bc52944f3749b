// Helpers shared by the operators' files.
#include "compiler/ops/call.h"

#include <algorithm>
#include <cstring>

#include "compiler/ir/fused.h"
#include "compiler/support/text.h"

namespace tamp::ops {

std::string where(const ROperator& rop) { return "node '" + printable(rop.name) + "' (" + title_of(rop) + ")"; }

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
  if (!joint) throw bad_input("shapes {} and {} do not broadcast", shape_text(a), shape_text(b));
  return *joint;
}

Value output_of(const Call& call, Bytes bytes) {
  return Value{call.output().dtype, call.output().shape, std::make_shared<const Bytes>(std::move(bytes))};
}

size_t output_bytes(const Call& call) { return static_cast<size_t>(element_count(call.output().shape) * bytes_of(call.output().dtype)); }

namespace {

template <class Word>
void copy_words(const std::byte* source, const Shape& shape, const std::vector<int64_t>& strides, int64_t offset, std::byte* target) {
  for_each_offset(shape, strides, offset, [&](int64_t at) {
    std::memcpy(target, source + at * static_cast<int64_t>(sizeof(Word)), sizeof(Word));
    target += sizeof(Word);
  });
}

}  // namespace

Value strided_copy(const Call& call, int64_t offset, const std::vector<int64_t>& strides) {
  Bytes bytes(output_bytes(call));
  const std::byte* source = call.input(0).data->data();
  const Shape& shape = call.output().shape;
  switch (bytes_of(call.output().dtype)) {
    case 1: copy_words<uint8_t>(source, shape, strides, offset, bytes.data()); break;
    case 2: copy_words<uint16_t>(source, shape, strides, offset, bytes.data()); break;
    case 4: copy_words<uint32_t>(source, shape, strides, offset, bytes.data()); break;
    case 8: copy_words<uint64_t>(source, shape, strides, offset, bytes.data()); break;
    default: TAMP_CHECK(false, "element size");
  }
  return output_of(call, std::move(bytes));
}

}  // namespace tamp::ops
