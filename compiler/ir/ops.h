// The internal operators. The frontend turns every version of an ONNX operator into one of these; anything that an
// older or newer version words differently is gone here. One struct per operator, attributes only; inputs are listed
// in the comment in order ("?" = may be none). Attributes and operands together determine the results.
//
// A struct has its name in the text form (kName; kNames and which() where an attribute says it) and `fields` (fields.h). The list of
// all operators is TAMP_OPERATORS at the end; compiler/ops/operator.h says what is written for each of them.
#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "compiler/ir/activation.h"
#include "compiler/ir/dtype.h"
#include "compiler/ir/fields.h"
#include "compiler/ir/functions.h"
#include "compiler/ir/length.h"
#include "compiler/ir/recurrent.h"

namespace tamp {

// Common attributes of Conv and Pool.
void window_fields(auto& op, auto&& f) {
  f("kernel", op.kernel);
  f("strides", op.strides, Each{1, op.kernel.size()});
  f("pads", Pair{op.pads_begin, op.pads_end}, Each{0, op.kernel.size()});
  f("dilations", op.dilations, Each{1, op.kernel.size()});
}

// A convolution of every channel by a filter of its own, in front of a pointwise Conv, which then multiplies
// act(depthwise(X) + bias) instead of X.
struct DepthwisePrologue {
  std::vector<int64_t> kernel, strides, dilations;
  std::vector<int64_t> pads_begin, pads_end;
  ActivationCall activation;
  bool operator==(const DepthwisePrologue&) const = default;

  static void fields(auto& prologue, auto&& f) {
    window_fields(prologue, f);
    f("", prologue.activation);
  }
};

// Y = conv(X, W) + B. X[N,C,spatial..], W[M,C/group,kernel..], B[M]?. One or two spatial dimensions; the frontend makes these of three.
// passes/fuse_depthwise may put two steps in front that were rOperators of their own: an activation of X (pads stay zeros), then a
// depthwise convolution. The operands of the depthwise convolution, DW[C,1,its kernel..] and DB[C]?, come behind the Conv's own: inputs X,
// W, B?, DW?, DB?.
struct Conv {
  std::vector<int64_t> kernel, strides, dilations;
  std::vector<int64_t> pads_begin, pads_end;  // auto_pad is resolved at import
  int64_t group = 1;
  ActivationCall input_activation{};
  std::optional<DepthwisePrologue> depthwise{};  // only where kernel, strides and group are 1 and there are no pads
  bool operator==(const Conv&) const = default;

  static constexpr const char* kName = "Conv";
  static void fields(auto& op, auto&& f) {
    window_fields(op, f);
    f("group", op.group, int64_t{1});
    f("input_", op.input_activation);
    f("depthwise_", op.depthwise);
  }
};
inline constexpr size_t kDepthwiseWeights = 3, kDepthwiseBias = 4;  // places in the inputs of a Conv

bool has_prologue(const Conv& conv);  // whether it does something before its own product
bool is_pointwise(const Conv& conv);  // one tap, one group, no stride, no pads

// Y = alpha * op(A) * op(B) + beta * C. numpy matmul semantics: A[..,M,K], B[..,K,N], leading dimensions broadcast.
// C? broadcasts one way to Y. Gemm is the rank-2 case; 1-D operands are reshaped at import.
struct MatMul {
  bool trans_a = false, trans_b = false;
  float alpha = 1, beta = 1;
  bool operator==(const MatMul&) const = default;

  static constexpr const char* kName = "MatMul";
  static void fields(auto& op, auto&& f) {
    f("trans_a", op.trans_a, false);
    f("trans_b", op.trans_b, false);
    f("alpha", op.alpha, 1.0F);
    f("beta", op.beta, 1.0F);
  }
};

enum class PoolKind : uint8_t { max, average };
// Y = pool(X), X[N,C,spatial..] with one or two spatial dimensions; the frontend pools along more of them one after another. With ceil_mode
// the last window may hang over the end, if it begins before the end pad. average divides by the count of elements inside the input, or,
// with count_include_pad, inside input plus pads (never the overhang of ceil_mode).
struct Pool {
  PoolKind kind = PoolKind::max;
  std::vector<int64_t> kernel, strides, dilations;
  std::vector<int64_t> pads_begin, pads_end;
  bool count_include_pad = false;
  bool ceil_mode = false;  // only where it makes a difference: the frontend sees to that
  bool operator==(const Pool&) const = default;

