// Convolutions that the frontend says in others: of three dimensions, transposed, deformed. The reference of what leaves the frontend is
// compared with loops straight from ONNX's definitions. ONNX's own cases, on the device, are in test/e2e/conformance.py.
#include <cmath>

#include "test/support/arrays.h"

namespace tamp::test {
namespace {

using Catch::Matchers::Contains;

Array convolved(const Array& x, const Array& w, const Window& a) {
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
Array transposed(const Array& x, const Array& w, const Window& a, const Ints& begin, const Shape& extents) {
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

TEST_CASE("a convolution of three dimensions is what its definition says") {
  struct Row {
    Shape x, w;
    Window a;
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
    Window a;
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
  Attributes attributes = {attribute("strides", Ints{2}), attribute("auto_pad", row.auto_pad.c_str())};
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
  const auto model = [](const Shape& x, const Shape& w, const Attributes& attributes) {
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

TEST_CASE("a deformed convolution takes each tap from a place of its own") {
  struct Row {
    Shape x, w;
    Window a;
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

}  // namespace tamp::test
