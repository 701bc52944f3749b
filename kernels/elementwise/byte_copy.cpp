// Host side of byte_copy.cuh. f32 is left to the elementwise family, which takes any strides.
#include <algorithm>
#include <limits>

#include "kernels/args.h"
#include "kernels/family.h"
#include "kernels/loop.h"

namespace tamp::kernels {
namespace {

bool is_copy(const ROperator& rop) {
  const auto* chain = std::get_if<Elementwise>(&rop.attrs);
  return chain != nullptr && rop.inputs.size() == 1 && chain->steps.size() == 1 && chain->steps[0].op == ElementwiseOp::identity &&
         !has_epilogue(rop);
}

int64_t byte_count(const Tensor& tensor) { return element_count(tensor.shape) * bytes_of(tensor.dtype); }

// A multiple of four elements, so that no word has two rTasks.
int64_t elements_per_rtask(const Tensor& tensor, const ShapedVDevice& vdevice) {
  const int64_t least = vdevice.compute_threads * 16 / bytes_of(tensor.dtype);
  return ceil_div(std::max(least, ceil_div(element_count(tensor.shape), vdevice.veus())), 4) * 4;
}

std::vector<RKernel> offers(const Request& request) {
  const ROperator& rop = request.rop;
  if (!is_copy(rop)) return {};
  const Tensor &in = request.graph.tensor(rop.inputs[0]), &out = request.graph.tensor(rop.outputs[0]);
  if (in.dtype != out.dtype || in.dtype == DType::f32 || in.shape != out.shape) return {};
  if (!is_row_major(in) || !is_row_major(out) || in.place.offset != 0 || out.place.offset != 0) return {};
  if (byte_count(in) > std::numeric_limits<int32_t>::max()) return {};
  const int64_t per_rtask = elements_per_rtask(in, request.vdevice);
  Phase phase = body_phase("kernels/elementwise/byte_copy.cuh", "rk::byte_copy", "rk::ByteCopyArgs");
  phase.args = {{"out", arg(TensorArg{rop.outputs[0]})},
                {"in", arg(TensorArg{rop.inputs[0]})},
                {"words", arg(byte_count(in) / 4)},
                {"words_per_rtask", arg(per_rtask * bytes_of(in.dtype) / 4)},
                {"tail_bytes", arg(byte_count(in) % 4)}};
  phase.rtasks = std::max<int64_t>(1, ceil_div(element_count(in.shape), per_rtask));
  phase.cost.activation_bytes = 2 * static_cast<double>(byte_count(in)) / static_cast<double>(phase.rtasks);
  return {one_phase("byte_copy", {{"elements_per_rtask", per_rtask}}, phase)};
}

void accesses(const Graph& graph, const ROperator& rop, const RKernel& rkernel, int, int64_t index, Accesses& out) {
  const int64_t per_rtask = rkernel.config_value("elements_per_rtask"), begin = index * per_rtask;
  const Run run{begin, 1, 0, std::min(per_rtask, element_count(graph.tensor(rop.outputs[0]).shape) - begin)};
  out.reads.push_back({rop.inputs[0], run});
  out.writes.push_back({rop.outputs[0], run});
}

}  // namespace

Family byte_copy() { return {"byte_copy", offers, no_pack, accesses, nullptr, Narrowed::moves}; }

}  // namespace tamp::kernels
