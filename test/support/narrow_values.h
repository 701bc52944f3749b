// Activations of 16 bits in the tests of bodies: tensors of a case made narrow, and their elements as words of light_bench.h, which has one
// word for each element: the lower half.
#pragma once

#include <algorithm>
#include <bit>
#include <cstring>
#include <optional>
#include <vector>

#include "compiler/ir/fused.h"
#include "compiler/ops/number.h"
#include "kernels/args.h"
#include "kernels/narrow.h"
#include "test/kernels/light_cases.h"

namespace tamp::test {

inline uint32_t word_of(float x, DType dtype) {
  if (!kernels::is_narrow(dtype)) return std::bit_cast<uint32_t>(x);
  return dtype == DType::f16 ? kernels::half_of(x) : kernels::bfloat_of(x);
}

inline float float_of_word(uint32_t word, DType dtype) {
  if (!kernels::is_narrow(dtype)) return std::bit_cast<float>(word);
  const auto bits = static_cast<uint16_t>(word);
  return static_cast<float>(dtype == DType::f16 ? ops::real_of(ops::Half{bits}) : ops::real_of(ops::Bfloat{bits}));
}

// What rounding to the type may change a number by, relative to it.
inline float rounding_of(DType dtype) { return dtype == DType::f16 ? 0x1p-11F : dtype == DType::bf16 ? 0x1p-8F : 0.0F; }

// The case with these tensors, and their buffers, of such a type. The reference goes on in f32, from values that the type has.
inline Case narrowed(Case c, const std::vector<TensorId>& tensors, DType dtype) {
  c.name += std::string(", ") + name_of(dtype);
  for (const TensorId id : tensors) {
    Tensor& tensor = c.graph.tensor(id);
    tensor.dtype = c.graph.buffers[tensor.place.buffer.index()].dtype = dtype;
    ops::Value& value = c.values[id.index()];
    if (value.data == nullptr) continue;
    std::vector<float> floats(value.data->size() / sizeof(float));
    std::memcpy(floats.data(), value.data->data(), value.data->size());
    for (float& x : floats) x = float_of_word(word_of(x, dtype), dtype);
    Bytes bytes(value.data->size());
    std::memcpy(bytes.data(), floats.data(), bytes.size());
    value.data = std::make_shared<const Bytes>(std::move(bytes));
  }
  return c;
}

inline constexpr DType kNarrowTypes[] = {DType::f16, DType::bf16};

// Operands that are no constants of type `in`, results and what is added to them of type `out`; f32: as they are.
inline Case narrowed(Case c, DType in, DType out) {
  const ROperator rop = c.graph.rops[0];
  std::vector<TensorId> reads, writes = rop.outputs;
  for (size_t i = 0; i < rop.inputs.size(); ++i)
    (i == 2 && std::holds_alternative<MatMul>(rop.attrs) ? writes : reads).push_back(rop.inputs[i]);
  const std::optional<FusedView> steps = FusedView::of(rop);
  writes.push_back(steps ? steps->residual(steps->count() - 1) : rop.epilogue.residual);
  std::erase(reads, writes.back());
  for (const auto& [ids, dtype] : {std::pair{&reads, in}, std::pair{&writes, out}}) {
    std::erase_if(*ids, [&](TensorId id) { return !id.valid() || c.graph.tensor(id).role == Role::constant; });
    if (dtype != DType::f32) c = narrowed(std::move(c), *ids, dtype);
  }
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

inline bool has_narrow(const Graph& graph) {
  return std::any_of(graph.tensors.begin(), graph.tensors.end(), [](const Tensor& tensor) { return kernels::is_narrow(tensor.dtype); });
}

// The graph for the reference: in f32.
inline Graph widened(Graph graph) {
  for (Tensor& tensor : graph.tensors) {
    if (kernels::is_narrow(tensor.dtype)) tensor.dtype = DType::f32;
  }
  return graph;
}

}  // namespace tamp::test
