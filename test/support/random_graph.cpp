#include "test/support/random_graph.h"

#include <algorithm>
#include <random>

#include "compiler/ops/ops.h"
#include "test/support/of_result.h"

namespace tamp::test {
namespace {

class RandomGraph {
 public:
  explicit RandomGraph(unsigned seed) : random_(seed) {}

  Graph make(int rops) {
    for (int i = 0; i < 2; ++i) {
      Tensor input;
      input.name = "x" + std::to_string(i);
      input.shape = {pick(1, 2), pick(1, 4), pick(1, 5), pick(1, 5)};
      input.role = Role::input;
      graph_.inputs.push_back(add_tensor(graph_, std::move(input)));
      live_.push_back(graph_.inputs.back());
    }
    while (static_cast<int>(graph_.rops.size()) < rops) add_some();
    for (int i = 0; i < 3; ++i) graph_.outputs.push_back(any());
    graph_.outputs.push_back(live_.back());
    return remove_dead(std::move(graph_));
  }

 private:
  int64_t pick(int64_t low, int64_t high) { return std::uniform_int_distribution<int64_t>(low, high)(random_); }
  // Recent tensors more often, so that chains form.
  TensorId any() {
    return live_[static_cast<size_t>(
        pick(pick(0, 2) > 0 ? std::max<int64_t>(0, static_cast<int64_t>(live_.size()) - 4) : 0, static_cast<int64_t>(live_.size()) - 1))];
  }
  const Shape& shape(TensorId id) const { return graph_.tensor(id).shape; }

  TensorId constant(const Shape& of, bool positive = false) {
    std::uniform_real_distribution<float> uniform(positive ? 0.5F : -0.7F, positive ? 1.5F : 0.7F);
    std::vector<float> values;
    for (int64_t i = 0; i < element_count(of); ++i) values.push_back(uniform(random_));
    return add_f32_constant(graph_, "k" + std::to_string(graph_.tensors.size()), of, values);
  }

  TensorId add(OpAttrs attrs, std::vector<TensorId> inputs, Shape out) {
    Tensor tensor;
    tensor.name = "t" + std::to_string(graph_.tensors.size());
    tensor.shape = std::move(out);
    ROperator rop;
    rop.name = tensor.name;
    rop.attrs = of_result(std::move(attrs), tensor.shape);
    rop.inputs = std::move(inputs);
    rop.outputs = {add_tensor(graph_, std::move(tensor))};
    rop.origin = {rop.name};
    graph_.rops.push_back(std::move(rop));
    live_.push_back(graph_.rops.back().outputs[0]);
    return live_.back();
  }
  TensorId add_step(ElementwiseOp op, std::vector<TensorId> inputs, float a = 0, float b = 0) {
    ElementwiseStep step{op, {}, a, b};
    for (size_t i = 0; i < inputs.size(); ++i) step.operands.push_back(static_cast<int32_t>(i));
    const Shape out = inputs.size() == 2 ? ops::broadcast(shape(inputs[0]), shape(inputs[1])) : shape(inputs[0]);
    return add(Elementwise{{step}}, std::move(inputs), out);
  }

  void add_some() {
    const TensorId x = any();
    switch (pick(0, 15)) {
      case 0:
      case 1:
      case 2: return add_conv(x);
      case 3: return add_batch_norm(x);
      case 4: return void(add_step(ElementwiseOp::relu, {x}));
      case 5: return void(add_step(ElementwiseOp::mul, {x, add_step(ElementwiseOp::sigmoid, {x})}));
      case 6: return void(add_step(ElementwiseOp::clip, {x}, -0.5F, 0.5F));
      case 7: return add_sum(x);
      case 8: return add_sum(x);
      case 9: return add_concat(x);
      case 10: return add_concat(x);
      case 11: return add_transpose(x);
      case 12: return add_slice(x);
      case 13: return add_reshape(x);
      case 14: return add_matmul(x);
      case 15: return live_.push_back(constant(shape(x)));
    }
  }

  void add_conv(TensorId x) {
    const Shape s = shape(x);
    if (s.size() != 3 && s.size() != 4) return;
    const size_t spatial = s.size() - 2;
    Conv conv;
    conv.kernel.assign(spatial, pick(0, 1) == 0 ? 1 : 3);
    conv.strides.assign(spatial, pick(1, 2));
    conv.dilations.assign(spatial, 1);
    conv.pads_begin.assign(spatial, conv.kernel[0] / 2);
    conv.pads_end = conv.pads_begin;
    Shape out{s[0], pick(1, 4)}, weight{out[1], s[1]};
    for (size_t d = 0; d < spatial; ++d) {
      out.push_back((s[d + 2] - 1) / conv.strides[d] + 1);
      weight.push_back(conv.kernel[d]);
    }
    std::vector<TensorId> inputs = {x, constant(weight)};
    if (pick(0, 1) == 0) inputs.push_back(constant({out[1]}));
    add(conv, inputs, out);
  }

