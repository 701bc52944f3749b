#include "compiler/passes/views/join_slices.h"

#include <algorithm>

namespace tamp::passes {
namespace {

class SliceJoiner {
 public:
  explicit SliceJoiner(Graph graph) : graph_(std::move(graph)), uses_(uses_of(graph_)) {}

  Graph run() {
    for (ROperator& rop : graph_.rops) {
      if (const auto* concat = std::get_if<Concat>(&rop.attrs)) rop.inputs = joined(rop.inputs, static_cast<size_t>(concat->axis));
    }
    return remove_dead(std::move(graph_));
  }

 private:
  std::vector<TensorId> joined(const std::vector<TensorId>& inputs, size_t axis) const {
    std::vector<TensorId> out;
    for (size_t i = 0; i < inputs.size();) {
      const size_t parts = parts_of_whole(inputs, i, axis);
      out.push_back(parts > 0 ? source_of(inputs[i]) : inputs[i]);
      i += std::max<size_t>(parts, 1);
    }
    return out;
  }

  const Slice* slice_of(TensorId id) const {
    const ROperatorId maker = uses_.producer[id.index()];
    return maker.valid() ? std::get_if<Slice>(&graph_.rop(maker).attrs) : nullptr;
  }
  TensorId source_of(TensorId id) const { return graph_.rop(uses_.producer[id.index()]).inputs[0]; }

  // How many operands from `first` on are the parts of one tensor in their order, with nothing left of it; 0 if they are not.
  size_t parts_of_whole(const std::vector<TensorId>& inputs, size_t first, size_t axis) const {
    if (!slice_of(inputs[first])) return 0;
    const TensorId whole = source_of(inputs[first]);
    const Shape& shape = graph_.tensor(whole).shape;
    int64_t at = 0;
    for (size_t i = first; i < inputs.size(); ++i) {
      const Slice* const slice = slice_of(inputs[i]);
      if (!slice || source_of(inputs[i]) != whole) return 0;
      for (size_t d = 0; d < shape.size(); ++d) {
        if (slice->steps[d] != 1 || slice->starts[d] != (d == axis ? at : 0) || (d != axis && slice->extents[d] != shape[d])) return 0;
      }
      at += slice->extents[axis];
      if (at == shape[axis]) return i + 1 - first;
    }
    return 0;
  }

  Graph graph_;
  Uses uses_;
};

}  // namespace

Graph join_slices(Graph graph) { return SliceJoiner(std::move(graph)).run(); }

}  // namespace tamp::passes
