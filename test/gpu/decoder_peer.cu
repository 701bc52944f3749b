// One token of a decoder by hand, as the peer of test/gpu/decoder_steps.py: what somebody writes who knows the model, the GPU, and no compiler.
//
// Five kernels a layer: q, k and v as one product behind its norm; rotation, attention and the new row of the caches; the product behind it
// onto the residual row; gate and up as one product behind its norm, whose rows alternate, with the gate; the product down. Each begins
// before the one before it has ended (programmatic dependent launch): it asks for its first weights, then waits. Weights have 16 bits, sums
// and the residual row are fp32.
#include <cooperative_groups.h>
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <algorithm>
#include <cstddef>

namespace {

namespace cg = cooperative_groups;

constexpr int kThreads = 256, kWarps = kThreads / 32, kEight = 8;  // an access has eight elements of 16 bits
constexpr int kSplits = 8;                                         // thread blocks that share the places of a head of keys, a cluster

// --- the device --------------------------------------------------------------------------------------------------------

__device__ void wait_for_kernel_before() { asm volatile("griddepcontrol.wait;" ::: "memory"); }
__device__ void let_next_kernel_begin() { asm volatile("griddepcontrol.launch_dependents;" ::: "memory"); }

/// Sixteen bytes that nobody writes while the kernel runs, and that are read once.
__device__ uint4 load_weights(const uint4* p) {
  uint4 v;
  asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];" : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "l"(p));
  return v;
}

/// Asks for `bytes` (a multiple of 16) to be brought into L2.
__device__ void prefetch(const void* from, size_t bytes) {
  constexpr size_t kPiece = 16384;
  for (size_t at = 0; at < bytes; at += kPiece) {
    const unsigned size = static_cast<unsigned>(bytes - at < kPiece ? bytes - at : kPiece);
    asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(static_cast<const char*>(from) + at), "r"(size) : "memory");
  }
}

__device__ float2 floats_of(unsigned pair, __half) { return __half22float2(*reinterpret_cast<const __half2*>(&pair)); }
__device__ float2 floats_of(unsigned pair, __nv_bfloat16) { return {__uint_as_float(pair << 16), __uint_as_float(pair & 0xffff0000u)}; }

template <typename T>
__device__ void unpack(uint4 from, float (&to)[kEight]) {
  const unsigned pairs[4] = {from.x, from.y, from.z, from.w};
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const float2 two = floats_of(pairs[i], T{});
    to[2 * i] = two.x, to[2 * i + 1] = two.y;
  }
}

template <typename T>
__device__ T rounded(float x) {
  return static_cast<T>(x);
}

template <int kLanes>
__device__ float sum_over_lanes(float x) {
#pragma unroll
  for (int away = kLanes / 2; away > 0; away /= 2) x += __shfl_xor_sync(0xffffffffu, x, away);
  return x;
}

// --- products of a row and a matrix ------------------------------------------------------------------------------------

enum class Result { kRow, kAdded, kGated };  // a row of fp32; added to the residual row; the gate of two rows, in 16 bits

struct Product {
  const void* weights;  // [rows, width]
  int rows, width;
  const float* residual;  // what is normalised and multiplied, where there are `factors`
  const void* in;         // else a row of 16 bits; with factors: the first row of all, which also becomes the residual row
  const void* factors;    // of the norm
  float epsilon;
  float* row;   // of kRow and kAdded
  void* gated;  // of kGated
  float* residual_to_begin;
  size_t ahead;  // bytes of a thread block that are asked for before the wait, besides those in registers
};

