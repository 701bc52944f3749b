// Whole numbers in bytes, as the activations of quantised models may lie in memory (DType::whole_i8 and whole_u8 of the compiler): -128 to
// 127 in Signed8, 0 to 255 in Unsigned8. The same functions as for 16 bits (values.cuh); four values are 4 aligned bytes. A tensor of
// Unsigned8 may begin at another number than 0, which its body adds behind a load and subtracts in front of a store (Buffer::low).
#pragma once

#include "kernels/vdevice/mma.cuh"
#include "kernels/vdevice/values.cuh"

namespace rk {

// (Not structs of a byte: NVCC 13.0 makes calls of those pointers that do not fit, and stops at its own "Broken function".)
enum class Signed8 : uint8_t {};    // in tables
enum class Unsigned8 : uint8_t {};  // in tables

// Beside 2^23 floats lie 1 apart, so their lowest byte is that of a whole number, beside 1.5 * 2^23 also of a negative one.
inline constexpr uint32_t kByteBase = 0x4b000000u;  // the bits of 2^23
inline constexpr float kByteFloor = 8388608.0f, kByteMiddle = 12582912.0f;

// Byte `at` of a word as a number from 0 to 255.
RK_INLINE float float_of_byte(uint32_t word, int at) {
#if defined(__CUDA_ARCH__)
  return float_of(__byte_perm(word, kByteBase, 0x7650u | static_cast<uint32_t>(at))) - kByteFloor;
#else
  return float_of(kByteBase | (word >> 8 * at & 0xffu)) - kByteFloor;
#endif
}
template <class Value>
RK_INLINE float4 floats_of_bytes(uint32_t four) {
  constexpr bool kSigned = std::is_same_v<Value, Signed8>;
  constexpr float kLow = kSigned ? 128.0f : 0.0f;
  if constexpr (kSigned) four ^= 0x80808080u;
  const float4 v = {float_of_byte(four, 0), float_of_byte(four, 1), float_of_byte(four, 2), float_of_byte(four, 3)};
  return {v.x - kLow, v.y - kLow, v.z - kLow, v.w - kLow};
}
// Of four whole numbers, each of which a byte holds.
RK_INLINE uint32_t bytes_of(const float4& v) {
  const uint32_t x = bits_of(v.x + kByteMiddle), y = bits_of(v.y + kByteMiddle), z = bits_of(v.z + kByteMiddle),
                 w = bits_of(v.w + kByteMiddle);
#if defined(__CUDA_ARCH__)
  return __byte_perm(__byte_perm(x, y, 0x0040u), __byte_perm(z, w, 0x0040u), 0x5410u);
#else
  return (x & 0xffu) | (y & 0xffu) << 8 | (z & 0xffu) << 16 | w << 24;
#endif
}

// x less y, byte by byte, modulo 256.
RK_INLINE uint32_t less_bytes(uint32_t x, uint32_t y) {
  constexpr uint32_t kTops = 0x80808080u;
  return ((x | kTops) - (y & ~kTops)) ^ ((x ^ ~y) & kTops);
}

template <class Value>
struct RawBytes4 {
  uint32_t four;
  RK_INLINE float4 floats() const { return floats_of_bytes<Value>(four); }
  RK_INLINE void clear_now() {
    four = 0;
    known_now(four);
  }
};
template <>
struct Raw4<Signed8> : RawBytes4<Signed8> {};
template <>
struct Raw4<Unsigned8> : RawBytes4<Unsigned8> {};

RK_INLINE uint32_t load_shared_byte(const void* base, int offset) {
#if defined(__CUDA_ARCH__)
  uint32_t v;
  asm volatile("ld.shared.u8 %0, [%1];" : "=r"(v) : "r"(smem_address(base) + static_cast<uint32_t>(offset)));
  return v;
#else
  return static_cast<const uint8_t*>(base)[offset];
#endif
}
RK_INLINE uint32_t load_bytes4(const void* p) {
#if defined(__CUDA_ARCH__)
  return __ldcg(static_cast<const uint32_t*>(p));
#else
  return *static_cast<const uint32_t*>(p);
#endif
}
template <class Value>
RK_INLINE float load_byte(const Value* p) {
#if defined(__CUDA_ARCH__)
  const uint32_t byte = __ldcg(reinterpret_cast<const unsigned char*>(p));
#else
  const auto byte = static_cast<uint32_t>(*p);
#endif
  if constexpr (std::is_same_v<Value, Signed8>) return static_cast<float>(static_cast<int8_t>(byte));
  return static_cast<float>(byte);
}
template <>
RK_INLINE Raw4<Signed8> load_raw4(const Signed8* p) {
  return {{load_bytes4(p)}};
}
template <>
RK_INLINE Raw4<Unsigned8> load_raw4(const Unsigned8* p) {
  return {{load_bytes4(p)}};
}
RK_INLINE float load1(const Signed8* p) { return load_byte(p); }
RK_INLINE float load1(const Unsigned8* p) { return load_byte(p); }
RK_INLINE float4 load4(const Signed8* p) { return load_raw4(p).floats(); }
RK_INLINE float4 load4(const Unsigned8* p) { return load_raw4(p).floats(); }
RK_INLINE float load1_near(const Signed8* p) { return static_cast<float>(static_cast<int8_t>(*p)); }
RK_INLINE float load1_near(const Unsigned8* p) { return static_cast<float>(static_cast<uint8_t>(*p)); }
RK_INLINE float4 load4_near(const Signed8* p) { return floats_of_bytes<Signed8>(*reinterpret_cast<const uint32_t*>(p)); }
RK_INLINE float4 load4_near(const Unsigned8* p) { return floats_of_bytes<Unsigned8>(*reinterpret_cast<const uint32_t*>(p)); }
RK_INLINE void store1(Signed8* p, float v) { *as_global(p) = static_cast<Signed8>(bits_of(v + kByteMiddle) & 0xffu); }
RK_INLINE void store1(Unsigned8* p, float v) { *as_global(p) = static_cast<Unsigned8>(bits_of(v + kByteMiddle) & 0xffu); }
RK_INLINE void store4(Signed8* p, const float4& v) { *as_global(reinterpret_cast<uint32_t*>(p)) = bytes_of(v); }
RK_INLINE void store4(Unsigned8* p, const float4& v) { *as_global(reinterpret_cast<uint32_t*>(p)) = bytes_of(v); }

}  // namespace rk
