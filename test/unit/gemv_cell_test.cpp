// Quantised weights of one row: that they are recognised by their values, and multiplied in 8 and 4 bits.
#include "kernels/product/gemv_cell.h"

#include <cmath>
#include <limits>
#include <random>

#include "kernels/catalogue.h"
#include "kernels/narrow.h"
#include "test/kernels/heavy_bench.h"
#include "test/support/case_folder.h"
#include "test/support/catch.h"

namespace tamp::test {
namespace {

using kernels::block_step;

float half_rounded(float v) { return kernels::float_of_half(kernels::half_of(v)); }

std::vector<float> times(const std::vector<int>& numbers, float step, bool in_halves) {
  std::vector<float> values;
  for (const int number : numbers) {
    const float v = static_cast<float>(number) * step;
    values.push_back(in_halves ? half_rounded(v) : v);
  }
  return values;
}

// Each number of `bits` from `low` on, in some order, 32 of them.
std::vector<int> numbers_from(int low, int bits) {
  std::vector<int> numbers;
  for (int i = 0; i < 32; ++i) numbers.push_back(low + (i * 37 + 5) % (1 << bits));
  return numbers;
}

TEST_CASE("a block's step is found, and what it is counted from") {
  for (const bool in_halves : {false, true}) {
    for (const int bits : {4, 8}) {
      const int middle = 1 << (bits - 1);
      for (const int low : {-middle, -middle + 1, -middle - 3, 0}) {
        const float step = half_rounded(0.0137F);
        const std::vector<float> values = times(numbers_from(low, bits), step, in_halves);
        const auto found = block_step(values, {.bits = bits});
        CAPTURE(in_halves, bits, low);
        REQUIRE(found);
        CHECK(std::abs(std::abs(found->step) - step) <= step * 0x1p-12F);
        for (const float v : values) {
          const int number = static_cast<int>(std::lround(v / found->step)) - found->low;
          CHECK((number >= 0 && number < 1 << bits));
          CHECK(std::abs(found->step * static_cast<float>(found->low + number) - v) <= std::abs(v) * 0x1p-11F);
        }
      }
    }
  }
}

TEST_CASE("the longest step counts, and the usual low where that does") {
  const std::vector<float> sevens = times({7, -21, 14, 0, 49, -49, 7, 0}, 1, false);
  CHECK(block_step(sevens, {.bits = 8})->step == 7);
  const std::vector<float> mirrored = times({8, 3, -7, 1, 0, 2, -1, 5}, 0.5F, false);  // -8 to 7 of the other sign
  CHECK((block_step(mirrored, {.bits = 4, .lowest = true})->step == -0.5F && block_step(mirrored, {.bits = 4})->low == -8));
  const std::vector<float> above = times({1, 15, 3, 4, 5, 6, 7, 8}, 0.5F, false);
  CHECK((block_step(above, {.bits = 4})->low == 0 && !block_step(above, {.bits = 4, .lowest = true})));
  const std::vector<float> zeros(8, 0.0F);
  CHECK((block_step(zeros, {.bits = 4}) && block_step(zeros, {.bits = 4})->step == 0));
}

TEST_CASE("weights without a step have none") {
  std::mt19937 random(1);
  std::normal_distribution<float> normal;
  int found = 0;
  for (int turn = 0; turn < 10000; ++turn) {
    std::vector<float> values(32);
    for (float& v : values) v = turn % 2 == 0 ? normal(random) : half_rounded(normal(random));
    found += block_step(values, {.bits = 8}) ? 1 : 0;
  }
  CHECK(found == 0);
  std::vector<float> values = times(numbers_from(-8, 4), 0.25F, false);
  values[5] *= 1.01F;
  CHECK_FALSE(block_step(values, {.bits = 4}));
  values[5] = std::numeric_limits<float>::infinity();
  CHECK_FALSE(block_step(values, {.bits = 8}));
  values[5] = std::numeric_limits<float>::quiet_NaN();
  CHECK_FALSE(block_step(values, {.bits = 8}));
}

// Weights [n, k] quantised by blocks along k.
struct Quantised {
  int bits = 4;
  int64_t block = 32;
  bool has_zeros = false, in_halves = false;
};
std::vector<float> quantised(int64_t n, int64_t k, const Quantised& q, std::mt19937& random) {
  std::vector<float> values(static_cast<size_t>(n * k));
  const int middle = 1 << (q.bits - 1);
  for (int64_t row = 0; row < n; ++row) {
    float step = 0;
    int low = 0;
    for (int64_t at = 0; at < k; ++at) {
      if (at % q.block == 0) {
        step = half_rounded(0.001F + 0.01F * static_cast<float>(random() % 1000) / 1000);
        low = q.has_zeros ? -static_cast<int>(random() % (2 * static_cast<unsigned>(middle))) : -middle;
      }
      // The first two are the least and the largest, so that no other low will do.
      const auto u =
          at % q.block < 2 ? at % q.block * (2 * middle - 1) : static_cast<int64_t>(random() % (2 * static_cast<unsigned>(middle)));
      const float v = static_cast<float>(low + u) * step;
      values[static_cast<size_t>(row * k + at)] = q.in_halves ? half_rounded(v) : v;
    }
  }
  return values;
}

Case product_case(const std::string& name, int64_t k, int64_t n, const std::vector<float>& weights, bool turned) {
  CaseMaker maker(name);
  std::vector<float> laid(weights.size());
  for (int64_t c = 0; c < n; ++c) {
    for (int64_t i = 0; i < k; ++i) laid[static_cast<size_t>(turned ? c * k + i : i * n + c)] = weights[static_cast<size_t>(c * k + i)];
  }
  const TensorId in = maker.input({1, k}), w = maker.constant(turned ? Shape{n, k} : Shape{k, n}, Lay::rows, laid);
  return maker.finish(MatMul{false, turned, 0.5F}, {in, w, maker.constant({n})}, maker.output({1, n}));
}

int64_t cell_of(const Case& c, Precision precision) {
  ShapedVDevice vdevice = read_vdevice("cpu").without_inputs();
  const std::vector<RKernel> rkernels = kernels::candidates_of(kernels::family("gemv"), {c.graph, c.graph.rops[0], vdevice, precision});
  REQUIRE_FALSE(rkernels.empty());
  return kernels::config_or(rkernels[0], "cell", rk::kCellHalves);
}

TEST_CASE("products of a row by quantised weights agree with the reference") {
  std::mt19937 random(2);
  struct Row {
    int64_t k, n;
    Quantised q;
    rk::GemvCell cell;
  };
  const Row rows[] = {
      {32, 8, {}, rk::kCellNibbles},
      {64, 40, {.in_halves = true}, rk::kCellNibbles},
      {100, 33, {.block = 64}, rk::kCellNibbles},
      {4096, 25, {.block = 128, .has_zeros = true}, rk::kCellNibblesFrom},
      {700, 70, {.bits = 8, .in_halves = true}, rk::kCellBytes},
      {1500, 9, {.bits = 8, .has_zeros = true}, rk::kCellBytesFrom},
      {64, 9, {.block = 16}, rk::kCellHalves},
  };
  std::vector<Case> cases, of_halves;  // the latter: the reference multiplies by rounded weights
  for (const Row& row : rows) {
    for (const bool turned : {true, false}) {
      const std::string name = fmt::format("{} x {} of {} bits by {}{}", row.k, row.n, row.q.bits, row.q.block, turned ? "" : ", by rows");
      const Case c = product_case(name, row.k, row.n, quantised(row.n, row.k, row.q, random), turned);
      INFO(name);
      for (const Precision precision : {Precision::tf32, Precision::fp16, Precision::bf16}) CHECK(cell_of(c, precision) == row.cell);
      CHECK(cell_of(c, Precision::fp32) == rk::kCellHalves);
      (row.q.in_halves ? of_halves : cases).push_back(c);
    }
  }
  ShapedVDevice vdevice = read_vdevice("cpu").without_inputs();
  vdevice.sms = 4;
  const std::filesystem::path root = std::filesystem::absolute(__FILE__).parent_path().parent_path().parent_path();
  const CaseFolder folder("tamp_gemv_cell");
  const auto expect_right = [&](const std::vector<Case>& some, double tolerance) {
    const HeavyRun run{vdevice, Precision::fp16, tolerance};
    for (const std::string& problem : run_heavy_cases(some, {kernels::family("gemv")}, run, root, folder.path())) FAIL_CHECK(problem);
  };
  expect_right(cases, 1e-3);
  expect_right(of_halves, 2e-3);
}

TEST_CASE("one weight that is no multiple keeps all in 16 bits") {
  std::mt19937 random(3);
  std::vector<float> weights = quantised(24, 96, {}, random);
  CHECK(cell_of(product_case("whole", 96, 24, weights, true), Precision::fp16) == rk::kCellNibbles);
  weights[1000] += 0.3F * 0.001F;
  CHECK(cell_of(product_case("broken", 96, 24, weights, true), Precision::fp16) == rk::kCellHalves);
}

TEST_CASE("quantised weights take the bytes that they have") {
  std::mt19937 random(4);
  const int64_t k = 512, n = 64;
  const std::vector<float> four = quantised(n, k, {}, random), eight = quantised(n, k, {.bits = 8}, random);
  const auto bytes = [&](const std::vector<float>& weights) {
    const Case c = product_case("bytes", k, n, weights, true);
    const ShapedVDevice vdevice = read_vdevice("h200").with_rows();
    const std::vector<RKernel> rkernels =
        kernels::candidates_of(kernels::family("gemv"), {c.graph, c.graph.rops[0], vdevice, Precision::fp16});
    return rkernels[0].phases[0].cost.weight_bytes * static_cast<double>(rkernels[0].phases[0].rtasks);
  };
  // A step of two bytes for 32 weights, scale and bias of 8 bytes for a column.
  CHECK(bytes(four) <= static_cast<double>(k * n) * 4.5 / 8 + 8 * n + 16 * 8);
  CHECK(bytes(eight) <= static_cast<double>(k * n) * 8.5 / 8 + 8 * n + 16 * 8);
}

}  // namespace
}  // namespace tamp::test