  static constexpr std::array kNames = {"MaxPool", "AveragePool"};
  static auto& which(auto& op) { return op.kind; }
  static void fields(auto& op, auto&& f) {
    window_fields(op, f);
    f("count_include_pad", op.count_include_pad, false);
    f("ceil_mode", op.ceil_mode, false);
  }
};

// Where MaxPool found the largest element of each window: i64, the number of that element in X, row by row; with column_major the
// spatial dimensions count the other way round, the first fastest. Of equal elements the first is meant, and NaN is larger than all. One
// to three spatial dimensions.
struct PoolIndices {
  std::vector<int64_t> kernel, strides, dilations;
  std::vector<int64_t> pads_begin, pads_end;
  bool ceil_mode = false;
  bool column_major = false;
  bool operator==(const PoolIndices&) const = default;

  static constexpr const char* kName = "PoolIndices";
  static void fields(auto& op, auto&& f) {
    window_fields(op, f);
    f("ceil_mode", op.ceil_mode, false);
    f("column_major", op.column_major, false);
  }
};

// Y, of shape `shape`, is zero except Y[I[i]] = X[i], elements counted row by row. Inputs X, and I of X's shape (i64). An index outside of
// Y writes nothing; of equal indices the last counts.
struct MaxUnpool {
  std::vector<int64_t> shape;
  bool operator==(const MaxUnpool&) const = default;

  static constexpr const char* kName = "MaxUnpool";
  static void fields(auto& op, auto&& f) { f("shape", op.shape, OfResult{}); }
};

enum class ReduceKind : uint8_t { sum, mean, max, min, prod, l1, l2, sum_square, log_sum, log_sum_exp };
std::span<const char* const> names_of(ReduceKind);

// Reduces over `axes` (sorted, non-negative). With keepdims the output has extent 1 there, without they are gone.
// GlobalAveragePool and GlobalMaxPool are Reduce over the spatial axes with keepdims.
struct Reduce {
  ReduceKind kind = ReduceKind::sum;
  std::vector<int64_t> axes;
  bool keepdims = true;
  bool operator==(const Reduce&) const = default;

  static constexpr const char* kName = "Reduce";
  static void fields(auto& op, auto&& f) {
    f("kind", op.kind);
    f("axes", op.axes);
    f("keepdims", op.keepdims, true);
  }
};

// Softmax over the joint extent of dimensions [first_axis, last_axis] (before opset 13: axis..rank-1). `end`: it takes only so many
// elements, of one dimension, and gives zeros behind them.
struct Softmax {
  int64_t first_axis = 0, last_axis = 0;
  bool log = false;
  std::optional<Extent> end{};
  bool operator==(const Softmax&) const = default;

  static constexpr std::array kNames = {"Softmax", "LogSoftmax"};
  static auto& which(auto& op) { return op.log; }
  static void fields(auto& op, auto&& f) {
    f("axes", Pair{op.first_axis, op.last_axis});
    f("end_", op.end);
  }
};

// The result of a query whose weights, the softmax of its scores, are not numbers. nan: NaN. zero_if_masked: zeros if all its scores are
// -infinity, since every key is masked, else NaN. zero: zeros.
enum class Weightless : uint8_t { nan, zero_if_masked, zero };
std::span<const char* const> names_of(Weightless);

// To the nearest whole number, ties to even, and into these bounds; nothing where they are infinite.
struct RoundedTo {
  float low = -std::numeric_limits<float>::infinity(), high = std::numeric_limits<float>::infinity();
  bool operator==(const RoundedTo&) const = default;

