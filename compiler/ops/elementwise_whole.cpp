// Elementwise functions on integers and bool. Sums and products wrap as numpy's do; what has no value (x / 0, the
// smallest integer / -1, 0 to a negative power) is the user's error and never a trap.
#include <algorithm>
#include <limits>

#include "compiler/ops/elementwise.h"
#include "compiler/ops/number.h"

namespace tamp::ops {
namespace {

template <class F>
void map1(const Operands& operands, Strip& out, F&& f) {
  const std::vector<int64_t>& x = operands[0]->whole;
  for (size_t i = 0; i < x.size(); ++i) out.whole[i] = f(x[i]);
}

// f gets the operands as uint64_t, in which + - * wrap.
template <class F>
void map2(const Operands& operands, Strip& out, F&& f) {
  const std::vector<int64_t>&x = operands[0]->whole, &y = operands[1]->whole;
  for (size_t i = 0; i < x.size(); ++i) {
    out.whole[i] = static_cast<int64_t>(f(static_cast<uint64_t>(x[i]), static_cast<uint64_t>(y[i])));
  }
}

// f gets the operands as int64_t, or as uint64_t if the type is unsigned.
template <class F>
void map2_by_sign(const Operands& operands, Strip& out, F&& f) {
  if (out.dtype == DType::u64) return map2(operands, out, f);
  map2(operands, out, [&](uint64_t x, uint64_t y) { return static_cast<uint64_t>(f(static_cast<int64_t>(x), static_cast<int64_t>(y))); });
}

struct Divide {
  DType dtype;
  const std::string& where;

  template <class T>
  T operator()(T x, T y) const {
    if (y == 0) throw bad_input(where + ": integer division by zero");
    if (std::is_signed_v<T> && y == static_cast<T>(-1)) {
      const T negative = static_cast<T>(0 - static_cast<uint64_t>(x));
      if (x != 0 && (negative == x || wrap_whole(static_cast<int64_t>(negative), dtype) != static_cast<int64_t>(negative))) {
        throw bad_input(where + ": " + std::to_string(x) + " / -1 does not fit " + name_of(dtype));
      }
      return negative;
    }
    return x / y;
  }
};

struct Remainder {
  bool sign_of_divisor;
  const std::string& where;

  template <class T>
  T operator()(T x, T y) const {
    if (y == 0) throw bad_input(where + ": integer remainder of a division by zero");
    if (std::is_signed_v<T> && y == static_cast<T>(-1)) return 0;  // the smallest % -1 traps
    const T rest = x % y;
    return sign_of_divisor && rest != 0 && (rest < 0) != (y < 0) ? rest + y : rest;
  }
};

struct Power {
  bool negative_exponents;
  const std::string& where;

  uint64_t operator()(uint64_t base, uint64_t exponent) const {
    if (negative_exponents && static_cast<int64_t>(exponent) < 0) return reciprocal_power(static_cast<int64_t>(base), exponent);
    uint64_t result = 1;
    for (; exponent != 0; exponent >>= 1, base *= base) {
      if ((exponent & 1) != 0) result *= base;
    }
    return result;
  }
  uint64_t reciprocal_power(int64_t base, uint64_t exponent) const {
    if (base == 0) throw bad_input(where + ": 0 to a negative power");
    if (base == -1) return (exponent & 1) != 0 ? static_cast<uint64_t>(-1) : 1;
    return base == 1 ? 1 : 0;
  }
};

// A bound of clip, which is a float attribute, as an integer of the element type; beyond its range: the type's end.
struct Clip {
  double low, high;

  int64_t operator()(int64_t x, int64_t y) const { return clip(x, y, -0x1p63, 0x1p63); }
  uint64_t operator()(uint64_t x, uint64_t y) const { return clip(x, y, 0, 0x1p64); }

