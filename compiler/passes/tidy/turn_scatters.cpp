#include "compiler/passes/tidy/turn_scatters.h"

#include "compiler/passes/rewrite.h"

namespace tamp::passes {
namespace {

std::vector<int64_t> inverse_permutation(const std::vector<int64_t>& perm) {
  std::vector<int64_t> inverse(perm.size());
  for (size_t d = 0; d < perm.size(); ++d) inverse[static_cast<size_t>(perm[d])] = static_cast<int64_t>(d);
  return inverse;
}

class ScatterTurner {
 public:
  explicit ScatterTurner(Graph graph) : graph_(std::move(graph)), uses_(uses_of(graph_)), replaced_(graph_) {}

  Graph run() {
    std::vector<std::vector<ROperator>> made(graph_.rops.size());
    const std::vector<ROperator> rops = graph_.rops;
    for (size_t i = 0; i < rops.size(); ++i) made[i] = turned(rops[i]);
    return remove_dead(replaced_.apply(replace_rops(std::move(graph_), std::move(made))));
  }

 private:
  // The indices before they were repeated along other axes than the Scatter's, or as they are.
  TensorId indices_of(const ROperator& rop, const Scatter& scatter) const {
    const TensorId repeated = rop.inputs[1];
    const ROperator* const maker = maker_of(graph_, uses_, repeated);
    const ElementwiseStep* const step = maker ? single_step(*maker) : nullptr;
    if (!step || step->op != ElementwiseOp::identity || maker->inputs.size() != 1) return repeated;
    const Shape& from = graph_.tensor(maker->inputs[0]).shape;
    const auto axis = static_cast<size_t>(scatter.axis);
    Shape expected(graph_.tensor(repeated).shape.size(), 1);
    expected[axis] = graph_.tensor(repeated).shape[axis];
    return from == expected && graph_.tensor(repeated).dtype == graph_.tensor(maker->inputs[0]).dtype ? maker->inputs[0] : repeated;
  }

  // Empty where the rOperator stays.
  std::vector<ROperator> turned(const ROperator& given) {
    const auto* const scatter = std::get_if<Scatter>(&given.attrs);
    if (!scatter) return {};
    ROperator rop = given;
    rop.inputs[1] = indices_of(given, *scatter);
    const ROperator* const maker = maker_of(graph_, uses_, rop.inputs[0]);
    const auto* const turn = maker ? std::get_if<Transpose>(&maker->attrs) : nullptr;
    if (!turn) return rop.inputs[1] == given.inputs[1] ? std::vector<ROperator>() : std::vector{rop};
    const Transpose back{inverse_permutation(turn->perm)};
    std::vector<ROperator> rops;
    ROperator done = rop;
    done.attrs = Scatter{turn->perm[static_cast<size_t>(scatter->axis)], scatter->kind};
    done.inputs[0] = maker->inputs[0];
    for (size_t i = 1; i < 3; ++i) {
      const Shape from = graph_.tensor(rop.inputs[i]).shape;
      Shape to;
      for (const int64_t d : back.perm) to.push_back(from[static_cast<size_t>(d)]);
      done.inputs[i] = append_view(graph_, rops, rop.name + (i == 1 ? ".indices" : ".updates"), back, rop.inputs[i], to, rop.origin);
    }
    const TensorId result = rop.outputs[0];
    done.outputs = {add_like(graph_, result, graph_.tensor(result).name + ".turned", graph_.tensor(maker->inputs[0]).shape)};
    rops.push_back(done);
    rops.push_back({rop.name + ".turned", *turn, {}, done.outputs, {result}, rop.origin});
    replace_readers(result, back, done.outputs[0]);
    return rops;
  }

  // Who turns the result back reads what lies so. An output of the graph keeps its name.
  void replace_readers(TensorId result, const Transpose& back, TensorId by) {
    for (const ROperatorId reader : uses_.consumers[result.index()]) {
      const ROperator& rop = graph_.rop(reader);
      if (rop.attrs != OpAttrs(back)) continue;
      replaced_.replace(rop.outputs[0], by);
      if (uses_.is_output[rop.outputs[0].index()]) std::swap(graph_.tensor(by).name, graph_.tensor(rop.outputs[0]).name);
    }
  }

  Graph graph_;
  Uses uses_;  // of the graph as it was
  Replacements replaced_;
};

}  // namespace

Graph turn_scatters(Graph graph) { return ScatterTurner(std::move(graph)).run(); }

}  // namespace tamp::passes
