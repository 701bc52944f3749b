// Host side of map.cuh: an Elementwise chain as template arguments.
#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "kernels/any_type.h"
#include "kernels/args.h"
#include "kernels/family.h"
#include "kernels/typed/numbers.cuh"

namespace tamp::kernels {
namespace {

constexpr size_t kInputs = rk::kMapInputs, kSteps = 16, kConstants = rk::kMapConstants, kRank = rk::kNestRank;
constexpr size_t kShortChain = 4;
constexpr int64_t kFewTurns = 2;  // of elements one by one
constexpr int64_t kFirstInput = rk::kMapFirstInput, kFirstConstant = rk::kMapFirstConstant, kNone = rk::kMapNone;
static_assert(kSteps <= rk::kMapFirstInput);

struct Program {
  std::vector<std::string> steps;
  std::vector<float> constants;
};

// The element type of a step's operand or result; a cast is to the type of the rOperator's result (compiler/ops/elementwise.cpp).
DType type_of(const Graph& graph, const ROperator& rop, const std::vector<DType>& made, int32_t operand) {
  return operand >= 0 ? graph.tensor(rop.inputs[static_cast<size_t>(operand)]).dtype : made[static_cast<size_t>(-1 - operand)];
}
DType result_of(const Graph& graph, const ROperator& rop, const std::vector<DType>& made, const ElementwiseStep& step) {
  if (row_of(step.op).result == rk::functions::Result::truth) return DType::boolean;
  if (step.op == ElementwiseOp::cast) return graph.tensor(rop.outputs[0]).dtype;
  return type_of(graph, rop, made, step.operands[step.op == ElementwiseOp::where ? 1 : 0]);
}

// The last result is rounded or wrapped where it is stored, so that all integer types share a body, and all floats.
Program program_of(const Graph& graph, const ROperator& rop, DType number) {
  Program program;
  const size_t last = std::get<Elementwise>(rop.attrs).steps.size() - 1;
  std::vector<DType> made;
  for (const ElementwiseStep& step : std::get<Elementwise>(rop.attrs).steps) {
    std::vector<int64_t> codes;
    for (const int32_t operand : step.operands) codes.push_back(operand >= 0 ? kFirstInput + operand : -1 - operand);
    const int attributes = row_of(step.op).attributes.count;
    for (int i = 0; i < attributes; ++i) {
      codes.push_back(kFirstConstant + static_cast<int64_t>(program.constants.size()));
      program.constants.push_back(i == 0 ? step.a : step.b);
    }
    codes.resize(3, kNone);
    made.push_back(result_of(graph, rop, made, step));
    const DType settled = program.steps.size() < last ? made.back() : is_float(number) ? DType::f64 : DType::i64;
    program.steps.push_back(fmt::format(
        "{:#x}ull", static_cast<int64_t>(step.op) | codes[0] << 8 | codes[1] << 16 | codes[2] << 24 | static_cast<int64_t>(settled) << 32));
  }
  return program;
}

Loop loop_of(const Graph& graph, const ROperator& rop) {
  const Tensor& out = graph.tensor(rop.outputs[0]);
  std::vector<std::vector<int64_t>> operands = {out.place.strides};
  for (const TensorId id : rop.inputs) operands.push_back(broadcast_strides(graph.tensor(id), out.shape));
  Loop loop;
  for (size_t d = 0; d < out.shape.size(); ++d) {
    LoopDim dim{out.shape[d], {}};
    for (const std::vector<int64_t>& of_operand : operands) dim.strides.push_back(of_operand[d]);
    loop.push_back(dim);
  }
  return normalised(loop);
}

// The type that the chain is computed in; none if its steps are of several kinds. Where there are several steps, they are of f32 and
// bool (passes/fuse_elementwise), and double holds both.
std::optional<DType> computed_in(const Graph& graph, const ROperator& rop) {
  const auto& steps = std::get<Elementwise>(rop.attrs).steps;
  if (steps.size() == 1) return type_of(graph, rop, {}, steps[0].operands[steps[0].op == ElementwiseOp::where ? 1 : 0]);
  const auto fits = [&](TensorId id) { return graph.tensor(id).dtype == DType::f32 || graph.tensor(id).dtype == DType::boolean; };
  if (!std::all_of(rop.inputs.begin(), rop.inputs.end(), fits) || !fits(rop.outputs[0])) return std::nullopt;
  return DType::f64;
}

// Whether the function is a few instructions in double, too.
bool is_short(const ElementwiseStep& step) {
  return row_of(step.op).speed == rk::functions::Speed::wide || row_of(step.op).result == rk::functions::Result::truth ||
         step.op == ElementwiseOp::where;
}

// Elements of a thread at a time where a rTask has many and the chain is short; else 1.
int64_t elements_at_once(const Request& request, int64_t elements) {
  const auto& steps = std::get<Elementwise>(request.rop.attrs).steps;
  if (elements_per_rtask(request, elements) <= kFewTurns * request.vdevice.compute_threads) return 1;
  if (steps.size() > kShortChain || !std::all_of(steps.begin(), steps.end(), is_short)) return 1;
  return request.rop.inputs.size() <= 4 ? 8 : 4;
}

// Turns the rKernel into one of typed_map_turns. `types`: of the output and of the inputs.
void take_turns(const Request& request, int64_t at_once, const std::vector<int64_t>& types, RKernel& rkernel) {
  int64_t packed = 0;
  for (size_t i = 0; i < types.size(); ++i) packed |= types[i] << (4 * i);
  Phase& phase = rkernel.phases[0];
  phase.body = "rk::typed_map_turns";
  phase.template_args.insert(phase.template_args.begin(),
                             {{"kAtOnce", std::to_string(at_once)}, {"kTypes", fmt::format("{:#x}ull", packed)}});
  const int64_t turns = ceil_div(rkernel.config_value("elements_per_rtask"), at_once * request.vdevice.compute_threads);
  phase.cost.latency_us = request.vdevice.cost("typed.turn_us") * static_cast<double>(turns - 1);
  phase.cost.flops = 0;
  rkernel.name = fmt::format("typed_map<{}>", at_once);
}

std::vector<RKernel> offers(const Request& request) {
  const auto& [graph, rop, vdevice, precision] = request;
  const auto* attrs = std::get_if<Elementwise>(&rop.attrs);
  if (attrs == nullptr || has_epilogue(rop) || all_f32(graph, rop) || !all_plain(graph, rop)) return {};
  if (rop.inputs.size() > kInputs || attrs->steps.size() > kSteps) return {};
  const std::optional<DType> number = computed_in(graph, rop);
  if (!number) return {};
  const Program program = program_of(graph, rop, *number);
  const Loop loop = loop_of(graph, rop);
  if (program.constants.size() > kConstants || loop.size() > kRank) return {};

  const int64_t elements = loop_elements(loop);
  Phase phase = body_phase("kernels/typed/map.cuh", "rk::typed_map", "rk::TypedMapArgs");
  phase.template_args = {{"T", number_text(*number)}, {"kInputs", std::to_string(rop.inputs.size())}};
  for (const std::string& step : program.steps) phase.template_args.emplace_back("kSteps", step);
  ArgList inputs, in_strides, constants;
  std::vector<int64_t> types = {static_cast<int64_t>(graph.tensor(rop.outputs[0]).dtype)};
  for (size_t i = 0; i < kInputs; ++i) {
    const bool used = i < rop.inputs.size();
    inputs.push_back(used ? arg(TensorArg{rop.inputs[i]}) : null_arg());
    in_strides.push_back(array_arg(used ? strides(loop, i + 1) : std::vector<int64_t>{}, kRank));
    if (used) types.push_back(static_cast<int64_t>(graph.tensor(rop.inputs[i]).dtype));
  }
  for (const float value : program.constants) constants.push_back(float_arg(value));
  if (constants.empty()) constants.push_back(float_arg(0));
  phase.args = {{"out", arg(TensorArg{rop.outputs[0]})},
                {"inputs", ArgValue{inputs}},
                {"nest", nest_arg(loop)},
                {"out_strides", array_arg(strides(loop, 0), kRank)},
                {"in_strides", ArgValue{in_strides}},
                {"types", array_arg(types, kInputs + 1)}};
  RKernel rkernel =
      typed_rkernel(request, phase, elements, static_cast<double>(rop.inputs.size()), 60.0 * static_cast<double>(attrs->steps.size()));
  add_args(rkernel.phases[0], {{"constants", ArgValue{constants}}});
  if (const int64_t at_once = elements_at_once(request, elements); at_once > 1) take_turns(request, at_once, types, rkernel);
  return {rkernel};
}

}  // namespace

Family typed_map() { return {"typed_map", offers, no_pack, loop_accesses<loop_of>, nullptr, Narrowed::refuses}; }

}  // namespace tamp::kernels
