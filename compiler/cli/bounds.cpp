#include "compiler/cli/bounds.h"

#include <fmt/format.h>

#include <cmath>
#include <cstring>

#include "compiler/ops/ops.h"
#include "compiler/support/error.h"
#include "compiler/support/text.h"

namespace tamp::cli {
namespace {

constexpr double kRounding = 1.01;  // what rounded operands and a body's approximations may add to a value

// The largest magnitude; what is no number says nothing.
double largest_of(const Tensor& tensor, const std::byte* start) {
  const Bytes wide = ops::f32_bytes(tensor.dtype, elements_of(tensor, start));
  double largest = 0;
  for (int64_t i = 0; i < element_count(tensor.shape); ++i) {
    float x = 0;
    std::memcpy(&x, wide.data() + i * 4, 4);
    if (!std::isnan(x)) largest = std::max(largest, std::abs(static_cast<double>(x)));
  }
  return largest;
}

}  // namespace

int64_t place_of(const Tensor& tensor, int64_t i) {
  int64_t at = tensor.place.offset;
  for (size_t d = tensor.shape.size(); d-- > 0;) {
    at += i % tensor.shape[d] * tensor.place.strides[d];
    i /= tensor.shape[d];
  }
  return at;
}

Bytes elements_of(const Tensor& tensor, const std::byte* start) {
  const int64_t count = element_count(tensor.shape), size = bytes_of(tensor.dtype);
  Bytes values(static_cast<size_t>(count * size));
  for (int64_t i = 0; i < count; ++i) std::memcpy(values.data() + i * size, start + place_of(tensor, i) * size, static_cast<size_t>(size));
  return values;
}

BoundsReport check_bounds(const RProgram& program, const Bytes& arena) {
  const Graph& graph = program.graph;
  BoundsReport report;
  for (size_t b = 0; b < graph.buffers.size(); ++b) report.checked += graph.buffers[b].largest > 0 ? 1 : 0;
  for (const Tensor& tensor : graph.tensors) {
    if (!tensor.place.buffer.valid()) continue;
    const size_t b = tensor.place.buffer.index();
    const Buffer& buffer = graph.buffers[b];
    const int64_t offset = program.memory.buffer_offset[b], bytes = buffer.elements * bytes_of(buffer.dtype);
    if (buffer.largest <= 0 || offset < 0) continue;
    TAMP_CHECK(offset + bytes <= static_cast<int64_t>(arena.size()), "the arena is smaller than its buffers");
    const double largest = largest_of(tensor, arena.data() + offset);
    if (largest <= buffer.largest * kRounding) continue;
    report.violations.push_back(fmt::format("'{}' lies in {} since its values are proven to be at most {:.4g}, and has {:.4g}",
                                            printable(tensor.name), name_of(buffer.dtype), buffer.largest, largest));
  }
  return report;
}

}  // namespace tamp::cli
