// Which activations fp16 can hold without losing what tf32 keeps of them.
#pragma once

#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <tuple>
#include <vector>

#include "compiler/ir/graph.h"

namespace tamp::passes {

// Of the weights of a product, [M, K]: what bounds of its results need. All three are infinite if a weight is infinite or NaN.
struct WeightNorms {
  std::shared_ptr<const Bytes> data;  // what they are of; kept, so that the address stays what it is
  double largest = 0;                 // magnitude
  double largest_sum = 0;             // over the rows: sum of magnitudes, the result's bound per unit of the operand's magnitude
  double largest_length = 0;          // the same for the square root of the sum of squares, per unit of the operand's length
  double usual_length = 0;            // root mean square over the rows
  double usual_around_mean = 0;       // the same of the weights less the mean of their row
  double least_length = kNoWeight;    // of a row that is not all 0
  double least = kNoWeight;           // magnitude of a weight that is not 0
  bool fits_half = false;             // none is too large for a half
  bool may_vanish = false;            // of some row even the largest is so small that halves lose bits of it

  static constexpr double kNoWeight = std::numeric_limits<double>::infinity();
};

// Norms of weights that were asked for before, so that those who ask about many graphs read each weight once.
class WeightNormsCache {
 public:
  // `rows` is M; the weights lie as [M, K], or as [K, M] if `by_columns`.
  const WeightNorms& of(const Tensor& weights, int64_t rows, bool by_columns);

 private:
  std::mutex mutex_;
  std::map<std::tuple<const Bytes*, int64_t, bool>, WeightNorms> norms_;
};

// What of a placed graph in precision tf32 may lie and be multiplied in fp16. fp16 has as many bits behind the point as tf32; what it has
// not is the range. So a buffer may be f16 if
//  - its values are proven to fit, whatever the inputs of the model are: normalised rows are at most sqrt(N) times their scale, and what
//    products, gelu, attention and copies make of bounded values is bounded by the weights;
//  - what fp16 loses of small values is little beside the errors that they have in tf32. These are as large as the terms whose sum a value
//    is, so a difference may come out small, but what sigmoid, silu and gelu make small may not lie in fp16, unless what reads it adds it
//    to larger terms;
//  - all that read them round them to tf32, since they are operands of products, or move them into such a buffer. Normalised rows may be
//    a product's residual as well (networks that normalise behind the sum have such): these are then rounded where tf32 alone would not
//    round them, by as much as the products behind them are. So may rows that a product normalises itself (MomentMatMul), by a Normalize
//    beside that product whose result is rounded.
// Example: a normalised row of 768 values with scales of at most 1.5 is bounded by 41.6; the product behind it, of weights whose rows have
// at most the length 2, by 41.6 * 2 plus its bias.
struct HalfUse {
  std::vector<bool> buffers;    // by number
  std::vector<double> largest;  // by number: the magnitude that values are proven to have at most; 0: none is proven
  std::vector<bool> rops;       // may be computed with operands or results in f16: products whose operands and weights fit, and all that
                                // is no product
};
// The operands that a product rounds to the precision of products; none of a rOperator that is no such product.
std::vector<TensorId> rounded_operands(const Graph& graph, const ROperator& rop);
HalfUse half_use(const Graph& placed, WeightNormsCache& norms);

// Whether some buffer is narrow because its values are proven to be bounded (Buffer::largest).
bool has_bounds(const Graph& placed);

}  // namespace tamp::passes
