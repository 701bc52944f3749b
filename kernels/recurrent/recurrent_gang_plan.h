// How a gang is divided: vEUs to cells, units to shares, weights to registers and shared memory; and how long it takes.
#pragma once

#include <optional>
#include <vector>

#include "compiler/ir/recurrent.h"
#include "compiler/ir/shaped_vdevice.h"
#include "kernels/recurrent/numbers.cuh"

namespace tamp::kernels {

using GangShape = rk::GangSizes;

struct GangCell {
  GangShape shape;
  int64_t shares = 0;
  bool publishes = false, publishes_c = false;  // h of every step, c of the last one
  int64_t own_words = 0, c_words = 0;           // where the words of h and of c begin in the exchange
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
std::optional<GangPlan> plan_gang(const Recurrent& recurrent, const std::vector<int64_t>& input_sizes, const ShapedVDevice& vdevice,
                                  int64_t weights, int64_t veus);

// Gives the cells, whose shapes and shares are known, their places in the exchange.
void place_words(const Recurrent& recurrent, GangPlan& plan);

bool is_plain(const RecurrentCell& cell);
int32_t input_kind(const RecurrentCell& cell);  // rk::GangInput
int32_t device_kind(CellKind kind);             // rk::CellKind

}  // namespace tamp::kernels
