// Activations as they lie in memory: fp32, or 16 bits (Half: fp16, Bfloat: bf16), which bodies read and write as floats. Arithmetic is
// fp32 whatever the memory holds. load1/load4 and store1/store4 are as in memory.cuh, here for 16-bit values: four are 8 aligned bytes.
#pragma once

#include <type_traits>

#include "kernels/vdevice/half.cuh"
#include "kernels/vdevice/memory.cuh"
#include "kernels/vdevice/task.cuh"

namespace rk {

RK_INLINE float sum_of4(const float4& v) { return (v.x + v.y) + (v.z + v.w); }
RK_INLINE float sum_of8(const float (&v)[8]) { return ((v[0] + v[1]) + (v[2] + v[3])) + ((v[4] + v[5]) + (v[6] + v[7])); }

struct Half {  // in tables
  uint16_t bits;
};
struct Bfloat {  // in tables
  uint16_t bits;
};

// Two values as a word, the first in the lower half.
template <class Value>
RK_INLINE float2 floats_of(uint32_t pair) {
  static_assert(sizeof(Value) == 2);
  if constexpr (std::is_same_v<Value, Half>)
    return floats_of_halves(pair);
  else
    return floats_of_bfloats(pair);
}
template <class Value>
RK_INLINE uint32_t pair_of(float low, float high) {
  static_assert(sizeof(Value) == 2);
  if constexpr (std::is_same_v<Value, Half>)
    return halves_of(low, high);
  else
    return bfloats_of(low, high);
}

// Four values, 8 bytes, not yet widened to floats.
template <class Value>
RK_INLINE uint2 load_pairs2(const Value* p) {
#if defined(__CUDA_ARCH__)
  return __ldcg(reinterpret_cast<const uint2*>(p));
#else
  return *reinterpret_cast<const uint2*>(p);
#endif
}

// Four values as they are in memory. A load into Raw4 can still be under way while other code runs; floats() widens and so waits for it.
template <class Value>
struct Raw4 {
  uint2 pairs;
  RK_INLINE float4 floats() const {
    const float2 low = floats_of<Value>(pairs.x), high = floats_of<Value>(pairs.y);
    return float4{low.x, low.y, high.x, high.y};
  }
  RK_INLINE void clear_now() {
    pairs = {0, 0};
    known_now(pairs.x);
    known_now(pairs.y);
  }
};
template <>
struct Raw4<float> {
  float4 values;
  RK_INLINE float4 floats() const { return values; }
  RK_INLINE void clear_now() {
    values = {0.0f, 0.0f, 0.0f, 0.0f};
    known_now(values.x);
    known_now(values.y);
    known_now(values.z);
    known_now(values.w);
  }
};
template <class Value>
RK_INLINE Raw4<Value> load_raw4(const Value* p) {
  if constexpr (std::is_same_v<Value, float>)
    return {load4(p)};
  else
    return {load_pairs2(p)};
}

// The same for two values: 4 aligned bytes of 16 bits each, 8 of floats.
template <class Value>
struct Raw2 {
  uint32_t pair;
  RK_INLINE float2 floats() const { return floats_of<Value>(pair); }
};
template <>
struct Raw2<float> {
  float2 values;
  RK_INLINE float2 floats() const { return values; }
};
template <class Value>
RK_INLINE Raw2<Value> load_raw2(const Value* p) {
#if defined(__CUDA_ARCH__)
  if constexpr (std::is_same_v<Value, float>)
    return {__ldcg(reinterpret_cast<const float2*>(p))};
  else
    return {__ldcg(reinterpret_cast<const uint32_t*>(p))};
#else
  return *reinterpret_cast<const Raw2<Value>*>(p);
#endif
}
// From shared memory.
template <class Value>
RK_INLINE Raw2<Value> load_shared_raw2(const void* base, int offset) {
  if constexpr (std::is_same_v<Value, float>)
    return {load_shared2(base, offset)};
  else
    return {load_shared_word(base, offset)};
}
template <class Value>
RK_INLINE void store2(Value* p, float2 v) {
  if constexpr (std::is_same_v<Value, float>)
    *as_global(reinterpret_cast<float2*>(p)) = v;
  else
    *as_global(reinterpret_cast<uint32_t*>(p)) = pair_of<Value>(v.x, v.y);
}

// The same for eight values: 16 aligned bytes of 16 bits each, 32 of floats. Bodies that make many turns load these: with few loads of 8
// bytes under way a vEU gets a quarter of L2's bandwidth.
template <class Value>
struct Raw8 {
  uint4 pairs;
  RK_INLINE void floats(float (&v)[8]) const {
    const float2 p[4] = {floats_of<Value>(pairs.x), floats_of<Value>(pairs.y), floats_of<Value>(pairs.z), floats_of<Value>(pairs.w)};
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      v[2 * i] = p[i].x;
      v[2 * i + 1] = p[i].y;
    }
  }
};
template <>
struct Raw8<float> {
  float4 low, high;
  RK_INLINE void floats(float (&v)[8]) const {
    v[0] = low.x, v[1] = low.y, v[2] = low.z, v[3] = low.w;
    v[4] = high.x, v[5] = high.y, v[6] = high.z, v[7] = high.w;
  }
};
template <class Value>
RK_INLINE uint4 load_pairs4(const Value* p) {
#if defined(__CUDA_ARCH__)
  return __ldcg(reinterpret_cast<const uint4*>(p));
#else
  return *reinterpret_cast<const uint4*>(p);
#endif
}
template <class Value>
RK_INLINE Raw8<Value> load_raw8(const Value* p) {
  if constexpr (std::is_same_v<Value, float>)
    return {load4(p), load4(p + 4)};
  else
    return {load_pairs4(p)};
}
template <class Value>
RK_INLINE void store8(Value* p, const float (&v)[8]) {
  if constexpr (std::is_same_v<Value, float>) {
    store4(p, float4{v[0], v[1], v[2], v[3]});
    store4(p + 4, float4{v[4], v[5], v[6], v[7]});
  } else {
    *as_global(reinterpret_cast<uint4*>(p)) =
        uint4{pair_of<Value>(v[0], v[1]), pair_of<Value>(v[2], v[3]), pair_of<Value>(v[4], v[5]), pair_of<Value>(v[6], v[7])};
  }
}

