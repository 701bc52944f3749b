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
  if (family.narrowed == Narrowed::computes || !touches_narrowed(request.graph, request.rop)) return family.candidates(request);
  const auto type_of = [&](TensorId id) { return request.graph.tensor(id).dtype; };
  const bool same = type_of(request.rop.inputs[0]) == type_of(request.rop.outputs[0]);
  return family.narrowed == Narrowed::moves && same ? family.candidates(request) : std::vector<RKernel>();
}

}  // namespace tamp::kernels
