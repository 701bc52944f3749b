// Convolutions with taps that are far apart, one tap after another.
#include "compiler/passes/fuse/split_dilated.h"

#include <fmt/format.h>

#include <limits>

#include "compiler/passes/passes.h"
#include "compiler/passes/place/assign_layout.h"
#include "test/support/check_pass.h"

namespace tamp::test {
namespace {

struct Row {
  const char *why, *text;
};

bool is_dilated(const ROperator& rop) {
  const auto* const conv = std::get_if<Conv>(&rop.attrs);
  return conv && std::any_of(conv->dilations.begin(), conv->dilations.end(), [](int64_t dilation) { return dilation > 1; });
}
double faster(const Graph& graph) {  // without dilations
  return static_cast<double>(1 + std::count_if(graph.rops.begin(), graph.rops.end(), is_dilated));
}
double slower(const Graph& graph) { return 1 / faster(graph); }

Graph split(const std::string& text) {
  const Graph source = parse_graph(text);
  Graph made = passes::split_dilated(source, faster);
  check_pass(source, made);
  check_pass(source, passes::assign_layout(made));
  return made;
}

// A convolution of maps of 5 channels and 7 x 6 pixels.
std::string conv(const std::string& attributes, const std::string& kernel, const std::string& y, const std::string& epilogue = "") {
  return fmt::format(R"(
    x = input f32[2,5,7,6]
    z = input f32{2}
    w = const f32[4,5,{1}]
    b = const f32[4]
    y = Conv(x, w) {{kernel=[{1}], {0}}} {3} -> f32{2}
    outputs(y)
  )",
                     attributes, kernel, y, epilogue);
}

}  // namespace

TEST_CASE("taps that are far apart are pointwise convolutions, one after another") {
  const Graph made = split(R"(
    x = input f32[1,2,3,4]
    w = const f32[2,2,1,3] {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}
    b = const f32[2]
    y = Conv(x, w) {kernel=[1,3], dilations=[1,3], pads=[0,3,0,3]} epilogue{bias=b, act=relu} -> f32[1,2,3,4]
    outputs(y)
  )");
  CHECK(print(made) == print(parse_graph(R"(
    x = input f32[1,2,3,4]
    b = const f32[2]
    y.tap0.read = Slice(x) {starts=[0,0,0,0]} -> f32[1,2,3,1]  // y.tap0.read (origin: y)
    w.tap0 = const f32[2,2,1,1] {1, 4, 7, 10}
    y.tap0 = Conv(y.tap0.read, w.tap0) {kernel=[1,1], pads=[0,3,0,0]} -> f32[1,2,3,4]  // y.tap0 (origin: y)
    y.tap1.read = Slice(x) {starts=[0,0,0,0]} -> f32[1,2,3,4]  // y.tap1.read (origin: y)
    w.tap1 = const f32[2,2,1,1] {2, 5, 8, 11}
    y.tap1 = Conv(y.tap1.read, w.tap1) {kernel=[1,1]} epilogue{residual=y.tap0} -> f32[1,2,3,4]  // y.tap1 (origin: y)
    y.tap2.read = Slice(x) {starts=[0,0,0,3]} -> f32[1,2,3,1]  // y.tap2.read (origin: y)
    w.tap2 = const f32[2,2,1,1] {3, 6, 9, 12}
    y = Conv(y.tap2.read, w.tap2) {kernel=[1,1], pads=[0,0,0,3]} epilogue{bias=b, residual=y.tap1, act=relu} -> f32[1,2,3,4]
    outputs(y)
  )")));
}

TEST_CASE("dilated convolutions of all kinds keep the answers, and their slices are no copies") {
  struct Kind {
    const char* why;
    std::string text;
    int convs;
  };
  const std::string same = "[2,4,7,6]";
  const Kind kinds[] = {
      {"as in DeepLab", conv("dilations=[3,3], pads=[3,3,3,3]", "3,3", same, "epilogue{bias=b, act=relu}"), 9},
      {"an activation with attributes", conv("dilations=[2,2], pads=[2,2,2,2]", "3,3", same, "epilogue{act=leaky_relu, a=0.25, b=0}"), 9},
      {"no padding", conv("dilations=[3,2]", "3,3", "[2,4,1,2]"), 9},
      {"padding that is larger than the reach", conv("dilations=[2,2], pads=[5,4,6,3]", "3,2", "[2,4,14,11]"), 6},
      {"padding on one side", conv("dilations=[2,2], pads=[4,0,0,4]", "3,3", same), 9},
      {"dilations of one dimension", conv("dilations=[1,3], pads=[1,3,1,3]", "3,3", same), 9},
      {"other dilations along each dimension", conv("dilations=[2,3], pads=[2,3,2,3]", "3,3", same), 9},
      {"a kernel of even extents", conv("dilations=[3,3], pads=[3,0,0,3]", "2,2", same), 4},
      {"taps that reach nothing but padding", conv("dilations=[7,6], pads=[7,6,7,6]", "3,3", same).c_str(), 0},
      {"rows that reach nothing but padding", conv("dilations=[7,2], pads=[7,2,7,2]", "3,3", same), 3},
  };
  for (const Kind& kind : kinds) {
    INFO(kind.why);
    const Graph made = split(kind.text);
    if (kind.convs > 0) {
      CHECK(count_rops(made, "Conv") == kind.convs);
      CHECK(std::none_of(made.rops.begin(), made.rops.end(), is_dilated));
      CHECK(made.rops.back().name == "y");
    }
    CHECK(count_rops(passes::assign_layout(made), "Elementwise") == 0);
  }
}

TEST_CASE("maps of one pixel, of a product's result, and weights that two share") {
  const Graph made = split(R"(
    x = input f32[1,3,9,9]
    u = const f32[4,3,1,1]
    w = const f32[4,4,3,3]
    i = Conv(x, u) {kernel=[1,1]} -> f32[1,4,9,9]
    a = Conv(i, w) {kernel=[3,3], dilations=[4,4], pads=[4,4,4,4]} epilogue{act=relu} -> f32[1,4,9,9]
    c = Conv(a, w) {kernel=[3,3], dilations=[4,4]} -> f32[1,4,1,1]
    y = Conv(i, w) {kernel=[3,3], dilations=[2,2], pads=[2,2,2,2]} -> f32[1,4,9,9]
    v = Conv(i, w) {kernel=[3,3], pads=[1,1,1,1]} -> f32[1,4,9,9]
    outputs(c, y, v, i)
  )");
  CHECK(count_rops(made, "Conv") == 2 + 3 * 9);
  CHECK(std::none_of(made.rops.begin(), made.rops.end(), is_dilated));
}

TEST_CASE("other convolutions stay whole") {
  const std::string same = "[2,4,7,6]";
  const std::string texts[] = {
      conv("pads=[1,1,1,1]", "3,3", same),                                                     // no dilation
      conv("dilations=[2,2]", "1,1", same),                                                    // one tap
      conv("dilations=[2,2], strides=[2,2], pads=[2,2,2,2]", "3,3", "[2,4,4,3]"),              // strides
      conv("dilations=[3,3], pads=[3,3,3,3]", "3,3", same, "epilogue{residual=z, act=relu}"),  // a residual
      conv("dilations=[7,6], pads=[7,6,7,6]", "3,3", same),                                    // one tap that reaches a pixel
      R"(
        x = input f32[1,4,7,6]
        w = const f32[4,2,3,3]
        y = Conv(x, w) {kernel=[3,3], dilations=[2,2], pads=[2,2,2,2], group=2} -> f32[1,4,7,6]
        outputs(y)
      )",
      R"(
        x = input f32[1,4,7,6]
        w = input f32[4,4,3,3]
        y = Conv(x, w) {kernel=[3,3], dilations=[2,2], pads=[2,2,2,2]} -> f32[1,4,7,6]
        outputs(y)
      )",
      R"(
        x = input f32[1,4,7]
        w = const f32[4,4,3]
        y = Conv(x, w) {kernel=[3], dilations=[2], pads=[2,2]} -> f32[1,4,7]
        outputs(y)
      )",
      R"(
        x = input f32[0,4,7,6]
        w = const f32[4,4,3,3]
        y = Conv(x, w) {kernel=[3,3], dilations=[2,2], pads=[2,2,2,2]} -> f32[0,4,7,6]
        outputs(y)
      )",
      R"(
        x = const f32[1,4,7,6]
        w = const f32[4,4,3,3]
        y = Conv(x, w) {kernel=[3,3], dilations=[2,2], pads=[2,2,2,2]} -> f32[1,4,7,6]
        outputs(y)
      )",
  };
  for (const std::string& text : texts) {
    INFO(text);
    const Graph source = parse_graph(text);
    CHECK(print(passes::split_dilated(source, faster)) == print(source));
  }
}