/// Rows of a thread block lie one after the other. Lanes take kFours accesses each of a piece of a row: kLanes * kFours * 8 elements; a
/// warp 32 / kLanes pieces at a time. A norm is a factor of the whole row, applied at the end.
template <typename T, Result kResult, bool kNorm, int kLanes, int kFours>
__global__ void __launch_bounds__(kThreads, 2) multiply(const Product p) {
  constexpr int kPiece = kLanes * kFours, kAtATime = 32 / kLanes, kStep = kResult == Result::kGated ? 2 : 1;
  extern __shared__ float4 shared[];
  __shared__ float squares[kWarps];
  const int fours = p.width / kEight, lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  float4 *low = shared, *high = shared + fours;  // halves of each access lie apart, so that lanes meet no bank twice
  float* sums = reinterpret_cast<float*>(shared + 2 * fours);
  const long long steps = p.rows / kStep;
  const int first = static_cast<int>(steps * blockIdx.x / gridDim.x) * kStep,
            last = static_cast<int>(steps * (blockIdx.x + 1) / gridDim.x) * kStep;
  const int pieces_of_row = fours / kPiece, pieces = (last - first) * pieces_of_row;
  const uint4* weights = static_cast<const uint4*>(p.weights) + static_cast<size_t>(first) * fours;

  const auto load = [&](uint4(&to)[kFours], int at) {
    const int piece = at + lane / kLanes;
    if (piece >= pieces) return;
#pragma unroll
    for (int i = 0; i < kFours; ++i) to[i] = load_weights(weights + static_cast<size_t>(piece) * kPiece + i * kLanes + lane % kLanes);
  };
  const auto multiply_piece = [&](const uint4(&with)[kFours], int at) {
    const int piece = at + lane / kLanes, begin = piece % pieces_of_row * kPiece + lane % kLanes;
    float sum[4] = {};
    if (piece < pieces) {
#pragma unroll
      for (int i = 0; i < kFours; ++i) {
        float w[kEight];
        unpack<T>(with[i], w);
        const float4 a = low[begin + i * kLanes], b = high[begin + i * kLanes];
        sum[0] += w[0] * a.x + w[4] * b.x, sum[1] += w[1] * a.y + w[5] * b.y;
        sum[2] += w[2] * a.z + w[6] * b.z, sum[3] += w[3] * a.w + w[7] * b.w;
      }
    }
    const float all = sum_over_lanes<kLanes>((sum[0] + sum[1]) + (sum[2] + sum[3]));
    if (lane % kLanes == 0 && piece < pieces) sums[piece] = all;
  };

  constexpr int kStride = kWarps * kAtATime;
  uint4 some[kFours], others[kFours];
  load(some, warp * kAtATime), load(others, warp * kAtATime + kStride);
  if (threadIdx.x == 0) prefetch(weights, min(p.ahead, static_cast<size_t>(last - first) * p.width * sizeof(T)));
  if constexpr (kNorm)
    for (int i = threadIdx.x; i < fours; i += kThreads) {
      float w[kEight];
      unpack<T>(static_cast<const uint4*>(p.factors)[i], w);
      low[i] = {w[0], w[1], w[2], w[3]}, high[i] = {w[4], w[5], w[6], w[7]};
    }
  wait_for_kernel_before();
  let_next_kernel_begin();
  float square = 0;
  for (int i = threadIdx.x; i < fours; i += kThreads) {
    float x[kEight];
    if (p.in) {
      unpack<T>(static_cast<const uint4*>(p.in)[i], x);
    } else {
      const float4 a = reinterpret_cast<const float4*>(p.residual)[2 * i], b = reinterpret_cast<const float4*>(p.residual)[2 * i + 1];
      x[0] = a.x, x[1] = a.y, x[2] = a.z, x[3] = a.w, x[4] = b.x, x[5] = b.y, x[6] = b.z, x[7] = b.w;
    }
    if constexpr (kNorm) {
      if (p.residual_to_begin && blockIdx.x == 0)
        for (int k = 0; k < kEight; ++k) p.residual_to_begin[i * kEight + k] = x[k];
      const float4 f = low[i], g = high[i];
      const float factors[kEight] = {f.x, f.y, f.z, f.w, g.x, g.y, g.z, g.w};
#pragma unroll
      for (int k = 0; k < kEight; ++k) square += x[k] * x[k], x[k] *= factors[k];
    }
    low[i] = {x[0], x[1], x[2], x[3]}, high[i] = {x[4], x[5], x[6], x[7]};
  }
  if constexpr (kNorm) {
    square = sum_over_lanes<32>(square);
    if (lane == 0) squares[warp] = square;
  }
  __syncthreads();
  for (int at = warp * kAtATime; at < pieces;
       at += 2 * kStride) {  // two sets of registers: one is on its way while the other is multiplied
    multiply_piece(some, at);
    load(some, at + 2 * kStride);
    if (at + kStride >= pieces) break;
    multiply_piece(others, at + kStride);
    load(others, at + 3 * kStride);
  }
  __syncthreads();

  float factor = 1;
  if constexpr (kNorm) {
    float all = 0;
    for (int i = 0; i < kWarps; ++i) all += squares[i];
    factor = rsqrtf(all / static_cast<float>(p.width) + p.epsilon);
  }
  const auto sum_of_row = [&](int row) {
    float sum = 0;
    for (int i = 0; i < pieces_of_row; ++i) sum += sums[row * pieces_of_row + i];
    return sum * factor;
  };
  for (int i = threadIdx.x; i < (last - first) / kStep; i += kThreads) {
    if constexpr (kResult == Result::kRow) p.row[first + i] = sum_of_row(i);
    if constexpr (kResult == Result::kAdded) p.row[first + i] += sum_of_row(i);
    if constexpr (kResult == Result::kGated) {
      const float gate = sum_of_row(2 * i), up = sum_of_row(2 * i + 1);
      static_cast<T*>(p.gated)[first / 2 + i] = rounded<T>(gate / (1 + __expf(-gate)) * up);
    }
  }
}

