// Steps behind views of a product come before the views, where an epilogue finds them.
#include "compiler/passes/views/views_last.h"

#include "compiler/passes/fuse/fuse_epilogue.h"
#include "test/support/check_pass.h"

namespace tamp::test {
namespace {

Graph moved(const std::string& text) {
  const Graph source = parse_graph(text);
  Graph made = passes::views_last(source);
  check_pass(source, made);
  return made;
}

}  // namespace

TEST_CASE("bias, residual and activation reach the epilogue of a product behind views that move nothing") {
  const Graph made = moved(R"(
    x = input f32[1,5,8]
    r = input f32[1,5,6]
    w = const f32[8,6]
    b = const f32[6]
    f = Reshape(x) -> f32[5,8]
    p = MatMul(f, w) {} -> f32[5,6]
    v = Reshape(p) -> f32[5,1,6]
    t = Transpose(v) {perm=[1,0,2]} -> f32[1,5,6]
    a = Elementwise(t, b) {add(i0, i1)} -> f32[1,5,6]
    s = Elementwise(r, a) {add(i0, i1)} -> f32[1,5,6]
    y = Elementwise(s) {relu(i0)} -> f32[1,5,6]
    outputs(y)
  )");
  const Graph fused = passes::fuse_epilogue(made);
  CHECK(count_rops(fused, "Elementwise") == 0);
  CHECK(count_rops(fused, "MatMul") == 1);
}

TEST_CASE("of two products behind views one is moved") {
  const Graph made = moved(R"(
    x = input f32[5,8]
    w = const f32[8,6]
    u = const f32[8,6]
    p = MatMul(x, w) {} -> f32[5,6]
    q = MatMul(x, u) {} -> f32[5,6]
    v = Reshape(p) -> f32[1,5,6]
    t = Reshape(q) -> f32[1,5,6]
    y = Elementwise(v, t) {add(i0, i1)} -> f32[1,5,6]
    outputs(y)
  )");
  CHECK(count_rops(made, "MatMul") == 2);
  CHECK(count_rops(passes::fuse_epilogue(made), "Elementwise") == 0);
}

TEST_CASE("views that move elements, or that others read, stay where they are") {
  const auto text = [](const std::string& view, const std::string& outputs) {
    return "x = input f32[4,8]\nr = input f32[6,4]\nw = const f32[8,6]\np = MatMul(x, w) {} -> f32[4,6]\n" + view +
           "y = Elementwise(v, r) {add(i0, i1)} -> f32[6,4]\n" + outputs + "\n";
  };
  const std::string turned = "v = Transpose(p) {perm=[1,0]} -> f32[6,4]\n", reshaped = "v = Reshape(p) -> f32[6,4]\n";
  const std::string halves = "u = Transpose(p) {perm=[1,0]} -> f32[6,4]\nh = Reshape(u) -> f32[2,3,4]\nv = Reshape(h) -> f32[6,4]\n";
  CHECK(moved(text(halves, "outputs(y)")).rops.size() == 5);
  CHECK(moved(text(reshaped, "outputs(y, v)")).rops.size() == 3);
  CHECK(moved(text(reshaped, "outputs(y)")).rops.size() == 4);
}

TEST_CASE("a sum or an activation goes through Transposes, and what is added is turned back") {
  const auto text = [](const std::string& step) {
    return R"(
    x = input f32[1,3,5,8]
    r = input f32[1,6,3,5]
    w = const f32[8,6]
    p = MatMul(x, w) {} -> f32[1,3,5,6]
    t = Transpose(p) {perm=[0,2,3,1]} -> f32[1,5,6,3]
    u = Transpose(t) {perm=[0,2,3,1]} -> f32[1,6,3,5]
    y = Elementwise(r, u) {)" +
           step + R"((i0, i1)} -> f32[1,6,3,5]
    z = Elementwise(y) {relu(i0)} -> f32[1,6,3,5]
    outputs(z)
  )";
  };
  CHECK(count_rops(passes::fuse_epilogue(moved(text("add"))), "Elementwise") == 0);
  // A product with r is no part of an epilogue.
  CHECK(count_rops(passes::fuse_epilogue(moved(text("mul"))), "Elementwise") == 2);
}

TEST_CASE("a scalar follows, a vector only along the last dimension of both") {
  const auto text = [](const std::string& other, const std::string& shape) {
    return "x = input f32[4,8]\no = input f32" + other + "\nw = const f32[8,6]\np = MatMul(x, w) {} -> f32[4,6]\nv = Reshape(p) -> f32" +
           shape + "\ny = Elementwise(v, o) {mul(i0, i1)} -> f32" + shape + "\noutputs(y)\n";
  };
  const auto is_moved = [](const Graph& graph) { return std::holds_alternative<Reshape>(graph.rops.back().attrs); };
  CHECK(is_moved(moved(text("[]", "[1,4,6]"))));
  CHECK(is_moved(moved(text("[1,1,1]", "[1,4,6]"))));
  CHECK(is_moved(moved(text("[6]", "[1,4,6]"))));
  CHECK(is_moved(moved(text("[1,4,6]", "[1,4,6]"))));
  CHECK_FALSE(is_moved(moved(text("[3]", "[8,3]"))));
  CHECK_FALSE(is_moved(moved(text("[4,1]", "[1,4,6]"))));
}

}  // namespace tamp::test
