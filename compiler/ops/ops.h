// Functions on every internal operator. `infer` gives the types of its results, for the frontend and the verifier. `evaluate` is the CPU
// reference, used to fold constants and by `tamp run --check`; it is plain and exact rather than fast, but fast enough for a ResNet-50 in a
// few seconds. The others answer questions of passes. Each operator's part is in compiler/ops/OPERATOR.cpp (operator.h).
#pragma once

#include <functional>
#include <optional>
#include <vector>

#include "compiler/ir/graph.h"
#include "compiler/ir/loops.h"

namespace tamp::ops {

// A tensor's values, row-major in logical order.
struct Value {
  DType dtype = DType::f32;
  Shape shape;
  TensorData data;
};

// The numbers as they lie in memory.
template <class T>
Value raw_value(DType dtype, Shape shape, const std::vector<T>& numbers) {
  const auto* const first = reinterpret_cast<const std::byte*>(numbers.data());
  return {dtype, std::move(shape), std::make_shared<const Bytes>(first, first + numbers.size() * sizeof(T))};
}

template <class T>
std::vector<T> raw_numbers(const Value& value) {
  const auto* const first = reinterpret_cast<const T*>(value.data->data());
  return std::vector<T>(first, first + element_count(value.shape));
}

struct TensorType {
  DType dtype = DType::f32;
  Shape shape;
  bool operator==(const TensorType&) const = default;
};

// What is known of an operand when the types of the results are asked for.
struct Operand {
  TensorType type;
  const Bytes* values = nullptr;  // null where they are known only at run time
};
using OperandList = std::vector<std::optional<Operand>>;  // none where an operand is left out

// The types of the results. Error in a user's words, without the name of the node, if the operands do not fit.
std::vector<TensorType> infer(const OpAttrs& attrs, const OperandList& operands);

// How long the reference takes, before it is run: in steps of about half a nanosecond on one core. Saturates.
int64_t work_of(const OpAttrs& attrs, const OperandList& operands, const std::vector<TensorType>& results);
int64_t work_of(const Graph& graph, const ROperator& rop);

// A model of a megabyte can ask for hours of folding. Work beyond this is left to the device, or refused.
inline constexpr int64_t kFoldTotalWork = int64_t{2'000'000'000};

// How an operator likes its first result to lie in memory.
enum class Layout : uint8_t {
  row_major,
  channels_last,
  like_largest,  // as its largest operand
  like_equal,    // as its largest operand if that has the result's shape, else row-major
  view,          // the result is where the operand's elements are: strides, no work
};
Layout layout_of(const OpAttrs& attrs);
Layout layout_of(const OpAttrs& attrs, size_t result);  // the same of another result

// Whether the result equals the operand. Asked only of operators with one operand and one result of the same type and shape, and not of
// Transposes, of which the shape decides (passes/rewrite.h, keeps_order).
bool is_identity(const OpAttrs& attrs);

// Whether the device has no body for results of `dtype` (never f32), so that f32 is used instead if f32 holds all values of `dtype`.
bool is_f32_only(const OpAttrs& attrs, DType dtype);

// Runs one rOperator, epilogue included, at the shapes and types that graph gives its output tensors. `value_of` gives
// the value of any tensor that the rOperator reads. Sums are accumulated in double for small reductions and at least
// pairwise in fp32 for large products, so that the result is a reference for every device precision.
using ValueOf = std::function<const Value&(TensorId)>;
std::vector<Value> evaluate(const Graph& graph, const ROperator& rop, const ValueOf& value_of);

// Runs a graph one rOperator at a time. A value is forgotten once all that read it have run, so that the memory of a deep network stays
// small; constants and outputs of the graph stay. `graph` must outlive it.
class Walk {
 public:
  // `inputs` in the order of graph.inputs; Error (bad input) if they do not fit.
  Walk(const Graph& graph, const std::vector<Value>& inputs);
  bool is_done() const { return next_ == graph_.rops.size(); }
  // Runs the next rOperator and returns its results.
  std::vector<Value> step();
  // As if the next rOperator had had these results.
  void step(const std::vector<Value>& results);
  const Value& value(TensorId id) const { return values_[id.index()]; }

 private:
  std::vector<Value> results_of(size_t i);

  const Graph& graph_;
  std::vector<Value> values_;    // by tensor
  std::vector<int> reads_left_;  // by tensor
  LoopNests nests_;
  size_t next_ = 0;
};

// Runs the whole graph; `inputs` in the order of graph.inputs; returns the outputs in the order of graph.outputs.
std::vector<Value> run(const Graph& graph, const std::vector<Value>& inputs);

// The elements of a float type as f32.
Bytes f32_bytes(DType dtype, const Bytes& elements);

// TAMP_CHECK that the outputs of every rOperator are what `infer` says (called between passes).
void verify_shapes(const Graph& graph);

// numpy broadcasting of two shapes; Error (bad input) that names both if they do not.
Shape broadcast(const Shape& a, const Shape& b);

}  // namespace tamp::ops
