#include "compiler/passes/fuse/fuse_elementwise.h"

#include <algorithm>

#include "compiler/passes/rewrite.h"

namespace tamp::passes {
namespace {

// A joined chain: operands without repetition, steps in SSA form.
struct Joined {
  std::vector<TensorId> inputs;
  std::vector<ElementwiseStep> steps;
};

// `producer` computed inside of `consumer`: its steps come first.
Joined join_chains(const ROperator& producer, const ROperator& consumer) {
  Joined joined;
  const auto input = [&](TensorId id) {
    const auto found = std::find(joined.inputs.begin(), joined.inputs.end(), id);
    if (found != joined.inputs.end()) return static_cast<int32_t>(found - joined.inputs.begin());
    joined.inputs.push_back(id);
    return static_cast<int32_t>(joined.inputs.size()) - 1;
  };
  for (const ElementwiseStep& step : std::get<Elementwise>(producer.attrs).steps) {
    joined.steps.push_back(step);
    for (int32_t& v : joined.steps.back().operands) v = v >= 0 ? input(producer.inputs[static_cast<size_t>(v)]) : v;
  }
  const auto before = static_cast<int32_t>(joined.steps.size());
  for (const ElementwiseStep& step : std::get<Elementwise>(consumer.attrs).steps) {
    joined.steps.push_back(step);
    for (int32_t& v : joined.steps.back().operands) {
      if (v < 0)
        v -= before;
      else if (consumer.inputs[static_cast<size_t>(v)] == producer.outputs[0])
        v = -before;  // the producer's last step
      else
        v = input(consumer.inputs[static_cast<size_t>(v)]);
    }
  }
  return joined;
}

bool has_cast(const ROperator& rop) {
  const auto& steps = std::get<Elementwise>(rop.attrs).steps;
  return std::any_of(steps.begin(), steps.end(), [](const ElementwiseStep& step) { return step.op == ElementwiseOp::cast; });
}

// If a step repeats its input or changes the type, the joined chain states the type of its result.
Elementwise joined_attributes(const Graph& graph, const ROperator& producer, const ROperator& consumer,
                              std::vector<ElementwiseStep> steps) {
  const auto &first = std::get<Elementwise>(producer.attrs), &second = std::get<Elementwise>(consumer.attrs);
  const Tensor& result = graph.tensor(consumer.outputs[0]);
  Elementwise joined{std::move(steps)};
  if (!first.shape.empty() || !second.shape.empty()) joined.shape = result.shape;
  if (first.dtype || second.dtype) joined.dtype = result.dtype;
  return joined;
}

// Steps in between have no element type of their own: f32, or bool after a comparison. A cast is to the type of the result.
bool types_allow(const Graph& graph, const ROperator& producer, const ROperator& consumer) {
  const auto plain = [&](TensorId id) { return graph.tensor(id).dtype == DType::f32 || graph.tensor(id).dtype == DType::boolean; };
  for (const ROperator* rop : {&producer, &consumer}) {
    if (!std::all_of(rop->inputs.begin(), rop->inputs.end(), plain) || !plain(rop->outputs[0])) return false;
  }
  return !has_cast(producer) || graph.tensor(producer.outputs[0]).dtype == graph.tensor(consumer.outputs[0]).dtype;
}

class ElementwiseFuser {
 public:
  explicit ElementwiseFuser(Graph graph) : graph_(std::move(graph)), uses_(uses_of(graph_)), dead_(graph_.rops.size(), false) {}

  Graph run() {
    for (size_t i = graph_.rops.size(); i-- > 0;) {
      if (dead_[i] || !std::holds_alternative<Elementwise>(graph_.rops[i].attrs)) continue;
      while (absorb_one(graph_.rops[i])) {
      }
    }
    return remove_dead(erase_rops(std::move(graph_), dead_));
  }

 private:
  bool absorb_one(ROperator& consumer) {
    for (const TensorId id : consumer.inputs) {
      const ROperatorId from = uses_.producer[id.index()];
      if (!from.valid() || !may_join(graph_.rop(from), consumer)) continue;
      std::optional<ROperator> joined = join_elementwise(graph_, graph_.rop(from), consumer);
      if (!joined) continue;
      forget_reader(graph_.rop(from).inputs, from);
      const ROperatorId at = uses_.producer[consumer.outputs[0].index()];
      consumer = *std::move(joined);
      add_reader(consumer.inputs, at);
      dead_[from.index()] = true;
      return true;
    }
    return false;
  }

  bool may_join(const ROperator& producer, const ROperator& consumer) const {
    if (!std::holds_alternative<Elementwise>(producer.attrs)) return false;
    const TensorId made = producer.outputs[0];
    const ROperatorId reader = uses_.producer[consumer.outputs[0].index()];
    const auto reads_elsewhere = [&](ROperatorId id) { return id != reader; };
    const std::vector<ROperatorId>& readers = uses_.consumers[made.index()];
    if (uses_.is_output[made.index()] || std::any_of(readers.begin(), readers.end(), reads_elsewhere)) return false;
    return graph_.tensor(made).shape == graph_.tensor(consumer.outputs[0]).shape;
  }

  void forget_reader(const std::vector<TensorId>& inputs, ROperatorId reader) {
    for (const TensorId id : inputs) std::erase(uses_.consumers[id.index()], reader);
  }
  void add_reader(const std::vector<TensorId>& inputs, ROperatorId reader) {
    for (const TensorId id : inputs) {
      std::vector<ROperatorId>& readers = uses_.consumers[id.index()];
      if (std::find(readers.begin(), readers.end(), reader) == readers.end()) readers.push_back(reader);
    }
  }

  Graph graph_;
  Uses uses_;
  std::vector<bool> dead_;
};

}  // namespace

std::optional<ROperator> join_elementwise(const Graph& graph, const ROperator& producer, const ROperator& consumer) {
  if (!std::holds_alternative<Elementwise>(producer.attrs) || !types_allow(graph, producer, consumer)) return std::nullopt;
  Joined joined = join_chains(producer, consumer);
  if (joined.inputs.size() > kMostChainInputs || joined.steps.size() > kMostChainSteps) return std::nullopt;
  ROperator rop = consumer;
  rop.attrs = joined_attributes(graph, producer, consumer, std::move(joined.steps));
  rop.inputs = std::move(joined.inputs);
  prepend_origin(rop, producer);
  return rop;
}

Graph fuse_elementwise(Graph graph) { return ElementwiseFuser(std::move(graph)).run(); }

}  // namespace tamp::passes
