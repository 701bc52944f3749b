// NonMaxSuppression: of boxes that overlap, the one of the highest score.
#include <algorithm>

#include "compiler/ops/operator.h"
#include "compiler/support/text.h"
#include "kernels/shared/overlap.h"

namespace tamp::ops {
namespace {

rk::BoxEdges edges_of(const float* box, bool by_centre) { return rk::box_edges(box[0], box[1], box[2], box[3], by_centre); }

// The boxes that stay of one class of one image, best first.
std::vector<int64_t> kept_of(const NonMaxSuppression& op, const float* boxes, const float* scores, int64_t count) {
  std::vector<int64_t> order;
  for (int64_t i = 0; i < count; ++i) {
    if (scores[i] == scores[i] && (!op.has_threshold || scores[i] > op.least_score)) order.push_back(i);
  }
  std::stable_sort(order.begin(), order.end(), [&](int64_t i, int64_t j) { return scores[i] > scores[j]; });
  std::vector<int64_t> kept;
  for (const int64_t i : order) {
    if (static_cast<int64_t>(kept.size()) == op.most) break;
    const rk::BoxEdges box = edges_of(boxes + 4 * i, op.by_centre);
    const bool goes = std::any_of(kept.begin(), kept.end(), [&](int64_t other) {
      return rk::boxes_overlap(edges_of(boxes + 4 * other, op.by_centre), box, op.overlap);
    });
    if (!goes) kept.push_back(i);
  }
  return kept;
}

}  // namespace

TensorTypes infer(const NonMaxSuppression& op, const Given& given) {
  given.expect(2);
  const Shape &boxes = given.shape(0), &scores = given.shape(1);
  if (boxes.size() != 3 || boxes[2] != 4) throw bad_input("input boxes has shape {}, expected [batch,boxes,4]", shape_text(boxes));
  if (scores.size() != 3 || scores[0] != boxes[0] || scores[2] != boxes[1])
    throw bad_input("input scores has shape {}, expected [{},classes,{}]", shape_text(scores), boxes[0], boxes[1]);
  if (given.dtype(0) != DType::f32 || given.dtype(1) != DType::f32) throw bad_input("inputs boxes and scores must be f32");
  if (op.most < 0 || op.most > boxes[1]) throw bad_input("at most {} boxes of a class, expected 0 to {}", op.most, boxes[1]);
  return {{DType::i64, {scores[0], scores[1], op.most}}};
}

std::vector<Value> evaluate(const NonMaxSuppression& op, const Call& call) {
  const Shape& shape = call.input(1).shape;
  const Numbers<float> boxes(call.input(0)), scores(call.input(1));
  std::vector<int64_t> result(static_cast<size_t>(element_count(call.output().shape)), -1);
  for (int64_t line = 0; line < shape[0] * shape[1]; ++line) {
    const std::vector<int64_t> kept = kept_of(op, boxes.data() + line / shape[1] * shape[2] * 4, scores.data() + line * shape[2], shape[2]);
    std::copy(kept.begin(), kept.end(), result.begin() + line * op.most);
  }
  return {output_from(call, result)};
}

Traits traits_of(const NonMaxSuppression&) {
  return {Layout::row_major, InF32::none};
}  // its result is not of the boxes' type: infer wants f32

int64_t own_work(const NonMaxSuppression& op, const Given& given, const TensorTypes&) {
  return saturating_product({given.elements(1), kWorkOfRead, op.most + 4});
}

}  // namespace tamp::ops
