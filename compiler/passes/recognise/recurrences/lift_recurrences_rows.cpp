#include "compiler/passes/recognise/recurrences/lift_recurrences_rows.h"

#include <algorithm>

#include "compiler/passes/view_strides.h"

namespace tamp::passes::lift {
namespace {

constexpr int kMaxRowViews = 64;  // one behind the other; more is no exporter's work

Rows normal(Rows rows) {
  if (rows.rows == 1) rows.row_stride = 0;
  if (rows.cols == 1) rows.col_stride = 0;
  return rows;
}

// Leading dimensions must lie densely in each other to be one.
std::optional<Rows> flattened(TensorId root, const Shape& shape, const Placement& place) {
  Rows rows{root, place.offset, 1, shape.empty() ? 1 : shape.back(), 0, shape.empty() ? 0 : place.strides.back()};
  for (size_t d = shape.size(); d-- > 1;) {
    const int64_t extent = shape[d - 1], stride = place.strides[d - 1];
    if (extent == 1) continue;
    if (rows.rows == 1) {
      rows.row_stride = stride;
    } else if (stride != rows.row_stride * rows.rows) {
      return std::nullopt;
    }
    rows.rows *= extent;
  }
  return normal(rows);
}

}  // namespace

int64_t count_of(const Graph& graph, TensorId id) { return element_count(graph.tensor(id).shape); }

Rows all_rows(const Graph& graph, TensorId id) {
  const Shape& shape = graph.tensor(id).shape;
  const int64_t cols = shape.empty() ? 1 : shape.back();
  return normal({id, 0, cols == 0 ? 0 : element_count(shape) / cols, cols, cols, 1});
}

bool is_all(const Graph& graph, const Rows& rows) {
  return rows.rows * rows.cols == count_of(graph, rows.root) && rows == normal({rows.root, 0, rows.rows, rows.cols, rows.cols, 1});
}

Rows part_of(const Rows& whole, const RowRange& range) {
  const int64_t offset = whole.offset + range.row * whole.row_stride + range.col * whole.col_stride;
  return normal({whole.root, offset, range.rows, range.cols, range.step * whole.row_stride, whole.col_stride});
}

std::optional<RowRange> range_of(const Graph& graph, const Rows& rows) {
  const Shape& shape = graph.tensor(rows.root).shape;
  const int64_t width = shape.empty() ? 1 : shape.back();
  if (width == 0 || (rows.cols != 1 && rows.col_stride != 1) || rows.row_stride % width != 0 || rows.offset < 0) return std::nullopt;
  const RowRange range{rows.offset / width, rows.rows == 1 ? 1 : rows.row_stride / width, rows.rows, rows.offset % width, rows.cols};
  if (range.col + range.cols > width) return std::nullopt;
  return range;
}

std::optional<Rows> Views::through_views(TensorId id) const {
  std::vector<const ROperator*> views;  // the last one first
  TensorId root = id;
  while (views.size() < kMaxRowViews) {
    const ROperatorId producer = uses_.producer[root.index()];
    if (!producer.valid() || !is_view(graph_.rop(producer).attrs)) break;
    views.push_back(&graph_.rop(producer));
    root = views.back()->inputs[0];
  }
  Placement place{BufferId(), 0, row_major_strides(graph_.tensor(root).shape)};
  for (size_t i = views.size(); i-- > 0;) {
    if (std::optional<Placement> next = view_place(graph_, *views[i], place)) {
      place = *std::move(next);
    } else {
      root = views[i]->outputs[0];
      place = {BufferId(), 0, row_major_strides(graph_.tensor(root).shape)};
    }
  }
  return flattened(root, graph_.tensor(id).shape, place);
}

// The operand of a Concat that the matrix is all of, or none.
TensorId Views::part_of_concat(const Rows& rows) const {
  const ROperatorId producer = uses_.producer[rows.root.index()];
  const auto* concat = producer.valid() ? std::get_if<Concat>(&graph_.rop(producer).attrs) : nullptr;
  if (!concat) return TensorId();
  const ROperator& rop = graph_.rop(producer);
  const auto axis = static_cast<size_t>(concat->axis);
  std::vector<int64_t>& starts = starts_[producer.index()];
  if (starts.empty()) {
    int64_t start = 0;
    for (const TensorId id : rop.inputs) {
      starts.push_back(start);
      start += graph_.tensor(id).shape[axis];
    }
  }
  const Shape& shape = graph_.tensor(rows.root).shape;
  int64_t inner = 1;
  for (size_t d = axis + 1; d < shape.size(); ++d) inner *= shape[d];
  if (inner == 0 || rows.offset < 0) return TensorId();
  const int64_t at = rows.offset / inner % shape[axis];
  const auto found = std::upper_bound(starts.begin(), starts.end(), at) - 1;
  const TensorId part = rop.inputs[static_cast<size_t>(found - starts.begin())];
  const Placement whole{BufferId(), 0, row_major_strides(shape)};
  const auto in_concat =
      flattened(rows.root, graph_.tensor(part).shape, part_place(whole, concat->axis, *found, graph_.tensor(part).shape));
  return in_concat == rows ? part : TensorId();
}

Rows Views::rows_of(TensorId id) const {
  for (int depth = 0;; ++depth) {
    const std::optional<Rows> rows = through_views(id);
    if (!rows) return all_rows(graph_, id);
    const TensorId part = depth < kMaxRowViews ? part_of_concat(*rows) : TensorId();
    if (!part.valid()) return *rows;
    id = part;
  }
}

TensorId Views::whole_of(TensorId id) const {
  const Rows rows = rows_of(id);
  return is_all(graph_, rows) ? rows.root : id;
}

}  // namespace tamp::passes::lift
