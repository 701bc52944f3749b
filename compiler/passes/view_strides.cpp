#include "compiler/passes/view_strides.h"

#include <algorithm>
#include <limits>
#include <numeric>

#include "compiler/ops/ops.h"
#include "compiler/support/error.h"

namespace tamp::passes {
namespace {

// The rule of extent 1, and one spelling for tensors without elements.
Placement normal(Placement place, const Shape& shape) {
  if (element_count(shape) == 0) place.strides = row_major_strides(shape);
  for (size_t d = 0; d < shape.size(); ++d) {
    if (shape[d] == 1) place.strides[d] = 0;
  }
  return place;
}

struct Dimension {
  int64_t extent, stride;
  size_t position;
};

std::vector<Dimension> without_ones(const Shape& shape, const std::vector<int64_t>& strides) {
  std::vector<Dimension> dimensions;
  for (size_t d = 0; d < shape.size(); ++d) {
    if (shape[d] != 1) dimensions.push_back({shape[d], strides.empty() ? 0 : strides[d], d});
  }
  return dimensions;
}

// Goes through both shapes at once in groups of equal products. Old dimensions that a group joins must lie densely in each
// other; new ones then split the group as they like.
std::optional<Placement> reshaped(const Placement& source, const Shape& from, const Shape& to) {
  Placement result{source.buffer, source.offset, std::vector<int64_t>(to.size(), 0)};
  if (element_count(from) == 0) return normal(result, to);
  const std::vector<Dimension> old = without_ones(from, source.strides), made = without_ones(to, {});
  size_t o = 0, m = 0;
  while (o < old.size() && m < made.size()) {
    const size_t first_made = m;
    int64_t old_count = old[o].extent, made_count = made[m].extent;
    while (old_count != made_count) {
      if (old_count < made_count) {
        if (old[o].stride != old[o + 1].stride * old[o + 1].extent) return std::nullopt;
        old_count *= old[++o].extent;
      } else {
        made_count *= made[++m].extent;
      }
    }
    int64_t stride = old[o].stride;
    for (size_t k = m + 1; k-- > first_made;) {
      result.strides[made[k].position] = stride;
      stride *= made[k].extent;
    }
    ++o;
    ++m;
  }
  return result;
}

Placement transposed(const Placement& source, const Transpose& op, const Shape& to) {
  Placement result = source;
  for (size_t d = 0; d < op.perm.size(); ++d) result.strides[d] = source.strides[static_cast<size_t>(op.perm[d])];
  return normal(result, to);
}

Placement sliced(const Placement& source, const Slice& op, const Shape& to) {
  Placement result = source;
  for (size_t d = 0; d < to.size(); ++d) {
    if (element_count(to) > 0) result.offset += op.starts[d] * source.strides[d];
    result.strides[d] = op.steps[d] * source.strides[d];
  }
  return normal(result, to);
}

}  // namespace

bool is_view(const OpAttrs& attrs) { return ops::layout_of(attrs) == ops::Layout::view; }

std::vector<int64_t> dense_strides(const Shape& shape, const std::vector<size_t>& order) {
  std::vector<int64_t> strides(shape.size(), 0);
  int64_t step = 1;
  for (size_t i = order.size(); i-- > 0;) {
    strides[order[i]] = step;
    step *= shape[order[i]];
  }
  return normal({BufferId(), 0, strides}, shape).strides;
}

std::vector<size_t> order_of(const Shape& shape, const std::vector<int64_t>& strides) {
  std::vector<size_t> order(shape.size());
  std::iota(order.begin(), order.end(), size_t{0});
  const auto distance = [&](size_t d) { return shape[d] == 1 ? std::numeric_limits<int64_t>::max() : std::abs(strides[d]); };
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return distance(a) > distance(b); });
  return order;
}

std::optional<Placement> view_place(const Graph& graph, const ROperator& rop, const Placement& source) {
  const Shape &from = graph.tensor(rop.inputs[0]).shape, &to = graph.tensor(rop.outputs[0]).shape;
  if (const auto* op = std::get_if<Transpose>(&rop.attrs)) return transposed(source, *op, to);
  if (const auto* op = std::get_if<Slice>(&rop.attrs)) return sliced(source, *op, to);
  TAMP_CHECK(std::holds_alternative<Reshape>(rop.attrs), "'" + rop.name + "' is no view");
  return reshaped(source, from, to);
}

std::optional<Placement> source_place(const Graph& graph, const ROperator& rop, const Placement& result) {
  const Shape &from = graph.tensor(rop.inputs[0]).shape, &to = graph.tensor(rop.outputs[0]).shape;
  if (const auto* op = std::get_if<Transpose>(&rop.attrs)) {
    Placement source = result;
    for (size_t d = 0; d < op->perm.size(); ++d) source.strides[static_cast<size_t>(op->perm[d])] = result.strides[d];
    return normal(source, from);
  }
  if (std::holds_alternative<Reshape>(rop.attrs)) return reshaped(result, to, from);
  return std::nullopt;
}

Placement part_place(const Placement& whole, int64_t axis, int64_t start, const Shape& part) {
  Placement place = whole;
  place.offset += start * whole.strides[static_cast<size_t>(axis)];
  return normal(place, part);
}

bool same_place(const Placement& a, const Placement& b) { return a.buffer == b.buffer && a.offset == b.offset && a.strides == b.strides; }

}  // namespace tamp::passes
