// Element types as numbers. Every value is computed as a double or, for integers and bool, as an int64_t (u64 as its bit
// pattern), and rounded or wrapped to its element type when it is stored; so f16 and bf16 cost two functions each and no
// arithmetic of their own.
//
// Odd: a float that does not fit an integer type becomes what x86 makes of it (ONNX leaves it open, numpy's test data
// have these values); bool is stored as a byte and any non-zero byte reads as true.
#pragma once

#include <cstdint>
#include <type_traits>

#include "compiler/ir/dtype.h"
#include "compiler/support/error.h"

namespace tamp::ops {

// Types of memory that have no C++ arithmetic type.
struct Half {
  uint16_t bits = 0;
};
struct Bfloat {
  uint16_t bits = 0;
};
struct Truth {
  uint8_t byte = 0;
};

double real_of(Half x);
double real_of(Bfloat x);
Half half_of(double x);  // rounds to nearest, ties to even; beyond the range: infinity
Bfloat bfloat_of(double x);

double round_real(double x, DType to);                  // the nearest value that a float type holds
int64_t wrap_whole(int64_t x, DType to);                // the low bits, as an integer type sees them; bool: x != 0
int64_t whole_of_real(double x, DType to);              // towards zero; bool: x != 0
double real_of_whole(int64_t x, DType from, DType to);  // rounds once, straight to `to`

// Calls f with a value of the C++ type that an element occupies in memory.
decltype(auto) with_storage(DType dtype, auto&& f) {
  switch (dtype) {
    case DType::f32: return f(float{});
    case DType::f64: return f(double{});
    case DType::f16: return f(Half{});
    case DType::bf16: return f(Bfloat{});
    case DType::i8: return f(int8_t{});
    case DType::i16: return f(int16_t{});
    case DType::i32: return f(int32_t{});
    case DType::i64: return f(int64_t{});
    case DType::u8: return f(uint8_t{});
    case DType::u16: return f(uint16_t{});
    case DType::u32: return f(uint32_t{});
    case DType::u64: return f(uint64_t{});
    case DType::boolean: return f(Truth{});
    case DType::whole_i8:
    case DType::whole_u8: break;  // no constant or input has such
  }
  fail_check(__FILE__, __LINE__, "known dtype", "element type out of range");
}

// An element of memory as T: float, double, int64_t or uint64_t.
template <class T, class Stored>
T decode(Stored x) {
  if constexpr (std::is_same_v<Stored, Half> || std::is_same_v<Stored, Bfloat>) {
    return decode<T>(real_of(x));
  } else if constexpr (std::is_same_v<Stored, Truth>) {
    return static_cast<T>(x.byte != 0);
  } else if constexpr (std::is_floating_point_v<Stored> && std::is_integral_v<T>) {
    return whole_of_real(x, DType::i64);
  } else {
    return static_cast<T>(x);
  }
}

// A number as an element of memory of type `dtype`, whose C++ type is Stored.
template <class Stored, class T>
Stored encode(T x, DType dtype) {
  if constexpr (std::is_same_v<Stored, Half>) {
    return half_of(static_cast<double>(x));
  } else if constexpr (std::is_same_v<Stored, Bfloat>) {
    return bfloat_of(static_cast<double>(x));
  } else if constexpr (std::is_same_v<Stored, Truth>) {
    return Truth{static_cast<uint8_t>(x != 0)};
  } else if constexpr (std::is_floating_point_v<T> && std::is_integral_v<Stored>) {
    return static_cast<Stored>(whole_of_real(x, dtype));
  } else {
    return static_cast<Stored>(x);
  }
}

}  // namespace tamp::ops
