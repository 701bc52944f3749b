// What stack_recurrences promises: the same answers, layers joined where the cost says so and only where no other path makes a
// cycle of it, and the input's product ahead where that is cheaper.
#include "compiler/passes/recognise/recurrences/stack_recurrences.h"

#include <functional>
#include <optional>

#include "compiler/ops/ops.h"
#include "test/support/check_pass.h"

using namespace tamp;
using namespace tamp::test;

namespace {

constexpr double kFree = 0, kDear = 1000;

Graph with_rop(Graph graph, const ROperator& rop) {
  graph.rops = {rop};
  return graph;
}

using GangTime = std::function<std::optional<Estimate>(const Recurrent& recurrent)>;

// A gang costs the same however many cells it has, so joining always wins; the product ahead never does.
std::optional<Estimate> joined(const Recurrent&) { return Estimate{10}; }
std::optional<Estimate> gates_are_faster(const Recurrent& recurrent) { return Estimate{recurrent.cells[0].x_is_gates ? 5.0 : 10.0}; }

// Also checks that what the pass asks about is a rOperator with all its operands.
Graph stacked(const Graph& source, const GangTime& gang = joined, double product_us = kDear) {
  const Estimator estimator = [&](const Graph& graph, const ROperator& rop) -> std::optional<Estimate> {
    for (const TensorId id : reads_of(rop)) CHECK(id.index() < graph.tensors.size());
    if (const auto* recurrent = std::get_if<Recurrent>(&rop.attrs)) {
      for (const RecurrentCell& cell : recurrent->cells) CHECK((cell.w < 0) == cell.x_is_gates);
      return gang(*recurrent);
    }
    REQUIRE(std::holds_alternative<MatMul>(rop.attrs));
    CHECK_NOTHROW(ops::verify_shapes(with_rop(graph, rop)));
    return Estimate{product_us};
  };
  Graph graph = passes::stack_recurrences(source, estimator);
  check_pass(source, graph);
  return graph;
}

const std::vector<RecurrentCell>& cells_of(const Graph& graph, size_t number = 0) {
  for (const ROperator& rop : graph.rops) {
    const auto* recurrent = std::get_if<Recurrent>(&rop.attrs);
    if (recurrent && number-- == 0) return recurrent->cells;
  }
  FAIL("too few recurrent rOperators");
  static const std::vector<RecurrentCell> none;
  return none;
}

const char* const kTwoLayers = R"(
  x = input f32[5,2,3]
  w = const f32[16,3]
  w2 = const f32[16,4]
  r = const f32[16,4]
  b = const f32[32]
  y = Recurrent(x, w, r, b) {batch=2, cell=[kind=LSTM steps=5 hidden=4 x=0 w=1 r=2 bias=3 y=0]} -> f32[5,2,4]
  y4 = Reshape(y) -> f32[5,1,2,4]
  turned = Transpose(y4) {perm=[0,2,1,3]} -> f32[5,2,1,4]
  flat = Reshape(turned) -> f32[5,2,4]
  z, z_h = Recurrent(flat, w2, r, b) {batch=2, cell=[kind=LSTM steps=5 hidden=4 x=0 w=1 r=2 bias=3 y=0 y_h=1]} -> f32[5,2,4], f32[2,4]
  outputs(z_h)
)";

}  // namespace

TEST_CASE("layers become one rOperator through reshapes and transposes that keep the order") {
  const Graph graph = stacked(parse_graph(kTwoLayers));
  REQUIRE(graph.rops.size() == 1);
  const auto& cells = cells_of(graph);
  REQUIRE(cells.size() == 2);
  CHECK(cells[1].x_cell == 0);
  CHECK(cells[1].x == -1);
  CHECK(cells[0].y == -1);  // nobody else reads it
  CHECK(cells[1].y == -1);
  CHECK(graph.rops[0].outputs.size() == 1);
}

TEST_CASE("without an estimator, or where no gang can run them, recurrences stay as they are") {
  const Graph source = parse_graph(kTwoLayers);
  CHECK(print(passes::stack_recurrences(source, {})) == print(source));
  const Graph graph = stacked(source, [](const Recurrent&) { return std::nullopt; });
  CHECK(count_rops(graph, "Recurrent") == 2);
}

