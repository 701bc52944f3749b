// Host side of non_max_suppression.cuh.
#include <algorithm>

#include "kernels/any_type.h"
#include "kernels/args.h"
#include "kernels/family.h"
#include "kernels/loop.h"
#include "kernels/vdevice/numbers.cuh"

namespace tamp::kernels {
namespace {

constexpr int64_t kUsualRounds = 100;  // a guess: how many boxes stay is known at run time only

std::vector<RKernel> offers(const Request& request) {
  const ROperator& rop = request.rop;
  const auto* attrs = std::get_if<NonMaxSuppression>(&rop.attrs);
  if (attrs == nullptr || has_epilogue(rop) || !all_plain(request.graph, rop)) return {};
  const Tensor &boxes = request.graph.tensor(rop.inputs[0]), &scores = request.graph.tensor(rop.inputs[1]);
  const Tensor& out = request.graph.tensor(rop.outputs[0]);
  const int64_t count = boxes.shape[1], threads = request.vdevice.compute_threads;
  const int64_t words = ceil_div(ceil_div(count, threads), 32);
  Phase phase = body_phase("kernels/sample/non_max_suppression.cuh", "rk::non_max_suppression", "rk::NonMaxSuppressionArgs");
  phase.args = {{"boxes", arg(TensorArg{rop.inputs[0]})},
                {"scores", arg(TensorArg{rop.inputs[1]})},
                {"out", arg(TensorArg{rop.outputs[0]})},
                {"box_strides", array_arg(boxes.place.strides)},
                {"score_strides", array_arg(scores.place.strides)},
                {"out_strides", array_arg(out.place.strides)},
                {"classes", divisor_arg(std::max<int64_t>(1, scores.shape[1]))},
                {"count", arg(count)},
                {"most", arg(attrs->most)},
                {"words", arg(words)},
                {"overlap", float_arg(attrs->overlap)},
                {"least_score", float_arg(attrs->least_score)},
                {"has_threshold", arg(int64_t{attrs->has_threshold})},
                {"by_centre", arg(int64_t{attrs->by_centre})}};
  phase.rtasks = std::max<int64_t>(1, scores.shape[0] * scores.shape[1]);
  phase.work_bytes = 8 * (threads / rk::kWarp) + 4 * threads * words;
  if (phase.work_bytes > request.vdevice.work_bytes()) return {};
  const auto rounds = static_cast<double>(std::min(attrs->most, kUsualRounds)), each = static_cast<double>(count);
  phase.cost.activation_bytes = rounds * 20 * each;
  phase.cost.flops = rounds * 40 * each;
  phase.cost.efficiency = request.vdevice.cost("typed.efficiency");
  return {one_phase("non_max_suppression", {}, phase)};
}

void accesses(const Graph& graph, const ROperator& rop, const RKernel&, int, int64_t index, Accesses& out) {
  const Shape& shape = graph.tensor(rop.outputs[0]).shape;
  if (element_count(shape) > 0) {
    const int64_t image = index / shape[1], which = index % shape[1];
    append_box(graph, rop.outputs[0], {image, which, 0}, {image + 1, which + 1, shape[2]}, out.writes);
  }
  for (const TensorId id : rop.inputs) append_whole(graph, id, out.reads);
}

}  // namespace

Family non_max_suppression() { return {"non_max_suppression", offers, no_pack, accesses, nullptr, Narrowed::refuses}; }

}  // namespace tamp::kernels
