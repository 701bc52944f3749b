// Dense tensors of doubles, for loops that follow a definition word by word, and their comparison with what a model computes.
#pragma once

#include <algorithm>
#include <cmath>
#include <functional>
#include <random>
#include <vector>

#include "test/support/catch.h"
#include "test/support/onnx_model.h"

namespace tamp::test {

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

inline void for_each(const Shape& shape, const std::function<void(const Ints&)>& f) {
  if (element_count(shape) == 0) return;
  Ints index(shape.size(), 0);
  for (;;) {
    f(index);
    size_t d = shape.size();
    while (d > 0 && ++index[d - 1] == shape[d - 1]) index[--d] = 0;
    if (d == 0) return;
  }
}

inline Array random_array(const Shape& shape, unsigned seed) {
  std::mt19937 random(seed);
  std::uniform_real_distribution<float> draw(-1, 1);
  Array array(shape);
  for (double& value : array.data) value = static_cast<double>(draw(random));
  return array;
}

inline Floats floats_in(const Array& array) { return {array.data.begin(), array.data.end()}; }
inline ops::Value value_of(const Array& array) { return value(array.shape, floats_in(array)); }

inline std::vector<ops::Value> run_model(const Model& model, const std::vector<ops::Value>& inputs) {
  return ops::run(model.read(), inputs);
}

inline void check_near(const ops::Value& got, const Array& expected) {
  REQUIRE(got.shape == expected.shape);
  const Floats values = floats_of(got);
  double worst = 0;
  for (size_t i = 0; i < values.size(); ++i) worst = std::max(worst, std::abs(static_cast<double>(values[i]) - expected.data[i]));
  CHECK(worst < 2e-5);
}

// Of operators over windows.
struct Window {
  Ints strides, dilations, pads;
  int64_t group = 1;
};

inline Attributes protos_of(const Window& a) {
  return {attribute("strides", a.strides), attribute("dilations", a.dilations), attribute("pads", a.pads), attribute("group", a.group)};
}

}  // namespace tamp::test
