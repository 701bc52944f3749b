// Rows of a stage in the order that the normalisation behind it wants them in.
#include "compiler/passes/fuse/order_rows.h"

#include "test/support/check_pass.h"

namespace tamp::test {
namespace {

// Attention of one head within windows by the table, of rows that are normalised.
std::string attention(const std::string& result, const std::string& x, const std::string& windows, int64_t rows) {
  const std::string n = std::to_string(rows), heads = "f32[1," + n + ",32]";
  return "  " + result + " = Fused(" + x + ", w3, b3, " + windows +
         ") {title=attention, steps=[n = Normalize(i0) {axes=[1], epsilon=0.001} -> f32[" + n +
         ",32]; m = MatMul(n, i1) epilogue{bias=i2} -> f32[" + n + ",96]; r = Reshape(m) -> f32[" + n +
         ",3,32]; p = Transpose(r) {perm=[1,0,2]} -> f32[3," + n + ",32]; q = Slice(p) {starts=[0,0,0]} -> " + heads +
         "; k = Slice(p) {starts=[1,0,0]} -> " + heads + "; v = Slice(p) {starts=[2,0,0]} -> " + heads +
         "; e = Attention(q, k, v, none, i3) {scale=0.25} -> " + heads + "; outputs(e)]} -> " + heads + "\n";
}
constexpr size_t kTable = 3;  // place in its operands

// Pixels of a map, attention within windows of 2 x 2, a product with a residual, a chain of two products, and squares of 2 x 2 side by
// side.
const std::string kStage = R"(
  x = input f32[1,32,4,4]
  g = const f32[32]
  h = const f32[32]
  w3 = const f32[32,96]
  b3 = const f32[96]
  w = const f32[32,32]
  v = const f32[32,64]
  w2 = const f32[64,32]
  g4 = const f32[128]
  u = const f32[128,32]
  windows = const i64[4,4] {0, 1, 4, 5, 2, 3, 6, 7, 8, 9, 12, 13, 10, 11, 14, 15}
  squares = const i64[4,4] {0, 4, 1, 5, 2, 6, 3, 7, 8, 12, 9, 13, 10, 14, 11, 15}
  t = Transpose(x) {perm=[0,2,3,1]} -> f32[1,4,4,32]
  r = Normalize(t, g, h) {axes=[3], epsilon=0.001} -> f32[1,4,4,32]
  r1 = Reshape(r) -> f32[16,32]
)" + attention("a", "r1", "windows", 16) +
                           R"(  a1 = Transpose(a) {perm=[1,0,2]} -> f32[16,1,32]
  a2 = Reshape(a1) -> f32[1,4,4,32]
  p = MatMul(a2, w) epilogue{bias=h, residual=r} -> f32[1,4,4,32]
  n = Normalize(p, g, h) {axes=[3], epsilon=0.001} -> f32[1,4,4,32]
  f = Fused(n, v, w2, p) {title=chain, steps=[s = MatMul(i0, i1) epilogue{act=gelu} -> f32[1,4,4,64]; e = MatMul(s, i2) epilogue{residual=i3} -> f32[1,4,4,32]; outputs(e)]} -> f32[1,4,4,32]
  z = Reshape(f) -> f32[16,32]
  m = Normalize(z, g4, none, squares) {axes=[1], epsilon=0.001} -> f32[4,128]
  y = MatMul(m, u) -> f32[4,32]
  outputs(y)
)";
// The stage behind it, with windows of its own, and two of its rows side by side.
const std::string kNext = R"(
  windows2 = const i64[2,2] {0, 3, 1, 2}
  pairs = const i64[2,2] {0, 2, 1, 3}
  u2 = const f32[64,8]
)" + attention("c", "y", "windows2", 4) +
                          R"(  c1 = Transpose(c) {perm=[1,0,2]} -> f32[4,1,32]
  c2 = Reshape(c1) -> f32[4,32]
  d = MatMul(c2, w) epilogue{residual=y} -> f32[4,32]
  m2 = Normalize(d, none, none, pairs) {axes=[1], epsilon=0.001} -> f32[2,64]
  y2 = MatMul(m2, u2) -> f32[2,8]
  outputs(y2)
)";

const std::vector<int64_t> kSquares = {0, 4, 1, 5, 2, 6, 3, 7, 8, 12, 9, 13, 10, 14, 11, 15};

Graph ordered(const std::string& text) {
  const Graph source = parse_graph(text);
  Graph made = passes::order_rows(source);
  check_pass(source, made);
  return made;
}

std::vector<int64_t> values_of(const Graph& graph, TensorId id) {
  const Tensor& table = graph.tensor(id);
  return {i64_data(table), i64_data(table) + element_count(table.shape)};
}

const ROperator& rop_named(const Graph& graph, const std::string& name) {
  for (const ROperator& rop : graph.rops) {
    if (rop.name == name) return rop;
  }
  FAIL("no rOperator '" + name + "'");
  return graph.rops[0];
}

bool stays(const std::string& text) {
  const Graph source = parse_graph(text);
  return print(passes::order_rows(source)) == print(source);
}

}  // namespace

