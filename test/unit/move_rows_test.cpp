// Rows that are put into another order, between work on each row alone.
#include "compiler/passes/views/move_rows.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <random>

#include "compiler/passes/place/assign_layout.h"
#include "compiler/passes/views/channels_stay_last.h"
#include "test/support/check_pass.h"

namespace tamp::test {
namespace {

std::optional<Estimate> any_rkernel(const Graph&, const ROperator&) { return Estimate{1}; }

Graph moved(const Graph& source, const Estimator& estimator = any_rkernel) {
  Graph made = passes::move_rows(source, estimator);
  check_pass(source, made);
  return made;
}

// A map that is rolled by some pixels both ways.
std::string rolled(const std::string& from, const std::string& to, int by) {
  const std::string map = " -> f32[1,4,4,32]\n", s = std::to_string(by), rest = std::to_string(4 - by);
  return to + "a = Slice(" + from + ") {starts=[0," + s + ",0,0]} -> f32[1," + rest + ",4,32]\n" +  //
         to + "b = Slice(" + from + ") {starts=[0,0,0,0]} -> f32[1," + s + ",4,32]\n" +             //
         to + "c = Concat(" + to + "a, " + to + "b) {axis=1}" + map +                               //
         to + "d = Slice(" + to + "c) {starts=[0,0," + s + ",0]} -> f32[1,4," + rest + ",32]\n" +   //
         to + "e = Slice(" + to + "c) {starts=[0,0,0,0]} -> f32[1,4," + s + ",32]\n" +              //
         to + " = Concat(" + to + "d, " + to + "e) {axis=2}" + map;
}

// What a block of shifted windows does: rolled by one pixel both ways and cut into windows of 2 x 2, work on each window, and back.
std::string block(const std::string& x, const std::string& y, const std::string& n, int shift) {
  const std::string map = " -> f32[1,4,4,32]\n", cut = " -> f32[1,2,2,2,2,32]\n", windows = " -> f32[4,4,32]\n";
  std::string text = n + "n = Normalize(" + x + ", g, b) {axes=[3]}" + map;
  if (shift > 0) text += rolled(n + "n", n + "r", shift);
  text += n + "v = Reshape(" + n + (shift > 0 ? "r)" : "n)") + cut + n + "t = Transpose(" + n + "v) {perm=[0,1,3,2,4,5]}" + cut +  //
          n + "f = Reshape(" + n + "t)" + windows +                                                                                //
          n + "q = MatMul(" + n + "f, w) {} -> f32[4,4,32]\n" +                                                                    //
          n + "s = Softmax(" + n + "q) {axes=[1,1]}" + windows +                                                         // not row by row
          n + "p = MatMul(" + n + "s, w) {}" + windows + n + "z = Elementwise(" + n + "p, b) {add(i0, i1)}" + windows +  //
          n + "u = Reshape(" + n + "z)" + cut + n + "k = Transpose(" + n + "u) {perm=[0,1,3,2,4,5]}" + cut + n + "m = Reshape(" + n + "k)" +
          map;
  if (shift > 0) text += rolled(n + "m", n + "o", 4 - shift);
  return text + y + " = Elementwise(" + x + ", " + n + (shift > 0 ? "o" : "m") + ") {add(i0, i1)}" + map;
}

const char* const kOperands = R"(
  i = input f32[1,4,4,32]
  w = const f32[32,32]
  g = const f32[32]
  b = const f32[32]
  x = Normalize(i, g, b) {axes=[3]} -> f32[1,4,4,32]
)";

std::string list(const std::vector<int64_t>& values) { return fmt::format("[{}]", fmt::join(values, ",")); }

int count_tables(const Graph& graph) {
  int found = 0;
  for (const ROperator& rop : graph.rops) found += std::holds_alternative<Normalize>(rop.attrs) && rop.inputs.size() > kNormalizeRows;
  return found;
}

// A block of Swin: what `block` does, with attention within each window, where `attended` makes its result, f32[4,4,32], of the windows'
// rows, f32[4,4,32].
std::string swin_block(const std::string& x, const std::string& y, const std::string& n, int shift, const std::string& attended) {
  const std::string map = " -> f32[1,4,4,32]\n", cut = " -> f32[1,2,2,2,2,32]\n", windows = " -> f32[4,4,32]\n";
  std::string text = n + "n = Normalize(" + x + ", g, b) {axes=[3]}" + map;
  if (shift > 0) text += rolled(n + "n", n + "r", shift);
  text += n + "v = Reshape(" + n + (shift > 0 ? "r)" : "n)") + cut + n + "t = Transpose(" + n + "v) {perm=[0,1,3,2,4,5]}" + cut + n +
          "f = Reshape(" + n + "t)" + windows;
  std::string inner = attended;
  for (size_t at = 0; (at = inner.find('@', at)) != std::string::npos;) inner.replace(at, 1, n);
  text += inner + n + "p = MatMul(" + n + "j, w) {}" + windows + n + "z = Elementwise(" + n + "p, b) {add(i0, i1)}" + windows + n +
          "u = Reshape(" + n + "z)" + cut + n + "k = Transpose(" + n + "u) {perm=[0,1,3,2,4,5]}" + cut + n + "m = Reshape(" + n + "k)" +
          map;
  if (shift > 0) text += rolled(n + "m", n + "o", 4 - shift);
  text += n + "s = Elementwise(" + x + ", " + n + (shift > 0 ? "o" : "m") + ") {add(i0, i1)}" + map;
  return text + n + "l = Normalize(" + n + "s, g, b) {axes=[3]}" + map + n + "i = MatMul(" + n + "l, w) {}" + map + y + " = Elementwise(" +
         n + "s, " + n + "i) {add(i0, i1)}" + map;
}

// Two heads of 16 columns; queries, keys and values are made by one product. "@" stands for what makes names unique.
const char* const kHeads = R"(
  @q = MatMul(@f, w3) {} -> f32[4,4,96]
  @e = Elementwise(@q, b3) {add(i0, i1)} -> f32[4,4,96]
  @h = Reshape(@e) -> f32[4,4,3,2,16]
  @g = Transpose(@h) {perm=[2,0,3,1,4]} -> f32[3,4,2,4,16]
  @q1 = Slice(@g) {starts=[0,0,0,0,0]} -> f32[1,4,2,4,16]
  @q2 = Reshape(@q1) -> f32[4,2,4,16]
  @k1 = Slice(@g) {starts=[1,0,0,0,0]} -> f32[1,4,2,4,16]
  @k2 = Reshape(@k1) -> f32[4,2,4,16]
  @k3 = Transpose(@k2) {perm=[0,1,3,2]} -> f32[4,2,16,4]
  @k4 = Transpose(@k3) {perm=[0,1,3,2]} -> f32[4,2,4,16]
  @v1 = Slice(@g) {starts=[2,0,0,0,0]} -> f32[1,4,2,4,16]
  @v2 = Reshape(@v1) -> f32[4,2,4,16]
)";
const char* const kJoined = R"(
  @y = Transpose(@a) {perm=[0,2,1,3]} -> f32[4,4,2,16]
  @j = Reshape(@y) -> f32[4,4,32]
)";
const char* const kSwinOperands = R"(
  w3 = const f32[32,96]
  b3 = const f32[96]
  pairs = const f32[1,2,4,4]
  masked = const f32[4,2,4,4]
)";

