// The elementwise functions: one row each, and everything that the compiler, its CPU reference and the device know about a
// function is in its row. To add a function is to add a row (docs/adding-an-op.md), at the end: a row's place is its number.
//
//   name        of the function: ElementwiseOp (compiler/ir/ops.h), rk::ChainOp, the text form of graphs
//   arity       operands: x, then y, then z
//   attributes  () or ("name", default) or two of these pairs. Attributes are floats and become the operands after the last real one
//   types       what x may be: reals, wholes (integers), numbers (both), truths (bool), all. `where` has its condition in x
//   result      same: of the type of x (of `where`: of y); truth: bool
//   speed       how the device computes it (kernels/vdevice/functions.cuh): wide = all elements of a thread side by side; four = four
//               elements side by side, for costly but frequent functions; little = one by one, short code; rare = one by one, long code
//   price       what the interpreted chain pays per element, in flops at efficiency 0.25
//   onnx        () or ("Name", {versions}): the operator that is this function and nothing else, with every since_version of ONNX's
//               change log. Operators that are more than one function have an importer of their own in compiler/frontend
//   formula     over x, y, z of type T: float, double and, for whole types, int64_t or uint64_t, of which the low bits count. A formula
//               that is more than an expression is a function above the list. NaN passes through all formulas, also min, max, clip
#pragma once

#include <cmath>
#include <cstdint>
#include <type_traits>

#if defined(__CUDACC__)
#define RK_FUNCTION __device__ __forceinline__
#else
#define RK_FUNCTION inline
#endif

