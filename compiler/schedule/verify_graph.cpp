// The graph says what is to be computed, and is believed. What it says of memory is not: tensors lie in their buffers, buffers have their
// tensors' type, and inputs and outputs are buffers of their own, as callers see them.
#include <fmt/format.h>

#include "compiler/schedule/verify_memory.h"
#include "compiler/support/error.h"
#include "compiler/support/text.h"

namespace tamp::schedule {
namespace {

template <class List, class Id>
bool has(const List& list, Id id) {
  return id.valid() && id.index() < list.size();
}

struct Places {
  const Graph& graph;
  Violations& violations;

  void verify() {
    for (const Tensor& tensor : graph.tensors) {
      if (tensor.place.buffer.value != -1) verify_tensor(tensor);
    }
    for (size_t b = 0; b < graph.buffers.size(); ++b) verify_buffer(b);
    verify_ports(graph.inputs, BufferKind::input, graph.input_types);
    verify_ports(graph.outputs, BufferKind::output, graph.output_types);
    for (const PaddedOutput& padded : graph.padded) verify_padded(padded);
    verify_loops();
  }

  // Loops come behind the ones that they are in.
  void verify_loops() const {
    const auto is_loop = [&](int32_t loop, size_t count) { return loop >= -1 && loop < static_cast<int32_t>(count); };
    for (size_t l = 0; l < graph.loops.size(); ++l) {
      const Loop& loop = graph.loops[l];
      const bool fits = is_loop(loop.parent, l) && has(graph.tensors, loop.condition) && graph.tensor(loop.condition).place.buffer.valid();
      if (!fits) violations.add(fmt::format("loop '{}' is in no loop that there is, or has no condition", printable(loop.name)));
    }
    for (const ROperator& rop : graph.rops) {
      if (!is_loop(rop.loop, graph.loops.size()) || (rop.ends_iteration && (rop.loop < 0 || rop.outputs.size() != 1)))
        violations.add(fmt::format("'{}' is in no loop that there is", printable(rop.name)));
    }
  }

  void verify_tensor(const Tensor& tensor) const {
    const Placement& place = tensor.place;
    const auto refuse = [&](const std::string& why) { violations.add(fmt::format("'{}' {}", printable(tensor.name), why)); };
    if (!has(graph.buffers, place.buffer)) return refuse("lies in a buffer that does not exist");
    const Buffer& buffer = graph.buffers[place.buffer.index()];
    if (place.strides.size() != tensor.shape.size()) return refuse("has strides for another shape");
    if (tensor.dtype != buffer.dtype)
      return refuse(fmt::format("is of {}, and its buffer {} of {}", name_of(tensor.dtype), place.buffer.value, name_of(buffer.dtype)));
    int64_t first = place.offset, last = place.offset;
    for (size_t d = 0; d < tensor.shape.size(); ++d) {
      if (tensor.shape[d] <= 0) return;  // no elements
      const int64_t reach = (tensor.shape[d] - 1) * place.strides[d];
      (reach < 0 ? first : last) += reach;
    }
    const bool is_read_only = buffer.kind == BufferKind::constant;  // where it is read in place, its reads are looked at
    if (!is_read_only && (first < 0 || last >= buffer.elements))
      refuse(fmt::format("lies at elements {} to {} of buffer {}, which has {}", first, last, place.buffer.value, buffer.elements));
  }

  void verify_buffer(size_t b) const {
    const Buffer& buffer = graph.buffers[b];
    const auto refuse = [&](const std::string& why) { violations.add(fmt::format("buffer {} {}", b, why)); };
    if (buffer.elements < 0) refuse(fmt::format("has {} elements", buffer.elements));
    const bool is_byte = is_whole_byte(buffer.dtype);
    if (buffer.narrowed && buffer.dtype != DType::f16 && buffer.dtype != DType::bf16 && !is_byte)
      refuse("is narrowed and not of 16 or 8 bits");
    if (is_byte && !buffer.narrowed) refuse(fmt::format("of {} is not narrowed", name_of(buffer.dtype)));
    if (buffer.low != 0 && buffer.dtype != DType::whole_u8) refuse(fmt::format("of {} begins at {}", name_of(buffer.dtype), buffer.low));
    const auto& ports = buffer.kind == BufferKind::input ? graph.inputs : graph.outputs;
    if (buffer.kind == BufferKind::input || buffer.kind == BufferKind::output) {
      const bool exists = buffer.io_index >= 0 && static_cast<size_t>(buffer.io_index) < ports.size();
      if (!exists) return refuse(fmt::format("is input or output {} of {}", buffer.io_index, ports.size()));
      const Tensor& port = graph.tensor(ports[static_cast<size_t>(buffer.io_index)]);
      if (port.place.buffer.value != static_cast<int64_t>(b))
        return refuse(fmt::format("is said to be that of '{}', which lies elsewhere", printable(port.name)));
      if (element_count(port.shape) != buffer.elements)
        refuse(fmt::format("has {} elements, '{}' has {}", buffer.elements, printable(port.name), element_count(port.shape)));
    }
    if (buffer.kind == BufferKind::constant) {
      if (!has(graph.tensors, buffer.constant) || graph.tensor(buffer.constant).data == nullptr)
        return refuse("is that of a constant, which does not exist");
      const Tensor& constant = graph.tensor(buffer.constant);
      if (constant.dtype != buffer.dtype || element_count(constant.shape) != buffer.elements)
        refuse(fmt::format("has another size than its constant '{}'", printable(constant.name)));
    }
  }

  // A port is all of its buffer, in row-major order. An input that nobody reads may have none.
  void verify_ports(const std::vector<TensorId>& ports, BufferKind kind, const std::vector<DType>& types) const {
    if (!types.empty() && types.size() != ports.size()) violations.add("types for callers are of another number of inputs or outputs");
    for (size_t i = 0; i < ports.size(); ++i) {
      const Tensor& port = graph.tensor(ports[i]);
      const auto refuse = [&](const char* why) {
        violations.add(fmt::format("{} '{}' {}", kind == BufferKind::input ? "input" : "output", printable(port.name), why));
      };
      if (!has(graph.buffers, port.place.buffer)) {
        if (kind == BufferKind::output) refuse("has no place");
        continue;
      }
      const Buffer& buffer = graph.buffers[port.place.buffer.index()];
      if (buffer.kind != kind || buffer.io_index != static_cast<int32_t>(i)) refuse("does not lie in the caller's buffer for it");
      if (port.place.offset != 0 || !is_row_major(port)) refuse("is not in row-major order");
    }
  }

  void verify_padded(const PaddedOutput& padded) const {
    const auto is_output = [&](int64_t n) { return n >= 0 && n < static_cast<int64_t>(graph.outputs.size()); };
    const bool exists = is_output(padded.output) && is_output(padded.count) && padded.axis >= 0 &&
                        padded.axis < static_cast<int64_t>(graph.tensor(graph.outputs[static_cast<size_t>(padded.output)]).shape.size());
    if (!exists) violations.add("a padded output, its count or its axis does not exist");
  }
};

}  // namespace

void verify_graph(const RProgram& program, Violations& violations) {
  try {
    tamp::verify(program.graph);
  } catch (const InternalError& error) {
    return violations.add(error.what());
  }
  Places{program.graph, violations}.verify();
}

}  // namespace tamp::schedule
