// Operators over windows that the frontend says in others: convolutions and pools of three dimensions, transposed and deformed
// convolutions, Col2Im, LpPool, Indices of MaxPool. The reference of what leaves the frontend is compared with loops straight from ONNX's
// definitions. ONNX's own cases, on the device, are in test/e2e/conformance.py.
#include <algorithm>
#include <cmath>
#include <functional>
#include <random>

#include "test/support/catch.h"
#include "test/support/onnx_model.h"

namespace tamp::test {
namespace {

using Catch::Matchers::Contains;

// A dense tensor of doubles.
struct Array {
  Shape shape;
  std::vector<double> data;

  explicit Array(Shape s, double fill = 0) : shape(std::move(s)), data(static_cast<size_t>(element_count(shape)), fill) {}
  double& at(const Ints& index) { return data[offset(index)]; }
  double at(const Ints& index) const { return data[offset(index)]; }
  bool has(const Ints& index) const {
    for (size_t d = 0; d < shape.size(); ++d) {
      if (index[d] < 0 || index[d] >= shape[d]) return false;
    }
    return true;
  }
  size_t offset(const Ints& index) const {
    int64_t at = 0;
    for (size_t d = 0; d < shape.size(); ++d) at = at * shape[d] + index[d];
    return static_cast<size_t>(at);
  }
};

void for_each(const Shape& shape, const std::function<void(const Ints&)>& f) {
  if (element_count(shape) == 0) return;
  Ints index(shape.size(), 0);
  for (;;) {
    f(index);
    size_t d = shape.size();
    while (d > 0 && ++index[d - 1] == shape[d - 1]) index[--d] = 0;
    if (d == 0) return;
  }
}

Array random_array(const Shape& shape, unsigned seed) {
  std::mt19937 random(seed);
  std::uniform_real_distribution<float> draw(-1, 1);
  Array array(shape);
  for (double& value : array.data) value = static_cast<double>(draw(random));
  return array;
}

Floats floats_in(const Array& array) { return {array.data.begin(), array.data.end()}; }
ops::Value value_of(const Array& array) { return value(array.shape, floats_in(array)); }

std::vector<ops::Value> run_model(const Model& model, const std::vector<ops::Value>& inputs) { return ops::run(model.read(), inputs); }

void check_near(const ops::Value& got, const Array& expected) {
  REQUIRE(got.shape == expected.shape);
  const Floats values = floats_of(got);
  double worst = 0;
  for (size_t i = 0; i < values.size(); ++i) worst = std::max(worst, std::abs(static_cast<double>(values[i]) - expected.data[i]));
  CHECK(worst < 2e-5);
}

struct Attributes {
  Ints strides, dilations, pads;
  int64_t group = 1;
};

std::vector<onnx::AttributeProto> protos_of(const Attributes& a) {
  return {attribute("strides", a.strides), attribute("dilations", a.dilations), attribute("pads", a.pads), attribute("group", a.group)};
}

Array convolved(const Array& x, const Array& w, const Attributes& a) {
  const size_t spatial = a.strides.size();
  Shape shape{x.shape[0], w.shape[0]};
  for (size_t d = 0; d < spatial; ++d) {
    const int64_t reach = (w.shape[d + 2] - 1) * a.dilations[d] + 1;
    shape.push_back((x.shape[d + 2] + a.pads[d] + a.pads[d + spatial] - reach) / a.strides[d] + 1);
  }
  Array y(shape);
  for_each(shape, [&](const Ints& o) {
    Shape taps(w.shape.begin() + 1, w.shape.end());
    for_each(taps, [&](const Ints& tap) {
      Ints from{o[0], o[1] / (w.shape[0] / a.group) * w.shape[1] + tap[0]}, by{o[1]};
      for (size_t d = 0; d < spatial; ++d) from.push_back(o[d + 2] * a.strides[d] - a.pads[d] + tap[d + 1] * a.dilations[d]);
      by.insert(by.end(), tap.begin(), tap.end());
      if (x.has(from)) y.at(o) += x.at(from) * w.at(by);
    });
  });
  return y;
}

// `begin`: what is cut off in front.
Array transposed(const Array& x, const Array& w, const Attributes& a, const Ints& begin, const Shape& extents) {
  const size_t spatial = a.strides.size();
  Shape shape{x.shape[0], w.shape[1] * a.group};
  shape.insert(shape.end(), extents.begin(), extents.end());
  Array y(shape);
  for_each(x.shape, [&](const Ints& i) {
    Shape taps(w.shape.begin() + 1, w.shape.end());
    for_each(taps, [&](const Ints& tap) {
      Ints to{i[0], i[1] / (x.shape[1] / a.group) * w.shape[1] + tap[0]}, by{i[1]};
      for (size_t d = 0; d < spatial; ++d) to.push_back(i[d + 2] * a.strides[d] + tap[d + 1] * a.dilations[d] - begin[d]);
      by.insert(by.end(), tap.begin(), tap.end());
      if (y.has(to)) y.at(to) += x.at(i) * w.at(by);
    });
  });
  return y;
}

}  // namespace

TEST_CASE("a convolution of three dimensions is what its definition says") {
  struct Row {
    Shape x, w;
    Attributes a;
  };
  const auto row = GENERATE(values<Row>({
      {{2, 3, 5, 6, 7}, {4, 3, 3, 2, 3}, {{1, 1, 1}, {1, 1, 1}, {0, 0, 0, 0, 0, 0}, 1}},
      {{1, 4, 7, 5, 6}, {6, 2, 2, 3, 1}, {{2, 1, 3}, {2, 1, 1}, {1, 2, 0, 3, 0, 1}, 2}},
      {{2, 3, 4, 4, 4}, {3, 1, 1, 3, 3}, {{1, 2, 1}, {1, 1, 2}, {0, 1, 2, 0, 1, 2}, 3}},
      {{1, 2, 1, 5, 5}, {2, 2, 3, 3, 3}, {{1, 1, 1}, {1, 1, 1}, {1, 1, 1, 1, 1, 1}, 1}},
  }));
  const Array x = random_array(row.x, 1), w = random_array(row.w, 2), b = random_array({row.w[0]}, 3);
  Model model;
  model.input("x", row.x).constant(tensor("w", row.w, floats_in(w))).input("b", {row.w[0]}).output("y");
  model.node("Conv", {"x", "w", "b"}, {"y"}, protos_of(row.a));
  Array expected = convolved(x, w, row.a);
  for_each(expected.shape, [&](const Ints& o) { expected.at(o) += b.at({o[1]}); });
  check_near(run_model(model, {value_of(x), value_of(b)})[0], expected);
}

TEST_CASE("a transposed convolution is what its definition says") {
  struct Row {
    Shape x, w;
    Attributes a;
    Ints more;  // output_padding
  };
  const auto row = GENERATE(values<Row>({
      {{2, 3, 5}, {3, 4, 3}, {{1}, {1}, {0, 0}, 1}, {0}},
      {{1, 3, 5}, {3, 2, 3}, {{3}, {1}, {1, 0}, 1}, {2}},
      {{1, 2, 4, 5}, {2, 3, 2, 2}, {{2, 2}, {1, 1}, {0, 0, 0, 0}, 1}, {0, 0}},
      {{2, 4, 3, 5}, {4, 3, 3, 4}, {{2, 3}, {1, 1}, {1, 0, 1, 2}, 2}, {1, 2}},
      {{1, 2, 4, 3}, {2, 2, 3, 2}, {{2, 1}, {3, 2}, {2, 1, 0, 1}, 1}, {0, 0}},  // dilations and strides with a common tap, and without
      {{1, 2, 4, 3}, {2, 2, 3, 2}, {{3, 2}, {2, 2}, {0, 0, 0, 0}, 2}, {2, 1}},
      {{1, 3, 3, 3}, {3, 1, 1, 1}, {{2, 3}, {1, 1}, {0, 0, 0, 0}, 3}, {1, 2}},  // kernels smaller than strides: zeros between
      {{1, 1, 9, 9}, {1, 2, 2, 3}, {{1, 1}, {1, 1}, {3, 2, 3, 4}, 1}, {0, 0}},  // pads beyond the kernel crop
      {{1, 2, 3, 4, 2}, {2, 2, 2, 3, 2}, {{2, 1, 2}, {1, 1, 1}, {0, 1, 0, 0, 1, 1}, 1}, {0, 0, 1}},
      {{1, 2, 2, 3, 2}, {2, 1, 2, 2, 3}, {{2, 2, 1}, {1, 2, 1}, {0, 0, 0, 0, 0, 0}, 2}, {1, 0, 0}},
  }));
  const size_t spatial = row.more.size();
  const Array x = random_array(row.x, 1), w = random_array(row.w, 2), b = random_array({row.w[1] * row.a.group}, 3);
  Shape extents;
  for (size_t d = 0; d < spatial; ++d) {
    const int64_t reach = (row.w[d + 2] - 1) * row.a.dilations[d] + 1;
    extents.push_back((row.x[d + 2] - 1) * row.a.strides[d] + row.more[d] + reach - row.a.pads[d] - row.a.pads[d + spatial]);
  }
  auto attributes = protos_of(row.a);
  attributes.push_back(attribute("output_padding", row.more));
  Array expected = transposed(x, w, row.a, {row.a.pads.begin(), row.a.pads.begin() + static_cast<std::ptrdiff_t>(spatial)}, extents);
  for_each(expected.shape, [&](const Ints& o) { expected.at(o) += b.at({o[1]}); });

  Model constant, made;
  constant.input("x", row.x).constant(tensor("w", row.w, floats_in(w))).constant(tensor("b", b.shape, floats_in(b))).output("y");
  constant.node("ConvTranspose", {"x", "w", "b"}, {"y"}, attributes);
  check_near(run_model(constant, {value_of(x)})[0], expected);
  made.input("x", row.x).input("w", row.w).input("b", b.shape).output("y").node("ConvTranspose", {"x", "w", "b"}, {"y"}, attributes);
  check_near(run_model(made, {value_of(x), value_of(w), value_of(b)})[0], expected);
}

TEST_CASE("a transposed convolution takes its pads from output_shape and auto_pad") {
  // In all: 2 * 4 + 3 = 11 elements. An odd pad goes to the end for SAME_UPPER only.
  struct Row {
    std::string auto_pad;
    Ints output_shape;
    int64_t begin, extent;
  };
  const auto row = GENERATE(values<Row>({
      {"NOTSET", {8}, 2, 8},
      {"SAME_UPPER", {8}, 1, 8},
      {"SAME_LOWER", {8}, 2, 8},
      {"SAME_UPPER", {}, 0, 10},
      {"SAME_LOWER", {}, 1, 10},
      {"VALID", {}, 0, 11},
      {"NOTSET", {13}, 0, 13},
  }));
  const Array x = random_array({1, 2, 5}, 1), w = random_array({2, 2, 3}, 2);
  std::vector<onnx::AttributeProto> attributes = {attribute("strides", Ints{2}), attribute("auto_pad", row.auto_pad.c_str())};
  if (!row.output_shape.empty()) attributes.push_back(attribute("output_shape", row.output_shape));
  Model model;
  model.input("x", x.shape).constant(tensor("w", w.shape, floats_in(w))).output("y").node("ConvTranspose", {"x", "w"}, {"y"}, attributes);
  check_near(run_model(model, {value_of(x)})[0], transposed(x, w, {{2}, {1}, {0, 0}, 1}, {row.begin}, {row.extent}));
}

TEST_CASE("a transposed convolution with a stride is one Conv and one copy") {
  Model model;
  const Array w = random_array({4, 3, 2, 2}, 2);
  model.input("x", {1, 4, 8, 8}).constant(tensor("w", w.shape, floats_in(w))).output("y");
  model.node("ConvTranspose", {"x", "w"}, {"y"}, {attribute("strides", Ints{2, 2})});
  const Graph graph = model.read();
  REQUIRE(graph.rops.size() == 4);
  REQUIRE(std::holds_alternative<Conv>(graph.rops[0].attrs));
  CHECK(is_pointwise(std::get<Conv>(graph.rops[0].attrs)));
  CHECK(graph.tensor(graph.rops[0].outputs[0]).shape == Shape{1, 12, 8, 8});
}

TEST_CASE("ConvTranspose names what it does not take") {
  const auto model = [](const Shape& x, const Shape& w, const std::vector<onnx::AttributeProto>& attributes) {
    Model made;
    made.input("x", x).input("w", w).output("y").node("ConvTranspose", {"x", "w"}, {"y"}, attributes, "up");
    return refusal(made);
  };
  CHECK_THAT(model({1, 2, 4}, {3, 2, 3}, {}), Contains("'up' (ConvTranspose") && Contains("expected 2 channels first"));
  CHECK_THAT(model({1, 3, 4}, {3, 2, 3}, {attribute("group", 2)}), Contains("attribute 'group' is 2"));
  CHECK_THAT(model({1, 3, 4, 4}, {3, 2, 3}, {}), Contains("ranks differ"));
  CHECK_THAT(model({1, 3, 4}, {3, 2, 3}, {attribute("output_padding", Ints{-1})}), Contains("'output_padding' is [-1]"));
  CHECK_THAT(model({1, 3, 4}, {3, 2, 3}, {attribute("pads", Ints{3, 3})}), Contains("would have 0 elements"));
  CHECK_THAT(model({1, 1, 2, 2, 2, 2}, {1, 1, 1, 1, 1, 1}, {}), Contains("4-D transposed convolution") && Contains("1-D to 3-D"));
  CHECK_THAT(model({1, 3, 4}, {3, 2, 3}, {attribute("output_shape", Ints{4, 4})}), Contains("'output_shape' has 2 values, expected 1"));
}

namespace {

struct PoolRow {
  Shape x;
  Ints kernel;
  Attributes a;
  bool ceil_mode = false, count_include_pad = false;
};

std::vector<onnx::AttributeProto> protos_of(const PoolRow& row, bool dilated) {
  std::vector<onnx::AttributeProto> protos = {attribute("kernel_shape", row.kernel), attribute("strides", row.a.strides),
                                              attribute("pads", row.a.pads), attribute("ceil_mode", row.ceil_mode ? 1 : 0)};
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
  const auto run_as = [&](const std::string& op, const std::vector<onnx::AttributeProto>& more) {
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
  const std::vector<onnx::AttributeProto> attributes = {attribute("kernel_shape", Ints{2, 2}), attribute("strides", Ints{2, 2})};
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
    Attributes a;
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

namespace {

// Between pixels, zeros around the image.
double pixel_between(const Array& x, int64_t n, int64_t c, double row, double column) {
  double sum = 0;
  for (const double r : {std::floor(row), std::floor(row) + 1}) {
    for (const double q : {std::floor(column), std::floor(column) + 1}) {
      const Ints at{n, c, static_cast<int64_t>(r), static_cast<int64_t>(q)};
      if (x.has(at)) sum += (1 - std::abs(r - row)) * (1 - std::abs(q - column)) * x.at(at);
    }
  }
  return sum;
}

}  // namespace

TEST_CASE("a deformed convolution takes each tap from a place of its own") {
  struct Row {
    Shape x, w;
    Attributes a;
    int64_t offset_group;
    bool masked;
  };
  const auto row = GENERATE(values<Row>({
      {{2, 4, 5, 6}, {3, 4, 3, 2}, {{1, 1}, {1, 1}, {1, 0, 1, 0}, 1}, 1, false},
      {{1, 4, 6, 5}, {4, 2, 2, 3}, {{2, 1}, {1, 2}, {0, 2, 1, 2}, 2}, 2, true},
      {{1, 6, 1, 7}, {2, 6, 1, 3}, {{1, 2}, {1, 1}, {0, 1, 0, 1}, 1}, 3, true},
  }));
  const Array x = random_array(row.x, 1), w = random_array(row.w, 2), b = random_array({row.w[0]}, 3);
  const Shape plain = convolved(x, w, row.a).shape;
  const int64_t taps = row.w[2] * row.w[3], channels = row.x[1], groups = row.offset_group;
  const Array offset = random_array({row.x[0], groups * taps * 2, plain[2], plain[3]}, 4);
  const Array mask = random_array({row.x[0], groups * taps, plain[2], plain[3]}, 5);
  Array expected(plain);
  for_each(plain, [&](const Ints& o) {
    double sum = b.at({o[1]});
    for_each({row.w[1], row.w[2], row.w[3]}, [&](const Ints& k) {
      const int64_t c = o[1] / (row.w[0] / row.a.group) * row.w[1] + k[0], group = c / (channels / groups), tap = k[1] * row.w[3] + k[2];
      const int64_t place = (group * taps + tap) * 2;
      const double y =
          static_cast<double>(o[2] * row.a.strides[0] - row.a.pads[0] + k[1] * row.a.dilations[0]) + offset.at({o[0], place, o[2], o[3]});
      const double q = static_cast<double>(o[3] * row.a.strides[1] - row.a.pads[1] + k[2] * row.a.dilations[1]) +
                       offset.at({o[0], place + 1, o[2], o[3]});
      const double factor = row.masked ? mask.at({o[0], group * taps + tap, o[2], o[3]}) : 1;
      sum += w.at({o[1], k[0], k[1], k[2]}) * factor * pixel_between(x, o[0], c, y, q);
    });
    expected.at(o) = sum;
  });
  auto attributes = protos_of(row.a);
  attributes.push_back(attribute("offset_group", groups));
  Model model(19);
  model.input("x", row.x).constant(tensor("w", row.w, floats_in(w))).input("o", offset.shape).constant(tensor("b", b.shape, floats_in(b)));
  model.input("m", mask.shape).output("y");
  model.node("DeformConv", {"x", "w", "o", "b", row.masked ? "m" : ""}, {"y"}, attributes);
  check_near(run_model(model, {value_of(x), value_of(offset), value_of(mask)})[0], expected);
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
