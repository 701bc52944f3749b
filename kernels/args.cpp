#include "kernels/args.h"

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <limits>
#include <utility>

#include "compiler/support/error.h"
#include "kernels/vdevice/numbers.cuh"

namespace tamp::kernels {

static_assert(static_cast<int>(Activation::none) == rk::kNone && static_cast<int>(Activation::relu) == rk::kRelu &&
              static_cast<int>(Activation::clip) == rk::kClip && static_cast<int>(Activation::sigmoid) == rk::kSigmoid &&
              static_cast<int>(Activation::tanh) == rk::kTanh && static_cast<int>(Activation::hard_sigmoid) == rk::kHardSigmoid &&
              static_cast<int>(Activation::hard_swish) == rk::kHardSwish && static_cast<int>(Activation::leaky_relu) == rk::kLeakyRelu &&
              static_cast<int>(Activation::silu) == rk::kSilu && static_cast<int>(Activation::gelu) == rk::kGelu &&
              static_cast<int>(Activation::gelu_tanh) == rk::kGeluTanh && static_cast<int>(Activation::rounded) == rk::kRounded);

Phase body_phase(const std::string& header, const std::string& body, const std::string& args_type) {
  Phase phase;
  set_body(phase, header, body, args_type);
  return phase;
}

Phase early_phase(const std::string& header, const std::string& body, const std::string& args_type) {
  Phase phase = body_phase(header, body, args_type);
  phase.awaits_inputs = true;
  return phase;
}

void set_body(Phase& phase, const std::string& header, const std::string& body, const std::string& args_type) {
  phase.header = header;
  phase.body = body;
  phase.args_type = args_type;
}

RKernel one_phase(const std::string& name, decltype(RKernel::config) config, const Phase& phase) {
  RKernel rkernel;
  rkernel.name = name;
  rkernel.config = std::move(config);
  rkernel.phases = {phase};
  return rkernel;
}

int64_t config_or(const RKernel& rkernel, std::string_view name, int64_t absent) {
  const auto found = std::find_if(rkernel.config.begin(), rkernel.config.end(), [&](const auto& entry) { return entry.first == name; });
  return found == rkernel.config.end() ? absent : found->second;
}

void add_args(Phase& phase, const std::vector<Arg>& args) { phase.args.insert(phase.args.end(), args.begin(), args.end()); }

ArgValue log2_arg(int64_t power_of_two) { return arg(static_cast<int64_t>(std::countr_zero(static_cast<uint64_t>(power_of_two)))); }

ArgValue array_arg(const std::vector<int64_t>& values, size_t size) {
  TAMP_CHECK(size == 0 || values.size() <= size, "array argument of " + std::to_string(values.size()) + " values");
  ArgList list;
  for (const int64_t value : values) list.push_back(arg(value));
  while (list.size() < size) list.push_back(arg(int64_t{0}));
  return ArgValue{list};
}

ArgValue divisors_arg(const std::vector<int64_t>& divisors, size_t size) {
  TAMP_CHECK(divisors.size() <= size, "array argument of " + std::to_string(divisors.size()) + " divisors");
  ArgList list;
  for (const int64_t divisor : divisors) list.push_back(divisor_arg(divisor));
  while (list.size() < size) list.push_back(divisor_arg(1));
  return ArgValue{list};
}

ArgValue struct_arg(std::vector<Arg> fields) {
  ArgList values;
  std::vector<std::string> names;
  for (Arg& field : fields) {
    values.push_back(std::move(field.value));
    names.push_back(std::move(field.name));
  }
  return {std::move(values), std::move(names)};
}

ArgValue activation_arg(Activation kind) {
  return enumerator_arg(static_cast<int64_t>(kind), {"kNone", "kRelu", "kClip", "kSigmoid", "kTanh", "kHardSigmoid", "kHardSwish",
                                                     "kLeakyRelu", "kSilu", "kGelu", "kGeluTanh", "kRounded"});
}

ArgValue epilogue_arg(const ROperator& rop, const std::vector<int64_t>& residual_strides) {
  const Epilogue& e = rop.epilogue;
  return epilogue_arg(e, tensor_arg(e.bias), tensor_arg(e.residual), residual_strides, e.residual_after_activation);
}

ArgValue epilogue_arg(const Epilogue& epilogue, ArgValue bias, ArgValue residual, const std::vector<int64_t>& residual_strides,
                      bool after) {
  std::vector<Arg> fields = {{"bias", std::move(bias)},
                             {"residual", std::move(residual)},
                             {"residual_strides", array_arg(residual_strides, 4)},
                             {"activation", activation_arg(epilogue.activation)},
                             {"residual_after_activation", arg(int64_t{after})},
                             {"a", float_arg(epilogue.a)},
                             {"b", float_arg(epilogue.b)}};
  if (const std::optional<ScaledSum>& sum = epilogue.sum) {
    constexpr float kInfinity = std::numeric_limits<float>::infinity();
    fields.push_back({"sum", struct_arg({{"kind", enumerator_arg(sum->rounds ? 2 : 1, {"kNoSum", "kScaled", "kScaledRounded"})},
                                         {"scale", float_arg(sum->scale)},
                                         {"residual_scale", float_arg(sum->residual_scale)},
                                         {"low", float_arg(sum->rounds ? sum->low : -kInfinity)},
                                         {"high", float_arg(sum->rounds ? sum->high : kInfinity)}})});
  }
  return struct_arg(std::move(fields));
}

bool is_narrow(DType dtype) { return dtype == DType::f16 || dtype == DType::bf16; }

const char* value_type(DType dtype) {
  if (is_whole_byte(dtype)) return dtype == DType::whole_i8 ? "rk::Signed8" : "rk::Unsigned8";
  TAMP_CHECK(dtype == DType::f32 || is_narrow(dtype), std::string("no body has values of ") + name_of(dtype));
  return dtype == DType::f32 ? "float" : dtype == DType::f16 ? "rk::Half" : "rk::Bfloat";
}

bool is_plain_f32(const Tensor& tensor) { return tensor.dtype == DType::f32 && is_plain_values(tensor); }

int64_t low_of(const Graph& graph, TensorId id) {
  const Tensor& tensor = graph.tensor(id);
  return is_whole_byte(tensor.dtype) ? graph.buffers[tensor.place.buffer.index()].low : 0;
}

bool is_plain_values(const Tensor& tensor) { return !is_whole_byte(tensor.dtype) && is_plain_values_or_bytes(tensor); }

bool is_plain_values_or_bytes(const Tensor& tensor) {
  constexpr int64_t kLimit = std::numeric_limits<int32_t>::max();
  const bool is_value = tensor.dtype == DType::f32 || is_narrow(tensor.dtype) || is_whole_byte(tensor.dtype);
  if (!is_value || !tensor.place.buffer.valid()) return false;
  int64_t reach = 0;  // farthest element from the first, in elements
  for (size_t i = 0; i < tensor.shape.size(); ++i) {
    if (tensor.shape[i] > kLimit) return false;
    reach += (tensor.shape[i] > 0 ? tensor.shape[i] - 1 : 0) * std::abs(tensor.place.strides[i]);
    if (reach > kLimit) return false;
  }
  return element_count(tensor.shape) <= kLimit;
}

void add_value_types(Phase& phase, DType in, DType out) {
  if (in != DType::f32 || out != DType::f32) phase.template_args.emplace_back("In", value_type(in));
  if (out != DType::f32) phase.template_args.emplace_back("Out", value_type(out));
}

int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

bool are_f32_constants(const Graph& graph, const std::vector<TensorId>& operands) {
  return std::all_of(operands.begin(), operands.end(), [&](TensorId id) { return !id.valid() || is_f32_constant(graph, id); });
}

void append_columns(const Graph& graph, TensorId id, int64_t columns, float absent, std::vector<float>& values) {
  if (!id.valid()) return values.insert(values.end(), static_cast<size_t>(columns), absent), void();
  const float* const data = f32_data(graph.tensor(id));
  values.insert(values.end(), data, data + columns);
}

}  // namespace tamp::kernels
