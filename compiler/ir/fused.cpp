#include "compiler/ir/fused.h"

#include <algorithm>
#include <utility>

#include "compiler/ir/print.h"
#include "compiler/support/error.h"

namespace tamp {
namespace {

// Copies steps into a graph of their own.
class Fusion {
 public:
  explicit Fusion(const Graph& graph) : graph_(graph), inside_(graph.tensors.size()) {}

  void add_operand(TensorId id) {
    if (!id.valid() || inside_[id.index()].valid()) return;
    inside_[id.index()] = add(graph_.tensor(id), "i" + std::to_string(inputs_.size()), Role::input);
    body_.inputs.push_back(inside_[id.index()]);
    inputs_.push_back(id);
  }
  void add_step(const ROperator& step) {
    for (const TensorId id : reads_of(step)) add_operand(id);
    const auto* const fused = std::get_if<Fused>(&step.attrs);
    if (!fused) return copy(step, graph_, inside_);
    const Graph& body = *fused->body;  // steps as those of the whole
    std::vector<TensorId> inside(body.tensors.size());
    for (size_t i = 0; i < step.inputs.size(); ++i) inside[body.inputs[i].index()] = inside_[step.inputs[i].index()];
    for (const ROperator& own : body.rops) copy(own, body, inside);
    for (size_t i = 0; i < step.outputs.size(); ++i) inside_[step.outputs[i].index()] = inside[body.outputs[i].index()];
  }
  ROperator finish(std::string title, const std::vector<TensorId>& results) {
    for (const TensorId id : results) body_.outputs.push_back(inside_[id.index()]);
    return {"", Fused{std::move(title), std::make_shared<const Graph>(std::move(body_))}, {}, std::move(inputs_), results, {}};
  }

 private:
  // `inside`: what tensors of `graph` are in the body.
  void copy(const ROperator& step, const Graph& graph, std::vector<TensorId>& inside) {
    const auto of = [&](TensorId id) { return id.valid() ? inside[id.index()] : TensorId(); };
    ROperator made;
    made.name = "s" + std::to_string(body_.rops.size());
    made.origin = {made.name};
    made.attrs = step.attrs;
    made.epilogue = step.epilogue;
    made.epilogue.bias = of(step.epilogue.bias);
    made.epilogue.residual = of(step.epilogue.residual);
    for (const TensorId id : step.inputs) made.inputs.push_back(of(id));
    for (const TensorId id : step.outputs) {
      TAMP_CHECK(!of(id).valid(), "steps of '" + step.name + "' out of order");
      const std::string number = id == step.outputs[0] ? "" : "." + std::to_string(made.outputs.size());
      inside[id.index()] = add(graph.tensor(id), made.name + number, Role::activation);
      made.outputs.push_back(inside[id.index()]);
    }
    body_.rops.push_back(std::move(made));
  }
  TensorId add(const Tensor& tensor, std::string name, Role role) {
    return add_tensor(body_, {std::move(name), tensor.dtype, tensor.shape, role});
  }

  const Graph& graph_;
  std::vector<TensorId> inside_, inputs_;
  Graph body_;
};

}  // namespace

ROperator fuse(const Graph& graph, std::string title, const std::vector<ROperator>& steps, const std::vector<TensorId>& results,
               const std::vector<TensorId>& operands) {
  Fusion fusion(graph);
  for (const TensorId id : operands) fusion.add_operand(id);
  for (const ROperator& step : steps) fusion.add_step(step);
  ROperator whole = fusion.finish(std::move(title), results);
  whole.name = steps.back().name;
  for (const ROperator& step : steps) whole.origin.insert(whole.origin.end(), step.origin.begin(), step.origin.end());
  return whole;
}

Graph steps_of(const Graph& graph, const ROperator& rop) {
  Graph steps = *std::get<Fused>(rop.attrs).body;
  steps.buffers = graph.buffers;
  const auto take = [&](TensorId inside, TensorId outside) {
    const Tensor& from = graph.tensor(outside);
    Tensor& to = steps.tensor(inside);
    const bool is_made = to.role == Role::activation;
    to = from;
    if (is_made || from.role != Role::constant) to.role = is_made ? Role::activation : Role::input;
  };
  for (size_t i = 0; i < rop.inputs.size(); ++i) take(steps.inputs[i], rop.inputs[i]);
  for (size_t i = 0; i < rop.outputs.size(); ++i) take(steps.outputs[i], rop.outputs[i]);
  std::erase_if(steps.inputs, [&](TensorId id) { return steps.tensor(id).role != Role::input; });
  for (ROperator& step : steps.rops) step.name = rop.name;
  return steps;
}

std::optional<FusedView> FusedView::of(const ROperator& rop) {
  const auto* const fused = std::get_if<Fused>(&rop.attrs);
  return fused ? std::optional(FusedView(rop, *fused->body)) : std::nullopt;
}

TensorId FusedView::outside(TensorId inside) const {
  const auto in = [&](const std::vector<TensorId>& own, const std::vector<TensorId>& others) {
    const auto at = std::find(own.begin(), own.end(), inside);
    return inside.valid() && at != own.end() ? others[static_cast<size_t>(at - own.begin())] : TensorId();
  };
  const TensorId read = in(body_->inputs, rop_->inputs);
  return read.valid() ? read : in(body_->outputs, rop_->outputs);
}

const ROperator* FusedView::maker_of(TensorId inside) const {
  for (const ROperator& step : body_->rops) {
    if (std::find(step.outputs.begin(), step.outputs.end(), inside) != step.outputs.end()) return &step;
  }
  return nullptr;
}

TensorId FusedView::output(size_t step, size_t i) const {
  const std::vector<TensorId>& outputs = this->step(step).outputs;
  return i < outputs.size() ? outside(outputs[i]) : TensorId();
}

ROperator FusedView::alone(size_t step) const {
  ROperator rop = this->step(step);
  rop.name = rop_->name;
  for (TensorId& id : rop.inputs) id = outside(id);
  for (TensorId& id : rop.outputs) id = outside(id);
  rop.epilogue.bias = bias(step);
  rop.epilogue.residual = residual(step);
  return rop;
}

std::string title_of(const ROperator& rop) {
  const auto* const fused = std::get_if<Fused>(&rop.attrs);
  return fused ? fused->title : name_of(rop.attrs);
}

bool Fused::operator==(const Fused& other) const {
  return title == other.title && (body == other.body || structure_text(*body) == structure_text(*other.body));
}

}  // namespace tamp
