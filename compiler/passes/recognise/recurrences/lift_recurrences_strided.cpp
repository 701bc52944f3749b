// Strides that divide each other are like the digits of a number: of strides 100, 10, 1 each is a multiple of the next. The source is
// reshaped so that each wanted dimension is a range of one dimension (a digit), then sliced, then its dimensions are put in order.
#include "compiler/passes/recognise/recurrences/lift_recurrences_strided.h"

#include <algorithm>
#include <cstdlib>

#include "compiler/support/error.h"

namespace tamp::passes::lift {
namespace {

struct Digit {
  int64_t base = 1;  // extent in the source
  int64_t start = 0, extent = 1;
  bool is_backward = false;
  size_t position = 0;  // dimension of the result
};

// The wanted dimensions from the largest stride to the smallest; extents of 1 are left out.
std::optional<std::vector<Digit>> digits_of(int64_t count, const Strided& wanted) {
  struct Dimension {
    int64_t stride;
    Digit digit;
  };
  std::vector<Dimension> dimensions;
  int64_t offset = wanted.offset;
  for (size_t d = 0; d < wanted.extents.size(); ++d) {
    const int64_t extent = wanted.extents[d], stride = wanted.strides[d];
    if (extent == 1) continue;
    if (stride == 0 || extent == 0) return std::nullopt;
    if (stride < 0) offset += (extent - 1) * stride;
    dimensions.push_back({std::abs(stride), {1, 0, extent, stride < 0, d}});
  }
  if (offset < 0) return std::nullopt;
  std::stable_sort(dimensions.begin(), dimensions.end(), [](const auto& a, const auto& b) { return a.stride > b.stride; });
  std::vector<Digit> digits;
  int64_t unit = count;
  for (const auto& [stride, digit] : dimensions) {
    if (unit % stride != 0) return std::nullopt;
    digits.push_back(digit);
    digits.back().base = unit / stride;
    digits.back().start = offset / stride % digits.back().base;
    if (digits.back().start + digit.extent > digits.back().base) return std::nullopt;
    unit = stride;
  }
  if (dimensions.empty() || unit > 1) digits.push_back({unit, offset % unit, 1, false, wanted.extents.size()});
  return digits;
}

// A digit that lies along several of the source's dimensions is split into one for each dimension where that means the same: `from` then
// need not be reshaped first.
std::vector<Digit> along_dimensions(const std::vector<Digit>& digits, const Shape& from) {
  std::vector<Digit> split;
  size_t d = 0;
  for (Digit digit : digits) {
    for (; d < from.size() && digit.base > from[d] && digit.base % from[d] == 0 && !digit.is_backward; ++d) {
      Digit outer = digit;
      const int64_t inner = digit.base / from[d];
      const bool is_whole = digit.start % inner == 0 && digit.extent % inner == 0;
      if (!is_whole && digit.start / inner != (digit.start + digit.extent - 1) / inner) break;
      outer.base = from[d];
      outer.start = digit.start / inner;
      outer.extent = is_whole ? digit.extent / inner : 1;
      digit.base = inner;
      digit.start = is_whole ? 0 : digit.start % inner;
      digit.extent = is_whole ? inner : digit.extent;
      split.push_back(outer);
    }
    split.push_back(digit);
    ++d;
  }
  return split;
}

Shape bases_of(const std::vector<Digit>& digits) {
  Shape shape;
  for (const Digit& digit : digits) shape.push_back(digit.base);
  return shape;
}

Shape without_ones(Shape shape) {
  shape.erase(std::remove(shape.begin(), shape.end(), 1), shape.end());
  return shape;
}

class Steps {
 public:
  explicit Steps(const Shape& from) : from_(from), shape_(from) {}

  void reshape(const Shape& to) {
    if (!steps_.empty() && std::holds_alternative<Reshape>(steps_.back().attrs)) {
      steps_.pop_back();
      shape_ = steps_.empty() ? from_ : steps_.back().shape;
    }
    if (to != shape_) push(Reshape{to}, to);
  }

  // digits[i] lies along dimension axes[i].
  void slice(const std::vector<Digit>& digits, const std::vector<size_t>& axes) {
    Slice op = whole_slice(shape_);
    bool is_all = true;
    for (size_t i = 0; i < digits.size(); ++i) {
      const Digit& digit = digits[i];
      op.starts[axes[i]] = digit.is_backward ? digit.start + digit.extent - 1 : digit.start;
      op.steps[axes[i]] = digit.is_backward ? -1 : 1;
      op.extents[axes[i]] = digit.extent;
      is_all = is_all && digit.extent == digit.base && !digit.is_backward;
    }
    if (!is_all) push(op, op.extents);
  }

  void transpose(const std::vector<Digit>& digits) {
    std::vector<int64_t> perm = range(0, static_cast<int64_t>(digits.size()));
    std::stable_sort(perm.begin(), perm.end(), [&](int64_t a, int64_t b) {
      return digits[static_cast<size_t>(a)].position < digits[static_cast<size_t>(b)].position;
    });
    if (std::is_sorted(perm.begin(), perm.end())) return;
    Shape parts, to;
    for (const Digit& digit : digits) parts.push_back(digit.extent);
    for (const int64_t d : perm) to.push_back(parts[static_cast<size_t>(d)]);
    reshape(parts);
    push(Transpose{perm}, to);
  }

  const Shape& shape() const { return shape_; }
  std::vector<ViewStep> take() { return std::move(steps_); }

 private:
  void push(OpAttrs attrs, const Shape& to) {
    steps_.push_back({std::move(attrs), to});
    shape_ = to;
  }

  const Shape& from_;
  Shape shape_;
  std::vector<ViewStep> steps_;
};

}  // namespace

std::optional<std::vector<ViewStep>> view_steps(const Shape& from, const Strided& wanted, const Shape& to) {
  TAMP_CHECK(element_count(to) == element_count(wanted.extents), "a view keeps its elements");
  std::optional<std::vector<Digit>> digits = digits_of(element_count(from), wanted);
  if (!digits) return std::nullopt;
  if (auto split = along_dimensions(*digits, without_ones(from)); bases_of(split) == without_ones(from)) digits = std::move(split);
  Steps steps(from);
  if (bases_of(*digits) != without_ones(from)) steps.reshape(bases_of(*digits));
  std::vector<size_t> axes;
  for (size_t d = 0; d < steps.shape().size(); ++d) {
    if (steps.shape()[d] != 1) axes.push_back(d);
  }
  if (axes.size() != digits->size()) {  // one element of one
    axes.resize(digits->size());
    for (size_t i = 0; i < axes.size(); ++i) axes[i] = i;
  }
  steps.slice(*digits, axes);
  steps.transpose(*digits);
  steps.reshape(to);
  return steps.take();
}

}  // namespace tamp::passes::lift
