#include "compiler/passes/views/window_heads.h"

#include <utility>

#include "compiler/passes/view_strides.h"

namespace tamp::passes {

std::optional<WindowHeads> window_heads(const Shape& shape, const Placement& place, int64_t row) {
  if (shape.size() < 2 || element_count(shape) == 0) return std::nullopt;
  const size_t leading = shape.size() - 2;
  WindowHeads found;
  found.rows = shape[leading];
  found.columns = shape.back();
  found.first = place.offset;
  const std::vector<int64_t>& strides = place.strides;
  if ((found.rows > 1 && strides[leading] != row) || (found.columns > 1 && strides.back() != 1)) return std::nullopt;
  for (size_t d = leading; d-- > 0;) {
    if (shape[d] == 1) continue;
    if (found.windows == 1 && strides[d] == found.heads * found.columns && (found.heads * shape[d]) * found.columns <= row) {
      found.heads *= shape[d];
    } else if (strides[d] == found.windows * found.rows * row) {
      if (found.windows == 1) found.window_dimensions = d + 1;
      found.windows *= shape[d];
    } else {
      return std::nullopt;
    }
  }
  const bool fits = found.first >= 0 && found.first + found.heads * found.columns <= row;
  return fits ? std::optional(found) : std::nullopt;
}

std::optional<HeadsOfRows> heads_of_rows(const Graph& graph, const Uses& uses, TensorId id) {
  std::vector<const ROperator*> views;
  ROperatorId maker = uses.producer[id.index()];
  for (; maker.valid() && is_view(graph.rop(maker).attrs); maker = uses.producer[views.back()->inputs[0].index()])
    views.push_back(&graph.rop(maker));
  if (!maker.valid()) return std::nullopt;
  const Shape& rows = graph.tensor(graph.rop(maker).outputs[0]).shape;
  if (rows.empty()) return std::nullopt;
  std::optional<Placement> place = Placement{BufferId(), 0, row_major_strides(rows)};
  for (size_t v = views.size(); v-- > 0 && place;) place = view_place(graph, *views[v], *place);
  const std::optional<WindowHeads> heads = place ? window_heads(graph.tensor(id).shape, *place, rows.back()) : std::nullopt;
  return heads ? std::optional(HeadsOfRows{maker, *heads}) : std::nullopt;
}

Placement joined_place(const Shape& shape, size_t window_dimensions) {
  const size_t leading = shape.size() - 2;
  Placement place{BufferId(), 0, std::vector<int64_t>(shape.size(), 0)};
  const auto set = [&](size_t d, int64_t stride) { place.strides[d] = shape[d] == 1 ? 0 : stride; };
  int64_t step = shape.back();
  set(leading + 1, 1);
  for (size_t d = leading; d-- > window_dimensions; step *= shape[d]) set(d, step);
  set(leading, step);
  step *= shape[leading];
  for (size_t d = window_dimensions; d-- > 0; step *= shape[d]) set(d, step);
  return place;
}

std::optional<Shape> window_bias(const Shape& bias, const Shape& leading, size_t window_dimensions) {
  const size_t missing = leading.size() + 2 - bias.size();
  const auto extent = [&](size_t d) { return d < missing ? 1 : bias[d - missing]; };
  Shape made;
  for (const auto& [begin, end] : {std::pair{size_t{0}, window_dimensions}, std::pair{window_dimensions, leading.size()}}) {
    int64_t all = 1, given = 1;
    for (size_t d = begin; d < end; ++d) {
      all *= leading[d];
      given *= extent(d);
    }
    if (given != 1 && given != all) return std::nullopt;
    made.push_back(given);
  }
  made.insert(made.end(), {extent(leading.size()), extent(leading.size() + 1)});
  return made;
}

}  // namespace tamp::passes