  void add_batch_norm(TensorId x) {
    if (shape(x).size() < 2) return;
    const Shape channels{shape(x)[1]};
    add(BatchNorm{}, {x, constant(channels), constant(channels), constant(channels), constant(channels, /*positive=*/true)}, shape(x));
  }

  // A tensor of the same shape if there is one, else a constant that broadcasts.
  void add_sum(TensorId x) {
    const TensorId other = same_shape(x);
    const bool swap = pick(0, 1) == 0;
    TensorId addend = other;
    if (other == x || pick(0, 3) == 0) {
      Shape s = shape(x);
      for (size_t d = 0; d < s.size(); ++d) {
        if (d != 1 && pick(0, 2) > 0) s[d] = 1;
      }
      addend = constant(s);
    }
    add_step(pick(0, 3) == 0 ? ElementwiseOp::sub : ElementwiseOp::add, swap ? std::vector{addend, x} : std::vector{x, addend});
  }
  TensorId same_shape(TensorId x) {
    std::vector<TensorId> found;
    for (const TensorId id : live_) {
      if (shape(id) == shape(x)) found.push_back(id);
    }
    return found[static_cast<size_t>(pick(0, static_cast<int64_t>(found.size()) - 1))];
  }

  void add_concat(TensorId x) {
    if (shape(x).empty()) return;
    const auto axis = static_cast<size_t>(pick(0, static_cast<int64_t>(shape(x).size()) - 1));
    std::vector<TensorId> parts = {x};
    Shape out = shape(x);
    for (const TensorId id : live_) {
      Shape s = shape(id);
      if (s.size() != out.size() || parts.size() == 3 || pick(0, 1) == 0) continue;
      s[axis] = out[axis];
      if (s != out) continue;
      parts.push_back(id);
      out[axis] += shape(id)[axis];
    }
    if (element_count(out) < 400) add(Concat{static_cast<int64_t>(axis)}, parts, out);
  }

  void add_transpose(TensorId x) {
    Transpose transpose;
    for (size_t d = 0; d < shape(x).size(); ++d) transpose.perm.push_back(static_cast<int64_t>(d));
    std::shuffle(transpose.perm.begin(), transpose.perm.end(), random_);
    Shape out;
    for (const int64_t d : transpose.perm) out.push_back(shape(x)[static_cast<size_t>(d)]);
    add(transpose, {x}, out);
  }

  void add_slice(TensorId x) {
    Slice slice;
    Shape out;
    for (const int64_t extent : shape(x)) {
      const int64_t step = pick(1, 2) * (pick(0, 3) == 0 ? -1 : 1);
      const int64_t start = step > 0 ? pick(0, (extent - 1) / 2) : pick(extent / 2, extent - 1);
      const int64_t room = step > 0 ? (extent - 1 - start) / step : start / -step;
      slice.starts.push_back(start);
      slice.steps.push_back(step);
      out.push_back(pick(room / 2, room) + 1);
    }
    add(slice, {x}, out);
  }

  void add_reshape(TensorId x) {
    int64_t left = element_count(shape(x));
    Shape out;
    for (int64_t rank = pick(1, 4); rank > 1; --rank) {
      const int64_t factor = pick(1, 4);
      out.push_back(left % factor == 0 ? factor : 1);
      left /= out.back();
    }
    out.push_back(left);
    std::shuffle(out.begin(), out.end(), random_);
    add(Reshape{}, {x}, out);
  }

  void add_matmul(TensorId x) {
    if (shape(x).size() < 2) return;
    const bool trans = pick(0, 1) == 0;
    const int64_t depth = shape(x).back(), columns = pick(1, 5);
    Shape out = shape(x);
    out.back() = columns;
    MatMul matmul;
    matmul.trans_b = trans;
    std::vector<TensorId> inputs = {x, constant(trans ? Shape{columns, depth} : Shape{depth, columns})};
    if (pick(0, 1) == 0) {
      matmul.beta = 0.5F;
      inputs.push_back(pick(0, 1) == 0 ? constant({columns}) : constant(pick(0, 1) == 0 ? out : Shape{1}));
    }
    add(matmul, inputs, out);
  }

  std::mt19937 random_;
  Graph graph_;
  std::vector<TensorId> live_;
};

}  // namespace

Graph random_graph(unsigned seed, int rops) { return RandomGraph(seed).make(rops); }

}  // namespace tamp::test
