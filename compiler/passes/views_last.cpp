#include "compiler/passes/views_last.h"

#include "compiler/passes/rewrite.h"
#include "compiler/passes/view_strides.h"

namespace tamp::passes {
namespace {

class ViewsLast {
 public:
  explicit ViewsLast(Graph graph) : graph_(std::move(graph)), uses_(uses_of(graph_)) {}

  // Once; `changed` says whether there was anything.
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
    size_t operand = 0;  // that is seen through views
    TensorId product;    // what it is of
  };

  std::optional<Swap> swap_of(const ROperator& rop) const {
    if (!single_step(rop) || graph_.tensor(rop.outputs[0]).dtype != DType::f32) return std::nullopt;
    for (const TensorId id : rop.inputs) {  // of two products one is enough, or they would take turns
      if (is_made_by_product(id) && graph_.tensor(id).shape == graph_.tensor(rop.outputs[0]).shape) return std::nullopt;
    }
    for (size_t i = 0; i < rop.inputs.size(); ++i) {
      const TensorId product = product_behind(rop.inputs[i]);
      if (!product.valid() || graph_.tensor(rop.inputs[i]).shape != graph_.tensor(rop.outputs[0]).shape) continue;
      bool good = true;
      for (size_t k = 0; k < rop.inputs.size(); ++k) good &= k == i || can_follow(rop.inputs[k], rop.outputs[0], product);
      if (good) return Swap{i, product};
    }
    return std::nullopt;
  }

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
    const ROperatorId producer = uses_.producer[id.index()];
    return producer.valid() && !uses_.is_output[id.index()] && uses_.consumers[id.index()].size() == 1 && is_product(graph_.rop(producer));
  }

  // The result of such a one that `id` is a view of, its elements where they were.
  TensorId product_behind(TensorId id) const {
    std::vector<const ROperator*> views;
    while (true) {
      const ROperatorId producer = uses_.producer[id.index()];
      if (!producer.valid() || uses_.is_output[id.index()] || uses_.consumers[id.index()].size() != 1) return TensorId();
      const ROperator& maker = graph_.rop(producer);
      if (is_product(maker)) break;
      if (!std::holds_alternative<Reshape>(maker.attrs) && !std::holds_alternative<Transpose>(maker.attrs)) return TensorId();
      views.push_back(&maker);
      id = maker.inputs[0];
    }
    if (views.empty() || graph_.tensor(id).dtype != DType::f32) return TensorId();
    std::optional<Placement> place = Placement{BufferId(), 0, row_major_strides(graph_.tensor(id).shape)};
    for (size_t i = views.size(); i-- > 0;) {
      place = view_place(graph_, *views[i], *place);
      if (!place || place->strides != row_major_strides(graph_.tensor(views[i]->outputs[0]).shape)) return TensorId();
    }
    return id;
  }

  bool can_follow(TensorId other, TensorId result, TensorId product) const {
    const Tensor& tensor = graph_.tensor(other);
    if (tensor.dtype != DType::f32) return false;
    const Shape &wanted = graph_.tensor(result).shape, &to = graph_.tensor(product).shape;
    if (tensor.shape == wanted || element_count(tensor.shape) == 1) return true;
    return tensor.shape.size() == 1 && !to.empty() && tensor.shape[0] == wanted.back() && to.back() == wanted.back();
  }

  TensorId add_reshape(TensorId from, const Shape& shape, const ROperator& rop, const char* what, std::vector<ROperator>& made) {
    Tensor tensor;
    tensor.name = graph_.tensor(from).name + what + rop.name;
    tensor.dtype = graph_.tensor(from).dtype;
    tensor.shape = shape;
    const TensorId to = add_tensor(graph_, std::move(tensor));
    made.push_back({rop.name + what + std::to_string(to.index()), Reshape{shape}, {}, {from}, {to}, rop.origin});
    return to;
  }

  void emit(ROperator rop, const Swap& swap, std::vector<ROperator>& made) {
    const TensorId result = rop.outputs[0];
    const Shape wanted = graph_.tensor(result).shape, shape = graph_.tensor(swap.product).shape;
    for (size_t i = 0; i < rop.inputs.size(); ++i) {
      const Shape other = graph_.tensor(rop.inputs[i]).shape;
      if (i == swap.operand)
        rop.inputs[i] = swap.product;
      else if (element_count(other) == 1 && other.size() > shape.size())
        rop.inputs[i] = add_reshape(rop.inputs[i], {}, rop, ".as.", made);
      else if (element_count(other) != 1 && other == wanted)
        rop.inputs[i] = add_reshape(rop.inputs[i], shape, rop, ".as.", made);
    }
    Tensor before;
    before.name = graph_.tensor(result).name + ".before";
    before.dtype = DType::f32;
    before.shape = shape;
    rop.outputs[0] = add_tensor(graph_, std::move(before));
    std::get<Elementwise>(rop.attrs).shape.clear();
    if (std::get<Elementwise>(rop.attrs).may_change_type()) std::get<Elementwise>(rop.attrs).shape = shape;
    const ROperator view{rop.name + ".view", Reshape{wanted}, {}, {rop.outputs[0]}, {result}, rop.origin};
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