  bool rounds() const { return *this != RoundedTo{}; }
  static void fields(auto& to, auto&& f) {
    f("low", to.low, RoundedTo{}.low);
    f("high", to.high, RoundedTo{}.high);
  }
};

// An Attention's roundings in a quantised network, where Q, K and V hold whole numbers:
//   scores  = (scale * Q * K' rounded to `products`) * product_step + bias, rounded to `sums`, * sum_step
//   weights = softmax(scores) * weight_steps, rounded to `weights`; and that * again_step, rounded to `again`, where there is such
//   Y       = weights * V * result_steps, rounded to `results`
struct AttentionRounding {
  RoundedTo products, sums, weights, results, again;
  float product_step = 1, sum_step = 1, weight_steps = 1, result_steps = 1, again_step = 1;
  bool operator==(const AttentionRounding&) const = default;

  static void fields(auto& rounding, auto&& f) {
    f("products_", rounding.products);
    f("product_step", rounding.product_step, 1.0F);
    f("sums_", rounding.sums);
    f("sum_step", rounding.sum_step, 1.0F);
    f("weights_", rounding.weights);
    f("weight_steps", rounding.weight_steps, 1.0F);
    f("results_", rounding.results);
    f("result_steps", rounding.result_steps, 1.0F);
    f("again_", rounding.again);
    f("again_step", rounding.again_step, 1.0F);
  }
};

// Y = softmax(scale * Q * K' + bias) * V, the softmax over all keys of a query: Q[..,queries,size], K[..,keys,size], V[..,keys,columns],
// whose leading dimensions broadcast, bias? that broadcasts one way to [..,queries,keys]. passes/recognise_attention makes it.
// passes/move_rows may add a fifth input, rows? (i64[W,n], constant), for attention within W windows of n rows, each row in one of them: it
// is a permutation of 0 to W*n-1. Q[..,W*n,size], K[..,W*n,size] and V[..,W*n,columns] have all rows then, in any order, and row
// rows[w][i] of the result [..,W*n,columns] is attention of that row of Q over rows rows[w][0] to rows[w][n-1] of K and V. The bias
// broadcasts one way to [W,..,n,n]. Example: rows {{0, 2}, {1, 3}}: query 2 sees keys 0 and 2, and bias[0,..,1,0] is added to its score of
// key 0.
// `end`: there are only so many keys; K, V and the bias are not read behind them.
// `rounding`: passes/recognise_rounded_attention makes it, without a table, an end, or zeros for queries without weights.
struct Attention {
  float scale = 1;
  Weightless weightless = Weightless::nan;
  std::optional<Extent> end{};
  std::optional<AttentionRounding> rounding{};
  bool operator==(const Attention&) const = default;

  static constexpr const char* kName = "Attention";
  static void fields(auto& op, auto&& f) {
    f("scale", op.scale, 1.0F);
    f("weightless", op.weightless, Weightless::nan);
    f("end_", op.end);
    f("rounded_", op.rounding);
  }
};

inline constexpr size_t kAttentionBias = 3, kAttentionRowTable = 4;  // places in the inputs of an Attention

// The first half of squeeze-and-excite: the mean of every channel, multiplied by W. The result is left in parts, which ChannelExcite adds
// up. X[N,C,H,W], W[R,C,1,1] -> S[N,R,P], with R rounded up to a multiple of four (the added rows are zeros). With T = ceil(H / rows), part
// b * T + t covers the channels of block b (kSqueezeBlock channels each) and `rows` rows of pixels from row t * rows on: S[n,r,part] =
// 1/(H*W) * the sum of W[r,c] * X[n,c,h,w] over these channels and pixels. Example: C = 64, H = 14, rows = 7 give T = 2 and P = 4; part 3
// covers channels 32 to 63 and rows 7 to 13. With `depthwise`, X goes through a depthwise convolution first, and the convolution's result
// is the second result: inputs X, W, DW?[C,1,its kernel..], DB?[C]. passes/recognise_excitation makes ChannelSqueeze and ChannelExcite.
struct ChannelSqueeze {
  int64_t rows = 1;
  std::optional<DepthwisePrologue> depthwise{};
  bool operator==(const ChannelSqueeze&) const = default;