namespace rk::functions {

// The C library's functions under one name for both types.
#define RK_LIBRARY(name)                                   \
  RK_FUNCTION float name(float x) { return ::name##f(x); } \
  RK_FUNCTION double name(double x) { return ::name(x); }
RK_LIBRARY(exp)
RK_LIBRARY(expm1)
RK_LIBRARY(log)
RK_LIBRARY(log1p)
RK_LIBRARY(erf)
RK_LIBRARY(sqrt)
RK_LIBRARY(sin)
RK_LIBRARY(cos)
RK_LIBRARY(tan)
RK_LIBRARY(asin)
RK_LIBRARY(acos)
RK_LIBRARY(atan)
RK_LIBRARY(sinh)
RK_LIBRARY(cosh)
RK_LIBRARY(tanh)
RK_LIBRARY(asinh)
RK_LIBRARY(acosh)
RK_LIBRARY(atanh)
RK_LIBRARY(floor)
RK_LIBRARY(ceil)
RK_LIBRARY(rint)
RK_LIBRARY(fabs)
#undef RK_LIBRARY
RK_FUNCTION int exponent_of(float x) { return ::ilogbf(x); }
RK_FUNCTION int exponent_of(double x) { return ::ilogb(x); }
RK_FUNCTION float times_power(float x, int exponent) { return ::ldexpf(x, exponent); }
RK_FUNCTION double times_power(double x, int exponent) { return ::ldexp(x, exponent); }
RK_FUNCTION float pow(float x, float y) { return ::powf(x, y); }
RK_FUNCTION double pow(double x, double y) { return ::pow(x, y); }
RK_FUNCTION float fmod(float x, float y) { return ::fmodf(x, y); }
RK_FUNCTION double fmod(double x, double y) { return ::fmod(x, y); }

template <class T>
constexpr bool kIsReal = std::is_floating_point_v<T>;

// Whole numbers are added and multiplied as unsigned ones, which wrap.
template <class T>
RK_FUNCTION T sum(T x, T y) {
  if constexpr (kIsReal<T>)
    return x + y;
  else
    return static_cast<T>(static_cast<uint64_t>(x) + static_cast<uint64_t>(y));
}
template <class T>
RK_FUNCTION T difference(T x, T y) {
  if constexpr (kIsReal<T>)
    return x - y;
  else
    return static_cast<T>(static_cast<uint64_t>(x) - static_cast<uint64_t>(y));
}
template <class T>
RK_FUNCTION T product(T x, T y) {
  if constexpr (kIsReal<T>)
    return x * y;
  else
    return static_cast<T>(static_cast<uint64_t>(x) * static_cast<uint64_t>(y));
}
template <class T>
RK_FUNCTION T negative(T x) {
  if constexpr (kIsReal<T>)
    return -x;
  else
    return difference(T{0}, x);
}
template <class T>
RK_FUNCTION T magnitude(T x) {
  if constexpr (kIsReal<T>)
    return fabs(x);
  else
    return x < T{0} ? negative(x) : x;
}

// Whole numbers divide as numpy divides them: x / 0 = 0, x % 0 = 0, and the smallest number / -1 wraps; nothing traps.
template <class T>
RK_FUNCTION T quotient(T x, T y) {
  if constexpr (kIsReal<T>) {
    return x / y;
  } else {
    if (y == T{0}) return T{0};
    if (std::is_signed_v<T> && y == static_cast<T>(-1)) return negative(x);
    return x / y;
  }
}
// The remainder with the sign of x.
template <class T>
RK_FUNCTION T remainder_of(T x, T y) {
  if constexpr (kIsReal<T>) {
    return fmod(x, y);
  } else {
    if (y == T{0} || (std::is_signed_v<T> && y == static_cast<T>(-1))) return T{0};
    return x % y;
  }
}
// With the sign of the divisor, as Python's %.
template <class T>
RK_FUNCTION T floor_mod(T x, T y) {
  const T rest = remainder_of(x, y);
  return rest != T{0} && (rest < T{0}) != (y < T{0}) ? sum(rest, y) : rest;
}
// Of whole numbers: the exact power, wrapped; for a negative y 1 / x^-y rounded towards zero, and 0 for x = 0.
template <class T>
RK_FUNCTION T power(T x, T y) {
  if constexpr (kIsReal<T>) {
    return pow(x, y);
  } else {
    if (y < T{0}) {
      if (x == static_cast<T>(-1)) return y % T{2} == T{0} ? T{1} : x;
      return x == T{1} ? T{1} : T{0};
    }
    T result{1};
    for (uint64_t left = static_cast<uint64_t>(y); left != 0; left >>= 1, x = product(x, x)) {
      if ((left & 1) != 0) result = product(result, x);
    }
    return result;
  }
}

template <class T>
RK_FUNCTION T max_of(T x, T y) {
  return x != x || x > y ? x : y;
}
template <class T>
RK_FUNCTION T min_of(T x, T y) {
  return x != x || x < y ? x : y;
}
template <class T>
RK_FUNCTION T clip(T x, T low, T high) {  // low > high gives high
  return min_of(max_of(x, low), high);
}
template <class T>
RK_FUNCTION T rounded(T x, T low, T high) {  // to nearest, ties to even: what is stored of a quantised number, without its zero point
  return clip(rint(x), low, high);
}
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
RK_FUNCTION float rounded(float x, float low, float high) {  // the same in three instructions instead of seven
  float y = rintf(x);
  asm("max.NaN.f32 %0, %0, %1;" : "+f"(y) : "f"(low));
  asm("min.NaN.f32 %0, %0, %1;" : "+f"(y) : "f"(high));
  return y;
}
#endif
template <class T>
RK_FUNCTION T sign_of(T x) {
  if (x != x) return x;
  return static_cast<T>((x > T{0}) - (x < T{0}));
}
template <class T>
RK_FUNCTION T leaky(T x, T slope) {
  return x < T{0} ? product(x, slope) : x;
}
template <class T>
RK_FUNCTION T sigmoid(T x) {
  return T(1) / (T(1) + exp(-x));
}
template <class T>
RK_FUNCTION T hard_sigmoid(T x, T alpha, T beta) {
  return clip(x * alpha + beta, T(0), T(1));
}
template <class T>
RK_FUNCTION T hard_swish(T x) {
  return x * hard_sigmoid(x, T(1.0 / 6.0), T(0.5));
}
template <class T>
RK_FUNCTION T softplus(T x) {  // exp(x) would overflow
  return log1p(exp(-fabs(x))) + max_of(x, T(0));
}
template <class T>
RK_FUNCTION T gelu(T x) {
  return T(0.5) * x * (T(1) + erf(x * T(0.70710678118654752440)));
}
template <class T>
RK_FUNCTION T gelu_tanh(T x) {
  return T(0.5) * x * (T(1) + tanh(T(0.79788456080286535588) * (x + T(0.044715) * x * x * x)));
}
template <class T>
RK_FUNCTION bool is_infinite(T x) {
  return x - x != x - x && x == x;
}
// A shift by 64 places or more shifts everything out.
template <class T>
RK_FUNCTION T left_shift(T x, T y) {
  return static_cast<uint64_t>(y) < 64 ? static_cast<T>(static_cast<uint64_t>(x) << static_cast<uint64_t>(y)) : T{0};
}
template <class T>
RK_FUNCTION T right_shift(T x, T y) {  // of a negative number ones come in
  if (static_cast<uint64_t>(y) < 64) return static_cast<T>(x >> static_cast<uint64_t>(y));
  return x < T{0} ? static_cast<T>(-1) : T{0};
}
// The number of a float type of 8 or 4 bits that is nearest to x, ties to even. `type` is the type's number in ONNX: 17 e4m3fn, 18
// e4m3fnuz, 19 e5m2, 20 e5m2fnuz, 23 e2m1. What is beyond the largest number becomes that if `saturate` is not 0, else infinity where the
// type has one, else NaN; e2m1 has neither, and always saturates. The types "uz" have no -0. For example e4m3fn: 0.3 lies in steps of 1/32
// and is 0.3125, 17 lies halfway between 16 and 18 and is 16, 1000 is 448.
template <class T>
RK_FUNCTION T small_float(T x, T type, T saturate) {
  if (x != x) return x;
  const int format = static_cast<int>(type);
  const bool is_e4m3 = format == 17 || format == 18, is_e2m1 = format == 23, has_no_minus_zero = format == 18 || format == 20;
  const int digits = is_e4m3 ? 3 : is_e2m1 ? 1 : 2;  // behind the point
  const int lowest = is_e2m1 ? 0 : format == 17 ? -6 : format == 18 ? -7 : format == 19 ? -14 : -15;
  const T largest = format == 17 ? T(448) : format == 18 ? T(240) : is_e2m1 ? T(6) : T(57344);
  const T size = fabs(x);
  T rounded = size;
  if (size < T(2) * largest) {
    const int exponent = size == T(0) ? lowest : exponent_of(size);
    const int step = (exponent < lowest ? lowest : exponent) - digits;
    rounded = times_power(rint(times_power(size, -step)), step);
  }
  if (rounded > largest) {
    if (saturate != T(0) || is_e2m1)
      rounded = largest;
    else
      rounded = static_cast<T>(format == 19 ? INFINITY : NAN);
  }
  if (rounded == T(0)) return has_no_minus_zero ? T(0) : x * T(0);
  return x < T(0) ? -rounded : rounded;
}

}  // namespace rk::functions

// clang-format off
#define RK_FUNCTIONS(ROW)                                                                                                          \
  ROW(identity, 1, (), all, same, wide, 14, (), x)                                                                                 \
  ROW(neg, 1, (), numbers, same, little, 14, ("Neg", {1, 6, 13}), negative(x))                                                     \
  ROW(abs, 1, (), numbers, same, little, 14, ("Abs", {1, 6, 13}), magnitude(x))                                                    \
  ROW(sqrt, 1, (), reals, same, four, 40, ("Sqrt", {1, 6, 13}), sqrt(x))                                                           \
  ROW(reciprocal, 1, (), reals, same, rare, 40, ("Reciprocal", {1, 6, 13}), T(1) / x)                                              \
  ROW(exp, 1, (), reals, same, four, 40, ("Exp", {1, 6, 13}), exp(x))                                                              \
  ROW(log, 1, (), reals, same, rare, 40, ("Log", {1, 6, 13}), log(x))                                                              \
  ROW(erf, 1, (), reals, same, four, 40, ("Erf", {9, 13}), erf(x))                                                                 \
  ROW(sin, 1, (), reals, same, rare, 40, ("Sin", {7, 22}), sin(x))                                                                 \
  ROW(cos, 1, (), reals, same, rare, 40, ("Cos", {7, 22}), cos(x))                                                                 \
  ROW(floor, 1, (), reals, same, rare, 40, ("Floor", {1, 6, 13}), floor(x))                                                        \
  ROW(ceil, 1, (), reals, same, rare, 40, ("Ceil", {1, 6, 13}), ceil(x))                                                           \
  ROW(round, 1, (), reals, same, rare, 40, ("Round", {11, 22}), rint(x))                                                           \
  ROW(sign, 1, (), numbers, same, rare, 40, ("Sign", {9, 13}), sign_of(x))                                                         \
  ROW(relu, 1, (), numbers, same, wide, 14, ("Relu", {1, 6, 13, 14}), x < T(0) ? T(0) : x)                                         \
  ROW(leaky_relu, 1, ("alpha", 0.01F), reals, same, little, 40, ("LeakyRelu", {1, 6, 16}), leaky(x, y))                            \
  ROW(elu, 1, ("alpha", 1.0F), reals, same, rare, 40, ("Elu", {1, 6, 22}), x < T(0) ? y * expm1(x) : x)                            \
  ROW(clip, 1, ("min", 0.0F, "max", 0.0F), reals, same, wide, 14, (), clip(x, y, z))                                               \
  ROW(sigmoid, 1, (), reals, same, four, 40, ("Sigmoid", {1, 6, 13}), sigmoid(x))                                                  \
  ROW(hard_sigmoid, 1, ("alpha", 0.2F, "beta", 0.5F), reals, same, little, 40, ("HardSigmoid", {1, 6, 22}), hard_sigmoid(x, y, z)) \
  ROW(hard_swish, 1, (), reals, same, little, 40, ("HardSwish", {14, 22}), hard_swish(x))                                          \
  ROW(tanh, 1, (), reals, same, four, 40, ("Tanh", {1, 6, 13}), tanh(x))                                                           \
  ROW(softplus, 1, (), reals, same, rare, 40, ("Softplus", {1, 22}), softplus(x))                                                  \
  ROW(gelu, 1, (), reals, same, four, 40, (), gelu(x))                                                                             \
  ROW(gelu_tanh, 1, (), reals, same, rare, 40, (), gelu_tanh(x))                                                                   \
  ROW(add, 2, (), numbers, same, wide, 14, ("Add", {1, 6, 7, 13, 14}), sum(x, y))                                                  \
  ROW(sub, 2, (), numbers, same, wide, 14, ("Sub", {1, 6, 7, 13, 14}), difference(x, y))                                           \
  ROW(mul, 2, (), numbers, same, wide, 14, ("Mul", {1, 6, 7, 13, 14}), product(x, y))                                              \
  ROW(div, 2, (), numbers, same, four, 40, ("Div", {1, 6, 7, 13, 14}), quotient(x, y))                                             \
  ROW(pow, 2, (), numbers, same, rare, 40, (), power(x, y))                                                                        \
  ROW(min, 2, (), numbers, same, wide, 14, (), min_of(x, y))                                                                       \
  ROW(max, 2, (), numbers, same, wide, 14, (), max_of(x, y))                                                                       \
  ROW(mod, 2, (), numbers, same, rare, 40, (), floor_mod(x, y))                                                                    \
  ROW(fmod, 2, (), numbers, same, rare, 40, (), remainder_of(x, y))                                                                \
  ROW(prelu, 2, (), numbers, same, little, 40, (), leaky(x, y))                                                                    \
  ROW(equal, 2, (), all, truth, rare, 40, ("Equal", {1, 7, 11, 13, 19}), x == y)                                                   \
  ROW(less, 2, (), numbers, truth, rare, 40, ("Less", {1, 7, 9, 13}), x < y)                                                       \
  ROW(less_equal, 2, (), numbers, truth, rare, 40, ("LessOrEqual", {12, 16}), x <= y)                                              \
  ROW(greater, 2, (), numbers, truth, rare, 40, ("Greater", {1, 7, 9, 13}), x > y)                                                 \
  ROW(greater_equal, 2, (), numbers, truth, rare, 40, ("GreaterOrEqual", {12, 16}), x >= y)                                        \
  ROW(logical_and, 2, (), truths, truth, rare, 40, ("And", {1, 7}), x != T(0) && y != T(0))                                        \
  ROW(logical_or, 2, (), truths, truth, rare, 40, ("Or", {1, 7}), x != T(0) || y != T(0))                                          \
  ROW(logical_xor, 2, (), truths, truth, rare, 40, ("Xor", {1, 7}), (x != T(0)) != (y != T(0)))                                    \
  ROW(logical_not, 1, (), truths, truth, rare, 40, ("Not", {1}), x == T(0))                                                        \
  ROW(where, 3, (), all, same, four, 40, (), x != T(0) ? y : z)                                                                    \
  ROW(cast, 1, (), all, same, wide, 40, (), x)                                                                                     \
  ROW(tan, 1, (), reals, same, rare, 60, ("Tan", {7, 22}), tan(x))                                                                 \
  ROW(asin, 1, (), reals, same, rare, 40, ("Asin", {7, 22}), asin(x))                                                              \
  ROW(acos, 1, (), reals, same, rare, 40, ("Acos", {7, 22}), acos(x))                                                              \
  ROW(atan, 1, (), reals, same, rare, 40, ("Atan", {7, 22}), atan(x))                                                              \
  ROW(sinh, 1, (), reals, same, rare, 60, ("Sinh", {9, 22}), sinh(x))                                                              \
  ROW(cosh, 1, (), reals, same, rare, 60, ("Cosh", {9, 22}), cosh(x))                                                              \
  ROW(asinh, 1, (), reals, same, rare, 60, ("Asinh", {9, 22}), asinh(x))                                                           \
  ROW(acosh, 1, (), reals, same, rare, 60, ("Acosh", {9, 22}), acosh(x))                                                           \
  ROW(atanh, 1, (), reals, same, rare, 60, ("Atanh", {9, 22}), atanh(x))                                                           \
  ROW(selu, 1, ("alpha", 1.67326319217681884765625F, "gamma", 1.05070102214813232421875F), reals, same, rare, 40,                  \
      ("Selu", {6, 22}), z * (x < T(0) ? y * expm1(x) : x))                                                                        \
  ROW(celu, 1, ("alpha", 1.0F), reals, same, rare, 40, ("Celu", {12, 28}), x < T(0) ? y * expm1(x / y) : x)                        \
  ROW(thresholded_relu, 1, ("alpha", 1.0F), reals, same, little, 40, ("ThresholdedRelu", {10, 22}), x <= y ? T(0) : x)             \
  ROW(softsign, 1, (), reals, same, little, 40, ("Softsign", {1, 22}), x / (T(1) + fabs(x)))                                       \
  ROW(mish, 1, (), reals, same, rare, 80, ("Mish", {18, 22}), x * tanh(softplus(x)))                                               \
  ROW(swish, 1, ("alpha", 1.0F), reals, same, rare, 40, ("Swish", {24}), x * sigmoid(x * y))                                       \
  ROW(shrink, 1, ("bias", 0.0F, "lambd", 0.5F), reals, same, little, 40, ("Shrink", {9}),                                          \
      x < -z ? x + y : x > z ? x - y : x != x ? x : T(0))                                                                          \
  ROW(is_nan, 1, (), reals, truth, rare, 40, ("IsNaN", {9, 13, 20}), x != x)                                                       \
  ROW(is_inf, 1, ("negative", 1.0F, "positive", 1.0F), reals, truth, rare, 40, (), is_infinite(x) && (x < T(0) ? y : z) != T(0))   \
  ROW(bit_and, 2, (), wholes, same, rare, 40, ("BitwiseAnd", {18}), x & y)                                                         \
  ROW(bit_or, 2, (), wholes, same, rare, 40, ("BitwiseOr", {18}), x | y)                                                           \
  ROW(bit_xor, 2, (), wholes, same, rare, 40, ("BitwiseXor", {18}), x ^ y)                                                         \
  ROW(bit_not, 1, (), wholes, same, rare, 40, ("BitwiseNot", {18}), ~x)                                                            \
  ROW(shift_left, 2, (), wholes, same, rare, 40, (), left_shift(x, y))                                                             \
  ROW(shift_right, 2, (), wholes, same, rare, 40, (), right_shift(x, y))                                                           \
  ROW(small_float, 1, ("type", 17.0F, "saturate", 1.0F), reals, same, rare, 60, (), small_float(x, y, z))                          \
  ROW(rounded, 1, ("min", 0.0F, "max", 0.0F), reals, same, wide, 14, (), rounded(x, y, z))
// clang-format on

namespace rk::functions {

enum class Types : uint8_t { reals, wholes, numbers, truths, all };
enum class Result : uint8_t { same, truth };
enum class Speed : uint8_t { wide, four, little, rare };

// Whether a function that takes kTypes has a form that computes in T. A truth is 0 or 1 in every T.
template <class T, Types kTypes>
constexpr bool kHasForm = kTypes != (kIsReal<T> ? Types::wholes : Types::reals);
template <class T>
constexpr bool has_form(Types types) {  // for the host
  return types != (kIsReal<T> ? Types::wholes : Types::reals);
}

// The formula of each row, f(x, y, z) -> T.
#define RK_FORMULA(name, arity, attributes, types, result, speed, price, onnx, formula)       \
  template <class T>                                                                          \
  RK_FUNCTION T of_##name([[maybe_unused]] T x, [[maybe_unused]] T y, [[maybe_unused]] T z) { \
    if constexpr (kHasForm<T, Types::types>)                                                  \
      return static_cast<T>(formula);                                                         \
    else                                                                                      \
      return T{}; /* nobody asks for it */                                                    \
  }
RK_FUNCTIONS(RK_FORMULA)
#undef RK_FORMULA

}  // namespace rk::functions
