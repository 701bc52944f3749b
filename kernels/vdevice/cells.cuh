// Elements of any type: loads and stores of 1, 2, 4, 8 or 16 bytes, as bits. Loads read L2, as load1 does (memory.cuh).
#pragma once

#include "kernels/shared/numbers.h"
#include "kernels/vdevice/task.cuh"

namespace rk {

template <class Cell>
RK_INLINE Cell load_cell(const Cell* p) {
#if defined(__CUDA_ARCH__)
  if constexpr (sizeof(Cell) == 16)
    return __ldcg(reinterpret_cast<const uint4*>(p));
  else if constexpr (sizeof(Cell) == 8)
    return static_cast<Cell>(__ldcg(reinterpret_cast<const unsigned long long*>(p)));
  else if constexpr (sizeof(Cell) == 4)
    return __ldcg(reinterpret_cast<const unsigned int*>(p));
  else if constexpr (sizeof(Cell) == 2)
    return __ldcg(reinterpret_cast<const unsigned short*>(p));
  else
    return __ldcg(reinterpret_cast<const unsigned char*>(p));
#else
  return *p;
#endif
}
template <class Cell>
RK_INLINE void store_cell(Cell* p, Cell value) {
  *as_global(p) = value;
}

// Bytes of an element, as a power of two.
RK_INLINE uint32_t log_bytes_of(uint32_t type) {
  switch (type) {
    case kI8:
    case kU8:
    case kBool: return 0;
    case kF16:
    case kBf16:
    case kI16:
    case kU16: return 1;
    case kF32:
    case kI32:
    case kU32: return 2;
    default: return 3;
  }
}

// Element `at` of an array of elements of type `type`.
template <class T>
RK_INLINE T load_number(const void* array, int64_t at, uint32_t type) {
  uint64_t bits = 0;
  switch (log_bytes_of(type)) {
    case 0: bits = load_cell(static_cast<const uint8_t*>(array) + at); break;
    case 1: bits = load_cell(static_cast<const uint16_t*>(array) + at); break;
    case 2: bits = load_cell(static_cast<const uint32_t*>(array) + at); break;
    default: bits = load_cell(static_cast<const uint64_t*>(array) + at); break;
  }
  return number_of_bits<T>(bits, type);
}
template <class T>
RK_INLINE void store_number(void* array, int64_t at, uint32_t type, T value) {
  const uint64_t bits = element_bits(value, type);
  switch (log_bytes_of(type)) {
    case 0: store_cell(static_cast<uint8_t*>(array) + at, static_cast<uint8_t>(bits)); break;
    case 1: store_cell(static_cast<uint16_t*>(array) + at, static_cast<uint16_t>(bits)); break;
    case 2: store_cell(static_cast<uint32_t*>(array) + at, static_cast<uint32_t>(bits)); break;
    default: store_cell(static_cast<uint64_t*>(array) + at, bits); break;
  }
}

// A nest of up to kNestRank dimensions, outermost first, that numbers the elements of an operand or of several.
// Example: in a nest of extents 2, 3, 4 element 17 is at (1, 1, 1): 17 = (1 * 3 + 1) * 4 + 1.
struct Nest {  // in tables
  uint32_t rank;
  Divisor divisors[kNestRank - 1];  // extents of dimensions 1..
};
// Calls f(dimension, coordinate) for every dimension of element `element`, innermost first.
template <class F>
RK_INLINE void for_each_coordinate(const Nest& nest, uint32_t element, F f) {
#pragma unroll 1
  for (int d = static_cast<int>(nest.rank) - 1; d > 0; --d) {
    uint32_t at;
    element = divide(element, nest.divisors[d - 1], at);
    f(d, at);
  }
  if (nest.rank > 0) f(0, element);
}

// Where element `element` of a nest lies in several operands that have strides of their own: in elements from where each begins.
// Example: const auto [to, from] = nest_offsets(args.nest, element, args.out_strides, args.in_strides).of;
template <int OPERANDS>
struct NestOffsets {
  int64_t of[OPERANDS];
};
template <class... Strides>
RK_INLINE NestOffsets<sizeof...(Strides)> nest_offsets(const Nest& nest, uint32_t element, const Strides&... strides) {
  NestOffsets<sizeof...(Strides)> offsets{};
  for_each_coordinate(nest, element, [&](int d, uint32_t at) {
    int operand = 0;
    ((offsets.of[operand++] += static_cast<int64_t>(at) * strides[d]), ...);
  });
  return offsets;
}

}  // namespace rk
