// What the functions of a warp give on the stand-in: shuffles, votes, and products on tensor cores with the loads that feed them, as the
// GPU's do.
#include <cmath>

#include "kernels/vdevice/mma.cuh"
#include "kernels/vdevice/task.cuh"
#include "test/standin/launch.h"
#include "test/support/catch.h"

namespace {

using standin::DeviceArray;
using standin::launch;

template <class T>
__device__ T* shared() {
  return static_cast<T*>(cuda_on_cpu::shared_memory());
}

// --- warps -------------------------------------------------------------------------------------------------------------

struct ShuffleResults {
  int xor1, up3, down5, from7, segment_from1, segment_down, segment_up, segment_xor;
  unsigned ballot;
  int any, all, any_of_none;
};

__global__ void shuffle(ShuffleResults* out) {
  if (threadIdx.x / 32 == 1) return;  // one warp stays out of it
  const int lane = rk::lane_id();
  ShuffleResults r;
  r.xor1 = __shfl_xor_sync(rk::kFullMask, lane, 1);
  r.up3 = __shfl_up_sync(rk::kFullMask, lane, 3);
  r.down5 = __shfl_down_sync(rk::kFullMask, lane, 5);
  r.from7 = __shfl_sync(rk::kFullMask, lane, 7);
  r.segment_from1 = __shfl_sync(rk::kFullMask, lane, 9, 8);
  r.segment_down = __shfl_down_sync(rk::kFullMask, lane, 2, 8);
  r.segment_up = __shfl_up_sync(rk::kFullMask, lane, 2, 8);
  r.segment_xor = __shfl_xor_sync(rk::kFullMask, lane, 8, 8);
  r.ballot = __ballot_sync(rk::kFullMask, lane % 3 == 0);
  r.any = __any_sync(rk::kFullMask, lane == 31);
  r.all = __all_sync(rk::kFullMask, lane < 32);
  r.any_of_none = __any_sync(rk::kFullMask, 0);
  out[threadIdx.x] = r;
}

TEST_CASE("shuffles and votes give what the GPU's give, in the warps that take part") {
  DeviceArray<ShuffleResults> out(96);
  REQUIRE(launch(shuffle, 1, 96, 0, out.data) == cudaSuccess);
  for (const int t : {0, 1, 2, 3, 7, 8, 15, 16, 25, 27, 30, 31, 64, 70, 90, 95}) {
    const ShuffleResults& r = out[static_cast<size_t>(t)];
    const int lane = t % 32, in8 = lane % 8;
    CAPTURE(t);
    CHECK(r.xor1 == (lane ^ 1));
    CHECK(r.up3 == (lane < 3 ? lane : lane - 3));
    CHECK(r.down5 == (lane + 5 > 31 ? lane : lane + 5));
    CHECK(r.from7 == 7);
    CHECK(r.segment_from1 == lane / 8 * 8 + 1);
    CHECK(r.segment_down == (in8 + 2 > 7 ? lane : lane + 2));
    CHECK(r.segment_up == (in8 < 2 ? lane : lane - 2));
    CHECK(r.segment_xor == ((lane & 8) != 0 ? lane - 8 : lane));  // below is readable, above is not
    CHECK(r.ballot == 0x49249249u);
    CHECK(r.any == 1);
    CHECK(r.all == 1);
    CHECK(r.any_of_none == 0);
  }
}

__global__ void half_warps(float* out) {
  const unsigned mask = rk::lane_id() < 16 ? 0x0000ffffu : 0xffff0000u;
  float v = static_cast<float>(threadIdx.x);
  for (int step = 8; step > 0; step /= 2) v += __shfl_xor_sync(mask, v, step);
  out[threadIdx.x] = v + rk::warp_sum(1.0f);
}

TEST_CASE("collectives of parts of a warp do not mix") {
  DeviceArray<float> out(64);
  REQUIRE(launch(half_warps, 1, 64, 0, out.data) == cudaSuccess);
  for (size_t t = 0; t < 64; ++t) CHECK(out[t] == static_cast<float>(t / 16 * 16 * 16 + 120 + 32));
}

__global__ void pass_along(int* out, int rounds, bool synchronise) {
  int* const row = shared<int>() + rk::warp_id() * 32;
  const int lane = rk::lane_id();
  row[lane] = lane;
  __syncwarp();
  for (int i = 0; i < rounds; ++i) {
    const int next = row[(lane + 1) % 32];
    if (synchronise) __syncwarp();
    row[lane] = next;
    __syncwarp();
  }
  out[threadIdx.x] = row[lane];
}

TEST_CASE("a warp's lanes are in step only where __syncwarp makes them") {
  DeviceArray<int> out(64);
  REQUIRE(launch(pass_along, 1, 64, 1024, out.data, 45, true) == cudaSuccess);
  for (size_t t = 0; t < 64; ++t) CHECK(out[t] == static_cast<int>(t + 45) % 32);
  REQUIRE(launch(pass_along, 1, 64, 1024, out.data, 45, false) == cudaSuccess);
  bool wrong = false;
  for (size_t t = 0; t < 64; ++t) wrong = wrong || out[t] != static_cast<int>(t + 45) % 32;
  CHECK(wrong);
}

// --- tensor cores ------------------------------------------------------------------------------------------------------

// D += A * B, row-major, A through ldmatrix or from registers.
__global__ void multiply(const float* a, const float* b, float* d, bool by_ldmatrix) {
  const int lane = rk::lane_id(), g = lane / 4, t = lane % 4;
  float* const smem = shared<float>() + rk::warp_id() * 128;
  for (int i = lane; i < 128; i += 32) smem[i] = a[i];
  __syncwarp();
  uint32_t fa[4] = {__float_as_uint(a[g * 8 + t]), __float_as_uint(a[(g + 8) * 8 + t]), __float_as_uint(a[g * 8 + t + 4]),
                    __float_as_uint(a[(g + 8) * 8 + t + 4])};
  if (by_ldmatrix) rk::ldmatrix4(fa, smem, ((lane / 8 % 2 * 8 + lane % 8) * 8 + lane / 16 * 4) * 4);
  const uint32_t fb[2] = {__float_as_uint(b[t * 8 + g]), __float_as_uint(b[(t + 4) * 8 + g])};
  float* const mine = d + rk::warp_id() * 128;
  float fd[4] = {mine[g * 8 + 2 * t], mine[g * 8 + 2 * t + 1], mine[(g + 8) * 8 + 2 * t], mine[(g + 8) * 8 + 2 * t + 1]};
  rk::mma_tf32(fd, fa, fb);
  for (int i = 0; i < 4; ++i) mine[(g + i / 2 * 8) * 8 + 2 * t + i % 2] = fd[i];
}

// 32 rows of 8 halves, the word of each lane in each of the four matrices.
__global__ void turn_matrices(const uint32_t* in, uint32_t* out) {
  uint32_t* const smem = shared<uint32_t>();
  for (int i = rk::lane_id(); i < 128; i += 32) smem[i] = in[i];
  __syncwarp();
  uint32_t r[4];
  rk::ldmatrix4_turned(r, smem, rk::lane_id() * 16);
  for (int i = 0; i < 4; ++i) out[rk::lane_id() * 4 + i] = r[i];
}

TEST_CASE("ldmatrix4_turned gives two neighbours of a column") {
  DeviceArray<uint32_t> in(128), out(128);
  const auto half = [](size_t row, size_t column) { return static_cast<uint32_t>(row * 8 + column + 1); };
  for (size_t i = 0; i < 128; ++i) in[i] = half(i / 4, i % 4 * 2) | half(i / 4, i % 4 * 2 + 1) << 16;
  REQUIRE(launch(turn_matrices, 1, 32, 1024, in.data, out.data) == cudaSuccess);
  for (size_t lane = 0; lane < 32; ++lane) {
    for (size_t i = 0; i < 4; ++i) {
      const size_t row = i * 8 + lane % 4 * 2;
      CHECK(out[lane * 4 + i] == (half(row, lane / 4) | half(row + 1, lane / 4) << 16));
    }
  }
}

float truncated(float x) { return __uint_as_float(__float_as_uint(x) & 0xffffe000u); }

TEST_CASE("mma_tf32 is the product of operands cut to 19 bits") {
  const bool by_ldmatrix = GENERATE(false, true);
  DeviceArray<float> a(128), b(64), d(384);
  for (size_t i = 0; i < 128; ++i) a[i] = std::sin(static_cast<float>(i) * 1.7f) * 3;
  for (size_t i = 0; i < 64; ++i) b[i] = std::cos(static_cast<float>(i) * 0.9f);
  for (size_t i = 0; i < 384; ++i) d[i] = static_cast<float>(i) * 0.125f;
  REQUIRE(launch(multiply, 1, 96, 2048, a.data, b.data, d.data, by_ldmatrix) == cudaSuccess);
  for (size_t w = 0; w < 3; ++w) {
    for (size_t row = 0; row < 16; ++row) {
      for (size_t col = 0; col < 8; ++col) {
        double expected = static_cast<double>(w * 128 + row * 8 + col) * 0.125;
        for (size_t k = 0; k < 8; ++k)
          expected += static_cast<double>(truncated(a[row * 8 + k])) * static_cast<double>(truncated(b[k * 8 + col]));
        CHECK(d[w * 128 + row * 8 + col] == Approx(expected).epsilon(1e-6).margin(1e-6));
      }
    }
  }
}

TEST_CASE("to_tf32 keeps tf32 numbers, infinity and NaN, and is off by less than 0.7 of a last place, on average by nothing") {
  for (const uint32_t bits : {0u, 0x80000000u, 0x3f800000u, 0xbf802000u, 0x3fffe000u, 0x7f800000u, 0xff800000u}) {
    CHECK((rk::to_tf32(__uint_as_float(bits)) & 0xffffe000u) == bits);
  }
  for (const uint32_t nan : {0x7fffffffu, 0x7fc00000u, 0xffc00000u}) {
    const float kept = __uint_as_float(rk::to_tf32(__uint_as_float(nan)) & 0xffffe000u);
    CHECK(kept != kept);
  }
  double sum = 0;
  for (uint32_t bits = 0x3f800000u; bits < 0x40000000u; bits += 0x3fu) {  // 1 to 2: a last place is 2^-10
    const float x = __uint_as_float(bits);
    const double error = static_cast<double>(__uint_as_float(rk::to_tf32(x) & 0xffffe000u)) - static_cast<double>(x);
    if (error > 0.7 / 1024 || error < -0.7 / 1024) FAIL(x);
    sum += error / static_cast<double>(x);
  }
  CHECK(sum / (0x800000 / 0x3f) == Approx(0).margin(0.01 / 1024));
}

}  // namespace