std::string attention_of(const std::string& bias) {
  return std::string(kHeads) + "  @a = Attention(@q2, @k4, @v2" + bias + ") {scale=0.25} -> f32[4,2,4,16]\n" + kJoined;
}

// The rows that each Attention takes by a table.
std::vector<std::vector<int64_t>> attention_tables(const Graph& graph) {
  std::vector<std::vector<int64_t>> found;
  for (const ROperator& rop : graph.rops) {
    if (!std::holds_alternative<Attention>(rop.attrs) || rop.inputs.size() <= kAttentionRowTable) continue;
    const Tensor& table = graph.tensor(rop.inputs[kAttentionRowTable]);
    found.emplace_back(i64_data(table), i64_data(table) + element_count(table.shape));
  }
  return found;
}

}  // namespace

TEST_CASE("attention within shifted windows takes its rows by a table, and all else stays in the map's order") {
  const Graph source = parse_graph(kOperands + std::string(kSwinOperands) + swin_block("x", "y", "1", 0, attention_of(", pairs")) +
                                   swin_block("y", "h", "2", 1, attention_of(", masked")) + "outputs(h)\n");
  const Graph made = moved(source);
  CHECK(count_rops(made, "Concat") == 0);
  CHECK(count_rops(made, "Gather") == 0);
  CHECK(count_tables(made) == 0);
  const std::vector<std::vector<int64_t>> tables = attention_tables(made);
  REQUIRE(tables.size() == 2);
  CHECK(tables[0] == std::vector<int64_t>{0, 1, 4, 5, 2, 3, 6, 7, 8, 9, 12, 13, 10, 11, 14, 15});
  CHECK(tables[1] == std::vector<int64_t>{5, 6, 9, 10, 7, 4, 11, 8, 13, 14, 1, 2, 15, 12, 3, 0});
  // Queries, keys and values are columns of the product's rows, and heads lie side by side again: nothing is copied.
  const Graph placed = passes::assign_layout(made);
  check_pass(source, placed);
  for (const ROperator& rop : placed.rops) {
    if (!std::holds_alternative<Attention>(rop.attrs)) continue;
    for (size_t i = 0; i < 3; ++i) {
      const Tensor& operand = placed.tensor(rop.inputs[i]);
      CHECK(operand.shape == Shape{2, 16, 16});
      CHECK(operand.place.strides == std::vector<int64_t>{16, 96, 1});
      CHECK(operand.place.offset == static_cast<int64_t>(i) * 32);
    }
    CHECK(placed.tensor(rop.outputs[0]).place.strides == std::vector<int64_t>{16, 32, 1});
  }
}

