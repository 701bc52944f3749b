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
  void apply(const Reshape& op);
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

  // Rows (rop_lengths_rows.cpp). Exporters write a linear layer of x[B,L,8] as Reshape to [B*L,8], MatMul, Reshape to [B,L,4]. What has
  // joined rows of lengths of run time is made with its dimensions apart, [B,L,8] x [8,4], until a Reshape has them apart as well.
  bool follow_rows();

 private:
  void reduce_masked(const Reduce& op, const std::vector<LengthAxis>& summed);
  TensorId share_of(const std::vector<LengthAxis>& ends, int64_t others);
  void normalize_masked(const Normalize& op, const std::vector<LengthAxis>& inside);
  template <class Window>
  LengthAxes window_axes(const Window& op, double fill);
  void average_masked(Pool op);

  Mixes mixes_reshape(const Reshape& op, size_t d) const;
  TensorId behind(TensorId made, const Extent& end, size_t i, const std::optional<Extent>& own);
  void count_from_end(const Extent& extent);

  void hand_on(size_t i, size_t k);
  bool is_natural(const ROperator& rop, size_t i, std::vector<TensorId> assumed = {}) const;
  bool is_natural_constant(const ROperator& rop, size_t i) const;

  size_t rows_of(size_t i) const { return has(i) ? rows_[rop_->inputs[i].index()] : 0; }
  bool join_rows(const Reshape& op);
  std::optional<LengthAxes> axes_apart(const Shape& made, const Reshape& op) const;
  bool shift_rows(size_t first, size_t parts, const Shape& apart);
  void emit_rows(size_t from, const Shape& apart);
};

}  // namespace tamp::frontend
