// RoiAlign and MaxRoiPool: the reference against values worked out by hand, what the frontend refuses, and the bodies against the reference
// over the stand-in. ONNX's own cases are in test/e2e/conformance.py.
#include <cmath>

#include "kernels/catalogue.h"
#include "test/kernels/light_bench.h"
#include "test/support/catch.h"
#include "test/support/of_result.h"
#include "test/support/onnx_model.h"

namespace tamp::test {
namespace {

using Catch::Matchers::Contains;

onnx::TensorProto batch_of(const Ints& batch) { return tensor("b", batch); }

// One region of an image of 4 x 4 pixels, 1 to 16.
Floats aligned(const Floats& roi, const std::vector<onnx::AttributeProto>& attributes, int opset = 16, const Ints& batch = {0}) {
  Model model(opset);
  model.input("x", {1, 1, 4, 4}).input("r", {1, 4}).constant(batch_of(batch)).output("y");
  model.node("RoiAlign", {"x", "r", "b"}, {"y"}, attributes);
  return floats_of(ops::run(model.read(), {value({1, 1, 4, 4}, counting(16)), value({1, 4}, roi)})[0]);
}

Floats pooled(const Floats& roi, const Ints& shape, float scale = 1) {
  Model model(13);
  model.input("x", {2, 1, 4, 4}).input("r", {1, 5}).output("y");
  model.node("MaxRoiPool", {"x", "r"}, {"y"}, {attribute("pooled_shape", shape), attribute("spatial_scale", scale)});
  return floats_of(ops::run(model.read(), {value({2, 1, 4, 4}, counting(32)), value({1, 5}, roi)})[0]);
}

}  // namespace

TEST_CASE("RoiAlign takes the mean of places in each bin") {
  const std::vector<onnx::AttributeProto> two = {attribute("output_height", 2), attribute("output_width", 2),
                                                 attribute("sampling_ratio", 1)};
  // Bins of 2 x 2 pixels whose middles are corners of pixels: with half_pixel each is the mean of four.
  CHECK(aligned({0, 0, 4, 4}, two) == Floats{3.5F, 5.5F, 11.5F, 13.5F});
  CHECK(aligned({0, 0, 4, 4}, two, 10) == Floats{6, 8, 14, 16});  // places 1 and 3 themselves
  std::vector<onnx::AttributeProto> scaled = two;
  scaled.push_back(attribute("spatial_scale", 0.5F));
  CHECK(aligned({0, 0, 8, 8}, scaled) == Floats{3.5F, 5.5F, 11.5F, 13.5F});
  // As many places as the bin has pixels.
  CHECK(aligned({0, 0, 4, 4}, {}) == Floats{8.5F});
  CHECK(aligned({0, 0, 1, 1}, {}, 10) == Floats{3.5F});
}

TEST_CASE("RoiAlign has an answer for every rectangle") {
  CHECK(aligned({-40, -40, -30, -30}, {}) == Floats{0});  // outside
  CHECK(aligned({2, 2, 1, 1}, {}) == Floats{0});          // turned round: no places
  CHECK(aligned({2, 2, 2, 2}, {}, 10).size() == 1);       // at least a pixel before version 16
  CHECK(aligned({NAN, 0, 1, 1}, {}) == Floats{0});
  CHECK(aligned({0, 0, INFINITY, 1e30F}, {}).size() == 1);    // ends
  CHECK(aligned({0, 0, 4, 4}, {}, 16, {7}) == Floats{8.5F});  // the nearest image that there is
}

TEST_CASE("MaxRoiPool takes the largest pixel of each bin") {
  CHECK(pooled({0, 0, 0, 3, 3}, {2, 2}) == Floats{6, 8, 14, 16});
  CHECK(pooled({1, 0, 0, 3, 3}, {1, 1}) == Floats{32});
  CHECK(pooled({0, 2, 2, 6, 6}, {1, 1}, 0.5F) == Floats{16});
  CHECK(pooled({0, 9, 9, 12, 12}, {1, 1}) == Floats{0});
  CHECK(pooled({0, NAN, 0, INFINITY, 3}, {1, 1}) == Floats{16});
  CHECK(pooled({0, 0, 0, 2, 2}, {2, 2}) == Floats{6, 7, 10, 11});  // bins of 1.5 pixels overlap
}

TEST_CASE("RoiAlign and MaxRoiPool name operands and attributes that they do not take") {
  const auto model = [](const Shape& x, const Shape& rois, const std::vector<onnx::AttributeProto>& attributes) {
    Model made(16);
    made.input("x", x).input("r", rois).constant(batch_of({0})).output("y").node("RoiAlign", {"x", "r", "b"}, {"y"}, attributes, "align");
    return refusal(made);
  };
  CHECK(model({1, 2, 4, 4}, {1, 4}, {}) == "read");
  CHECK_THAT(model({1, 2, 4}, {1, 4}, {}), Contains("'align' (RoiAlign") && Contains("input X has shape [1,2,4]"));
  CHECK_THAT(model({1, 2, 4, 4}, {1, 5}, {}), Contains("input rois has shape [1,5], expected [regions,4]"));
  CHECK_THAT(model({1, 2, 4, 4}, {3, 4}, {}), Contains("input batch_indices has shape [1], expected [3]"));
  CHECK_THAT(model({1, 2, 4, 4}, {1, 4}, {attribute("mode", "sum")}), Contains("attribute 'mode' is 'sum'"));
  CHECK_THAT(model({1, 2, 4, 4}, {1, 4}, {attribute("output_height", 0)}), Contains("'output_height' is 0"));
  CHECK_THAT(model({1, 2, 4, 4}, {1, 4}, {attribute("sampling_ratio", -1)}), Contains("sampling_ratio"));
  Model pool(13);
  pool.input("x", {1, 1, 4, 4})
      .input("r", {1, 5})
      .output("y")
      .node("MaxRoiPool", {"x", "r"}, {"y"}, {attribute("pooled_shape", Ints{2})}, "p");
  CHECK_THAT(refusal(pool), Contains("'pooled_shape' is [2], expected [height,width]"));
}

namespace {

// Rectangles in an image of about 8 x 8 pixels, some of them over its edge.
Floats rectangles(int64_t count, bool with_batch) {
  Floats values;
  for (int64_t r = 0; r < count; ++r) {
    const auto k = static_cast<float>(r);
    if (with_batch) values.push_back(static_cast<float>(r % 3));
    for (const float v : {-1.5F + 0.7F * k, 0.4F * k, 4.2F + 0.9F * k, 2.1F + 1.3F * k}) values.push_back(v);
  }
  return values;
}

Case align_case(const std::string& name, const RoiAlign& op, const Shape& in, int64_t regions, Lay lay_in, Lay lay_out) {
  CaseMaker maker(name);
  const TensorId x = maker.input(in, lay_in), rois = maker.input({regions, 4}, Lay::rows, rectangles(regions, false));
  Floats batch;
  for (int64_t r = 0; r < regions; ++r) batch.push_back(static_cast<float>(r % in[0]));
  const TensorId of = maker.input({regions}, Lay::rows, batch);
  return maker.finish(op, {x, rois, of}, maker.output({regions, in[1], op.height, op.width}, lay_out));
}

Case pool_case(const std::string& name, const MaxRoiPool& op, const Shape& in, int64_t regions, Lay lay_in, Lay lay_out) {
  CaseMaker maker(name);
  const TensorId x = maker.input(in, lay_in), rois = maker.input({regions, 5}, Lay::rows, rectangles(regions, true));
  return maker.finish(op, {x, rois}, maker.output({regions, in[1], op.height, op.width}, lay_out));
}

}  // namespace

TEST_CASE("the bodies of RoiAlign and MaxRoiPool agree with the reference") {
  const Lay last = Lay::channels_last, rows = Lay::rows;
  const std::vector<Case> cases = {
      align_case("one bin", {1, 1}, {1, 1, 1, 1}, 1, rows, rows),
      align_case("adaptive", {3, 2, 0, 0.8F}, {2, 5, 8, 7}, 5, last, last),
      align_case("a ratio", {2, 3, 2, 1, false, false}, {2, 3, 8, 9}, 4, rows, last),
      align_case("the largest", {2, 2, 3, 1, true}, {1, 4, 7, 8}, 6, last, Lay::slice),
      align_case("many rTasks", {7, 7, 2}, {2, 16, 8, 8}, 9, last, rows),
      pool_case("largest pixels", {3, 2, 0.7F}, {3, 5, 8, 7}, 6, last, last),
      pool_case("largest pixels in rows", {1, 4}, {2, 3, 9, 8}, 3, rows, Lay::slice),
  };
  expect_no_problems(cases, {kernels::family("roi_align"), kernels::family("max_roi_pool")}, "regions");
}

}  // namespace tamp::test
