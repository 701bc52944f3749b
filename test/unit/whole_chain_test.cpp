// What chains of elementwise steps make of whole numbers: a row with a rounding, a table, both, or nothing that is known.
#include "compiler/passes/whole_chain.h"

#include "compiler/ops/ops.h"
#include "test/support/catch.h"
#include "test/support/check_pass.h"
#include "test/support/graph_text.h"

namespace tamp::test {
namespace {

constexpr int64_t kRows = 256;
constexpr WholeRange kSigned{-128, 127};

// The chain of `steps` behind whole numbers from -128 to 127. i0 is x, i1 to i3 are numbers, i4 and i5 are rows of three.
Graph chain_graph(const std::string& steps, const std::string& inputs = "x, third, tenth, two, row, other") {
  return parse_graph(R"(
    g = input f32[256,3]
    third = const f32[] {0.3}
    tenth = const f32[] {0.1}
    two = const f32[] {2}
    row = const f32[3] {10.25, -20.5, 0.125}
    other = const f32[3] {1.5, 2.5, -3.5}
    x = Elementwise(g) {rounded(i0; -128, 127)} -> f32[256,3]
    y = Elementwise()" +
                     inputs + ") {" + steps + "} -> f32[256,3]\n outputs(y)");
}

std::optional<passes::WholeChain> chain_of(const Graph& graph, WholeRange range = kSigned) {
  return passes::whole_chain_of(graph, graph.rops.back(), graph.rops[0].outputs[0], range, 1);
}

// What the reference makes of -128 to 127 in each of the three columns, against what the header says of row and table.
void check_numbers(const Graph& graph, const passes::WholeChain& chain) {
  std::vector<float> numbers;
  for (int64_t n = kSigned.low; n <= kSigned.high; ++n) numbers.insert(numbers.end(), 3, static_cast<float>(n));
  const std::vector<float> made = ops::raw_numbers<float>(ops::run(graph, {ops::raw_value(DType::f32, {kRows, 3}, numbers)}).at(0));
  for (size_t i = 0; i < numbers.size(); ++i) {
    float y = numbers[i];
    if (!chain.row.empty()) y = std::clamp(std::rint(chain.scale * y + chain.row[i % 3]), chain.low, chain.high);
    if (!chain.table.empty()) y = chain.table.at(static_cast<size_t>(static_cast<int64_t>(y) - chain.table_low));
    if (y != made[i]) FAIL_CHECK(numbers[i] << " of column " << i % 3 << " is " << y << ", wanted " << made[i]);
  }
}

TEST_CASE("a row in front of a rounding is a row") {
  for (const std::string steps : {"mul(i0, i1), add(s0, i4), rounded(s1; -128, 127)", "mul(i1, i0), add(i4, s0), rounded(s1; -100, 90)",
                                  "div(i0, i3), sub(s0, i4), add(s1, i2), rounded(s2; 0, 255)", "sub(i4, i0), rounded(s0; -128, 127)",
                                  "add(i0, i4), mul(s0, i1), add(s1, i5), rounded(s2; -128, 127)"}) {
    INFO(steps);
    const Graph graph = chain_graph(steps);
    const auto chain = chain_of(graph);
    REQUIRE(chain);
    CHECK(chain->row.size() == 3);
    CHECK(chain->table.empty());
    check_numbers(graph, *chain);
  }
  const auto chain = chain_of(chain_graph("mul(i0, i1), add(s0, i4), add(s1, i3), rounded(s2; -100, 90)"));
  REQUIRE(chain);
  CHECK(chain->scale == 0.3F);
  CHECK(chain->low == -100);
  CHECK(chain->high == 90);
  CHECK(chain->row == std::vector<float>{12.25, -18.5, 2.125});
}

TEST_CASE("what follows a row and its rounding is a table") {
  const Graph graph =
      chain_graph("mul(i0, i1), add(s0, i4), rounded(s1; -90, 85), mul(s2, i2), gelu(s3), div(s4, i1), rounded(s5; -128, 127)");
  const auto chain = chain_of(graph);
  REQUIRE(chain);
  CHECK(chain->row.size() == 3);
  CHECK(chain->table_low == -90);
  CHECK(chain->table.size() == 176);
  check_numbers(graph, *chain);
}

TEST_CASE("a chain with numbers alone is a table") {
  for (const std::string steps : {"mul(i0, i1), rounded(s0; -128, 127)", "rounded(i0; -5, 250)",
                                  "mul(i0, i2), sigmoid(s0), mul(s0, s1), div(s2, i2), rounded(s3; 0, 255)",
                                  "sub(i3, i0), abs(s0), div(i3, s1), rounded(s2; -128, 127)", "mul(i0, i0), rounded(s0; 0, 255)",
                                  "mul(i0, i1), rounded(s0; -20, 30), mul(s1, i3), rounded(s2; -20, 40)"}) {
    INFO(steps);
    const Graph graph = chain_graph(steps, "x, third, tenth, two");
    const auto chain = chain_of(graph);
    REQUIRE(chain);
    CHECK(chain->row.empty());
    CHECK(chain->table_low == -128);
    CHECK(chain->table.size() == 256);
    check_numbers(graph, *chain);
  }
  const auto few = chain_of(chain_graph("mul(i0, i1), rounded(s0; -128, 127)", "x, third"), {-3, 5});
  REQUIRE(few);
  CHECK(few->table_low == -3);
  CHECK(few->table == std::vector<float>{-1, -1, 0, 0, 0, 1, 1, 1, 2});
}

TEST_CASE("x need not be the first operand") {
  const Graph graph = chain_graph("mul(i1, i0), rounded(s0; -128, 127)", "third, x");
  const auto chain = chain_of(graph);
  REQUIRE(chain);
  check_numbers(graph, *chain);
}

TEST_CASE("other chains have neither row nor table") {
  for (const std::string steps : {
           "mul(i0, i1), rounded(s0; -128, 127), add(s1, i4), rounded(s2; -128, 127)",               // a row behind the first rounding
           "add(i0, i4), rounded(s0; -128, 127), add(s1, i5), rounded(s2; -128, 127)",               // two rows, two roundings
           "add(i0, i4), add(i0, i5), mul(s0, s1), rounded(s2; -128, 127)",                          // rows are multiplied
           "mul(i0, i4), rounded(s0; -128, 127)",                                                    // a row is a factor
           "div(i0, i4), rounded(s0; -128, 127)",                                                    // and a divisor
           "add(i0, i4), gelu(s0), rounded(s1; -128, 127)",                                          // a function of each channel
           "mul(i0, i1), add(s0, i4)",                                                               // never rounded
           "add(i0, i4), rounded(s0; -128, 127), mul(s1, i2)",                                       // not at the end
           "add(i0, i4), rounded(s0; -128, 127), mul(s1, i0), rounded(s2; -128, 127)",               // x once more
           "mul(i0, i1), add(s0, i4), rounded(s1; -128, 127), mul(s2, s0), rounded(s3; -128, 127)",  // in front of the rounding
           "add(i0, i4), rounded(s0; -300, 300)",                                                    // 601 numbers
           "add(i0, i4), rounded(s0; -0.5, 20)",                                                     // a bound that is not whole
       }) {
    INFO(steps);
    CHECK_FALSE(chain_of(chain_graph(steps)));
  }
  const Graph table = chain_graph("mul(i0, i1), rounded(s0; -128, 127)", "x, third");
  CHECK(chain_of(table));
  CHECK_FALSE(chain_of(table, {-128, 128}));  // x is one of 257 numbers
  CHECK_FALSE(chain_of(chain_graph("mul(i0, i1)", "x, third")));
  CHECK_FALSE(chain_of(chain_graph("mul(i0, i1), rounded(s0; -200, 100)", "x, third")));
}

TEST_CASE("a table holds no NaN") {
  const std::string steps = "mul(i0, i2), sqrt(s0), rounded(s1; 0, 127)";
  CHECK_FALSE(chain_of(chain_graph(steps, "x, third, tenth")));
  CHECK(chain_of(chain_graph(steps, "x, third, tenth"), {0, 127}));
  CHECK(chain_of(chain_graph("div(i1, i0), rounded(s0; 0, 127)", "x, third")));  // infinity is rounded to a bound
}

TEST_CASE("what varies at run time or along another dimension is no row") {
  const std::string text = R"(
    g = input f32[4,3]
    n = input f32[]
    column = const f32[4,1]
    x = Elementwise(g) {rounded(i0; -128, 127)} -> f32[4,3]
    y = Elementwise(x, n) {mul(i0, i1), rounded(s0; -128, 127)} -> f32[4,3]
    outputs(y)
)";
  CHECK_FALSE(chain_of(parse_graph(text)));
  CHECK_FALSE(chain_of(parse_graph(swapped(swapped(text, "(x, n)", "(x, column)"), "mul(i0", "add(i0"))));
  CHECK_FALSE(chain_of(parse_graph(swapped(swapped(text, "(x, n)", "(x, g)"), "mul(i0", "add(i0"))));
}

}  // namespace
}  // namespace tamp::test
