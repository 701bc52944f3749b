#include "compiler/passes/fuse/repeat_scalars.h"

#include <algorithm>
#include <map>

#include "compiler/ops/ops.h"
#include "compiler/passes/fuse/fuse_elementwise.h"
#include "compiler/passes/rewrite.h"

namespace tamp::passes {
namespace {

class ScalarRepeater {
 public:
  explicit ScalarRepeater(Graph graph) : graph_(std::move(graph)), uses_(uses_of(graph_)) {}

  // Backwards, so that what a chain reads is still as it was.
  Graph run() {
    for (size_t i = graph_.rops.size(); i-- > 0;) repeat_in(graph_.rops[i]);
    return changed_ ? remove_dead(std::move(graph_)) : std::move(graph_);
  }
  bool changed() const { return changed_; }

 private:
  // A chain of f32, or bool in between, without a cast: those that can be joined.
  bool is_plain(const ROperator& rop) const {
    const auto* const chain = std::get_if<Elementwise>(&rop.attrs);
    const auto plain = [&](TensorId id) { return graph_.tensor(id).dtype == DType::f32 || graph_.tensor(id).dtype == DType::boolean; };
    const auto casts = [](const ElementwiseStep& step) { return step.op == ElementwiseOp::cast; };
    return chain && plain(rop.outputs[0]) && std::all_of(rop.inputs.begin(), rop.inputs.end(), plain) &&
           std::none_of(chain->steps.begin(), chain->steps.end(), casts);
  }

  // The rOperators that make single numbers which lead to the tensor, each behind those that it reads.
  void collect(TensorId id, std::vector<const ROperator*>& found) const {
    const ROperator* const maker = maker_of(graph_, uses_, id);
    if (!maker || element_count(graph_.tensor(id).shape) != 1 || !is_plain(*maker)) return;
    if (std::find(found.begin(), found.end(), maker) != found.end()) return;
    for (const TensorId input : maker->inputs) collect(input, found);
    found.push_back(maker);
  }

  void repeat_in(ROperator& rop) {
    if (!is_plain(rop)) return;
    std::vector<const ROperator*> makers;
    for (const TensorId id : rop.inputs) collect(id, makers);
    for (; !makers.empty(); makers.erase(makers.begin())) {
      const std::optional<Elementwise> chain = joined(makers, rop);
      if (!chain) continue;
      for (auto maker = makers.rbegin(); maker != makers.rend(); ++maker) prepend_origin(rop, **maker);
      rop.attrs = *chain;
      rop.inputs = inputs_;
      changed_ = true;
      return;
    }
  }

  // The steps of `makers`, and those of `rop` behind them. The operands are in inputs_.
  std::optional<Elementwise> joined(const std::vector<const ROperator*>& makers, const ROperator& rop) {
    std::map<TensorId, int32_t> made;  // the step that makes a tensor
    Elementwise all = std::get<Elementwise>(rop.attrs);
    all.steps.clear();
    inputs_.clear();
    const auto append = [&](const ROperator& from) {
      const auto before = static_cast<int32_t>(all.steps.size());
      for (ElementwiseStep step : std::get<Elementwise>(from.attrs).steps) {
        for (int32_t& v : step.operands) {
          if (v < 0) {
            v -= before;
            continue;
          }
          const TensorId id = from.inputs[static_cast<size_t>(v)];
          const auto step_of = made.find(id);
          v = step_of != made.end() ? step_of->second : input(id);
        }
        all.steps.push_back(std::move(step));
      }
      made[from.outputs[0]] = -static_cast<int32_t>(all.steps.size());
    };
    for (const ROperator* const maker : makers) append(*maker);
    append(rop);
    if (all.steps.size() > kMostChainSteps || inputs_.size() > kMostChainInputs) return std::nullopt;
    Shape shape;
    for (const TensorId id : inputs_) shape = ops::broadcast(shape, graph_.tensor(id).shape);
    if (all.shape.empty() && shape != graph_.tensor(rop.outputs[0]).shape) return std::nullopt;
    return all;
  }

  // Place of the tensor among the operands. Equal numbers are one.
  int32_t input(TensorId id) {
    const std::optional<float> number = scalar_value(graph_, id);
    const auto is_same = [&](TensorId other) {
      return other == id || (number && graph_.tensor(other).shape == graph_.tensor(id).shape && scalar_value(graph_, other) == number);
    };
    const auto found = std::find_if(inputs_.begin(), inputs_.end(), is_same);
    const auto place = static_cast<int32_t>(found - inputs_.begin());
    if (found == inputs_.end()) inputs_.push_back(id);
    return place;
  }

  Graph graph_;
  Uses uses_;                     // who makes what does not change
  std::vector<TensorId> inputs_;  // of the chain that is being joined
  bool changed_ = false;
};

}  // namespace

Graph repeat_scalars(Graph graph, const GraphEstimator& graphs) {
  if (!graphs) return graph;
  ScalarRepeater repeater(graph);
  Graph made = repeater.run();
  return repeater.changed() && graphs(made) < graphs(graph) ? made : graph;
}

}  // namespace tamp::passes
