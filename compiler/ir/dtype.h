// Element types of ONNX tensors, in constants and at run time (docs/architecture.md, "Element types").
#pragma once

#include <cstdint>

namespace tamp {

// whole_i8 and whole_u8 are no types of a model: f32 activations that are whole numbers, and lie in memory as bytes (Buffer::low).
enum class DType : uint8_t { f32, f64, f16, bf16, i8, i16, i32, i64, u8, u16, u32, u64, boolean, whole_i8, whole_u8 };

int64_t bytes_of(DType dtype);
const char* name_of(DType dtype);  // "f32", "i64", "bool"
bool is_whole_byte(DType dtype);   // whole_i8 or whole_u8
bool is_float(DType dtype);
bool is_integer(DType dtype);  // not bool

// The type of the operands of every multiplication, and of stored results. Sums are accumulated in fp32 with all four.
enum class Precision : uint8_t { fp32, tf32, fp16, bf16 };
const char* name_of(Precision precision);

}  // namespace tamp
