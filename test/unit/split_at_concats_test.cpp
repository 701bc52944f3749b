// Chains behind a Concat that are computed for each of its operands.
#include "compiler/passes/fuse/split_at_concats.h"

#include <fmt/format.h>

#include "compiler/passes/fuse/fuse_elementwise.h"
#include "compiler/passes/place/assign_layout.h"
#include "test/support/check_pass.h"

namespace tamp::test {
namespace {

struct Row {
  const char *why, *text;
};

Graph split(const std::string& text) {
  const Graph source = parse_graph(text), fused = passes::fuse_elementwise(source);
  Graph made = passes::split_at_concats(fused);
  check_pass(source, made);
  check_pass(source, passes::assign_layout(made));
  return made;
}
int chains(const Graph& graph) { return count_rops(passes::assign_layout(graph), "Elementwise"); }

// Rotary position embedding: y = x * cos + concat(-x[half:], x[:half]) * sin, of 3 heads.
std::string rotary(const std::string& x, const std::string& y) {
  return fmt::format(R"(
    {0} = input f32[2,3,5,8]
    {1}a = Slice({0}) {{starts=[0,0,0,4]}} -> f32[2,3,5,4]
    {1}n = Elementwise({1}a) {{neg(i0)}} -> f32[2,3,5,4]
    {1}b = Slice({0}) {{starts=[0,0,0,0]}} -> f32[2,3,5,4]
    {1}c = Concat({1}n, {1}b) {{axis=3}} -> f32[2,3,5,8]
    {1}s = Elementwise({1}c, sin) {{mul(i0, i1)}} -> f32[2,3,5,8]
    {1}t = Elementwise({0}, cos) {{mul(i0, i1)}} -> f32[2,3,5,8]
    {1} = Elementwise({1}t, {1}s) {{add(i0, i1)}} -> f32[2,3,5,8]
  )",
                     x, y);
}

}  // namespace

TEST_CASE("rotary position embedding is one chain for each half") {
  for (const char* const angles : {"cos = input f32[2,1,5,8]\nsin = input f32[2,1,5,8]", "cos = const f32[5,8]\nsin = const f32[5,8]"}) {
    const std::string text = angles + rotary("x", "y") + "outputs(y)\n";
    const Graph made = split(text);
    CHECK(count_rops(made, "Elementwise") == 2);
    CHECK(chains(made) == 2);
    CHECK(chains(passes::fuse_elementwise(parse_graph(text))) == 3);
  }
}

TEST_CASE("queries and keys share the halves of their angles") {
  const Graph made = split("cos = input f32[5,8]\nsin = input f32[5,8]" + rotary("q", "y") + rotary("k", "z") + "outputs(y, z)\n");
  CHECK(count_rops(made, "Elementwise") == 4);
  CHECK(count_rops(made, "Slice") == 2 * (2 + 2) + 2 + 2);  // of each operand by the model and for its chains, of the angles
  CHECK(chains(made) == 4);
}

TEST_CASE("pairs of neighbours are rotated in one chain for each element") {
  const std::string text = R"(
    x = input f32[2,3,5,8]
    cos = input f32[2,1,5,8]
    sin = const f32[5,8]
    a = Slice(x) {starts=[0,0,0,1], steps=[1,1,1,2]} -> f32[2,3,5,4]
    n = Elementwise(a) {neg(i0)} -> f32[2,3,5,4]
    m = Reshape(n) -> f32[2,3,5,4,1]
    b = Slice(x) {starts=[0,0,0,0], steps=[1,1,1,2]} -> f32[2,3,5,4]
    d = Reshape(b) -> f32[2,3,5,4,1]
    c = Concat(m, d) {axis=4} -> f32[2,3,5,4,2]
    r = Reshape(c) -> f32[2,3,5,8]
    s = Elementwise(r, sin) {mul(i0, i1)} -> f32[2,3,5,8]
    t = Elementwise(x, cos) {mul(i0, i1)} -> f32[2,3,5,8]
    y = Elementwise(t, s) {add(i0, i1)} -> f32[2,3,5,8]
    outputs(y)
  )";
  const Graph made = split(text);
  CHECK(count_rops(made, "Elementwise") == 2);
  CHECK(chains(made) == 2);
}

