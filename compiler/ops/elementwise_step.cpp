// The elementwise functions on strips: a loop around each formula of kernels/shared/functions.h, in double, int64_t and uint64_t.
#include <array>

#include "compiler/ops/elementwise.h"
#include "compiler/support/error.h"

namespace tamp::ops {
namespace {

// Operands of one element each (attributes, or what the function does not have) have step 0.
template <class T>
struct StepOperand {
  const T* data;
  size_t step;
};

template <class T>
using Loop = void (*)(const std::array<StepOperand<T>, 3>& operands, size_t count, T* out);

template <class T, T (*kFormula)(T, T, T)>
void loop(const std::array<StepOperand<T>, 3>& operands, size_t count, T* out) {
  const auto& [x, y, z] = operands;
  for (size_t i = 0; i < count; ++i) out[i] = kFormula(x.data[i * x.step], y.data[i * y.step], z.data[i * z.step]);
}

template <class T>
constexpr std::array kLoops = {
#define TAMP_ROW(name, arity, attributes, types, result, speed, price, onnx, formula) Loop<T>{loop<T, rk::functions::of_##name<T>>},
    RK_FUNCTIONS(TAMP_ROW)
#undef TAMP_ROW
};

// u64's bit patterns lie in an int64_t array, which may be looked at as either.
template <class T>
const T* data_of(const Strip& strip) {
  if constexpr (std::is_same_v<T, double>)
    return strip.real.data();
  else
    return reinterpret_cast<const T*>(strip.whole.data());
}

template <class T>
void run(const ElementwiseStep& step, const Operands& operands, const std::string& where, T* out, size_t count) {
  if (!rk::functions::has_form<T>(row_of(step.op).types)) {
    throw unsupported("{}: {} of element type {}, supported: {}", where, name_of(step.op), name_of(operands[0]->dtype),
                      std::is_same_v<T, double> ? "integers" : "floats");
  }
  std::array<T, 3> single{};
  std::array<StepOperand<T>, 3> given{StepOperand<T>{&single[0], 0}, {&single[1], 0}, {&single[2], 0}};
  for (size_t i = 0; i < operands.size(); ++i) given[i] = {data_of<T>(*operands[i]), 1};
  const size_t arity = operands.size();
  const int attributes = row_of(step.op).attributes.count;
  if (attributes > 0) single[arity] = static_cast<T>(step.a);
  if (attributes > 1) single[arity + 1] = static_cast<T>(step.b);
  kLoops<T>[static_cast<size_t>(step.op)](given, count, out);
}

}  // namespace

void run_function(const ElementwiseStep& step, const Operands& operands, const std::string& where, Strip& out) {
  const bool is_u64 = operands.back()->dtype == DType::u64;  // of `where` the first is bool
  if (is_float(operands.back()->dtype))
    run<double>(step, operands, where, out.real.data(), out.real.size());
  else if (is_u64)
    run<uint64_t>(step, operands, where, reinterpret_cast<uint64_t*>(out.whole.data()), out.whole.size());
  else
    run<int64_t>(step, operands, where, out.whole.data(), out.whole.size());
}

}  // namespace tamp::ops