  static constexpr const char* kName = "ChannelSqueeze";
  static void fields(auto& op, auto&& f) {
    f("rows", op.rows);
    f("depthwise_", op.depthwise);
  }
};
inline constexpr int64_t kSqueezeBlock = 32;
constexpr int64_t padded_hidden(int64_t hidden) { return (hidden + 3) / 4 * 4; }
inline constexpr size_t kSqueezeWeights = 2, kSqueezeBias = 3;  // places of the depthwise convolution's operands in the inputs

// The second half: Y = X * gate(W * hidden(sum of S over its last dimension + HB) + B), one gate for all pixels of a channel. X[N,C,H,W],
// S[N,R,P] as ChannelSqueeze makes it, W[C,R,1,1], HB[R]?, B[C]?. With the weights of the first half, FW[R,C,1,1]?, S[N,C,P] are
// sums of X over tiles, and FW * (sum of S over its last dimension) / (H*W) takes the place of the sum of S.
struct ChannelExcite {
  ActivationCall hidden, gate;
  bool operator==(const ChannelExcite&) const = default;

  static constexpr const char* kName = "ChannelExcite";
  static void fields(auto& op, auto&& f) {
    f("hidden_", op.hidden);
    f("gate_", op.gate);
  }
};
inline constexpr size_t kExciteFirstWeights = 5;  // place of FW in the inputs

// y = x / (bias + alpha/size * sum of x^2 over `size` channels around c)^beta; channels c-floor((size-1)/2) ..
// c+ceil((size-1)/2), axis 1.
struct Lrn {
  int64_t size = 1;
  float alpha = 1e-4F, beta = 0.75F, bias = 1.0F;
  bool operator==(const Lrn&) const = default;

  static constexpr const char* kName = "LRN";
  static void fields(auto& op, auto&& f) {
    f("size", op.size);
    f("alpha", op.alpha);
    f("beta", op.beta);
    f("bias", op.bias);
  }
};

// Y = scale * (X - mean) / sqrt(var + epsilon) + B; inputs X, scale, B, mean, var.
struct BatchNorm {
  float epsilon = 1e-5F;
  bool operator==(const BatchNorm&) const = default;

  static constexpr const char* kName = "BatchNorm";
  static void fields(auto& op, auto&& f) { f("epsilon", op.epsilon); }
};

// y = (x - mean) / sqrt(var + epsilon) * scale + bias, with mean and var (of the population) over `axes` (sorted, non-negative), or, if not
// `centered`, x / sqrt(mean of x^2 + epsilon) * scale + bias. Inputs X, scale?, B?, which broadcast one way to X. Layer, instance, group
// and root mean square normalisation are this. passes/move_rows may add a fourth input, rows? (i64[R] or i64[R,P], constant). X is then
// [N,C], row r of the result [R,P*C] is rows rows[r] of X side by side (P is 1 for i64[R]), normalised, and scale and B are one row that
// holds for all rows. Example: Swin makes one pixel of four, so P is 4.
struct Normalize {
  std::vector<int64_t> axes;
  bool centered = true;
  float epsilon = 1e-5F;
  bool operator==(const Normalize&) const = default;

  static constexpr const char* kName = "Normalize";
  static void fields(auto& op, auto&& f) {
    f("axes", op.axes);
    f("centered", op.centered, true);
    f("epsilon", op.epsilon);
  }
};
inline constexpr size_t kNormalizeRows = 3;  // place in the inputs of a Normalize

// One step of a chain, in SSA form: operand v >= 0 is input number v of the rOperator, v < 0 is the result of step -1-v.
struct ElementwiseStep {
  ElementwiseOp op = ElementwiseOp::identity;
  std::vector<int32_t> operands;
  float a = 0, b = 0;
  bool operator==(const ElementwiseStep&) const = default;
};

// y = the last step's value at every element of the (numpy-)broadcast shape of the inputs. As the frontend makes it,
// one step; passes/fuse_elementwise joins them. One step `identity` is a copy (with any broadcast and permutation).
struct Elementwise {
  std::vector<ElementwiseStep> steps;
  std::vector<int64_t> shape{};  // broadcast with the inputs' shapes: the shape that `identity` repeats its input to
  std::optional<DType> dtype{};  // of the result of `cast` and `identity`, where the steps do not say it
  bool operator==(const Elementwise&) const = default;

