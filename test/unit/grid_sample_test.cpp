// GridSample: the reference against values worked out by hand, what the frontend refuses, and the device body against the reference over
// the stand-in. ONNX's own cases are in test/e2e/conformance.py.
#include "kernels/catalogue.h"
#include "test/kernels/light_bench.h"
#include "test/support/catch.h"
#include "test/support/of_result.h"
#include "test/support/onnx_model.h"

namespace tamp::test {
namespace {

using Catch::Matchers::Contains;

// One channel of 2 x 2 pixels, sampled at the places (x, y).
std::vector<float> sampled(const GridSample& op, const std::vector<float>& places) {
  Graph graph;
  const auto count = static_cast<int64_t>(places.size() / 2);
  const TensorId x = add_f32_constant(graph, "x", {1, 1, 2, 2}, {1, 2, 3, 4});
  const TensorId grid = add_f32_constant(graph, "grid", {1, 1, count, 2}, places);
  Tensor y;
  y.name = "y";
  y.shape = {1, 1, 1, count};
  const TensorId out = add_tensor(graph, y);
  graph.rops.push_back({"op", op, {}, {x, grid}, {out}, {}});
  graph.outputs = {out};
  return floats_of(ops::run(graph, {})[0]);
}

using enum Interpolation;
using enum Outside;

}  // namespace

TEST_CASE("GridSample interpolates between pixels, from edge to edge or from middle to middle") {
  CHECK(sampled({linear, zeros, true}, {-1, -1, 1, 1, 0, 0, 0, -1}) == std::vector<float>{1, 4, 2.5F, 1.5F});
  CHECK(sampled({linear, zeros, false}, {-0.5F, -0.5F, 0.5F, 0.5F, 0, 0}) == std::vector<float>{1, 4, 2.5F});
  CHECK(sampled({nearest, zeros, true}, {-0.9F, -0.9F, 0.9F, -0.9F, -0.2F, 0.3F}) == std::vector<float>{1, 2, 3});
  CHECK(sampled({cubic, border, true}, {-1, -1, 1, 1}) == std::vector<float>{1, 4});
  CHECK(sampled({cubic, border, true}, {0, 0})[0] == Approx(2.5F));
}

TEST_CASE("GridSample takes zeros, the border, or reflections from outside") {
  // With align_corners = 0 an edge lies half a pixel outside of the last middle.
  CHECK(sampled({linear, zeros, false}, {-1, -0.5F, -3, 0})[0] == 0.5F);
  CHECK(sampled({linear, zeros, false}, {-1, -0.5F, -3, 0})[1] == 0);
  CHECK(sampled({linear, border, false}, {-1, -0.5F, 9, 9, -9, 9}) == std::vector<float>{1, 4, 3});
  CHECK(sampled({linear, reflection, true}, {3, -1, -2, -1})[0] == 1);
  CHECK(sampled({linear, reflection, true}, {3, -1, -2, -1})[1] == 1.5F);
  CHECK(sampled({nearest, reflection, false}, {-2.45F, -0.5F, 2.6F, 0.5F}) == std::vector<float>{2, 3});
  CHECK(sampled({linear, zeros, false}, {NAN, 0, INFINITY, 0}) == std::vector<float>{0, 0});
}

TEST_CASE("GridSample interpolates in volumes") {
  const auto of = [](const GridSample& op, const std::vector<float>& places) {
    Graph graph;
    const auto count = static_cast<int64_t>(places.size() / 3);
    const TensorId x = add_f32_constant(graph, "x", {1, 1, 2, 2, 2}, {1, 2, 3, 4, 5, 6, 7, 8});
    const TensorId grid = add_f32_constant(graph, "grid", {1, 1, 1, count, 3}, places);
    Tensor y;
    y.name = "y";
    y.shape = {1, 1, 1, 1, count};
    const TensorId out = add_tensor(graph, y);
    graph.rops.push_back({"op", op, {}, {x, grid}, {out}, {}});
    graph.outputs = {out};
    return floats_of(ops::run(graph, {})[0]);
  };
  // x along rows, y along columns, z from slice to slice.
  CHECK(of({linear, zeros, true}, {-1, -1, -1, 1, -1, -1, -1, 1, -1, -1, -1, 1, 0, 0, 0}) == std::vector<float>{1, 2, 3, 5, 4.5F});
  CHECK(of({nearest, border, false}, {0.4F, -0.4F, 9, -9, 0.6F, -0.1F}) == std::vector<float>{6, 3});
  CHECK(of({linear, zeros, false}, {-0.5F, -0.5F, -1, 0, 0, 3}) == std::vector<float>{0.5F, 0});
}

TEST_CASE("GridSample names operand, shape and mode that it does not take") {
  const auto model = [](const Shape& x, const Shape& grid, const std::string& mode, int opset) {
    Model made(opset);
    made.input("x", x).input("g", grid).output("y");
    made.node("GridSample", {"x", "g"}, {"y"}, {attribute("mode", mode.c_str())}, "sample");
    return refusal(made);
  };
  CHECK(model({1, 2, 4, 4}, {1, 3, 3, 2}, "linear", 20) == "read");
  CHECK(model({1, 2, 4, 4}, {1, 3, 3, 2}, "bicubic", 16) == "read");
  CHECK_THAT(model({1, 2, 4, 4}, {1, 3, 3, 2}, "bilinear", 20),
             Contains("sample") && Contains("attribute 'mode' is 'bilinear', expected linear"));
  CHECK_THAT(model({1, 2, 4, 4}, {2, 3, 3, 2}, "linear", 20), Contains("input grid has shape [2,3,3,2], expected [1,H,W,2]"));
  CHECK(model({1, 2, 4, 4, 4}, {1, 3, 3, 3, 3}, "linear", 20) == "read");
  CHECK_THAT(model({1, 2, 4, 4, 4}, {1, 3, 3, 3, 3}, "cubic", 20),
             Contains("mode cubic of an X of shape [1,2,4,4,4]") && Contains("supported in 3-D: linear, nearest"));
  CHECK_THAT(model({1, 2, 4, 4, 4}, {1, 3, 3, 3, 2}, "linear", 20), Contains("expected [1,D,H,W,3]"));
  CHECK_THAT(model({1, 2, 4}, {1, 3, 3, 2}, "linear", 20), Contains("input X has shape [1,2,4]"));
}

namespace {

Case sample_case(const std::string& name, const GridSample& op, const Shape& in, int64_t height, int64_t width, Lay lay_in, Lay lay_out) {
  CaseMaker maker(name);
  const TensorId x = maker.input(in, lay_in);
  maker.set_range(-1.6F, 1.6F);
  const TensorId grid = maker.input({in[0], height, width, 2});
  return maker.finish(op, {x, grid}, maker.output({in[0], in[1], height, width}, lay_out));
}

std::vector<Case> sample_cases() {
  const Lay last = Lay::channels_last, rows = Lay::rows;
  std::vector<Case> cases = {
      sample_case("one pixel", {linear, border, false}, {1, 1, 1, 1}, 1, 1, rows, rows),
      sample_case("into a part of wider pixels", {linear, zeros, true}, {2, 5, 6, 7}, 3, 4, Lay::slice, Lay::slice),
      sample_case("many rTasks", {cubic, zeros, false}, {1, 8, 17, 19}, 23, 29, last, last),
  };
  for (const Interpolation mode : {linear, nearest, cubic}) {
    for (const Outside padding : {zeros, border, reflection}) {
      const std::string name = std::string(name_of(mode)) + " " + name_of(padding);
      const bool even = padding == zeros;
      cases.push_back(sample_case(name, {mode, padding, false}, {2, 3, 5, 7}, 4, 5, even ? rows : last, last));
      cases.push_back(sample_case(name + " align_corners", {mode, padding, true}, {1, 4, 6, 5}, 3, 7, last, even ? last : rows));
    }
  }
  return cases;
}

Case volume_case(const std::string& name, const GridSample& op, const Shape& in, const Shape& pixels, Lay lay_in, Lay lay_out) {
  CaseMaker maker(name);
  const TensorId x = maker.input(in, lay_in);
  maker.set_range(-1.6F, 1.6F);
  const TensorId grid = maker.input({in[0], pixels[0], pixels[1], pixels[2], 3});
  return maker.finish(op, {x, grid}, maker.output({in[0], in[1], pixels[0], pixels[1], pixels[2]}, lay_out));
}

}  // namespace

TEST_CASE("the body of GridSample agrees with the reference") {
  expect_no_problems(sample_cases(), {kernels::family("grid_sample")}, "grid_sample");
}

TEST_CASE("the body of GridSample in volumes agrees with the reference") {
  const Lay rows = Lay::rows, last = Lay::channels_last;
  std::vector<Case> cases = {
      volume_case("one pixel", {linear, border, false}, {1, 1, 1, 1, 1}, {1, 1, 1}, rows, rows),
      volume_case("many rTasks", {linear, zeros, false}, {2, 5, 6, 7, 5}, {4, 9, 11}, last, Lay::slice),
  };
  for (const Interpolation mode : {linear, nearest}) {
    for (const Outside padding : {zeros, border, reflection}) {
      const std::string name = std::string(name_of(mode)) + " " + name_of(padding);
      cases.push_back(
          volume_case(name, {mode, padding, padding == border}, {2, 3, 4, 5, 3}, {3, 2, 5}, padding == zeros ? last : rows, rows));
    }
  }
  expect_no_problems(cases, {kernels::family("volume_sample")}, "volume_sample");
}

}  // namespace tamp::test