// --- attention ---------------------------------------------------------------------------------------------------------

struct Attention {
  const float* row;  // q, k and v of the token
  const void *q_factors, *k_factors;
  float epsilon;
  const void *cos, *sin;
  void *keys, *values;  // [heads of keys, places, size]
  const int* position;
  int kv, places;
  void* out;
};

/// Maximum (of base-2 scores), sum and weighted values of some places.
template <int kCount>
struct Partial {
  float most = -1e30f, sum = 0, values[kCount] = {};

  __device__ void add(float score, const float (&v)[kCount]) {
    const float now = fmaxf(most, score), before = exp2f(most - now), share = exp2f(score - now);
    most = now, sum = sum * before + share;
#pragma unroll
    for (int i = 0; i < kCount; ++i) values[i] = values[i] * before + share * v[i];
  }
  __device__ void add_from_lane(int away) {
    const float other = __shfl_xor_sync(0xffffffffu, most, away), now = fmaxf(most, other), before = exp2f(most - now),
                share = exp2f(other - now);
    most = now, sum = sum * before + __shfl_xor_sync(0xffffffffu, sum, away) * share;
#pragma unroll
    for (int i = 0; i < kCount; ++i) values[i] = values[i] * before + __shfl_xor_sync(0xffffffffu, values[i], away) * share;
  }
};

