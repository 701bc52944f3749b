// A case: one rOperator on placed tensors with values, for light_bench.h to run on the stand-in and to compare with the
// reference (compiler/ops). Every tensor has a buffer of its own, with room around it that must stay untouched.
#pragma once

#include <algorithm>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "compiler/ir/fused.h"
#include "compiler/ops/ops.h"
#include "test/support/of_result.h"

namespace tamp::test {

struct Case {
  std::string name;
  Graph graph;
  std::vector<ops::Value> values;  // per tensor; the outputs' are empty
  std::string only;                // family to test, empty = all
};

// How a tensor lies in its buffer.
enum class Lay {
  rows,
  channels_last,
  slice,     // channels-last, a part of wider pixels
  padded,    // channels-last, pixels begin at 16 bytes
  reversed,  // every stride negative
};

class CaseMaker {
 public:
  explicit CaseMaker(std::string name) { case_.name = std::move(name); }

  TensorId input(const Shape& shape, Lay lay = Lay::rows) { return filled(shape, lay, Role::input, random(shape)); }
  TensorId input(const Shape& shape, Lay lay, const std::vector<float>& values) { return filled(shape, lay, Role::input, values); }
  TensorId constant(const Shape& shape, Lay lay = Lay::rows) { return filled(shape, lay, Role::constant, random(shape)); }
  TensorId constant(const Shape& shape, Lay lay, const std::vector<float>& values) { return filled(shape, lay, Role::constant, values); }
  TensorId indices(const Shape& shape, const std::vector<int64_t>& values) {
    Bytes bytes(values.size() * sizeof(int64_t));
    std::memcpy(bytes.data(), values.data(), bytes.size());
    const TensorId id = add_constant(case_.graph, name(), DType::i64, shape, bytes);
    case_.values.push_back({DType::i64, shape, case_.graph.tensor(id).data});
    return id;
  }
  // A whole number of run time.
  TensorId number(int64_t value) {
    const TensorId id = add_tensor(case_.graph, Tensor{name(), DType::i64, {1}, Role::input, nullptr, {}});
    place(id, Lay::rows);
    case_.values.push_back({DType::i64, {1}, std::make_shared<const Bytes>(packed_bytes(std::vector{value}))});
    return id;
  }
  TensorId output(const Shape& shape, Lay lay = Lay::rows) {
    const TensorId id = add_tensor(case_.graph, Tensor{name(), DType::f32, shape, Role::activation, nullptr, {}});
    place(id, lay);
    case_.values.emplace_back();
    return id;
  }
  // The only rOperator; returns the finished case.
  Case finish(OpAttrs attrs, const std::vector<TensorId>& inputs, TensorId out, Epilogue epilogue = {}) {
    ROperator rop;
    rop.name = case_.name;
    rop.attrs = of_result(std::move(attrs), case_.graph.tensor(out).shape);
    rop.epilogue = epilogue;
    rop.inputs = inputs;
    rop.outputs = {out};
    case_.graph.rops = {rop};
    case_.graph.outputs = {out};
    return case_;
  }
  // Several steps as one rOperator. `between`: a tensor from one step to another.
  TensorId between(const Shape& shape, DType dtype = DType::f32) {
    case_.values.emplace_back();
    return add_tensor(case_.graph, Tensor{name(), dtype, shape, Role::activation, nullptr, {}});
  }
  Case finish_steps(const std::vector<ROperator>& steps, const std::vector<TensorId>& results) {
    case_.graph.rops = {fuse(case_.graph, case_.name, steps, results)};
    case_.graph.rops[0].name = case_.name;
    case_.graph.outputs = results;
    return case_;
  }
  void set_range(float low, float high) { low_ = low, high_ = high; }

 private:
  std::string name() const { return "t" + std::to_string(case_.graph.tensors.size()); }

  std::vector<float> random(const Shape& shape) {
    std::uniform_real_distribution<float> draw(low_, high_);
    std::vector<float> out(static_cast<size_t>(element_count(shape)));
    for (float& v : out) v = draw(random_);
    return out;
  }

  TensorId filled(const Shape& shape, Lay lay, Role role, const std::vector<float>& values) {
    Bytes bytes(values.size() * sizeof(float));
    std::memcpy(bytes.data(), values.data(), bytes.size());
    auto data = std::make_shared<const Bytes>(std::move(bytes));
    const TensorId id = add_tensor(case_.graph, Tensor{name(), DType::f32, shape, role, role == Role::constant ? data : nullptr, {}});
    place(id, lay);
    case_.values.push_back({DType::f32, shape, data});
    return id;
  }

  void place(TensorId id, Lay lay) {
    Tensor& tensor = case_.graph.tensor(id);
    std::vector<size_t> order(tensor.shape.size());  // from the innermost dimension
    for (size_t i = 0; i < order.size(); ++i) order[i] = order.size() - 1 - i;
    const bool last = lay == Lay::channels_last || lay == Lay::slice || lay == Lay::padded;
    if (last && order.size() > 2) std::rotate(order.begin(), order.end() - 2, order.end() - 1);  // dimension 1 comes first
    tensor.place.strides.assign(tensor.shape.size(), 0);
    int64_t step = 1;
    for (size_t i = 0; i < order.size(); ++i) {
      if (tensor.shape[order[i]] != 1) tensor.place.strides[order[i]] = step;
      step *= tensor.shape[order[i]];
      if (i == 0 && lay == Lay::slice) step += 8;
      if (i == 0 && lay == Lay::padded) step = (step + 3) / 4 * 4;
    }
    tensor.place.offset = lay == Lay::slice ? 4 : 0;
    if (lay == Lay::reversed) {
      tensor.place.offset = step - 1;
      for (int64_t& stride : tensor.place.strides) stride = -stride;
    }
    tensor.place.buffer = BufferId(static_cast<int64_t>(case_.graph.buffers.size()));
    case_.graph.buffers.push_back({BufferKind::arena, step + 8, DType::f32, -1, {}});
  }

  Case case_;
  std::mt19937 random_{7};
  float low_ = -1, high_ = 1;
};

}  // namespace tamp::test
