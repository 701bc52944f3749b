// Rules, one for each kind of rOperator. Each says where lengths end the results' dimensions, by result(), and puts masks in front of work
// that goes along them.
#pragma once

#include <optional>
#include <vector>

#include "compiler/frontend/length_operands.h"

namespace tamp::frontend {

class RopLengths : protected LengthOperands {
 protected:
  using LengthOperands::LengthOperands;

  // Work (rop_lengths.cpp)
  void apply(const Elementwise& op);
  void apply(const MatMul& op);
  void apply(const Softmax& op);
  void apply(const Reduce& op);
  void apply(const Normalize& op);
  void apply(const Conv& op);
  void apply(const Pool& op);
  void apply(const BatchNorm&);
  void apply(const Lrn&);
  void apply(const TopK& op);
  void apply(const Cumulate& op);
  void apply(const Recurrent& op);

  // Moves (rop_lengths_moves.cpp)
  void apply(const Transpose& op);
  void apply(const Slice& op);
  void apply(const Concat& op);
  void apply(const Pad& op);
  void apply(const Gather& op);
  void apply(const Resample& op);
  void apply(const GridSample&);
  void apply(const Scatter& op);

  // Loops and branches of run time (rop_lengths_loops.cpp)
  void apply(const LoopBegin&);
  void apply(const LoopEnd&);

  template <class Op>
  void apply(const Op&) {
    throw Mixes{"has no rule for lengths of run time"};
  }

  // Reshapes and what has joined rows of several lengths (rop_lengths_rows.cpp)
  void apply(const Reshape& op);
  enum class Rows : uint8_t {
    none,   // the rOperator is as any other
    apart,  // a Reshape that takes rows apart: its result is known
    made,   // all is done
  };
  Rows follow_rows();
  TensorId joined(TensorId id, const IdIn& id_in);

 private:
  void reduce_masked(const Reduce& op, const std::vector<LengthAxis>& summed);
  TensorId share_of(const std::vector<LengthAxis>& ends, int64_t others);
  void normalize_masked(const Normalize& op, const std::vector<LengthAxis>& inside);
  template <class Window>
  LengthAxes window_axes(const Window& op, double fill);
  void pad_last_windows(Pool& op) const;
  void average_masked(Pool op);

  TensorId resampled(TensorId x, int64_t axis, TensorId indices, TensorId weights);
  void take_by_number(const Slice& op, size_t d, const std::optional<Extent>& start);
  Extent end_of_all(size_t along);
  TensorId behind(TensorId made, TensorId end, size_t i);
  void count_from_end(const Extent& extent);

  void hand_on(size_t i, size_t k);
  bool is_natural(const ROperator& rop, size_t i, std::vector<TensorId> assumed = {}) const;
  bool is_natural_constant(const ROperator& rop, size_t i) const;

  size_t rows_of(size_t i) const { return has(i) ? rows_[rop_->inputs[i].index()] : 0; }
  bool join_rows(const Reshape& op);
  void join_operand(size_t i);
  std::optional<LengthAxes> reshaped_axes(const Shape& from, const LengthAxes& axes, const Shape& to) const;
  struct Taken {
    Gather gather;
    TensorId from, numbers;
  };
  Taken taken_by_number(TensorId x, const LengthAxes& axes, const Shape& to, const LengthAxes& made);
  bool shift_rows(size_t first, size_t parts, const Shape& apart);
  void emit_rows(size_t from, const Shape& apart);
};

}  // namespace tamp::frontend
