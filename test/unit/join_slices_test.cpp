// Slices that a Concat joins again to what they were cut from.
#include "compiler/passes/views/join_slices.h"

#include "compiler/passes/place/assign_layout.h"
#include "test/support/check_pass.h"

namespace tamp::test {
namespace {

struct Row {
  const char *why, *text;
};
struct Joined {
  const char *why, *text, *operands;
};

Graph joined(const std::string& text) {
  const Graph source = parse_graph(text);
  Graph made = passes::join_slices(source);
  check_pass(source, made);
  check_pass(source, passes::assign_layout(made));
  return made;
}

}  // namespace

TEST_CASE("halves that are joined again are the whole") {
  // A block of YOLO: the map is halved, one half is convolved, and both halves and the result are joined.
  const std::string text = R"(
    x = input f32[2,3,4,4]
    u = const f32[8,3,1,1]
    v = const f32[4,4,1,1]
    w = const f32[5,12,1,1]
    i = Conv(x, u) {kernel=[1,1]} -> f32[2,8,4,4]
    a = Slice(i) {starts=[0,0,0,0]} -> f32[2,4,4,4]
    b = Slice(i) {starts=[0,4,0,0]} -> f32[2,4,4,4]
    c = Conv(b, v) {kernel=[1,1]} -> f32[2,4,4,4]
    d = Concat(a, b, c) {axis=1} -> f32[2,12,4,4]
    y = Conv(d, w) {kernel=[1,1]} -> f32[2,5,4,4]
    outputs(y)
  )";
  const Graph made = joined(text);
  CHECK(print(made) == print(parse_graph(R"(
    x = input f32[2,3,4,4]
    u = const f32[8,3,1,1]
    v = const f32[4,4,1,1]
    w = const f32[5,12,1,1]
    i = Conv(x, u) {kernel=[1,1]} -> f32[2,8,4,4]
    b = Slice(i) {starts=[0,4,0,0]} -> f32[2,4,4,4]
    c = Conv(b, v) {kernel=[1,1]} -> f32[2,4,4,4]
    d = Concat(i, c) {axis=1} -> f32[2,12,4,4]
    y = Conv(d, w) {kernel=[1,1]} -> f32[2,5,4,4]
    outputs(y)
  )")));
  CHECK(count_rops(passes::assign_layout(parse_graph(text)), "Elementwise") == 2);
  CHECK(count_rops(passes::assign_layout(made), "Elementwise") == 0);
}

TEST_CASE("all parts of a tensor in their order are the tensor") {
  const char* const head = "x = input f32[2,6,4]\nz = input f32[2,6,4]\ni = Elementwise(x) {exp(i0)} -> f32[2,6,4]\n";
  const Joined rows[] = {
      {"behind something else", R"(
        a = Slice(i) {starts=[0,0,0]} -> f32[2,3,4]
        b = Slice(i) {starts=[0,3,0]} -> f32[2,3,4]
        y = Concat(z, a, b) {axis=1} -> f32[2,12,4]
        outputs(y)
      )",
       "Concat(z, i)"},
      {"three parts of different extents", R"(
        a = Slice(i) {starts=[0,0,0]} -> f32[2,1,4]
        b = Slice(i) {starts=[0,1,0]} -> f32[2,3,4]
        c = Slice(i) {starts=[0,4,0]} -> f32[2,2,4]
        y = Concat(a, b, c, z) {axis=1} -> f32[2,12,4]
        outputs(y)
      )",
       "Concat(i, z)"},
      {"twice", R"(
        a = Slice(i) {starts=[0,0,0]} -> f32[2,3,4]
        b = Slice(i) {starts=[0,3,0]} -> f32[2,3,4]
        y = Concat(a, b, a, b) {axis=1} -> f32[2,12,4]
        outputs(y)
      )",
       "Concat(i, i)"},
      {"with the first part in front once more", R"(
        a = Slice(i) {starts=[0,0,0]} -> f32[2,3,4]
        b = Slice(i) {starts=[0,3,0]} -> f32[2,3,4]
        y = Concat(a, a, b) {axis=1} -> f32[2,9,4]
        outputs(y)
      )",
       "Concat(a, i)"},
      {"the first axis", R"(
        a = Slice(i) {starts=[0,0,0]} -> f32[1,6,4]
        b = Slice(i) {starts=[1,0,0]} -> f32[1,6,4]
        y = Concat(a, b, z) {axis=0} -> f32[4,6,4]
        outputs(y)
      )",
       "Concat(i, z)"},
      {"the last axis", R"(
        a = Slice(i) {starts=[0,0,0]} -> f32[2,6,1]
        b = Slice(i) {starts=[0,0,1]} -> f32[2,6,3]
        y = Concat(a, b, z) {axis=2} -> f32[2,6,8]
        outputs(y)
      )",
       "Concat(i, z)"},
      {"nothing else", R"(
        a = Slice(i) {starts=[0,0,0]} -> f32[2,3,4]
        b = Slice(i) {starts=[0,3,0]} -> f32[2,3,4]
        y = Concat(a, b) {axis=1} -> f32[2,6,4]
        outputs(y)
      )",
       "Concat(i)"},
      {"one part that is all of it", R"(
        a = Slice(i) {starts=[0,0,0]} -> f32[2,6,4]
        y = Concat(a, z) {axis=1} -> f32[2,12,4]
        outputs(y)
      )",
       "Concat(i, z)"},
      {"a part without elements", R"(
        a = Slice(i) {starts=[0,0,0]} -> f32[2,0,4]
        b = Slice(i) {starts=[0,0,0]} -> f32[2,6,4]
        y = Concat(a, b, z) {axis=1} -> f32[2,12,4]
        outputs(y)
      )",
       "Concat(i, z)"},
      {"parts that are answers", R"(
        a = Slice(i) {starts=[0,0,0]} -> f32[2,3,4]
        b = Slice(i) {starts=[0,3,0]} -> f32[2,3,4]
        y = Concat(a, b, z) {axis=1} -> f32[2,12,4]
        outputs(y, b)
      )",
       "Concat(i, z)"},
      {"parts of an input of the graph", R"(
        a = Slice(x) {starts=[0,0,0]} -> f32[2,3,4]
        b = Slice(x) {starts=[0,3,0]} -> f32[2,3,4]
        y = Concat(a, b, i) {axis=1} -> f32[2,12,4]
        outputs(y)
      )",
       "Concat(x, i)"},
      {"parts of another Concat's parts", R"(
        a = Slice(i) {starts=[0,0,0]} -> f32[2,3,4]
        b = Slice(i) {starts=[0,3,0]} -> f32[2,3,4]
        d = Concat(a, b, z) {axis=1} -> f32[2,12,4]
        e = Slice(d) {starts=[0,0,0]} -> f32[2,5,4]
        f = Slice(d) {starts=[0,5,0]} -> f32[2,7,4]
        y = Concat(e, f, z) {axis=1} -> f32[2,18,4]
        outputs(y)
      )",
       "Concat(d, z)"},
  };
  for (const Joined& row : rows) {
    INFO(row.why);
    const Graph made = joined(std::string(head) + row.text);
    CHECK(print(made).find("y = " + std::string(row.operands)) != std::string::npos);
  }
}

