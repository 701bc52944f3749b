// evaluate and run: the dispatch over the operators, what is common to all of them, and the walk over a graph.

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
  TAMP_CHECK(static_cast<int64_t>(value.data->size()) == bytes, name + " has the wrong number of bytes");
}

void check_input(const Tensor& tensor, const Value& value) {
  const std::string name = "input '" + printable(tensor.name) + "'";
  if (value.dtype != tensor.dtype)
    throw bad_input("{} has element type {}, expected {}", name, name_of(value.dtype), name_of(tensor.dtype));
  if (value.shape != tensor.shape) throw bad_input("{} has shape {}, expected {}", name, shape_text(value.shape), shape_text(tensor.shape));
  const int64_t bytes = element_count(tensor.shape) * bytes_of(tensor.dtype);
  if (!value.data || static_cast<int64_t>(value.data->size()) != bytes)
    throw bad_input("{} does not hold the {} bytes of its shape", name, bytes);
}

// How often each tensor is still to be read; graph outputs count as one more read, which never comes, so their values stay.
std::vector<int> count_reads(const Graph& graph) {
  std::vector<int> reads(graph.tensors.size(), 0);
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
    : graph_(graph), values_(graph.tensors.size()), reads_left_(count_reads(graph)) {
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
  std::vector<Value> results = evaluate(graph_, graph_.rops[next_], [&](TensorId id) -> const Value& { return values_[id.index()]; });
  step(results);
  return results;
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