/// A cluster for each head of keys; its queries are kHeads heads. The places are shared by the cluster's thread blocks, those of a block by
/// groups of lanes: a group reads a row.
template <typename T, int kSize, int kHeads>
__global__ void __launch_bounds__(kThreads) attend(const Attention a) {
  constexpr int kLanes = kSize / kEight, kGroups = kThreads / kLanes, kRows = 2;  // rows that a group has on their way
  static_assert(kHeads + 2 <= kWarps);
  __shared__ float rows[kHeads + 1][kSize];
  __shared__ alignas(16) T fresh[2][kSize];
  __shared__ float most[kWarps][kHeads], sum[kWarps][kHeads], values[kWarps][kHeads][kSize];
  __shared__ float block_most[kHeads], block_sum[kHeads], block_values[kHeads * kSize];
  const cg::cluster_group cluster = cg::this_cluster();
  const int rank = blockIdx.x % kSplits, head = blockIdx.x / kSplits, lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int place = *a.position, share = (place + kSplits) / kSplits, first = rank * share, last = min(place + 1, first + share);
  T *keys = static_cast<T*>(a.keys) + static_cast<size_t>(head) * a.places * kSize,
    *new_values = static_cast<T*>(a.values) + static_cast<size_t>(head) * a.places * kSize;
  if (threadIdx.x == 0 && first < last) {
    prefetch(keys + static_cast<size_t>(first) * kSize, static_cast<size_t>(last - first) * kSize * sizeof(T));
    prefetch(new_values + static_cast<size_t>(first) * kSize, static_cast<size_t>(last - first) * kSize * sizeof(T));
  }
  wait_for_kernel_before();
  let_next_kernel_begin();

  const bool has_place = first <= place && place < last;
  if (warp <= kHeads) {  // the queries, and the new key
    const float* from = a.row + (warp < kHeads ? head * kHeads + warp : a.kv * kHeads + head) * kSize;
    const T* factors = static_cast<const T*>(warp < kHeads ? a.q_factors : a.k_factors);
    float x[kSize / 32], square = 0;
#pragma unroll
    for (int i = 0; i < kSize / 32; ++i) x[i] = from[i * 32 + lane], square += x[i] * x[i];
    const float factor = factors ? rsqrtf(sum_over_lanes<32>(square) / kSize + a.epsilon) : 1;
#pragma unroll
    for (int i = 0; i < kSize / 32; ++i)
      rows[warp][i * 32 + lane] = factors ? x[i] * factor * static_cast<float>(factors[i * 32 + lane]) : x[i];
    __syncwarp();
    const float scale = warp < kHeads ? rsqrtf(kSize) * 1.44269504f : 1;
    for (int i = lane; i < kSize / 2; i += 32) {
      const float low = rows[warp][i], high = rows[warp][i + kSize / 2], c = static_cast<float>(static_cast<const T*>(a.cos)[i]),
                  s = static_cast<float>(static_cast<const T*>(a.sin)[i]);
      const float turned[2] = {(low * c - high * s) * scale, (high * c + low * s) * scale};
      for (int half = 0; half < 2; ++half) {
        const int at = i + half * (kSize / 2);
        rows[warp][at] = turned[half];
        if (warp == kHeads) fresh[0][at] = rounded<T>(turned[half]);
        if (warp == kHeads && has_place) keys[static_cast<size_t>(place) * kSize + at] = rounded<T>(turned[half]);
      }
    }
  } else if (warp == kHeads + 1) {
    for (int i = lane; i < kSize; i += 32) {
      fresh[1][i] = rounded<T>(a.row[(a.kv * (kHeads + 1) + head) * kSize + i]);
      if (has_place) new_values[static_cast<size_t>(place) * kSize + i] = fresh[1][i];
    }
  }
  __syncthreads();

  const int part = threadIdx.x % kLanes, group = threadIdx.x / kLanes;
  float q[kHeads][kEight];
#pragma unroll
  for (int h = 0; h < kHeads; ++h)
#pragma unroll
    for (int i = 0; i < kEight; ++i) q[h][i] = rows[h][part * kEight + i];
  Partial<kEight> made[kHeads];
  const auto row_of = [&](const T* all, int which, int at) {
    return at == place ? reinterpret_cast<const uint4*>(fresh[which])[part]
                       : reinterpret_cast<const uint4*>(all + static_cast<size_t>(at) * kSize)[part];
  };
  for (int from = first; from < last; from += kGroups * kRows) {
    uint4 k[kRows] = {}, v[kRows] = {};
#pragma unroll
    for (int r = 0; r < kRows; ++r)
      if (const int at = from + r * kGroups + group; at < last) k[r] = row_of(keys, 0, at), v[r] = row_of(new_values, 1, at);
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      float key[kEight], value[kEight];
      unpack<T>(k[r], key), unpack<T>(v[r], value);
#pragma unroll
      for (int h = 0; h < kHeads; ++h) {
        float score = 0;
#pragma unroll
        for (int i = 0; i < kEight; ++i) score += q[h][i] * key[i];
        score = sum_over_lanes<kLanes>(score);
        if (from + r * kGroups + group < last) made[h].add(score, value);
      }
    }
  }
