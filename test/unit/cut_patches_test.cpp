// cut_patches: which convolutions become products of patches, in which order of values, and that the answers stay. Whether that is faster
// is the estimator's to say.
#include "compiler/passes/fuse/cut_patches.h"

#include <limits>

#include "compiler/passes/passes.h"
#include "compiler/passes/place/assign_layout.h"
#include "test/support/check_pass.h"

using namespace tamp;
using namespace tamp::test;

namespace {

bool is_cut(const ROperator& rop) {
  const auto* conv = std::get_if<Conv>(&rop.attrs);
  return conv && is_pointwise(*conv);
}
double gained(const Graph& graph, double us) {
  double all = 100;
  for (const ROperator& rop : graph.rops) all -= is_cut(rop) ? us : 0;
  return all;
}
double faster(const Graph& graph) { return gained(graph, 10); }
double slower(const Graph& graph) { return gained(graph, -10); }
double the_same(const Graph&) { return 10; }

Graph cut(const Graph& source) { return passes::cut_patches(source, faster, 4); }

struct Row {
  const char* why;
  const char* text;
};

constexpr const char* kPatches = R"(
  x = input f32[2,3,8,12]
  w = const f32[6,3,4,4]
  b = const f32[6]
  c = Conv(x, w) {kernel=[4,4], strides=[4,4]} epilogue{bias=b, act=relu} -> f32[2,6,2,3]
  r = Reshape(c) -> f32[2,6,6]
  y = Transpose(r) {perm=[0,2,1]} -> f32[2,6,6]
  outputs(y)
)";

}  // namespace

TEST_CASE("a convolution of patches becomes a product with the same epilogue") {
  const Graph source = parse_graph(kPatches), after = cut(source);
  check_pass(source, after);
  const std::string text = print(after);
  CHECK(text.find("Transpose(c.blocks) {perm=[0,2,4,1,3,5]} -> f32[2,2,3,3,4,4]") != std::string::npos);
  CHECK(text.find("c = Conv(c.columns, w.patches) {kernel=[1,1]} epilogue{bias=b, act=relu} -> f32[2,6,2,3]") != std::string::npos);
  CHECK(text.find("c.cropped") == std::string::npos);
}

TEST_CASE("patches need one copy, and the map behind them none") {
  const Graph source = parse_graph(R"(
    x = input f32[2,3,8,12]
    w = const f32[8,3,4,4]
    c = Conv(x, w) {kernel=[4,4], strides=[4,4]} -> f32[2,8,2,3]
    r = Reshape(c) -> f32[2,8,6]
    t = Transpose(r) {perm=[0,2,1]} -> f32[2,6,8]
    y = Softmax(t) {axes=[2,2]} -> f32[2,6,8]
    outputs(y)
  )");
  const Graph placed = passes::assign_layout(cut(source));
  CHECK(distance(ops::run(source, random_inputs(source)), placed_run(placed, random_inputs(source))) < 1e-5);
  CHECK(count_rops(placed, "Elementwise") == 1);
  CHECK(count_rops(placed, "Conv") == 1);
  CHECK(tensor_named(placed, "t").place.strides == std::vector<int64_t>{48, 8, 1});
  const Tensor& patches = tensor_named(placed, "c.columns");
  CHECK(patches.place.strides == std::vector<int64_t>{288, 1, 144, 48});
}

TEST_CASE("patches of all kinds keep the answers") {
  const Row rows[] = {
      {"rows and columns that no patch holds", R"(
        x = input f32[2,3,9,13]
        w = const f32[5,3,4,3]
        b = const f32[5]
        y = Conv(x, w) {kernel=[4,3], strides=[4,3]} epilogue{bias=b} -> f32[2,5,2,4]
        outputs(y)
      )"},
      {"one dimension", R"(
        x = input f32[2,3,17]
        w = const f32[5,3,4]
        y = Conv(x, w) {kernel=[4], strides=[4]} -> f32[2,5,4]
        outputs(y)
      )"},
      {"a patch as large as the image", R"(
        x = input f32[1,2,4,4]
        w = const f32[5,2,4,4]
        y = Conv(x, w) {kernel=[4,4], strides=[4,4]} -> f32[1,5,1,1]
        outputs(y)
      )"},
      {"a residual, and other readers of the input and the weights", R"(
        x = input f32[1,3,4,4]
        z = input f32[1,5,2,2]
        w = const f32[5,3,2,2]
        y = Conv(x, w) {kernel=[2,2], strides=[2,2]} epilogue{residual=z} -> f32[1,5,2,2]
        v = Conv(x, w) {kernel=[2,2], strides=[2,2]} -> f32[1,5,2,2]
        u = Elementwise(x) {relu(i0)} -> f32[1,3,4,4]
        outputs(y, v, u)
      )"},
  };
  for (const Row& row : rows) {
    INFO(row.why);
    const Graph source = parse_graph(row.text), after = cut(source);
    check_pass(source, after);
    for (const ROperator& rop : after.rops) CHECK((!std::holds_alternative<Conv>(rop.attrs) || is_cut(rop)));
    const Graph placed = passes::assign_layout(after);
    CHECK(distance(ops::run(source, random_inputs(source)), placed_run(placed, random_inputs(source))) < 1e-5);
  }
}

