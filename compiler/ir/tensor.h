// A tensor of the graph: name, element type, logical shape (ONNX order, e.g. NCHW), and where its elements lie.
//
// The logical shape never changes with the layout. A tensor lives in a Buffer at `offset` with one stride per logical
// dimension (all in elements), so channels-last is a choice of strides, and Transpose, Slice, Concat and most Reshapes
// are views that cost nothing. Rules: strides of dimensions of extent 1 are 0; an empty tensor has no elements.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "compiler/ir/dtype.h"
#include "compiler/ir/length.h"
#include "compiler/ir/tensor_data.h"
#include "compiler/support/strong_id.h"

namespace tamp {

using Shape = std::vector<int64_t>;
using TensorId = StrongId<struct TensorTag>;
using BufferId = StrongId<struct BufferTag>;

enum class Role : uint8_t { input, constant, activation };

// Filled by passes/assign_layout. Before it `buffer` is none.
struct Placement {
  BufferId buffer;
  int64_t offset = 0;            // elements from the start of the buffer
  std::vector<int64_t> strides;  // elements, one per logical dimension
};

struct Tensor {
  std::string name;
  DType dtype = DType::f32;
  Shape shape;
  Role role = Role::activation;
  TensorData data = {};  // role constant: row-major little-endian values; none otherwise
  Placement place = {};
  LengthAxes ends = {};  // behind these nothing of it is needed (passes/place/mark_ends.h)
};

// Where memory comes from. Arena buffers get an offset from the memory plan; the others are bound at run time.
enum class BufferKind : uint8_t { arena, input, output, constant };

struct Buffer {
  BufferKind kind = BufferKind::arena;
  int64_t elements = 0;
  DType dtype = DType::f32;
  int32_t io_index = -1;  // input/output: position in Graph::inputs / Graph::outputs
  TensorId constant;      // constant: the tensor whose data it holds
  bool narrowed = false;  // f16, bf16 or bytes where rOperators compute in f32 (passes/narrow_activations.h)
  int32_t low = 0;        // whole_u8: a byte of 0 is this number, one of 1 the next one. Example: -5 to 250 with low -5
  double largest = 0;     // narrowed in tf32: the magnitude that values are proven to have at most (passes/value_bounds.h); else 0
};

std::vector<int64_t> range(int64_t begin, int64_t end);      // begin, begin + 1, .. before end
int64_t element_count(const Shape& shape);                   // 1 for a scalar
std::vector<int64_t> row_major_strides(const Shape& shape);  // extent-1 dimensions get 0
bool is_row_major(const Tensor& tensor);                     // placed densely in logical order
// Channels (dimension 1 of four) lie next to each other, and every pixel begins at a multiple of 16 bytes: the copy engine
// can cut boxes from it (kernels/vdevice/boxes.cuh).
bool lies_for_boxes(const Tensor& tensor);
// Channels-last tensors with at least this many channels have their pixels padded to multiples of four elements, or of eight
// (passes/memory_order.h): with so many channels the padding is a small part of a pixel. The copy engine can then cut boxes from every such
// tensor of f32.
inline constexpr int64_t kPaddedChannels = 16;

// The bytes of numbers, as a constant or a family's packed data has them.
template <class Number>
Bytes packed_bytes(const std::vector<Number>& numbers) {
  Bytes bytes(numbers.size() * sizeof(Number));
  if (!bytes.empty()) std::memcpy(bytes.data(), numbers.data(), bytes.size());
  return bytes;
}

// Typed look at a constant's values. TAMP_CHECK on a wrong dtype or a tensor that is not constant.
const float* f32_data(const Tensor& tensor);
const int64_t* i64_data(const Tensor& tensor);

}  // namespace tamp