  bool may_change_type() const {
    for (const ElementwiseStep& step : steps) {
      if (step.op == ElementwiseOp::identity || step.op == ElementwiseOp::cast) return true;
    }
    return false;
  }
  static constexpr const char* kName = "Elementwise";
  static void fields(auto& op, auto&& f) {
    f("", op.steps);
    f("shape", op.shape, OfResult{op.may_change_type()});
    f("dtype", op.dtype, OfResult{op.may_change_type()});
  }
};

// The elements in another shape; covers Flatten, Squeeze, Unsqueeze, Reshape.
struct Reshape {
  std::vector<int64_t> shape;
  bool operator==(const Reshape&) const = default;

  static constexpr const char* kName = "Reshape";
  static void fields(auto& op, auto&& f) { f("shape", op.shape, OfResult{}); }
};

struct Transpose {
  std::vector<int64_t> perm;  // output dimension i is input dimension perm[i]
  bool operator==(const Transpose&) const = default;

  static constexpr const char* kName = "Transpose";
  static void fields(auto& op, auto&& f) { f("perm", op.perm); }
};

// y[i] = x[starts + i * steps] for i < extents, one of each per input dimension (steps may be negative, never 0). Split is one
// Slice per output.
struct Slice {
  std::vector<int64_t> starts, steps, extents{};
  bool operator==(const Slice&) const = default;

  static constexpr const char* kName = "Slice";
  static void fields(auto& op, auto&& f) {
    f("starts", op.starts);
    f("steps", op.steps, Each{1, op.starts.size()});
    f("extents", op.extents, OfResult{});
  }
};
Slice whole_slice(const std::vector<int64_t>& shape);  // all of it, for callers that then narrow a dimension

struct Concat {
  int64_t axis = 0;
  bool operator==(const Concat&) const = default;

  static constexpr const char* kName = "Concat";
  static void fields(auto& op, auto&& f) { f("axis", op.axis); }
};

enum class PadMode : uint8_t { constant, reflect, edge, wrap };
std::span<const char* const> names_of(PadMode);

// Lengths of run time (docs/adr/0049): with `ends`, which mode constant without other pads may have, the elements behind an extent are
// `value`, whatever X has there. With Packed::in X is dense with the true extents of the run, as the caller's tensors are; with
// Packed::out Y is, and has no elements behind them. With `number` all of Y is that extent, and X is a constant with the largest.
enum class Packed : uint8_t { none, in, out };
std::span<const char* const> names_of(Packed);

struct Pad {
  std::vector<int64_t> before, after;  // per dimension, negative crops
  PadMode mode = PadMode::constant;
  float value = 0;
  LengthAxes ends{};
  Packed packed = Packed::none;
  std::optional<Extent> number{};
  bool operator==(const Pad&) const = default;

  static constexpr const char* kName = "Pad";
  static void fields(auto& op, auto&& f) {
    f("before", op.before);
    f("after", op.after);
    f("mode", op.mode, PadMode::constant);
    f("value", op.value, 0.0F);
    f("end", op.ends);
    f("packed", op.packed, Packed::none);
    f("number_", op.number);
  }
};

// y = take(x, indices, axis); inputs X, indices (i32/i64, negative counts from the end).
struct Gather {
  int64_t axis = 0;
  bool operator==(const Gather&) const = default;

  static constexpr const char* kName = "Gather";
  static void fields(auto& op, auto&& f) { f("axis", op.axis); }
};

// y[n,c,i] = x[n,c] at the place grid[n,i]: X[N,C,H,W], grid[N,Ho,Wo,2] of (x, y), or in 3-D X[N,C,D,H,W], grid[N,Do,Ho,Wo,3] of
// (x, y, z), in [-1, 1], from the middle of the first pixel to the middle of the last (align_corners) or from edge to edge; or in pixels
// from the middle of the first (in_pixels, in 2-D). cubic is Keys' kernel with a = -0.75.
enum class Interpolation : uint8_t { linear, nearest, cubic };
std::span<const char* const> names_of(Interpolation);
enum class Outside : uint8_t { zeros, border, reflection };  // the values around x
std::span<const char* const> names_of(Outside);

struct GridSample {
  Interpolation mode = Interpolation::linear;
  Outside padding = Outside::zeros;
  bool align_corners = false;
  bool in_pixels = false;
  bool operator==(const GridSample&) const = default;