TEST_CASE("patches of a map that lies channels last keep that order") {
  const Graph source = parse_graph(R"(
    x = input f32[1,2,5,4]
    v = const f32[8,2,1,1]
    w = const f32[6,8,2,2]
    a = Conv(x, v) {kernel=[1,1]} -> f32[1,8,5,4]
    y = Conv(a, w) {kernel=[2,2], strides=[2,2]} -> f32[1,6,2,2]
    outputs(y)
  )");
  const Graph after = cut(source);
  check_pass(source, after);
  CHECK(print(after).find("y.patches = Transpose(y.blocks) {perm=[0,2,4,3,5,1]} -> f32[1,2,2,2,2,8]") != std::string::npos);
}

TEST_CASE("other convolutions stay") {
  const Row rows[] = {
      {"strides are not the kernel", R"(
        x = input f32[1,2,8,8]
        w = const f32[4,2,4,4]
        y = Conv(x, w) {kernel=[4,4], strides=[2,2]} -> f32[1,4,3,3]
        outputs(y)
      )"},
      {"strides are larger than the kernel", R"(
        x = input f32[1,2,8,8]
        w = const f32[4,2,2,2]
        y = Conv(x, w) {kernel=[2,2], strides=[4,4]} -> f32[1,4,2,2]
        outputs(y)
      )"},
      {"pads", R"(
        x = input f32[1,2,6,6]
        w = const f32[4,2,4,4]
        y = Conv(x, w) {kernel=[4,4], strides=[4,4], pads=[1,1,1,1]} -> f32[1,4,2,2]
        outputs(y)
      )"},
      {"pads at the end", R"(
        x = input f32[1,2,7,8]
        w = const f32[4,2,4,4]
        y = Conv(x, w) {kernel=[4,4], strides=[4,4], pads=[0,0,1,0]} -> f32[1,4,2,2]
        outputs(y)
      )"},
      {"dilations", R"(
        x = input f32[1,2,8,8]
        w = const f32[4,2,2,2]
        y = Conv(x, w) {kernel=[2,2], strides=[2,2], dilations=[2,2]} -> f32[1,4,3,3]
        outputs(y)
      )"},
      {"groups", R"(
        x = input f32[1,4,8,8]
        w = const f32[4,2,4,4]
        y = Conv(x, w) {kernel=[4,4], strides=[4,4], group=2} -> f32[1,4,2,2]
        outputs(y)
      )"},
      {"one tap", R"(
        x = input f32[1,4,8,8]
        w = const f32[4,4,1,1]
        y = Conv(x, w) {kernel=[1,1]} -> f32[1,4,8,8]
        outputs(y)
      )"},
      {"weights of run time", R"(
        x = input f32[1,4,8,8]
        w = input f32[4,4,4,4]
        y = Conv(x, w) {kernel=[4,4], strides=[4,4]} -> f32[1,4,2,2]
        outputs(y)
      )"},
  };
  for (const Row& row : rows) {
    INFO(row.why);
    const Graph source = parse_graph(row.text);
    CHECK(print(cut(source)) == print(source));
  }
}

TEST_CASE("patches are cut where that is estimated to be faster") {
  const auto never = [](const Graph&) { return std::numeric_limits<double>::infinity(); };  // nothing computes either graph
  const Graph source = parse_graph(kPatches);
  for (const GraphEstimator& estimator : {GraphEstimator(), GraphEstimator(slower), GraphEstimator(the_same), GraphEstimator(never)}) {
    CHECK(print(passes::cut_patches(source, estimator, 4)) == print(source));
  }
  for (const passes::Pass& pass : passes::pipeline()) {
    if (pass.name == "cut_patches") CHECK(print(pass.run(source)) == print(source));
  }
}

TEST_CASE("each convolution of patches is decided by itself") {
  const Graph source = parse_graph(R"(
    x = input f32[1,3,8,8]
    w = const f32[8,3,2,2]
    v = const f32[6,8,2,2]
    a = Conv(x, w) {kernel=[2,2], strides=[2,2]} -> f32[1,8,4,4]
    y = Conv(a, v) {kernel=[2,2], strides=[2,2]} -> f32[1,6,2,2]
    outputs(y)
  )");
  const auto only_the_second = [](const Graph& graph) {
    double us = 100;
    for (const ROperator& rop : graph.rops) us += !is_cut(rop) ? 0 : rop.name == "y" ? -50 : 50;
    return us;
  };
  const Graph after = passes::cut_patches(source, only_the_second, 4);
  check_pass(source, after);
  CHECK(print(after).find("a = Conv(x, w) {kernel=[2,2], strides=[2,2]}") != std::string::npos);
  CHECK(print(after).find("y = Conv(y.columns, v.patches) {kernel=[1,1]}") != std::string::npos);
}
