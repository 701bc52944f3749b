// evaluate and run: the dispatch over the operators, what is common to all of them, and the walk over a graph.

#include <algorithm>

#include "compiler/ops/operator.h"
#include "compiler/support/text.h"

namespace tamp::ops {
namespace {

// A value that disagrees with its tensor would be read out of bounds.
void check_value(const Graph& graph, TensorId id, const Value& value) {
  const Tensor& tensor = graph.tensor(id);
  const std::string name = "value of tensor '" + printable(tensor.name) + "'";
  TAMP_CHECK(value.data != nullptr, name + " is missing");
  TAMP_CHECK(value.dtype == tensor.dtype, name + " is " + name_of(value.dtype) + ", the tensor is " + name_of(tensor.dtype));
  TAMP_CHECK(value.shape == tensor.shape, name + " is " + shape_text(value.shape) + ", the tensor is " + shape_text(tensor.shape));
  const int64_t bytes = element_count(value.shape) * bytes_of(value.dtype);
  TAMP_CHECK(static_cast<int64_t>(value.data.size()) == bytes, name + " has the wrong number of bytes");
}

void check_input(const Tensor& tensor, const Value& value) {
  const std::string name = "input '" + printable(tensor.name) + "'";
  if (value.dtype != tensor.dtype)
    throw bad_input("{} has element type {}, expected {}", name, name_of(value.dtype), name_of(tensor.dtype));
  if (value.shape != tensor.shape) throw bad_input("{} has shape {}, expected {}", name, shape_text(value.shape), shape_text(tensor.shape));
  const int64_t bytes = element_count(tensor.shape) * bytes_of(tensor.dtype);
  if (!value.data || static_cast<int64_t>(value.data.size()) != bytes)
    throw bad_input("{} does not hold the {} bytes of its shape", name, bytes);
}

// How often each tensor is still to be read; graph outputs count as one more read, which never comes, so their values stay. So do all where
// there are loops, which read them again.
std::vector<int> count_reads(const Graph& graph) {
  std::vector<int> reads(graph.tensors.size(), has_loops(graph) ? 1 : 0);
  for (const ROperator& rop : graph.rops) {
    for (const TensorId id : reads_of(rop)) ++reads[id.index()];
  }
  for (const TensorId id : graph.outputs) ++reads[id.index()];
  return reads;
}

}  // namespace

std::vector<Value> evaluate(const Graph& graph, const ROperator& rop, const ValueOf& value_of) {
  verify_shapes(graph, rop);
  for (const TensorId id : reads_of(rop)) check_value(graph, id, value_of(id));
  const Call call{graph, rop, value_of};
  std::vector<Value> values = std::visit([&](const auto& op) { return evaluate(op, call); }, rop.attrs);
  values[0] = apply_epilogue(call, std::move(values[0]));
  return values;
}

Walk::Walk(const Graph& graph, const std::vector<Value>& inputs)
    : graph_(graph), values_(graph.tensors.size()), reads_left_(count_reads(graph)), nests_(loop_nests(graph)) {
  if (inputs.size() != graph.inputs.size()) throw bad_input("the model has {} inputs, {} were given", graph.inputs.size(), inputs.size());
  for (size_t t = 0; t < graph.tensors.size(); ++t) {
    const Tensor& tensor = graph.tensors[t];
    if (tensor.role == Role::constant) values_[t] = Value{tensor.dtype, tensor.shape, tensor.data};
  }
  for (size_t i = 0; i < inputs.size(); ++i) {
    check_input(graph.tensor(graph.inputs[i]), inputs[i]);
    values_[graph.inputs[i].index()] = inputs[i];
  }
}

std::vector<Value> Walk::step() {
  TAMP_CHECK(!is_done(), "a step after the last rOperator");
  std::vector<Value> results = results_of(next_);
  step(results);
  return results;
}

std::vector<Value> Walk::results_of(size_t i) {
  const ROperator& rop = graph_.rops[i];
  const ValueOf value_of = [&](TensorId id) -> const Value& { return values_[id.index()]; };
  if (!std::holds_alternative<LoopEnd>(rop.attrs)) return evaluate(graph_, rop, value_of);
  // What an iteration makes of the first values has been computed on the way here, whether there is an iteration or not.
  const int64_t loop = std::get<LoopEnd>(rop.attrs).loop;
  const auto goes_on = [](const std::vector<Value>& values) { return values[0].data->front() != std::byte{0}; };
  std::vector<Value> values;
  for (size_t k = 0; k < rop.outputs.size(); ++k) values.push_back(value_of(rop.inputs[k]));
  while (goes_on(values)) {
    values = evaluate(graph_, rop, value_of);
    if (!goes_on(values)) break;
    for (size_t k = 0; k < values.size(); ++k) values_[rop.inputs[k].index()] = values[k];
    for (size_t j = 0; j < i; ++j) {
      const std::vector<int64_t>& nest = nests_.of_rop[j];
      if (std::find(nest.begin(), nest.end(), loop) == nest.end()) continue;
      const std::vector<Value> results = results_of(j);
      for (size_t k = 0; k < results.size(); ++k) values_[graph_.rops[j].outputs[k].index()] = results[k];
    }
  }
  return values;
}

void Walk::step(const std::vector<Value>& results) {
  TAMP_CHECK(!is_done(), "a step after the last rOperator");
  const ROperator& rop = graph_.rops[next_++];
  TAMP_CHECK(results.size() == rop.outputs.size(), "a rOperator with another number of results");
  for (size_t i = 0; i < results.size(); ++i) values_[rop.outputs[i].index()] = results[i];
  for (const TensorId id : reads_of(rop)) {
    if (--reads_left_[id.index()] == 0) values_[id.index()] = Value{};
  }
}

std::vector<Value> run(const Graph& graph, const std::vector<Value>& inputs) {
  Walk walk(graph, inputs);
  while (!walk.is_done()) walk.step();
  std::vector<Value> outputs;
  for (const TensorId id : graph.outputs) outputs.push_back(walk.value(id));
  return outputs;
}

void verify_shapes(const Graph& graph) {
  for (const ROperator& rop : graph.rops) verify_shapes(graph, rop);
}

}  // namespace tamp::ops
