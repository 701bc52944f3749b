#include "compiler/passes/tidy/canonicalise.h"

#include <map>

#include "compiler/passes/rewrite.h"

namespace tamp::passes {
namespace {

constexpr int64_t kRepeatedBytes = int64_t{64} << 20;  // a constant operand C is repeated to the output's shape up to here

class Canonicaliser {
 public:
  explicit Canonicaliser(Graph graph) : graph_(std::move(graph)) {}

  Graph run() {
    std::vector<ROperator> old = std::move(graph_.rops);
    graph_.rops.clear();
    for (ROperator& rop : old) {
      read_as_it_lies(rop);
      read_once(rop);
      const bool third = rop.inputs.size() == 3 && graph_.tensor(rop.outputs[0]).dtype == DType::f32;
      if (third && std::holds_alternative<Conv>(rop.attrs))
        add_conv(std::move(rop));
      else if (third && std::holds_alternative<MatMul>(rop.attrs))
        add_matmul(std::move(rop));
      else
        graph_.rops.push_back(std::move(rop));
    }
    return remove_dead(std::move(graph_));
  }

 private:
  // fold_constants leaves a large constant's Transpose, e.g. of an embedding that scores words, too. A product reads the constant itself.
  void read_as_it_lies(ROperator& rop) {
    const auto* const transpose = std::get_if<Transpose>(&rop.attrs);
    if (transpose && transpose->perm == std::vector<int64_t>{1, 0} && is_constant(graph_, rop.inputs[0]))
      turned_.emplace(rop.outputs[0], rop.inputs[0]);
    auto* const matmul = std::get_if<MatMul>(&rop.attrs);
    const auto found = matmul ? turned_.find(rop.inputs[1]) : turned_.end();
    if (found == turned_.end()) return;
    matmul->trans_b = !matmul->trans_b;
    rop.inputs[1] = found->second;
  }

  // Indices of a Scatter that were repeated for every element of a row are read once for the row.
  void read_once(ROperator& rop) {
    const ElementwiseStep* const step = single_step(rop);
    if (step && step->op == ElementwiseOp::identity && rop.inputs.size() == 1) repeated_.emplace(rop.outputs[0], rop.inputs[0]);
    const auto* const scatter = std::get_if<Scatter>(&rop.attrs);
    const auto found = scatter ? repeated_.find(rop.inputs[1]) : repeated_.end();
    if (found == repeated_.end() || graph_.tensor(found->second).dtype != graph_.tensor(rop.inputs[1]).dtype) return;
    const Shape &one = graph_.tensor(found->second).shape, &all = graph_.tensor(rop.inputs[1]).shape;
    const auto axis = static_cast<size_t>(scatter->axis);
    if (one.size() == all.size() && one[axis] == all[axis]) rop.inputs[1] = found->second;
  }

  static TensorId take_third(ROperator& rop) {
    const TensorId third = rop.inputs[2];
    rop.inputs.resize(2);
    return third;
  }

  void add_conv(ROperator conv) {
    const TensorId bias = take_third(conv);
    if (bias.valid() && is_constant(graph_, bias)) conv.epilogue.bias = bias;
    if (!bias.valid() || is_constant(graph_, bias)) return graph_.rops.push_back(std::move(conv));

    const Shape& out = graph_.tensor(conv.outputs[0]).shape;
    Shape column(out.size() - 1, 1);
    column[0] = out[1];
    const TensorId shaped = append_view(graph_, graph_.rops, conv.name + ".bias", Reshape{column}, bias, column, conv.origin);
    add_sum(std::move(conv), shaped, 1);
  }

  void add_matmul(ROperator rop) {
    auto& matmul = std::get<MatMul>(rop.attrs);
    const float beta = matmul.beta;
    matmul.beta = 1;
    const TensorId c = take_third(rop);
    if (c.valid() && beta != 0 && !into_epilogue(rop, c, beta)) return add_sum(std::move(rop), c, beta);
    graph_.rops.push_back(std::move(rop));
  }

  bool into_epilogue(ROperator& rop, TensorId c, float beta) {
    const Shape out = graph_.tensor(rop.outputs[0]).shape;
    if (is_constant(graph_, c)) {
      if (const auto columns = values_along(graph_.tensor(c), out, out.size() - 1)) {
        rop.epilogue.bias = scaled(rop.name + ".bias", {out.back()}, *columns, beta);
        return true;
      }
      if (element_count(out) * bytes_of(DType::f32) <= kRepeatedBytes && (graph_.tensor(c).shape != out || beta != 1)) {
        rop.epilogue.residual = scaled(rop.name + ".addend", out, broadcast_values(graph_.tensor(c), out), beta);
        return true;
      }
    }
    if (graph_.tensor(c).shape != out || beta != 1) return false;
    rop.epilogue.residual = c;
    return true;
  }

  TensorId scaled(std::string name, Shape shape, std::vector<float> values, float factor) {
    for (float& value : values) value *= factor;
    return add_f32_constant(graph_, std::move(name), std::move(shape), values);
  }

  // Emits `rop` and behind it an Elementwise that adds beta * addend.
  void add_sum(ROperator rop, TensorId addend, float beta) {
    const TensorId out = rop.outputs[0];
    rop.outputs = {add_like(graph_, out, rop.name + ".product", graph_.tensor(out).shape)};
    std::vector<ElementwiseStep> steps = {{ElementwiseOp::add, {0, 1}}};
    std::vector<TensorId> inputs = {rop.outputs[0], addend};
    if (beta != 1) {
      inputs.push_back(add_f32_constant(graph_, rop.name + ".beta", {}, {beta}));
      steps = {{ElementwiseOp::mul, {1, 2}}, {ElementwiseOp::add, {0, -1}}};
    }
    ROperator sum = make_elementwise(rop.name + ".sum", std::move(steps), std::move(inputs), out);
    sum.origin = rop.origin;
    graph_.rops.push_back(std::move(rop));
    graph_.rops.push_back(std::move(sum));
  }

  Graph graph_;
  std::map<TensorId, TensorId> turned_;    // transposed constant matrices
  std::map<TensorId, TensorId> repeated_;  // what was repeated to a larger shape
};

}  // namespace

Graph canonicalise(Graph graph) { return Canonicaliser(std::move(graph)).run(); }

}  // namespace tamp::passes
