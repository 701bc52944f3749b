// Elementwise functions on floats, and the comparisons.
#include <cmath>
#include <functional>

#include "compiler/ops/elementwise.h"
#include "compiler/ops/functions.h"
#include "compiler/support/error.h"

namespace tamp::ops {
namespace {

template <class F>
void map1(const Operands& operands, Strip& out, F&& f) {
  const std::vector<double>& x = operands[0]->real;
  for (size_t i = 0; i < x.size(); ++i) out.real[i] = f(x[i]);
}

template <class F>
void map2(const Operands& operands, Strip& out, F&& f) {
  const std::vector<double>&x = operands[0]->real, &y = operands[1]->real;
  for (size_t i = 0; i < x.size(); ++i) out.real[i] = f(x[i], y[i]);
}

template <class Compare>
void compare(const Operands& operands, Strip& out, Compare&& f) {
  const Strip &x = *operands[0], &y = *operands[1];
  for (size_t i = 0; i < out.whole.size(); ++i) {
    bool result = false;
    if (is_float(x.dtype)) {
      result = f(x.real[i], y.real[i]);
    } else if (x.dtype == DType::u64) {
      result = f(static_cast<uint64_t>(x.whole[i]), static_cast<uint64_t>(y.whole[i]));
    } else {
      result = f(x.whole[i], y.whole[i]);
    }
    out.whole[i] = result ? 1 : 0;
  }
}

}  // namespace

void real_step(const ElementwiseStep& step, const Operands& operands, Strip& out) {
  const double a = step.a, b = step.b;
  switch (step.op) {
    case ElementwiseOp::identity:
    case ElementwiseOp::cast: return map1(operands, out, [](double x) { return x; });
    case ElementwiseOp::neg: return map1(operands, out, [](double x) { return -x; });
    case ElementwiseOp::abs: return map1(operands, out, [](double x) { return std::fabs(x); });
    case ElementwiseOp::sqrt: return map1(operands, out, [](double x) { return std::sqrt(x); });
    case ElementwiseOp::reciprocal: return map1(operands, out, [](double x) { return 1.0 / x; });
    case ElementwiseOp::exp: return map1(operands, out, [](double x) { return std::exp(x); });
    case ElementwiseOp::log: return map1(operands, out, [](double x) { return std::log(x); });
    case ElementwiseOp::erf: return map1(operands, out, [](double x) { return std::erf(x); });
    case ElementwiseOp::sin: return map1(operands, out, [](double x) { return std::sin(x); });
    case ElementwiseOp::cos: return map1(operands, out, [](double x) { return std::cos(x); });
    case ElementwiseOp::floor: return map1(operands, out, [](double x) { return std::floor(x); });
    case ElementwiseOp::ceil: return map1(operands, out, [](double x) { return std::ceil(x); });
    case ElementwiseOp::round: return map1(operands, out, [](double x) { return std::nearbyint(x); });  // half to even
    case ElementwiseOp::sign: return map1(operands, out, sign_of);
    case ElementwiseOp::relu: return map1(operands, out, relu);
    case ElementwiseOp::leaky_relu: return map1(operands, out, [&](double x) { return leaky_relu(x, a); });
    case ElementwiseOp::elu: return map1(operands, out, [&](double x) { return elu(x, a); });
    case ElementwiseOp::clip: return map1(operands, out, [&](double x) { return clip(x, a, b); });
    case ElementwiseOp::sigmoid: return map1(operands, out, sigmoid);
    case ElementwiseOp::hard_sigmoid: return map1(operands, out, [&](double x) { return hard_sigmoid(x, a, b); });
    case ElementwiseOp::hard_swish: return map1(operands, out, hard_swish);
    case ElementwiseOp::tanh: return map1(operands, out, [](double x) { return std::tanh(x); });
    case ElementwiseOp::softplus: return map1(operands, out, softplus);
    case ElementwiseOp::gelu: return map1(operands, out, gelu);
    case ElementwiseOp::gelu_tanh: return map1(operands, out, gelu_tanh);
    case ElementwiseOp::add: return map2(operands, out, std::plus<double>());
    case ElementwiseOp::sub: return map2(operands, out, std::minus<double>());
    case ElementwiseOp::mul: return map2(operands, out, std::multiplies<double>());
    case ElementwiseOp::div: return map2(operands, out, std::divides<double>());
    case ElementwiseOp::pow: return map2(operands, out, [](double x, double y) { return std::pow(x, y); });
    case ElementwiseOp::min: return map2(operands, out, min_of);
    case ElementwiseOp::max: return map2(operands, out, max_of);
    case ElementwiseOp::mod: return map2(operands, out, floor_mod);
    case ElementwiseOp::fmod: return map2(operands, out, [](double x, double y) { return std::fmod(x, y); });
    case ElementwiseOp::prelu: return map2(operands, out, leaky_relu);
    case ElementwiseOp::equal:
    case ElementwiseOp::less:
    case ElementwiseOp::less_equal:
    case ElementwiseOp::greater:
    case ElementwiseOp::greater_equal:
    case ElementwiseOp::logical_and:
    case ElementwiseOp::logical_or:
    case ElementwiseOp::logical_xor:
    case ElementwiseOp::logical_not:
    case ElementwiseOp::where: break;  // their results are not computed with floats
  }
  TAMP_CHECK(false, std::string("no float function for ") + name_of(step.op));
}

bool is_comparison(ElementwiseOp op) {
  return op == ElementwiseOp::equal || op == ElementwiseOp::less || op == ElementwiseOp::less_equal || op == ElementwiseOp::greater ||
         op == ElementwiseOp::greater_equal;
}

void compare_step(const ElementwiseStep& step, const Operands& operands, Strip& out) {
  if (step.op == ElementwiseOp::equal) return compare(operands, out, std::equal_to<>());
  if (step.op == ElementwiseOp::less) return compare(operands, out, std::less<>());
  if (step.op == ElementwiseOp::less_equal) return compare(operands, out, std::less_equal<>());
  if (step.op == ElementwiseOp::greater) return compare(operands, out, std::greater<>());
  TAMP_CHECK(step.op == ElementwiseOp::greater_equal, std::string("not a comparison: ") + name_of(step.op));
  compare(operands, out, std::greater_equal<>());
}

}  // namespace tamp::ops
