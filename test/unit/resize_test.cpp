// Resize and Upsample: values worked out by hand, what the frontend refuses, and the body of Resample against the reference over the
// stand-in. ONNX's own cases are in test/e2e/conformance.py.
#include <cmath>

#include "compiler/frontend/resize_taps.h"
#include "kernels/catalogue.h"
#include "test/kernels/light_bench.h"
#include "test/support/catch.h"
#include "test/support/of_result.h"
#include "test/support/onnx_model.h"

namespace tamp::test {
namespace {

using Catch::Matchers::Contains;

// x = 1, 2, .. resized; an attribute of the node for each pair.
struct Row {
  int opset;
  int64_t in;
  Floats scales;  // else sizes
  Ints sizes;
  std::vector<onnx::AttributeProto> attributes;
  Floats roi;
};

Model model_of(const Row& row) {
  Model model(row.opset);
  model.input("x", {row.in}).output("y");
  std::vector<std::string> inputs = {"x"};
  if (row.opset >= 11) inputs.push_back(row.roi.empty() ? "" : "roi");
  if (row.opset < 11 || !row.scales.empty()) inputs.push_back("scales");
  if (!row.sizes.empty()) inputs.insert(inputs.end(), {"", "sizes"});
  if (!row.roi.empty()) model.constant(tensor("roi", {static_cast<int64_t>(row.roi.size())}, row.roi));
  if (!row.scales.empty()) model.constant(tensor("scales", {static_cast<int64_t>(row.scales.size())}, row.scales));
  if (!row.sizes.empty()) model.constant(tensor("sizes", row.sizes));
  return model.node("Resize", inputs, {"y"}, row.attributes, "r");
}

void check(const Row& row, const Floats& expected) {
  const ops::Value got = ops::run(model_of(row).read(), {value({row.in}, counting(row.in))})[0];
  const Floats values = floats_of(got);
  CAPTURE(row.opset, values);
  REQUIRE(values.size() == expected.size());
  for (size_t i = 0; i < values.size(); ++i) CHECK(values[i] == Approx(expected[i]).margin(1e-5));
}

onnx::AttributeProto mode(const char* name) { return attribute("mode", name); }
onnx::AttributeProto place(const char* name) { return attribute("coordinate_transformation_mode", name); }
onnx::AttributeProto nearest(const char* name) { return attribute("nearest_mode", name); }

}  // namespace

TEST_CASE("nearest rounds a place in four ways") {
  // 4 -> 8, asymmetric: 0, .5, 1, 1.5, ..
  check({13, 4, {2}, {}, {place("asymmetric"), nearest("round_prefer_floor")}, {}}, {1, 1, 2, 2, 3, 3, 4, 4});
  check({13, 4, {2}, {}, {place("asymmetric"), nearest("round_prefer_ceil")}, {}}, {1, 2, 2, 3, 3, 4, 4, 4});
  check({13, 4, {2}, {}, {place("asymmetric"), nearest("floor")}, {}}, {1, 1, 2, 2, 3, 3, 4, 4});
  check({13, 4, {2}, {}, {place("asymmetric"), nearest("ceil")}, {}}, {1, 2, 2, 3, 3, 4, 4, 4});
  check({10, 4, {2}, {}, {}, {}}, {1, 1, 2, 2, 3, 3, 4, 4});
  check({13, 4, {}, {6}, {}, {}}, {1, 1, 2, 3, 3, 4});  // half_pixel: -.17, .5, 1.17, 1.83, 2.5, 3.17
  check({11, 4, {}, {2}, {place("tf_half_pixel_for_nn"), nearest("floor")}, {}}, {2, 4});
}

TEST_CASE("a scale that floats cannot hold still finds the elements that it means") {
  // 9 * float(1/3) is 3; the places are 0, 3, 6 and not 2.9999999.
  check({13, 9, {1.0F / 3}, {}, {place("asymmetric"), nearest("floor")}, {}}, {1, 4, 7});
  check({13, 10, {0.3F}, {}, {nearest("round_prefer_ceil")}, {}}, {2, 6, 9});  // 1.17, 4.5, 7.83
}

TEST_CASE("linear weighs two neighbours, cubic four, by every way to say a place") {
  check({13, 4, {2}, {}, {mode("linear")}, {}}, {1, 1.25F, 1.75F, 2.25F, 2.75F, 3.25F, 3.75F, 4});
  check({13, 4, {}, {7}, {mode("linear"), place("align_corners")}, {}}, {1, 1.5F, 2, 2.5F, 3, 3.5F, 4});
  check({10, 4, {2}, {}, {mode("linear")}, {}}, {1, 1.5F, 2, 2.5F, 3, 3.5F, 4, 4});
  check({13, 4, {}, {1}, {mode("linear"), place("pytorch_half_pixel")}, {}}, {1});
  check({13, 4, {}, {1}, {mode("linear"), place("half_pixel")}, {}}, {2.5F});
  check({13, 4, {}, {1}, {mode("linear"), place("align_corners")}, {}}, {1});
  check({19, 4, {0.6F}, {}, {mode("linear"), place("half_pixel_symmetric")}, {}}, {1.66667F, 3.33333F});
  // t = 0.5 between 2 and 3 with a = -0.75: (-.09375, .59375, .59375, -.09375) . (1, 2, 3, 4)
  check({13, 4, {}, {7}, {mode("cubic"), place("align_corners")}, {}}, {1, 1.40625F, 2, 2.5F, 3, 3.59375F, 4});
  check({13, 4, {}, {7}, {mode("cubic"), place("align_corners"), attribute("cubic_coeff_a", -0.5F)}, {}},
        {1, 1.4375F, 2, 2.5F, 3, 3.5625F, 4});
}

TEST_CASE("exclude_outside, antialias and tf_crop_and_resize change weights as ONNX says") {
  // Place -0.25: weights of -2 .. 1 without the two outside, by their sum.
  const double a = -0.5, far = ((a * 1.75 - 5 * a) * 1.75 + 8 * a) * 1.75 - 4 * a, near = ((a + 2) * 0.25 - (a + 3)) * 0.25 * 0.25 + 1;
  const double next = ((a * 1.25 - 5 * a) * 1.25 + 8 * a) * 1.25 - 4 * a;
  CHECK(far < 0);
  frontend::ResizeRule rule;
  rule.mode = frontend::ResizeMode::cubic;
  rule.cubic_coeff_a = a;
  rule.exclude_outside = true;
  const frontend::TapTable table = frontend::tap_table(rule, {4, 8, 2, 0, 1});
  REQUIRE(table.taps == 4);
  CHECK(table.weights[0] == 0);
  CHECK(table.weights[1] == 0);
  CHECK(static_cast<double>(table.weights[2]) == Approx(near / (near + next)));
  CHECK(static_cast<double>(table.weights[3]) == Approx(next / (near + next)));
  // Half the length: a triangle of twice the width.
  check({18, 4, {}, {2}, {mode("linear"), attribute("antialias", 1)}, {}}, {1.625F, 3.375F});
  check({18, 4, {}, {2}, {mode("linear"), attribute("antialias", 1), attribute("exclude_outside", 1)}, {}}, {1.7142857F, 3.2857143F});
  check({18, 4, {}, {8}, {mode("linear"), attribute("antialias", 1)}, {}}, {1, 1.25F, 1.75F, 2.25F, 2.75F, 3.25F, 3.75F, 4});
  check({13, 5, {}, {3}, {mode("linear"), place("tf_crop_and_resize"), attribute("extrapolation_value", 9.0F)}, {0.5F, 1.5F}}, {3, 5, 9});
  check({13, 5, {}, {3}, {place("tf_crop_and_resize"), attribute("extrapolation_value", 9.0F)}, {0, 0.5F}}, {1, 2, 3});
}

TEST_CASE("axes and keep_aspect_ratio_policy say which extents result") {
  const auto shape = [](const Ints& sizes, const Ints& axes, const char* policy) {
    Model model(18);
    model.input("x", {1, 2, 4, 6}).constant(tensor("sizes", sizes)).output("y");
    model.node("Resize", {"x", "", "", "sizes"}, {"y"}, {attribute("axes", axes), attribute("keep_aspect_ratio_policy", policy)});
    const Graph graph = model.read();
    return graph.tensor(graph.outputs[0]).shape;
  };
  CHECK(shape({8, 9}, {2, 3}, "stretch") == Shape{1, 2, 8, 9});
  CHECK(shape({9, 8}, {-1, 2}, "stretch") == Shape{1, 2, 8, 9});
  CHECK(shape({8, 9}, {2, 3}, "not_larger") == Shape{1, 2, 6, 9});
  CHECK(shape({8, 9}, {2, 3}, "not_smaller") == Shape{1, 2, 8, 12});
}

TEST_CASE("resizing keeps every type where elements are copied, and drops axes that stay as they are") {
  for (const auto type : {onnx::TensorProto::INT64, onnx::TensorProto::BOOL, onnx::TensorProto::DOUBLE, onnx::TensorProto::FLOAT16}) {
    Model model(13);
    model.input("x", {1, 2, 3}, type).constant(tensor("s", {3}, {1, 1, 1.5F})).node("Resize", {"x", "", "s"}, {"y"}).output("y");
    CHECK(refusal(model) == "read");
  }
  Model same(9), linear(13);
  same.input("x", {1, 2, 3})
      .constant(tensor("s", {3}, {1, 1, 1}))
      .node("Upsample", {"x", "s"}, {"u"})
      .node("Relu", {"u"}, {"y"})
      .output("y");
  CHECK(same.read().rops.size() == 1);
  linear.input("x", {1, 2, 3}, onnx::TensorProto::INT32).constant(tensor("s", {3}, {1, 1, 1.5F}));
  linear.node("Resize", {"x", "", "s"}, {"y"}, {mode("linear")}, "r").output("y");
  CHECK_THAT(refusal(linear), Contains("'r' (Resize, opset 13): interpolation of i32"));
}

TEST_CASE("Upsample repeats elements or interpolates, by attributes or an operand") {
  const auto run_as = [](Model model, const std::vector<std::string>& inputs, const std::vector<onnx::AttributeProto>& attributes) {
    model.input("x", {1, 1, 1, 2}).node("Upsample", inputs, {"y"}, attributes).output("y");
    return floats_of(ops::run(model.read(), {value({1, 1, 1, 2}, {1, 2})})[0]);
  };
  CHECK(run_as(Model(6), {"x"}, {attribute("height_scale", 1.0F), attribute("width_scale", 2.0F)}) == Floats{1, 1, 2, 2});
  CHECK(run_as(Model(7), {"x"}, {attribute("scales", Floats{1, 1, 2, 1})}) == Floats{1, 2, 1, 2});
  Model nine(9);
  nine.constant(tensor("s", {4}, {1, 1, 1, 2}));
  CHECK(run_as(nine, {"x", "s"}, {mode("linear")}) == Floats{1, 1.5F, 2, 2});
  Model ten(10);
  ten.input("x", {1, 1, 1, 2}).constant(tensor("s", {4}, {1, 1, 1, 2})).node("Upsample", {"x", "s"}, {"y"}, {}, "u").output("y");
  CHECK_THAT(refusal(ten), Contains("'u' (Upsample") && Contains("Resize took its place"));
}

TEST_CASE("Resize names what it does not take") {
  CHECK_THAT(refusal(model_of({13, 4, {0}, {}, {}, {}})), Contains("scale 0 is 0, expected more than 0"));
  CHECK_THAT(refusal(model_of({13, 4, {NAN}, {}, {}, {}})), Contains("expected more than 0"));
  CHECK_THAT(refusal(model_of({13, 4, {1e30F}, {}, {}, {}})), Contains("scale 0 is 1e+30, which makes"));
  CHECK_THAT(refusal(model_of({13, 4, {0.1F}, {}, {}, {}})), Contains("which makes 0 of the extent 4"));
  CHECK_THAT(refusal(model_of({13, 4, {2, 2}, {}, {}, {}})), Contains("2 scales for 1 axes"));
  CHECK_THAT(refusal(model_of({13, 4, {}, {0}, {}, {}})), Contains("sizes are [0]"));
  CHECK_THAT(refusal(model_of({13, 4, {2}, {}, {mode("spline")}, {}})),
             Contains("'mode' is 'spline', expected one of nearest, linear, cubic"));
  CHECK_THAT(refusal(model_of({13, 4, {2}, {}, {place("tf_half_pixel_for_nn")}, {}})), Contains("'tf_half_pixel_for_nn'"));
  CHECK_THAT(refusal(model_of({13, 4, {2}, {}, {attribute("antialias", 1)}, {}})), Contains("unknown attribute 'antialias'"));
  CHECK_THAT(refusal(model_of({13, 4, {2}, {}, {place("tf_crop_and_resize")}, {0, 0.5F}})), Contains("supported: with sizes"));
  CHECK_THAT(refusal(model_of({13, 4, {}, {3}, {place("tf_crop_and_resize")}, {}})), Contains("input roi has 0 values for 1 axes"));
  Model neither(13), runtime(13);
  neither.input("x", {4}).output("y").node("Resize", {"x"}, {"y"});
  CHECK_THAT(refusal(neither), Contains("neither scales nor sizes are given"));
  runtime.input("x", {4}).input("s", {1}).output("y").node("Resize", {"x", "", "s"}, {"y"});
  CHECK_THAT(refusal(runtime), Contains("scales") && Contains("known only at run time"));
}

namespace {

Case resample_case(const std::string& name, const Shape& in, const Ints& axes, const Ints& sizes, frontend::ResizeRule rule, Lay lay_in,
                   Lay lay_out) {
  CaseMaker maker(name);
  std::vector<TensorId> inputs = {maker.input(in, lay_in)};
  Shape out = in;
  for (size_t a = 0; a < axes.size(); ++a) {
    const int64_t extent = in[static_cast<size_t>(axes[a])];
    const double scale = static_cast<double>(sizes[a]) / static_cast<double>(extent);
    const frontend::TapTable table = frontend::tap_table(rule, {extent, sizes[a], scale, 0.25, 1.25});
    const Shape shape{sizes[a], table.taps};
    inputs.push_back(maker.indices(shape, table.indices));
    inputs.push_back(maker.constant(shape, Lay::rows, table.weights));
    out[static_cast<size_t>(axes[a])] = sizes[a];
  }
  return maker.finish(Resample{axes, 0.5F}, inputs, maker.output(out, lay_out));
}

std::vector<Case> resample_cases() {
  using enum frontend::ResizeMode;
  using frontend::ResizePlace;
  const Lay last = Lay::channels_last, rows = Lay::rows;
  frontend::ResizeRule near, line, cube, wide, crop;
  line.mode = wide.mode = crop.mode = linear;
  cube.mode = cubic;
  wide.antialias = true;
  crop.place = ResizePlace::tf_crop_and_resize;
  return {
      resample_case("one pixel", {1, 1, 1, 1}, {2, 3}, {3, 2}, line, rows, rows),
      resample_case("nearest", {2, 8, 5, 7}, {2, 3}, {10, 14}, near, last, last),
      resample_case("nearest of one axis", {2, 3, 5}, {2}, {9}, near, rows, last),
      resample_case("linear", {2, 4, 5, 7}, {2, 3}, {10, 13}, line, last, last),
      resample_case("linear of odd channels", {2, 5, 5, 7}, {2, 3}, {3, 4}, line, last, Lay::slice),
      resample_case("linear in rows", {1, 3, 6, 5}, {2, 3}, {11, 9}, line, rows, rows),
      resample_case("linear of one axis", {2, 8, 6, 4}, {2}, {11}, line, Lay::slice, last),
      resample_case("linear of three axes", {1, 4, 3, 4, 5}, {2, 3, 4}, {5, 4, 7}, line, rows, rows),
      resample_case("linear of channels", {1, 6, 3, 3}, {1, 3}, {4, 5}, line, last, last),
      resample_case("cubic", {1, 12, 6, 7}, {2, 3}, {9, 5}, cube, last, last),
      resample_case("antialiased", {1, 4, 13, 11}, {2, 3}, {4, 3}, wide, last, last),
      resample_case("outside", {1, 4, 5, 6}, {2, 3}, {7, 7}, crop, last, last),
      resample_case("many rTasks", {2, 8, 17, 19}, {2, 3}, {34, 38}, line, last, last),
  };
}

}  // namespace

TEST_CASE("the body of Resample agrees with the reference") {
  expect_no_problems(resample_cases(), {kernels::family("resample")}, "resample");
}

}  // namespace tamp::test
