#include "compiler/passes/fuse/split_at_concats.h"

#include <algorithm>
#include <map>
#include <optional>
#include <tuple>

#include "compiler/passes/fuse/fuse_elementwise.h"
#include "compiler/passes/rewrite.h"
#include "compiler/passes/view_strides.h"

namespace tamp::passes {
namespace {

// An operand of the Concat. Of the chain's result it has the elements start, start + step, .. along the cut axis, `extent` of them.
struct ConcatPart {
  TensorId operand;
  int64_t start = 0, extent = 0;
};

struct ConcatCut {
  size_t input = 0;  // of the chain
  size_t axis = 0;   // of the chain's result
  int64_t step = 1;  // 1 where parts lie one behind the other; else they take turns
  std::vector<ConcatPart> parts;
};

class ConcatSplit {
 public:
  explicit ConcatSplit(Graph graph) : graph_(std::move(graph)), uses_(uses_of(graph_)) {}

  Graph run() {
    const std::vector<ROperator> rops = graph_.rops;
    for (const ROperator& rop : rops) {
      if (!std::holds_alternative<Elementwise>(rop.attrs) || !split(rop)) made_.push_back(rop);
    }
    graph_.rops = std::move(made_);
    return remove_dead(std::move(graph_));
  }

 private:
  bool split(const ROperator& chain) {
    for (size_t i = 0; i < chain.inputs.size(); ++i) {
      const std::optional<ConcatCut> cut = cut_at(chain, i);
      if (cut && gains(chain, *cut)) return emit(chain, *cut), true;
    }
    return false;
  }

  std::optional<ConcatCut> cut_at(const ROperator& chain, size_t input) const {
    const TensorId joined = chain.inputs[input];
    const Shape& shape = graph_.tensor(joined).shape;
    if (shape != graph_.tensor(chain.outputs[0]).shape || element_count(shape) == 0) return std::nullopt;
    if (const ROperator* concat = concat_for_one(joined)) {
      ConcatCut cut{input, static_cast<size_t>(std::get<Concat>(concat->attrs).axis), 1, {}};
      int64_t start = 0;
      for (const TensorId id : concat->inputs) {
        const int64_t extent = graph_.tensor(id).shape[cut.axis];
        if (extent == 0) return std::nullopt;
        cut.parts.push_back({id, start, extent});
        start += extent;
      }
      return cut.parts.size() > 1 ? std::optional(cut) : std::nullopt;
    }
    return cut_in_turns(joined, input);
  }

  // For a Reshape that joins the columns of a Concat with the dimension in front of them.
  std::optional<ConcatCut> cut_in_turns(TensorId joined, size_t input) const {
    const ROperatorId maker = uses_.maker_for_one(joined);
    if (!maker.valid() || !std::holds_alternative<Reshape>(graph_.rop(maker).attrs)) return std::nullopt;
    const ROperator* concat = concat_for_one(graph_.rop(maker).inputs[0]);
    const int64_t behind = concat ? std::get<Concat>(concat->attrs).axis : 0;
    if (behind == 0 || concat->inputs.size() < 2) return std::nullopt;
    ConcatCut cut{input, static_cast<size_t>(behind) - 1, static_cast<int64_t>(concat->inputs.size()), {}};
    Shape shape = graph_.tensor(concat->outputs[0]).shape;
    if (shape[cut.axis + 1] != cut.step) return std::nullopt;  // an operand has several columns, or none
    shape[cut.axis] *= cut.step;
    shape.erase(shape.begin() + behind);
    if (graph_.tensor(joined).shape != shape) return std::nullopt;
    for (const TensorId id : concat->inputs) {
      const ROperatorId column = uses_.maker_for_one(id);
      if (!column.valid() || !std::holds_alternative<Reshape>(graph_.rop(column).attrs)) return std::nullopt;
      shape[cut.axis] = graph_.tensor(id).shape[cut.axis];
      const TensorId operand = graph_.rop(column).inputs[0];
      if (graph_.tensor(operand).shape != shape) return std::nullopt;
      cut.parts.push_back({operand, static_cast<int64_t>(cut.parts.size()), shape[cut.axis]});
    }
    return cut;
  }

  const ROperator* concat_for_one(TensorId id) const {
    const ROperatorId maker = uses_.maker_for_one(id);
    return maker.valid() && std::holds_alternative<Concat>(graph_.rop(maker).attrs) ? &graph_.rop(maker) : nullptr;
  }

  bool gains(const ROperator& chain, const ConcatCut& cut) const {
    return std::all_of(cut.parts.begin(), cut.parts.end(),
                       [&](const ConcatPart& part) { return is_read_in_place(part.operand) || joins(chain, cut, part); });
  }

