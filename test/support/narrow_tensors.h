// Activations that lie in memory as 16 bits, in the cases of test/kernels: what a pass does to graphs whose precision is fp16 or bf16.
// The values of a case stay floats, for the reference; those of a narrow tensor are rounded to what 16 bits hold.
#pragma once

#include <bit>
#include <cmath>

#include "kernels/narrow.h"
#include "test/kernels/light_cases.h"

namespace tamp::test {

inline constexpr DType kNarrowTypes[] = {DType::f16, DType::bf16};

inline bool is_16_bits(DType dtype) { return dtype == DType::f16 || dtype == DType::bf16; }

// A value as it lies in memory, in the lower bits of a word.
inline uint32_t word_of_value(DType dtype, float value) {
  if (!is_16_bits(dtype)) return std::bit_cast<uint32_t>(value);
  return dtype == DType::f16 ? kernels::half_of(value) : kernels::bfloat_of(value);
}
inline float value_of_word(DType dtype, uint32_t word) {
  if (!is_16_bits(dtype)) return std::bit_cast<float>(word);
  if (dtype == DType::bf16) return std::bit_cast<float>(word << 16);
  const float sign = (word & 0x8000U) != 0 ? -1.0F : 1.0F;
  const int exponent = static_cast<int>(word >> 10 & 0x1fU), mantissa = static_cast<int>(word & 0x3ffU);
  if (exponent == 31) return mantissa != 0 ? NAN : sign * INFINITY;
  return sign * std::ldexp(static_cast<float>(mantissa + (exponent > 0 ? 1024 : 0)), std::max(exponent, 1) - 25);
}

// What rounding the result to the type may change, as a share of it.
inline double rounding_of(DType dtype) { return dtype == DType::f16 ? 0x1p-11 : dtype == DType::bf16 ? 0x1p-8 : 0.0; }

inline void make_narrow(Case& c, TensorId id, DType dtype) {
  Tensor& tensor = c.graph.tensor(id);
  tensor.dtype = dtype;
  tensor.role = Role::activation;
  c.graph.buffers[tensor.place.buffer.index()].dtype = dtype;
  ops::Value& value = c.values[id.index()];
  if (value.data == nullptr) return;
  Bytes bytes = *value.data;
  for (size_t at = 0; at < bytes.size(); at += 4) {
    float v = 0;
    std::memcpy(&v, bytes.data() + at, 4);
    v = value_of_word(dtype, word_of_value(dtype, v));
    std::memcpy(bytes.data() + at, &v, 4);
  }
  value.data = std::make_shared<const Bytes>(std::move(bytes));
}

// The case with its operands that are no constants of type `in`, and with results and what is added to them of type `out`.
inline Case narrowed(Case c, DType in, DType out) {
  const ROperator rop = c.graph.rops[0];
  c.name += std::string(", ") + name_of(in) + " to " + name_of(out);
  const auto set = [&](TensorId id, DType dtype) {
    if (id.valid() && dtype != DType::f32 && c.graph.tensor(id).role != Role::constant) make_narrow(c, id, dtype);
  };
  for (size_t i = 0; i < rop.inputs.size(); ++i) set(rop.inputs[i], i == 2 && std::holds_alternative<MatMul>(rop.attrs) ? out : in);
  for (const TensorId id : rop.outputs) set(id, out);
  set(rop.epilogue.residual, out);
  return c;
}

// Every case with either type of 16 bits for the operands (`in`), the results (`out`), or both.
inline std::vector<Case> narrowed(const std::vector<Case>& cases, bool in, bool out) {
  std::vector<Case> all;
  for (const Case& c : cases) {
    for (const DType dtype : kNarrowTypes) all.push_back(narrowed(c, in ? dtype : DType::f32, out ? dtype : DType::f32));
  }
  return all;
}

inline bool has_16_bits(const Graph& graph) {
  return std::any_of(graph.tensors.begin(), graph.tensors.end(), [](const Tensor& tensor) { return is_16_bits(tensor.dtype); });
}

// The graph as the reference is to see it.
inline Graph with_floats(Graph graph) {
  for (Tensor& tensor : graph.tensors) {
    if (is_16_bits(tensor.dtype)) tensor.dtype = DType::f32;
  }
  return graph;
}

}  // namespace tamp::test
