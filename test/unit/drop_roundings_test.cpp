// Roundings of what is rounded already, and guards against NaN of whole numbers.
#include "compiler/passes/tidy/drop_roundings.h"

#include "compiler/ir/products.h"
#include "test/support/catch.h"
#include "test/support/check_pass.h"
#include "test/support/graph_text.h"

namespace tamp::test {
namespace {

// q is rounded between -128 and 127; `rest` makes y[2,6] of it.
Graph dropped(const std::string& rest) {
  const Graph graph = parse_graph(R"(
    x = input f32[2,6]
    hundred = const f32[] {100}
    tenth = const f32[] {0.1}
    nearly = const f32[] {1.0000001}
    far = const f32[] {0.9}
    slightly = const f32[] {0.997}
    h = Elementwise(x, hundred) {mul(i0, i1)} -> f32[2,6]
    q = Elementwise(h) {rounded(i0; -128, 127)} -> f32[2,6]
)" + rest + "\n outputs(end)");
  const Graph made = passes::drop_roundings(graph);
  check_pass(graph, made);
  return made;
}

int64_t count_of(const Graph& graph, ElementwiseOp op) {
  int64_t count = 0;
  for (const ROperator& rop : graph.rops) {
    const ElementwiseStep* const step = single_step(rop);
    count += step && step->op == op;
  }
  return count;
}
int64_t roundings(const std::string& rest) { return count_of(dropped(rest), ElementwiseOp::rounded); }

const std::string kEnd = "\n end = Elementwise(y, tenth) {mul(i0, i1)} -> f32[2,6]";

TEST_CASE("a rounding of whole numbers is dropped where each becomes itself") {
  const std::string by =
      "s = Elementwise(q, nearly) {mul(i0, i1)} -> f32[2,6]\n y = Elementwise(s) {rounded(i0; -128, 127)} -> f32[2,6]" + kEnd;
  CHECK(roundings(by) == 1);
  CHECK(dropped(by).rops.size() == 3);  // the factor goes, too
  CHECK(roundings(swapped(by, "(q, nearly)", "(nearly, q)")) == 1);
  CHECK(roundings(swapped(by, "mul(i0", "div(i0")) == 1);
  CHECK(roundings(swapped(by, "nearly", "slightly")) == 1);  // 128 becomes 127.6
  CHECK(roundings(swapped(by, "nearly", "far")) == 2);       // 128 becomes 115
  CHECK(roundings("y = Elementwise(q) {rounded(i0; -200, 255)} -> f32[2,6]" + kEnd) == 1);
}

TEST_CASE("a rounding whose bounds cut is kept") {
  CHECK(roundings("y = Elementwise(q) {rounded(i0; 0, 255)} -> f32[2,6]" + kEnd) == 2);
  CHECK(roundings("y = Elementwise(q) {rounded(i0; -128, 126)} -> f32[2,6]" + kEnd) == 2);
}

TEST_CASE("two factors that make one another up are none") {
  CHECK(roundings("s = Elementwise(q, tenth) {mul(i0, i1)} -> f32[2,6]\n t = Elementwise(s, tenth) {div(i0, i1)} -> f32[2,6]\n"
                  " y = Elementwise(t) {rounded(i0; -128, 127)} -> f32[2,6]" +
                  kEnd) == 1);
}

TEST_CASE("roundings one behind the other are dropped down to the first") {
  CHECK(roundings("a = Elementwise(q) {rounded(i0; -128, 127)} -> f32[2,6]\n b = Elementwise(a) {rounded(i0; -128, 127)} -> f32[2,6]\n"
                  " y = Elementwise(b) {rounded(i0; -128, 127)} -> f32[2,6]" +
                  kEnd) == 1);
}

TEST_CASE("views and maxima keep whole numbers, so what rounds behind them is dropped") {
  CHECK(roundings("r = Reshape(q) -> f32[3,4]\n t = Transpose(r) {perm=[1,0]} -> f32[4,3]\n"
                  " a = Elementwise(t) {rounded(i0; -128, 127)} -> f32[4,3]\n y = Reshape(a) -> f32[2,6]" +
                  kEnd) == 1);
}

TEST_CASE("a rounding of other values is kept") {
  CHECK(roundings("a = Elementwise(q, h) {add(i0, i1)} -> f32[2,6]\n y = Elementwise(a) {rounded(i0; -128, 127)} -> f32[2,6]" + kEnd) == 2);
  CHECK(roundings("a = Elementwise(q) {sigmoid(i0)} -> f32[2,6]\n y = Elementwise(a) {rounded(i0; -128, 127)} -> f32[2,6]" + kEnd) == 2);
}

TEST_CASE("a row of ones is not known to be one") {
  const Graph made = dropped(R"(
    p = Elementwise(q) {rounded(i0; -128, 127)} -> f32[2,6]
    one = const f32[6] {1, 1, 1, 1, 1, 1}
    s = Elementwise(p, one) {mul(i0, i1)} -> f32[2,6]
    y = Elementwise(s) {rounded(i0; -128, 127)} -> f32[2,6])" +
                             kEnd);
  CHECK(count_of(made, ElementwiseOp::rounded) == 2);
}

TEST_CASE("a guard against NaN of whole numbers is dropped, times a number or not") {
  const std::string guard =
      "n = Elementwise(q) {is_nan(i0)} -> bool[2,6]\n y = Elementwise(n, tenth, q) {where(i0, i1, i2)} -> f32[2,6]" + kEnd;
  const auto guards = [](const std::string& rest) { return count_of(dropped(rest), ElementwiseOp::where); };
  CHECK(guards(guard) == 0);
  CHECK(count_of(dropped(guard), ElementwiseOp::is_nan) == 0);
  CHECK(guards("m = Elementwise(q, tenth) {mul(i0, i1)} -> f32[2,6]\n n = Elementwise(m) {is_nan(i0)} -> bool[2,6]\n"
               " y = Elementwise(n, hundred, m) {where(i0, i1, i2)} -> f32[2,6]" +
               kEnd) == 0);
  CHECK(guards(swapped(swapped(guard, "(q)", "(h)"), "tenth, q", "tenth, h")) == 1);  // h is not whole
  CHECK(guards(swapped(guard, "(q)", "(h)")) == 1);                                   // the test is of another tensor
  CHECK(guards(swapped(guard, "tenth, q", "q, tenth")) == 1);                         // the other way round
}

TEST_CASE("a guard between two roundings goes with the second of them") {
  const Graph made = dropped(R"(
    m = Elementwise(q, tenth) {mul(i0, i1)} -> f32[2,6]
    n = Elementwise(m) {is_nan(i0)} -> bool[2,6]
    g = Elementwise(n, hundred, m) {where(i0, i1, i2)} -> f32[2,6]
    d = Elementwise(g, tenth) {div(i0, i1)} -> f32[2,6]
    y = Elementwise(d) {rounded(i0; -128, 127)} -> f32[2,6])" +
                             kEnd);
  CHECK(count_of(made, ElementwiseOp::rounded) == 1);
  CHECK(made.rops.size() == 3);
}

TEST_CASE("outputs keep their names, so what makes one is kept") {
  for (const std::string outputs : {"outputs(y)", "outputs(q, y)"}) {
    const Graph graph = parse_graph(R"(
      x = input f32[2,6]
      q = Elementwise(x) {rounded(i0; -128, 127)} -> f32[2,6]
      p = Elementwise(q) {rounded(i0; -128, 127)} -> f32[2,6]
      y = Elementwise(p) {rounded(i0; -128, 127)} -> f32[2,6]
)" + outputs);
    const Graph made = passes::drop_roundings(graph);
    check_pass(graph, made);
    CHECK(count_of(made, ElementwiseOp::rounded) == 2);
  }
}

}  // namespace
}  // namespace tamp::test
