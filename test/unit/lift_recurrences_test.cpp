// What lift_recurrences promises: the same answers, one rOperator a layer for every way in which exporters write cells out, and
// nothing else touched. Networks are built step by step as a loop in a user's program would.
#include "test/support/unrolled.h"

using namespace tamp;
using namespace tamp::test;
using namespace tamp::test::unrolled_networks;

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