  static constexpr const char* kName = "GridSample";
  static void fields(auto& op, auto&& f) {
    f("mode", op.mode, Interpolation::linear);
    f("padding", op.padding, Outside::zeros);
    f("align_corners", op.align_corners, false);
    f("in_pixels", op.in_pixels, false);
  }
};

// X with other extents along `axes`, one to three of them: along each, y[o] = sum over t of weights[o,t] * x[indices[o,t]]. Inputs X and,
// for each axis, indices i64[extent,taps] and weights f32[extent,taps], constants. Where an index is -1, all of y there is `outside`.
// Resize and Upsample are this, with tables that the frontend makes.
struct Resample {
  std::vector<int64_t> axes;  // ascending
  float outside = 0;
  bool operator==(const Resample&) const = default;

  static constexpr const char* kName = "Resample";
  static void fields(auto& op, auto&& f) {
    f("axes", op.axes);
    f("outside", op.outside, 0.0F);
  }
};

// y[r,c] is image batch[r] of X[N,C,H,W] in the rectangle rois[r] = (x1, y1, x2, y2), times spatial_scale, in height x width bins: the mean
// (or with `largest` the largest term) of sampling_ratio^2 places of each bin, between pixels; 0: as many as the bin has pixels.
// half_pixel: pixels have their middles at halves. Inputs X, rois f32[R,4], batch f32[R].
struct RoiAlign {
  int64_t height = 1, width = 1, sampling_ratio = 0;
  float spatial_scale = 1;
  bool largest = false, half_pixel = true;
  bool operator==(const RoiAlign&) const = default;

  static constexpr const char* kName = "RoiAlign";
  static void fields(auto& op, auto&& f) {
    f("height", op.height);
    f("width", op.width);
    f("sampling_ratio", op.sampling_ratio, int64_t{0});
    f("spatial_scale", op.spatial_scale, 1.0F);
    f("largest", op.largest, false);
    f("half_pixel", op.half_pixel, true);
  }
};

// y[r,c] is the largest pixel of each of height x width bins of the rectangle rois[r] = (batch, x1, y1, x2, y2), times spatial_scale and
// rounded, ends included; 0 where a bin has none. Inputs X[N,C,H,W], rois f32[R,5].
struct MaxRoiPool {
  int64_t height = 1, width = 1;
  float spatial_scale = 1;
  bool operator==(const MaxRoiPool&) const = default;

  static constexpr const char* kName = "MaxRoiPool";
  static void fields(auto& op, auto&& f) {
    f("height", op.height);
    f("width", op.width);
    f("spatial_scale", op.spatial_scale, 1.0F);
  }
};

// Selects boxes of each image, class by class. Only boxes with a score above least_score count, if there is a threshold. They are taken
// from the highest score down, at most `most`; a box that overlaps one taken before by more than `overlap` (intersection over union) is
// left out. Of equal scores the first box comes first; a box with a NaN score is never taken. Inputs boxes f32[B,N,4] (two corners y, x, y,
// x, or with by_centre x, y, width, height), scores f32[B,C,N]; the result i64[B,C,most] has the boxes' numbers, then -1.
struct NonMaxSuppression {
  int64_t most = 0;
  float overlap = 0, least_score = 0;
  bool has_threshold = false;
  bool by_centre = false;
  bool operator==(const NonMaxSuppression&) const = default;

  static constexpr const char* kName = "NonMaxSuppression";
  static void fields(auto& op, auto&& f) {
    f("most", op.most);
    f("overlap", op.overlap, 0.0F);
    f("least_score", op.least_score, 0.0F);
    f("has_threshold", op.has_threshold, false);
    f("by_centre", op.by_centre, false);
  }
};

// Where X (bool[N]) is true: two results, i64[N] with the positions of the true elements in ascending order, then -1, and i64[1] with their
// number.
struct NonZero {
  bool operator==(const NonZero&) const = default;

  static constexpr const char* kName = "NonZero";
  static void fields(auto&, auto&&) {}
};

// Two results: the first `k` elements along `axis` in sorted order, and their positions in X along `axis` (i64). Of equal elements the
// earlier one comes first, or with last_of_equals the later one. NaN comes before everything, or, without nan_first, behind it.
struct TopK {
  int64_t axis = 0, k = 1;
  bool largest = true;  // first, else the smallest
  bool last_of_equals = false;
  bool nan_first = true;
  bool operator==(const TopK&) const = default;

