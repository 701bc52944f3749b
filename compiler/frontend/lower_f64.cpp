// Exact, not fast: every step is a rOperator of its own, and every window is a copy of the elements that it covers.
#include "compiler/frontend/lower_f64.h"

#include <algorithm>
#include <limits>
#include <utility>
#include <vector>

namespace tamp::frontend {
namespace {

class Lowering {
 public:
  Lowering(Builder& builder, const Builder::Request& request) : builder_(builder), request_(request) {}

  // The largest element is subtracted so that exp() does not overflow.
  TensorId run(const Softmax& op) {
    const TensorId x = in(0);
    if (element_count(shape(x)) == 0) return elementwise(ElementwiseOp::identity, {x});
    const std::vector<int64_t> axes = range(op.first_axis, op.last_axis + 1);
    const TensorId below = elementwise(ElementwiseOp::sub, {x, reduce(ReduceKind::max, axes, x)});
    const TensorId power = elementwise(ElementwiseOp::exp, {below}), sum = reduce(ReduceKind::sum, axes, power);
    if (op.log) return elementwise(ElementwiseOp::sub, {below, elementwise(ElementwiseOp::log, {sum})});
    return elementwise(ElementwiseOp::div, {power, sum});
  }

  TensorId run(const Normalize& op) {
    TensorId x = in(0);
    if (op.centered) x = elementwise(ElementwiseOp::sub, {x, reduce(ReduceKind::mean, op.axes, x)});
    const TensorId squares = reduce(ReduceKind::mean, op.axes, elementwise(ElementwiseOp::mul, {x, x}));
    return shifted(elementwise(ElementwiseOp::div, {x, deviation(squares, op.epsilon)}), in(1), in(2));
  }

  TensorId run(const BatchNorm& op) {
    const TensorId x = in(0);
    Shape along_channels(shape(x).size() - 1, 1);
    const auto per_channel = [&](size_t i) {
      along_channels[0] = shape(in(i))[0];
      return emit(Reshape{along_channels}, {in(i)});
    };
    const TensorId scale = per_channel(1), offset = per_channel(2), mean = per_channel(3), variance = per_channel(4);
    const TensorId centred = elementwise(ElementwiseOp::sub, {x, mean});
    return shifted(elementwise(ElementwiseOp::div, {centred, deviation(variance, op.epsilon)}), scale, offset);
  }

  TensorId run(const Lrn& op) {
    const TensorId x = in(0);
    const int64_t channels = shape(x)[1];
    const int64_t before = std::min((op.size - 1) / 2, channels), after = std::min(op.size / 2, channels);
    const Slide slide{1, channels, before + after + 1, 1, 1, before};
    const TensorId sum = slid(slide, ReduceKind::sum, elementwise(ElementwiseOp::mul, {x, x}));
    const TensorId factor = number(static_cast<double>(op.alpha) / static_cast<double>(op.size));
    const TensorId base = elementwise(ElementwiseOp::add, {elementwise(ElementwiseOp::mul, {sum, factor}), number(op.bias)});
    return elementwise(ElementwiseOp::div, {x, elementwise(ElementwiseOp::pow, {base, number(op.beta)})});
  }

  // One dimension after another.
  TensorId run(const Pool& op) {
    const Shape from = shape(in(0)), to = builder_.infer(request_)[0].shape;
    TensorId y = in(0);
    for (size_t d = 0; d < op.kernel.size(); ++d) {
      const Slide slide{d + 2, to[d + 2], op.kernel[d], op.strides[d], op.dilations[d], op.pads_begin[d]};
      y = slid(slide, op.kind == PoolKind::max ? ReduceKind::max : ReduceKind::sum, y);
    }
    return op.kind == PoolKind::max ? y : elementwise(ElementwiseOp::div, {y, window_sizes(op, from, to)});
  }

 private:
  // A window of `kernel` elements, `dilation` apart, at each of `count` places along a dimension.
  struct Slide {
    size_t dimension = 0;
    int64_t count = 0, kernel = 1, stride = 1, dilation = 1, pad_begin = 0;
  };

