// How a gang is divided: vEUs to cells, units to shares, weights to registers and shared memory; and how long it takes.
#pragma once

#include <optional>
#include <vector>

#include "compiler/ir/recurrent.h"
#include "compiler/ir/vdevice.h"
#include "kernels/recurrent/numbers.cuh"

namespace tamp::kernels {

// The template arguments of rk::GangShape, where they are explained, and what follows from them.
struct GangShape {
  CellKind kind = CellKind::lstm;
  int from = rk::kFromWords;
  int64_t input = 0, hidden = 0;
  int64_t units = 0, lane_rows = 0, split = 1;
  int64_t r_registers = 0, r_shared = 0, w_shared = 0;
  int64_t all_rows = 1, batch = 1;
  int64_t weights = rk::kFloats;
  bool alone = false, plain = true;

  int64_t gates() const { return gates_of(kind); }
  int64_t item_lanes() const { return kind == CellKind::rnn ? 1 : 4; }
  int64_t groups() const { return (all_rows + batch - 1) / batch; }
  int64_t row_lanes() const { return 32 / split; }
  int64_t rows() const { return lane_rows * row_lanes(); }
  int64_t chunk() const { return 4 * split; }
  int64_t slice_h() const;
  int64_t slice_x() const;
  int64_t chunks_h() const { return slice_h() / chunk(); }
  int64_t chunks_x() const { return slice_x() / chunk(); }
  int64_t stream_h() const { return chunks_h() - r_registers - r_shared; }
  int64_t stream_x() const { return chunks_x() - w_shared; }
  int64_t chunk_floats() const { return lane_rows * rk::kWarp * (weights == rk::kFloats ? 4 : 2); }  // words of 4 bytes, of one warp
  int64_t bias_floats() const;                                                                       // and peepholes
  int64_t image_floats() const;
  int64_t work_floats() const;
};

struct GangCell {
  GangShape shape;
  int64_t shares = 0;
  bool publishes = false, publishes_c = false;  // h of every step, c of the last one
  int64_t own_words = 0, c_words = 0;           // where they begin in the exchange
  int64_t word_row = 0, word_step = 0;          // words of one batch row, of one step
  int64_t work_bytes = 0;
  double step_us = 0;  // from one step to the next
  double lag_us = 0;   // from an input to its output
  double end_us = 0;   // of the last step, weights included
};

struct GangPlan {
  std::vector<GangCell> cells;
  int64_t exchange_words = 0;
  int64_t shares = 0;
  double us = 0;
};

// The fastest division among at most `veus` vEUs, or none.
std::optional<GangPlan> plan_gang(const Recurrent& recurrent, const std::vector<int64_t>& input_sizes, const VDevice& vdevice,
                                  int64_t weights, int64_t veus);

// Gives the cells, whose shapes and shares are known, their places in the exchange.
void place_words(const Recurrent& recurrent, GangPlan& plan);

bool is_plain(const RecurrentCell& cell);
int input_kind(const RecurrentCell& cell);  // rk::GangInput

}  // namespace tamp::kernels