template <class Value>
RK_INLINE float load_narrow1(const Value* p) {
#if defined(__CUDA_ARCH__)
  return floats_of<Value>(__ldcg(reinterpret_cast<const uint16_t*>(p))).x;
#else
  return floats_of<Value>(p->bits).x;
#endif
}
template <class Value>
RK_INLINE float4 load_narrow4(const Value* p) {
  return load_raw4(p).floats();
}
template <class Value>
RK_INLINE void store_narrow1(Value* p, float v) {
  as_global(p)->bits = static_cast<uint16_t>(pair_of<Value>(v, 0.0f));
}
template <class Value>
RK_INLINE void store_narrow4(Value* p, float4 v) {
  *as_global(reinterpret_cast<uint2*>(p)) = uint2{pair_of<Value>(v.x, v.y), pair_of<Value>(v.z, v.w)};
}

template <class Value>
RK_INLINE float4 load_narrow4_near(const Value* p) {
  return Raw4<Value>{*reinterpret_cast<const uint2*>(p)}.floats();
}

RK_INLINE float load1(const Half* p) { return load_narrow1(p); }
RK_INLINE float load1(const Bfloat* p) { return load_narrow1(p); }
RK_INLINE float4 load4(const Half* p) { return load_narrow4(p); }
RK_INLINE float4 load4(const Bfloat* p) { return load_narrow4(p); }
RK_INLINE float load1_near(const Half* p) { return floats_of<Half>(p->bits).x; }
RK_INLINE float load1_near(const Bfloat* p) { return floats_of<Bfloat>(p->bits).x; }
RK_INLINE float4 load4_near(const Half* p) { return load_narrow4_near(p); }
RK_INLINE float4 load4_near(const Bfloat* p) { return load_narrow4_near(p); }
RK_INLINE void store1(Half* p, float v) { store_narrow1(p, v); }
RK_INLINE void store1(Bfloat* p, float v) { store_narrow1(p, v); }
RK_INLINE void store4(Half* p, float4 v) { store_narrow4(p, v); }
RK_INLINE void store4(Bfloat* p, float4 v) { store_narrow4(p, v); }

// What a store keeps of the value.
template <class Value>
RK_INLINE float rounded_to(float v) {
  if constexpr (std::is_same_v<Value, float>)
    return v;
  else
    return floats_of<Value>(pair_of<Value>(v, 0.0f)).x;
}

// Where the values of a tensor begin; null for none.
template <class Value, class Veu>
RK_INLINE Value* values_at(const Task<Veu>& task, const TensorRef& ref) {
  return reinterpret_cast<Value*>(task.address(ref));
}

}  // namespace rk
