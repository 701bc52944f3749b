#include "compiler/passes/views/stack_concats.h"

#include <algorithm>
#include <optional>

#include "compiler/passes/rewrite.h"

namespace tamp::passes {
namespace {

// `shape` with the extents `outer` and `inner` instead of dimension `axis`.
Shape divided(Shape shape, size_t axis, int64_t outer, int64_t inner) {
  shape[axis] = inner;
  shape.insert(shape.begin() + static_cast<std::ptrdiff_t>(axis), outer);
  return shape;
}

bool swaps(const Transpose& transpose, size_t axis) {
  return axis + 1 < transpose.perm.size() && transpose.perm == swapped(transpose.perm.size(), axis);
}

class StackConcats {
 public:
  explicit StackConcats(Graph graph) : graph_(std::move(graph)), uses_(uses_of(graph_)) {}

  Graph run() {
    std::vector<ROperator> made;
    for (const ROperator& rop : graph_.rops) {
      if (const std::optional<ROperatorId> concat = shuffled(rop))
        stack(rop, graph_.rop(*concat), made);
      else
        made.push_back(rop);
    }
    graph_.rops = std::move(made);
    return remove_dead(std::move(graph_));
  }

 private:
  // The Concat whose operands the Transpose `rop` interleaves.
  std::optional<ROperatorId> shuffled(const ROperator& rop) const {
    const auto* const transpose = std::get_if<Transpose>(&rop.attrs);
    if (!transpose) return std::nullopt;
    const ROperatorId reshape = uses_.maker_for_one(rop.inputs[0]);
    if (!reshape.valid() || !std::holds_alternative<Reshape>(graph_.rop(reshape).attrs)) return std::nullopt;
    const ROperatorId maker = uses_.maker_for_one(graph_.rop(reshape).inputs[0]);
    const auto* const concat = maker.valid() ? std::get_if<Concat>(&graph_.rop(maker).attrs) : nullptr;
    if (!concat) return std::nullopt;
    const std::vector<TensorId>& parts = graph_.rop(maker).inputs;
    const auto axis = static_cast<size_t>(concat->axis);
    const int64_t extent = graph_.tensor(parts[0]).shape[axis];
    const auto differs = [&](TensorId id) { return graph_.tensor(id).shape[axis] != extent; };
    if (parts.size() < 2 || std::any_of(parts.begin(), parts.end(), differs)) return std::nullopt;
    const Shape whole = divided(graph_.tensor(parts[0]).shape, axis, static_cast<int64_t>(parts.size()), extent);
    if (graph_.tensor(rop.inputs[0]).shape != whole || !swaps(*transpose, axis)) return std::nullopt;
    return maker;
  }

  void stack(const ROperator& transpose, const ROperator& concat, std::vector<ROperator>& made) {
    const auto axis = static_cast<size_t>(std::get<Concat>(concat.attrs).axis);
    ROperator stacked = transpose;
    prepend_origin(stacked, concat);
    stacked.attrs = Concat{static_cast<int64_t>(axis) + 1};
    stacked.inputs.clear();
    for (const TensorId part : concat.inputs) {
      const std::string name = transpose.name + ".part" + std::to_string(stacked.inputs.size());
      const Shape column = divided(graph_.tensor(part).shape, axis, graph_.tensor(part).shape[axis], 1);
      stacked.inputs.push_back(append_view(graph_, made, name, Reshape{column}, part, column, concat.origin));
    }
    made.push_back(std::move(stacked));
  }

  Graph graph_;
  Uses uses_;
};

}  // namespace

Graph stack_concats(Graph graph) { return StackConcats(std::move(graph)).run(); }

}  // namespace tamp::passes
