#include "compiler/cli/each.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>
#include <memory>
#include <optional>

#include "compiler/cli/bounds.h"
#include "compiler/cli/compare.h"
#include "compiler/ir/fused.h"
#include "compiler/schedule/memory_plan.h"
#include "compiler/support/error.h"
#include "compiler/support/text.h"

namespace tamp::cli {
namespace {

// The contents of a device's buffers after a run, tensor by tensor.
class DeviceMemory {
 public:
  DeviceMemory(const RProgram& program, const std::vector<ops::Value>& inputs, const std::vector<ops::Value>& outputs, const Bytes& arena)
      : program_(program), graph_(program.graph), arena_(arena) {
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
    TAMP_CHECK(start != nullptr || element_count(tensor.shape) == 0,
               "tensor '" + printable(tensor.name) + "' is in a buffer without memory");
    auto data = std::make_shared<Bytes>(elements_of(tensor, start));
    const Buffer& buffer = graph_.buffers[tensor.place.buffer.index()];
    if (buffer.narrowed) return {DType::f32, tensor.shape, std::make_shared<const Bytes>(widened_bytes(buffer, *data))};
    return {tensor.dtype, tensor.shape, std::move(data)};
  }

  // What those find who take the tensor's words (schedule/words.h), if it has any: NaN where nobody published one. Of the two copies a run
  // fills one and clears the other.
  std::optional<ops::Value> words(TensorId id) const {
    const Tensor& tensor = graph_.tensor(id);
    const MemoryPlan& memory = program_.memory;
    const size_t b = tensor.place.buffer.valid() ? tensor.place.buffer.index() : memory.words_offset.size();
    if (b >= memory.words_offset.size() || memory.words_offset[b] < 0) return std::nullopt;
    std::vector<float> values(static_cast<size_t>(element_count(tensor.shape)), std::numeric_limits<float>::quiet_NaN());
    for (size_t i = 0; i < values.size(); ++i) {
      const int64_t at = memory.words_offset[b] + place_of(tensor, static_cast<int64_t>(i)) * schedule::kWordBytes;
      for (const int64_t copy : {at, at + memory.words_bytes}) {
        uint32_t word = 0;
        TAMP_CHECK(copy + schedule::kWordBytes <= static_cast<int64_t>(arena_.size()), "the arena is smaller than its words");
        std::memcpy(&word, arena_.data() + copy, sizeof word);
        if (word != 0) values[i] = std::bit_cast<float>(~word);
      }
    }
    auto data = std::make_shared<Bytes>(values.size() * sizeof(float));
    std::memcpy(data->data(), values.data(), data->size());
    return ops::Value{DType::f32, tensor.shape, std::move(data)};
  }

 private:
  // The floats that elements of a narrowed buffer stand for.
  static Bytes widened_bytes(const Buffer& buffer, const Bytes& elements) {
    if (!is_whole_byte(buffer.dtype)) return ops::f32_bytes(buffer.dtype, elements);
    Bytes wide = ops::f32_bytes(buffer.dtype == DType::whole_i8 ? DType::i8 : DType::u8, elements);
    for (size_t at = 0; at < wide.size(); at += sizeof(float)) {
      float number = 0;
      std::memcpy(&number, wide.data() + at, sizeof number);
      number += static_cast<float>(buffer.low);
      std::memcpy(wide.data() + at, &number, sizeof number);
    }
    return wide;
  }