  static constexpr const char* kName = "TopK";
  static void fields(auto& op, auto&& f) {
    f("axis", op.axis);
    f("k", op.k);
    f("largest", op.largest, true);
    f("last_of_equals", op.last_of_equals, false);
    f("nan_first", op.nan_first, true);
  }
};

// y[i] = the sum (CumSum) or product (CumProd) of the x[j] along `axis` with j <= i; exclusive: with j < i; reverse: from the other end.
struct Cumulate {
  int64_t axis = 0;
  bool product = false;
  bool exclusive = false;
  bool reverse = false;
  bool operator==(const Cumulate&) const = default;

  static constexpr std::array kNames = {"CumSum", "CumProd"};
  static auto& which(auto& op) { return op.product; }
  static void fields(auto& op, auto&& f) {
    f("axis", op.axis);
    f("exclusive", op.exclusive, false);
    f("reverse", op.reverse, false);
  }
};

// The token that follows scores of all words X[..,V], drawn among them (kernels/shared/sampling.h): i64[1]. `amounts` f32[3] are
// temperature (0: the word of the largest score), top-p and the penalty of words that are repeated; `draw` i64[3] are top-k, the seed, and
// the number of the draw; `seen` bool[V] says which words are repeated.
struct NextToken {
  bool operator==(const NextToken&) const = default;

  static constexpr const char* kName = "NextToken";
  static void fields(auto&, auto&&) {}
};

enum class ScatterKind : uint8_t { none, add, mul, max, min };
std::span<const char* const> names_of(ScatterKind);

// y = x, and then for one update after the other, in their order: y[.., index, ..] = f(y[.., index, ..], update). The index stands in the
// place of the update's coordinate along `axis`; f is the update alone (none), or one of the others. inputs X, indices (i32/i64, negative
// counts from the end), updates: of X's rank, and along other axes of at most X's extents. indices have the updates' extents, or 1 along
// other axes, where one index is for all. An update whose index is outside of x changes nothing.
struct Scatter {
  int64_t axis = 0;
  ScatterKind kind = ScatterKind::none;
  bool operator==(const Scatter&) const = default;

  static constexpr const char* kName = "Scatter";
  static void fields(auto& op, auto&& f) {
    f("axis", op.axis);
    f("kind", op.kind, ScatterKind::none);
  }
};

// The moments of rows, of every kMomentColumns neighbours: their mean, and the sum of the squares around it (Welford's and Chan's partial
// moments). X[..,C] -> M[rows of X, C / kMomentColumns, 2]; C is a multiple of kMomentColumns. Example: of a row of 96 columns, M[row,2,0]
// is the mean of columns 64 to 95.
struct Moments {
  bool operator==(const Moments&) const = default;

  static constexpr const char* kName = "Moments";
  static void fields(auto&, auto&&) {}
};
inline constexpr int64_t kMomentColumns = 32;

// Normalize along the last dimension by moments that are known: Y = (X - mean) / sqrt(variance + epsilon). Inputs X[..,C] and moments of
// its rows; `rounded`? of X's shape is X once more, for bodies that read it in 16 bits where these hold enough of a row (docs/adr/0045).
struct NormalizeBy {
  bool centered = true;
  float epsilon = 1e-5F;
  bool operator==(const NormalizeBy&) const = default;

  static constexpr const char* kName = "NormalizeBy";
  static void fields(auto& op, auto&& f) {
    f("centered", op.centered, true);
    f("epsilon", op.epsilon);
  }
};

// The sums of a map's channels over tiles of tile[0] x tile[1] pixels: X[N,C,H,W] -> S[N,C,P], tiles counted row by row. Example: H = W =
// 14 and tile=[7,10] give P = 4; part 1 is rows 0 to 6, columns 10 to 13.
struct TileSums {
  std::vector<int64_t> tile;
  bool operator==(const TileSums&) const = default;

