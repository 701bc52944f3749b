// Numbers that both halves of the recurrent rKernels know (kernels/vdevice/numbers.cuh).
#pragma once

#include <stdint.h>

#include "kernels/vdevice/numbers.cuh"

namespace rk {

enum CellKind : int32_t { kLstm, kGru, kRnn };

enum CellFunctionKind : int32_t {  // in tables
  kCellSigmoid,
  kCellTanh,
  kCellRelu,
  kCellAffine,
  kCellLeakyRelu,
  kCellThresholdedRelu,
  kCellScaledTanh,
  kCellHardSigmoid,
  kCellElu,
  kCellSoftsign,
  kCellSoftplus,
};

// Where the input of a cell of a gang comes from: words of another cell, a tensor, or a tensor of W x + Wb.
enum GangInput : int { kFromWords, kFromTensor, kFromGates };

// The type of a gang's weights in memory. Weights of R in registers are always floats, and all arithmetic is in floats.
enum GangWeights : int { kFloats, kHalves, kBfloats };

inline constexpr int kRecurrentRows = 4;  // rows that a warp of recurrent_direct computes at once

// Words of one batch row of an exchange: an even number, so that each pair of words is 16-byte aligned.
constexpr int64_t gang_word_row(int64_t hidden) { return (hidden + 1) / 2 * 2; }

// How large the parts of a share of a gang are. The members are the template arguments of GangShape (recurrent_gang_shape.cuh explains
// them); the functions are sizes that follow from the members. The host uses both to divide the work and to pack the images, the body to
// find its data.
struct GangSizes {
  int32_t kind = kLstm, from = kFromWords;  // CellKind, GangInput
  int64_t input = 0, hidden = 0, units = 0;
  int64_t lane_rows = 0, split = 1;
  int64_t r_registers = 0, r_shared = 0, w_shared = 0;
  int64_t all_rows = 1, batch = 1;
  bool alone = false, plain = true;
  int64_t weights = kFloats;  // GangWeights

  static constexpr int64_t round_up(int64_t n, int64_t to) { return (n + to - 1) / to * to; }

  constexpr int64_t gates() const { return kind == kLstm ? 4 : kind == kGru ? 3 : 1; }
  constexpr int64_t groups() const { return (all_rows + batch - 1) / batch; }
  constexpr int64_t row_lanes() const { return kWarp / split; }
  constexpr int64_t rows() const { return lane_rows * row_lanes(); }
  constexpr int64_t chunk() const { return 4 * split; }
  constexpr int64_t slice_x() const { return from == kFromGates ? 0 : round_up(input, kComputeWarps * chunk()) / kComputeWarps; }
  constexpr int64_t slice_h() const { return round_up(hidden, kComputeWarps * chunk()) / kComputeWarps; }
  constexpr int64_t chunks_x() const { return slice_x() / chunk(); }
  constexpr int64_t chunks_h() const { return slice_h() / chunk(); }
  constexpr int64_t stream_x() const { return chunks_x() - w_shared; }
  constexpr int64_t stream_h() const { return chunks_h() - r_registers - r_shared; }
  constexpr int64_t lane_words() const { return weights == kFloats ? 4 : 2; }          // of 4 bytes: a lane's four weights of a row
  constexpr int64_t chunk_floats() const { return lane_rows * kWarp * lane_words(); }  // words of 4 bytes, of one warp

  // Lanes that finish one unit of one batch row: lstm i, o, f, c; gru z, r, R h of the candidate, W x of the candidate.
  constexpr int64_t item_lanes() const { return kind == kRnn ? 1 : 4; }

  // Partial sums lie in slots, one or two for each warp, of one float for each row. A gru's candidate keeps its input's part in further
  // rows after the others. The two slots of a warp lie half a line of banks (16 floats) apart. A cell with several shares has two sides,
  // used in turn, so that the partial sums of the next step need not wait until those of this step are read.
  constexpr int64_t slots() const { return kComputeWarps * (split > 1 ? 2 : 1); }
  constexpr int64_t slot_rows() const { return rows() + (kind == kGru ? units : 0); }
  constexpr int64_t slot_stride() const { return split > 1 ? (slot_rows() + 15) / 32 * 32 + 16 : slot_rows(); }
  constexpr int64_t partial_floats() const { return round_up(batch * slots() * slot_stride(), 4); }  // of a side
  constexpr int64_t sides() const { return alone ? 1 : 2; }

  // Shared memory in its order: weights, bias, peepholes, partial sums, the slices of x and of h, states, lengths.
  constexpr int64_t resident_floats() const { return kComputeWarps * (r_shared + w_shared) * chunk_floats(); }
  constexpr int64_t gate_bias_floats() const { return round_up(units * item_lanes(), 4); }
  constexpr int64_t bias_floats() const { return gate_bias_floats() + (plain ? 0 : units * 4); }  // and peepholes
  constexpr int64_t stage_x_floats() const { return kComputeWarps * batch * slice_x(); }
  constexpr int64_t stage_h_floats() const { return kComputeWarps * batch * slice_h(); }  // of one group
  constexpr int64_t stages_h_floats() const { return (alone ? groups() : 1) * stage_h_floats(); }
  constexpr int64_t state_floats() const { return groups() * units * batch; }  // c of an lstm, h of the others
  constexpr bool holds() const { return !plain && kind == kLstm; }             // h of an lstm lies after c
  constexpr int64_t states_floats() const { return (holds() ? 2 : 1) * state_floats(); }
  constexpr int64_t work_floats() const {
    return resident_floats() + bias_floats() + sides() * partial_floats() + stage_x_floats() + stages_h_floats() + states_floats() +
           (plain ? 0 : all_rows);
  }

  // The image of one share: weights for registers, weights for shared memory, weights that are streamed, bias, peepholes.
  constexpr int64_t image_weights() const { return kComputeWarps * (chunks_h() + chunks_x()) * chunk_floats(); }
  constexpr int64_t image_floats() const { return round_up(image_weights() + bias_floats(), 32); }
};

}  // namespace rk
