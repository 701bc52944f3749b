#include "kernels/typed/lines.h"

#include <algorithm>

#include "kernels/any_type.h"
#include "kernels/args.h"

namespace tamp::kernels {

Loop lines_of(const Graph& graph, const ROperator& rop, int64_t axis) {
  const Tensor& in = graph.tensor(rop.inputs[0]);
  Loop loop;
  for (size_t d = 0; d < in.shape.size(); ++d) {
    if (d == static_cast<size_t>(axis)) continue;
    LoopDim dim{in.shape[d], {}};
    for (const TensorId id : rop.outputs) dim.strides.push_back(graph.tensor(id).place.strides[d]);
    dim.strides.push_back(in.place.strides[d]);
    loop.push_back(dim);
  }
  return normalised(loop);
}

RKernel lines_rkernel(const ShapedVDevice& vdevice, Phase phase, int64_t lines, int64_t lines_per_rtask, double steps) {
  constexpr double kFlopsOfStep = 256 * 40;  // of all threads, whether they have a line or not
  phase.rtasks = std::max<int64_t>(1, ceil_div(lines, lines_per_rtask));
  phase.cost.flops = steps * kFlopsOfStep;
  phase.cost.efficiency = vdevice.cost("typed.lines_efficiency");
  return one_phase(name_of_body(phase), {{"lines_per_rtask", lines_per_rtask}}, phase);
}

void lines_accesses(const Graph& graph, const ROperator& rop, const RKernel& rkernel, int64_t axis, int64_t index, Accesses& out) {
  const Loop lines = lines_of(graph, rop, axis);
  const int64_t per_rtask = rkernel.config_value("lines_per_rtask");
  const int64_t begin = index * per_rtask, end = std::min(begin + per_rtask, loop_elements(lines));
  for (size_t k = 0; k < rop.outputs.size(); ++k) {
    const Tensor& made = graph.tensor(rop.outputs[k]);
    const auto d = static_cast<size_t>(axis);
    Loop loop = lines;
    loop.push_back({made.shape[d], std::vector<int64_t>(rop.outputs.size() + 1, made.place.strides[d])});
    append_runs(loop, k, rop.outputs[k], made.place.offset, begin * made.shape[d], end * made.shape[d], out.writes);
  }
  for (const TensorId id : reads_of(rop)) append_whole(graph, id, out.reads);
}

}  // namespace tamp::kernels
