// NonMaxSuppression. How many boxes stay is known only at run time: the result has room for as many boxes as can stay, and a count says how
// many did.
#include <algorithm>

#include "compiler/frontend/importers.h"

namespace tamp::frontend {

void import_non_max_suppression(NodeImport& n) {
  n.expect_counts(2, 5);
  const TensorId boxes = n.in(0), scores = n.in(1);
  n.expect_float({boxes, scores});
  NonMaxSuppression suppression;
  const int64_t layout = n.attr_int("center_point_box", 0);
  if (layout != 0 && layout != 1) throw n.bad("attribute 'center_point_box' is {}, expected 0 or 1", layout);
  suppression.by_centre = layout == 1;
  if (const std::optional<Ints> most = n.optional_ints(2, "max_output_boxes_per_class")) {
    if (most->size() != 1) throw n.bad("input 2 (max_output_boxes_per_class) has {} values, expected one", most->size());
    const Shape shape = n.shape(boxes);
    suppression.most = std::clamp<int64_t>((*most)[0], 0, shape.size() == 3 ? shape[1] : 0);
  }
  if (n.has(3)) suppression.overlap = static_cast<float>(n.number(3, "iou_threshold"));
  if (!(suppression.overlap >= 0 && suppression.overlap <= 1))
    throw n.bad("input 3 (iou_threshold) is {}, expected 0 to 1", suppression.overlap);
  suppression.has_threshold = n.has(4);
  if (n.has(4)) suppression.least_score = static_cast<float>(n.number(4, "score_threshold"));

  const TensorId kept = n.add(suppression, {n.cast(boxes, DType::f32), n.cast(scores, DType::f32)});
  const Shape shape = n.shape(kept);
  const int64_t room = element_count(shape);
  if (room == 0) return n.result(0, n.constant_i64({}, {0, 3}));
  const auto whole = [&](int64_t value) { return n.constant_i64({value}, {}); };
  const TensorId numbers = n.reshape(kept, {room});
  const std::vector<TensorId> found = n.add_all(NonZero{}, {n.elementwise(ElementwiseOp::greater_equal, {numbers, whole(0)})});
  // Each row: image, class, box; -1 behind the last.
  const TensorId place = n.reshape(found[0], {room, 1});
  const TensorId image = n.elementwise(ElementwiseOp::div, {place, whole(shape[1] * shape[2])});
  const TensorId line = n.elementwise(ElementwiseOp::div, {place, whole(shape[2])});
  const TensorId which = n.elementwise(ElementwiseOp::mod, {line, whole(shape[1])});
  const TensorId box = n.reshape(n.add(Gather{0}, {numbers, found[0]}), {room, 1});
  const TensorId rows = n.add(Concat{1}, {image, which, box});
  const TensorId is_none = n.elementwise(ElementwiseOp::less, {place, whole(0)});
  n.padded_result(0, n.elementwise(ElementwiseOp::where, {is_none, whole(-1), rows}), found[1], 0);
}

}  // namespace tamp::frontend
