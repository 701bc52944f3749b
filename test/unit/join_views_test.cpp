// Chains of views that strides can express as a whole, and products that are done in the order in which their rows lie.
#include "compiler/passes/views/join_views.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <random>

#include "compiler/passes/fuse/fuse_epilogue.h"
#include "compiler/passes/place/assign_layout.h"
#include "compiler/passes/views/sink_transposes.h"
#include "compiler/passes/views/views_last.h"
#include "test/support/check_pass.h"

namespace tamp::test {
namespace {

constexpr int64_t kCell = 4;

Graph joined(const std::string& text) {
  const Graph source = parse_graph(text);
  Graph made = passes::join_views(source, kCell);
  check_pass(source, made);
  return made;
}
Graph sunk(const std::string& text) {
  const Graph source = parse_graph(text);
  Graph made = passes::sink_transposes(source, kCell);
  check_pass(source, made);
  return made;
}
bool is_left(const Graph& made, const std::string& text) { return print(made) == print(parse_graph(text)); }

// Elementwise rOperators that are left when all tensors have a place: copies, and what no epilogue took.
int count_copies(const Graph& graph) {
  return count_rops(passes::assign_layout(passes::fuse_epilogue(passes::views_last(graph)), kCell), "Elementwise");
}

// A product of 5 positions of 2 images; `rest` makes y of p.
std::string product(const std::string& rest) {
  return R"(
    x = input f32[2,5,8]
    w = const f32[8,12]
    b = const f32[12]
    n = Softmax(x) {axes=[2,2]} -> f32[2,5,8]
    t = Transpose(n) {perm=[1,0,2]} -> f32[5,2,8]
    m = MatMul(t, w) {} -> f32[5,2,12]
    p = Elementwise(m, b) {add(i0, i1)} -> f32[5,2,12]
  )" + rest +
         "outputs(y)\n";
}

const char* const kHeads = R"(
    s = Slice(p) {starts=[0,0,6]} -> f32[5,2,6]
    v = Reshape(s) -> f32[5,6,2]
    h = Transpose(v) {perm=[1,0,2]} -> f32[6,5,2]
    q = Reshape(h) -> f32[2,3,5,2]
    y = Softmax(q) {axes=[3,3]} -> f32[2,3,5,2]
)";

std::string list(const std::vector<int64_t>& values) { return fmt::format("[{}]", fmt::join(values, ",")); }

// A chain of views of `name`, a tensor of `shape`; both become those of its result.
std::string random_views(std::mt19937& random, std::string& name, Shape& shape, const std::string& prefix) {
  const auto below = [&](size_t count) { return static_cast<size_t>(random() % count); };
  std::string text;
  for (size_t i = 0, count = 1 + below(6); i < count; ++i) {
    const size_t d = below(shape.size());
    const std::string to = prefix + std::to_string(i);
    text += to + " = ";
    if (const size_t kind = below(5); kind < 2) {
      std::vector<int64_t> perm(shape.size());
      std::iota(perm.begin(), perm.end(), 0);
      std::shuffle(perm.begin(), perm.end(), random);
      const Shape old = shape;
      for (size_t k = 0; k < perm.size(); ++k) shape[k] = old[static_cast<size_t>(perm[k])];
      text += fmt::format("Transpose({}) {{perm={}}}", name, list(perm));
    } else if (kind == 2 && shape[d] % 2 == 0) {
      std::vector<int64_t> starts(shape.size(), 0), steps(shape.size(), 1);
      const bool halves = below(2) == 0;
      starts[d] = halves ? shape[d] / 2 : 1;
      steps[d] = halves ? 1 : 2;
      shape[d] /= 2;
      text += fmt::format("Slice({}) {{starts={}, steps={}}}", name, list(starts), list(steps));
    } else {
      if (d + 1 < shape.size() && below(2) == 0) {
        shape[d] *= shape[d + 1];
        shape.erase(shape.begin() + static_cast<std::ptrdiff_t>(d) + 1);
      } else if (const int64_t part = shape[d] % 2 == 0 ? 2 : shape[d] % 3 == 0 ? 3 : 1; shape.size() < 6) {
        shape[d] /= part;
        shape.insert(shape.begin() + static_cast<std::ptrdiff_t>(d + below(2)), part);
      }
      text += fmt::format("Reshape({})", name);
    }
    text += fmt::format(" -> f32{}\n", list(shape));
    name = to;
  }
  return text;
}

}  // namespace

TEST_CASE("dimensions that are joined and taken apart again need no copy") {
  const Graph made = joined(product(kHeads));
  CHECK(count_copies(parse_graph(product(kHeads))) == 1);
  CHECK(count_copies(made) == 0);
}

TEST_CASE("steps, and parts of parts, are joined") {
  const std::string text = R"(
    x = input f32[4,24]
    i = Softmax(x) {axes=[1,1]} -> f32[4,24]
    a = Slice(i) {starts=[0,4], steps=[1,2]} -> f32[4,8]
    r = Reshape(a) -> f32[1,32]
    c = Reshape(r) -> f32[4,8]
    d = Slice(c) {starts=[2,1], steps=[1,3]} -> f32[1,3]
    y = Softmax(d) {axes=[1,1]} -> f32[1,3]
    outputs(y)
  )";
  CHECK(count_copies(parse_graph(text)) == 1);
  CHECK(count_copies(joined(text)) == 0);
}

