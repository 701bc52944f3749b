// The internal operators. The frontend turns every version of an ONNX operator into one of these; anything that an
// older or newer version words differently is gone here. One struct per operator, attributes only; inputs are listed
// in the comment in order ("?" = may be none).
#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "compiler/ir/dtype.h"
#include "compiler/ir/recurrent.h"
#include "kernels/shared/functions.h"

namespace tamp {

// What a rKernel applies to its accumulator before it stores: y = act(acc + bias + residual), or act(acc + bias) +
// residual if the activation comes first. Only Conv, MatMul and Pool-like rOperators carry one.
enum class Activation : uint8_t { none, relu, clip, sigmoid, tanh, hard_sigmoid, hard_swish, leaky_relu, silu, gelu };
const char* name_of(Activation activation);

// An activation and its attributes (clip: min and max; leaky_relu: slope; hard_sigmoid: alpha, beta).
struct ActivationCall {
  Activation kind = Activation::none;
  float a = 0, b = 0;
};

// A convolution of every channel by a filter of its own, in front of a pointwise Conv, which then multiplies
// act(depthwise(X) + bias) instead of X.
struct DepthwisePrologue {
  std::vector<int64_t> kernel, strides, dilations;
  std::vector<int64_t> pads_begin, pads_end;
  ActivationCall activation;
};

// Y = conv(X, W) + B. X[N,C,spatial..], W[M,C/group,kernel..], B[M]?. One or two spatial dimensions.
// passes/fuse_depthwise puts in front of it what would be rOperators of their own: an activation of X (pads stay zeros), then
// a depthwise convolution, whose operands are DW[C,1,its kernel..] and DB[C]? behind the Conv's own: inputs X, W, B?, DW?, DB?.
struct Conv {
  std::vector<int64_t> kernel, strides, dilations;
  std::vector<int64_t> pads_begin, pads_end;  // auto_pad is resolved at import
  int64_t group = 1;
  ActivationCall input_activation{};
  std::optional<DepthwisePrologue> depthwise{};  // only where kernel, strides and group are 1 and there are no pads
};
inline constexpr size_t kDepthwiseWeights = 3, kDepthwiseBias = 4;  // places in the inputs of a Conv

bool has_prologue(const Conv& conv);  // whether it does something before its own product
bool is_pointwise(const Conv& conv);  // one tap, one group, no stride, no pads

// Y = alpha * op(A) * op(B) + beta * C. numpy matmul semantics: A[..,M,K], B[..,K,N], leading dimensions broadcast.
// C? broadcasts one way to Y. Gemm is the rank-2 case; 1-D operands are reshaped at import.
struct MatMul {
  bool trans_a = false, trans_b = false;
  float alpha = 1, beta = 1;
};

enum class PoolKind : uint8_t { max, average };
// Y = pool(X), X[N,C,spatial..] with one or two spatial dimensions. The output extent is in the output tensor's shape
// (ceil_mode is resolved at import). average divides by the count of elements inside the input, or, with
// count_include_pad, inside input plus pads (never the overhang of ceil_mode).
struct Pool {
  PoolKind kind = PoolKind::max;
  std::vector<int64_t> kernel, strides, dilations;
  std::vector<int64_t> pads_begin, pads_end;
  bool count_include_pad = false;
};

enum class ReduceKind : uint8_t { sum, mean, max, min, prod, l1, l2, sum_square, log_sum, log_sum_exp };
// Reduces over `axes` (sorted, non-negative). With keepdims the output has extent 1 there, without they are gone.
// GlobalAveragePool and GlobalMaxPool are Reduce over the spatial axes with keepdims.
struct Reduce {
  ReduceKind kind = ReduceKind::sum;
  std::vector<int64_t> axes;
  bool keepdims = true;
};

// Softmax over the joint extent of dimensions [first_axis, last_axis] (before opset 13: axis..rank-1).
struct Softmax {
  int64_t first_axis = 0, last_axis = 0;
  bool log = false;
};

// y = x / (bias + alpha/size * sum of x^2 over `size` channels around c)^beta; channels c-floor((size-1)/2) ..
// c+ceil((size-1)/2), axis 1.
struct Lrn {
  int64_t size = 1;
  float alpha = 1e-4F, beta = 0.75F, bias = 1.0F;
};

// Y = scale * (X - mean) / sqrt(var + epsilon) + B; inputs X, scale, B, mean, var.
struct BatchNorm {
  float epsilon = 1e-5F;
};

// The elementwise functions: the rows of kernels/shared/functions.h, which says what they are. `a` and `b` are attributes.
enum class ElementwiseOp : uint8_t {
#define TAMP_ROW(name, arity, attributes, types, result, speed, price, onnx, formula) name,
  RK_FUNCTIONS(TAMP_ROW)
#undef TAMP_ROW
};

// A row without its formula.
struct FunctionRow {
  struct Attributes {
    int count = 0;
    std::array<const char*, 2> names{};
    std::array<float, 2> defaults{};
    constexpr Attributes() = default;
    constexpr Attributes(const char* name, float value) : count(1), names{name}, defaults{value} {}
    constexpr Attributes(const char* name, float value, const char* name2, float value2)
        : count(2), names{name, name2}, defaults{value, value2} {}
  };
  struct Onnx {
    const char* name = nullptr;  // none: no operator is this function and nothing else
    std::array<int, 8> versions{};
    size_t version_count = 0;
    constexpr Onnx() = default;
    constexpr Onnx(const char* name_, std::initializer_list<int> list) : name(name_) {
      for (const int version : list) versions[version_count++] = version;
    }
  };
  ElementwiseOp op;
  const char* name;
  int arity;
  Attributes attributes;
  rk::functions::Types types;
  rk::functions::Result result;
  rk::functions::Speed speed;
  double price;
  Onnx onnx;
};
std::span<const FunctionRow> function_rows();
const FunctionRow& row_of(ElementwiseOp op);
const char* name_of(ElementwiseOp op);
int arity_of(ElementwiseOp op);

// One step of a chain, in SSA form: operand v >= 0 is input number v of the rOperator, v < 0 is the result of step -1-v.
struct ElementwiseStep {
  ElementwiseOp op = ElementwiseOp::identity;
  std::vector<int32_t> operands;
  float a = 0, b = 0;
};

// y = the last step's value at every element of the (numpy-)broadcast shape of the inputs. As the frontend makes it,
// one step; passes/fuse_elementwise joins them. One step `identity` is a copy (with any broadcast and permutation).
struct Elementwise {
  std::vector<ElementwiseStep> steps;
};

struct Reshape {};  // the shape is the output tensor's; covers Flatten, Squeeze, Unsqueeze, Reshape
struct Transpose {
  std::vector<int64_t> perm;  // output dimension i is input dimension perm[i]
};
// y[i] = x[starts + i * steps], one start and step per input dimension (steps may be negative, never 0); the output
// extent is in the output's shape. Split is one Slice per output.
struct Slice {
  std::vector<int64_t> starts, steps;
};
struct Concat {
  int64_t axis = 0;
};
enum class PadMode : uint8_t { constant, reflect, edge, wrap };
struct Pad {
  std::vector<int64_t> before, after;  // per dimension, negative crops
  PadMode mode = PadMode::constant;
  float value = 0;
};
// y = take(x, indices, axis); inputs X, indices (i32/i64, negative counts from the end).
struct Gather {
  int64_t axis = 0;
};

// Recurrent, the only one with several results, is in recurrent.h.
using OpAttrs = std::variant<Conv, MatMul, Pool, Reduce, Softmax, Lrn, BatchNorm, Elementwise, Reshape, Transpose, Slice, Concat, Pad,
                             Gather, Recurrent>;
const char* name_of(const OpAttrs& attrs);  // "Conv", "MatMul", ...

}  // namespace tamp
