// Helpers that several passes share: patterns of constants and single elementwise steps, and rewiring of tensors.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "compiler/ir/graph.h"
#include "compiler/ir/products.h"

namespace tamp::passes {

inline bool is_constant(const Graph& graph, TensorId id) { return graph.tensor(id).role == Role::constant; }
bool all_are(const std::vector<int64_t>& values, int64_t wanted);  // true of none

Activation activation_of(ElementwiseOp op);  // by which an epilogue does the same; else none

// The rOperator that makes the tensor; null for inputs, constants, and tensors newer than `uses`.
const ROperator* maker_of(const Graph& graph, const Uses& uses, TensorId id);
// The same if it is an Elementwise of the one step `op`; else null.
const ROperator* maker_by(const Graph& graph, const Uses& uses, TensorId id, ElementwiseOp op);

// A new activation of the type of `like`.
TensorId add_like(Graph& graph, TensorId like, std::string name, Shape shape);

// A view of `from`, whose rOperator, of the same name, is put behind `rops`.
TensorId append_view(Graph& graph, std::vector<ROperator>& rops, const std::string& name, OpAttrs view, TensorId from, const Shape& shape,
                     const std::vector<std::string>& origin = {});
// The order of dimensions that has dimension `first` and the one behind it swapped.
std::vector<int64_t> swapped(size_t rank, size_t first);

ROperator make_elementwise(std::string name, std::vector<ElementwiseStep> steps, std::vector<TensorId> inputs, TensorId output);
ROperator make_copy(std::string name, TensorId from, TensorId to);  // one step `identity`

// An f32 constant with the values of another, of which row i is multiplied by factors[i], or with `by_columns` column i. A row is as long
// as the dimensions behind the first. The values are made when they are read: weights may be large.
TensorId add_scaled(Graph& graph, std::string name, const Tensor& constant, std::vector<float> factors, bool by_columns);

// Values of an f32 constant repeated to `to`, which it broadcasts to.
std::vector<float> broadcast_values(const Tensor& constant, const Shape& to);

// The values along dimension `axis` of an f32 constant that broadcasts to `to` and varies along no other dimension; nothing
// if it does vary.
std::optional<std::vector<float>> values_along(const Tensor& constant, const Shape& to, size_t axis);

// The only value of an f32 constant of one element.
std::optional<float> scalar_value(const Graph& graph, TensorId id);

// Whether the operand is missing, or an f32 constant of one value for each of `columns`.
bool is_row_or_none(const Graph& graph, TensorId id, int64_t columns);
// Whether it is a Normalize of f32 along the last dimension alone, row by row as they lie, with a scale and shift as is_row_or_none.
bool normalizes_rows(const Graph& graph, const ROperator& rop);

// Whether the result has its operand's elements in their order: a Reshape, or a Transpose that moves dimensions of one element alone.
// Example: attention as PyTorch exports it for batch 1 turns [1,197,768] into [197,1,768].
bool keeps_order(const Graph& graph, const ROperator& rop);

// Puts the ONNX nodes of `first` before those of `rop` in rop.origin.
void prepend_origin(ROperator& rop, const ROperator& first);
// ONNX nodes of all rOperators that lead from tensors of `from` to rOperator `to`, in the graph's order.
std::vector<std::string> origin_between(const Graph& graph, const Uses& uses, const std::vector<TensorId>& from, size_t to);

// Notes that tensors are replaced by others and rewires a graph once at the end. Chains of replacements are followed.
class Replacements {
 public:
  explicit Replacements(const Graph& graph) : by_(graph.tensors.size()) {}
  void replace(TensorId tensor, TensorId by) { by_[tensor.index()] = by; }
  TensorId resolve(TensorId id) const;
  Graph apply(Graph graph) const;  // operands, epilogues and graph outputs

 private:
  mutable std::vector<TensorId> by_;  // none = kept; resolve makes chains short
};

Graph erase_rops(Graph graph, const std::vector<bool>& dead);
// Puts made[i], where there is any, in the place of rOperator i.
Graph replace_rops(Graph graph, std::vector<std::vector<ROperator>> made);

}  // namespace tamp::passes