TEST_CASE("a stage between a map's pixels and rows side by side is in the order of these") {
  const Graph made = ordered(kStage);
  const ROperator &first = rop_named(made, "r"), &attention = rop_named(made, "a"), &last = rop_named(made, "m");
  CHECK(last.inputs.size() == 2);
  CHECK(made.tensor(last.inputs[0]).shape == Shape{4, 128});
  REQUIRE(first.inputs.size() == kNormalizeRows + 1);
  CHECK(values_of(made, first.inputs[kNormalizeRows]) == kSquares);
  CHECK(std::get<Normalize>(first.attrs).axes == std::vector<int64_t>{1});
  // Pixels 0, 1, 4 and 5 of the first window are rows 0, 2, 1 and 3.
  CHECK(values_of(made, attention.inputs[kTable]) == std::vector<int64_t>{0, 2, 1, 3, 4, 6, 5, 7, 8, 10, 9, 11, 12, 14, 13, 15});
  CHECK(made.tensor(attention.inputs[kTable]).shape == Shape{4, 4});
}

TEST_CASE("the order of a stage is in terms of the order of the stage behind it") {
  const Graph made = ordered(swapped(kStage, "outputs(y)\n", "") + kNext);
  CHECK(rop_named(made, "m2").inputs.size() == 1);
  CHECK(rop_named(made, "m").inputs.size() == 2);
  CHECK(values_of(made, rop_named(made, "c").inputs[kTable]) == std::vector<int64_t>{0, 3, 2, 1});
  // The second of the rows behind is the third square.
  CHECK(values_of(made, rop_named(made, "r").inputs[kNormalizeRows]) ==
        std::vector<int64_t>{0, 4, 1, 5, 8, 12, 9, 13, 2, 6, 3, 7, 10, 14, 11, 15});
}

TEST_CASE("other normalisations take the rows where they are now") {
  const Graph made = ordered(swapped(kStage, "outputs(y)", R"(some = const i64[2,2] {15, 1, 1, 6}
  e = Normalize(z, none, none, some) {axes=[1]} -> f32[2,64]
  outputs(y, e))"));
  CHECK(rop_named(made, "m").inputs.size() == 2);
  CHECK(values_of(made, rop_named(made, "e").inputs[kNormalizeRows]) == std::vector<int64_t>{15, 2, 2, 5});
  // The rows of the stage in front, of which a stage takes some and some twice, may begin it.
  const Graph begun = ordered(swapped(kStage, R"(r = Normalize(t, g, h) {axes=[3], epsilon=0.001} -> f32[1,4,4,32]
  r1 = Reshape(r) -> f32[16,32])",
                                      R"(t1 = Reshape(t) -> f32[16,32]
  mixed = const i64[16] {3, 3, 1, 2, 4, 5, 15, 7, 8, 9, 10, 11, 12, 13, 14, 0}
  r1 = Normalize(t1, g, h, mixed) {axes=[1]} -> f32[16,32]
  r = Reshape(r1) -> f32[1,4,4,32])"));
  CHECK(rop_named(begun, "m").inputs.size() == 2);
  CHECK(values_of(begun, rop_named(begun, "r1").inputs[kNormalizeRows]) ==
        std::vector<int64_t>{3, 4, 3, 5, 1, 15, 2, 7, 8, 12, 9, 13, 10, 14, 11, 0});
}

TEST_CASE("a stage whose rows something else tells apart keeps their order") {
  CHECK_FALSE(stays(kStage));
  const struct {
    const char* why;
    std::string text;
  } rows[] = {
      {"rows are an output", swapped(kStage, "outputs(y)", "outputs(y, p)")},
      {"a view of them is", swapped(kStage, "outputs(y)", "outputs(y, a1)")},
      {"something works along them", swapped(kStage, "outputs(y)", "s = Softmax(z) {axes=[0,1]} -> f32[16,32]\n  outputs(y, s)")},
      {"a part of them is read", swapped(kStage, "outputs(y)", "s = Slice(z) {starts=[2,0]} -> f32[3,32]\n  outputs(y, s)")},
      {"they are weights of a product", swapped(kStage, "outputs(y)", "s = MatMul(u, z) {trans_b=1} -> f32[128,16]\n  outputs(y, s)")},
      {"a residual from outside",
       swapped(swapped(kStage, "g = const f32[32]", "g = const f32[32]\n  o = input f32[1,4,4,32]"), "residual=r}", "residual=o}")},
      {"they begin with a product", swapped(kStage, "r = Normalize(t, g, h) {axes=[3], epsilon=0.001}", "r = MatMul(t, w)")},
      {"a row comes twice", swapped(kStage, "{0, 4, 1, 5, 2,", "{0, 4, 1, 5, 5,")},
      {"some rows alone are side by side",
       swapped(swapped(swapped(kStage, "i64[4,4] {0, 4, 1, 5, 2, 6, 3, 7, 8,", "i64[2,4] {8,"), "f32[4,128]", "f32[2,128]"),
               "y = MatMul(m, u) -> f32[4,32]", "y = MatMul(m, u) -> f32[2,32]")},
  };
  for (const auto& row : rows) {
    INFO(row.why);
    CHECK(stays(row.text));
  }
}

}  // namespace tamp::test
