// fold_batch_norm: into which products a BatchNorm goes, in front of it and behind it, and where it stays.
#include "compiler/passes/tidy/fold_batch_norm.h"

#include "test/support/check_pass.h"

using namespace tamp;
using namespace tamp::test;

TEST_CASE("BatchNorm is not folded into weights that someone else's answer needs") {
  const Graph graph = passes::fold_batch_norm(parse_graph(R"(
    x = input f32[1,1,2,2]
    w = const f32[2,1,1,1] {1, 2}
    s = const f32[2] {4, 9}
    a = Conv(x, w) {kernel=[1,1]} -> f32[1,2,2,2]
    b = Conv(x, w) {kernel=[1,1]} -> f32[1,2,2,2]
    y = BatchNorm(a, s, s, s, s) -> f32[1,2,2,2]
    z = BatchNorm(b, s, s, s, s) -> f32[1,2,2,2]
    outputs(a, y, z)
  )"));
  CHECK(count_rops(graph, "BatchNorm") == 0);
  CHECK(count_rops(graph, "Elementwise") == 1);       // a is an output
  CHECK(f32_data(tensor_named(graph, "w"))[1] == 2);  // shared weights stay for a
  CHECK(f32_data(tensor_named(graph, "b.folded_weight"))[1] != 2);
}

namespace {

// BatchNorm of x, which nothing can be folded into, in front of `readers`.
std::string normalised(const std::string& readers) {
  return R"(
    x = input f32[2,4,6,5]
    s = const f32[4] {2, -1, 0.5, 3}
    b = const f32[4] {0.5, 4, -2, 1}
    m = const f32[4] {-1, 2, 0.25, 0}
    v = const f32[4] {1, 4, 0.5, 2}
    k = const f32[6]
    i = Elementwise(x) {tanh(i0)} -> f32[2,4,6,5]
    n = BatchNorm(i, s, b, m, v) {epsilon=0.125} -> f32[2,4,6,5]
)" + readers;
}

struct Normalised {
  const char *why, *text;
};

}  // namespace

TEST_CASE("BatchNorm is folded into convolutions behind it that have no padding") {
  for (const Normalised& row : {
           Normalised{"pointwise", R"(
             w = const f32[6,4,1,1]
             y = Conv(n, w) {kernel=[1,1]} -> f32[2,6,6,5]
             outputs(y)
           )"},
           Normalised{"with a bias", R"(
             w = const f32[6,4,1,1]
             y = Conv(n, w, k) {kernel=[1,1]} -> f32[2,6,6,5]
             outputs(y)
           )"},
           Normalised{"several taps, strides and dilations", R"(
             w = const f32[6,4,3,2]
             y = Conv(n, w, k) {kernel=[3,2], strides=[1,2], dilations=[2,1]} -> f32[2,6,2,2]
             outputs(y)
           )"},
           Normalised{"groups", R"(
             w = const f32[6,2,3,3]
             y = Conv(n, w, k) {kernel=[3,3], group=2} -> f32[2,6,4,3]
             outputs(y)
           )"},
           Normalised{"each channel by itself", R"(
             w = const f32[4,1,2,2]
             y = Conv(n, w) {kernel=[2,2], group=4} -> f32[2,4,5,4]
             outputs(y)
           )"},
           Normalised{"two results of each channel", R"(
             w = const f32[8,1,2,2]
             y = Conv(n, w) {kernel=[2,2], group=4} -> f32[2,8,5,4]
             outputs(y)
           )"},
           Normalised{"two convolutions with the same weights", R"(
             w = const f32[6,4,1,1]
             y = Conv(n, w) {kernel=[1,1]} -> f32[2,6,6,5]
             z = Conv(n, w, k) {kernel=[1,1], strides=[2,2]} -> f32[2,6,3,3]
             outputs(y, z)
           )"},
           Normalised{"weights that a convolution of something else shares", R"(
             w = const f32[4,4,1,1]
             y = Conv(n, w) {kernel=[1,1]} -> f32[2,4,6,5]
             z = Conv(i, w) {kernel=[1,1]} -> f32[2,4,6,5]
             outputs(y, z, i)
           )"},
           Normalised{"another BatchNorm behind the convolution", R"(
             w = const f32[4,4,1,1]
             c = Conv(n, w) {kernel=[1,1]} -> f32[2,4,6,5]
             y = BatchNorm(c, s, b, m, v) {epsilon=0.5} -> f32[2,4,6,5]
             outputs(y)
           )"},
           Normalised{"another BatchNorm behind the convolution, and one behind that", R"(
             w = const f32[4,4,1,1]
             c = Conv(n, w) {kernel=[1,1]} -> f32[2,4,6,5]
             d = BatchNorm(c, s, b, m, v) {epsilon=0.5} -> f32[2,4,6,5]
             e = BatchNorm(d, s, m, b, v) {epsilon=0.5} -> f32[2,4,6,5]
             y = Conv(e, w, b) {kernel=[1,1]} -> f32[2,4,6,5]
             outputs(y)
           )"},
       }) {
    INFO(row.why);
    const Graph source = parse_graph(normalised(row.text)), made = passes::fold_batch_norm(source);
    check_pass(source, made);
    CHECK(count_rops(made, "BatchNorm") == 0);
    CHECK(count_rops(made, "Elementwise") == 1);
  }
  const Graph line = parse_graph(R"(
    x = input f32[2,2,7]
    s = const f32[2] {2, 0.5}
    w = const f32[3,2,2]
    n = BatchNorm(x, s, s, s, s) -> f32[2,2,7]
    y = Conv(n, w) {kernel=[2]} -> f32[2,3,6]
    outputs(y)
  )");
  CHECK(print(passes::fold_batch_norm(line)).find("y = Conv(x, y.folded_weight, y.folded_bias) {kernel=[2]}") != std::string::npos);
  check_pass(line, passes::fold_batch_norm(line));
}

