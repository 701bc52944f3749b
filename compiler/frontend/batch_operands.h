// The parts that the rules of rebatch.cpp are made of: where the batch lies in the operands of the rOperator that is being followed, and
// new tensors for it: operands repeated for each element of the batch, and numbers of rows that count all of them.
#pragma once

#include <fmt/format.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "compiler/frontend/builder.h"
#include "compiler/frontend/index_range.h"
#include "compiler/frontend/mixes.h"
#include "compiler/frontend/rebatch.h"
#include "compiler/ops/ops.h"
#include "compiler/support/text.h"

namespace tamp::frontend {

// How the elements of a batch lie in a tensor: along one dimension, whose extent may join several of which the batch is one. `before` and
// `inner` are the products of those in front of it and behind it. Example: of 197 tokens by 2 elements of a batch, joined to 394 rows,
// dim 0, before 197 and inner 1.
struct Place {
  size_t dim = 0;
  int64_t before = 1, inner = 1;
  bool operator==(const Place&) const = default;

  bool is_exact() const { return before == 1 && inner == 1; }  // the dimension is the batch and nothing else
  int64_t extent(int64_t batch) const { return before * batch * inner; }
  Place at(size_t other_dim) const { return {other_dim, before, inner}; }
};
// All places that mean the same order of elements in memory; the tensor has the shape of the first. None: the same for any batch.
using Places = std::vector<Place>;

// The places of a batch of `batch` that has `outer` elements in front of it.
Places places_of(const Shape& shape, int64_t outer, int64_t batch);

// The graph with the new batch as far as it is made, and the rOperator that a rule is asked about.
class BatchOperands {
 protected:
  BatchOperands(const Graph& original, int64_t from, int64_t to, const ModelWords& words);

  // Questions of a rule. Shapes are those with the original batch.
  bool has(size_t i) const { return i < rop_->inputs.size() && rop_->inputs[i].valid(); }
  const Tensor& operand(size_t i) const { return original_.tensor(rop_->inputs[i]); }
  const Shape& shape(size_t i) const { return operand(i).shape; }
  const Shape& result_shape(size_t k = 0) const { return original_.tensor(rop_->outputs[k]).shape; }
  std::string name(size_t i) const { return fmt::format("'{}'", printable(operand(i).name)); }
  const std::optional<Place>& place(size_t i) const { return chosen_[i]; }
  bool is_stacked(size_t i) const { return has(i) && chosen_[i].has_value(); }
  size_t first_stacked() const {
    size_t i = 0;
    while (!is_stacked(i)) ++i;
    return i;
  }

  // Its answer.
  void result(size_t k, const Place& place) { results_.at(k) = {place}; }

  [[noreturn]] void mixes_along(size_t i, const char* what) const {
    throw Mixes{fmt::format("{} dimension {} of {}, along which the elements of the batch lie, so that they change each other's results",
                            what, place(i)->dim, name(i))};
  }

  // Operands from `first` on must be the same for all elements of the batch.
  void require_same_from(size_t first, const char* what) const {
    for (size_t i = first; i < rop_->inputs.size(); ++i) {
      if (is_stacked(i)) throw Mixes{fmt::format("{} {} is another one for each element of the batch", what, name(i))};
    }
  }

  // The place that all operands with a batch have.
  Place common_place(size_t first) const;
  // Operand i is broadcast to a result of `rank` dimensions with the batch at `batch`: it must have it there too, or be the same for all.
  void align(size_t i, size_t rank, const Place& batch);

  // Shapes with the new batch; `split` has it as a dimension of its own behind `before`, or in front where that is 1, and `inner` behind
  // it.
  Shape grown(Shape shape, const Place& place) const;
  Shape split(Shape shape, const Place& place) const;
  void require_size(const Tensor& tensor) const;
  std::vector<ops::TensorType> types_of(const OpAttrs& attrs, const std::vector<TensorId>& inputs) const;

  // New tensors. An rOperator that is emitted stands in front of the one that is being followed.
  void add(ROperator rop);
  TensorId emit(OpAttrs attrs, std::vector<TensorId> inputs);
  TensorId emit(ElementwiseOp op, std::vector<TensorId> inputs) { return emit(step(op), std::move(inputs)); }
  static Elementwise step(ElementwiseOp op);
  TensorId add_value(DType dtype, Shape shape, TensorData data);
  void require_table(const Shape& shape, DType dtype) const;                               // before a table is made
  TensorId constant(DType dtype, const Shape& shape, const std::vector<int64_t>& values);  // of i32 or i64
  TensorId constant(DType dtype, int64_t value) { return constant(dtype, Shape{}, {value}); }

  // Operand i, which is the same for all elements of the batch, with the extent that the new batch has at `batch`; all such operands.
  TensorId repeated(size_t i, const Place& batch);
  TensorId repeated_at_run_time(size_t i, const Place& batch);
  void repeat_all(const Place& batch);

  // b * step for element b of the batch, to be broadcast to a tensor of `shape` with the batch at `batch`.
  TensorId offsets(const Shape& shape, const Place& batch, int64_t step, DType dtype);

  // Numbers that count the elements of a batch of several: those of element b are by b * step_of larger than those that count its own,
  // which the new tensor has. The frontend makes them by adding a constant, [[0],[20],[40]] for the rows of [3,20], to places in a row.
  int64_t step_of(size_t i) const { return has(i) ? steps_[rop_->inputs[i].index()] : 0; }

  // Readers of such numbers must keep the difference, or take from the rows that they count.
  void take_step(size_t i);

  // A constant summand that is larger by equal steps from each element of the batch to the next: that of the first is taken for all.
  bool takes_first_numbers(size_t i, const Place& batch);

  // The number in place of one that is out of range, and whether negative ones count from the end.
  struct Outside {
    bool counts_back = true;
    int64_t number = 0;
  };

  TensorId counted_from_beginning(TensorId numbers, int64_t rows);
  TensorId nearest(TensorId numbers, int64_t rows);
  bool are_within(size_t i, int64_t rows) const;

  // Operand 1, numbers of `each` rows of an element of the batch, as numbers of all rows, those of one element behind those of another.
  // Without `outside` a number that is out of range becomes that of the nearest row.
  TensorId numbered(const Place& batch, int64_t each, const std::optional<Outside>& outside);

  // The same where rows of other elements lie between those of an element: its row r is row (r / inner * batch + b) * inner + r % inner.
  TensorId interleaved(const Place& batch, const Place& rows);

  const Graph& original_;
  int64_t from_, to_;
  const ModelWords& words_;
  Graph graph_;  // with the new batch; tensors that the original has keep their ids
  std::vector<Places> places_;
  std::vector<int64_t> steps_;  // see step_of
  Makers makers_;               // of the tensors of graph_
  UniqueNames tensor_names_, rop_names_;
  std::string where_;

  // The rOperator that is being followed, the places chosen for its operands, and its attributes with the new batch.
  const ROperator* rop_ = nullptr;
  std::vector<std::optional<Place>> chosen_;
  OpAttrs attrs_;
  std::vector<TensorId> inputs_;
  std::vector<Places> results_;
  int64_t step_ = 0;  // step_of its results
};

}  // namespace tamp::frontend