TEST_CASE("attention by a table is found however its heads are made") {
  const auto tables = [](const std::string& attended, const std::string& constants = "") {
    const Graph source =
        parse_graph(kOperands + std::string(kSwinOperands) + constants + swin_block("x", "y", "1", 1, attended) + "outputs(y)\n");
    const Graph made = moved(source);
    check_pass(source, passes::assign_layout(made));
    CHECK(count_rops(made, "Gather") + count_tables(made) == (attention_tables(made).empty() ? 3 : 0));
    return attention_tables(made).size();
  };
  CHECK(tables(attention_of("")) == 1);
  CHECK(tables(attention_of(", keys"), "keys = const f32[4,1,1,4]\n") == 1);
  CHECK(tables(attention_of(", scores"), "scores = const f32[4,4]\n") == 1);
  CHECK(tables(attention_of(", given"), "given = input f32[2,1,4]\n") == 1);
  const std::string products = R"(
    @q = MatMul(@f, w) {} -> f32[4,4,32]
    @k = MatMul(@f, w) {} -> f32[4,4,32]
    @e = MatMul(@f, w) {} -> f32[4,4,32]
  )";
  // Products of their own for queries, keys and values.
  std::string several = products;
  several.replace(several.find("@k ="), 4, "@K =");
  for (const auto& [from, to] : {std::pair{"@q", "@q2"}, std::pair{"@K", "@k2"}, std::pair{"@e", "@v2"}}) {
    several += fmt::format("{1}r = Reshape({0}) -> f32[4,4,2,16]\n{1} = Transpose({1}r) {{perm=[0,2,1,3]}} -> f32[4,2,4,16]\n", from, to);
  }
  CHECK(tables(several + "@a = Attention(@q2, @k2, @v2, masked) {} -> f32[4,2,4,16]\n" + kJoined) == 1);
  // One head, without a dimension for it and with one, and views that are nothing.
  std::string one = products;
  one.replace(one.find("@k ="), 4, "@K =");
  CHECK(tables(one + "@j = Attention(@q, @K, @e, mask) {} -> f32[4,4,32]\n", "mask = const f32[4,4,4]\n") == 1);
  CHECK(tables(one + R"(
    @q1 = Reshape(@q) -> f32[4,1,4,32]
    @k1 = Reshape(@K) -> f32[4,1,4,32]
    @v1 = Reshape(@e) -> f32[4,1,4,32]
    @a = Attention(@q1, @k1, @v1, mask) {} -> f32[4,1,4,32]
    @j = Reshape(@a) -> f32[4,4,32]
  )",
               "mask = const f32[1,1,4]\n") == 1);
  // Windows in rows and columns of the map, each a dimension: [rows, columns, heads, pixels, columns of a head].
  const auto grid = [](const std::string& bias) {
    std::string text = kHeads;
    for (const char* const operand : {"@q2", "@k4", "@v2"}) text += fmt::format("{0}g = Reshape({0}) -> f32[2,2,2,4,16]\n", operand);
    return text + "@A = Attention(@q2g, @k4g, @v2g, " + bias + ") {} -> f32[2,2,2,4,16]\n@a = Reshape(@A) -> f32[4,2,4,16]\n" + kJoined;
  };
  CHECK(tables(grid("bias"), "bias = const f32[2,2,1,4,4]\n") == 1);
  CHECK(tables(grid("bias"), "bias = const f32[2,4,4]\n") == 1);
  CHECK(tables(grid("bias"), "bias = const f32[2,1,2,4,4]\n") == 0);  // differs from row to row of windows, but not within
}

