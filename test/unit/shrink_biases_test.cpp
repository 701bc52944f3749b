// A bias of attention is made once for all queries or heads for which it is the same.
#include "compiler/passes/tidy/shrink_biases.h"

#include "test/support/check_pass.h"

namespace tamp::test {
namespace {

// Attention of 2 images, 3 heads, 4 queries and 6 keys, with `mask` making the bias b.
Graph shrunk(const std::string& mask, const std::string& outputs = "y") {
  const Graph source = parse_graph(R"(
    q = input f32[2,3,4,8]
    k = input f32[2,3,6,8]
    v = input f32[2,3,6,8]
)" + mask + R"(
    y = Attention(q, k, v, b) {scale=0.5} -> f32[2,3,4,8]
    outputs()" + outputs + ")\n");
  Graph made = passes::shrink_biases(source);
  check_pass(source, made);
  return made;
}

Shape shape_of_bias(const Graph& graph) {
  for (const ROperator& rop : graph.rops) {
    if (std::holds_alternative<Attention>(rop.attrs)) return graph.tensor(rop.inputs[3]).shape;
  }
  return {};
}

}  // namespace

TEST_CASE("a mask of keys that is written out for every query and every head becomes one row an image") {
  CHECK(shape_of_bias(shrunk(R"(
    m = input f32[2,1,1,6]
    b = Elementwise(m) {identity(i0)} -> f32[2,3,4,6]
  )")) == Shape{2, 1, 1, 6});
}

TEST_CASE("a constant with the same values for every query counts as one row, a constant with others does not") {
  CHECK(shape_of_bias(shrunk(R"(
    m = input f32[2,1,1,6]
    c = const f32[4,1] {2, 2, 2, 2}
    b = Elementwise(m, c) {add(i0, i1)} -> f32[2,1,4,6]
  )")) == Shape{2, 1, 1, 6});
  CHECK(shape_of_bias(shrunk(R"(
    m = input f32[2,1,1,6]
    c = const f32[4,1] {2, 2, 2, 3}
    b = Elementwise(m, c) {add(i0, i1)} -> f32[2,1,4,6]
  )")) == Shape{2, 1, 4, 6});
  CHECK(shape_of_bias(shrunk(R"(
    m = input f32[2,1,1,6]
    c = const f32[3,4,1] {1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3}
    b = Elementwise(m, c) {add(i0, i1)} -> f32[2,3,4,6]
  )")) == Shape{2, 3, 1, 6});
}

TEST_CASE("a bias that differs from query to query, or that something else reads, stays as it is") {
  CHECK(shape_of_bias(shrunk(R"(
    m = input f32[2,1,4,6]
    b = Elementwise(m) {relu(i0)} -> f32[2,1,4,6]
  )")) == Shape{2, 1, 4, 6});
  const std::string mask = R"(
    m = input f32[2,1,1,6]
    b = Elementwise(m) {identity(i0)} -> f32[2,1,4,6]
  )";
  CHECK(shape_of_bias(shrunk(mask, "y, b")) == Shape{2, 1, 4, 6});
  CHECK(shape_of_bias(shrunk(mask + "    z = Elementwise(b) {relu(i0)} -> f32[2,1,4,6]\n", "y, z")) == Shape{2, 1, 4, 6});
}

}  // namespace tamp::test
