// pool_walk of whole numbers in bytes (pool_bytes.cuh). An item has 8 channels, as of 16 bits: 16 would not fit in the registers.
#pragma once

#include "kernels/pool/pool_walk.cuh"
#include "kernels/vdevice/bytes.cuh"

namespace rk {

template <class Value>
struct PoolByteCell {
  static constexpr int kChannels = 8;
  uint2 words;

  RK_INLINE void clear() { words = uint2{0, 0}; }
  RK_INLINE void load(const Value* p) { words = *as_global(reinterpret_cast<const uint2*>(p)); }  // may hit L1
  RK_INLINE void floats(float (&v)[kChannels]) const {
    const float4 low = floats_of_bytes<Value>(words.x), high = floats_of_bytes<Value>(words.y);
    v[0] = low.x, v[1] = low.y, v[2] = low.z, v[3] = low.w;
    v[4] = high.x, v[5] = high.y, v[6] = high.z, v[7] = high.w;
  }
  RK_INLINE static void store(Value* p, const float (&v)[kChannels]) {
    *as_global(reinterpret_cast<uint2*>(p)) = uint2{bytes_of(float4{v[0], v[1], v[2], v[3]}), bytes_of(float4{v[4], v[5], v[6], v[7]})};
  }
};
template <>
struct PoolCell<Signed8> : PoolByteCell<Signed8> {};
template <>
struct PoolCell<Unsigned8> : PoolByteCell<Unsigned8> {};

}  // namespace rk