TEST_CASE("attention whose rows no table says stays within windows") {
  const auto stays = [](const std::string& attended, const std::string& constants = "", const std::string& outputs = "y") {
    const Graph made = moved(parse_graph(kOperands + std::string(kSwinOperands) + constants + swin_block("x", "y", "1", 1, attended) +
                                         "outputs(" + outputs + ")\n"));
    CHECK(count_rops(made, "Attention") == 1);
    return attention_tables(made).empty();
  };
  // Somebody else reads the result, or a view of it, in windows.
  CHECK(stays(attention_of(""), "", "y, 1a"));
  CHECK(stays(attention_of(""), "", "y, 1y"));
  // The heads are put behind each other instead of side by side.
  CHECK(stays(std::string(kHeads) + "@a = Attention(@q2, @k4, @v2) {} -> f32[4,2,4,16]\n@j = Reshape(@a) -> f32[4,4,32]\n"));
  // Queries, keys and values of one head are neighbours.
  CHECK(stays(R"(
    @q = MatMul(@f, w3) {} -> f32[4,4,96]
    @h = Reshape(@q) -> f32[4,4,2,3,16]
    @g = Transpose(@h) {perm=[3,0,2,1,4]} -> f32[3,4,2,4,16]
    @q1 = Slice(@g) {starts=[0,0,0,0,0]} -> f32[1,4,2,4,16]
    @q2 = Reshape(@q1) -> f32[4,2,4,16]
    @a = Attention(@q2, @q2, @q2) {} -> f32[4,2,4,16]
  )" + std::string(kJoined)));
  // Keys of other windows, half of the windows' rows as keys, and values that are the same for all windows.
  const std::string others = R"(
    @x1 = Slice(@v2) {starts=[1,0,0,0]} -> f32[3,2,4,16]
    @x2 = Slice(@v2) {starts=[0,0,0,0]} -> f32[1,2,4,16]
  )";
  CHECK(stays(kHeads + others + "@x = Concat(@x1, @x2) {axis=0} -> f32[4,2,4,16]\n@a = Attention(@q2, @k4, @x) {} -> f32[4,2,4,16]\n" +
              kJoined));
  CHECK(stays(std::string(kHeads) + R"(
    @x1 = Slice(@k4) {starts=[0,0,0,0]} -> f32[4,2,2,16]
    @x2 = Slice(@v2) {starts=[0,0,2,0]} -> f32[4,2,2,16]
    @a = Attention(@q2, @x1, @x2) {} -> f32[4,2,4,16]
  )" + kJoined));
  CHECK(stays(kHeads + others + "@a = Attention(@q2, @k4, @x2) {} -> f32[4,2,4,16]\n" + kJoined));
}

TEST_CASE("attention by a table is for windows that a warp can have, and for whole maps") {
  const auto tables = [](int64_t pixels, int64_t size, const std::string& crop = "") {
    const int64_t edge = 2 * pixels, all = pixels * pixels;
    std::string text = fmt::format(R"(
      i = input f32[1,{0},{0},32]
      w = const f32[32,{2}]
      p = const f32[{2},32]
      n = Normalize(i) {{axes=[3]}} -> f32[1,{0},{0},32]
    )",
                                   edge, pixels, size);
    text += crop.empty() ? fmt::format("v = Reshape(n) -> f32[1,2,{0},2,{0},32]\n", pixels) : crop;
    const int64_t windows = crop.empty() ? 4 : 2;
    text += fmt::format(R"(
      t = Transpose(v) {{perm=[0,1,3,2,4,5]}} -> f32[1,{3},2,{0},{0},32]
      f = Reshape(t) -> f32[{4},{1},32]
      q = MatMul(f, w) {{}} -> f32[{4},{1},{2}]
      r = Reshape(q) -> f32[{4},{1},1,{2}]
      h = Transpose(r) {{perm=[0,2,1,3]}} -> f32[{4},1,{1},{2}]
      a = Attention(h, h, h) {{}} -> f32[{4},1,{1},{2}]
      b = Transpose(a) {{perm=[0,2,1,3]}} -> f32[{4},{1},1,{2}]
      c = Reshape(b) -> f32[{4},{1},{2}]
      y = MatMul(c, p) {{}} -> f32[{4},{1},32]
      outputs(y)
    )",
                        pixels, all, size, windows / 2, windows);
    return attention_tables(moved(parse_graph(text))).size();
  };
  CHECK(tables(8, 32) == 1);
  CHECK(tables(9, 32) == 0);
  CHECK(tables(2, 36) == 0);
  // The upper windows alone: not all rows are in one.
  CHECK(tables(2, 32, "s = Slice(n) {starts=[0,0,0,0]} -> f32[1,2,4,32]\nv = Reshape(s) -> f32[1,1,2,2,2,32]\n") == 0);
}