TEST_CASE("every operand of a Concat gets a chain") {
  const Row rows[] = {
      {"inputs and constants", R"(
        x = input f32[2,3]
        w = const f32[2,4]
        c = Concat(x, w) {axis=1} -> f32[2,7]
        y = Elementwise(c) {exp(i0)} -> f32[2,7]
        outputs(y)
      )"},
      {"the first axis, and an operand that has no such axis", R"(
        x = input f32[2,3]
        z = input f32[4,3]
        w = input f32[3]
        e = Elementwise(z) {exp(i0)} -> f32[4,3]
        c = Concat(x, e) {axis=0} -> f32[6,3]
        y = Elementwise(c, w) {mul(i0, i1)} -> f32[6,3]
        outputs(y)
      )"},
      {"an operand of extent 1", R"(
        x = input f32[2,3]
        z = input f32[2,5]
        w = input f32[2,1]
        e = Elementwise(z) {exp(i0)} -> f32[2,5]
        f = Elementwise(x) {tanh(i0)} -> f32[2,3]
        c = Concat(f, e) {axis=1} -> f32[2,8]
        y = Elementwise(c, w) {mul(i0, i1)} -> f32[2,8]
        outputs(y)
      )"},
      {"Slices of another type", R"(
        x = input f32[2,6]
        i = Elementwise(x) {cast(i0)} -> i64[2,6]
        a = Slice(i) {starts=[0,4]} -> i64[2,2]
        b = Slice(i) {starts=[0,0]} -> i64[2,4]
        c = Concat(a, b) {axis=1} -> i64[2,6]
        y = Elementwise(c) {cast(i0)} -> f32[2,6]
        outputs(y)
      )"},
      {"a view of a Slice, and an answer as an operand's source", R"(
        x = input f32[2,6]
        e = Elementwise(x) {exp(i0)} -> f32[2,6]
        a = Slice(e) {starts=[0,3]} -> f32[2,3]
        t = Transpose(a) {perm=[1,0]} -> f32[3,2]
        b = Slice(e) {starts=[0,0]} -> f32[2,2]
        c = Concat(t, b) {axis=0} -> f32[5,2]
        y = Elementwise(c) {tanh(i0)} -> f32[5,2]
        outputs(y, e)
      )"},
  };
  for (const Row& row : rows) {
    INFO(row.why);
    const Graph before = passes::fuse_elementwise(parse_graph(row.text)), made = split(row.text);
    CHECK(print(made) != print(before));
    CHECK(chains(made) < chains(before));
  }
}

