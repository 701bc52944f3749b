// Rows that are put into another order, between work on each row alone.
#include "compiler/passes/move_rows.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <random>

#include "compiler/passes/assign_layout.h"
#include "compiler/passes/channels_stay_last.h"
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

std::string list(const std::vector<int64_t>& values) { return fmt::format("[{}]", fmt::join(values, ",")); }

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
