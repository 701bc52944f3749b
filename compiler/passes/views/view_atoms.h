// A chain of views as one view: the last tensor's dimensions as parts of the dimensions of the tensor at the chain's beginning. Strides
// need not be able to express the steps in between.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "compiler/ir/graph.h"

namespace tamp::passes {

// A part of one dimension of the base. Example: of 2304 = 3 * 768 the 3 has `inner` 768, and the 768 has 1.
struct Atom {
  size_t dimension = 0;
  int64_t inner = 1, extent = 1;
  int64_t start = 0, step = 1, count = 1;  // the part of the extent that Slices leave

  bool is_whole() const { return start == 0 && step == 1 && count == extent; }
};

// Example: Reshape [197,8,768] -> [197,96,64], then Transpose {perm=[1,0,2]}: atoms 197, 8, 12, 64; dims (8, 12), (197), (64).
struct Seen {
  TensorId base;
  std::vector<Atom> atoms;                // in the base's order
  std::vector<std::vector<size_t>> dims;  // per dimension of the tensor its atoms, outermost first; none where the extent is 1

  std::vector<size_t> order() const;  // all dims in a row
  bool is_whole() const;              // no Slice is left
  bool is_in_order() const;           // whole, and each element where it is in the base
};

Seen seen_whole(const Graph& graph, TensorId id);
// The view of a view: `operand` as seen through `view`. None where a Reshape or a Slice cuts a part in pieces.
std::optional<Seen> seen_through(const Graph& graph, const ROperator& view, const Seen& operand);
// Strides that show it in a base of these strides, if there are any.
std::optional<std::vector<int64_t>> strides_of(const Seen& seen, const std::vector<int64_t>& base);

// A list of rOperators that grows, and their results as views of tensors that are no views.
class SeenTensors {
 public:
  explicit SeenTensors(Graph& graph) : graph_(graph) {}

  void emit(ROperator rop);
  Seen seen(TensorId id) const;
  const ROperator* maker(TensorId id) const;
  // The tensor of this shape that shows `seen`, by views that are put behind the others; the base where that is the same.
  TensorId show(const Seen& seen, const Shape& shape, const ROperator& reason);
  void show_as(TensorId to, const Seen& seen, const ROperator& reason);
  TensorId tensor(const std::string& name, Shape shape);
  std::vector<ROperator> take() { return std::move(rops_); }

 private:
  TensorId view(TensorId base, TensorId from, Shape shape, OpAttrs attrs, const ROperator& reason);
  TensorId turned(const Seen& seen, const ROperator& reason);

  Graph& graph_;
  std::vector<ROperator> rops_;
  std::map<TensorId, size_t> maker_;
  std::map<TensorId, Seen> seen_;
};

}  // namespace tamp::passes
