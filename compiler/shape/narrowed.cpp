#include "compiler/shape/narrowed.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "compiler/ir/fused.h"
#include "compiler/ir/products.h"
#include "compiler/passes/place/narrow_activations.h"
#include "compiler/select/select.h"
#include "compiler/support/text.h"

namespace tamp::shape {

bool may_narrow(const Setting& setting) {
  return setting.narrow_activations && (setting.precision == Precision::fp16 || setting.precision == Precision::bf16);
}

int64_t cell_of(const Setting& setting) {
  if (!may_narrow(setting)) return 4;
  return setting.of_bytes && setting.precision == Precision::fp16 ? 16 : 8;  // of bytes 16 are the copy engine's 16 bytes
}

bool has_narrow(const Graph& placed) {
  return std::any_of(placed.buffers.begin(), placed.buffers.end(), [](const Buffer& buffer) { return buffer.narrowed; });
}

namespace {

// Whether results are rounded to whole numbers, as those of quantised networks are.
bool has_roundings(const Graph& graph) {
  bool any = false;
  for (const ROperator& rop : graph.rops) {
    for_each_step(graph, rop, [&](const Graph&, const ROperator& step) {
      any |= step.epilogue.sum.has_value() || step.epilogue.activation == Activation::rounded;
    });
  }
  return any;
}

}  // namespace

Graph narrowed(Graph placed, const Setting& setting, const ShapedVDevice& vdevice) {
  const Precision precision = setting.precision;
  const bool in_tf32 = setting.narrow_activations && precision == Precision::tf32 && vdevice.fp16 && vdevice.input_stages > 0;
  const bool has_half_ports = !placed.input_types.empty();
  if (!may_narrow(setting) && !in_tf32 && !has_half_ports) return placed;
  const bool has_bytes = setting.precision == Precision::fp16 && may_narrow(setting) && has_roundings(placed);
  passes::HalfUse half;
  const DType narrow = precision == Precision::bf16 ? DType::bf16 : DType::f16;
  if (in_tf32) half = passes::half_use(placed, *setting.norms);
  if (may_narrow(setting)) half.buffers = passes::may_be_narrow(placed, narrow, *setting.magnitudes);
  const bool none = in_tf32 && std::find(half.buffers.begin(), half.buffers.end(), true) == half.buffers.end();
  if (none && !has_half_ports) return placed;
  const auto takes = [&](const Graph& graph, const ROperator& rop) {
    if (!may_narrow(setting) && !in_tf32) return false;
    const Precision own = select::precision_of(graph, rop, precision);
    if (own != precision) {
      const auto is_wide = [&](TensorId id) { return graph.tensor(id).dtype != DType::f16; };
      const std::vector<TensorId> operands = passes::rounded_operands(graph, rop);
      if (!half.rops[static_cast<size_t>(&rop - graph.rops.data())]) return false;
      if (std::any_of(operands.begin(), operands.end(), is_wide)) return false;  // fp16 would not be faster than tf32
    }
    return !select::candidates_in_program(kernels::families(), {graph, rop, vdevice, own}).empty();
  };
  for (size_t b = 0; b < half.largest.size(); ++b) placed.buffers[b].largest = half.largest[b];
  placed = passes::narrow_activations(std::move(placed), narrow, takes, half.buffers);
  for (size_t b = 0; b < half.largest.size(); ++b) {
    if (!placed.buffers[b].narrowed) placed.buffers[b].largest = 0;
  }
  if (has_bytes) placed = passes::whole_numbers_in_bytes(std::move(placed), takes);
  verify(placed);
  return placed;
}

void log_activations(const Graph& placed, const Setting& setting) {
  if (setting.precision == Precision::fp32 || (setting.precision == Precision::tf32 && !has_narrow(placed))) return;
  std::vector<std::string> wide;
  size_t narrow = 0;
  for (const ROperator& rop : placed.rops) {
    for (size_t k = 0; k < rop.outputs.size(); ++k) {
      const Tensor& tensor = placed.tensor(rop.outputs[k]);
      if (!tensor.place.buffer.valid() || result_is_numbers(rop, k)) continue;
      const Buffer& buffer = placed.buffers[tensor.place.buffer.index()];
      if (buffer.kind != BufferKind::arena) continue;
      narrow += buffer.narrowed ? 1 : 0;
      if (buffer.dtype == DType::f32) wide.push_back("'" + printable(rop.name) + "'");
    }
  }
  constexpr size_t kShown = 4;
  const size_t more = wide.size() > kShown ? wide.size() - kShown : 0;
  const std::string in_fp32 = wide.empty() ? "none" : join(std::vector(wide.begin(), wide.end() - static_cast<std::ptrdiff_t>(more)), ", ");
  const Precision precision = setting.precision == Precision::tf32 ? Precision::fp16 : setting.precision;
  spdlog::info("activations: {} rOperators' results in {}, in fp32: {}{}", narrow, name_of(precision), in_fp32,
               more > 0 ? fmt::format(" and {} more", more) : "");
}

}  // namespace tamp::shape
