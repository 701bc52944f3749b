#include "compiler/passes/views/views_last.h"

#include "compiler/passes/rewrite.h"
#include "compiler/passes/view_strides.h"

namespace tamp::passes {
namespace {

class ViewsLast {
 public:
  explicit ViewsLast(Graph graph) : graph_(std::move(graph)), uses_(uses_of(graph_)) {}

  // One walk over the graph. Sets `changed` if a step and views were swapped.
  Graph run(bool& changed) {
    std::vector<ROperator> old = graph_.rops;
    std::vector<ROperator> made;
    for (ROperator& rop : old) {
      const std::optional<Swap> swap = swap_of(rop);
      changed |= swap.has_value();
      if (swap)
        emit(std::move(rop), *swap, made);
      else
        made.push_back(std::move(rop));
    }
    graph_.rops = std::move(made);
    return remove_dead(std::move(graph_));
  }

 private:
  struct Swap {
    size_t operand = 0;         // the operand of the step that views make
    TensorId product;           // the product that the views begin at
    std::vector<int64_t> perm;  // the views as one Transpose; empty where they leave all elements where they are
  };

  std::optional<Swap> swap_of(const ROperator& rop) const {
    if (!single_step(rop) || graph_.tensor(rop.outputs[0]).dtype != DType::f32) return std::nullopt;
    for (const TensorId id : rop.inputs) {  // only one of two products, or the two would be swapped in turns for ever
      if (is_made_by_product(id) && graph_.tensor(id).shape == graph_.tensor(rop.outputs[0]).shape) return std::nullopt;
    }
    for (size_t i = 0; i < rop.inputs.size(); ++i) {
      const std::optional<Swap> swap = swap_at(rop, i);
      if (!swap || graph_.tensor(rop.inputs[i]).shape != graph_.tensor(rop.outputs[0]).shape) continue;
      bool good = true;
      for (size_t k = 0; k < rop.inputs.size(); ++k) good &= k == i || can_follow(rop.inputs[k], rop.outputs[0], *swap);
      if (good) return swap;
    }
    return std::nullopt;
  }

  std::optional<Swap> swap_at(const ROperator& rop, size_t i) const {
    std::vector<const ROperator*> views;
    const TensorId product = product_behind(rop.inputs[i], views);
    if (!product.valid()) return std::nullopt;
    if (are_in_order(product, views)) return Swap{i, product, {}};
    if (!may_join_epilogue(single_step(rop)->op)) return std::nullopt;
    const std::vector<int64_t> perm = joined_perm(graph_.tensor(product).shape.size(), views);
    return perm.empty() ? std::nullopt : std::optional(Swap{i, product, perm});
  }

  // A step of another kind gains nothing by being moved in front of a Transpose, and would be parted from the steps behind it.
  static bool may_join_epilogue(ElementwiseOp op) { return op == ElementwiseOp::add || activation_of(op) != Activation::none; }

  // A Conv or MatMul, or one of the few steps behind one that its epilogue may take.
  bool is_product(const ROperator& rop, int steps = 4) const {
    if (std::holds_alternative<Conv>(rop.attrs) || std::holds_alternative<MatMul>(rop.attrs)) return true;
    if (steps == 0 || !single_step(rop)) return false;
    for (const TensorId id : rop.inputs) {
      const ROperatorId producer = uses_.producer[id.index()];
      if (!producer.valid() || uses_.consumers[id.index()].size() != 1 || graph_.tensor(id).shape != graph_.tensor(rop.outputs[0]).shape)
        continue;
      if (is_product(graph_.rop(producer), steps - 1)) return true;
    }
    return false;
  }

  bool is_made_by_product(TensorId id) const {
    const ROperatorId producer = uses_.maker_for_one(id);
    return producer.valid() && is_product(graph_.rop(producer));
  }

  // The result of a product (is_product) that `id` is a view of. Adds the views to `views`, the last one first.
  TensorId product_behind(TensorId id, std::vector<const ROperator*>& views) const {
    while (true) {
      const ROperatorId producer = uses_.maker_for_one(id);
      if (!producer.valid()) return TensorId();
      const ROperator& maker = graph_.rop(producer);
      if (is_product(maker)) break;
      if (!std::holds_alternative<Reshape>(maker.attrs) && !std::holds_alternative<Transpose>(maker.attrs)) return TensorId();
      views.push_back(&maker);
      id = maker.inputs[0];
    }
    return views.empty() || graph_.tensor(id).dtype != DType::f32 ? TensorId() : id;
  }

