// What lift_recurrences promises: the same answers, one rOperator a layer for every way in which exporters write cells out, and
// nothing else touched. Networks are built step by step as a loop in a user's program would.
#include "compiler/passes/lift_recurrences.h"

#include <algorithm>
#include <functional>
#include <random>

#include "compiler/passes/fold_constants.h"
#include "compiler/passes/passes.h"
#include "test/support/check_pass.h"

using namespace tamp;
using namespace tamp::test;

namespace {

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
    Slice op{std::vector<int64_t>(shape(a).size(), 0), std::vector<int64_t>(shape(a).size(), 1)};
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
    rop.attrs = std::move(attrs);
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

Graph lifted(const Graph& source) {
  const Graph folded = passes::fold_constants(source);
  Graph graph = passes::lift_recurrences(folded);
  CAPTURE(print(folded));
  CAPTURE(print(graph));
  check_pass(source, graph);
  return graph;
}

std::vector<RecurrentCell> cells_of(const Graph& graph) {
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

Step lstm(Net& net, const LstmStyle& style, int64_t inputs, int64_t hidden) {
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

TensorId blended(Net& n, BlendForm form, TensorId z, TensorId candidate, TensorId h) {
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

Step gru(Net& net, GruForm form, BlendForm blend, int64_t inputs, int64_t hidden) {
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

Step plain(Net& net, ElementwiseOp function, int64_t inputs, int64_t hidden) {
  const TensorId w = net.constant({inputs, hidden}), u = net.constant({hidden, hidden}), b = net.constant({hidden});
  return [=](Net& n, TensorId x, State before) {
    return State{n.unary(function, n.sum(n.sum(n.matmul(x, w), n.matmul(before.h, u)), b)), TensorId()};
  };
}

State zeros(Net& net, int64_t batch, int64_t hidden) {
  return {net.constant({batch, hidden}, nullptr, 0), net.constant({batch, hidden}, nullptr, 0)};
}

// The layer over all of `xs`; the states of every step.
std::vector<State> unrolled(Net& net, const Step& step, const std::vector<TensorId>& xs, State state) {
  std::vector<State> states;
  for (const TensorId x : xs) states.push_back(state = step(net, x, state));
  return states;
}

std::vector<TensorId> hidden_of(const std::vector<State>& states) {
  std::vector<TensorId> list;
  for (const State& state : states) list.push_back(state.h);
  return list;
}

std::vector<TensorId> steps_of(Net& net, TensorId x, size_t axis) {
  std::vector<TensorId> list;
  for (int64_t t = 0; t < net.shape(x)[axis]; ++t) list.push_back(net.pick(x, axis, t));
  return list;
}

}  // namespace

TEST_CASE("a LSTM layer becomes one rOperator however its cell is written") {
  using Form = LstmStyle::Form;
  const LstmStyle rows[] = {
      {Form::joint, {0, 2, 1, 3}, 1, false, false, false},
      {Form::joint, {1, 3, 0, 2}, 2, false, true, false},
      {Form::joint, {0, 1, 2, 3}, 0, false, false, true},
      {Form::joint_linear, {0, 3, 1, 2}, 2, false, false, false},
      {Form::joint_linear, {0, 3, 1, 2}, 1, false, true, true},
      {Form::joint_linear, {3, 2, 1, 0}, 0, true, false, false},
      {Form::separate, {}, 1, true, false, false},
      {Form::separate, {}, 0, false, true, false},
      {Form::separate, {}, 2, true, true, true},
      {Form::concat, {0, 3, 2, 1}, 1, true, false, false},
      {Form::concat, {0, 3, 2, 1}, 0, false, true, true},
  };
  for (const LstmStyle& style : rows) {
    for (const int64_t steps : {2, 3, 7}) {
      for (const int64_t batch : {1, 3}) {
        Net net;
        const Step step = lstm(net, style, 5, 4);
        const TensorId x = net.input("x", {steps, batch, 5});
        const std::vector<State> states = unrolled(net, step, steps_of(net, x, 0), zeros(net, batch, 4));
        net.output(states.back().h);
        const Graph graph = lifted(net.graph);
        REQUIRE(graph.rops.size() == 1);
        const RecurrentCell cell = cells_of(graph).at(0);
        CHECK(cell.kind == CellKind::lstm);
        CHECK(cell.steps == steps);
        CHECK(cell.h0 == -1);
        CHECK(cell.c0 == -1);
        CHECK(cell.y == -1);
        CHECK((cell.bias >= 0) == (style.biases > 0 || style.forget_bias));
      }
    }
  }
}

TEST_CASE("a GRU layer becomes one rOperator however its cell is written") {
  for (const GruForm form : {GruForm::joint, GruForm::separate, GruForm::paper, GruForm::paper_concat}) {
    for (const BlendForm blend : {BlendForm::products, BlendForm::difference, BlendForm::minus, BlendForm::swapped_gate}) {
      for (const bool is_zero : {false, true}) {
        CAPTURE(static_cast<int>(form), static_cast<int>(blend), is_zero);
        Net net;
        const Step step = gru(net, form, blend, 3, 4);
        const TensorId x = net.input("x", {5, 2, 3}), h0 = net.input("h0", {2, 4});
        const std::vector<State> states = unrolled(net, step, steps_of(net, x, 0), is_zero ? zeros(net, 2, 4) : State{h0, TensorId()});
        net.output(net.stack(hidden_of(states), 0));
        const Graph graph = lifted(net.graph);
        CHECK(work_of(graph) == 1);
        const std::vector<RecurrentCell> cells = cells_of(graph);
        REQUIRE(cells.size() == 1);
        CHECK(cells[0].kind == CellKind::gru);
        CHECK(cells[0].linear_before_reset == (form == GruForm::joint || form == GruForm::separate));
        CHECK((cells[0].h0 == -1) == is_zero);
      }
    }
  }
}

TEST_CASE("a plain cell keeps its function") {
  const std::pair<ElementwiseOp, CellFunctionKind> rows[] = {{ElementwiseOp::tanh, CellFunctionKind::tanh},
                                                             {ElementwiseOp::relu, CellFunctionKind::relu},
                                                             {ElementwiseOp::softplus, CellFunctionKind::softplus}};
  for (const auto& [op, kind] : rows) {
    for (const bool is_zero : {false, true}) {
      Net net;
      const Step step = plain(net, op, 3, 4);
      const TensorId x = net.input("x", {4, 2, 3}), h0 = net.input("h0", {2, 4});
      const std::vector<State> states = unrolled(net, step, steps_of(net, x, 0), is_zero ? zeros(net, 2, 4) : State{h0, TensorId()});
      net.output(states.back().h);
      const Graph graph = lifted(net.graph);
      REQUIRE(graph.rops.size() == 1);
      CHECK(cells_of(graph).at(0).functions[0].kind == kind);
    }
  }
}

TEST_CASE("layers read each other's whole sequence") {
  for (const bool stacked : {false, true}) {
    for (const bool steps_first : {false, true}) {
      Net net;
      const int64_t T = 5, B = 2, H = 4;
      const Step first = lstm(net, {}, 3, H), second = gru(net, GruForm::joint, BlendForm::products, H, H),
                 third = plain(net, ElementwiseOp::tanh, H, H);
      std::vector<TensorId> xs = steps_of(net, net.input("x", {B, T, 3}), 1);
      State a = zeros(net, B, H), b = a, c = a;
      std::vector<TensorId> hidden;
      if (steps_first) {  // all layers of a step, then the next step
        for (const TensorId x : xs) {
          a = first(net, x, a);
          b = second(net, a.h, b);
          c = third(net, b.h, c);
          hidden.push_back(c.h);
        }
      } else {
        for (const Step* step : {&first, &second, &third}) {
          hidden = hidden_of(unrolled(net, *step, xs, zeros(net, B, H)));
          xs = stacked ? steps_of(net, net.stack(hidden, 1), 1) : hidden;
        }
      }
      net.output(net.stack(hidden, 0));
      const Graph graph = lifted(net.graph);
      CHECK(count_rops(graph, "Recurrent") == 3);
      CHECK(graph.rops.size() == 5);  // a Transpose before, and a Reshape that keeps the output's name
      const std::vector<RecurrentCell> cells = cells_of(graph);
      CHECK((cells[0].kind == CellKind::lstm && cells[1].kind == CellKind::gru && cells[2].kind == CellKind::rnn));
    }
  }
}

TEST_CASE("outputs are the sequence in any shape") {
  const int64_t T = 4, B = 2, H = 3;
  struct Row {
    const char* why;
    std::function<TensorId(Net&, const std::vector<TensorId>&)> join;
    size_t rops;
  };
  const Row rows[] = {
      {"steps first", [](Net& net, const auto& hs) { return net.stack(hs, 0); }, 2},
      {"batch first", [](Net& net, const auto& hs) { return net.stack(hs, 1); }, 2},
      {"side by side", [](Net& net, const auto& hs) { return net.concat(hs, 1); }, 3},
      {"below each other", [](Net& net, const auto& hs) { return net.concat(hs, 0); }, 2},
      {"backwards",
       [](Net& net, std::vector<TensorId> hs) {
         std::reverse(hs.begin(), hs.end());
         return net.stack(hs, 0);
       },
       2},
      {"some of them",
       [](Net& net, const auto& hs) {
         return net.stack({hs[1], hs[2]}, 0);
       },
       4},
      {"a part of them and something else",
       [](Net& net, const auto& hs) {
         return net.concat({hs[1], hs[2], net.constant({1, 3}), hs[0]}, 0);
       },
       7},
      {"every second",
       [](Net& net, const auto& hs) {
         return net.stack({hs[0], hs[2]}, 0);
       },
       7},
  };
  for (const Row& row : rows) {
    CAPTURE(row.why);
    Net net;
    const Step step = lstm(net, {}, 3, H);
    net.output(row.join(net, hidden_of(unrolled(net, step, steps_of(net, net.input("x", {T, B, 3}), 0), zeros(net, B, H)))));
    const Graph graph = lifted(net.graph);
    CHECK(count_rops(graph, "Recurrent") == 1);
    CHECK(graph.rops.size() <= row.rops);
    CHECK(work_of(graph) == 1 + count_rops(graph, "Concat"));
  }
}

TEST_CASE("every hidden state and the last cell state can be outputs") {
  Net net;
  const Step step = lstm(net, {}, 3, 4);
  const std::vector<State> states = unrolled(net, step, steps_of(net, net.input("x", {4, 2, 3}), 0), zeros(net, 2, 4));
  for (const State& state : states) net.output(state.h);
  net.output(states.back().c);
  const Graph graph = lifted(net.graph);
  CHECK(work_of(graph) == 1);
  const RecurrentCell cell = cells_of(graph).at(0);
  CHECK((cell.y == 0 && cell.y_h == 1 && cell.y_c == 2));
}

TEST_CASE("a layer may run backwards, and both directions side by side") {
  Net net;
  const int64_t T = 5, B = 2, H = 4;
  const Step ahead = lstm(net, {}, 3, H), back = lstm(net, {}, 3, H), next = lstm(net, {}, 2 * H, H);
  const std::vector<TensorId> xs = steps_of(net, net.input("x", {T, B, 3}), 0);
  const std::vector<TensorId> a = hidden_of(unrolled(net, ahead, xs, zeros(net, B, H)));
  std::vector<TensorId> b = hidden_of(unrolled(net, back, {xs.rbegin(), xs.rend()}, zeros(net, B, H)));
  std::reverse(b.begin(), b.end());
  std::vector<TensorId> both;
  for (size_t t = 0; t < a.size(); ++t) both.push_back(net.concat({a[t], b[t]}, 1));
  net.output(net.stack(both, 1));
  net.output(net.stack(hidden_of(unrolled(net, next, both, zeros(net, B, H))), 0));
  const Graph graph = lifted(net.graph);
  const std::vector<RecurrentCell> cells = cells_of(graph);
  REQUIRE(cells.size() == 3);
  CHECK(std::count_if(cells.begin(), cells.end(), [](const auto& cell) { return cell.reverse; }) == 1);
  CHECK(graph.rops.size() == 6);  // one Concat of two sequences, and the outputs' shapes
}

TEST_CASE("initial states are operands where they are not zero") {
  for (const bool is_matrix : {true, false}) {
    Net net;
    const Step step = lstm(net, {}, 3, 4);
    const TensorId x = net.input("x", {3, 2, 3});
    const TensorId h0 = net.input("h0", is_matrix ? Shape{2, 4} : Shape{1, 2, 4}), c0 = net.input("c0", {2, 2, 4});
    const State before{is_matrix ? h0 : net.reshape(h0, {2, 4}), net.sigmoid(net.pick(c0, 0, 1))};
    net.output(unrolled(net, step, steps_of(net, x, 0), before).back().h);
    const Graph graph = lifted(net.graph);
    CHECK(count_rops(graph, "MatMul") == 0);
    const RecurrentCell cell = cells_of(graph).at(0);
    CHECK((cell.h0 >= 0 && cell.c0 >= 0));
  }
}

TEST_CASE("a constant initial state that was folded away costs one step") {
  Net net;
  const Step step = lstm(net, {}, 3, 4);
  const std::vector<State> states =
      unrolled(net, step, steps_of(net, net.input("x", {6, 1, 3}), 0), {net.constant({1, 4}), net.constant({1, 4})});
  net.output(net.stack(hidden_of(states), 0));
  const Graph graph = lifted(net.graph);
  CHECK(cells_of(graph).at(0).steps == 5);
  CHECK(count_rops(graph, "MatMul") == 1);
}

TEST_CASE("an encoder's last state begins a decoder") {
  Net net;
  const Step encoder = lstm(net, {}, 3, 4), decoder = lstm(net, {}, 3, 4);
  const std::vector<TensorId> xs = steps_of(net, net.input("x", {5, 2, 3}), 0), zs = steps_of(net, net.input("z", {3, 2, 3}), 0);
  net.output(unrolled(net, decoder, zs, unrolled(net, encoder, xs, zeros(net, 2, 4)).back()).back().h);
  const Graph graph = lifted(net.graph);
  CHECK(graph.rops.size() == 2);
  CHECK(cells_of(graph).size() == 2);
}

TEST_CASE("the state may be handed on in another shape") {
  const auto in_shape = [](const Step& step, const Shape& shape) {
    return [step, shape](Net& net, TensorId x, State before) {
      const Shape matrix = {2, 4};
      const State after = step(net, x, {net.reshape(before.h, matrix), net.reshape(before.c, matrix)});
      return State{net.reshape(after.h, shape), net.reshape(after.c, shape)};
    };
  };
  Net net;
  const Step step = in_shape(lstm(net, {}, 3, 4), {1, 2, 4});
  const TensorId h0 = net.input("h0", {1, 2, 4});
  net.output(unrolled(net, step, steps_of(net, net.input("x", {4, 2, 3}), 0), {h0, h0}).back().h);
  CHECK(work_of(lifted(net.graph)) == 1);
}

TEST_CASE("both states may travel in one tensor") {
  Net net;
  const Step inner = lstm(net, {}, 3, 4);
  TensorId joint = net.input("state", {2, 8});
  for (const TensorId x : steps_of(net, net.input("x", {4, 2, 3}), 0)) {
    const State state = inner(net, x, {net.slice(joint, 1, 4, 4), net.slice(joint, 1, 0, 4)});
    joint = net.concat({state.c, state.h}, 1);
  }
  net.output(joint);
  const Graph graph = lifted(net.graph);
  CHECK(cells_of(graph).at(0).steps == 4);
  CHECK(work_of(graph) == 2);  // the last Concat
}

TEST_CASE("cells of rank 3 are matrices with batches before them") {
  Net net;
  const TensorId w = net.constant({3, 4}), u = net.constant({4, 4});
  const TensorId x = net.input("x", {2, 5, 3});
  TensorId h = net.input("h0", {2, 1, 4});
  std::vector<TensorId> hs;
  for (int64_t t = 0; t < 5; ++t) hs.push_back(h = net.tanh(net.sum(net.matmul(net.slice(x, 1, t, 1), w), net.matmul(h, u))));
  net.output(net.concat(hs, 1));
  const Graph graph = lifted(net.graph);
  CHECK(work_of(graph) == 1);
  CHECK(cells_of(graph).at(0).steps == 5);
}

TEST_CASE("the input's product for all steps at once goes back into the cell") {
  for (const bool flat : {false, true}) {
    Net net;
    const int64_t T = 4, B = 2, H = 4;
    const TensorId x = net.input("x", {T, B, 3}), w = net.constant({3, 3 * H}), b = net.constant({3 * H}), u = net.constant({H, 3 * H});
    const TensorId bu = net.constant({3 * H});
    const TensorId all = flat ? net.reshape(net.matmul(net.reshape(x, {T * B, 3}), w, b), {T, B, 3 * H}) : net.sum(b, net.matmul(x, w));
    TensorId h = net.input("h0", {B, H});
    for (int64_t t = 0; t < T; ++t) {
      const TensorId from_x = net.pick(all, 0, t), from_h = net.matmul(h, u, bu);
      const auto part = [&](TensorId id, int64_t g) { return net.slice(id, 1, g * H, H); };
      const TensorId r = net.sigmoid(net.sum(part(from_x, 0), part(from_h, 0))), z = net.sigmoid(net.sum(part(from_x, 1), part(from_h, 1)));
      h = blended(net, BlendForm::products, z, net.tanh(net.sum(part(from_x, 2), net.product(r, part(from_h, 2)))), h);
    }
    net.output(h);
    CHECK(lifted(net.graph).rops.size() == 1);
  }
}

TEST_CASE("inputs of several tensors are put together unless they depend on the recurrence") {
  SECTION("each step an input of its own") {
    Net net;
    const Step step = lstm(net, {}, 3, 4);
    std::vector<TensorId> xs;
    for (int t = 0; t < 4; ++t) xs.push_back(net.unary(ElementwiseOp::exp, net.input("x" + std::to_string(t), {2, 3})));
    net.output(unrolled(net, step, xs, zeros(net, 2, 4)).back().h);
    const Graph graph = lifted(net.graph);
    CHECK(cells_of(graph).at(0).steps == 4);
    CHECK(count_rops(graph, "Concat") == 1);
  }
  SECTION("the first half of one tensor and the second of another") {
    Net net;
    const Step step = lstm(net, {}, 3, 4);
    std::vector<TensorId> xs = steps_of(net, net.input("x", {3, 2, 3}), 0);
    const std::vector<TensorId> more = steps_of(net, net.input("z", {4, 2, 3}), 0);
    xs.insert(xs.end(), more.rbegin(), more.rend());
    net.output(unrolled(net, step, xs, zeros(net, 2, 4)).back().h);
    const Graph graph = lifted(net.graph);
    CHECK(cells_of(graph).at(0).steps == 7);
    CHECK(work_of(graph) == 2);
  }
  SECTION("a residual connection around a layer") {
    Net net;
    const Step first = lstm(net, {}, 4, 4), second = lstm(net, {}, 4, 4);
    const std::vector<TensorId> xs = steps_of(net, net.input("x", {4, 2, 4}), 0);
    std::vector<TensorId> sums = hidden_of(unrolled(net, first, xs, zeros(net, 2, 4)));
    for (size_t t = 0; t < xs.size(); ++t) sums[t] = net.sum(sums[t], xs[t]);
    net.output(unrolled(net, second, sums, zeros(net, 2, 4)).back().h);
    const Graph graph = lifted(net.graph);
    CHECK(cells_of(graph).size() == 2);
    CHECK(count_rops(graph, "MatMul") == 0);
  }
  SECTION("the same input in all steps") {
    Net net;
    const Step step = lstm(net, {}, 3, 4);
    net.output(unrolled(net, step, std::vector<TensorId>(4, net.input("x", {2, 3})), zeros(net, 2, 4)).back().h);
    const Graph graph = lifted(net.graph);
    CHECK(cells_of(graph).at(0).steps == 4);
    CHECK(work_of(graph) == 2);
  }
  SECTION("inputs of their own, one of which depends on the states before it") {
    Net net;
    const Step step = lstm(net, {}, 4, 4);
    State state = zeros(net, 2, 4);
    for (int t = 0; t < 7; ++t) {
      TensorId x = net.unary(ElementwiseOp::exp, net.input("x" + std::to_string(t), {2, 4}));
      if (t == 3) x = net.product(x, state.h);
      state = step(net, x, state);
    }
    net.output(state.h);
    const std::vector<RecurrentCell> cells = cells_of(lifted(net.graph));
    REQUIRE(cells.size() == 2);
    CHECK((cells[0].steps == 3 && cells[1].steps == 4));
  }
  SECTION("a decoder that reads its own output") {
    Net net;
    const Step step = lstm(net, {}, 4, 4);
    State state = zeros(net, 2, 4);
    TensorId x = net.input("x", {2, 4});
    for (int t = 0; t < 4; ++t) {
      state = step(net, x, state);
      x = net.unary(ElementwiseOp::exp, state.h);
    }
    net.output(x);
    CHECK(count_rops(lifted(net.graph), "Recurrent") == 0);
  }
  SECTION("two layers of which the lower one reads the upper one") {
    Net net;
    const Step lower = lstm(net, {}, 4, 4), upper = lstm(net, {}, 4, 4);
    State a = zeros(net, 2, 4), b = a;
    const std::vector<TensorId> xs = steps_of(net, net.input("x", {5, 2, 4}), 0);
    for (size_t t = 0; t < xs.size(); ++t) {
      a = lower(net, t == 0 ? xs[t] : net.sum(xs[t], b.h), a);
      b = upper(net, a.h, b);
    }
    net.output(b.h);
    CHECK(count_rops(lifted(net.graph), "Recurrent") == 0);
  }
}

TEST_CASE("a recurrence is cut where it is not uniform") {
  SECTION("somebody reads a cell state") {
    Net net;
    const Step step = lstm(net, {}, 3, 4);
    const std::vector<State> states = unrolled(net, step, steps_of(net, net.input("x", {6, 2, 3}), 0), zeros(net, 2, 4));
    net.output(states[2].c);
    net.output(states.back().h);
    const std::vector<RecurrentCell> cells = cells_of(lifted(net.graph));
    REQUIRE(cells.size() == 2);
    CHECK((cells[0].steps == 3 && cells[1].steps == 3 && cells[1].h0 >= 0 && cells[1].c0 >= 0));
  }
  SECTION("every cell state is read") {
    Net net;
    const Step step = lstm(net, {}, 3, 4);
    for (const State& state : unrolled(net, step, steps_of(net, net.input("x", {3, 2, 3}), 0), zeros(net, 2, 4))) net.output(state.c);
    CHECK(count_rops(lifted(net.graph), "Recurrent") == 0);
  }
  SECTION("other weights in one step") {
    Net net;
    const Step step = lstm(net, {}, 3, 4), other = lstm(net, {}, 3, 4);
    State state = zeros(net, 2, 4);
    const std::vector<TensorId> xs = steps_of(net, net.input("x", {6, 2, 3}), 0);
    for (size_t t = 0; t < xs.size(); ++t) state = (t == 3 ? other : step)(net, xs[t], state);
    net.output(state.h);
    const Graph graph = lifted(net.graph);
    const std::vector<RecurrentCell> cells = cells_of(graph);
    REQUIRE(cells.size() == 2);
    CHECK((cells[0].steps == 3 && cells[1].steps == 2));
    CHECK(count_rops(graph, "MatMul") == 2);
  }
  SECTION("an input from somewhere else that depends on the states") {
    Net net;
    const Step step = gru(net, GruForm::joint, BlendForm::products, 4, 4);
    std::vector<TensorId> xs = steps_of(net, net.input("x", {6, 2, 4}), 0);
    State state{net.input("h0", {2, 4}), TensorId()};
    for (size_t t = 0; t < xs.size(); ++t) state = step(net, t == 3 ? net.tanh(state.h) : xs[t], state);
    net.output(state.h);
    const std::vector<RecurrentCell> cells = cells_of(lifted(net.graph));
    REQUIRE(cells.size() == 2);
    CHECK((cells[0].steps == 3 && cells[1].steps == 3 && cells[1].h0 >= 0));
  }
}

TEST_CASE("what is not a recurrence of at least two steps stays as it is") {
  const auto untouched = [](const Net& net) {
    const Graph folded = passes::fold_constants(net.graph);
    return print(passes::lift_recurrences(folded)) == print(folded);
  };
  SECTION("one step") {
    Net net;
    const Step step = lstm(net, {}, 3, 4);
    net.output(step(net, net.input("x", {2, 3}), zeros(net, 2, 4)).h);
    CHECK(untouched(net));
  }
  SECTION("a gate is read in every step") {
    Net net;
    const TensorId w = net.constant({3, 4}), u = net.constant({4, 4});
    TensorId h = net.input("h0", {2, 4});
    for (const TensorId x : steps_of(net, net.input("x", {4, 2, 3}), 0)) {
      const TensorId gates = net.sum(net.matmul(x, w), net.matmul(h, u));
      h = net.tanh(gates);
      net.output(gates);
    }
    CHECK(untouched(net));
  }
  SECTION("weights that are not constant") {
    Net net;
    const TensorId w = net.input("w", {3, 4}), u = net.constant({4, 4});
    TensorId h = net.input("h0", {2, 4});
    for (const TensorId x : steps_of(net, net.input("x", {4, 2, 3}), 0)) h = net.tanh(net.sum(net.matmul(x, w), net.matmul(h, u)));
    net.output(h);
    CHECK(untouched(net));
  }
  SECTION("a state that is repeated over the batch") {
    Net net;
    const TensorId w = net.constant({3, 4}), u = net.constant({4, 4});
    TensorId h = net.input("h0", {1, 4});
    for (const TensorId x : steps_of(net, net.input("x", {4, 2, 3}), 0)) {
      h = net.slice(net.tanh(net.sum(net.matmul(x, w), net.matmul(h, u))), 0, 0, 1);
    }
    net.output(h);
    CHECK(untouched(net));
  }
  SECTION("a bias that differs along the batch") {
    Net net;
    const TensorId w = net.constant({3, 4}), u = net.constant({4, 4}), b = net.constant({2, 4});
    TensorId h = net.input("h0", {2, 4});
    for (const TensorId x : steps_of(net, net.input("x", {4, 2, 3}), 0))
      h = net.tanh(net.sum(b, net.sum(net.matmul(x, w), net.matmul(h, u))));
    net.output(h);
    CHECK(untouched(net));
  }
  SECTION("dense layers, of equal weights or not") {
    Net net;
    const TensorId w = net.constant({4, 4}), b = net.constant({4});
    TensorId h = net.input("x", {2, 4});
    for (int layer = 0; layer < 5; ++layer) h = net.tanh(net.matmul(h, layer < 3 ? w : net.constant({4, 4}), b));
    net.output(h);
    CHECK(untouched(net));
  }
  SECTION("the state is scaled on its way") {
    Net net;
    const Step step = gru(net, GruForm::joint, BlendForm::products, 3, 4);
    State state{net.input("h0", {2, 4}), TensorId()};
    const TensorId half = net.constant({}, nullptr, 0.5F);
    for (const TensorId x : steps_of(net, net.input("x", {4, 2, 3}), 0)) state.h = net.product(step(net, x, state).h, half);
    net.output(state.h);
    CHECK(untouched(net));
  }
}

TEST_CASE("a gate that somebody reads keeps its step out") {
  Net net;
  const LstmStyle style;
  const Step step = lstm(net, style, 3, 4);
  const std::vector<TensorId> xs = steps_of(net, net.input("x", {7, 2, 3}), 0);
  State state = zeros(net, 2, 4);
  for (size_t t = 0; t < xs.size(); ++t) {
    state = step(net, xs[t], state);
    if (t == 3) net.output(net.graph.rops[net.graph.rops.size() - 3].outputs[0]);  // o
  }
  net.output(state.h);
  const std::vector<RecurrentCell> cells = cells_of(lifted(net.graph));
  REQUIRE(cells.size() == 2);
  CHECK((cells[0].steps == 3 && cells[1].steps == 3));
}

namespace {

// A network of random cells, wired at random; a few of its values are outputs.
Graph random_network(unsigned seed) {
  std::mt19937 random(seed);
  const auto below = [&](int64_t n) { return static_cast<int64_t>(random() % static_cast<unsigned>(n)); };
  Net net;
  const int64_t T = 2 + below(5), B = 1 + below(3);
  int64_t width = 1 + below(5);
  const bool batch_first = below(2) == 1;
  std::vector<TensorId> xs = steps_of(net, net.input("x", batch_first ? Shape{B, T, width} : Shape{T, B, width}), batch_first ? 1 : 0);
  for (int64_t layer = 0, layers = 1 + below(3); layer < layers; ++layer) {
    const int64_t H = below(3) == 0 ? width : 1 + below(5), kind = below(4);
    LstmStyle style;
    style.form = static_cast<LstmStyle::Form>(below(4));
    std::shuffle(style.order.begin(), style.order.end(), random);
    style.biases = static_cast<int>(below(3));
    style.forget_bias = below(2) == 1;
    style.swapped = below(2) == 1;
    style.copies = below(4) == 0;
    const auto make = [&] {
      if (kind == 0) return plain(net, below(2) == 0 ? ElementwiseOp::tanh : ElementwiseOp::relu, width, H);
      return kind == 1 ? gru(net, static_cast<GruForm>(below(4)), static_cast<BlendForm>(below(4)), width, H) : lstm(net, style, width, H);
    };
    const Step step = make(), other = make();
    const bool backwards = below(3) == 0, is_changed = below(8) == 0;
    if (backwards) std::reverse(xs.begin(), xs.end());
    State state = zeros(net, B, H);
    if (below(3) == 0) state.h = net.input("h" + std::to_string(layer), {B, H});
    if (below(6) == 0) state.h = net.constant({B, H});
    if (below(3) == 0) state.c = net.input("c" + std::to_string(layer), {B, H});
    std::vector<State> states;
    for (size_t t = 0; t < xs.size(); ++t) states.push_back(state = (is_changed && t == 2 ? other : step)(net, xs[t], state));
    std::vector<TensorId> hidden = hidden_of(states);
    for (size_t t = 0; t < xs.size(); ++t) {
      if (H == width && layer % 2 == 1) hidden[t] = net.sum(hidden[t], xs[t]);
      if (states[t].c.valid() && below(16) == 0) net.output(states[t].c);
      if (below(8) == 0) net.output(hidden[t]);
    }
    if (backwards && below(2) == 0) std::reverse(hidden.begin(), hidden.end());
    xs = below(3) == 0 ? steps_of(net, net.stack(hidden, 0), 0) : hidden;
    width = H;
  }
  if (below(4) == 0) net.output(net.graph.rops[static_cast<size_t>(below(static_cast<int64_t>(net.graph.rops.size())))].outputs[0]);
  net.output(below(2) == 0 ? xs.back() : net.stack(xs, static_cast<size_t>(below(3))));
  return remove_dead(net.graph);
}

}  // namespace

TEST_CASE("random networks keep their answers, alone and through the pipeline") {
  int lifted_networks = 0;
  for (unsigned seed = 0; seed < 300; ++seed) {
    CAPTURE(seed);
    const Graph source = random_network(seed);
    lifted_networks += count_rops(lifted(source), "Recurrent") > 0;
    Graph graph = source;
    for (const passes::Pass& pass : passes::pipeline()) graph = pass.run(std::move(graph));
    check_pass(source, graph);
  }
  CHECK(lifted_networks > 250);
}

TEST_CASE("ten layers of a hundred steps keep the pipeline small") {
  Net net;
  std::vector<Step> layers;
  for (int layer = 0; layer < 10; ++layer) layers.push_back(lstm(net, {}, 4, 4));
  std::vector<State> states(10, zeros(net, 1, 4));
  for (const TensorId x : steps_of(net, net.input("x", {100, 1, 4}), 0)) {
    for (size_t layer = 0; layer < layers.size(); ++layer) {
      states[layer] = layers[layer](net, layer == 0 ? x : states[layer - 1].h, states[layer]);
    }
  }
  net.output(states.back().h);
  Graph graph = net.graph;
  for (const passes::Pass& pass : passes::pipeline()) graph = pass.run(std::move(graph));
  check_pass(net.graph, graph);
  CHECK(graph.rops.size() == 10);
}