  static constexpr const char* kName = "TileSums";
  static void fields(auto& op, auto&& f) { f("tile", op.tile); }
};

// A loop of run time (docs/adr/0050): what lies between a LoopBegin and the LoopEnd of the same number runs while the first value, the
// condition (bool[]), is true, which it may never be. Inputs of LoopBegin: the values at first, then values that stay as they are; its
// results are the same in an iteration. Inputs of LoopEnd: the results of LoopBegin that change, then what the next iteration has in
// their places; its results are the values behind the loop.
struct LoopBegin {
  int64_t loop = 0;
  bool operator==(const LoopBegin&) const = default;

  static constexpr const char* kName = "LoopBegin";
  static void fields(auto& op, auto&& f) { f("loop", op.loop); }
};
struct LoopEnd {
  int64_t loop = 0;
  bool operator==(const LoopEnd&) const = default;

  static constexpr const char* kName = "LoopEnd";
  static void fields(auto& op, auto&& f) { f("loop", op.loop); }
};

// Steps that one rTask does one after another for its part of the results (XLA's fusion instruction): a small graph of rOperators that
// exist by themselves, whose inputs are the rOperator's operands, in order, and whose outputs are its results. What lies between stays on
// its vEU. What is asked of a Fused is asked of its steps (fused.h), so nothing but the family that has a body for them knows what they are
// together.
struct Graph;
struct Fused {
  std::string title;                  // for people: "fused MLP"
  std::shared_ptr<const Graph> body;  // never null
  bool operator==(const Fused& other) const;

  static constexpr const char* kName = "Fused";
};

// The list of operators; Recurrent is in recurrent.h. A new operator gets its struct above and its entry here.
#define TAMP_OPERATORS(X) \
  X(Conv)                 \
  X(MatMul)               \
  X(Pool)                 \
  X(PoolIndices)          \
  X(MaxUnpool)            \
  X(Reduce)               \
  X(Softmax)              \
  X(Attention)            \
  X(ChannelSqueeze)       \
  X(ChannelExcite)        \
  X(Lrn)                  \
  X(BatchNorm)            \
  X(Normalize)            \
  X(Moments)              \
  X(NormalizeBy)          \
  X(TileSums)             \
  X(Elementwise)          \
  X(Reshape)              \
  X(Transpose)            \
  X(Slice)                \
  X(Concat)               \
  X(Pad)                  \
  X(Gather)               \
  X(GridSample)           \
  X(Resample)             \
  X(RoiAlign)             \
  X(MaxRoiPool)           \
  X(NonMaxSuppression)    \
  X(NonZero)              \
  X(TopK)                 \
  X(Cumulate)             \
  X(NextToken)            \
  X(Scatter)              \
  X(Recurrent)

// What stands between operators and computes nothing: where loops of run time begin and end.
#define TAMP_LOOP_MARKS(X) X(LoopBegin) X(LoopEnd)

namespace detail {
template <class, class... Operators>
using VariantOf = std::variant<Operators...>;
}
#define TAMP_ALTERNATIVE(Op) , Op
using AnyOperator = detail::VariantOf<void TAMP_OPERATORS(TAMP_ALTERNATIVE) TAMP_LOOP_MARKS(TAMP_ALTERNATIVE), Fused>;
#undef TAMP_ALTERNATIVE

// The variant, with its copies, moves and comparison in ops.cpp: each is a function for every operator, and every source that holds a
// rOperator would compile them all, for 1 to 2 s.
struct OpAttrs : AnyOperator {
  using AnyOperator::AnyOperator;
  using AnyOperator::operator=;
  OpAttrs();
  OpAttrs(const OpAttrs& other);
  OpAttrs(OpAttrs&& other) noexcept;
  OpAttrs& operator=(const OpAttrs& other);
  OpAttrs& operator=(OpAttrs&& other) noexcept;
  ~OpAttrs();
  bool operator==(const OpAttrs& other) const;
};

const char* name_of(const OpAttrs& attrs);  // "Conv", "MatMul", ...
bool ends_at_length(const OpAttrs& attrs);  // whether the results depend on a length of run time (docs/adr/0049)

// The word for a value of an enum that has names_of: its values' words in their order.
template <class Enum>
requires requires(Enum value) { names_of(value); }
const char* name_of(Enum value) { return names_of(value)[static_cast<size_t>(value)]; }

}  // namespace tamp
