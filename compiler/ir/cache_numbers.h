// Numbers of a decoder's step that a graph makes of its inputs: at which place of a cache of constant size the token's rows go, and how
// many keys count. Importers write them as rOperators on whole numbers, single steps at that stage and later.
#pragma once

#include <functional>
#include <optional>
#include <vector>

#include "compiler/ir/fused.h"
#include "compiler/ir/graph.h"

namespace tamp {

// Tensors and who makes them, as the functions below see them.
struct Makers {
  std::function<const ROperator*(TensorId)> maker_of;  // null for inputs and constants
  std::function<const Tensor&(TensorId)> tensor;       // of a constant with its values
};
// `graph` and `uses` must outlive the result; tensors newer than `uses` have no maker.
Makers makers_of(const Graph& graph, const Uses& uses);
// The steps of a Fused, with the values of its operands in `graph`.
Makers makers_of(const Graph& graph, const FusedView& steps);
// Of a placed graph, which has no rOperators that are views: a single element is made by who makes the element in that place.
Makers placed_makers_of(const Graph& graph);

// A whole number of run time: the only element of `tensor`, which is i64, plus a constant.
struct Number {
  TensorId tensor;
  TensorId root;  // of which `tensor` is a view or a cast
  int64_t plus = 0;
  bool operator==(const Number&) const = default;
  // Whether both are of one number, apart from what is added. Two casts of it are two tensors.
  bool is_like(const Number& other) const { return root == other.root; }
};
// What the tensor of one element is; none for a constant.
std::optional<Number> number_of(const Makers& makers, TensorId id);

// The index of a Scatter that has one. A negative one counts from the end (`wraps`), or is outside, as TensorScatter has it:
// p = Elementwise(i, zero) {add(i0, i1)}; o = Elementwise(p, zero) {less(i0, i1)}; index = Elementwise(o, extent, p) {where(i0, i1, i2)}.
struct Place {
  Number number;  // `plus` is 0
  bool wraps = true;
};
std::optional<Place> place_of(const Makers& makers, TensorId index, int64_t extent);

// A bias that is 0 for keys n < length and `masked` for all others, whatever the query.
struct PrefixMask {
  Number length;
  float masked = 0;
};
std::optional<PrefixMask> prefix_mask_of(const Makers& makers, TensorId bias, int64_t keys);

// The rOperators that lead to `targets`, in topological order. None that makes one of `given`, nor what leads there alone.
std::vector<const ROperator*> makers_behind(const Makers& makers, const std::vector<TensorId>& given, const std::vector<TensorId>& targets);

}  // namespace tamp
