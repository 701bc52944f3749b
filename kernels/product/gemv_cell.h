// Host side of gemv_cell.cuh: how weights lie in cells of the ring, and which are quantised by blocks. The latter are recognised by their
// values, so it does not matter in which form a model brought them, nor what passes made of them.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>

#include "compiler/ir/graph.h"
#include "kernels/product/numbers.cuh"

namespace tamp::kernels {

// Values of one block are step * (low + u), each u a whole number from 0 to 2^bits - 1, up to what rounding to fp16 changes of them.
// Example with 4 bits: -0.75, 0, 0.5 and 1.75 have step 0.25 and low -8; u is 5, 8, 10 and 15.
struct BlockStep {
  float step = 0;
  int low = 0;
};

// None where there is no such step, or a value is not finite.
struct BlockQuestion {
  int bits = 4;
  bool lowest = false;  // low must be -2^(bits-1); else it is so where that will do
  float near = 0;       // a step that is likely
  float rounding = 1;   // how far values may be from multiples, in roundings to fp16
};
std::optional<BlockStep> block_step(std::span<const float> values, const BlockQuestion& question);

// Constant weights [k, n] of a product, of which neighbours in k and n lie so far apart.
struct GridWeights {
  TensorId id;
  int64_t k = 0, n = 0, stride_k = 0, stride_n = 0;
};

// How they can lie in cells, with a step for each 32 k of a column: kCellHalves where not all of them are quantised so. What was found is
// remembered as long as the constant exists. Large weights of models without quantised ones are not looked at.
rk::GemvCell cell_of(const Graph& graph, const GridWeights& weights);

int bits_of_cell(rk::GemvCell cell);     // of a weight
const char* text_of(rk::GemvCell cell);  // as device code has it

// 32 values of a column, to be divided by `scale`.
struct CellColumn {
  std::span<const float> values;
  float scale = 1;
};
// Writes one cell, or two side by side: of columns 0 to 7, and 8 to 15. Throws where the values are not what `cell` says.
void pack_cells(rk::GemvCell cell, int64_t count, const std::function<CellColumn(int64_t)>& column_of, std::byte* to);

}  // namespace tamp::kernels
