// A factor per channel goes into the weights of the product that makes the channels.
#include "compiler/passes/tidy/fold_scales.h"

#include "compiler/passes/fuse/fuse_epilogue.h"
#include "compiler/passes/views/views_last.h"
#include "test/support/check_pass.h"

namespace tamp::test {
namespace {

Graph folded(const std::string& text) {
  const Graph source = parse_graph(text);
  Graph made = passes::fold_scales(source);
  check_pass(source, made);
  return made;
}

}  // namespace

TEST_CASE("a factor per channel behind a Transpose and a bias is one of the weights, and the residual reaches the epilogue") {
  const std::string text = R"(
    x = input f32[1,3,5,8]
    r = input f32[1,6,3,5]
    w = const f32[8,6]
    b = const f32[6]
    s = const f32[6,1,1]
    p = MatMul(x, w) {} -> f32[1,3,5,6]
    a = Elementwise(b, p) {add(i0, i1)} -> f32[1,3,5,6]
    t = Transpose(a) {perm=[0,3,1,2]} -> f32[1,6,3,5]
    m = Elementwise(s, t) {mul(i0, i1)} -> f32[1,6,3,5]
    y = Elementwise(m, r) {add(i0, i1)} -> f32[1,6,3,5]
    outputs(y)
  )";
  const Graph made = folded(text);
  CHECK(count_rops(made, "Elementwise") == 2);
  const Graph moved = passes::views_last(made);
  check_pass(made, moved);
  const Graph fused = passes::fuse_epilogue(moved);
  CHECK(count_rops(fused, "Elementwise") == 0);
  CHECK(count_rops(fused, "MatMul") == 1);
}

TEST_CASE("biases in epilogues, transposed weights, convolutions and several factors are scaled, too") {
  CHECK(folded(R"(
    x = input f32[3,8]
    w = const f32[6,8]
    b = const f32[6]
    s = const f32[6]
    c = const f32[] {3}
    p = MatMul(x, w) {trans_b=1} epilogue{bias=b} -> f32[3,6]
    m = Elementwise(p, s) {mul(i0, i1)} -> f32[3,6]
    y = Elementwise(m, c) {mul(i0, i1)} -> f32[3,6]
    z = Elementwise(y) {relu(i0)} -> f32[3,6]
    outputs(z)
  )")
            .rops.size() == 2);
  CHECK(folded(R"(
    x = input f32[1,4,5,5]
    w = const f32[6,4,3,3]
    b = const f32[6,1,1]
    s = const f32[1,6,1,1]
    p = Conv(x, w) {kernel=[3,3]} -> f32[1,6,3,3]
    a = Elementwise(p, b) {add(i0, i1)} -> f32[1,6,3,3]
    m = Elementwise(a, s) {mul(i0, i1)} -> f32[1,6,3,3]
    z = Elementwise(m) {relu(i0)} -> f32[1,6,3,3]
    outputs(z)
  )")
            .rops.size() == 3);
}

TEST_CASE("a factor stays where it varies along rows, or where somebody else reads the product") {
  const auto text = [](const std::string& scale, const std::string& more, const std::string& outputs) {
    return "x = input f32[3,8]\nw = const f32[8,6]\ns = const f32" + scale + "\np = MatMul(x, w) {} -> f32[3,6]\n" + more +
           "m = Elementwise(p, s) {mul(i0, i1)} -> f32[3,6]\ny = Elementwise(m) {relu(i0)} -> f32[3,6]\noutputs(" + outputs + ")\n";
  };
  CHECK(folded(text("[6]", "", "y")).rops.size() == 2);
  CHECK(folded(text("[3,1]", "", "y")).rops.size() == 3);
  CHECK(folded(text("[6]", "", "y, p")).rops.size() == 3);
  CHECK(folded(text("[6]", "", "y, m")).rops.size() == 3);
}

TEST_CASE("weights that others read as well are scaled for the product alone") {
  const Graph graph = folded(R"(
    x = input f32[3,8]
    w = const f32[8,6]
    s = const f32[6]
    p = MatMul(x, w) {} -> f32[3,6]
    m = Elementwise(p, s) {mul(i0, i1)} -> f32[3,6]
    y = Elementwise(m) {relu(i0)} -> f32[3,6]
    q = MatMul(x, w) {} -> f32[3,6]
    outputs(y, q)
  )");
  CHECK(graph.rops.size() == 3);
}

}  // namespace tamp::test