TEST_CASE("rows that are put side by side are one movement, and not a copy each") {
  const Graph made = moved(parse_graph(std::string(kOperands) + R"(
    a = Slice(x) {starts=[0,0,0,0], steps=[1,2,2,1]} -> f32[1,2,2,32]
    c = Slice(x) {starts=[0,1,0,0], steps=[1,2,2,1]} -> f32[1,2,2,32]
    d = Concat(a, c) {axis=3} -> f32[1,2,2,64]
    outputs(d)
  )"));
  CHECK(count_rops(made, "Concat") == 0);
  CHECK(count_rops(made, "Gather") + count_tables(made) == 1);
  // A whole tensor is made where it is wanted.
  const Graph source = parse_graph(std::string(kOperands) + R"(
    z = Normalize(x) {axes=[3]} -> f32[1,4,4,32]
    v = Reshape(z) -> f32[1,4,4,32]
    d = Concat(z, v) {axis=3} -> f32[1,4,4,64]
    outputs(d)
  )");
  CHECK(print(passes::move_rows(source)) == print(source));
}

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

TEST_CASE("products of the same moved rows share one movement") {
  const std::string window = R"(
    v = Reshape(n) -> f32[1,2,2,2,2,32]
    t = Transpose(v) {perm=[0,1,3,2,4,5]} -> f32[1,2,2,2,2,32]
    f = Reshape(t) -> f32[4,4,32]
    q = MatMul(f, w) {} -> f32[4,4,32]
    k = MatMul(f, w) {} -> f32[4,4,32]
    a = Softmax(q) {axes=[1,1]} -> f32[4,4,32]
    c = Softmax(k) {axes=[1,1]} -> f32[4,4,32]
    outputs(a, c)
  )";
  const std::string operands = "x = input f32[1,4,4,32]\nw = const f32[32,32]\ng = const f32[32]\n";
  const Graph made = moved(parse_graph(operands + "n = Normalize(x, g) {axes=[3]} -> f32[1,4,4,32]\n" + window));
  CHECK(count_tables(made) == 1);
  CHECK(count_rops(made, "Gather") == 0);
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

TEST_CASE("a normalisation takes several rows side by side as one") {
  const auto merging = [](const std::string& tail) {
    return moved(parse_graph(kOperands + block("x", "y", "1", 0) + R"(
      g2 = const f32[64]
      a = Slice(y) {starts=[0,0,0,0], steps=[1,2,2,1]} -> f32[1,2,2,32]
      c = Slice(y) {starts=[0,1,1,0], steps=[1,2,2,1]} -> f32[1,2,2,32]
      d = Concat(a, c) {axis=3} -> f32[1,2,2,64]
      e = Normalize(d, g2) {axes=[3]} -> f32[1,2,2,64]
    )" + tail));
  };
  const Graph made = merging("outputs(e)\n");
  CHECK(count_rops(made, "Gather") == 1);  // of the block's residual
  CHECK(count_tables(made) == 2);
  const auto last = std::find_if(made.rops.rbegin(), made.rops.rend(), [](const ROperator& rop) { return rop.name == "e"; });
  REQUIRE(last != made.rops.rend());
  const auto taken = std::find_if(made.rops.begin(), made.rops.end(), [](const ROperator& rop) {
    return std::holds_alternative<Normalize>(rop.attrs) && rop.inputs.size() > kNormalizeRows && rop.inputs[2] == TensorId();
  });
  REQUIRE(taken != made.rops.end());
  CHECK(made.tensor(taken->inputs[kNormalizeRows]).shape == Shape{4, 2});
  CHECK(made.tensor(taken->outputs[0]).shape == Shape{4, 64});
  // Somebody else reads the rows, too.
  CHECK(count_tables(merging("s = Softmax(d) {axes=[1,1]} -> f32[1,2,2,64]\noutputs(e, s)\n")) == 1);
}

TEST_CASE("attention takes no table where nothing can compute that") {
  const Graph source =
      parse_graph(kOperands + std::string(kSwinOperands) + swin_block("x", "y", "1", 1, attention_of(", masked")) + "outputs(y)\n");
  std::vector<std::vector<Shape>> asked;
  const auto answers = [&](std::optional<Estimate> answer) {
    return [&, answer](const Graph& graph, const ROperator& rop) {
      std::vector<Shape> shapes;
      for (const TensorId id : reads_of(rop)) shapes.push_back(graph.tensor(id).shape);
      shapes.push_back(graph.tensor(rop.outputs[0]).shape);
      asked.push_back(shapes);
      return answer;
    };
  };
  CHECK(attention_tables(moved(source, answers(std::nullopt))).empty());
  CHECK(attention_tables(moved(source, answers(Estimate{1}))).size() == 1);
  const Shape rows = {2, 16, 16};
  CHECK(asked == std::vector<std::vector<Shape>>(2, {rows, rows, rows, {4, 2, 4, 4}, {4, 4}, rows}));
  CHECK(attention_tables(moved(source, Estimator())).empty());
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

namespace {

// Windows of 3 x 3 pixels made by `rows`, the map of them, and windows of every second pixel cut out of it (MaxViT).
std::string grid(const std::string& rows, const std::string& rest) {
  return R"(
    x = input f32[1,2,2,3,3,32]
    z = input f32[1,2,2,3,3,32]
    w = const f32[32,32]
    g = const f32[32]
    b = const f32[32]
)" + rows +
         R"(
    t = Transpose(p) {perm=[0,1,3,2,4,5]} -> f32[1,2,3,2,3,32]
    m = Reshape(t) -> f32[1,6,6,32]
)" + rest;
}
const char* const kProduct = "    p = MatMul(x, w) {} -> f32[1,2,2,3,3,32]\n";
const char* const kGrid = R"(
    r = Reshape(m) -> f32[1,3,2,3,2,32]
    s = Transpose(r) {perm=[0,2,4,1,3,5]} -> f32[1,2,2,3,3,32]
    f = Reshape(s) -> f32[4,9,32]
)";

}  // namespace

