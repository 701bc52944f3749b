// Rows that are put into another order, between work on each row alone.
#include "compiler/passes/move_rows.h"

#include "test/support/check_pass.h"

namespace tamp::test {
namespace {

Graph moved(const Graph& source) {
  Graph made = passes::move_rows(source);
  check_pass(source, made);
  return made;
}

// What a block of shifted windows does: rolled by one pixel both ways and cut into windows of 2 x 2, work on each window, and back.
std::string block(const std::string& x, const std::string& y, const std::string& n, int shift) {
  const std::string map = " -> f32[1,4,4,32]\n", cut = " -> f32[1,2,2,2,2,32]\n", windows = " -> f32[4,4,32]\n";
  const auto roll = [&](const std::string& from, const std::string& to, int by) {
    const std::string s = std::to_string(by), rest = std::to_string(4 - by);
    return n + to + "a = Slice(" + from + ") {starts=[0," + s + ",0,0]} -> f32[1," + rest + ",4,32]\n" +     //
           n + to + "b = Slice(" + from + ") {starts=[0,0,0,0]} -> f32[1," + s + ",4,32]\n" +                //
           n + to + "c = Concat(" + n + to + "a, " + n + to + "b) {axis=1}" + map +                          //
           n + to + "d = Slice(" + n + to + "c) {starts=[0,0," + s + ",0]} -> f32[1,4," + rest + ",32]\n" +  //
           n + to + "e = Slice(" + n + to + "c) {starts=[0,0,0,0]} -> f32[1,4," + s + ",32]\n" +             //
           n + to + " = Concat(" + n + to + "d, " + n + to + "e) {axis=2}" + map;
  };
  std::string text = n + "n = Normalize(" + x + ", g, b) {axes=[3]}" + map;
  if (shift > 0) text += roll(n + "n", "r", shift);
  text += n + "v = Reshape(" + n + (shift > 0 ? "r)" : "n)") + cut + n + "t = Transpose(" + n + "v) {perm=[0,1,3,2,4,5]}" + cut +  //
          n + "f = Reshape(" + n + "t)" + windows +                                                                                //
          n + "q = MatMul(" + n + "f, w) {} -> f32[4,4,32]\n" +                                                                    //
          n + "s = Softmax(" + n + "q) {axes=[1,1]}" + windows +                                                         // not row by row
          n + "p = MatMul(" + n + "s, w) {}" + windows + n + "z = Elementwise(" + n + "p, b) {add(i0, i1)}" + windows +  //
          n + "u = Reshape(" + n + "z)" + cut + n + "k = Transpose(" + n + "u) {perm=[0,1,3,2,4,5]}" + cut + n + "m = Reshape(" + n + "k)" +
          map;
  if (shift > 0) text += roll(n + "m", "o", 4 - shift);
  return text + y + " = Elementwise(" + x + ", " + n + (shift > 0 ? "o" : "m") + ") {add(i0, i1)}" + map;
}

const char* const kOperands = R"(
  i = input f32[1,4,4,32]
  w = const f32[32,32]
  g = const f32[32]
  b = const f32[32]
  x = Normalize(i, g, b) {axes=[3]} -> f32[1,4,4,32]
)";

int count_tables(const Graph& graph) {
  int found = 0;
  for (const ROperator& rop : graph.rops) found += std::holds_alternative<Normalize>(rop.attrs) && rop.inputs.size() > kNormalizeRows;
  return found;
}

}  // namespace

TEST_CASE("windows are read by the normalisation in front of them, and sums stay in their order") {
  const Graph made = moved(parse_graph(kOperands + block("x", "y", "1", 1) + block("y", "h", "2", 0) + "outputs(h)\n"));
  CHECK(count_rops(made, "Concat") == 0);
  CHECK(count_rops(made, "Slice") == 0);
  CHECK(count_tables(made) == 2);
  // One residual for each block, and the result.
  CHECK(count_rops(made, "Gather") == 3);
}

TEST_CASE("an order and its inverse are nothing") {
  const Graph made = moved(parse_graph(kOperands + block("x", "y", "1", 1) + block("y", "h", "2", 1) + "outputs(h)\n"));
  CHECK(count_tables(made) == 1);
  CHECK(count_rops(made, "Gather") == 2);
}

TEST_CASE("rows of rows that were moved are taken at once") {
  const Graph made = moved(parse_graph(kOperands + block("x", "y", "1", 0) + R"(
    a = Slice(y) {starts=[0,0,0,0], steps=[1,2,2,1]} -> f32[1,2,2,32]
    c = Slice(y) {starts=[0,1,1,0], steps=[1,2,2,1]} -> f32[1,2,2,32]
    d = Concat(a, c) {axis=3} -> f32[1,2,2,64]
    e = Softmax(d) {axes=[1,1]} -> f32[1,2,2,64]
    outputs(e)
  )"));
  CHECK(count_rops(made, "Concat") == 0);
  CHECK(count_rops(made, "Gather") == 2);
}

TEST_CASE("what strides can say, short rows, and rows of several tensors stay as they are") {
  const auto stays = [](const std::string& text) {
    const Graph source = parse_graph(text);
    return print(passes::move_rows(source)) == print(source);
  };
  CHECK(stays(std::string(kOperands) + R"(
    v = Reshape(x) -> f32[4,4,32]
    t = Transpose(v) {perm=[1,0,2]} -> f32[4,4,32]
    y = MatMul(t, w) {} -> f32[4,4,32]
    outputs(y)
  )"));
  CHECK(stays(R"(
    i = input f32[4,4,8]
    x = Normalize(i) {axes=[2]} -> f32[4,4,8]
    t = Transpose(x) {perm=[1,0,2]} -> f32[4,4,8]
    v = Reshape(t) -> f32[16,8]
    y = Normalize(v) {axes=[1]} -> f32[16,8]
    outputs(y)
  )"));
  CHECK(stays(std::string(kOperands) + R"(
    z = MatMul(x, w) {} -> f32[1,4,4,32]
    c = Concat(x, z) {axis=1} -> f32[1,8,4,32]
    y = MatMul(c, w) {} -> f32[1,8,4,32]
    outputs(y)
  )"));
}

}  // namespace tamp::test
