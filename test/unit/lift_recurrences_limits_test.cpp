// Where lift_recurrences must stop: what is not a recurrence, and what would change an answer; random networks; size.
#include "test/support/unrolled.h"

using namespace tamp;
using namespace tamp::test;
using namespace tamp::test::unrolled_networks;

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