TEST_CASE("windows of a map of windows are one movement") {
  const std::string normalized = "n = Normalize(f, g, b) {axes=[2]} -> f32[4,9,32]\ny = MatMul(n, w) {} -> f32[4,9,32]\noutputs(y)\n";
  const Graph made = moved(parse_graph(grid(kProduct, kGrid + normalized)));
  CHECK(count_rops(made, "Transpose") == 0);
  CHECK(count_rops(made, "Gather") + count_tables(made) == 1);
  CHECK(count_rops(passes::assign_layout(made), "Elementwise") == 0);
  // The product behind a sum takes it into its epilogue: such rows are moved, too.
  const std::string sum = "q = MatMul(x, w) {} -> f32[1,2,2,3,3,32]\np = Elementwise(z, q) {add(i0, i1)} -> f32[1,2,2,3,3,32]\n";
  const Graph summed = moved(parse_graph(grid(sum, kGrid + normalized)));
  CHECK(count_rops(summed, "Transpose") == 0);
  CHECK(count_rops(summed, "Gather") + count_tables(summed) == 1);
}

TEST_CASE("there and back through a map is nothing") {
  const Graph made = moved(parse_graph(grid(kProduct, R"(
    r = Reshape(m) -> f32[1,3,2,3,2,32]
    s = Transpose(r) {perm=[0,2,4,1,3,5]} -> f32[1,2,2,3,3,32]
    u = Transpose(s) {perm=[0,3,1,4,2,5]} -> f32[1,3,2,3,2,32]
    a = Reshape(u) -> f32[1,2,3,2,3,32]
    c = Transpose(a) {perm=[0,1,3,2,4,5]} -> f32[1,2,2,3,3,32]
    y = Normalize(c, g, b) {axes=[5]} -> f32[1,2,2,3,3,32]
    outputs(y)
  )")));
  CHECK(count_rops(made, "Gather") == 0);
  CHECK(count_tables(made) == 0);
  CHECK(count_rops(passes::assign_layout(made), "Elementwise") == 0);
}

TEST_CASE("windows of a map that somebody else reads are moved, and the map stays a view") {
  const Graph made = moved(parse_graph(grid(kProduct, std::string(kGrid) + R"(
    y = Normalize(f, g, b) {axes=[2]} -> f32[4,9,32]
    v = Softmax(m) {axes=[1,1]} -> f32[1,6,6,32]
    outputs(y, v, p)
  )")));
  CHECK(count_rops(made, "Gather") + count_tables(made) == 1);
  CHECK(count_rops(made, "Transpose") == 1);
}

TEST_CASE("a map that a product can be made in stays a view") {
  for (const char* const rest :
       {"y = Normalize(m, g, b) {axes=[3]} -> f32[1,6,6,32]\noutputs(y)\n", "y = Softmax(m) {axes=[3,3]} -> f32[1,6,6,32]\noutputs(y)\n",
        "n = Reshape(m) -> f32[36,32]\ny = MatMul(n, w) {} -> f32[36,32]\noutputs(y)\n", "outputs(m)\n"}) {
    CAPTURE(rest);
    const Graph source = parse_graph(grid(kProduct, rest));
    CHECK(print(passes::move_rows(source)) == print(source));
    CHECK(count_rops(passes::assign_layout(source), "Elementwise") == 0);
  }
}

TEST_CASE("sums without a product stay where they are") {
  const Graph source = parse_graph(grid(R"(
    a = Normalize(x, g, b) {axes=[5]} -> f32[1,2,2,3,3,32]
    c = Softmax(z) {axes=[5,5]} -> f32[1,2,2,3,3,32]
    p = Elementwise(a, c) {add(i0, i1)} -> f32[1,2,2,3,3,32]
  )",
                                        std::string(kGrid) + "y = Normalize(f, g, b) {axes=[2]} -> f32[4,9,32]\noutputs(y)\n"));
  CHECK(print(passes::move_rows(source)) == print(source));
}

TEST_CASE("random movements and work on rows keep the answers") {
  std::mt19937 random(5);
  const auto below = [&](size_t count) { return static_cast<size_t>(random() % count); };
  int changes = 0;
  for (int i = 0; i < 1000; ++i) {
    const bool front = below(4) == 0;  // channels go to the front and come back
    Shape shape = {1 + static_cast<int64_t>(below(2)), 2, 6, 32};
    std::string name = "i", outputs = "y", text = fmt::format("x = input f32{0}\nz = input f32{0}\nw = const f32[32,32]\n", list(shape));
    text += below(2) == 0 ? fmt::format("i = MatMul(x, w) {{}} -> f32{}\n", list(shape))
                          : fmt::format("p = MatMul(x, w) {{}} -> f32{0}\ni = Elementwise(z, p) {{add(i0, i1)}} -> f32{0}\n", list(shape));
    std::vector<std::pair<std::string, Shape>> made = {{name, shape}};
    for (size_t k = 0, count = 3 + below(9); k < count; ++k) {
      const std::string to = fmt::format("a{}", k);
      const size_t rows = shape.size() - 1, d = below(rows);
      const size_t kind = below(9);
      if (kind < 3 && rows > 1) {
        std::vector<int64_t> perm(shape.size());
        std::iota(perm.begin(), perm.end(), 0);
        std::shuffle(perm.begin(), perm.end() - (front ? 0 : 1), random);
        if (front && perm.back() + 1 != static_cast<int64_t>(perm.size())) {  // and back at once, through a Reshape that is nothing
          Shape turned;
          for (const int64_t p : perm) turned.push_back(shape[static_cast<size_t>(p)]);
          text += fmt::format("{0}t = Transpose({1}) {{perm={2}}} -> f32{3}\n{0}r = Reshape({0}t) -> f32{3}\n", to, name, list(perm),
                              list(turned));
          std::vector<int64_t> back(perm.size());
          for (size_t p = 0; p < perm.size(); ++p) back[static_cast<size_t>(perm[p])] = static_cast<int64_t>(p);
          std::shuffle(back.begin(), back.end() - 1, random);
          for (size_t p = 0; p < perm.size(); ++p) shape[p] = turned[static_cast<size_t>(back[p])];
          text += fmt::format("{0} = Transpose({0}r) {{perm={1}}} -> f32{2}\n", to, list(back), list(shape));
        } else {
          const Shape old = shape;
          for (size_t p = 0; p < perm.size(); ++p) shape[p] = old[static_cast<size_t>(perm[p])];
          text += fmt::format("{} = Transpose({}) {{perm={}}} -> f32{}\n", to, name, list(perm), list(shape));
        }
      } else if (kind < 6) {
        if (d + 1 < rows && (shape.size() > 5 || below(2) == 0)) {
          shape[d] *= shape[d + 1];
          shape.erase(shape.begin() + static_cast<std::ptrdiff_t>(d) + 1);
        } else {
          const int64_t part = shape[d] % 2 == 0 ? 2 : shape[d] % 3 == 0 ? 3 : 1;
          shape[d] /= part;
          shape.insert(shape.begin() + static_cast<std::ptrdiff_t>(d + below(2)), part);
        }
        text += fmt::format("{} = Reshape({}) -> f32{}\n", to, name, list(shape));
      } else if (kind == 6 && shape[d] > 1) {  // rolled by one
        std::vector<int64_t> starts(shape.size(), 0);
        starts[d] = 1;
        Shape first = shape, second = shape;
        first[d] = shape[d] - 1, second[d] = 1;
        text += fmt::format("{0}s = Slice({1}) {{starts={2}}} -> f32{3}\n", to, name, list(starts), list(first));
        starts[d] = 0;
        text += fmt::format("{0}e = Slice({1}) {{starts={2}}} -> f32{3}\n", to, name, list(starts), list(second));
        text += fmt::format("{0} = Concat({0}s, {0}e) {{axis={1}}} -> f32{2}\n", to, d, list(shape));
      } else if (kind == 7) {
        text += below(2) == 0 ? fmt::format("{} = Normalize({}) {{axes=[{}]}} -> f32{}\n", to, name, shape.size() - 1, list(shape))
                              : fmt::format("{} = MatMul({}, w) {{}} -> f32{}\n", to, name, list(shape));
      } else {
        const auto other = std::find_if(made.begin(), made.end(), [&](const auto& one) { return one.second == shape; });
        text += fmt::format("{} = Elementwise({}, {}) {{add(i0, i1)}} -> f32{}\n", to, name, other == made.end() ? name : other->first,
                            list(shape));
      }
      if (below(10) == 0) outputs += ", " + to;
      name = to;
      made.emplace_back(name, shape);
    }
    text += fmt::format("y = Normalize({}) {{axes=[{}]}} -> f32{}\noutputs({})\n", name, shape.size() - 1, list(shape), outputs);
    INFO(text);
    const Graph source = parse_graph(text), last = passes::channels_stay_last(source);
    check_pass(source, last);
    const Graph after = moved(last);
    changes += print(after) != print(last);
    check_pass(source, passes::assign_layout(after));
  }
  CHECK(changes > 100);
}

}  // namespace tamp::test