#pragma unroll
  for (int h = 0; h < kHeads; ++h) {
#pragma unroll
    for (int away = kLanes; away < 32; away *= 2) made[h].add_from_lane(away);
    if (lane < kLanes) {
      most[warp][h] = made[h].most, sum[warp][h] = made[h].sum;
#pragma unroll
      for (int i = 0; i < kEight; ++i) values[warp][h][part * kEight + i] = made[h].values[i];
    }
  }
  __syncthreads();
  for (int i = threadIdx.x; i < kHeads * kSize; i += kThreads) {
    const int h = i / kSize;
    float largest = -1e30f, total = 0, value = 0;
    for (int w = 0; w < kWarps; ++w) largest = fmaxf(largest, most[w][h]);
    for (int w = 0; w < kWarps; ++w)
      total += sum[w][h] * exp2f(most[w][h] - largest), value += values[w][h][i % kSize] * exp2f(most[w][h] - largest);
    block_values[i] = value;
    if (i % kSize == 0) block_most[h] = largest, block_sum[h] = total;
  }
  cluster.sync();
  constexpr int kOwn = kHeads * kSize / kSplits;  // each block writes a part of the result
  if (threadIdx.x < kOwn) {
    const int i = rank * kOwn + threadIdx.x, h = i / kSize;
    float largest = -1e30f, total = 0, value = 0;
    for (int r = 0; r < kSplits; ++r) largest = fmaxf(largest, cluster.map_shared_rank(block_most, r)[h]);
    for (int r = 0; r < kSplits; ++r) {
      const float weight = exp2f(cluster.map_shared_rank(block_most, r)[h] - largest);
      total += cluster.map_shared_rank(block_sum, r)[h] * weight, value += cluster.map_shared_rank(block_values, r)[i] * weight;
    }
    static_cast<T*>(a.out)[head * kHeads * kSize + i] = rounded<T>(value / total);
  }
  cluster.sync();  // nobody leaves while others read
}

// --- the host ----------------------------------------------------------------------------------------------------------

struct Setting {
  int blocks, blocks_of_scores;  // thread blocks a multiprocessor
  int kilobytes_ahead;           // of a thread block's weights
  int programmatic;
};

cudaError_t launch(const void* kernel, int blocks, int cluster, size_t shared, const Setting& setting, cudaStream_t stream,
                   void** arguments) {
  cudaLaunchAttribute attributes[2] = {};
  attributes[0].id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attributes[0].val.programmaticStreamSerializationAllowed = setting.programmatic;
  attributes[1].id = cudaLaunchAttributeClusterDimension;
  attributes[1].val.clusterDim = {static_cast<unsigned>(cluster), 1, 1};
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(blocks), config.blockDim = dim3(kThreads), config.dynamicSmemBytes = shared, config.stream = stream;
  config.attrs = attributes, config.numAttrs = cluster > 1 ? 2 : 1;
  return cudaLaunchKernelExC(&config, kernel, arguments);
}

template <typename T, Result kResult, bool kNorm>
const void* product_for(int width) {
  if (width % 2048 == 0) return reinterpret_cast<const void*>(&multiply<T, kResult, kNorm, 32, 8>);
  if (width % 1536 == 0) return reinterpret_cast<const void*>(&multiply<T, kResult, kNorm, 32, 6>);
  if (width % 1024 == 0) return reinterpret_cast<const void*>(&multiply<T, kResult, kNorm, 16, 8>);
  if (width % 576 == 0) return reinterpret_cast<const void*>(&multiply<T, kResult, kNorm, 8, 9>);
  return nullptr;
}

template <typename T, Result kResult, bool kNorm>
cudaError_t multiply_on(int multiprocessors, int blocks_each, Product p, const Setting& setting, cudaStream_t stream) {
  const void* kernel = product_for<T, kResult, kNorm>(p.width);
  if (!kernel) return cudaErrorInvalidValue;
  const int steps = p.rows / (kResult == Result::kGated ? 2 : 1), blocks = std::min(multiprocessors * blocks_each, steps);
  const size_t most_rows = static_cast<size_t>((steps + blocks - 1) / blocks) * (kResult == Result::kGated ? 2 : 1);
  const size_t shared =
      static_cast<size_t>(p.width) * 4 + most_rows * static_cast<size_t>(p.width / 576 + 1) * 4;  // no piece is smaller than 576 elements
  p.ahead = static_cast<size_t>(setting.kilobytes_ahead) * 1024;
  if (const cudaError_t error = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(shared));
      error != cudaSuccess)
    return error;
  void* arguments[] = {&p};
  return launch(kernel, blocks, 1, shared, setting, stream, arguments);
}