TEST_CASE("tensors without elements are joined") {
  CHECK(count_rops(joined(R"(
    x = input f32[2,0,4]
    z = input f32[2,3,4]
    a = Slice(x) {starts=[0,0,0]} -> f32[2,0,4]
    b = Slice(x) {starts=[0,0,0]} -> f32[2,0,4]
    y = Concat(a, b, z) {axis=1} -> f32[2,3,4]
    outputs(y)
  )"),
                   "Slice") == 0);
}

TEST_CASE("slices that are not all of one tensor side by side stay") {
  const char* const head = "x = input f32[2,6,4]\nz = input f32[2,6,4]\n";
  const Row rows[] = {
      {"another order", R"(
        a = Slice(x) {starts=[0,0,0]} -> f32[2,3,4]
        b = Slice(x) {starts=[0,3,0]} -> f32[2,3,4]
        y = Concat(b, a) {axis=1} -> f32[2,6,4]
        outputs(y)
      )"},
      {"something in between", R"(
        a = Slice(x) {starts=[0,0,0]} -> f32[2,3,4]
        b = Slice(x) {starts=[0,3,0]} -> f32[2,3,4]
        y = Concat(a, z, b) {axis=1} -> f32[2,12,4]
        outputs(y)
      )"},
      {"a rest that is missing", R"(
        a = Slice(x) {starts=[0,0,0]} -> f32[2,3,4]
        b = Slice(x) {starts=[0,3,0]} -> f32[2,2,4]
        y = Concat(a, b) {axis=1} -> f32[2,5,4]
        outputs(y)
      )"},
      {"a gap", R"(
        a = Slice(x) {starts=[0,0,0]} -> f32[2,2,4]
        b = Slice(x) {starts=[0,3,0]} -> f32[2,3,4]
        y = Concat(a, b) {axis=1} -> f32[2,5,4]
        outputs(y)
      )"},
      {"an overlap", R"(
        a = Slice(x) {starts=[0,0,0]} -> f32[2,4,4]
        b = Slice(x) {starts=[0,3,0]} -> f32[2,3,4]
        y = Concat(a, b) {axis=1} -> f32[2,7,4]
        outputs(y)
      )"},
      {"only the last part", R"(
        b = Slice(x) {starts=[0,3,0]} -> f32[2,3,4]
        y = Concat(b, z) {axis=1} -> f32[2,9,4]
        outputs(y)
      )"},
      {"parts of two tensors", R"(
        a = Slice(x) {starts=[0,0,0]} -> f32[2,3,4]
        b = Slice(z) {starts=[0,3,0]} -> f32[2,3,4]
        y = Concat(a, b) {axis=1} -> f32[2,6,4]
        outputs(y)
      )"},
      {"along another axis", R"(
        a = Slice(x) {starts=[0,0,0]} -> f32[2,3,4]
        b = Slice(x) {starts=[0,3,0]} -> f32[2,3,4]
        y = Concat(a, b) {axis=2} -> f32[2,3,8]
        outputs(y)
      )"},
      {"a part of another dimension, too", R"(
        a = Slice(x) {starts=[0,0,0]} -> f32[2,3,2]
        b = Slice(x) {starts=[0,3,0]} -> f32[2,3,2]
        y = Concat(a, b) {axis=1} -> f32[2,6,2]
        outputs(y)
      )"},
      {"every second one", R"(
        a = Slice(x) {starts=[0,0,0], steps=[1,2,1]} -> f32[2,3,4]
        b = Slice(x) {starts=[0,1,0], steps=[1,2,1]} -> f32[2,3,4]
        y = Concat(a, b) {axis=1} -> f32[2,6,4]
        outputs(y)
      )"},
      {"backwards", R"(
        a = Slice(x) {starts=[0,5,0], steps=[1,-1,1]} -> f32[2,6,4]
        y = Concat(a, z) {axis=1} -> f32[2,12,4]
        outputs(y)
      )"},
      {"no Slices", R"(
        y = Concat(x, z) {axis=1} -> f32[2,12,4]
        outputs(y)
      )"},
  };
  for (const Row& row : rows) {
    INFO(row.why);
    const Graph source = parse_graph(std::string(head) + row.text);
    CHECK(print(passes::join_slices(source)) == print(source));
  }
}

}  // namespace tamp::test
