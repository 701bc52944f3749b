#include "kernels/family.h"

#include <algorithm>

#include "kernels/args.h"

namespace tamp::kernels {

bool touches_narrowed(const Graph& graph, const ROperator& rop) {
  return !all_tensors(graph, rop, [&](const Tensor& tensor) {
    return !tensor.place.buffer.valid() || !graph.buffers[tensor.place.buffer.index()].narrowed;
  });
}

std::vector<RKernel> candidates_of(const Family& family, const Request& request) {
  if (family.narrowed != Narrowed::computes && touches_narrowed(request.graph, request.rop)) {
    const auto type_of = [&](TensorId id) { return request.graph.tensor(id).dtype; };
    if (family.narrowed == Narrowed::refuses || type_of(request.rop.inputs[0]) != type_of(request.rop.outputs[0])) return {};
  }
  if (request.rop.epilogue.sum && !family.takes_sums) return {};
  const auto is_no_byte = [](const Tensor& tensor) { return !is_whole_byte(tensor.dtype); };
  if (!family.takes_bytes && !all_tensors(request.graph, request.rop, is_no_byte)) return {};
  std::vector<RKernel> rkernels = family.candidates(request);
  for (RKernel& rkernel : rkernels) rkernel.family = family.name;
  return rkernels;
}

std::vector<RKernel> for_all_and_a_quarter(const ShapedVDevice& vdevice, const std::function<RKernel(int64_t rtasks)>& rkernel_of) {
  std::vector<RKernel> out = {rkernel_of(vdevice.veus())};
  if (out[0].rtasks() > 8) out.push_back(rkernel_of(std::max<int64_t>(1, vdevice.veus() / 4)));
  return out;
}

}  // namespace tamp::kernels
