// NegativeLogLikelihoodLoss and SoftmaxCrossEntropyLoss, in Gathers, elementwise functions and sums. In f32 where operands are narrower,
// and rounded once at the end. A target that is known only at run time and is no valid class takes the nearest class.
#include <fmt/format.h>

#include "compiler/frontend/importers.h"
#include "compiler/support/text.h"

namespace tamp::frontend {
namespace {

enum class Reduction { none, sum, mean };

Reduction reduction_of(NodeImport& n) {
  const std::string reduction = n.attr_string("reduction", "mean");
  if (reduction == "none") return Reduction::none;
  if (reduction == "sum") return Reduction::sum;
  if (reduction == "mean") return Reduction::mean;
  throw n.bad("attribute 'reduction' is '{}', expected none, sum, or mean", printable(reduction));
}

class Loss {
 public:
  explicit Loss(NodeImport& n) : n_(n), reduction_(reduction_of(n)), ignored_(n.find_int("ignore_index")) {}

  // scores[N,C,..], target[N,..] and maybe weights[C]: what inputs 0, 1 and 2 are, whatever the scores have become.
  TensorId of(TensorId scores) {
    read_shapes(scores);
    const Shape& shape = n_.shape(scores);
    const int64_t batch = shape[0], classes = shape[1], each = element_count(target_) / (batch == 0 ? 1 : batch);
    TensorId target = n_.reshape(n_.cast(n_.in(1), DType::i64), {batch, each}), is_ignored;
    if (ignored_) {
      is_ignored = n_.elementwise(ElementwiseOp::equal, {target, n_.constant_i64(*ignored_)});
      target = n_.elementwise(ElementwiseOp::where, {is_ignored, n_.constant_i64(0), target});
    }
    target = n_.elementwise(ElementwiseOp::min,
                            {n_.elementwise(ElementwiseOp::max, {target, n_.constant_i64(0)}), n_.constant_i64(classes - 1)});
    const TensorId first = n_.elementwise(
        ElementwiseOp::add, {n_.constant_range(0, batch, classes * each, {batch, 1}), n_.constant_range(0, each, 1, {1, each})});
    const TensorId place = n_.elementwise(ElementwiseOp::add, {first, n_.elementwise(ElementwiseOp::mul, {target, n_.constant_i64(each)})});
    const TensorId flat = n_.reshape(scores, {element_count(shape)});
    const DType dtype = n_.dtype(scores);
    TensorId loss = n_.elementwise(ElementwiseOp::neg, {n_.add(Gather{0}, {flat, place})}), weight;
    if (n_.has(2)) weight = n_.add(Gather{0}, {n_.cast(n_.in(2), dtype), target});
    if (weight.valid()) loss = n_.elementwise(ElementwiseOp::mul, {loss, weight});
    if (ignored_) {
      loss = n_.elementwise(ElementwiseOp::where, {is_ignored, real(0, dtype), loss});
      weight = n_.elementwise(ElementwiseOp::where, {is_ignored, real(0, dtype), weight.valid() ? weight : real(1, dtype)});
    }
    return reduced(loss, weight);
  }

 private:
  void read_shapes(TensorId scores) {
    const Shape shape = n_.shape(scores);
    target_ = n_.shape(n_.in(1));
    Shape expected = shape;
    if (shape.size() < 2 || shape[1] < 1)
      throw n_.bad("input 0 has shape {}, expected [N,C,..] with at least one class", shape_text(shape));
    expected.erase(expected.begin() + 1);
    const DType dtype = n_.dtype(n_.in(1));
    if (target_ != expected || (dtype != DType::i64 && dtype != DType::i32))
      throw n_.bad("input 1 (target) is {}{}, expected i64{}", name_of(dtype), shape_text(target_), shape_text(expected));
    if (n_.has(2) && n_.shape(n_.in(2)) != Shape{shape[1]})
      throw n_.bad("input 2 (weights) has shape {}, expected a number for each of {} classes", shape_text(n_.shape(n_.in(2))), shape[1]);
    for (const int64_t target : n_.is_constant(n_.in(1)) ? n_.flat_ints(n_.in(1)) : Ints()) {
      if (target == ignored_ || (target >= 0 && target < shape[1])) continue;
      throw n_.bad("input 1 (target) has {}, expected 0 to {}{}", target, shape[1] - 1, ignored_ ? fmt::format(" or {}", *ignored_) : "");
    }
  }

  // A mean is divided by the sum of the weights.
  TensorId reduced(TensorId loss, TensorId weight) {
    if (reduction_ == Reduction::none) return n_.reshape(loss, target_);
    const bool is_sum = reduction_ == Reduction::sum || weight.valid();
    const auto all = [&](ReduceKind kind, TensorId id) { return n_.add(Reduce{kind, {0, 1}, /*keepdims=*/false}, {id}); };
    const TensorId sum = all(is_sum ? ReduceKind::sum : ReduceKind::mean, loss);
    if (reduction_ == Reduction::sum || !weight.valid()) return sum;
    return n_.elementwise(ElementwiseOp::div, {sum, all(ReduceKind::sum, weight)});
  }

  TensorId real(float value, DType dtype) { return n_.cast(n_.constant_f32(value), dtype); }

  NodeImport& n_;
  Reduction reduction_;
  std::optional<int64_t> ignored_;
  Shape target_;
};

void expect_operands(NodeImport& n) {
  n.expect_inputs(2, 3);
  n.expect_float(n.has(2) ? std::vector<TensorId>{n.in(0), n.in(2)} : std::vector<TensorId>{n.in(0)});
}

TensorId widened(NodeImport& n, TensorId x) { return n.dtype(x) == DType::f64 ? x : n.cast(x, DType::f32); }

}  // namespace

void import_negative_log_likelihood_loss(NodeImport& n) {
  expect_operands(n);
  n.expect_outputs(1);
  Loss loss(n);
  n.result(0, n.cast(loss.of(widened(n, n.in(0))), n.dtype(n.in(0))));
}

void import_softmax_cross_entropy_loss(NodeImport& n) {
  expect_operands(n);
  n.expect_outputs(2);
  Loss loss(n);
  const TensorId x = n.in(0);
  if (n.rank(x) < 2) throw n.bad("input 0 (scores) has shape {}, expected [N,C,..]", shape_text(n.shape(x)));
  const TensorId log_prob = n.add(Softmax{1, 1, /*log=*/true}, {widened(n, x)});
  n.result(0, n.cast(loss.of(log_prob), n.dtype(x)));
  n.result(1, n.cast(log_prob, n.dtype(x)));
}

}  // namespace tamp::frontend
