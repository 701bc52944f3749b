#include "kernels/any_type.h"

#include <algorithm>

#include "compiler/support/error.h"
#include "kernels/args.h"
#include "kernels/shared/numbers.h"
#include "kernels/vdevice/numbers.cuh"

namespace tamp::kernels {

static_assert(static_cast<int>(DType::f32) == rk::kF32 && static_cast<int>(DType::f64) == rk::kF64 &&
              static_cast<int>(DType::f16) == rk::kF16 && static_cast<int>(DType::bf16) == rk::kBf16 &&
              static_cast<int>(DType::i8) == rk::kI8 && static_cast<int>(DType::i16) == rk::kI16 &&
              static_cast<int>(DType::i32) == rk::kI32 && static_cast<int>(DType::i64) == rk::kI64 &&
              static_cast<int>(DType::u8) == rk::kU8 && static_cast<int>(DType::u16) == rk::kU16 &&
              static_cast<int>(DType::u32) == rk::kU32 && static_cast<int>(DType::u64) == rk::kU64 &&
              static_cast<int>(DType::boolean) == rk::kBool);

bool is_plain(const Tensor& tensor) {
  Tensor same = tensor;
  same.dtype = DType::f32;
  return is_plain_f32(same);
}

bool all_plain(const Graph& graph, const ROperator& rop) { return all_tensors(graph, rop, is_plain); }

bool all_f32(const Graph& graph, const ROperator& rop) {
  return all_tensors(graph, rop, [](const Tensor& tensor) { return tensor.dtype == DType::f32; });
}

std::string number_text(DType dtype) { return is_float(dtype) ? "double" : dtype == DType::u64 ? "uint64_t" : "int64_t"; }

std::string cell_text(DType dtype) { return "uint" + std::to_string(8 * bytes_of(dtype)) + "_t"; }

ArgValue nest_arg(const Loop& loop) {
  return struct_arg({{"rank", arg(static_cast<int64_t>(loop.size()))}, {"divisors", divisors_arg(inner_extents(loop), rk::kNestRank - 1)}});
}

void add_nest_args(Phase& phase, const char* name, const Loop& loop, const std::vector<const char*>& operands) {
  add_args(phase, {{name, nest_arg(loop)}});
  for (size_t i = 0; i < operands.size(); ++i) add_args(phase, {{operands[i], array_arg(strides(loop, i), rk::kNestRank)}});
}

Loop loop_over(const Shape& shape, const std::vector<int64_t>& strides) {
  Loop loop;
  for (size_t d = 0; d < shape.size(); ++d) loop.push_back({shape[d], {strides[d]}});
  return loop;
}

std::vector<int64_t> with_dimensions(std::vector<int64_t> values, size_t at, size_t count, int64_t added) {
  while (values.size() < count) values.insert(values.begin() + static_cast<std::ptrdiff_t>(at), added);
  return values;
}

Loop merged(Loop loop) {
  drop_units(loop);
  merge(loop);
  return loop;
}

int64_t elements_per_rtask(const Request& request, int64_t elements, int64_t lanes) {
  return std::max(request.vdevice.compute_threads / lanes, ceil_div(elements, request.vdevice.veus()));
}

RKernel typed_rkernel(const Request& request, Phase phase, int64_t elements, double reads, double flops, int64_t lanes) {
  const int64_t per_rtask = elements_per_rtask(request, elements, lanes);
  phase.rtasks = std::max<int64_t>(1, ceil_div(elements, per_rtask));
  const double share = static_cast<double>(elements) / static_cast<double>(phase.rtasks);
  phase.cost.activation_bytes = share * 8 * (1 + reads);
  phase.cost.flops = share * flops;
  phase.cost.efficiency = request.vdevice.cost("typed.efficiency");
  add_args(phase, {{"elements", arg(elements)}, {"elements_per_rtask", arg(per_rtask)}});
  return one_phase(name_of_body(phase), {{"elements_per_rtask", per_rtask}}, phase);
}

void append_share(const Graph& graph, const ROperator& rop, const RKernel& rkernel, const Loop& loop, int64_t index,
                  std::vector<Region>& writes) {
  const TensorId made = rop.outputs[0];
  const int64_t per_rtask = rkernel.config_value("elements_per_rtask");
  const int64_t end = std::min((index + 1) * per_rtask, loop_elements(loop));
  append_runs(loop, 0, made, graph.tensor(made).place.offset, index * per_rtask, end, writes);
}

}  // namespace tamp::kernels