TEST_CASE("convolutions are split where that is estimated to be faster") {
  const Graph source = parse_graph(conv("dilations=[3,3], pads=[3,3,3,3]", "3,3", "[2,4,7,6]"));
  const auto the_same = [](const Graph&) { return 5.0; };
  const auto hardly = [](const Graph& graph) { return 100 + faster(graph); };
  const auto never = [](const Graph&) { return std::numeric_limits<double>::infinity(); };
  for (const GraphEstimator& estimator :
       {GraphEstimator(), GraphEstimator(slower), GraphEstimator(the_same), GraphEstimator(hardly), GraphEstimator(never)})
    CHECK(print(passes::split_dilated(source, estimator)) == print(source));
  for (const passes::Pass& pass : passes::pipeline()) {
    if (pass.name == "split_dilated") CHECK(print(pass.run(source)) == print(source));
  }
}

TEST_CASE("each dilated convolution is decided by itself") {
  const Graph source = parse_graph(R"(
    x = input f32[1,3,8,8]
    w = const f32[3,3,3,3]
    a = Conv(x, w) {kernel=[3,3], dilations=[2,2], pads=[2,2,2,2]} -> f32[1,3,8,8]
    b = Conv(a, w) {kernel=[3,3], dilations=[2,2], pads=[2,2,2,2]} -> f32[1,3,8,8]
    c = Conv(b, w) {kernel=[3,3], dilations=[2,2], pads=[2,2,2,2]} -> f32[1,3,8,8]
    outputs(c)
  )");
  const auto all_but_the_second = [](const Graph& graph) {
    double us = 100;
    for (const ROperator& rop : graph.rops) us += !is_dilated(rop) ? 0 : rop.name == "b" ? -50 : 50;
    return us;
  };
  const Graph after = passes::split_dilated(source, all_but_the_second);
  check_pass(source, after);
  CHECK(std::count_if(after.rops.begin(), after.rops.end(), is_dilated) == 1);
  CHECK(print(after).find("b = Conv(a, w) {kernel=[3,3]") != std::string::npos);
}

}  // namespace tamp::test
