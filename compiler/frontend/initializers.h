// TensorProto -> values. All checks of a tensor's dims, its element type and the place of its bytes are here; none of these is trusted.
#pragma once

#include <optional>
#include <string>

#include "compiler/frontend/narrow_types.h"
#include "compiler/ops/ops.h"

namespace onnx {
class TensorProto;
}

namespace tamp::frontend {

// TensorProto::DataType as a number -> ours; none for strings, complex numbers and those of NarrowType.
std::optional<DType> dtype_of_onnx(int onnx_type);
// "FLOAT16", "FLOAT8E4M3FN", "99".
std::string onnx_type_name(int onnx_type);
// True for numbers that ONNX defines: an element type that is known but not supported is a refusal of another kind.
bool is_onnx_type(int onnx_type);

// The number of elements, or none if an extent is negative or the product of the extents other than 0 overflows.
std::optional<int64_t> checked_count(const Shape& shape);

// Device code indexes with 32 bits; and with extents below 2^31 the importers' arithmetic cannot overflow.
inline constexpr size_t kMaxRank = 32;
inline constexpr int64_t kMaxElements = (int64_t{1} << 31) - 1;
// Empty if a tensor of this shape is possible and supported, else why not. Negative extents are not looked at.
std::string shape_limit(const Shape& shape);

struct TensorSource {
  std::string folder;        // of the model; external data lie beneath it
  bool load_weights = true;  // false: large external data are checked and left null
};

// A tensor of a file, its numbers held as NarrowType says.
struct FileTensor : ops::Value {
  NarrowType narrow = NarrowType::none;
};

// Every Error begins with `where` ("m.onnx: initializer 'w'"). The raw bytes are taken out of `tensor`, so that a large
// model is not held twice. `data` is null only if the source says so.
FileTensor read_tensor(onnx::TensorProto& tensor, const TensorSource& source, const std::string& where);

}  // namespace tamp::frontend
