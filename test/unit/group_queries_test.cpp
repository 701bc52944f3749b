// Keys and values that are repeated for each head of queries.
#include "compiler/passes/recognise/group_queries.h"

#include <algorithm>

#include "compiler/passes/place/assign_layout.h"
#include "test/support/check_pass.h"

namespace tamp::test {
namespace {

struct Row {
  const char *why, *text;
};

Graph grouped(const std::string& text) {
  const Graph source = parse_graph(text);
  Graph made = passes::group_queries(source);
  check_pass(source, made);
  check_pass(source, passes::assign_layout(made));
  return made;
}
int copies(const Graph& graph) { return count_rops(passes::assign_layout(graph), "Elementwise"); }

// Four heads of queries to each of three heads of keys and values, as exporters write it.
const char* const kHead = R"(
  q = input f32[2,12,5,8]
  k = input f32[2,3,7,8]
  v = input f32[2,3,7,6]
  ka = Reshape(k) -> f32[2,3,1,7,8]
  ke = Elementwise(ka) {identity(i0)} -> f32[2,3,4,7,8]
  kr = Reshape(ke) -> f32[2,12,7,8]
  va = Reshape(v) -> f32[2,3,1,7,6]
  ve = Elementwise(va) {identity(i0)} -> f32[2,3,4,7,6]
  vr = Reshape(ve) -> f32[2,12,7,6]
)";

}  // namespace

TEST_CASE("heads of queries that share keys and values are a dimension of their own") {
  const Row rows[] = {
      {"attention", R"(
        y = Attention(q, kr, vr) {scale=0.5} -> f32[2,12,5,6]
        outputs(y)
      )"},
      {"a mask for all heads", R"(
        m = input f32[5,7]
        y = Attention(q, kr, vr, m) {scale=0.5} -> f32[2,12,5,6]
        outputs(y)
      )"},
      {"a mask of images", R"(
        m = input f32[2,1,1,7]
        y = Attention(q, kr, vr, m) {scale=0.5} -> f32[2,12,5,6]
        outputs(y)
      )"},
      {"a constant mask", R"(
        m = const f32[1,1,5,7]
        y = Attention(q, kr, vr, m) {scale=0.5} -> f32[2,12,5,6]
        outputs(y)
      )"},
      {"a mask of heads", R"(
        m = input f32[12,5,7]
        y = Attention(q, kr, vr, m) {scale=0.5} -> f32[2,12,5,6]
        outputs(y)
      )"},
      {"keys that were turned twice", R"(
        kt = Transpose(kr) {perm=[0,1,3,2]} -> f32[2,12,8,7]
        ku = Transpose(kt) {perm=[0,1,3,2]} -> f32[2,12,7,8]
        y = Attention(q, ku, vr) {scale=0.5} -> f32[2,12,5,6]
        outputs(y)
      )"},
      {"products", R"(
        kt = Transpose(kr) {perm=[0,1,3,2]} -> f32[2,12,8,7]
        s = MatMul(q, kt) -> f32[2,12,5,7]
        w = Softmax(s) {axes=[3,3]} -> f32[2,12,5,7]
        y = MatMul(w, vr) -> f32[2,12,5,6]
        outputs(y)
      )"},
      {"a product of turned keys", R"(
        s = MatMul(q, kr) {trans_b=1} -> f32[2,12,5,7]
        y = MatMul(s, vr) -> f32[2,12,5,6]
        outputs(y)
      )"},
      {"values that are not repeated", R"(
        z = input f32[2,12,7,3]
        y = Attention(q, kr, z) {scale=0.5} -> f32[2,12,5,3]
        outputs(y)
      )"},
      {"values of one head", R"(
        z = input f32[2,1,7,3]
        ze = Elementwise(z) {identity(i0)} -> f32[2,12,7,3]
        y = Attention(q, kr, ze) {scale=0.5} -> f32[2,12,5,3]
        outputs(y)
      )"},
      {"no images", R"(
        p = input f32[12,5,8]
        l = input f32[3,1,7,8]
        le = Elementwise(l) {identity(i0)} -> f32[3,4,7,8]
        lr = Reshape(le) -> f32[12,7,8]
        y = MatMul(p, lr) {trans_b=1} -> f32[12,5,7]
        outputs(y)
      )"},
      {"one head of keys", R"(
        l = input f32[2,1,7,8]
        le = Elementwise(l) {identity(i0)} -> f32[2,12,7,8]
        y = MatMul(q, le) {trans_b=1} -> f32[2,12,5,7]
        outputs(y)
      )"},
  };
  for (const Row& row : rows) {
    INFO(row.why);
    CHECK(copies(grouped(std::string(kHead) + row.text)) == 0);
  }
}

