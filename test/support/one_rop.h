// The CPU reference of one rOperator whose operands are constants: values by their elements, and what comes out.
#pragma once

#include <cmath>
#include <cstring>
#include <limits>

#include "compiler/ops/ops.h"
#include "compiler/support/error.h"
#include "test/support/catch.h"
#include "test/support/of_result.h"

namespace tamp::test {

using Catch::Matchers::Contains;
using ops::Value;

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr int64_t kMin64 = std::numeric_limits<int64_t>::min();

template <class T>
Value value(DType dtype, Shape shape, const std::vector<T>& elements) {
  Bytes bytes(elements.size() * sizeof(T));
  if (!bytes.empty()) std::memcpy(bytes.data(), elements.data(), bytes.size());
  return Value{dtype, std::move(shape), std::make_shared<const Bytes>(std::move(bytes))};
}

inline Value f32(Shape shape, const std::vector<float>& elements) { return value(DType::f32, std::move(shape), elements); }
inline Value i64(Shape shape, const std::vector<int64_t>& elements) { return value(DType::i64, std::move(shape), elements); }
inline Value i32(Shape shape, const std::vector<int32_t>& elements) { return value(DType::i32, std::move(shape), elements); }
inline Value boolean(Shape shape, const std::vector<uint8_t>& elements) { return value(DType::boolean, std::move(shape), elements); }

inline Value counting(const Shape& shape) {
  std::vector<float> elements(static_cast<size_t>(element_count(shape)));
  for (size_t i = 0; i < elements.size(); ++i) elements[i] = static_cast<float>(i);
  return f32(shape, elements);
}

// Small varied numbers that sums of products keep exact.
inline Value varied(const Shape& shape, int seed) {
  std::vector<float> elements(static_cast<size_t>(element_count(shape)));
  for (size_t i = 0; i < elements.size(); ++i) elements[i] = static_cast<float>((i * 7 + static_cast<size_t>(seed)) % 13) - 6;
  return f32(shape, elements);
}

template <class T>
std::vector<T> elements_of(const Value& value) {
  std::vector<T> elements(value.data->size() / sizeof(T));
  if (!elements.empty()) std::memcpy(elements.data(), value.data->data(), value.data->size());
  return elements;
}

inline std::vector<float> floats(const Value& value) { return elements_of<float>(value); }
inline std::vector<int64_t> whole(const Value& value) { return elements_of<int64_t>(value); }

// A graph of one rOperator "op" whose operands are constants.
struct Case {
  Graph graph;

  Case(OpAttrs attrs, const std::vector<Value>& inputs, Shape shape, DType dtype = DType::f32) {
    ROperator rop;
    rop.name = "op";
    rop.attrs = of_result(std::move(attrs), shape, dtype);
    for (const Value& input : inputs) rop.inputs.push_back(constant(input));
    Tensor output;
    output.name = "y";
    output.dtype = dtype;
    output.shape = std::move(shape);
    rop.outputs = {add_tensor(graph, output)};
    graph.outputs = rop.outputs;
    graph.rops.push_back(std::move(rop));
  }

  TensorId constant(const Value& input) {
    return input.data ? add_constant(graph, "x", input.dtype, input.shape, *input.data) : TensorId();
  }
  Epilogue& epilogue() { return graph.rops[0].epilogue; }
  Value result() const { return ops::run(graph, {})[0]; }
};

inline Value eval(OpAttrs attrs, const std::vector<Value>& inputs, Shape shape, DType dtype = DType::f32) {
  return Case(std::move(attrs), inputs, std::move(shape), dtype).result();
}

inline Elementwise one_step(ElementwiseOp op, float a = 0, float b = 0) {
  ElementwiseStep step{op, {}, a, b};
  for (int32_t i = 0; i < arity_of(op); ++i) step.operands.push_back(i);
  return Elementwise{{step}};
}

inline std::vector<float> unary(ElementwiseOp op, const std::vector<float>& x, float a = 0, float b = 0) {
  const Shape shape{static_cast<int64_t>(x.size())};
  return floats(eval(one_step(op, a, b), {f32(shape, x)}, shape));
}

inline void check_close(const std::vector<float>& found, const std::vector<float>& expected) {
  REQUIRE(found.size() == expected.size());
  for (size_t i = 0; i < found.size(); ++i) {
    CAPTURE(i, found[i], expected[i]);
    if (std::isnan(expected[i])) {
      CHECK(std::isnan(found[i]));
    } else {
      CHECK(found[i] == Approx(expected[i]).margin(1e-6));
    }
  }
}

inline void check_error(const Case& model, ExitCode code, const std::string& part) {
  try {
    model.result();
    FAIL("no error; expected one with: " + part);
  } catch (const Error& error) {
    CHECK(error.code() == code);
    CHECK_THAT(error.what(), Contains(part));
    CHECK_THAT(error.what(), Contains("'op'"));
  }
}

}  // namespace tamp::test
