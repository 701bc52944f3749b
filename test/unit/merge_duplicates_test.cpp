// Of rOperators that do the same with the same operands, one is kept.
#include "compiler/passes/tidy/merge_duplicates.h"

#include "test/support/check_pass.h"

namespace tamp::test {
namespace {

Graph merged(const std::string& text) {
  const Graph source = parse_graph(text);
  Graph made = passes::merge_duplicates(source);
  check_pass(source, made);
  return made;
}

// Two layers, each with a mask of its own: `first` and `second` make masks a and b.
std::string layers(const std::string& first, const std::string& second, const std::string& outputs = "y, z") {
  return "g = input f32[1,6]\nx = input f32[4,6]\nw = input f32[4,6]\nzero = const f32[] {0}\nnought = const f32[] {0}\nmasked = const "
         "f32[1] {-3}\n"
         "lost = const f32[1] {-3}\nother = const f32[1] {-4}\n"
         "kept = Elementwise(g, zero) {greater(i0, i1)} -> bool[1,6]\n" +
         first + "y = Elementwise(x, a) {add(i0, i1)} -> f32[4,6]\n" + second +
         "z = Elementwise(w, b) {add(i0, i1)} -> f32[4,6]\noutputs(" + outputs + ")\n";
}

constexpr const char* kFirst = "a = Elementwise(kept, zero, masked) {where(i0, i1, i2)} -> f32[1,6]\n";

}  // namespace

TEST_CASE("two masks of the same keys are made once, also with constants of their own") {
  CHECK(merged(layers(kFirst, "b = Elementwise(kept, zero, masked) {where(i0, i1, i2)} -> f32[1,6]\n")).rops.size() == 4);
  CHECK(merged(layers(kFirst, "b = Elementwise(kept, nought, lost) {where(i0, i1, i2)} -> f32[1,6]\n")).rops.size() == 4);
}

TEST_CASE("what reads merged values is merged, too") {
  const Graph made = merged(
      layers("c = Elementwise(kept) {logical_not(i0)} -> bool[1,6]\na = Elementwise(c, zero, masked) {where(i0, i1, i2)} -> f32[1,6]\n",
             "d = Elementwise(kept) {logical_not(i0)} -> bool[1,6]\nb = Elementwise(d, nought, lost) {where(i0, i1, i2)} -> f32[1,6]\n"));
  CHECK(made.rops.size() == 5);
}

TEST_CASE("another constant, order or epilogue is another value") {
  for (const std::string second : {"b = Elementwise(kept, zero, other) {where(i0, i1, i2)} -> f32[1,6]\n",
                                   "b = Elementwise(kept, masked, zero) {where(i0, i1, i2)} -> f32[1,6]\n"}) {
    CAPTURE(second);
    CHECK(merged(layers(kFirst, second)).rops.size() == 5);
  }
  const Graph products = merged(R"(
    x = input f32[4,6]
    w = const f32[6,5]
    b = const f32[5]
    p = MatMul(x, w) {} -> f32[4,5]
    q = MatMul(x, w) {} epilogue{bias=b} -> f32[4,5]
    r = MatMul(x, w) {} epilogue{bias=b} -> f32[4,5]
    s = Elementwise(p, q, r) {add(i0, i1), add(s0, i2)} -> f32[4,5]
    outputs(s)
  )");
  CHECK(count_rops(products, "MatMul") == 2);
}

TEST_CASE("graph outputs stay two places in memory") {
  const std::string same = "b = Elementwise(kept, zero, masked) {where(i0, i1, i2)} -> f32[1,6]\n";
  CHECK(merged(layers(kFirst, same, "y, z, b")).rops.size() == 5);
  CHECK(merged(layers(kFirst, same, "y, z, a")).rops.size() == 4);
}

}  // namespace tamp::test