// The Reshape behind the repetition only takes a dimension of one element away there.
TEST_CASE("one head of keys and values is for all queries") {
  const Graph made = grouped(R"(
    q = input f32[1,12,5,8]
    k = input f32[1,1,7,8]
    v = input f32[1,1,7,6]
    ka = Reshape(k) -> f32[1,1,1,7,8]
    ke = Elementwise(ka) {identity(i0)} -> f32[1,1,12,7,8]
    kr = Reshape(ke) -> f32[1,12,7,8]
    va = Reshape(v) -> f32[1,1,1,7,6]
    ve = Elementwise(va) {identity(i0)} -> f32[1,1,12,7,6]
    vr = Reshape(ve) -> f32[1,12,7,6]
    y = Attention(q, kr, vr) {scale=0.5} -> f32[1,12,5,6]
    outputs(y)
  )");
  CHECK(copies(made) == 0);
}

TEST_CASE("the heads of a group are next to each other") {
  const Graph made = grouped(std::string(kHead) + "y = Attention(q, kr, vr) {scale=0.5} -> f32[2,12,5,6]\noutputs(y)\n");
  const auto attention =
      std::find_if(made.rops.begin(), made.rops.end(), [](const ROperator& rop) { return std::holds_alternative<Attention>(rop.attrs); });
  REQUIRE(attention != made.rops.end());
  CHECK(made.tensor(attention->inputs[0]).shape == Shape{2, 3, 4, 5, 8});
  CHECK(made.tensor(attention->inputs[1]).name == "ka");
  CHECK(made.tensor(attention->inputs[2]).name == "va");
  CHECK(made.tensor(attention->outputs[0]).shape == Shape{2, 3, 4, 5, 6});
}

TEST_CASE("what is no group of heads stays") {
  const Row rows[] = {
      {"heads that take turns", R"(
        l = Reshape(k) -> f32[2,1,3,7,8]
        le = Elementwise(l) {identity(i0)} -> f32[2,4,3,7,8]
        lr = Reshape(le) -> f32[2,12,7,8]
        y = MatMul(q, lr) {trans_b=1} -> f32[2,12,5,7]
        outputs(y)
      )"},
      {"the repetition makes the result larger", R"(
        p = input f32[2,1,5,8]
        y = MatMul(p, kr) {trans_b=1} -> f32[2,12,5,7]
        le = Elementwise(p) {identity(i0)} -> f32[2,12,5,8]
        z = MatMul(le, p) {trans_b=1} -> f32[2,12,5,5]
        outputs(z)
      )"},
      {"groups of two sizes", R"(
        l = input f32[2,4,1,7,6]
        le = Elementwise(l) {identity(i0)} -> f32[2,4,3,7,6]
        lr = Reshape(le) -> f32[2,12,7,6]
        y = Attention(q, kr, lr) {scale=0.5} -> f32[2,12,5,6]
        outputs(y)
      )"},
      {"repeated keys of a head", R"(
        l = input f32[2,12,1,8]
        le = Elementwise(l) {identity(i0)} -> f32[2,12,7,8]
        y = MatMul(q, le) {trans_b=1} -> f32[2,12,5,7]
        outputs(y)
      )"},
      {"more dimensions than bodies loop over", R"(
        p = input f32[2,1,3,12,5,8]
        l = input f32[2,1,3,3,1,7,8]
        le = Elementwise(l) {identity(i0)} -> f32[2,1,3,3,4,7,8]
        lr = Reshape(le) -> f32[2,1,3,12,7,8]
        y = MatMul(p, lr) {trans_b=1} -> f32[2,1,3,12,5,7]
        outputs(y)
      )"},
      {"more than a repetition", R"(
        l = Reshape(k) -> f32[2,3,1,7,8]
        o = const f32[4,1,1]
        le = Elementwise(l, o) {mul(i0, i1)} -> f32[2,3,4,7,8]
        lr = Reshape(le) -> f32[2,12,7,8]
        y = MatMul(q, lr) {trans_b=1} -> f32[2,12,5,7]
        outputs(y)
      )"},
  };
  for (const Row& row : rows) {
    INFO(row.why);
    const Graph source = remove_dead(parse_graph(std::string(kHead) + row.text));
    CHECK(print(passes::group_queries(source)) == print(source));
  }
}

}  // namespace tamp::test
