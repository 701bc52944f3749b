// Short names for the values of a body's argument struct (compiler/ir/rkernel.h, Arg), and values that several families put there; short
// ways to begin a phase and to make a rKernel of one.
#pragma once

#include <algorithm>
#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "compiler/ir/graph.h"
#include "compiler/ir/rkernel.h"

namespace tamp::kernels {

// A phase that runs a body, e.g. "kernels/pool/pool.cuh", "rk::pool", "rk::PoolArgs". early_phase: one that awaits its inputs itself
// (Phase::awaits_inputs). set_body makes a phase one that runs another body.
Phase body_phase(const std::string& header, const std::string& body, const std::string& args_type);
Phase early_phase(const std::string& header, const std::string& body, const std::string& args_type);
void set_body(Phase& phase, const std::string& header, const std::string& body, const std::string& args_type);
inline std::string name_of_body(const Phase& phase) { return phase.body.substr(4); }  // "pool": without the namespace rk
RKernel one_phase(const std::string& name, decltype(RKernel::config) config, const Phase& phase);

// What the rKernel's config holds under a name; `absent` if it has no such entry.
int64_t config_or(const RKernel& rkernel, std::string_view name, int64_t absent);

// A number of a family's struct, as the config of a RKernel holds it.
template <class Plan>
struct ConfigField {
  const char* name;
  int64_t Plan::*member;
  bool left_out_if_zero = false;
};
template <class Plan, size_t N>
decltype(RKernel::config) to_config(const Plan& plan, const ConfigField<Plan> (&fields)[N]) {
  decltype(RKernel::config) config;
  for (const auto& [name, member, left_out] : fields) {
    if (!left_out || plan.*member != 0) config.emplace_back(name, plan.*member);
  }
  return config;
}
template <class Plan, size_t N>
Plan from_config(const RKernel& rkernel, const ConfigField<Plan> (&fields)[N]) {
  Plan plan;
  for (const auto& [name, member, left_out] : fields) plan.*member = left_out ? config_or(rkernel, name, 0) : rkernel.config_value(name);
  return plan;
}

inline ArgValue arg(int64_t value) { return ArgValue{value}; }
inline ArgValue arg(const TensorArg& value) { return ArgValue{value}; }
inline ArgValue float_arg(float value) { return ArgValue{static_cast<double>(value)}; }
inline ArgValue divisor_arg(int64_t divisor) { return ArgValue{DivisorArg{divisor}}; }
ArgValue log2_arg(int64_t power_of_two);
inline ArgValue null_arg() { return ArgValue{NoTensorArg{}}; }

// That a body can take or leave a placed tensor as words (Phase::may_await, Phase::may_publish).
inline WordsUse words_use(const Graph& graph, TensorId id, int bit, const std::string& name = {}) {
  return {graph.tensor(id).place.buffer, bit, name};
}

// Appends fields to the arguments.
void add_args(Phase& phase, const std::vector<Arg>& args);

// An array field: `values`, then zeros up to `size` (size 0: as many as there are).
ArgValue array_arg(const std::vector<int64_t>& values, size_t size = 0);
// An array of `size` rk::Divisor: `divisors`, then divisors by 1.
ArgValue divisors_arg(const std::vector<int64_t>& divisors, size_t size);

// A struct with these fields.
ArgValue struct_arg(std::vector<Arg> fields);

// An enumerator of rk, whose enumerators from 0 on have these names.
inline ArgValue enumerator_arg(int64_t value, std::initializer_list<const char*> names) {
  return {value, {std::string("rk::") + names.begin()[value]}};
}
ArgValue activation_arg(Activation kind);
inline std::string activation_text(Activation kind) { return activation_arg(kind).names[0]; }  // "rk::kRelu"

// rk::EpilogueArgs. `residual_strides` are in the order that the body wants; at most 4.
ArgValue epilogue_arg(const ROperator& rop, const std::vector<int64_t>& residual_strides);
// The same with another bias, residual and place of the residual.
ArgValue epilogue_arg(const Epilogue& epilogue, ArgValue bias, ArgValue residual, const std::vector<int64_t>& residual_strides, bool after);
inline ArgValue tensor_arg(TensorId id) { return id.valid() ? arg(TensorArg{id}) : null_arg(); }

// Whether all tensors that the rOperator reads and writes are so.
bool all_tensors(const Graph& graph, const ROperator& rop, auto is_so) {
  std::vector<TensorId> all = reads_of(rop);
  all.insert(all.end(), rop.outputs.begin(), rop.outputs.end());
  return std::all_of(all.begin(), all.end(), [&](TensorId id) { return is_so(graph.tensor(id)); });
}
// Whether a tensor is f32 and has extents that a 32-bit index of the device can walk, as every body of these families needs.
bool is_plain_f32(const Tensor& tensor);
// The same of f32, f16 or bf16: what a body whose values are a template argument (kernels/vdevice/values.cuh) needs.
bool is_plain_values(const Tensor& tensor);
bool is_plain_values_or_bytes(const Tensor& tensor);      // and of whole numbers in bytes
bool is_narrow(DType dtype);                              // f16 or bf16
int64_t low_of(const Graph& graph, TensorId id);          // Buffer::low
const char* value_type(DType dtype);                      // "float", "rk::Half", "rk::Bfloat", "rk::Signed8" or "rk::Unsigned8"
void add_value_types(Phase& phase, DType in, DType out);  // template arguments In and Out, as far as they are not float
inline bool all_plain_f32(const Graph& graph, const ROperator& rop) { return all_tensors(graph, rop, is_plain_f32); }

// Whether those of the operands that are there are f32 constants.
bool are_f32_constants(const Graph& graph, const std::vector<TensorId>& operands);
// Appends a constant's values, one for each of so many columns; without a tensor so often `absent`.
void append_columns(const Graph& graph, TensorId id, int64_t columns, float absent, std::vector<float>& values);

int64_t ceil_div(int64_t a, int64_t b);

}  // namespace tamp::kernels