  // The dimension is padded (with what changes no result) as far as the windows reach, cut into windows, and each reduced.
  TensorId slid(const Slide& slide, ReduceKind kind, TensorId x) {
    const Shape from = shape(x);
    const int64_t extent = from[slide.dimension];
    if (slide.kernel == 1 && slide.stride == 1 && slide.pad_begin == 0 && slide.count == extent) return x;
    const int64_t last = (slide.count - 1) * slide.stride + (slide.kernel - 1) * slide.dilation - slide.pad_begin;
    Pad pad{std::vector<int64_t>(from.size(), 0), std::vector<int64_t>(from.size(), 0)};
    pad.before[slide.dimension] = slide.pad_begin;
    pad.after[slide.dimension] = std::max<int64_t>(0, last - (extent - 1));
    pad.value = kind == ReduceKind::max ? -std::numeric_limits<float>::infinity() : 0;
    if (pad.before[slide.dimension] > 0 || pad.after[slide.dimension] > 0) x = emit(pad, {x});
    std::vector<int64_t> places;
    builder_.charge(slide.count * slide.kernel * static_cast<int64_t>(sizeof(int64_t)), request_.where);
    for (int64_t o = 0; o < slide.count; ++o) {
      for (int64_t k = 0; k < slide.kernel; ++k) places.push_back(o * slide.stride + k * slide.dilation);
    }
    const auto axis = static_cast<int64_t>(slide.dimension);
    const TensorId windows = emit(Gather{axis}, {x, constant(DType::i64, {slide.count, slide.kernel}, places)});
    return emit(Reduce{kind, {axis + 1}, /*keepdims=*/false}, {windows});
  }

  // The number that each window of an average divides by, for all spatial dimensions together.
  TensorId window_sizes(const Pool& op, const Shape& from, const Shape& to) {
    std::vector<double> sizes = {1};
    for (size_t d = 0; d < op.kernel.size(); ++d) {
      const int64_t low = op.count_include_pad ? -op.pads_begin[d] : 0, high = from[d + 2] + (op.count_include_pad ? op.pads_end[d] : 0);
      std::vector<double> wider;
      for (const double size : sizes) {
        for (int64_t o = 0; o < to[d + 2]; ++o) {
          int64_t inside = 0;
          for (int64_t k = 0; k < op.kernel[d]; ++k) {
            const int64_t at = o * op.strides[d] - op.pads_begin[d] + k * op.dilations[d];
            inside += at >= low && at < high ? 1 : 0;
          }
          wider.push_back(size * static_cast<double>(inside));
        }
      }
      sizes = std::move(wider);
    }
    builder_.charge(static_cast<int64_t>(sizes.size() * sizeof(double)), request_.where);
    return constant(DType::f64, Shape(to.begin() + 2, to.end()), sizes);
  }

  TensorId deviation(TensorId variance, float epsilon) {
    return elementwise(ElementwiseOp::sqrt, {elementwise(ElementwiseOp::add, {variance, number(epsilon)})});
  }
  TensorId shifted(TensorId x, TensorId scale, TensorId offset) {
    if (scale.valid()) x = elementwise(ElementwiseOp::mul, {x, scale});
    return offset.valid() ? elementwise(ElementwiseOp::add, {x, offset}) : x;
  }

  TensorId in(size_t i) const { return i < request_.inputs.size() ? request_.inputs[i] : TensorId(); }
  Shape shape(TensorId id) const { return builder_.graph.tensor(id).shape; }
  TensorId emit(OpAttrs attrs, std::vector<TensorId> inputs) {
    return builder_.emit({std::move(attrs), std::move(inputs), request_.name, request_.origin, request_.where});
  }
  TensorId elementwise(ElementwiseOp op, const std::vector<TensorId>& inputs) {
    std::vector<int32_t> operands;
    for (size_t i = 0; i < inputs.size(); ++i) operands.push_back(static_cast<int32_t>(i));
    return emit(Elementwise{{{op, operands}}}, inputs);
  }
  TensorId reduce(ReduceKind kind, const std::vector<int64_t>& axes, TensorId x) {
    return emit(Reduce{kind, axes, /*keepdims=*/true}, {x});
  }
  template <class T>
  TensorId constant(DType dtype, const Shape& shape, const std::vector<T>& values) {
    return builder_.add_value(builder_.unique_tensor_name(request_.name), ops::raw_value(dtype, shape, values));
  }
  TensorId number(double value) { return constant(DType::f64, {}, std::vector<double>{value}); }

  Builder& builder_;
  const Builder::Request& request_;
};

}  // namespace

std::optional<TensorId> lower_f64(Builder& builder, const Builder::Request& request) {
  Lowering lowering(builder, request);
  if (const auto* op = std::get_if<Softmax>(&request.attrs)) return lowering.run(*op);
  if (const auto* op = std::get_if<Normalize>(&request.attrs)) return lowering.run(*op);
  if (const auto* op = std::get_if<BatchNorm>(&request.attrs)) return lowering.run(*op);
  if (const auto* op = std::get_if<Lrn>(&request.attrs)) return lowering.run(*op);
  if (const auto* op = std::get_if<Pool>(&request.attrs)) return lowering.run(*op);
  return std::nullopt;
}

}  // namespace tamp::frontend