 private:
  template <class T>
  T clip(T x, T, double type_min, double type_end) const {
    const auto bound = [&](double value) {
      if (value >= type_end) return std::numeric_limits<T>::max();
      return value <= type_min ? std::numeric_limits<T>::min() : static_cast<T>(value);
    };
    return std::min(std::max(x, bound(low)), bound(high));
  }
};

}  // namespace

void whole_step(const ElementwiseStep& step, const Operands& operands, const std::string& where, Strip& out) {
  switch (step.op) {
    case ElementwiseOp::identity:
    case ElementwiseOp::cast:
    case ElementwiseOp::floor:
    case ElementwiseOp::ceil:
    case ElementwiseOp::round: return map1(operands, out, [](int64_t x) { return x; });
    case ElementwiseOp::neg: return map1(operands, out, [](int64_t x) { return static_cast<int64_t>(0 - static_cast<uint64_t>(x)); });
    case ElementwiseOp::abs:
      if (out.dtype == DType::u64) return map1(operands, out, [](int64_t x) { return x; });
      return map1(operands, out, [](int64_t x) { return x < 0 ? static_cast<int64_t>(0 - static_cast<uint64_t>(x)) : x; });
    case ElementwiseOp::sign:
      if (out.dtype == DType::u64) return map1(operands, out, [](int64_t x) { return x != 0; });
      return map1(operands, out, [](int64_t x) { return (x > 0) - (x < 0); });
    case ElementwiseOp::relu:
      if (out.dtype == DType::u64) return map1(operands, out, [](int64_t x) { return x; });
      return map1(operands, out, [](int64_t x) { return std::max<int64_t>(x, 0); });
    case ElementwiseOp::clip: return map2_by_sign({operands[0], operands[0]}, out, Clip{step.a, step.b});
    case ElementwiseOp::add: return map2(operands, out, std::plus<uint64_t>());
    case ElementwiseOp::sub: return map2(operands, out, std::minus<uint64_t>());
    case ElementwiseOp::mul: return map2(operands, out, std::multiplies<uint64_t>());
    case ElementwiseOp::div: return map2_by_sign(operands, out, Divide{out.dtype, where});
    case ElementwiseOp::mod: return map2_by_sign(operands, out, Remainder{true, where});
    case ElementwiseOp::fmod: return map2_by_sign(operands, out, Remainder{false, where});
    case ElementwiseOp::pow: return map2(operands, out, Power{operands[1]->dtype != DType::u64, where});
    case ElementwiseOp::min: return map2_by_sign(operands, out, [](auto x, auto y) { return std::min(x, y); });
    case ElementwiseOp::max: return map2_by_sign(operands, out, [](auto x, auto y) { return std::max(x, y); });
    case ElementwiseOp::prelu:
      if (out.dtype == DType::u64) return map1(operands, out, [](int64_t x) { return x; });
      return map2(operands, out, [](uint64_t x, uint64_t slope) { return static_cast<int64_t>(x) < 0 ? x * slope : x; });
    case ElementwiseOp::logical_and: return map2(operands, out, [](uint64_t x, uint64_t y) { return x != 0 && y != 0; });
    case ElementwiseOp::logical_or: return map2(operands, out, [](uint64_t x, uint64_t y) { return x != 0 || y != 0; });
    case ElementwiseOp::logical_xor: return map2(operands, out, [](uint64_t x, uint64_t y) { return (x != 0) != (y != 0); });
    case ElementwiseOp::logical_not: return map1(operands, out, [](int64_t x) { return x == 0; });
    case ElementwiseOp::sqrt:
    case ElementwiseOp::reciprocal:
    case ElementwiseOp::exp:
    case ElementwiseOp::log:
    case ElementwiseOp::erf:
    case ElementwiseOp::sin:
    case ElementwiseOp::cos:
    case ElementwiseOp::leaky_relu:
    case ElementwiseOp::elu:
    case ElementwiseOp::sigmoid:
    case ElementwiseOp::hard_sigmoid:
    case ElementwiseOp::hard_swish:
    case ElementwiseOp::tanh:
    case ElementwiseOp::softplus:
    case ElementwiseOp::gelu:
    case ElementwiseOp::gelu_tanh:
      throw unsupported(where + ": " + name_of(step.op) + " of element type " + name_of(out.dtype) + ", supported: floats");
    case ElementwiseOp::equal:
    case ElementwiseOp::less:
    case ElementwiseOp::less_equal:
    case ElementwiseOp::greater:
    case ElementwiseOp::greater_equal:
    case ElementwiseOp::where: break;  // not functions of integers alone
  }
  TAMP_CHECK(false, std::string("no integer function for ") + name_of(step.op));
}

}  // namespace tamp::ops