template <typename T>
const void* attention_for(int size, int heads) {
  const void* of[2][4] = {{reinterpret_cast<const void*>(&attend<T, 64, 1>), reinterpret_cast<const void*>(&attend<T, 64, 2>),
                           reinterpret_cast<const void*>(&attend<T, 64, 3>), reinterpret_cast<const void*>(&attend<T, 64, 4>)},
                          {reinterpret_cast<const void*>(&attend<T, 128, 1>), reinterpret_cast<const void*>(&attend<T, 128, 2>),
                           reinterpret_cast<const void*>(&attend<T, 128, 3>), reinterpret_cast<const void*>(&attend<T, 128, 4>)}};
  return (size == 64 || size == 128) && heads >= 1 && heads <= 4 ? of[size / 128][heads - 1] : nullptr;
}

}  // namespace

extern "C" {

struct PeerLayer {
  const void *norm1, *qkv, *q_factors, *k_factors, *o, *norm2, *gate_up, *down;
  void *keys, *values;
};

struct PeerStep {
  int layers, width, heads, kv, size, inner, words, places, is_bf16;
  float epsilon;
  const PeerLayer* each;
  const void *x, *cos, *sin, *norm, *head;
  const int* position;
  float *residual, *row;  // [width], [(heads + 2 kv) size]
  void *mixed, *gated;    // [heads size], [inner]
  float* scores;
};

}  // extern "C"

namespace {

template <typename T>
cudaError_t enqueue(const PeerStep& s, const Setting& setting, cudaStream_t stream) {
  int device = 0, count = 0;
  cudaError_t error = cudaGetDevice(&device);
  if (error == cudaSuccess) error = cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, device);
  const auto then = [&](cudaError_t (*make)(int, int, Product, const Setting&, cudaStream_t), int blocks, Product p) {
    if (error == cudaSuccess) error = make(count, blocks, p, setting, stream);
  };
  const void* attention = attention_for<T>(s.size, s.heads / s.kv);
  if (!attention) return cudaErrorInvalidValue;
  const int mixed = s.heads * s.size;
  for (int i = 0; i < s.layers; ++i) {
    const PeerLayer& layer = s.each[i];
    Product qkv = {.weights = layer.qkv,
                   .rows = mixed + 2 * s.kv * s.size,
                   .width = s.width,
                   .residual = s.residual,
                   .factors = layer.norm1,
                   .epsilon = s.epsilon,
                   .row = s.row};
    if (i == 0) qkv.in = s.x, qkv.residual_to_begin = s.residual;
    then(multiply_on<T, Result::kRow, true>, setting.blocks, qkv);
    Attention a = {.row = s.row,
                   .q_factors = layer.q_factors,
                   .k_factors = layer.k_factors,
                   .epsilon = s.epsilon,
                   .cos = s.cos,
                   .sin = s.sin,
                   .keys = layer.keys,
                   .values = layer.values,
                   .position = s.position,
                   .kv = s.kv,
                   .places = s.places,
                   .out = s.mixed};
    void* arguments[] = {&a};
    if (error == cudaSuccess) error = launch(attention, s.kv * kSplits, kSplits, 0, setting, stream, arguments);
    then(multiply_on<T, Result::kAdded, false>, setting.blocks,
         {.weights = layer.o, .rows = s.width, .width = mixed, .in = s.mixed, .row = s.residual});
    then(multiply_on<T, Result::kGated, true>, setting.blocks,
         {.weights = layer.gate_up,
          .rows = 2 * s.inner,
          .width = s.width,
          .residual = s.residual,
          .factors = layer.norm2,
          .epsilon = s.epsilon,
          .gated = s.gated});
    then(multiply_on<T, Result::kAdded, false>, setting.blocks,
         {.weights = layer.down, .rows = s.width, .width = s.inner, .in = s.gated, .row = s.residual});
  }
  then(multiply_on<T, Result::kRow, true>, setting.blocks_of_scores,
       {.weights = s.head,
        .rows = s.words,
        .width = s.width,
        .residual = s.residual,
        .factors = s.norm,
        .epsilon = s.epsilon,
        .row = s.scores});
  return error;
}

}  // namespace

/// Enqueues a step. Returns a cudaError_t.
extern "C" int decoder_peer_step(const PeerStep* step, int blocks, int blocks_of_scores, int kilobytes_ahead, int programmatic,
                                 cudaStream_t stream) {
  const Setting setting = {blocks, blocks_of_scores, kilobytes_ahead, programmatic};
  return step->is_bf16 ? enqueue<__nv_bfloat16>(*step, setting, stream) : enqueue<__half>(*step, setting, stream);
}