  const RProgram& program_;
  const Graph& graph_;
  const Bytes& arena_;
  std::vector<const std::byte*> starts_;  // per buffer
};

// The graph as the reference takes it: rOperators compute in f32 what lies in 16 bits in a narrowed buffer.
Graph widened(Graph graph) {
  for (Tensor& tensor : graph.tensors) {
    if (tensor.place.buffer.valid() && graph.buffers[tensor.place.buffer.index()].narrowed) tensor.dtype = DType::f32;
  }
  return graph;
}

std::string nodes_text(const ROperator& rop) {
  std::vector<std::string> names;
  for (const std::string& name : rop.origin) names.push_back("'" + printable(name, 80) + "'");
  return fmt::format("ONNX node{} {}", names.size() == 1 ? "" : "s", names.empty() ? "none" : join(names, ", "));
}

// What is wrong with a result of a rOperator, or nothing. `what`: "its result", "the words of its result".
std::string departure(const RProgram& program, size_t rop, const Tensor& tensor, const char* what, const ops::Value& got,
                      const ops::Value& expected) {
  const Difference d = difference(got, expected);
  const double limit = tolerance(program.precision, tensor.dtype);
  if (d.relative_l2 <= limit) return {};
  const ROperator& wrong = program.graph.rops[rop];
  return fmt::format(
      "rOperator '{}' ({}), rKernel {}, {}: {} '{}' differs from the reference, relative L2 {:.2e}, limit {:.0e}; worst element {}: "
      "{:.7g}, "
      "expected {:.7g}",
      printable(wrong.name), title_of(wrong), program.rkernels[rop].name, nodes_text(wrong), what, printable(tensor.name), d.relative_l2,
      limit, index_text(d.worst, tensor.shape), d.got, d.expected);
}

// The first departure of a rOperator's results, those included that only other rOperators read (moments, sums, rounded rows).
std::string departure(const RProgram& program, const Graph& graph, size_t rop, const DeviceMemory& memory) {
  const ROperator& alone = graph.rops[rop];
  std::vector<ops::Value> operands(graph.tensors.size());
  for (const TensorId id : reads_of(alone)) operands[id.index()] = memory.value(id);
  const std::vector<ops::Value> expected =
      ops::evaluate(graph, alone, [&](TensorId id) -> const ops::Value& { return operands[id.index()]; });
  for (size_t k = 0; k < expected.size(); ++k) {
    const TensorId id = alone.outputs[k];
    std::string found = departure(program, rop, graph.tensor(id), "its result", memory.value(id), expected[k]);
    const std::optional<ops::Value> words = memory.words(id);
    if (found.empty() && words) found = departure(program, rop, graph.tensor(id), "the words of its result", *words, expected[k]);
    if (!found.empty()) return found;
  }
  return {};
}

// Whether the rOperator runs in a loop, or makes what a loop changes: what it read or made is not there any more when the program ends.
bool is_overwritten(const Graph& graph, const ROperator& rop) {
  const BufferId made = graph.tensor(rop.outputs[0]).place.buffer;
  return rop.loop >= 0 || std::any_of(graph.rops.begin(), graph.rops.end(), [&](const ROperator& other) {
           return other.ends_iteration && graph.tensor(other.outputs[0]).place.buffer == made;
         });
}

}  // namespace

EachReport check_each(const RProgram& program, const std::vector<ops::Value>& inputs, const std::vector<ops::Value>& outputs,
                      const Bytes& arena) {
  const Graph graph = widened(program.graph);
  const DeviceMemory memory(program, inputs, outputs, arena);
  EachReport report;
  for (size_t i = 0; i < graph.rops.size(); ++i) {
    if (program.rkernels[i].phases.empty()) continue;  // a view of other rOperators' results
    if (is_overwritten(graph, graph.rops[i])) {
      report.skipped.push_back(fmt::format("'{}' ({}): of a loop of run time", printable(graph.rops[i].name), title_of(graph.rops[i])));
      continue;
    }
    try {
      report.departure = departure(program, graph, i, memory);
    } catch (const InternalError& error) {
      report.skipped.push_back(fmt::format("'{}' ({}): {}", printable(graph.rops[i].name), title_of(graph.rops[i]), error.what()));
      continue;
    }
    if (!report.departure.empty()) return report;
    ++report.checked;
  }
  return report;
}

}  // namespace tamp::cli
