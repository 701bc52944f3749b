// Unrolled recurrent networks, built step by step in the spellings of exporters: what the tests of lift_recurrences lift.
#pragma once

#include <algorithm>
#include <functional>
#include <random>

#include "compiler/passes/passes.h"
#include "compiler/passes/recognise/recurrences/lift_recurrences.h"
#include "compiler/passes/tidy/fold_constants.h"
#include "test/support/check_pass.h"
#include "test/support/of_result.h"

namespace tamp::test::unrolled_networks {
// A graph under construction: every function adds one rOperator and returns its result.
class Net {
 public:
  TensorId input(const std::string& name, const Shape& shape) {
    const TensorId id = tensor(name, shape);
    graph.tensor(id).role = Role::input;
    graph.inputs.push_back(id);
    return id;
  }
  // Values that differ from constant to constant and are the same in every run.
  TensorId constant(const Shape& shape, float scale = 0.5F) {
    std::vector<float> values;
    for (int64_t i = 0; i < element_count(shape); ++i) {
      state_ = state_ * 1664525U + 1013904223U;
      values.push_back(scale * (static_cast<float>(state_ >> 8) / static_cast<float>(1 << 23) - 1));
    }
    return filled(shape, values);
  }
  TensorId constant(const Shape& shape, std::nullptr_t, float value) {
    return filled(shape, std::vector<float>(static_cast<size_t>(element_count(shape)), value));
  }
  TensorId again(TensorId id) {  // another constant of the same bytes
    const Tensor& old = graph.tensor(id);
    const float* values = f32_data(old);
    return filled(Shape(old.shape), std::vector<float>(values, values + element_count(old.shape)));
  }
  TensorId filled(const Shape& shape, const std::vector<float>& values) { return add_f32_constant(graph, next("k"), shape, values); }

  TensorId unary(ElementwiseOp op, TensorId a, float alpha = 0, float beta = 0) {
    return add(Elementwise{{{op, {0}, alpha, beta}}}, {a}, shape(a));
  }
  TensorId binary(ElementwiseOp op, TensorId a, TensorId b) {
    return add(Elementwise{{{op, {0, 1}}}}, {a, b}, ops::broadcast(shape(a), shape(b)));
  }
  TensorId sum(TensorId a, TensorId b) { return binary(ElementwiseOp::add, a, b); }
  TensorId product(TensorId a, TensorId b) { return binary(ElementwiseOp::mul, a, b); }
  TensorId sigmoid(TensorId a) { return unary(ElementwiseOp::sigmoid, a); }
  TensorId tanh(TensorId a) { return unary(ElementwiseOp::tanh, a); }
  TensorId matmul(TensorId a, TensorId b, TensorId c = {}, bool trans_b = false) {
    Shape to = shape(a);
    to.back() = shape(b)[trans_b ? 0 : 1];
    MatMul op;
    op.trans_b = trans_b;
    return add(op, {a, b, c}, to);
  }
  TensorId slice(TensorId a, size_t axis, int64_t start, int64_t extent) {
    Slice op = whole_slice(shape(a));
    op.starts[axis] = start;
    Shape to = shape(a);
    to[axis] = extent;
    return add(op, {a}, to);
  }
  TensorId reshape(TensorId a, const Shape& to) { return add(Reshape{}, {a}, to); }
  TensorId concat(const std::vector<TensorId>& parts, size_t axis) {
    Shape to = shape(parts[0]);
    to[axis] = 0;
    for (const TensorId id : parts) to[axis] += shape(id)[axis];
    return add(Concat{static_cast<int64_t>(axis)}, parts, to);
  }
  // x[:, t] or x[t], without the dimension.
  TensorId pick(TensorId a, size_t axis, int64_t t) {
    Shape to = shape(a);
    to.erase(to.begin() + static_cast<std::ptrdiff_t>(axis));
    return reshape(slice(a, axis, t, 1), to);
  }
  TensorId stack(const std::vector<TensorId>& parts, size_t axis) {
    std::vector<TensorId> apart;
    Shape to = shape(parts[0]);
    to.insert(to.begin() + static_cast<std::ptrdiff_t>(axis), 1);
    for (const TensorId id : parts) apart.push_back(reshape(id, to));
    return concat(apart, axis);
  }
  void output(TensorId id) { graph.outputs.push_back(id); }
  const Shape& shape(TensorId id) const { return graph.tensor(id).shape; }

  Graph graph;

