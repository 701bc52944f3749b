// Maps between rows and rows: channels need not go to the front and come back.
#include "compiler/passes/views/channels_stay_last.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <random>

#include "compiler/passes/place/assign_layout.h"
#include "compiler/passes/views/move_rows.h"
#include "test/support/check_pass.h"

namespace tamp::test {
namespace {

struct Row {
  const char *why, *text;
};

Graph kept(const std::string& text) {
  const Graph source = parse_graph(text);
  Graph made = passes::channels_stay_last(source);
  check_pass(source, made);
  check_pass(source, passes::assign_layout(made));
  return made;
}
bool is_left(const std::string& text) {
  const Graph source = parse_graph(text);
  return print(passes::channels_stay_last(source)) == print(source);
}

// Whether every Reshape has the last dimension of its operand, and every Transpose, but for `others` of them, leaves the last one where it
// is: rows stay whole.
bool rows_stay(const Graph& graph, int others = 0) {
  for (const ROperator& rop : graph.rops) {
    if (const auto* transpose = std::get_if<Transpose>(&rop.attrs))
      others -= transpose->perm.back() + 1 != static_cast<int64_t>(transpose->perm.size());
    if (std::holds_alternative<Reshape>(rop.attrs) && graph.tensor(rop.inputs[0]).shape.back() != graph.tensor(rop.outputs[0]).shape.back())
      return false;
  }
  return others == 0;
}

std::string list(const std::vector<int64_t>& values) { return fmt::format("[{}]", fmt::join(values, ",")); }

}  // namespace

TEST_CASE("between windows and other windows channels stay last") {
  const Graph made = kept(R"(
    x = input f32[2,3,3,2,2,8]
    t = Transpose(x) {perm=[0,5,1,3,2,4]} -> f32[2,8,3,2,3,2]
    m = Reshape(t) -> f32[2,8,6,6]
    r = Reshape(m) -> f32[2,8,2,3,2,3]
    y = Transpose(r) {perm=[0,3,5,2,4,1]} -> f32[2,3,3,2,2,8]
    outputs(y)
  )");
  CHECK(print(made) == print(parse_graph(R"(
    x = input f32[2,3,3,2,2,8]
    t = Transpose(x) {perm=[0,1,3,2,4,5]} -> f32[2,3,2,3,2,8]
    m = Reshape(t) -> f32[2,6,6,8]
    r = Reshape(m) -> f32[2,2,3,2,3,8]
    y = Transpose(r) {perm=[0,2,4,1,3,5]} -> f32[2,3,3,2,2,8]
    outputs(y)
  )")));
}

TEST_CASE("rows that become a map are a map with channels last first") {
  const Graph made = kept(R"(
    x = input f32[2,6,8]
    t = Transpose(x) {perm=[0,2,1]} -> f32[2,8,6]
    m = Reshape(t) -> f32[2,8,3,2]
    y = AveragePool(m) {kernel=[2,2]} -> f32[2,8,2,1]
    outputs(y)
  )");
  CHECK(print(made) == print(parse_graph(R"(
    x = input f32[2,6,8]
    m.channels_last = Reshape(x) -> f32[2,3,2,8]  // m.channels_last (origin: m)
    m = Transpose(m.channels_last) {perm=[0,3,1,2]} -> f32[2,8,3,2]
    y = AveragePool(m) {kernel=[2,2]} -> f32[2,8,2,1]
    outputs(y)
  )")));
}

TEST_CASE("chains of all kinds keep the answers") {
  struct Kind {
    const char *why, *text;
    int others = 0;  // Transposes that move the last dimension
  };
  const Kind rows[] = {
      {"rank 3", R"(
        x = input f32[3,4,8]
        t = Transpose(x) {perm=[0,2,1]} -> f32[3,8,4]
        r = Reshape(t) -> f32[3,8,2,2]
        y = Transpose(r) {perm=[0,3,2,1]} -> f32[3,2,2,8]
        outputs(y)
      )"},
      {"channels at the very front", R"(
        x = input f32[6,4,8]
        t = Transpose(x) {perm=[2,1,0]} -> f32[8,4,6]
        r = Reshape(t) -> f32[8,3,8]
        y = Transpose(r) {perm=[2,1,0]} -> f32[8,3,8]
        outputs(y)
      )"},
      {"two dimensions in front of the channels", R"(
        x = input f32[2,3,6,4,8]
        t = Transpose(x) {perm=[1,0,4,3,2]} -> f32[3,2,8,4,6]
        r = Reshape(t) -> f32[3,2,8,24]
        y = Transpose(r) {perm=[1,0,3,2]} -> f32[2,3,24,8]
        outputs(y)
      )"},
      {"extents of 1", R"(
        x = input f32[1,3,1,2,1,8]
        t = Transpose(x) {perm=[0,5,1,3,2,4]} -> f32[1,8,3,2,1,1]
        m = Reshape(t) -> f32[1,8,6,1]
        r = Reshape(m) -> f32[1,8,1,6,1,1]
        y = Transpose(r) {perm=[0,3,5,2,4,1]} -> f32[1,6,1,1,1,8]
        outputs(y)
      )"},
      {"one channel", R"(
        x = input f32[2,6,1]
        t = Transpose(x) {perm=[0,2,1]} -> f32[2,1,6]
        m = Reshape(t) -> f32[2,1,3,2]
        y = Transpose(m) {perm=[0,2,3,1]} -> f32[2,3,2,1]
        outputs(y)
      )"},
      {"as many channels as pixels", R"(
        x = input f32[4,4,4]
        t = Transpose(x) {perm=[0,2,1]} -> f32[4,4,4]
        m = Reshape(t) -> f32[4,4,2,2]
        y = Transpose(m) {perm=[0,3,2,1]} -> f32[4,2,2,4]
        outputs(y)
      )"},
      {"the map is an answer", R"(
        x = input f32[2,6,8]
        t = Transpose(x) {perm=[0,2,1]} -> f32[2,8,6]
        m = Reshape(t) -> f32[2,8,3,2]
        y = Transpose(m) {perm=[0,2,3,1]} -> f32[2,3,2,8]
        outputs(m, y)
      )",
       2},
      {"the map is read by two", R"(
        x = input f32[2,6,8]
        t = Transpose(x) {perm=[0,2,1]} -> f32[2,8,6]
        m = Reshape(t) -> f32[2,8,3,2]
        y = Transpose(m) {perm=[0,2,3,1]} -> f32[2,3,2,8]
        v = Elementwise(m) {exp(i0)} -> f32[2,8,3,2]
        outputs(v, y)
      )",
       2},
      {"the map is read by one, who reads it twice", R"(
        x = input f32[2,6,8]
        t = Transpose(x) {perm=[0,2,1]} -> f32[2,8,6]
        m = Reshape(t) -> f32[2,8,3,2]
        y = Concat(m, m) {axis=1} -> f32[2,16,3,2]
        outputs(y)
      )",
       1},
      {"what is read is an answer", R"(
        x = input f32[2,6,8]
        a = Elementwise(x) {exp(i0)} -> f32[2,6,8]
        t = Transpose(a) {perm=[0,2,1]} -> f32[2,8,6]
        m = Reshape(t) -> f32[2,8,3,2]
        y = Transpose(m) {perm=[0,2,3,1]} -> f32[2,3,2,8]
        outputs(y, a)
      )"},
      {"the last Transpose begins another chain", R"(
        x = input f32[2,6,8]
        t = Transpose(x) {perm=[0,2,1]} -> f32[2,8,6]
        m = Reshape(t) -> f32[2,8,3,2]
        u = Transpose(m) {perm=[0,3,2,1]} -> f32[2,2,3,8]
        s = Transpose(u) {perm=[0,3,1,2]} -> f32[2,8,2,3]
        n = Reshape(s) -> f32[2,8,6]
        y = Transpose(n) {perm=[0,2,1]} -> f32[2,6,8]
        outputs(y)
      )"},
      {"two chains from one tensor", R"(
        x = input f32[2,6,8]
        a = Elementwise(x) {exp(i0)} -> f32[2,6,8]
        t = Transpose(a) {perm=[0,2,1]} -> f32[2,8,6]
        m = Reshape(t) -> f32[2,8,3,2]
        y = Transpose(m) {perm=[0,2,3,1]} -> f32[2,3,2,8]
        s = Transpose(a) {perm=[0,2,1]} -> f32[2,8,6]
        n = Reshape(s) -> f32[2,8,2,3]
        z = Transpose(n) {perm=[0,3,2,1]} -> f32[2,3,2,8]
        outputs(y, z)
      )"},
  };
  for (const Kind& row : rows) {
    INFO(row.why);
    CHECK_FALSE(is_left(row.text));
    const Graph made = kept(row.text);
    CHECK(rows_stay(made, row.others));
  }
}

TEST_CASE("chains of other types keep the type") {
  const Graph made = passes::channels_stay_last(parse_graph(R"(
    x = input i64[2,6,8]
    t = Transpose(x) {perm=[0,2,1]} -> i64[2,8,6]
    y = Reshape(t) -> i64[2,8,3,2]
    outputs(y)
  )"));
  CHECK_NOTHROW(ops::verify_shapes(made));
  CHECK(tensor_named(made, "y.channels_last").dtype == DType::i64);
}

TEST_CASE("other chains of views stay") {
  const Row rows[] = {
      {"the last dimension stays", R"(
        x = input f32[2,3,4,8]
        t = Transpose(x) {perm=[0,2,1,3]} -> f32[2,4,3,8]
        y = Reshape(t) -> f32[2,12,8]
        outputs(y)
      )"},
      {"no Reshape", R"(
        x = input f32[2,6,8]
        t = Transpose(x) {perm=[0,2,1]} -> f32[2,8,6]
        y = Transpose(t) {perm=[0,2,1]} -> f32[2,6,8]
        outputs(y)
      )"},
      {"a Reshape that takes channels apart", R"(
        x = input f32[2,6,8]
        t = Transpose(x) {perm=[0,2,1]} -> f32[2,8,6]
        r = Reshape(t) -> f32[2,4,2,6]
        y = Transpose(r) {perm=[0,2,3,1]} -> f32[2,2,6,4]
        outputs(y)
      )"},
      {"a Reshape that joins channels and pixels", R"(
        x = input f32[2,6,8]
        t = Transpose(x) {perm=[0,2,1]} -> f32[2,8,6]
        y = Reshape(t) -> f32[2,48]
        outputs(y)
      )"},
      {"a Reshape that changes the images", R"(
        x = input f32[2,6,8]
        t = Transpose(x) {perm=[0,2,1]} -> f32[2,8,6]
        y = Reshape(t) -> f32[1,16,3,2]
        outputs(y)
      )"},
      {"no map", R"(
        x = input f32[2,6,8]
        t = Transpose(x) {perm=[0,2,1]} -> f32[2,8,6]
        y = Reshape(t) -> f32[2,8,1,3,2]
        outputs(y)
      )"},
      {"channels that come first of four dimensions", R"(
        x = input f32[6,8]
        t = Transpose(x) {perm=[1,0]} -> f32[8,6]
        y = Reshape(t) -> f32[8,1,3,2]
        outputs(y)
      )"},
      {"the Transpose is an answer", R"(
        x = input f32[2,6,8]
        t = Transpose(x) {perm=[0,2,1]} -> f32[2,8,6]
        y = Reshape(t) -> f32[2,8,3,2]
        outputs(y, t)
      )"},
      {"the Transpose is read by somebody else", R"(
        x = input f32[2,6,8]
        t = Transpose(x) {perm=[0,2,1]} -> f32[2,8,6]
        y = Reshape(t) -> f32[2,8,3,2]
        v = Elementwise(t) {exp(i0)} -> f32[2,8,6]
        outputs(y, v)
      )"},
      {"the channels come back somewhere else", R"(
        x = input f32[2,6,8]
        t = Transpose(x) {perm=[0,2,1]} -> f32[2,8,6]
        r = Reshape(t) -> f32[2,8,1,3,2]
        y = Transpose(r) {perm=[0,2,1,3,4]} -> f32[2,1,8,3,2]
        outputs(y)
      )"},
      {"no elements", R"(
        x = input f32[0,6,8]
        t = Transpose(x) {perm=[0,2,1]} -> f32[0,8,6]
        y = Reshape(t) -> f32[0,8,3,2]
        outputs(y)
      )"},
      {"a scalar and a vector", R"(
        x = input f32[4]
        s = input f32[]
        t = Transpose(x) {perm=[0]} -> f32[4]
        u = Transpose(s) {perm=[]} -> f32[]
        y = Reshape(t) -> f32[1,4,1,1]
        z = Reshape(u) -> f32[1,1,1,1]
        outputs(y, z)
      )"},
  };
  for (const Row& row : rows) {
    INFO(row.why);
    CHECK(is_left(row.text));
  }
}

TEST_CASE("random chains of Transposes and Reshapes show the same") {
  std::mt19937 random(3);
  const auto below = [&](size_t count) { return static_cast<size_t>(random() % count); };
  int changes = 0;
  for (int i = 0; i < 3000; ++i) {
    Shape shape = i % 2 == 0 ? Shape{2, 4, 6} : Shape{2, 2, 3, 4};
    std::string name = "x", outputs = "y", text = fmt::format("x = input f32{}\n", list(shape));
    for (size_t k = 0, count = 2 + below(5); k < count; ++k) {
      const std::string to = fmt::format("a{}", k);
      const size_t d = below(shape.size());
      if (below(2) == 0) {
        std::vector<int64_t> perm(shape.size());
        std::iota(perm.begin(), perm.end(), 0);
        std::shuffle(perm.begin(), perm.end(), random);
        const Shape old = shape;
        for (size_t p = 0; p < perm.size(); ++p) shape[p] = old[static_cast<size_t>(perm[p])];
        text += fmt::format("{} = Transpose({}) {{perm={}}} -> f32{}\n", to, name, list(perm), list(shape));
      } else {
        if (d + 1 < shape.size() && (shape.size() > 4 || below(2) == 0)) {
          shape[d] *= shape[d + 1];
          shape.erase(shape.begin() + static_cast<std::ptrdiff_t>(d) + 1);
        } else {
          const int64_t part = shape[d] % 2 == 0 ? 2 : shape[d] % 3 == 0 ? 3 : 1;
          shape[d] /= part;
          shape.insert(shape.begin() + static_cast<std::ptrdiff_t>(d + below(2)), part);
        }
        text += fmt::format("{} = Reshape({}) -> f32{}\n", to, name, list(shape));
      }
      if (below(8) == 0) outputs += ", " + to;
      name = to;
    }
    text += fmt::format("y = Elementwise({}) {{exp(i0)}} -> f32{}\noutputs({})\n", name, list(shape), outputs);
    INFO(text);
    changes += !is_left(text);
    kept(text);
  }
  CHECK(changes > 50);
}

TEST_CASE("rows that pass through a map are moved at once") {
  const Graph source = parse_graph(R"(
    x = input f32[1,2,2,3,3,32]
    w = const f32[32,32]
    g = const f32[32]
    b = const f32[32]
    p = MatMul(x, w) {} -> f32[1,2,2,3,3,32]
    t = Transpose(p) {perm=[0,5,1,3,2,4]} -> f32[1,32,2,3,2,3]
    m = Reshape(t) -> f32[1,32,6,6]
    r = Reshape(m) -> f32[1,32,3,2,3,2]
    s = Transpose(r) {perm=[0,3,5,2,4,1]} -> f32[1,2,2,3,3,32]
    y = Normalize(s, g, b) {axes=[5]} -> f32[1,2,2,3,3,32]
    outputs(y)
  )");
  CHECK(print(passes::move_rows(source)) == print(source));
  const Graph made = passes::move_rows(passes::channels_stay_last(source));
  check_pass(source, made);
  CHECK(count_rops(made, "Transpose") == 0);
  CHECK(std::any_of(made.rops.begin(), made.rops.end(), [](const ROperator& rop) {
    return std::holds_alternative<Normalize>(rop.attrs) && rop.inputs.size() > kNormalizeRows;
  }));
}

}  // namespace tamp::test