  // What would be copied into the Concat: an input, a constant, a part of another tensor.
  bool is_read_in_place(TensorId id) const {
    for (;;) {
      const ROperatorId maker = uses_.producer[id.index()];
      if (!maker.valid() || std::holds_alternative<Slice>(graph_.rop(maker).attrs)) return true;
      if (!is_view(graph_.rop(maker).attrs)) return false;
      id = graph_.rop(maker).inputs[0];
    }
  }

  // Whether the chain that makes the operand may become the beginning of the part's chain.
  bool joins(const ROperator& chain, const ConcatCut& cut, const ConcatPart& part) const {
    const ROperatorId maker = uses_.maker_for_one(part.operand);
    return maker.valid() && join_elementwise(graph_, graph_.rop(maker), on_part(chain, cut, part)).has_value();
  }

  static ROperator on_part(ROperator chain, const ConcatCut& cut, const ConcatPart& part) {
    chain.inputs[cut.input] = part.operand;
    return chain;
  }

  void emit(const ROperator& chain, const ConcatCut& cut) {
    ROperator concat;
    for (const ConcatPart& part : cut.parts) concat.inputs.push_back(emit_part(chain, cut, part, concat.inputs.size()));
    concat.name = chain.name;
    concat.outputs = chain.outputs;
    concat.origin = chain.origin;
    concat.attrs = Concat{static_cast<int64_t>(cut.axis)};
    if (cut.step > 1) {
      for (TensorId& id : concat.inputs) {
        Shape column = graph_.tensor(id).shape;
        column.insert(column.begin() + static_cast<std::ptrdiff_t>(cut.axis) + 1, 1);
        id = emit_view(chain, id, Reshape{column}, column);
      }
      Shape columns = graph_.tensor(concat.inputs[0]).shape;
      columns[cut.axis + 1] = cut.step;
      concat.attrs = Concat{static_cast<int64_t>(cut.axis) + 1};
      concat.outputs = {add_like(graph_, chain.outputs[0], chain.name + ".columns", columns)};
      concat.name += ".columns";
      const ROperator rows{chain.name, Reshape{graph_.tensor(chain.outputs[0]).shape}, {}, concat.outputs, chain.outputs, chain.origin};
      made_.push_back(std::move(concat));
      made_.push_back(rows);
    } else {
      made_.push_back(std::move(concat));
    }
  }

  TensorId emit_part(const ROperator& chain, const ConcatCut& cut, const ConcatPart& part, size_t number) {
    ROperator made = on_part(chain, cut, part);
    made.name += ".part" + std::to_string(number);
    Shape shape = graph_.tensor(chain.outputs[0]).shape;
    shape[cut.axis] = part.extent;
    auto& elementwise = std::get<Elementwise>(made.attrs);
    if (!elementwise.shape.empty()) elementwise.shape = shape;
    for (size_t i = 0; i < made.inputs.size(); ++i) {
      if (i != cut.input) made.inputs[i] = part_of(chain, made.inputs[i], cut, part);
    }
    made.outputs = {add_like(graph_, chain.outputs[0], made.name, shape)};
    if (!is_read_in_place(part.operand)) {
      const ROperator maker = graph_.rop(uses_.producer[part.operand.index()]);
      made = *join_elementwise(graph_, maker, made);
    }
    const TensorId result = made.outputs[0];
    made_.push_back(std::move(made));
    return result;
  }

  // What the part's chain reads of another operand of the chain: all of it where it broadcasts along the axis.
  TensorId part_of(const ROperator& chain, TensorId id, const ConcatCut& cut, const ConcatPart& part) {
    const Shape shape = graph_.tensor(id).shape;
    const size_t rank = graph_.tensor(chain.outputs[0]).shape.size(), missing = rank - shape.size();
    if (cut.axis < missing || shape[cut.axis - missing] == 1) return id;
    const size_t axis = cut.axis - missing;
    TensorId& made = parts_[{id, axis, part.start, cut.step, part.extent}];
    if (made.valid()) return made;
    Slice slice = whole_slice(shape);
    slice.starts[axis] = part.start;
    slice.steps[axis] = cut.step;
    slice.extents[axis] = part.extent;
    const Shape extents = slice.extents;
    return made = emit_view(chain, id, std::move(slice), extents);
  }

  TensorId emit_view(const ROperator& chain, TensorId from, OpAttrs attrs, const Shape& shape) {
    const std::string name = chain.name + ".view" + std::to_string(graph_.tensors.size());
    return append_view(graph_, made_, name, std::move(attrs), from, shape, chain.origin);
  }

  using PartKey = std::tuple<TensorId, size_t, int64_t, int64_t, int64_t>;  // tensor, axis, start, step, extent

  Graph graph_;
  Uses uses_;  // of the graph as it was
  std::vector<ROperator> made_;
  std::map<PartKey, TensorId> parts_;  // one Slice serves all chains
};

}  // namespace

Graph split_at_concats(Graph graph) { return ConcatSplit(std::move(graph)).run(); }

}  // namespace tamp::passes