 private:
  std::string next(const std::string& prefix) { return prefix + std::to_string(graph.tensors.size()); }
  TensorId tensor(const std::string& name, const Shape& shape) {
    Tensor made;
    made.name = name;
    made.shape = shape;
    return add_tensor(graph, std::move(made));
  }
  TensorId add(OpAttrs attrs, std::vector<TensorId> inputs, const Shape& to) {
    ROperator rop;
    rop.name = next("op");
    rop.attrs = of_result(std::move(attrs), to);
    while (!inputs.empty() && !inputs.back().valid()) inputs.pop_back();
    rop.inputs = std::move(inputs);
    rop.outputs = {tensor(next("t"), to)};
    graph.rops.push_back(rop);
    return rop.outputs[0];
  }

  uint32_t state_ = 1;
};

struct State {
  TensorId h, c;
};
// One step of a layer: from x and the state before to the state behind.
using Step = std::function<State(Net&, TensorId x, State before)>;

inline Graph lifted(const Graph& source) {
  const Graph folded = passes::fold_constants(source);
  Graph graph = passes::lift_recurrences(folded);
  CAPTURE(print(folded));
  CAPTURE(print(graph));
  check_pass(source, graph);
  return graph;
}

inline std::vector<RecurrentCell> cells_of(const Graph& graph) {
  std::vector<RecurrentCell> cells;
  for (const ROperator& rop : graph.rops) {
    const auto* recurrent = std::get_if<Recurrent>(&rop.attrs);
    if (recurrent) cells.insert(cells.end(), recurrent->cells.begin(), recurrent->cells.end());
  }
  return cells;
}

// rOperators that are no views.
int64_t work_of(const Graph& graph) {
  return std::count_if(graph.rops.begin(), graph.rops.end(), [](const ROperator& rop) {
    const std::string op = name_of(rop.attrs);
    return op != "Reshape" && op != "Slice" && op != "Transpose";
  });
}

// The ways to write a LSTM cell down.
struct LstmStyle {
  enum class Form { joint, joint_linear, separate, concat } form = Form::joint;
  std::array<size_t, 4> order = {0, 1, 2, 3};  // where i, o, f, g lie in the joint matrix
  int biases = 1;
  bool forget_bias = false;
  bool swapped = false;  // operands of sums and products the other way round
  bool copies = false;   // own weights of equal bytes in every step
};

inline Step lstm(Net& net, const LstmStyle& style, int64_t inputs, int64_t hidden) {
  using Form = LstmStyle::Form;
  const bool trans = style.form == Form::joint_linear;
  const auto matrix = [&](int64_t rows, int64_t cols) { return net.constant(trans ? Shape{cols, rows} : Shape{rows, cols}); };
  const bool apart = style.form == Form::separate;
  std::vector<TensorId> w, u, b, b2;
  for (int g = 0; g < (apart ? 4 : 1); ++g) {
    const int64_t cols = apart ? hidden : 4 * hidden;
    w.push_back(matrix(style.form == Form::concat ? inputs + hidden : inputs, cols));
    u.push_back(matrix(hidden, cols));
    b.push_back(net.constant({cols}));
    b2.push_back(net.constant({1, cols}));
  }
  const TensorId one = net.constant({}, nullptr, 1);
  return [=](Net& n, TensorId x, State before) {
    const auto own = [&](TensorId id) { return style.copies ? n.again(id) : id; };
    const auto sum = [&](TensorId p, TensorId q) { return style.swapped ? n.sum(q, p) : n.sum(p, q); };
    const auto product = [&](TensorId p, TensorId q) { return style.swapped ? n.product(q, p) : n.product(p, q); };
    const auto affine = [&](size_t g) {
      if (style.form == Form::joint_linear) {
        return sum(n.matmul(x, w[g], style.biases > 0 ? b[g] : TensorId(), true),
                   n.matmul(before.h, own(u[g]), style.biases > 1 ? b2[g] : TensorId(), true));
      }
      TensorId all = style.form == Form::concat ? n.matmul(n.concat({x, before.h}, 1), own(w[g]))
                                                : sum(n.matmul(x, own(w[g])), n.matmul(before.h, own(u[g])));
      if (style.biases > 0) all = sum(all, own(b[g]));
      return style.biases > 1 ? sum(b2[g], all) : all;
    };
    std::vector<TensorId> gates;
    const TensorId joint = apart ? TensorId() : affine(0);
    for (size_t g = 0; g < 4; ++g) {
      gates.push_back(apart ? affine(g) : n.slice(joint, 1, static_cast<int64_t>(style.order[g]) * hidden, hidden));
    }
    if (style.forget_bias) gates[2] = sum(gates[2], one);
    const TensorId c = sum(product(n.sigmoid(gates[2]), before.c), product(n.sigmoid(gates[0]), n.tanh(gates[3])));
    return State{product(n.sigmoid(gates[1]), n.tanh(c)), c};
  };
}

enum class GruForm { joint, separate, paper, paper_concat };
enum class BlendForm { products, difference, minus, swapped_gate };

inline TensorId blended(Net& n, BlendForm form, TensorId z, TensorId candidate, TensorId h) {
  const TensorId one = n.constant({}, nullptr, 1);
  const auto minus = [&](TensorId a, TensorId b) { return n.binary(ElementwiseOp::sub, a, b); };
  switch (form) {
    case BlendForm::products: return n.sum(n.product(minus(one, z), candidate), n.product(z, h));
    case BlendForm::difference: return n.sum(candidate, n.product(z, minus(h, candidate)));
    case BlendForm::minus: return minus(candidate, n.product(minus(candidate, h), z));
    case BlendForm::swapped_gate: return n.sum(n.product(h, minus(one, z)), n.product(candidate, z));
  }
  return TensorId();
}

inline Step gru(Net& net, GruForm form, BlendForm blend, int64_t inputs, int64_t hidden) {
  const bool concat = form == GruForm::paper_concat;
  const TensorId w = net.constant({concat ? inputs + hidden : inputs, 3 * hidden}), u = net.constant({hidden, 3 * hidden});
  const TensorId b = net.constant({3 * hidden}), b2 = net.constant({3 * hidden});
  const TensorId wc = net.constant({concat ? inputs + hidden : inputs, hidden}), uc = net.constant({hidden, hidden}),
                 bc = net.constant({hidden});
  return [=](Net& n, TensorId x, State before) {
    const TensorId h = before.h;
    const auto part = [&](TensorId joint, int64_t g) { return n.slice(joint, 1, g * hidden, hidden); };
    TensorId z, candidate;
    if (form == GruForm::joint || form == GruForm::separate) {
      const TensorId from_x = n.sum(n.matmul(x, w), b), from_h = n.sum(n.matmul(h, u), b2);
      const TensorId r = n.sigmoid(n.sum(part(from_x, 0), part(from_h, 0)));
      z = n.sigmoid(n.sum(part(from_h, 1), part(from_x, 1)));
      candidate = n.tanh(n.sum(part(from_x, 2), n.product(r, part(from_h, 2))));
    } else {
      const TensorId joint = concat ? n.matmul(n.concat({x, h}, 1), w) : n.sum(n.matmul(x, w), n.matmul(h, u));
      const TensorId gates = n.sigmoid(n.sum(joint, b));  // both at once, and one too many
      const TensorId reset = n.product(part(gates, 0), h);
      z = part(gates, 1);
      const TensorId inner = concat ? n.matmul(n.concat({x, reset}, 1), wc) : n.sum(n.matmul(x, wc), n.matmul(reset, uc));
      candidate = n.tanh(n.sum(inner, bc));
    }
    return State{blended(n, blend, z, candidate, h), TensorId()};
  };
}

inline Step plain(Net& net, ElementwiseOp function, int64_t inputs, int64_t hidden) {
  const TensorId w = net.constant({inputs, hidden}), u = net.constant({hidden, hidden}), b = net.constant({hidden});
  return [=](Net& n, TensorId x, State before) {
    return State{n.unary(function, n.sum(n.sum(n.matmul(x, w), n.matmul(before.h, u)), b)), TensorId()};
  };
}

inline State zeros(Net& net, int64_t batch, int64_t hidden) {
  return {net.constant({batch, hidden}, nullptr, 0), net.constant({batch, hidden}, nullptr, 0)};
}

// The layer over all of `xs`; the states of every step.
inline std::vector<State> unrolled(Net& net, const Step& step, const std::vector<TensorId>& xs, State state) {
  std::vector<State> states;
  for (const TensorId x : xs) states.push_back(state = step(net, x, state));
  return states;
}

inline std::vector<TensorId> hidden_of(const std::vector<State>& states) {
  std::vector<TensorId> list;
  for (const State& state : states) list.push_back(state.h);
  return list;
}

inline std::vector<TensorId> steps_of(Net& net, TensorId x, size_t axis) {
  std::vector<TensorId> list;
  for (int64_t t = 0; t < net.shape(x)[axis]; ++t) list.push_back(net.pick(x, axis, t));
  return list;
}

}  // namespace tamp::test::unrolled_networks
