#include "compiler/cli/each.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <memory>

#include "compiler/cli/compare.h"
#include "compiler/ops/number.h"
#include "compiler/support/error.h"
#include "compiler/support/text.h"

namespace tamp::cli {
namespace {

// The contents of a device's buffers after a run, tensor by tensor.
class DeviceMemory {
 public:
  DeviceMemory(const RProgram& program, const std::vector<ops::Value>& inputs, const std::vector<ops::Value>& outputs, const Bytes& arena)
      : graph_(program.graph) {
    for (size_t b = 0; b < graph_.buffers.size(); ++b) {
      const Buffer& buffer = graph_.buffers[b];
      const auto io = static_cast<size_t>(std::max(buffer.io_index, 0));
      switch (buffer.kind) {
        case BufferKind::input: starts_.push_back(inputs.at(io).data->data()); break;
        case BufferKind::output: starts_.push_back(outputs.at(io).data->data()); break;
        case BufferKind::constant: starts_.push_back(graph_.tensor(buffer.constant).data->data()); break;
        case BufferKind::arena: {
          const int64_t offset = program.memory.buffer_offset[b];
          const int64_t bytes = buffer.elements * bytes_of(buffer.dtype);
          TAMP_CHECK(offset < 0 || offset + bytes <= static_cast<int64_t>(arena.size()), "the arena is smaller than its buffers");
          starts_.push_back(offset < 0 ? nullptr : arena.data() + offset);
          break;
        }
      }
    }
  }

  ops::Value value(TensorId id) const {
    const Tensor& tensor = graph_.tensor(id);
    if (!tensor.place.buffer.valid()) {
      TAMP_CHECK(tensor.data != nullptr, "tensor '" + printable(tensor.name) + "' lies nowhere");
      return {tensor.dtype, tensor.shape, tensor.data};
    }
    const std::byte* const start = starts_[tensor.place.buffer.index()];
    const int64_t count = element_count(tensor.shape), size = bytes_of(tensor.dtype);
    auto data = std::make_shared<Bytes>(static_cast<size_t>(count * size));
    TAMP_CHECK(start != nullptr || count == 0, "tensor '" + printable(tensor.name) + "' is in a buffer without memory");
    for (int64_t i = 0; i < count; ++i) std::memcpy(data->data() + i * size, start + position(tensor, i) * size, static_cast<size_t>(size));
    if (graph_.buffers[tensor.place.buffer.index()].narrowed)
      return {DType::f32, tensor.shape, std::make_shared<const Bytes>(ops::f32_bytes(tensor.dtype, *data))};
    return {tensor.dtype, tensor.shape, std::move(data)};
  }

 private:
  // Position of element i, counted in row-major order.
  static int64_t position(const Tensor& tensor, int64_t i) {
    int64_t at = tensor.place.offset;
    for (size_t d = tensor.shape.size(); d-- > 0;) {
      at += i % tensor.shape[d] * tensor.place.strides[d];
      i /= tensor.shape[d];
    }
    return at;
  }

  const Graph& graph_;
  std::vector<const std::byte*> starts_;  // per buffer
};

std::string nodes_text(const ROperator& rop) {
  std::vector<std::string> names;
  for (const std::string& name : rop.origin) names.push_back("'" + printable(name, 80) + "'");
  return fmt::format("ONNX node{} {}", names.size() == 1 ? "" : "s", names.empty() ? "none" : join(names, ", "));
}

}  // namespace

EachReport check_each(const RProgram& program, const std::vector<ops::Value>& inputs, const std::vector<ops::Value>& outputs,
                      const Bytes& arena) {
  const Graph& graph = program.graph;
  const DeviceMemory memory(program, inputs, outputs, arena);
  EachReport report;
  for (size_t i = 0; i < graph.rops.size(); ++i) {
    const ROperator& rop = graph.rops[i];
    if (program.rkernels[i].phases.empty()) continue;  // a view of other rOperators' results
    std::vector<ops::Value> operands(graph.tensors.size());
    for (const TensorId id : reads_of(rop)) operands[id.index()] = memory.value(id);
    std::vector<ops::Value> expected;
    try {
      expected = ops::evaluate(graph, rop, [&](TensorId id) -> const ops::Value& { return operands[id.index()]; });
    } catch (const InternalError&) {  // shapes do not fit: a neighbour of the rOperator became a view
      report.skipped.push_back(rop.name);
      continue;
    }
    for (size_t k = 0; k < expected.size(); ++k) {
      const Tensor& tensor = graph.tensor(rop.outputs[k]);
      const Difference d = difference(memory.value(rop.outputs[k]), expected[k]);
      const double limit = tolerance(program.precision, tensor.dtype);
      if (d.relative_l2 <= limit) continue;
      report.departure = fmt::format(
          "rOperator '{}' ({}), rKernel {}, {}: its result '{}' differs from the reference, relative L2 {:.2e}, limit {:.0e}; worst "
          "element "
          "{}: {:.7g}, expected {:.7g}",
          printable(rop.name), name_of(rop.attrs), program.rkernels[i].name, nodes_text(rop), printable(tensor.name), d.relative_l2, limit,
          index_text(d.worst, tensor.shape), d.got, d.expected);
      return report;
    }
    ++report.checked;
  }
  return report;
}

}  // namespace tamp::cli
