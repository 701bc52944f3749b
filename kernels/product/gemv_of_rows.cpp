// Host side of gemv_of_rows.cuh, as far as it is not gemv's (gemv.cpp).
#include "kernels/product/gemv_of_rows.h"

#include <algorithm>

#include "compiler/support/error.h"
#include "kernels/args.h"
#include "kernels/loop.h"
#include "kernels/tile/chain.h"

namespace tamp::kernels {
namespace {

// The steps of the rows; one that copies X0 where there are none. Not a value: too many, or of functions with long code.
std::optional<Chain> chain_of_rows(const Graph& graph, const StepsOfRows& of) {
  if (!of.chain) return copy_chain(of.steps.input(0, 0));
  std::vector<TensorId> operands;
  for (size_t i = 0; i < of.steps.step(0).inputs.size(); ++i) operands.push_back(of.steps.input(0, i));
  std::optional<Chain> chain = make_chain(graph, operands, of.chain->steps);
  const bool fits = chain && has_static_steps(*chain) && static_cast<int64_t>(chain->inputs.size()) <= rk::kGemvOperands;
  return fits ? chain : std::nullopt;
}

// What the body reads of memory for the rows, of a rOperator that has such a chain.
std::vector<TensorId> operands_of_rows(const Graph& graph, const ROperator& rop) {
  return known(chain_of_rows(graph, *steps_of_rows(rop)), "rows", rop).inputs;
}

int64_t turns_of(int64_t k) { return ceil_div(k, rk::kGemvLaneK * rk::kComputeWarps * rk::kWarp); }

// Whether four k of the operand are one aligned access, in every row.
bool has_aligned_fours(const Tensor& tensor) {
  const std::vector<int64_t> rows = offsets_of_rows(tensor);
  const auto is_aligned = [](int64_t offset) { return offset % rk::kGemvLaneK == 0; };
  return tensor.shape.back() % rk::kGemvLaneK == 0 && (tensor.place.strides.back() == 1 || tensor.shape.back() == 1) &&
         is_aligned(tensor.place.offset) && std::all_of(rows.begin(), rows.end(), is_aligned);
}

const char* norm_of(const Normalize* op) {
  if (!op) return "rk::kGemvAsIs";
  return op->centered ? "rk::kGemvCentred" : "rk::kGemvScaled";
}

}  // namespace

bool is_of_rows(const ROperator& rop) { return steps_of_rows(rop).has_value(); }

std::vector<int64_t> offsets_of_rows(const Tensor& tensor) {
  std::vector<int64_t> offsets = {0};
  for (size_t d = 0; d + 1 < tensor.shape.size(); ++d) {
    const std::vector<int64_t> outer = std::move(offsets);
    offsets.clear();
    for (const int64_t offset : outer) {
      for (int64_t i = 0; i < tensor.shape[d]; ++i) offsets.push_back(offset + i * tensor.place.strides[d]);
    }
  }
  return offsets;
}

std::optional<Product> unplaced_product_of_rows(const Graph& graph, const ROperator& rop) {
  const StepsOfRows of = *steps_of_rows(rop);
  Product p;
  p.in = of.steps.input(0, 0);
  p.weights = of.weights();
  p.out = rop.outputs[0];
  p.residual = of.residual();
  p.residual_after_activation = of.product_step().epilogue.residual_after_activation;
  p.epilogue_bias = of.bias();
  p.alpha = of.product->alpha;
  const Shape &rows = graph.tensor(p.in).shape, &out = graph.tensor(p.out).shape;
  if (!is_f32_constant(graph, p.weights) || graph.tensor(p.weights).shape.size() != 2 || !chain_of_rows(graph, of)) return std::nullopt;
  if (!are_f32_constants(graph, {of.bias(), of.scale(), of.shift()})) return std::nullopt;
  p.in_channels = rows.back();
  p.channels = out.back();
  if (element_count(rows) == 0 || p.channels == 0) return std::nullopt;
  p.pixels[0] = element_count(rows) / p.in_channels;
  p.weight_stride_n = of.product->trans_b ? p.in_channels : 1;
  p.weight_stride_channel = of.product->trans_b ? 1 : p.channels;
  if (p.rows() > rk::kGemvRows || p.channels >= INT32_MAX / 2) return std::nullopt;
  return p;
}

std::optional<Product> product_of_rows(const Graph& graph, const ROperator& rop) {
  std::optional<Product> p = unplaced_product_of_rows(graph, rop);
  if (!p) return std::nullopt;
  DType narrow = DType::f32;  // of the operands of 16 bits, which are all of one type
  for (const TensorId id : operands_of_rows(graph, rop)) {
    const Tensor& x = graph.tensor(id);
    if (!is_plain_values(x) || (is_narrow(x.dtype) && is_narrow(narrow) && x.dtype != narrow)) return std::nullopt;
    if (is_narrow(x.dtype)) narrow = x.dtype;
    // The body's offsets have 32 bits.
    const std::vector<int64_t> rows = offsets_of_rows(x);
    const int64_t row = std::abs(x.place.strides.back()) * x.shape.back();
    if (std::any_of(rows.begin(), rows.end(), [&](int64_t offset) { return std::abs(offset) + row >= INT32_MAX; })) return std::nullopt;
  }
  const Tensor& out = graph.tensor(p->out);
  if (!is_plain_values(out)) return std::nullopt;
  p->out_strides[1] = out.place.strides.back();
  if (!p->residual.valid()) return p;
  const Tensor& residual = graph.tensor(p->residual);
  if (!is_plain_values(residual) || residual.dtype != out.dtype) return std::nullopt;
  p->residual_strides[1] = residual.place.strides.back();
  return p;
}

std::span<const float> factors_of_rows(const Graph& graph, const ROperator& rop) {
  const std::optional<StepsOfRows> of = steps_of_rows(rop);
  if (!of || !of->scale().valid()) return {};
  const auto count = static_cast<size_t>(element_count(graph.tensor(of->scale()).shape));
  const std::span factors(f32_data(graph.tensor(of->scale())), count);
  return std::all_of(factors.begin(), factors.end(), [](float factor) { return factor == 1; }) ? std::span<const float>() : factors;
}

float fold_factors(const Graph& graph, const ROperator& rop, std::span<float> column) {
  const StepsOfRows of = *steps_of_rows(rop);
  const float *const scale = f32_data_or_null(graph, of.scale()), *const shift = f32_data_or_null(graph, of.shift());
  float* const weights = column.data();
  const size_t count = column.size();
  double shifted = 0;
  for (size_t k = 0; shift != nullptr && k < count; ++k) shifted += static_cast<double>(shift[k]) * weights[k];
  for (size_t k = 0; scale != nullptr && k < count; ++k) weights[k] *= scale[k];
  return static_cast<float>(shifted);
}

int64_t operand_bytes_of_rows(const Graph& graph, const ROperator& rop) {
  int64_t bytes = 0;
  for (const TensorId id : operands_of_rows(graph, rop)) bytes += bytes_of(graph.tensor(id).dtype);
  return bytes;
}

double rows_us(const Request& request, int64_t rows, int64_t k) {
  const StepsOfRows of = *steps_of_rows(request.rop);
  const int64_t turns = ceil_div(rows * turns_of(k), rk::kGemvFours);
  double us = static_cast<double>(turns - 1) * request.vdevice.cost("gemv.sums_turn_us");
  if (of.normalize) us += request.vdevice.cost("gemv.rows_us");
  if (of.chain) us += request.vdevice.cost("gemv.chain_us");
  return us;
}

void add_rows_phase(const RowOperands& rows_of, const Request& request, int64_t rows, int64_t piece_k, Phase& phase) {
  const size_t operands = rows_of.tensors.size();
  int64_t narrow = 0;
  DType value = DType::f32;
  ArgList places;
  for (size_t i = 0; i < operands; ++i) {
    const Tensor& x = request.graph.tensor(rows_of.tensors[i]);
    if (is_narrow(x.dtype)) narrow |= int64_t{1} << i, value = x.dtype;
    const bool in_fours = (rows_of.scalars >> i & 1) == 0;
    places.push_back(in_fours ? ArgValue{WordsArg{rows_of.tensors[i], static_cast<int>(i)}} : arg(TensorArg{rows_of.tensors[i]}));
    if (in_fours) phase.may_await.push_back(words_use(request.graph, rows_of.tensors[i], static_cast<int>(i)));
  }
  while (places.size() < static_cast<size_t>(rk::kGemvOperands)) places.push_back(null_arg());
  ArgList constants;
  const auto is_k = [](const Arg& a) { return a.name == "k"; };
  const int64_t k = std::get<int64_t>(std::find_if(phase.args.begin(), phase.args.end(), is_k)->value.value);
  for (const float constant : rows_of.constants) constants.push_back(float_arg(constant));
  if (constants.empty()) constants.push_back(float_arg(0));
  set_body(phase, rows_of.steps.empty() ? "kernels/product/gemv_of_rows.cuh" : "kernels/product/gemv_steps.cuh", "rk::gemv_of_rows",
           "rk::GemvOfRowsArgs");
  phase.template_args.insert(phase.template_args.end(), {{"Out", value_type(request.graph.tensor(request.rop.outputs[0]).dtype)},
                                                         {"Value", value_type(value)},
                                                         {"NARROW_IN", std::to_string(narrow)},
                                                         {"INPUTS", std::to_string(operands)},
                                                         {"SCALARS", std::to_string(rows_of.scalars)},
                                                         {"NORM", rows_of.norm},
                                                         {"TURNS", std::to_string(turns_of(piece_k))},
                                                         {"WORDS", "0"},
                                                         {"Steps", rows_of.steps.empty() ? "rk::GemvNoSteps" : rows_of.steps}});
  const std::optional<StepsOfRows> of = steps_of_rows(request.rop);
  const TensorId out = request.rop.outputs[0], residual = of ? of->residual() : request.rop.epilogue.residual;
  phase.may_publish = {words_use(request.graph, out, rk::kGemvOutBit, "rk::kGemvOutWords")};
  if (residual.valid()) phase.may_await.push_back(words_use(request.graph, residual, rk::kGemvResidualBit, "rk::kGemvResidualWords"));
  phase.args = {{"gemv", struct_arg(std::move(phase.args))},
                {"out_words", ArgValue{WordsArg{out, rk::kGemvOutBit, /*else_null=*/true}}},
                {"inputs", ArgValue{std::move(places)}},
                {"in_rows", array_arg(rows_of.offsets, static_cast<size_t>(rk::kGemvOperands * rk::kGemvRows))},
                {"in_steps", array_arg(rows_of.k_strides, static_cast<size_t>(rk::kGemvOperands))},
                {"constants", ArgValue{std::move(constants)}},
                {"inverse_k", float_arg(1.0F / static_cast<float>(k))},
                {"epsilon", float_arg(rows_of.epsilon)}};
  phase.work_bytes = (rows * piece_k + rk::gemv_sums_floats(static_cast<int>(rows))) * 4;
}

void add_rows(const Request& request, int64_t rows, int64_t piece_k, Phase& phase) {
  const StepsOfRows of = *steps_of_rows(request.rop);
  const Chain chain = known(chain_of_rows(request.graph, of), "rows", request.rop);
  RowOperands operands;
  operands.tensors = chain.inputs;
  operands.norm = norm_of(of.normalize);
  operands.constants = chain.constants;
  operands.epsilon = (of.normalize ? *of.normalize : Normalize{}).epsilon;
  operands.offsets.assign(static_cast<size_t>(rk::kGemvOperands * rk::kGemvRows), 0);
  for (size_t i = 0; i < chain.inputs.size(); ++i) {
    const Tensor& x = request.graph.tensor(chain.inputs[i]);
    operands.scalars |= int64_t{!has_aligned_fours(x)} << i;
    // Rows beyond the last one, up to a power of two, are row 0 once more.
    const std::vector<int64_t> of_rows = offsets_of_rows(x);
    std::copy(of_rows.begin(), of_rows.end(), operands.offsets.begin() + static_cast<std::ptrdiff_t>(i) * rk::kGemvRows);
    operands.k_strides.push_back(x.place.strides.back());
  }
  if (of.chain) {
    operands.steps = "rk::GemvSteps<" + std::to_string(chain.temporaries);
    for (const ChainStep& step : chain.steps) operands.steps += ", " + step_text(step);
    operands.steps += ">";
  }
  add_rows_phase(operands, request, rows, piece_k, phase);
}

void append_rows_accesses(const Graph& graph, const ROperator& rop, int64_t begin, int64_t end, Accesses& out) {
  for (const TensorId id : operands_of_rows(graph, rop)) append_whole(graph, id, out.reads);
  Shape low(graph.tensor(rop.outputs[0]).shape.size(), 0), high = graph.tensor(rop.outputs[0]).shape;
  low.back() = begin;
  high.back() = end;
  append_box(graph, rop.outputs[0], low, high, out.writes);
  const TensorId residual = steps_of_rows(rop)->residual();
  if (residual.valid()) append_box(graph, residual, low, high, out.reads);
}

}  // namespace tamp::kernels