TEST_CASE("a convolution takes the origin of the BatchNorm in front of it") {
  const Graph made = passes::fold_batch_norm(parse_graph(normalised(R"(
    w = const f32[6,4,1,1]
    y = Conv(n, w) {kernel=[1,1]} -> f32[2,6,6,5]
    outputs(y)
  )")));
  CHECK(made.rops.back().origin == std::vector<std::string>{"n", "y"});
}

TEST_CASE("BatchNorm stays in front of what cannot take it, with the weights of all that read it") {
  for (const Normalised& row : {
           Normalised{"padding, which is zero behind the BatchNorm", R"(
             w = const f32[6,4,3,3]
             y = Conv(n, w) {kernel=[3,3], pads=[1,1,1,1]} -> f32[2,6,6,5]
             outputs(y)
           )"},
           Normalised{"padding at one end", R"(
             w = const f32[6,4,1,2]
             y = Conv(n, w) {kernel=[1,2], pads=[0,0,0,1]} -> f32[2,6,6,5]
             outputs(y)
           )"},
           Normalised{"a convolution with padding beside one without", R"(
             w = const f32[6,4,1,1]
             u = const f32[6,4,3,3]
             y = Conv(n, w) {kernel=[1,1]} -> f32[2,6,6,5]
             z = Conv(n, u) {kernel=[3,3], pads=[1,1,1,1]} -> f32[2,6,6,5]
             outputs(y, z)
           )"},
           Normalised{"a reader that is no convolution", R"(
             w = const f32[6,4,1,1]
             y = Conv(n, w) {kernel=[1,1]} -> f32[2,6,6,5]
             z = MaxPool(n) {kernel=[2,2]} -> f32[2,4,5,4]
             outputs(y, z)
           )"},
           Normalised{"an answer", R"(
             w = const f32[6,4,1,1]
             y = Conv(n, w) {kernel=[1,1]} -> f32[2,6,6,5]
             outputs(y, n)
           )"},
           Normalised{"only an answer", "outputs(n)"},
           Normalised{"weights of run time", R"(
             w = input f32[6,4,1,1]
             y = Conv(n, w) {kernel=[1,1]} -> f32[2,6,6,5]
             outputs(y)
           )"},
           Normalised{"a bias of run time", R"(
             w = const f32[6,4,1,1]
             c = input f32[6]
             y = Conv(n, w, c) {kernel=[1,1]} -> f32[2,6,6,5]
             outputs(y)
           )"},
           Normalised{"a residual", R"(
             w = const f32[4,4,1,1]
             y = Conv(i, w) {kernel=[1,1]} epilogue{residual=n} -> f32[2,4,6,5]
             outputs(y)
           )"},
           Normalised{"its own residual", R"(
             w = const f32[4,4,1,1]
             y = Conv(n, w) {kernel=[1,1]} epilogue{residual=n} -> f32[2,4,6,5]
             outputs(y)
           )"},
           Normalised{"a transposed map", R"(
             w = const f32[5,6,1,1]
             t = Transpose(n) {perm=[0,2,3,1]} -> f32[2,6,5,4]
             y = Conv(t, w) {kernel=[1,1]} -> f32[2,5,5,4]
             outputs(y)
           )"},
       }) {
    INFO(row.why);
    const Graph source = parse_graph(normalised(row.text)), made = passes::fold_batch_norm(source);
    check_pass(source, made);
    CHECK(count_rops(made, "BatchNorm") == 0);
    CHECK(count_rops(made, "Elementwise") == 2);
    CHECK(print(made).find("folded") == std::string::npos);
  }
}

TEST_CASE("a convolution in front of a BatchNorm takes it before those behind do") {
  const Graph source = parse_graph(R"(
    x = input f32[1,4,3,3]
    s = const f32[4] {2, 1, 0.5, 3}
    w = const f32[4,4,1,1]
    a = Conv(x, w) {kernel=[1,1]} -> f32[1,4,3,3]
    n = BatchNorm(a, s, s, s, s) -> f32[1,4,3,3]
    y = Conv(n, w) {kernel=[1,1]} -> f32[1,4,3,3]
    outputs(y)
  )");
  const Graph made = passes::fold_batch_norm(source);
  check_pass(source, made);
  CHECK(made.rops.size() == 2);
  CHECK(print(made).find("y = Conv(n, w)") != std::string::npos);
}