TEST_CASE("views stay where strides can express each of them, or not even all of them together") {
  const auto text = [](const std::string& views) {
    return "x = input f32[4,6]\ni = Softmax(x) {axes=[1,1]} -> f32[4,6]\n" + views +
           "y = Softmax(v) {axes=[1,1]} -> f32[8,3]\noutputs(y)\n";
  };
  const std::string possible = text("v = Reshape(i) -> f32[8,3]\n");
  const std::string copied = text("t = Transpose(i) {perm=[1,0]} -> f32[6,4]\nv = Reshape(t) -> f32[8,3]\n");
  CHECK(is_left(joined(possible), possible));
  CHECK(is_left(joined(copied), copied));
}

TEST_CASE("a product is done in the order of its rows in memory, and its bias with it") {
  const Graph made = sunk(product(kHeads));
  const auto product =
      std::find_if(made.rops.begin(), made.rops.end(), [](const ROperator& rop) { return std::holds_alternative<MatMul>(rop.attrs); });
  CHECK(made.tensor(product->outputs[0]).shape == Shape{10, 12});
  CHECK(count_copies(passes::join_views(made, kCell)) == 0);
}

TEST_CASE("an order of rows and the one back are nothing, so that the epilogue takes the sum") {
  const std::string text = R"(
    x = input f32[2,3,5,4]
    z = input f32[2,5,12]
    w = const f32[12,12]
    b = const f32[12]
    a = Softmax(x) {axes=[3,3]} -> f32[2,3,5,4]
    t = Transpose(a) {perm=[2,0,1,3]} -> f32[5,2,3,4]
    m = Reshape(t) -> f32[10,12]
    p = MatMul(m, w) {} epilogue{bias=b} -> f32[10,12]
    r = Reshape(p) -> f32[5,2,12]
    u = Transpose(r) {perm=[1,0,2]} -> f32[2,5,12]
    y = Elementwise(u, z) {add(i0, i1)} -> f32[2,5,12]
    outputs(y)
  )";
  const Graph made = passes::join_views(sunk(text), kCell);
  check_pass(parse_graph(text), made);
  CHECK(count_copies(parse_graph(text)) == 1);
  CHECK(count_copies(made) == 0);
}

TEST_CASE("a product stays where its result is read in the order that it has") {
  const std::string whole = product("y = Softmax(p) {axes=[2,2]} -> f32[5,2,12]\n");
  const std::string rows = product("r = Reshape(p) -> f32[10,12]\ny = Softmax(r) {axes=[1,1]} -> f32[10,12]\n");
  const std::string needs_copy =
      product("v = Transpose(p) {perm=[2,0,1]} -> f32[12,5,2]\nr = Reshape(v) -> f32[12,10]\ny = Softmax(r) {axes=[1,1]} -> f32[12,10]\n");
  for (const std::string& text : {whole, rows, needs_copy}) CHECK(is_left(sunk(text), text));
}

TEST_CASE("a product stays where its rows are in order already") {
  const std::string text = R"(
    x = input f32[1,5,8]
    w = const f32[8,12]
    t = Transpose(x) {perm=[1,0,2]} -> f32[5,1,8]
    p = MatMul(t, w) {} -> f32[5,1,12]
    y = Transpose(p) {perm=[1,0,2]} -> f32[1,5,12]
    outputs(y)
  )";
  CHECK(is_left(sunk(text), text));
}

TEST_CASE("random chains of views around a product show the same") {
  std::mt19937 random(1);
  int joins = 0, sinks = 0, fewer = 0;
  for (int i = 0; i < 5000; ++i) {
    Shape shape = {4, 6, 12};
    std::string name = "i";
    std::string text = "x = input f32[4,6,12]\ni = Softmax(x) {axes=[2,2]} -> f32[4,6,12]\n" + random_views(random, name, shape, "a");
    if (shape.size() < 2) continue;
    text += fmt::format("w = const f32[{},12]\n", shape.back());
    shape.back() = 12;
    text += fmt::format("p = MatMul({}, w) {{}} -> f32{}\n", name, list(shape));
    name = "p";
    text += random_views(random, name, shape, "b");
    const std::string axis = std::to_string(shape.size() - 1);
    text += fmt::format("y = Softmax({}) {{axes=[{},{}]}} -> f32{}\noutputs(y)\n", name, axis, axis, list(shape));
    INFO(text);
    const Graph source = parse_graph(text);
    const Graph product = passes::sink_transposes(source, kCell);
    check_pass(source, product);
    const Graph made = passes::join_views(product, kCell);
    check_pass(source, made);
    sinks += print(product) != print(source);
    joins += print(made) != print(product);
    CHECK(count_copies(made) <= count_copies(source));
    fewer += count_copies(made) < count_copies(source);
  }
  CHECK(joins > 10);
  CHECK(sinks > 10);
  CHECK(fewer > 10);
}

}  // namespace tamp::test