  // Whether the views leave the product's elements where they are in row-major order.
  bool are_in_order(TensorId product, const std::vector<const ROperator*>& views) const {
    std::optional<Placement> place = Placement{BufferId(), 0, row_major_strides(graph_.tensor(product).shape)};
    for (size_t i = views.size(); i-- > 0;) {
      place = view_place(graph_, *views[i], *place);
      if (!place || place->strides != row_major_strides(graph_.tensor(views[i]->outputs[0]).shape)) return false;
    }
    return true;
  }

  // Several Transposes joined to one; empty if one of the views is no Transpose.
  static std::vector<int64_t> joined_perm(size_t rank, const std::vector<const ROperator*>& views) {
    std::vector<int64_t> perm = range(0, static_cast<int64_t>(rank));
    for (size_t i = views.size(); i-- > 0;) {
      const auto* op = std::get_if<Transpose>(&views[i]->attrs);
      if (!op) return {};
      std::vector<int64_t> next;
      for (const int64_t d : op->perm) next.push_back(perm[static_cast<size_t>(d)]);
      perm = std::move(next);
    }
    return perm;
  }

  bool can_follow(TensorId other, TensorId result, const Swap& swap) const {
    const Tensor& tensor = graph_.tensor(other);
    if (tensor.dtype != DType::f32) return false;
    const Shape &wanted = graph_.tensor(result).shape, &to = graph_.tensor(swap.product).shape;
    if (tensor.shape == wanted || element_count(tensor.shape) == 1) return true;
    return swap.perm.empty() && tensor.shape.size() == 1 && !to.empty() && tensor.shape[0] == wanted.back() && to.back() == wanted.back();
  }

  TensorId add_view(TensorId from, const Shape& shape, OpAttrs attrs, const ROperator& rop, const char* what,
                    std::vector<ROperator>& made) {
    const TensorId to = add_like(graph_, from, graph_.tensor(from).name + what + rop.name, shape);
    made.push_back({rop.name + what + std::to_string(to.index()), std::move(attrs), {}, {from}, {to}, rop.origin});
    return to;
  }
  static Transpose inverse(const std::vector<int64_t>& perm) {
    Transpose op{perm};
    for (size_t i = 0; i < perm.size(); ++i) op.perm[static_cast<size_t>(perm[i])] = static_cast<int64_t>(i);
    return op;
  }

  void emit(ROperator rop, const Swap& swap, std::vector<ROperator>& made) {
    const TensorId result = rop.outputs[0];
    const Shape wanted = graph_.tensor(result).shape, shape = graph_.tensor(swap.product).shape;
    for (size_t i = 0; i < rop.inputs.size(); ++i) {
      const Shape other = graph_.tensor(rop.inputs[i]).shape;
      if (i == swap.operand)
        rop.inputs[i] = swap.product;
      else if (element_count(other) == 1 && other.size() > shape.size())
        rop.inputs[i] = add_view(rop.inputs[i], {}, Reshape{}, rop, ".as.", made);
      else if (element_count(other) != 1 && other == wanted)
        rop.inputs[i] = add_view(rop.inputs[i], shape, swap.perm.empty() ? OpAttrs(Reshape{shape}) : inverse(swap.perm), rop, ".as.", made);
    }
    rop.outputs[0] = add_tensor(graph_, {graph_.tensor(result).name + ".before", DType::f32, shape});
    std::get<Elementwise>(rop.attrs).shape.clear();
    if (std::get<Elementwise>(rop.attrs).may_change_type()) std::get<Elementwise>(rop.attrs).shape = shape;
    const OpAttrs seen = swap.perm.empty() ? OpAttrs(Reshape{wanted}) : OpAttrs(Transpose{swap.perm});
    const ROperator view{rop.name + ".view", seen, {}, {rop.outputs[0]}, {result}, rop.origin};
    made.push_back(std::move(rop));
    made.push_back(view);
  }

  Graph graph_;
  Uses uses_;
};

}  // namespace

Graph views_last(Graph graph) {
  for (bool changed = true; changed;) {  // what is moved lets what comes behind it move
    changed = false;
    graph = ViewsLast(std::move(graph)).run(changed);
  }
  return graph;
}

}  // namespace tamp::passes
