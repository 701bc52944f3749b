// Operators over windows but for convolutions (conv_windows_test.cpp): pools of one to four dimensions, Indices of MaxPool, LpPool, Col2Im;
// and AffineGrid, CenterCropPad. The reference of what leaves the frontend is compared with loops straight from ONNX's definitions. ONNX's
// own cases, on the device, are in test/e2e/conformance.py.
#include <algorithm>
#include <cmath>
#include <functional>

#include "test/support/arrays.h"

namespace tamp::test {
namespace {

using Catch::Matchers::Contains;

struct PoolRow {
  Shape x;
  Ints kernel;
  Window a;
  bool ceil_mode = false, count_include_pad = false;
};

Attributes protos_of(const PoolRow& row, bool dilated) {
  Attributes protos = {attribute("kernel_shape", row.kernel), attribute("strides", row.a.strides), attribute("pads", row.a.pads),
                       attribute("ceil_mode", row.ceil_mode ? 1 : 0)};
  if (dilated) protos.push_back(attribute("dilations", row.a.dilations));
  return protos;
}

Shape pooled_shape(const PoolRow& row) {
  const size_t spatial = row.kernel.size();
  Shape shape{row.x[0], row.x[1]};
  for (size_t d = 0; d < spatial; ++d) {
    const int64_t stride = row.a.strides[d], in = row.x[d + 2];
    const int64_t room = in + row.a.pads[d] + row.a.pads[d + spatial] - ((row.kernel[d] - 1) * row.a.dilations[d] + 1);
    int64_t out = (room + (row.ceil_mode ? stride - 1 : 0)) / stride + 1;
    if ((out - 1) * stride >= in + row.a.pads[d]) --out;
    shape.push_back(out);
  }
  return shape;
}

// Calls see(coordinates in x, whether they are in x, whether they are in x or its pads) for every tap of window o.
void for_each_tap(const PoolRow& row, const Ints& o, const std::function<void(const Ints&, bool, bool)>& see) {
  const size_t spatial = row.kernel.size();
  for_each(row.kernel, [&](const Ints& tap) {
    Ints at{o[0], o[1]};
    bool inside = true, counted = true;
    for (size_t d = 0; d < spatial; ++d) {
      at.push_back(o[d + 2] * row.a.strides[d] - row.a.pads[d] + tap[d] * row.a.dilations[d]);
      inside &= at[d + 2] >= 0 && at[d + 2] < row.x[d + 2];
      counted &= at[d + 2] < row.x[d + 2] + row.a.pads[d + spatial];
    }
    see(at, inside, counted);
  });
}

const std::vector<PoolRow> kPools = {
    {{2, 3, 9}, {3}, {{2}, {1}, {1, 1}, 1}},
    {{2, 2, 7, 8}, {3, 2}, {{2, 3}, {1, 2}, {1, 0, 1, 1}, 1}, true},
    {{1, 3, 5, 6, 7}, {2, 3, 2}, {{1, 2, 2}, {1, 1, 1}, {0, 1, 0, 1, 1, 1}, 1}},
    {{2, 2, 6, 5, 6}, {3, 2, 3}, {{2, 2, 2}, {1, 2, 1}, {1, 0, 1, 1, 0, 1}, 1}, true},
    {{1, 2, 4, 5, 6}, {2, 1, 1}, {{2, 1, 1}, {1, 1, 1}, {0, 0, 0, 0, 0, 0}, 1}, true},
    {{1, 2, 3, 4, 3, 4}, {2, 2, 2, 2}, {{1, 2, 1, 2}, {1, 1, 1, 1}, {0, 1, 0, 0, 0, 0, 1, 0}, 1}},
};

}  // namespace

TEST_CASE("pools of one to four dimensions are what their definitions say") {
  PoolRow row = GENERATE(from_range(kPools));
  row.count_include_pad = GENERATE(false, true);
  const Array x = random_array(row.x, 4);
  const Shape shape = pooled_shape(row);
  Array largest(shape, -INFINITY), mean(shape), norm(shape), cubes(shape);
  for_each(shape, [&](const Ints& o) {
    double sum = 0, count = 0;
    for_each_tap(row, o, [&](const Ints& at, bool inside, bool counted) {
      count += (row.count_include_pad ? counted : inside) ? 1 : 0;
      if (!inside) return;
      const double v = x.at(at);
      largest.at(o) = std::max(largest.at(o), v);
      sum += v;
      norm.at(o) += v * v;
      cubes.at(o) += std::pow(std::abs(v), 3);
    });
    mean.at(o) = sum / count;
    norm.at(o) = std::sqrt(norm.at(o));
    cubes.at(o) = std::cbrt(cubes.at(o));
  });
  const auto run_as = [&](const std::string& op, const Attributes& more) {
    auto attributes = protos_of(row, true);
    attributes.insert(attributes.end(), more.begin(), more.end());
    Model model(22);
    model.input("x", row.x).output("y").node(op, {"x"}, {"y"}, attributes);
    return run_model(model, {value_of(x)})[0];
  };
  check_near(run_as("MaxPool", {}), largest);
  check_near(run_as("AveragePool", {attribute("count_include_pad", row.count_include_pad ? 1 : 0)}), mean);
  check_near(run_as("LpPool", {}), norm);
  check_near(run_as("LpPool", {attribute("p", 3)}), cubes);
}

TEST_CASE("Indices count the elements of X, row by row or column by column") {
  const PoolRow row = GENERATE(from_range(kPools.begin(), kPools.end() - 1));
  const bool column_major = GENERATE(false, true);
  const Array x = random_array(row.x, 4);
  const Shape shape = pooled_shape(row);
  Ints expected;
  const int64_t channel = element_count(row.x) / row.x[0] / row.x[1];
  for_each(shape, [&](const Ints& o) {
    double best = -INFINITY;
    int64_t found = 0;
    for_each_tap(row, o, [&](const Ints& at, bool inside, bool) {
      if (!inside || !(x.at(at) > best)) return;
      best = x.at(at);
      int64_t number = 0;
      for (size_t i = 0; i < row.kernel.size(); ++i) {
        const size_t d = column_major ? row.x.size() - 1 - i : i + 2;
        number = number * row.x[d] + at[d];
      }
      found = (at[0] * row.x[1] + at[1]) * channel + number;
    });
    expected.push_back(found);
  });
  auto attributes = protos_of(row, true);
  attributes.push_back(attribute("storage_order", column_major ? 1 : 0));
  Model model(12);
  model.input("x", row.x).output("y").output("i").node("MaxPool", {"x"}, {"y", "i"}, attributes);
  const ops::Value indices = run_model(model, {value_of(x)})[1];
  REQUIRE(indices.dtype == DType::i64);
  REQUIRE(indices.shape == shape);
  CHECK(std::equal(expected.begin(), expected.end(), reinterpret_cast<const int64_t*>(indices.data->data())));
}

TEST_CASE("MaxUnpool puts elements where Indices say, and leaves out what says outside") {
  Model model(11);
  model.input("x", {1, 1, 2, 2}).constant(tensor("flat", Ints{5, 7, -1, 99})).constant(tensor("to", Ints{1, 1, 2, 2}));
  model.constant(tensor("size", Ints{1, 1, 5, 5})).node("Reshape", {"flat", "to"}, {"i"}).output("y").output("z");
  const Attributes attributes = {attribute("kernel_shape", Ints{2, 2}), attribute("strides", Ints{2, 2})};
  model.node("MaxUnpool", {"x", "i"}, {"y"}, attributes).node("MaxUnpool", {"x", "i", "size"}, {"z"}, attributes);
  const std::vector<ops::Value> results = run_model(model, {value({1, 1, 2, 2}, {1, 2, 3, 4})});
  CHECK(floats_of(results[0]) == Floats{0, 0, 0, 0, 0, 1, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0});
  Floats wider(25, 0.0F);
  wider[6] = 1;
  wider[8] = 2;
  CHECK(floats_of(results[1]) == wider);
}

TEST_CASE("MaxPool takes bytes and narrow floats") {
  for (const auto type : {onnx::TensorProto::INT8, onnx::TensorProto::UINT8, onnx::TensorProto::FLOAT16}) {
    Model model(12);
    model.input("x", {1, 1, 4, 4}, type).output("y").output("i");
    model.node("MaxPool", {"x"}, {"y", "i"}, {attribute("kernel_shape", Ints{2, 2})});
    CHECK(refusal(model) == "read");
  }
  Model old(11), wide(12);
  old.input("x", {1, 1, 4, 4}, onnx::TensorProto::INT8)
      .output("y")
      .node("MaxPool", {"x"}, {"y"}, {attribute("kernel_shape", Ints{2, 2})}, "p");
  CHECK_THAT(refusal(old), Contains("'p' (MaxPool"));
  wide.input("x", {1, 1, 4, 4}, onnx::TensorProto::INT32)
      .output("y")
      .node("MaxPool", {"x"}, {"y"}, {attribute("kernel_shape", Ints{2, 2})}, "p");
  CHECK_THAT(refusal(wide), Contains("'p' (MaxPool"));
}

TEST_CASE("GlobalLpPool takes any exponent and any rank") {
  const Array x = random_array({2, 3, 2, 3, 4}, 5);
  const int64_t p = GENERATE(1, 2, 3);
  Model model(2);
  model.proto.mutable_opset_import(0)->set_version(13);
  model.input("x", x.shape).output("y").node("GlobalLpPool", {"x"}, {"y"}, {attribute("p", p)});
  Array expected({2, 3, 1, 1, 1});
  for_each(x.shape, [&](const Ints& at) { expected.at({at[0], at[1], 0, 0, 0}) += std::pow(std::abs(x.at(at)), static_cast<double>(p)); });
  for (double& v : expected.data) v = std::pow(v, 1.0 / static_cast<double>(p));
  check_near(run_model(model, {value_of(x)})[0], expected);
}

TEST_CASE("Col2Im adds up what blocks say of the same pixel") {
  struct Row {
    Ints image, block;
    Window a;
  };
  const auto row = GENERATE(values<Row>({
      {{7}, {3}, {{2}, {1}, {1, 1}, 1}},
      {{5, 6}, {2, 3}, {{1, 1}, {1, 1}, {0, 0, 0, 0}, 1}},
      {{6, 7}, {2, 2}, {{2, 1}, {2, 3}, {1, 0, 1, 2}, 1}},
      {{4, 5, 4}, {2, 2, 1}, {{2, 1, 1}, {1, 2, 1}, {0, 0, 1, 0, 0, 1}, 1}},
  }));
  const size_t spatial = row.image.size();
  Shape blocks;
  for (size_t d = 0; d < spatial; ++d)
    blocks.push_back(
        (row.image[d] + row.a.pads[d] + row.a.pads[d + spatial] - (row.block[d] - 1) * row.a.dilations[d] - 1) / row.a.strides[d] + 1);
  const int64_t taps = element_count(row.block), count = element_count(blocks);
  const Array x = random_array({2, 3 * taps, count}, 6);
  Shape shape{2, 3};
  shape.insert(shape.end(), row.image.begin(), row.image.end());
  Array expected(shape);
  for_each({2, 3}, [&](const Ints& plane) {
    int64_t tap_number = 0;
    for_each(row.block, [&](const Ints& tap) {
      int64_t block_number = 0;
      for_each(blocks, [&](const Ints& block) {
        Ints to = plane;
        for (size_t d = 0; d < spatial; ++d) to.push_back(block[d] * row.a.strides[d] - row.a.pads[d] + tap[d] * row.a.dilations[d]);
        if (expected.has(to)) expected.at(to) += x.at({plane[0], plane[1] * taps + tap_number, block_number});
        ++block_number;
      });
      ++tap_number;
    });
  });
  Model model(18);
  model.input("x", x.shape).constant(tensor("image", row.image)).constant(tensor("block", row.block)).output("y");
  model.node("Col2Im", {"x", "image", "block"}, {"y"},
             {attribute("strides", row.a.strides), attribute("dilations", row.a.dilations), attribute("pads", row.a.pads)});
  check_near(run_model(model, {value_of(x)})[0], expected);
}

TEST_CASE("AffineGrid multiplies the coordinates of every pixel") {
  Model model(20);
  model.input("t", {1, 2, 3}).constant(tensor("flat", Ints{1, 1, 2, 3})).output("y").output("z");
  model.node("AffineGrid", {"t", "flat"}, {"y"}, {attribute("align_corners", 1)}).node("AffineGrid", {"t", "flat"}, {"z"});
  // x' = x + 2y, y' = 3
  const std::vector<ops::Value> results = run_model(model, {value({1, 2, 3}, {1, 2, 0, 0, 0, 3})});
  REQUIRE(results[0].shape == Shape{1, 2, 3, 2});
  CHECK(floats_of(results[0]) == Floats{-3, 3, -2, 3, -1, 3, 1, 3, 2, 3, 3, 3});
  const Floats edges = floats_of(results[1]);  // middles of pixels: x -2/3, 0, 2/3; y -1/2, 1/2
  CHECK(edges[0] == Approx(-2.0 / 3 - 1));
  CHECK(edges[10] == Approx(2.0 / 3 + 1));
  CHECK(edges[11] == 3);
}

TEST_CASE("CenterCropPad crops and pads around the middle") {
  Model model(18);
  model.input("x", {5, 2}).constant(tensor("s", Ints{2, 5})).constant(tensor("t", Ints{4})).output("y").output("z");
  model.node("CenterCropPad", {"x", "s"}, {"y"}).node("CenterCropPad", {"x", "t"}, {"z"}, {attribute("axes", Ints{-2})});
  const std::vector<ops::Value> results = run_model(model, {value({5, 2}, counting(10))});
  CHECK(floats_of(results[0]) == Floats{0, 3, 4, 0, 0, 0, 5, 6, 0, 0});
  CHECK(floats_of(results[1]) == Floats{1, 2, 3, 4, 5, 6, 7, 8});
}

}  // namespace tamp::test
