#include "kernels/family.h"

#include <algorithm>

namespace tamp::kernels {

bool touches_narrowed(const Graph& graph, const ROperator& rop) {
  const auto is_narrowed = [&](TensorId id) {
    const BufferId buffer = graph.tensor(id).place.buffer;
    return buffer.valid() && graph.buffers[buffer.index()].narrowed;
  };
  std::vector<TensorId> all = reads_of(rop);
  all.insert(all.end(), rop.outputs.begin(), rop.outputs.end());
  return std::any_of(all.begin(), all.end(), is_narrowed);
}

std::vector<RKernel> candidates_of(const Family& family, const Request& request) {
  if (family.narrowed != Narrowed::computes && touches_narrowed(request.graph, request.rop)) {
    const auto type_of = [&](TensorId id) { return request.graph.tensor(id).dtype; };
    if (family.narrowed == Narrowed::refuses || type_of(request.rop.inputs[0]) != type_of(request.rop.outputs[0])) return {};
  }
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