TEST_CASE("where no level is saved, a Concat stays in front of its chain") {
  const Row rows[] = {
      {"convolutions write into the Concat", R"(
        x = input f32[1,4,3,3]
        v = const f32[4,4,1,1]
        w = const f32[4,4,1,1]
        a = Conv(x, v) {kernel=[1,1]} -> f32[1,4,3,3]
        b = Conv(x, w) {kernel=[1,1]} -> f32[1,4,3,3]
        c = Concat(a, b) {axis=1} -> f32[1,8,3,3]
        y = Elementwise(c) {relu(i0)} -> f32[1,8,3,3]
        outputs(y)
      )"},
      {"a convolution beside a chain", R"(
        x = input f32[1,4,3,3]
        v = const f32[4,4,1,1]
        a = Conv(x, v) {kernel=[1,1]} -> f32[1,4,3,3]
        b = Elementwise(x) {exp(i0)} -> f32[1,4,3,3]
        c = Concat(a, b) {axis=1} -> f32[1,8,3,3]
        y = Elementwise(c) {relu(i0)} -> f32[1,8,3,3]
        outputs(y)
      )"},
      {"a view of what a convolution makes", R"(
        x = input f32[1,4,3,3]
        v = const f32[4,4,1,1]
        a = Conv(x, v) {kernel=[1,1]} -> f32[1,4,3,3]
        t = Reshape(a) -> f32[1,4,9]
        z = input f32[1,4,9]
        c = Concat(t, z) {axis=1} -> f32[1,8,9]
        y = Elementwise(c) {relu(i0)} -> f32[1,8,9]
        outputs(y)
      )"},
      {"somebody else reads the Concat", R"(
        x = input f32[2,3]
        e = Elementwise(x) {exp(i0)} -> f32[2,3]
        c = Concat(x, e) {axis=1} -> f32[2,6]
        y = Elementwise(c) {exp(i0)} -> f32[2,6]
        z = Softmax(c) {axes=[1,1]} -> f32[2,6]
        outputs(y, z)
      )"},
      {"the Concat is an answer", R"(
        x = input f32[2,3]
        e = Elementwise(x) {exp(i0)} -> f32[2,3]
        c = Concat(x, e) {axis=1} -> f32[2,6]
        y = Elementwise(c) {exp(i0)} -> f32[2,6]
        outputs(y, c)
      )"},
      {"somebody else reads an operand", R"(
        x = input f32[2,3]
        e = Elementwise(x) {exp(i0)} -> f32[2,3]
        c = Concat(x, e) {axis=1} -> f32[2,6]
        y = Elementwise(c) {exp(i0)} -> f32[2,6]
        z = Softmax(e) {axes=[1,1]} -> f32[2,3]
        outputs(y, z)
      )"},
      {"an operand twice", R"(
        x = input f32[2,3]
        e = Elementwise(x) {exp(i0)} -> f32[2,3]
        c = Concat(e, e) {axis=1} -> f32[2,6]
        y = Elementwise(c) {exp(i0)} -> f32[2,6]
        outputs(y)
      )"},
      {"types that no chain holds", R"(
        x = input i64[2,3]
        e = Elementwise(x) {neg(i0)} -> i64[2,3]
        c = Concat(x, e) {axis=1} -> i64[2,6]
        y = Elementwise(c) {neg(i0)} -> i64[2,6]
        outputs(y)
      )"},
      {"the chain repeats the Concat", R"(
        x = input f32[2,3]
        z = input f32[4,2,6]
        e = Elementwise(x) {exp(i0)} -> f32[2,3]
        c = Concat(x, e) {axis=1} -> f32[2,6]
        y = Elementwise(c, z) {mul(i0, i1)} -> f32[4,2,6]
        outputs(y)
      )"},
      {"one operand", R"(
        x = input f32[2,3]
        c = Concat(x) {axis=1} -> f32[2,3]
        y = Elementwise(c) {exp(i0)} -> f32[2,3]
        outputs(y)
      )"},
      {"an operand without elements", R"(
        x = input f32[2,0]
        z = input f32[2,3]
        c = Concat(x, z) {axis=1} -> f32[2,3]
        y = Elementwise(c) {exp(i0)} -> f32[2,3]
        outputs(y)
      )"},
      {"columns of several elements", R"(
        x = input f32[2,3]
        z = input f32[2,3]
        a = Reshape(x) -> f32[2,3,1]
        b = Reshape(z) -> f32[2,3,1]
        d = Elementwise(b) {exp(i0)} -> f32[2,3,1]
        f = Concat(a, d, b) {axis=2} -> f32[2,3,3]
        r = Reshape(f) -> f32[6,3]
        y = Elementwise(r) {exp(i0)} -> f32[6,3]
        outputs(y)
      )"},
  };
  for (const Row& row : rows) {
    INFO(row.why);
    const Graph source = passes::fuse_elementwise(parse_graph(row.text));
    CHECK(print(passes::split_at_concats(source)) == print(source));
  }
}

TEST_CASE("a chain that is full takes no more") {
  std::string text = "x = input f32[2,3]\n", steps;
  for (int i = 0; i < 12; ++i) {
    if (i > 0) steps += ", ";
    steps += i == 0 ? "tanh(i0)" : "tanh(s" + std::to_string(i - 1) + ")";
  }
  text += "e = Elementwise(x) {" + steps + "} -> f32[2,3]\nc = Concat(e, x) {axis=1} -> f32[2,6]\n";
  text += "y = Elementwise(c) {" + steps + "} -> f32[2,6]\noutputs(y)\n";
  const Graph source = parse_graph(text);
  CHECK(print(passes::split_at_concats(source)) == print(source));
}

}  // namespace tamp::test
