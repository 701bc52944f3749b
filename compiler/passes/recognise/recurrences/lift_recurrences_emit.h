// The graph under construction: rOperators are added behind the old ones and sorted at the end. Internal to lift_recurrences.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <unordered_set>
#include <vector>

#include "compiler/passes/recognise/recurrences/lift_recurrences_cells.h"
#include "compiler/passes/recognise/recurrences/lift_recurrences_strided.h"

namespace tamp::passes::lift {

class Emitter {
 public:
  explicit Emitter(const Graph& graph);

  const Graph& graph() const { return graph_; }
  const Shape& shape(TensorId id) const { return graph_.tensor(id).shape; }
  // The rOperator that makes a tensor now; null for inputs and constants.
  const ROperator* maker(TensorId id) const;

  TensorId add_tensor(const std::string& name, Shape shape);
  void add_rop(OpAttrs attrs, const std::string& name, std::vector<TensorId> inputs, std::vector<TensorId> outputs,
               std::vector<std::string> origin = {});
  // The tensor in shape `to` that `wanted` describes; nothing if no views make it. Equal ones are made once.
  std::optional<TensorId> add_view(TensorId from, const Strided& wanted, const Shape& to);
  // Makes the same views, of which the last one makes `result` in the place of `old`.
  bool remake(TensorId result, TensorId from, const Strided& wanted, const ROperator& old);
  TensorId reshaped(TensorId id, const Shape& to);
  TensorId concat(const std::vector<TensorId>& parts, int64_t axis);
  TensorId repeated(TensorId one, int64_t times);  // along dimension 0

  // W or R of a cell: the blocks of its parts side by side, rows in the gate order of ONNX.
  TensorId weights(const Constants& constants, const Cell& cell, const std::vector<size_t>& parts);
  TensorId bias(const Constants& constants, const Cell& cell);  // none if all zero

  // Removes the rOperator that makes a tensor, because another one is to make the tensor.
  void disown(TensorId id);
  void set_inputs(size_t rop, std::vector<TensorId> inputs) { graph_.rops[rop].inputs = std::move(inputs); }
  Graph finish();

 private:
  using Key = std::vector<int64_t>;
  void own(size_t rop);
  TensorId add_constant(const std::string& name, Shape shape, const std::vector<float>& values);
  using Names = std::unordered_set<std::string>;
  static std::string unique(Names& names, const std::string& name);

  Graph graph_;
  std::vector<int64_t> maker_;  // per tensor: position in graph_.rops, or -1
  std::vector<bool> dead_;      // per rOperator
  std::map<Key, TensorId> views_, weights_;
  Names tensor_names_, rop_names_;
};

}  // namespace tamp::passes::lift
