// Stand-in, part 1: CUDA's vector types and the built-in functions that need no other thread.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>

struct uint3 {
  unsigned x, y, z;
};
struct dim3 {
  unsigned x, y, z;
  constexpr dim3(unsigned vx = 1, unsigned vy = 1, unsigned vz = 1) : x(vx), y(vy), z(vz) {}
};

#define TAMP_VECTOR_TYPE(T, name, bytes2, bytes4)            \
  struct alignas(bytes2) name##2 {                           \
    T x, y;                                                  \
  };                                                         \
  struct alignas(bytes4) name##4 {                           \
    T x, y, z, w;                                            \
  };                                                         \
  inline name##2 make_##name##2(T x, T y) { return {x, y}; } \
  inline name##4 make_##name##4(T x, T y, T z, T w) { return {x, y, z, w}; }
TAMP_VECTOR_TYPE(float, float, 8, 16)
TAMP_VECTOR_TYPE(int, int, 8, 16)
TAMP_VECTOR_TYPE(unsigned, uint, 8, 16)
#undef TAMP_VECTOR_TYPE

namespace cuda_on_cpu {

template <class To, class From>
inline To bits_as(From v) {
  static_assert(sizeof(To) == sizeof(From));
  To r;
  std::memcpy(&r, &v, sizeof r);
  return r;
}
inline uint32_t bits_of(float v) { return bits_as<uint32_t>(v); }
inline float float_of(uint32_t v) { return bits_as<float>(v); }

}  // namespace cuda_on_cpu

inline unsigned __float_as_uint(float v) { return cuda_on_cpu::bits_as<unsigned>(v); }
inline int __float_as_int(float v) { return cuda_on_cpu::bits_as<int>(v); }
inline float __uint_as_float(unsigned v) { return cuda_on_cpu::bits_as<float>(v); }
inline float __int_as_float(int v) { return cuda_on_cpu::bits_as<float>(v); }

inline unsigned __umulhi(unsigned a, unsigned b) { return static_cast<unsigned>((static_cast<uint64_t>(a) * b) >> 32); }
inline int __mulhi(int a, int b) { return static_cast<int>((static_cast<int64_t>(a) * b) >> 32); }
inline int __popc(unsigned v) { return __builtin_popcount(v); }
inline int __ffs(int v) { return __builtin_ffs(v); }
inline int __clz(int v) { return v == 0 ? 32 : __builtin_clz(static_cast<unsigned>(v)); }

// Exact here, approximate on a GPU.
inline float __expf(float x) { return expf(x); }
inline float __logf(float x) { return logf(x); }
inline float __fdividef(float a, float b) { return a / b; }
inline float __frcp_rn(float x) { return 1.0f / x; }
inline float __fmaf_rn(float a, float b, float c) { return fmaf(a, b, c); }
inline float rsqrtf(float x) { return 1.0f / sqrtf(x); }

#define TAMP_MIN_MAX(T)                            \
  inline T min(T a, T b) { return b < a ? b : a; } \
  inline T max(T a, T b) { return a < b ? b : a; }
TAMP_MIN_MAX(int)
TAMP_MIN_MAX(unsigned)
TAMP_MIN_MAX(long)
TAMP_MIN_MAX(unsigned long)
TAMP_MIN_MAX(long long)
TAMP_MIN_MAX(unsigned long long)
#undef TAMP_MIN_MAX
inline float min(float a, float b) { return fminf(a, b); }
inline float max(float a, float b) { return fmaxf(a, b); }

template <class T>
inline T __ldg(const T* p) {
  return *p;
}
template <class T>
inline T __ldcg(const T* p) {
  return *p;
}
template <class T>
inline void __stcg(T* p, T v) {
  *p = v;
}