TEST_CASE("what does not gain stays apart") {
  const auto no_gain = [](const Recurrent& recurrent) { return Estimate{10.0 * static_cast<double>(recurrent.cells.size())}; };
  CHECK(count_rops(stacked(parse_graph(kTwoLayers), no_gain), "Recurrent") == 2);
}

TEST_CASE("a residual connection is a path of its own: the layers stay apart") {
  const Graph graph = stacked(parse_graph(R"(
    x = input f32[5,2,4]
    w = const f32[16,4]
    r = const f32[16,4]
    y = Recurrent(x, w, r) {batch=2, cell=[kind=LSTM steps=5 hidden=4 x=0 w=1 r=2 y=0]} -> f32[5,2,4]
    sum = Elementwise(y, x) {add(i0, i1)} -> f32[5,2,4]
    z = Recurrent(sum, w, r) {batch=2, cell=[kind=LSTM steps=5 hidden=4 x=0 w=1 r=2 y=0]} -> f32[5,2,4]
    outputs(z)
  )"));
  CHECK(count_rops(graph, "Recurrent") == 2);
}

TEST_CASE("two networks side by side, each with two layers that stay apart: no group needs another one that needs it") {
  const Graph graph = stacked(parse_graph(R"(
    x = input f32[5,2,4]
    u = input f32[5,2,4]
    w = const f32[16,4]
    r = const f32[16,4]
    y = Recurrent(x, w, r) {batch=2, cell=[kind=LSTM steps=5 hidden=4 x=0 w=1 r=2 y=0]} -> f32[5,2,4]
    sum = Elementwise(y, x) {add(i0, i1)} -> f32[5,2,4]
    z = Recurrent(sum, w, r) {batch=2, cell=[kind=LSTM steps=5 hidden=4 x=0 w=1 r=2 y=0]} -> f32[5,2,4]
    v = Recurrent(u, w, r) {batch=2, cell=[kind=LSTM steps=5 hidden=4 x=0 w=1 r=2 y=0]} -> f32[5,2,4]
    v_sum = Elementwise(v, u) {add(i0, i1)} -> f32[5,2,4]
    t = Recurrent(v_sum, w, r) {batch=2, cell=[kind=LSTM steps=5 hidden=4 x=0 w=1 r=2 y=0]} -> f32[5,2,4]
    outputs(z, t)
  )"));
  CHECK(count_rops(graph, "Recurrent") == 3);  // z and v are one
}

TEST_CASE("an initial state that needs the lower layer keeps the layers apart, even if the input is linked") {
  const Graph graph = stacked(parse_graph(R"(
    x = input f32[5,2,4]
    w = const f32[16,4]
    r = const f32[16,4]
    y, y_h = Recurrent(x, w, r) {batch=2, cell=[kind=LSTM steps=5 hidden=4 x=0 w=1 r=2 y=0 y_h=1]} -> f32[5,2,4], f32[2,4]
    start = Elementwise(y_h) {tanh(i0)} -> f32[2,4]
    z = Recurrent(y, w, r, start) {batch=2, cell=[kind=LSTM steps=5 hidden=4 x=0 w=1 r=2 h0=3 y=0]} -> f32[5,2,4]
    outputs(z)
  )"));
  CHECK(count_rops(graph, "Recurrent") == 2);
}

TEST_CASE("a decoder takes its encoder's final state through Concat and Slice") {
  const Graph graph = stacked(parse_graph(R"(
    x = input f32[5,2,4]
    d = input f32[3,2,4]
    w = const f32[16,4]
    w2 = const f32[16,4]
    r = const f32[16,4]
    y, y_h, y_c = Recurrent(x, w, r) {batch=2, cell=[kind=LSTM steps=5 hidden=4 x=0 w=1 r=2 y=0 y_h=1 y_c=2]} -> f32[5,2,4], f32[2,4], f32[2,4]
    v, v_h, v_c = Recurrent(y, w2, r) {batch=2, cell=[kind=LSTM steps=5 hidden=4 x=0 w=1 r=2 y=0 y_h=1 y_c=2]} -> f32[5,2,4], f32[2,4], f32[2,4]
    h1 = Reshape(y_h) -> f32[1,2,4]
    h2 = Reshape(v_h) -> f32[1,2,4]
    all_h = Concat(h1, h2) {axis=0} -> f32[2,2,4]
    c1 = Reshape(y_c) -> f32[1,2,4]
    c2 = Reshape(v_c) -> f32[1,2,4]
    all_c = Concat(c1, c2) {axis=0} -> f32[2,2,4]
    s1 = Slice(all_h) {starts=[0,0,0]} -> f32[1,2,4]
    s2 = Slice(all_h) {starts=[1,0,0]} -> f32[1,2,4]
    t1 = Slice(all_c) {starts=[0,0,0]} -> f32[1,2,4]
    t2 = Slice(all_c) {starts=[1,0,0]} -> f32[1,2,4]
    s1f = Reshape(s1) -> f32[2,4]
    s2f = Reshape(s2) -> f32[2,4]
    t1f = Reshape(t1) -> f32[2,4]
    t2f = Reshape(t2) -> f32[2,4]
    e = Recurrent(d, w, r, s1f, t1f) {batch=2, cell=[kind=LSTM steps=3 hidden=4 x=0 w=1 r=2 h0=3 c0=4 y=0]} -> f32[3,2,4]
    f = Recurrent(e, w2, r, s2f, t2f) {batch=2, cell=[kind=LSTM steps=3 hidden=4 x=0 w=1 r=2 h0=3 c0=4 y=0]} -> f32[3,2,4]
    outputs(f)
  )"));
  REQUIRE(graph.rops.size() == 1);
  const auto& cells = cells_of(graph);
  REQUIRE(cells.size() == 4);
  CHECK(cells[2].h0_cell == 0);
  CHECK(cells[2].c0_cell == 0);
  CHECK(cells[3].x_cell == 2);
  CHECK(cells[3].h0_cell == 1);
  CHECK(cells[3].c0_cell == 1);
}

TEST_CASE("both directions run side by side, and the layer above them is its own rOperator") {
  const Graph graph = stacked(parse_graph(R"(
    x = input f32[5,2,4]
    w = const f32[12,4]
    u = const f32[12,8]
    r = const f32[12,4]
    y = Recurrent(x, w, r) {batch=2, cell=[kind=GRU steps=5 hidden=4 x=0 w=1 r=2 y=0]} -> f32[5,2,4]
    v = Recurrent(x, w, r) {batch=2, cell=[kind=GRU steps=5 hidden=4 reverse=1 x=0 w=1 r=2 y=0]} -> f32[5,2,4]
    both = Concat(y, v) {axis=2} -> f32[5,2,8]
    z = Recurrent(both, u, r) {batch=2, cell=[kind=GRU steps=5 hidden=4 x=0 w=1 r=2 y=0]} -> f32[5,2,4]
    q = Recurrent(both, u, r) {batch=2, cell=[kind=GRU steps=5 hidden=4 reverse=1 x=0 w=1 r=2 y=0]} -> f32[5,2,4]
    outputs(z, q)
  )"));
  REQUIRE(count_rops(graph, "Recurrent") == 2);
  CHECK(cells_of(graph, 0).size() == 2);
  CHECK(cells_of(graph, 1).size() == 2);
  CHECK(cells_of(graph, 1)[0].x_cell == -1);
}

TEST_CASE("layers of opposite directions or other steps are not linked by their steps") {
  const Graph graph = stacked(parse_graph(R"(
    x = input f32[5,2,4]
    w = const f32[4,4]
    r = const f32[4,4]
    y = Recurrent(x, w, r) {batch=2, cell=[kind=RNN steps=5 hidden=4 x=0 w=1 r=2 y=0]} -> f32[5,2,4]
    v = Recurrent(y, w, r) {batch=2, cell=[kind=RNN steps=5 hidden=4 reverse=1 x=0 w=1 r=2 y=0]} -> f32[5,2,4]
    part = Slice(v) {starts=[1,0,0]} -> f32[4,2,4]
    z = Recurrent(part, w, r) {batch=2, cell=[kind=RNN steps=4 hidden=4 x=0 w=1 r=2 y=0]} -> f32[4,2,4]
    outputs(z)
  )"));
  CHECK(count_rops(graph, "Recurrent") == 3);
}

TEST_CASE("the product of a known input goes ahead where that is faster, its bias with it") {
  for (const bool with_bias : {true, false}) {
    CAPTURE(with_bias);
    const Graph source = parse_graph(with_bias ? kTwoLayers : R"(
      x = input f32[5,2,3]
      w = const f32[12,3]
      r = const f32[12,4]
      y = Recurrent(x, w, r) {batch=2, cell=[kind=GRU steps=5 hidden=4 linear_before_reset=1 x=0 w=1 r=2 y=0]} -> f32[5,2,4]
      outputs(y)
    )");
    const Graph graph = stacked(source, gates_are_faster, kFree);
    CHECK(count_rops(graph, "MatMul") == 1);
    REQUIRE(count_rops(graph, "Recurrent") == 1);
    CHECK(cells_of(graph)[0].x_is_gates);
    CHECK(cells_of(graph)[0].w == -1);
  }
}

TEST_CASE("where only a gang without the input's product fits, that goes ahead however dear it is") {
  const auto only_gates = [](const Recurrent& recurrent) {
    return recurrent.cells[0].x_is_gates ? std::optional(Estimate{10}) : std::nullopt;
  };
  const Graph graph = stacked(parse_graph(kTwoLayers), only_gates);
  CHECK(count_rops(graph, "MatMul") >= 1);
  CHECK(cells_of(graph)[0].x_is_gates);
}

TEST_CASE("weights made at run time keep their product inside") {
  const Graph graph = stacked(parse_graph(R"(
    x = input f32[5,2,3]
    w = input f32[4,3]
    r = const f32[4,4]
    y = Recurrent(x, w, r) {batch=2, cell=[kind=RNN steps=5 hidden=4 x=0 w=1 r=2 y=0]} -> f32[5,2,4]
    outputs(y)
  )"),
                              gates_are_faster, kFree);
  CHECK(count_rops(graph, "MatMul") == 0);
}

TEST_CASE("the last step of y is y_h, and y is not stored for it") {
  for (const bool reverse : {false, true}) {
    CAPTURE(reverse);
    const std::string way = reverse ? " reverse=1" : "", start = reverse ? "0" : "4";
    const Graph graph = stacked(parse_graph(R"(
      x = input f32[5,2,4]
      w = const f32[16,4]
      r = const f32[16,4]
      y = Recurrent(x, w, r) {batch=2, cell=[kind=LSTM steps=5 hidden=4)" +
                                            way + R"( x=0 w=1 r=2 y=0]} -> f32[5,2,4]
      y4 = Reshape(y) -> f32[5,1,2,4]
      last = Slice(y4) {starts=[)" + start + R"(,0,0,0]} -> f32[1,1,2,4]
      flat = Reshape(last) -> f32[2,4]
      outputs(flat)
    )"));
    CHECK(cells_of(graph)[0].y == -1);
    CHECK(cells_of(graph)[0].y_h == 0);
    CHECK(count_rops(graph, "Slice") == 0);
  }
}

TEST_CASE("another step of y, part of a row, or y with lengths is not y_h") {
  for (const char* const slice : {"starts=[3,0,0]} -> f32[1,2,4]", "starts=[4,1,0]} -> f32[1,1,4]", "starts=[4,0,1]} -> f32[1,2,3]"}) {
    CAPTURE(slice);
    const Graph graph = stacked(parse_graph(std::string(R"(
      x = input f32[5,2,4]
      w = const f32[16,4]
      r = const f32[16,4]
      y = Recurrent(x, w, r) {batch=2, cell=[kind=LSTM steps=5 hidden=4 x=0 w=1 r=2 y=0]} -> f32[5,2,4]
      part = Slice(y) {)") + slice + R"(
      outputs(part)
    )"));
    CHECK(cells_of(graph)[0].y == 0);
    CHECK(count_rops(graph, "Slice") == 1);
  }
}

TEST_CASE("recurrences with weights made at run time are not joined: no gang could run them") {
  const Graph graph = stacked(parse_graph(R"(
    x = input f32[5,2,4]
    r = input f32[4,4]
    w = const f32[4,4]
    y = Recurrent(x, w, r) {batch=2, cell=[kind=RNN steps=5 hidden=4 x=0 w=1 r=2 y=0]} -> f32[5,2,4]
    v = Recurrent(x, w, r) {batch=2, cell=[kind=RNN steps=5 hidden=4 reverse=1 x=0 w=1 r=2 y=0]} -> f32[5,2,4]
    outputs(y, v)
  )"));
  CHECK(count_rops(graph, "Recurrent") == 2);
}
