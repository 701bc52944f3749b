#include "test/support/placed_run.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>
#include <stdexcept>

namespace tamp::test {
namespace {

struct Memory {
  Bytes bytes;
  std::vector<bool> written;
};

class PlacedRun {
 public:
  explicit PlacedRun(const Graph& graph) : graph_(graph) {
    for (const Buffer& buffer : graph.buffers) {
      const auto size = static_cast<size_t>(buffer.elements * bytes_of(buffer.dtype));
      memory_.push_back({Bytes(size, std::byte{0xff}), std::vector<bool>(static_cast<size_t>(buffer.elements), false)});  // floats: NaN
      if (buffer.kind == BufferKind::constant) memory_.back().bytes = *graph.tensor(buffer.constant).data;
    }
  }

  std::vector<ops::Value> run(const std::vector<ops::Value>& inputs) {
    for (size_t i = 0; i < inputs.size(); ++i) scatter(graph_.tensor(graph_.inputs[i]), *inputs[i].data);
    for (const ROperator& rop : graph_.rops) {
      std::vector<ops::Value> operands(graph_.tensors.size());
      for (const TensorId id : reads_of(rop)) operands[id.index()] = gather(graph_.tensor(id));
      const auto results = ops::evaluate(graph_, rop, [&](TensorId id) -> const ops::Value& { return operands[id.index()]; });
      for (size_t i = 0; i < results.size(); ++i) scatter(graph_.tensor(rop.outputs[i]), *results[i].data);
    }
    std::vector<ops::Value> outputs;
    for (const TensorId id : graph_.outputs) outputs.push_back(gather(graph_.tensor(id)));
    return outputs;
  }

 private:
  // Position in the buffer of element i in row-major logical order.
  int64_t position(const Tensor& tensor, int64_t i) const {
    int64_t at = tensor.place.offset;
    for (size_t d = tensor.shape.size(); d-- > 0;) {
      at += i % tensor.shape[d] * tensor.place.strides[d];
      i /= tensor.shape[d];
    }
    const Buffer& buffer = graph_.buffers[tensor.place.buffer.index()];
    if (at < 0 || at >= buffer.elements || buffer.dtype != tensor.dtype)
      throw std::runtime_error("'" + tensor.name + "' leaves its buffer");
    return at;
  }

  ops::Value gather(const Tensor& tensor) const {
    const auto size = static_cast<size_t>(bytes_of(tensor.dtype));
    Bytes values(static_cast<size_t>(element_count(tensor.shape)) * size);
    for (size_t i = 0; i < values.size() / size; ++i) {
      const auto from = static_cast<size_t>(position(tensor, static_cast<int64_t>(i)));
      std::memcpy(&values[i * size], &memory_[tensor.place.buffer.index()].bytes[from * size], size);
    }
    return {tensor.dtype, tensor.shape, std::make_shared<const Bytes>(std::move(values))};
  }

  void scatter(const Tensor& tensor, const Bytes& values) {
    const auto size = static_cast<size_t>(bytes_of(tensor.dtype));
    Memory& memory = memory_[tensor.place.buffer.index()];
    for (size_t i = 0; i < values.size() / size; ++i) {
      const auto to = static_cast<size_t>(position(tensor, static_cast<int64_t>(i)));
      if (memory.written[to]) throw std::runtime_error("'" + tensor.name + "' overwrites another tensor");
      memory.written[to] = true;
      std::memcpy(&memory.bytes[to * size], &values[i * size], size);
    }
  }

  const Graph& graph_;
  std::vector<Memory> memory_;
};

}  // namespace

std::vector<ops::Value> placed_run(const Graph& graph, const std::vector<ops::Value>& inputs) { return PlacedRun(graph).run(inputs); }

std::vector<ops::Value> run_any(const Graph& graph, const std::vector<ops::Value>& inputs) {
  return graph.buffers.empty() ? ops::run(graph, inputs) : placed_run(graph, inputs);
}

std::vector<ops::Value> random_inputs(const Graph& graph) {
  std::mt19937 random(7);
  std::vector<ops::Value> inputs;
  for (const TensorId id : graph.inputs) {
    const Shape& shape = graph.tensor(id).shape;
    Bytes data(static_cast<size_t>(element_count(shape)) * sizeof(float));
    for (size_t i = 0; i < data.size(); i += sizeof(float)) {
      const float value = static_cast<float>(random() >> 8) / static_cast<float>(1 << 23) - 1;
      std::memcpy(&data[i], &value, sizeof(float));
    }
    inputs.push_back({DType::f32, shape, std::make_shared<const Bytes>(std::move(data))});
  }
  return inputs;
}

double distance(const std::vector<ops::Value>& a, const std::vector<ops::Value>& b) {
  if (a.size() != b.size()) return INFINITY;
  double worst = 0;
  for (size_t o = 0; o < a.size(); ++o) {
    if (a[o].shape != b[o].shape || a[o].dtype != DType::f32 || b[o].dtype != DType::f32) return INFINITY;
    for (int64_t i = 0; i < element_count(a[o].shape); ++i) {
      const double x = reinterpret_cast<const float*>(a[o].data->data())[i], y = reinterpret_cast<const float*>(b[o].data->data())[i];
      const double d = std::abs(x - y) / std::max(1.0, std::abs(x));
      worst = std::isnan(d) ? INFINITY : std::max(worst, d);
    }
  }
  return worst;
}

}  // namespace tamp::test
