// ONNX's element types of 8 bits and less that the compiler has no type of its own for. Their numbers are held in a type that has all of
// them, integers in i8 or u8 and floats in f32, and Builder::narrow remembers which type it was: it decides to which bounds a
// QuantizeLinear saturates, and what a Cast rounds to.
#pragma once

#include <string>

#include "compiler/ir/tensor.h"

namespace tamp::frontend {

// Each is ONNX's number of the type.
enum class NarrowType : uint8_t {
  none = 0,
  e4m3fn = 17,
  e4m3fnuz = 18,
  e5m2 = 19,
  e5m2fnuz = 20,
  u4 = 21,
  i4 = 22,
  e2m1 = 23,
  e8m0 = 24,
  u2 = 25,
  i2 = 26,
};

NarrowType narrow_of_onnx(int onnx_type);  // none for all other types
int64_t bits_of(NarrowType type);
bool is_float(NarrowType type);
DType held_as(NarrowType type);
// Of integers.
float lowest_of(NarrowType type);
float highest_of(NarrowType type);

// How many bytes hold `count` numbers, which lie side by side, the lowest bits first.
int64_t packed_bytes_of(NarrowType type, int64_t count);
// The numbers as held_as says.
Bytes unpacked(NarrowType type, const Bytes& packed, int64_t count);

}  // namespace tamp::frontend
