// Channel shuffles: the operands of a Concat are put one in turn, where they are made.
#include "compiler/passes/views/stack_concats.h"

#include <fmt/format.h>

#include "compiler/passes/place/assign_layout.h"
#include "test/support/check_pass.h"

namespace tamp::test {
namespace {

struct Row {
  const char *why, *text;
};

Graph stacked(const std::string& text) {
  const Graph source = parse_graph(text);
  Graph made = passes::stack_concats(source);
  check_pass(source, made);
  const Graph placed = passes::assign_layout(made);
  check_pass(source, placed);
  return made;
}
bool is_left(const std::string& text) {
  const Graph source = parse_graph(text);
  return print(passes::stack_concats(source)) == print(source);
}

// Two blocks of ShuffleNet: half of the channels pass through, the other half is convolved, both are shuffled. `n` images.
std::string shuffle_net(int n) {
  const std::string maps = fmt::format(" -> f32[{},", n), end = ",5,4]\n";
  return fmt::format("x = input f32[{},8,5,4]\n", n) + "u = const f32[16,8,1,1]\nv = const f32[8,8,1,1]\nw = const f32[6,16,1,1]\n" +  //
         "i = Conv(x, u) {kernel=[1,1]}" + maps + "16" + end +                                                                         //
         "p = Slice(i) {starts=[0,0,0,0]}" + maps + "8" + end +                                                                        //
         "q = Slice(i) {starts=[0,8,0,0]}" + maps + "8" + end +                                                                        //
         "a = Conv(q, v) {kernel=[1,1]}" + maps + "8" + end +                                                                          //
         "c = Concat(p, a) {axis=1}" + maps + "16" + end +                                                                             //
         "r = Reshape(c)" + maps + "2,8" + end + "t = Transpose(r) {perm=[0,2,1,3,4]}" + maps + "8,2" + end +                          //
         "m = Reshape(t)" + maps + "16" + end +                                                                                        //
         "y = Conv(m, w) {kernel=[1,1]}" + maps + "6" + end + "outputs(y)\n";
}

}  // namespace

TEST_CASE("shuffled channels are joined one in turn") {
  const Graph made = stacked(R"(
    x = input f32[1,3,2,2]
    z = input f32[1,3,2,2]
    c = Concat(x, z) {axis=1} -> f32[1,6,2,2]
    r = Reshape(c) -> f32[1,2,3,2,2]
    t = Transpose(r) {perm=[0,2,1,3,4]} -> f32[1,3,2,2,2]
    y = Reshape(t) -> f32[1,6,2,2]
    outputs(y)
  )");
  CHECK(print(made) == print(parse_graph(R"(
    x = input f32[1,3,2,2]
    z = input f32[1,3,2,2]
    t.part0 = Reshape(x) -> f32[1,3,1,2,2]  // t.part0 (origin: c)
    t.part1 = Reshape(z) -> f32[1,3,1,2,2]  // t.part1 (origin: c)
    t = Concat(t.part0, t.part1) {axis=2} -> f32[1,3,2,2,2]  // t (origin: c, t)
    y = Reshape(t) -> f32[1,6,2,2]
    outputs(y)
  )")));
}

TEST_CASE("of a shuffle only the half that passes through is copied") {
  for (const int n : {1, 3}) {
    CAPTURE(n);
    const Graph source = parse_graph(shuffle_net(n)), before = passes::assign_layout(source);
    const Graph after = passes::assign_layout(stacked(shuffle_net(n)));
    const Shape half = {n, 8, 5, 4};
    const auto copied = [](const Graph& graph) {
      int64_t elements = 0;
      for (const ROperator& rop : graph.rops) {
        if (std::holds_alternative<Elementwise>(rop.attrs)) elements += element_count(graph.tensor(rop.outputs[0]).shape);
      }
      return elements;
    };
    CHECK(copied(before) > element_count(half));
    CHECK(copied(after) == element_count(half));
    // The convolution behind the shuffle finds pixels that lie channel by channel, and the one in front makes every second channel.
    const Tensor &map = tensor_named(after, "m"), &made = tensor_named(after, "a");
    CHECK(map.place.strides == passes::assign_layout(parse_graph(fmt::format(R"(
      x = input f32[{0},8,5,4]
      u = const f32[16,8,1,1]
      m = Conv(x, u) {{kernel=[1,1]}} -> f32[{0},16,5,4]
      y = Softmax(m) {{axes=[1,1]}} -> f32[{0},16,5,4]
      outputs(y)
    )",
                                                                             n)))
                                   .tensors[2]
                                   .place.strides);
    CHECK(made.place.buffer == map.place.buffer);
    CHECK(made.place.strides[1] == 2 * map.place.strides[1]);
  }
}

TEST_CASE("shuffles of all kinds keep the answers, and none is left") {
  const Row rows[] = {
      {"three operands, one of them twice", R"(
        x = input f32[2,4,3,2]
        z = input f32[2,4,3,2]
        c = Concat(x, z, x) {axis=1} -> f32[2,12,3,2]
        r = Reshape(c) -> f32[2,3,4,3,2]
        t = Transpose(r) {perm=[0,2,1,3,4]} -> f32[2,4,3,3,2]
        y = Reshape(t) -> f32[2,12,3,2]
        outputs(y)
      )"},
      {"the same operand twice", R"(
        x = input f32[1,4,3,2]
        i = Elementwise(x) {exp(i0)} -> f32[1,4,3,2]
        c = Concat(i, i) {axis=1} -> f32[1,8,3,2]
        r = Reshape(c) -> f32[1,2,4,3,2]
        t = Transpose(r) {perm=[0,2,1,3,4]} -> f32[1,4,2,3,2]
        y = Reshape(t) -> f32[1,8,3,2]
        outputs(y)
      )"},
      {"rank 3", R"(
        x = input f32[2,4,7]
        z = input f32[2,4,7]
        c = Concat(x, z) {axis=1} -> f32[2,8,7]
        r = Reshape(c) -> f32[2,2,4,7]
        t = Transpose(r) {perm=[0,2,1,3]} -> f32[2,4,2,7]
        y = Reshape(t) -> f32[2,8,7]
        outputs(y)
      )"},
      {"the first axis", R"(
        x = input f32[4,7]
        z = input f32[4,7]
        c = Concat(x, z) {axis=0} -> f32[8,7]
        r = Reshape(c) -> f32[2,4,7]
        t = Transpose(r) {perm=[1,0,2]} -> f32[4,2,7]
        y = Reshape(t) -> f32[8,7]
        outputs(y)
      )"},
      {"the last axis", R"(
        x = input f32[3,4]
        z = input f32[3,4]
        c = Concat(x, z) {axis=1} -> f32[3,8]
        r = Reshape(c) -> f32[3,2,4]
        t = Transpose(r) {perm=[0,2,1]} -> f32[3,4,2]
        y = Reshape(t) -> f32[3,8]
        outputs(y)
      )"},
      {"operands of one channel", R"(
        x = input f32[1,1,3,2]
        z = input f32[1,1,3,2]
        c = Concat(x, z) {axis=1} -> f32[1,2,3,2]
        r = Reshape(c) -> f32[1,2,1,3,2]
        t = Transpose(r) {perm=[0,2,1,3,4]} -> f32[1,1,2,3,2]
        y = Reshape(t) -> f32[1,2,3,2]
        outputs(y)
      )"},
      {"maps of one pixel", R"(
        x = input f32[1,4,1,1]
        z = input f32[1,4,1,1]
        c = Concat(x, z) {axis=1} -> f32[1,8,1,1]
        r = Reshape(c) -> f32[1,2,4,1,1]
        t = Transpose(r) {perm=[0,2,1,3,4]} -> f32[1,4,2,1,1]
        y = Reshape(t) -> f32[1,8,1,1]
        outputs(y)
      )"},
      {"no image at all", R"(
        x = input f32[0,4,3,2]
        z = input f32[0,4,3,2]
        c = Concat(x, z) {axis=1} -> f32[0,8,3,2]
        r = Reshape(c) -> f32[0,2,4,3,2]
        t = Transpose(r) {perm=[0,2,1,3,4]} -> f32[0,4,2,3,2]
        y = Reshape(t) -> f32[0,8,3,2]
        outputs(y)
      )"},
      {"the Transpose's result is an answer, and is read", R"(
        x = input f32[1,4,3,2]
        z = input f32[1,4,3,2]
        c = Concat(x, z) {axis=1} -> f32[1,8,3,2]
        r = Reshape(c) -> f32[1,2,4,3,2]
        t = Transpose(r) {perm=[0,2,1,3,4]} -> f32[1,4,2,3,2]
        y = Elementwise(t) {exp(i0)} -> f32[1,4,2,3,2]
        outputs(y, t)
      )"},
      {"the operands are answers, and halves of another shuffle", R"(
        x = input f32[1,4,3,2]
        z = input f32[1,4,3,2]
        a = Elementwise(x) {exp(i0)} -> f32[1,4,3,2]
        c = Concat(a, z) {axis=1} -> f32[1,8,3,2]
        r = Reshape(c) -> f32[1,2,4,3,2]
        t = Transpose(r) {perm=[0,2,1,3,4]} -> f32[1,4,2,3,2]
        m = Reshape(t) -> f32[1,8,3,2]
        d = Concat(m, m) {axis=1} -> f32[1,16,3,2]
        s = Reshape(d) -> f32[1,2,8,3,2]
        u = Transpose(s) {perm=[0,2,1,3,4]} -> f32[1,8,2,3,2]
        y = Reshape(u) -> f32[1,16,3,2]
        outputs(y, a, m)
      )"},
  };
  for (const Row& row : rows) {
    INFO(row.why);
    CHECK(count_rops(stacked(row.text), "Transpose") == 0);
  }
}

TEST_CASE("a shuffle of other types keeps the type") {
  const Graph made = passes::stack_concats(parse_graph(R"(
    x = input i64[2,4]
    z = input i64[2,4]
    c = Concat(x, z) {axis=1} -> i64[2,8]
    r = Reshape(c) -> i64[2,2,4]
    y = Transpose(r) {perm=[0,2,1]} -> i64[2,4,2]
    outputs(y)
  )"));
  CHECK_NOTHROW(ops::verify_shapes(made));
  CHECK(count_rops(made, "Transpose") == 0);
  CHECK(tensor_named(made, "y.part1").dtype == DType::i64);
}

TEST_CASE("what is no shuffle of whole operands stays") {
  const Row rows[] = {
      {"operands of different extents", R"(
        x = input f32[1,2,3,2]
        z = input f32[1,6,3,2]
        c = Concat(x, z) {axis=1} -> f32[1,8,3,2]
        r = Reshape(c) -> f32[1,2,4,3,2]
        y = Transpose(r) {perm=[0,2,1,3,4]} -> f32[1,4,2,3,2]
        outputs(y)
      )"},
      {"more groups than operands", R"(
        x = input f32[1,4,3,2]
        z = input f32[1,4,3,2]
        c = Concat(x, z) {axis=1} -> f32[1,8,3,2]
        r = Reshape(c) -> f32[1,4,2,3,2]
        y = Transpose(r) {perm=[0,2,1,3,4]} -> f32[1,2,4,3,2]
        outputs(y)
      )"},
      {"one operand", R"(
        x = input f32[1,4,3,2]
        c = Concat(x) {axis=1} -> f32[1,4,3,2]
        r = Reshape(c) -> f32[1,1,4,3,2]
        y = Transpose(r) {perm=[0,2,1,3,4]} -> f32[1,4,1,3,2]
        outputs(y)
      )"},
      {"another axis than the Concat's", R"(
        x = input f32[2,4,3,2]
        z = input f32[2,4,3,2]
        c = Concat(x, z) {axis=0} -> f32[4,4,3,2]
        r = Reshape(c) -> f32[4,2,2,3,2]
        y = Transpose(r) {perm=[0,2,1,3,4]} -> f32[4,2,2,3,2]
        outputs(y)
      )"},
      {"a Reshape that joins pixels, too", R"(
        x = input f32[1,4,3,2]
        z = input f32[1,4,3,2]
        c = Concat(x, z) {axis=1} -> f32[1,8,3,2]
        r = Reshape(c) -> f32[1,2,4,6]
        y = Transpose(r) {perm=[0,2,1,3]} -> f32[1,4,2,6]
        outputs(y)
      )"},
      {"a Transpose that moves pixels, too", R"(
        x = input f32[1,4,3,2]
        z = input f32[1,4,3,2]
        c = Concat(x, z) {axis=1} -> f32[1,8,3,2]
        r = Reshape(c) -> f32[1,2,4,3,2]
        y = Transpose(r) {perm=[0,2,1,4,3]} -> f32[1,4,2,2,3]
        outputs(y)
      )"},
      {"the Concat is read by somebody else", R"(
        x = input f32[1,4,3,2]
        z = input f32[1,4,3,2]
        c = Concat(x, z) {axis=1} -> f32[1,8,3,2]
        r = Reshape(c) -> f32[1,2,4,3,2]
        y = Transpose(r) {perm=[0,2,1,3,4]} -> f32[1,4,2,3,2]
        v = Elementwise(c) {exp(i0)} -> f32[1,8,3,2]
        outputs(y, v)
      )"},
      {"the Concat is an answer", R"(
        x = input f32[1,4,3,2]
        z = input f32[1,4,3,2]
        c = Concat(x, z) {axis=1} -> f32[1,8,3,2]
        r = Reshape(c) -> f32[1,2,4,3,2]
        y = Transpose(r) {perm=[0,2,1,3,4]} -> f32[1,4,2,3,2]
        outputs(y, c)
      )"},
      {"the Reshape is an answer", R"(
        x = input f32[1,4,3,2]
        z = input f32[1,4,3,2]
        c = Concat(x, z) {axis=1} -> f32[1,8,3,2]
        r = Reshape(c) -> f32[1,2,4,3,2]
        y = Transpose(r) {perm=[0,2,1,3,4]} -> f32[1,4,2,3,2]
        outputs(y, r)
      )"},
      {"the Reshape is read by somebody else", R"(
        x = input f32[1,4,3,2]
        z = input f32[1,4,3,2]
        c = Concat(x, z) {axis=1} -> f32[1,8,3,2]
        r = Reshape(c) -> f32[1,2,4,3,2]
        y = Transpose(r) {perm=[0,2,1,3,4]} -> f32[1,4,2,3,2]
        v = Elementwise(r) {exp(i0)} -> f32[1,2,4,3,2]
        outputs(y, v)
      )"},
      {"no Concat", R"(
        x = input f32[1,8,3,2]
        r = Reshape(x) -> f32[1,2,4,3,2]
        y = Transpose(r) {perm=[0,2,1,3,4]} -> f32[1,4,2,3,2]
        outputs(y)
      )"},
      {"no Reshape", R"(
        x = input f32[2,4]
        z = input f32[2,4]
        c = Concat(x, z) {axis=0} -> f32[4,4]
        y = Transpose(c) {perm=[1,0]} -> f32[4,4]
        outputs(y)
      )"},
  };
  for (const Row& row : rows) {
    INFO(row.why);
    CHECK(is_left(row.text));
  }
}

}  // namespace tamp::test
