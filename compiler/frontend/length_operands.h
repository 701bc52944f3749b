// The parts that rules of lengths are made of: where the operands of the rOperator that is being followed end, what becomes of it, and new
// tensors for it, as masks of what lies behind an end and numbers of run time.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "compiler/frontend/length_probes.h"
#include "compiler/ops/ops.h"

namespace tamp::frontend {

class LengthOperands : protected LengthProbes {
 protected:
  LengthOperands(Graph graph, const std::vector<Probe>& probes);

  const LengthAxes& axes_of(size_t i) const { return axes_[rop_->inputs[i].index()]; }
  void result(size_t k, LengthAxes axes) { results_.at(k) = std::move(axes); }
  static std::optional<Extent> extent_at(const LengthAxes& axes, size_t d);
  static void add(LengthAxes& axes, size_t d, const Extent& extent);
  void add_aligned(LengthAxes& axes, size_t i, size_t rank) const;  // those of an operand that broadcasts to the result
  void require_none_from(size_t first, const char* what) const;
  void require_rising(const Extent& extent) const;

  // New tensors.
  std::string unique(const std::string& wanted);
  TensorId emit(OpAttrs attrs, std::vector<TensorId> inputs);
  TensorId elementwise(ElementwiseOp op, std::vector<TensorId> inputs);
  TensorId constant(DType dtype, const Shape& shape, double value);
  TensorId scalar(DType dtype, double value) { return constant(dtype, {}, value); }
  TensorId constant_i64(const std::vector<int64_t>& values);
  TensorId valid(const Extent& extent, int64_t largest, size_t dims_behind, DType dtype);  // 1 before the extent, 0 behind it
  TensorId number_of(const Extent& extent, DType dtype);                                   // the extent itself, as a scalar
  TensorId masked_tensor(TensorId x, size_t dim, const Extent& extent, double fill);
  void mask(size_t i, size_t dim, const Extent& extent, double fill);  // operand i is `fill` behind the extent

  // Constants. Their numbers may depend on a length.
  using IdIn = std::function<TensorId(const Probe&)>;
  void take_operand(size_t i);
  TensorId take_constant(TensorId id, const IdIn& id_in);
  TensorId of_lines(const Tensor& own, const Other& other);

  using Filled = std::tuple<size_t, size_t, uint64_t, int32_t, int64_t, int64_t, int64_t>;
  static Filled filled(TensorId id, size_t dim, double fill, const Extent& e);

  Graph graph_;
  std::vector<TensorId> mapped_;  // per tensor of the original: the tensor that readers take
  std::vector<LengthAxes> axes_;  // per tensor of the original; of rows_, of the tensor that readers take
  std::vector<size_t> rows_;      // per tensor of the original: of how many dimensions its first one is made, where those stay apart; or 0
  std::set<std::string> names_;
  std::set<Filled> is_filled_;  // tensors whose elements behind an end are known already
  std::map<Filled, TensorId> masked_;
  std::map<std::tuple<int32_t, int64_t, int64_t, int64_t, size_t, int>, TensorId> valid_;
  std::map<std::tuple<int32_t, int64_t, int64_t, int64_t, int>, TensorId> number_;

  OpAttrs attrs_;  // what the rOperator becomes
  std::vector<TensorId> inputs_;
  std::vector<LengthAxes> results_;
};

}  // namespace tamp::frontend
