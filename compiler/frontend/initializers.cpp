// A tensor's values are in exactly one of: raw_data, the typed field of its element type, an external file. Narrow types travel in wider
// fields (int32_data holds bools, halves as bit patterns, and all integers up to 32 bits); values that do not fit the element type are
// refused, not cut off.
#include "compiler/frontend/initializers.h"

#include <fmt/format.h>
#include <onnx/onnx_pb.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>

#include "compiler/frontend/external_data.h"
#include "compiler/support/error.h"
#include "compiler/support/text.h"

namespace tamp::frontend {
namespace {

// In the order of TensorProto::DataType. The last ones are newer than the installed onnx.proto.
constexpr std::array kTypeNames = {
    "UNDEFINED",      "FLOAT",      "UINT8",          "INT8",   "UINT16", "INT16",      "INT32",      "INT64",    "STRING",
    "BOOL",           "FLOAT16",    "DOUBLE",         "UINT32", "UINT64", "COMPLEX64",  "COMPLEX128", "BFLOAT16", "FLOAT8E4M3FN",
    "FLOAT8E4M3FNUZ", "FLOAT8E5M2", "FLOAT8E5M2FNUZ", "UINT4",  "INT4",   "FLOAT4E2M1", "FLOAT8E8M0", "UINT2",    "INT2"};

// External tensors up to this size are read even where weights are not wanted: they may be shapes and axes.
constexpr int64_t kSmallBytes = 64 * 1024;

struct Limits {
  int64_t low, high;
};

// The range of values for the element type in a typed field of wider integers. f16 and bf16: bit patterns.
Limits limits_of(DType dtype) {
  switch (dtype) {
    case DType::boolean: return {0, 1};
    case DType::i8: return {-128, 127};
    case DType::u8: return {0, 255};
    case DType::i16: return {-32768, 32767};
    case DType::u16:
    case DType::f16:
    case DType::bf16: return {0, 65535};
    case DType::u32: return {0, std::numeric_limits<uint32_t>::max()};
    default: return {std::numeric_limits<int64_t>::min(), std::numeric_limits<int64_t>::max()};
  }
}

template <class Stored, class Field>
Bytes pack(const Field& field, DType dtype, const std::string& where) {
  const Limits limits = limits_of(dtype);
  Bytes bytes(static_cast<size_t>(field.size()) * sizeof(Stored));
  for (int i = 0; i < field.size(); ++i) {
    const auto value = field.Get(i);
    if constexpr (std::is_integral_v<std::decay_t<decltype(value)>>) {
      const bool fits =
          sizeof(Stored) == sizeof(value) || (static_cast<int64_t>(value) >= limits.low && static_cast<int64_t>(value) <= limits.high);
      if (!fits) throw bad_input("{}: value {} of element {} does not fit {}", where, value, i, name_of(dtype));
    }
    const auto stored = static_cast<Stored>(value);
    std::memcpy(bytes.data() + static_cast<size_t>(i) * sizeof(Stored), &stored, sizeof stored);
  }
  return bytes;
}

// Sizes of the typed fields; only the one of the element type may be filled.
struct Fields {
  int floats, int32s, int64s, doubles, uint64s, strings;
  int filled() const { return (floats > 0) + (int32s > 0) + (int64s > 0) + (doubles > 0) + (uint64s > 0) + (strings > 0); }
};

Fields fields_of(const onnx::TensorProto& tensor) {
  return {tensor.float_data_size(),  tensor.int32_data_size(),  tensor.int64_data_size(),
          tensor.double_data_size(), tensor.uint64_data_size(), tensor.string_data_size()};
}

int elements_in_typed_field(const Fields& fields, DType dtype) {
  switch (dtype) {
    case DType::f32: return fields.floats;
    case DType::f64: return fields.doubles;
    case DType::i64: return fields.int64s;
    case DType::u32:
    case DType::u64: return fields.uint64s;
    default: return fields.int32s;
  }
}

Bytes typed_bytes(const onnx::TensorProto& tensor, DType dtype, const std::string& where) {
  switch (dtype) {
    case DType::f32: return pack<float>(tensor.float_data(), dtype, where);
    case DType::f64: return pack<double>(tensor.double_data(), dtype, where);
    case DType::i64: return pack<int64_t>(tensor.int64_data(), dtype, where);
    case DType::u64: return pack<uint64_t>(tensor.uint64_data(), dtype, where);
    case DType::u32: return pack<uint32_t>(tensor.uint64_data(), dtype, where);
    case DType::i32: return pack<int32_t>(tensor.int32_data(), dtype, where);
    case DType::i16: return pack<int16_t>(tensor.int32_data(), dtype, where);
    case DType::i8: return pack<int8_t>(tensor.int32_data(), dtype, where);
    case DType::u8:
    case DType::boolean: return pack<uint8_t>(tensor.int32_data(), dtype, where);
    case DType::u16:
    case DType::f16:
    case DType::bf16: return pack<uint16_t>(tensor.int32_data(), dtype, where);
    case DType::whole_i8:
    case DType::whole_u8: break;  // no type of a model
  }
  TAMP_CHECK(false, "dtype out of range");
}

Bytes inline_bytes(onnx::TensorProto& tensor, DType dtype, int64_t count, const std::string& where) {
  const Fields fields = fields_of(tensor);
  const int typed = elements_in_typed_field(fields, dtype);
  if (fields.filled() > (typed > 0 ? 1 : 0))
    throw bad_input("{}: values in a field that does not belong to element type {}", where, name_of(dtype));
  if (tensor.has_raw_data() && typed > 0) throw bad_input("{}: values both raw and in a typed field", where);
  if (!tensor.has_raw_data()) {
    if (typed != count) throw bad_input("{}: holds {} values, its shape needs {}", where, typed, count);
    return typed_bytes(tensor, dtype, where);
  }
  const std::string& raw = tensor.raw_data();
  const int64_t need = count * bytes_of(dtype);
  if (static_cast<int64_t>(raw.size()) != need) throw bad_input("{}: holds {} bytes, its shape and type need {}", where, raw.size(), need);
  Bytes bytes(raw.size());
  if (!raw.empty()) std::memcpy(bytes.data(), raw.data(), raw.size());
  tensor.clear_raw_data();
  return bytes;
}

void check_bools(const Bytes& bytes, const std::string& where) {
  for (const std::byte value : bytes) {
    if (value > std::byte{1}) throw bad_input("{}: bool value {}, expected 0 or 1", where, static_cast<int>(value));
  }
}

DType element_type(const onnx::TensorProto& tensor, const std::string& where) {
  const NarrowType narrow = narrow_of_onnx(tensor.data_type());
  if (narrow != NarrowType::none) return held_as(narrow);
  const std::optional<DType> dtype = dtype_of_onnx(tensor.data_type());
  if (dtype) return *dtype;
  const std::string text = fmt::format("{}: element type {}", where, onnx_type_name(tensor.data_type()));
  if (is_onnx_type(tensor.data_type())) throw unsupported(text + " is not supported");
  throw bad_input(text + " is not an ONNX type");
}

}  // namespace

std::optional<DType> dtype_of_onnx(int onnx_type) {
  switch (onnx_type) {
    case onnx::TensorProto::FLOAT: return DType::f32;
    case onnx::TensorProto::DOUBLE: return DType::f64;
    case onnx::TensorProto::FLOAT16: return DType::f16;
    case onnx::TensorProto::BFLOAT16: return DType::bf16;
    case onnx::TensorProto::INT8: return DType::i8;
    case onnx::TensorProto::INT16: return DType::i16;
    case onnx::TensorProto::INT32: return DType::i32;
    case onnx::TensorProto::INT64: return DType::i64;
    case onnx::TensorProto::UINT8: return DType::u8;
    case onnx::TensorProto::UINT16: return DType::u16;
    case onnx::TensorProto::UINT32: return DType::u32;
    case onnx::TensorProto::UINT64: return DType::u64;
    case onnx::TensorProto::BOOL: return DType::boolean;
    default: return std::nullopt;
  }
}

bool is_onnx_type(int onnx_type) { return onnx_type > 0 && onnx_type < static_cast<int>(kTypeNames.size()); }

std::string onnx_type_name(int onnx_type) {
  if (onnx_type < 0 || onnx_type >= static_cast<int>(kTypeNames.size())) return fmt::format("{}", onnx_type);
  return kTypeNames[static_cast<size_t>(onnx_type)];
}

std::optional<int64_t> checked_count(const Shape& shape) {
  int64_t product = 1;
  bool empty = false;
  for (const int64_t extent : shape) {
    if (extent < 0) return std::nullopt;
    if (extent == 0) {
      empty = true;
    } else if (__builtin_mul_overflow(product, extent, &product)) {
      return std::nullopt;
    }
  }
  return empty ? 0 : product;
}

std::string shape_limit(const Shape& shape) {
  if (shape.size() > kMaxRank) return fmt::format("has {} dimensions, supported: up to {}", shape.size(), kMaxRank);
  const std::optional<int64_t> count = checked_count(shape);
  const bool too_long = std::any_of(shape.begin(), shape.end(), [](int64_t extent) { return extent > kMaxElements; });
  if (count && *count <= kMaxElements && !too_long) return "";
  return fmt::format("has shape {}, more than {} elements", shape_text(shape), kMaxElements);
}

FileTensor read_tensor(onnx::TensorProto& tensor, const TensorSource& source, const std::string& where) {
  FileTensor value;
  value.narrow = narrow_of_onnx(tensor.data_type());
  value.dtype = element_type(tensor, where);
  value.shape.assign(tensor.dims().begin(), tensor.dims().end());
  const std::optional<int64_t> count = value.shape.size() > kMaxRank ? std::nullopt : checked_count(value.shape);
  if (!count && value.shape.size() <= kMaxRank) throw bad_input("{}: impossible shape {}", where, shape_text(value.shape));
  if (const std::string limit = shape_limit(value.shape); !limit.empty()) throw unsupported("{}: {}", where, limit);
  const bool is_packed = value.narrow != NarrowType::none;
  const int64_t stored = is_packed ? packed_bytes_of(value.narrow, *count) : *count;  // numbers, of packed types bytes
  const DType stored_type = is_packed ? DType::u8 : value.dtype;
  const int64_t bytes_needed = stored * bytes_of(stored_type);
  if (tensor.has_segment()) throw unsupported("{}: is stored in segments", where);

  if (tensor.data_location() == onnx::TensorProto::EXTERNAL) {
    if (tensor.has_raw_data() || fields_of(tensor).filled() > 0)
      throw bad_input("{}: values both inside the model and in an external file", where);
    const bool read = source.load_weights || bytes_needed <= kSmallBytes;
    // Only numbers in floats are large; types of results depend on others.
    const Loading loading = is_float(value.dtype) || is_packed ? Loading::when_asked : Loading::at_once;
    value.data = read_external_data(tensor, source.folder, bytes_needed, read ? loading : Loading::none, where);
    if (!read) return value;
  } else {
    value.data = std::make_shared<const Bytes>(inline_bytes(tensor, stored_type, stored, where));
  }
  if (is_packed) {
    value.data =
        TensorData::made_by(static_cast<size_t>(*count * bytes_of(value.dtype)),
                            [type = value.narrow, packed = value.data, count = *count] { return unpacked(type, *packed.hold(), count); });
  }
  if (value.dtype == DType::boolean) check_bools(*value.data, where);
  return value;
}

}  // namespace tamp::frontend
