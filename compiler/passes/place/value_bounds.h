// Which activations fp16 can hold as exactly as tf32 does.
#pragma once

#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <tuple>
#include <vector>

#include "compiler/ir/graph.h"

namespace tamp::passes {

// Norms of a product's weights [M, K], from which bounds of its results follow. All are infinite if a weight is infinite or NaN.
struct WeightNorms {
  double largest = 0;               // magnitude
  double largest_sum = 0;           // over the rows: sum of magnitudes, the result's bound per unit of the operand's magnitude
  double largest_length = 0;        // the same for the square root of the sum of squares, per unit of the operand's length
  double usual_length = 0;          // root mean square over the rows
  double usual_around_mean = 0;     // the same of the weights less the mean of their row
  double least_length = kNoWeight;  // of a row that is not all 0
  double least = kNoWeight;         // magnitude of a weight that is not 0
  bool fits_half = false;           // none is too large for a half
  bool may_vanish = false;          // in some row even the largest weight is so small that a half loses bits of it

  static constexpr double kNoWeight = std::numeric_limits<double>::infinity();
};

// Norms by weights, so that questions about many graphs read each weight once.
class WeightNormsCache {
 public:
  // `rows` is M; the weights lie as [M, K], or as [K, M] if `by_columns`.
  const WeightNorms& of(const Tensor& weights, int64_t rows, bool by_columns);

 private:
  std::mutex mutex_;
  std::map<std::tuple<TensorData, int64_t, bool>, WeightNorms> norms_;
};

// The buffers and products of a placed graph in precision tf32 that may be fp16 (docs/adr/0026). fp16 has as many bits behind the point as
// tf32 and a smaller range. So a buffer may be f16 if
//  - its values are proven to fit, whatever the inputs of the model are. Normalised rows are at most sqrt(N) times their scale. Results of
//    products, gelu, attention and copies of bounded values are bounded by the weights;
//  - fp16 loses little of small values beside the errors that they have in tf32. These errors are as large as the terms whose sum a value
//    is, so a small difference of large terms is harmless. Small results of sigmoid, silu and gelu are not: they may be fp16 only if
//    their readers add them to larger terms;
//  - all readers round them to tf32, as operands of products, or move them into such a buffer. Normalised rows may be a product's
//    residual as well (in networks that normalise behind the sum). They are then rounded where tf32 alone would not round them, by as much
//    as the products behind them are. The same holds for rows that a product normalises itself, by a Normalize beside that product whose
//    result is rounded.
// Example: a normalised row of 768 values with scales of at most 1.5 is bounded by 41.6; the product behind it, of weights whose rows have
// at most the length 2, by 41.6 * 2 plus its bias.
struct HalfUse {
  std::vector<bool> buffers;    // by number
  std::vector<double> largest;  // by number: the largest magnitude that is possible, as proven; 0: none is proven
  std::vector<bool> rops;       // may be computed with operands or results in f16: products whose operands and weights fit, and all that
                                // is no product
};
// The operands that a product rounds to the precision of products; none of a rOperator that is no such product.
std::vector<TensorId> rounded_operands(const Graph& graph, const ROperator& rop);
HalfUse half_use(const Graph& placed, WeightNormsCache& norms);

// Whether some buffer is narrow because its values are proven to be bounded (Buffer::largest).
bool has_bounds(const Graph& placed);

}  // namespace tamp::passes
