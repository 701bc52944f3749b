#include "compiler/passes/tidy/drop_roundings.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "compiler/passes/rewrite.h"

namespace tamp::passes {
namespace {

// A tensor times a number.
struct Scaled {
  TensorId of;
  double by = 1;
};

class Dropper {
 public:
  explicit Dropper(const Graph& graph) : graph_(graph), uses_(uses_of(graph)) {}

  // What the rOperator's result is the same as; none if it is none of these.
  TensorId same_as(const ROperator& rop) const {
    const ElementwiseStep* const step = single_step(rop);
    if (!step || uses_.is_output[rop.outputs[0].index()]) return {};  // outputs keep their names
    if (step->op == ElementwiseOp::rounded) return rounded_before(rop, *step);
    if (step->op == ElementwiseOp::where && rop.inputs.size() == 3) return guarded(rop);
    return {};
  }

 private:
  const ROperator* maker_of(TensorId id) const {
    const ROperatorId maker = uses_.producer[id.index()];
    return maker.valid() ? &graph_.rop(maker) : nullptr;
  }
  Scaled scaled(TensorId id) const {
    Scaled found{id};
    for (const ROperator* rop = maker_of(found.of); rop; rop = maker_of(found.of)) {
      const ElementwiseStep* const step = single_step(*rop);
      const bool divides = step && step->op == ElementwiseOp::div;
      if (!step || (step->op != ElementwiseOp::mul && !divides) || rop->inputs.size() != 2) break;
      const size_t at = divides || scalar_value(graph_, rop->inputs[1]) ? 0 : 1;
      const std::optional<float> number = scalar_value(graph_, rop->inputs[1 - at]);
      if (!number || *number == 0 || !std::isfinite(*number) || !has_shape_of(rop->inputs[at], id)) break;
      found.by *= divides ? 1.0 / *number : *number;
      found.of = rop->inputs[at];
    }
    return found;
  }
  bool has_shape_of(TensorId a, TensorId b) const { return graph_.tensor(a).shape == graph_.tensor(b).shape; }

  TensorId rounded_before(const ROperator& rop, const ElementwiseStep& step) const {
    const Scaled x = scaled(rop.inputs[0]);
    const std::optional<WholeRange> range = whole_range(graph_, x.of);
    if (!range || !has_shape_of(x.of, rop.outputs[0])) return {};
    constexpr double kSurely = 0.49;
    const double most = static_cast<double>(std::max(std::abs(range->low), std::abs(range->high)));
    const bool stays =
        std::abs(x.by - 1) * most < kSurely && static_cast<double>(range->low) >= step.a && static_cast<double>(range->high) <= step.b;
    return stays ? x.of : TensorId();
  }

  // where(is_nan(x), c, x)
  TensorId guarded(const ROperator& rop) const {
    const ROperator* const test = maker_of(rop.inputs[0]);
    const ElementwiseStep* const is_nan = test ? single_step(*test) : nullptr;
    const TensorId x = rop.inputs[2];
    if (!is_nan || is_nan->op != ElementwiseOp::is_nan || test->inputs[0] != x || !has_shape_of(x, rop.outputs[0])) return {};
    return whole_range(graph_, scaled(x).of) ? x : TensorId();
  }

  const Graph& graph_;
  Uses uses_;
};

}  // namespace

Graph drop_roundings(Graph graph) {
  // A guard may stand between two roundings: until nothing is dropped. Each round drops at least one rOperator.
  for (;;) {
    const Dropper dropper(graph);
    Replacements replaced(graph);
    std::vector<bool> dead(graph.rops.size(), false);
    for (size_t i = 0; i < graph.rops.size(); ++i) {
      const TensorId by = dropper.same_as(graph.rops[i]);
      if (!by.valid()) continue;
      replaced.replace(graph.rops[i].outputs[0], by);
      dead[i] = true;
    }
    if (std::find(dead.begin(), dead.end(), true) == dead.end()) return graph;
    graph = remove_dead(erase_rops(replaced.apply(std::move(graph)), dead));
  }
}

}  // namespace tamp::passes
