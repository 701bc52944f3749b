// What a user may rely on of gemv's 16-bit weights: on the CPU, over the stand-in, candidates of every case (class Sample). That gemv
// agrees with the reference in fp32, in all layouts and with all epilogues, is implicit_gemm_test.cpp's business.
#include <cmath>
#include <limits>

#include "kernels/catalogue.h"
#include "test/kernels/heavy_bench.h"
#include "test/support/case_folder.h"
#include "test/support/catch.h"

namespace tamp::test {
namespace {

constexpr Precision kNarrow[] = {Precision::tf32, Precision::fp16, Precision::bf16};
constexpr float kInfinite = std::numeric_limits<float>::infinity(), kNaN = std::numeric_limits<float>::quiet_NaN();

ShapedVDevice device(const char* name) {
  ShapedVDevice vdevice = read_vdevice(name).without_inputs();
  vdevice.sms = 4;
  return vdevice;
}

void expect_no_problems(const std::vector<Case>& cases, const HeavyRun& run) {
  const std::filesystem::path root = std::filesystem::absolute(__FILE__).parent_path().parent_path().parent_path();
  const CaseFolder folder("tamp_gemv_" + run.vdevice.name + name_of(run.precision));
  for (const std::string& problem : run_heavy_cases(cases, {kernels::family("gemv")}, run, root, folder.path())) FAIL_CHECK(problem);
}

// x[rows, k] * weights[n, k] transposed. The reference is given `seen` for the weights.
Case product_case(const std::string& name, int64_t rows, const std::vector<float>& x, const std::vector<float>& weights,
                  const std::vector<float>& seen, bool bias = false) {
  CaseMaker maker(name);
  const int64_t k = static_cast<int64_t>(x.size()) / rows, n = static_cast<int64_t>(weights.size()) / k;
  const TensorId in = maker.input({rows, k}, Lay::rows, x), w = maker.constant({n, k}, Lay::rows, weights);
  std::vector<TensorId> inputs = {in, w};
  if (bias) inputs.push_back(maker.constant({n}));
  Case c = maker.finish(MatMul{false, true}, inputs, maker.output({rows, n}));
  Bytes bytes(seen.size() * sizeof(float));
  std::memcpy(bytes.data(), seen.data(), bytes.size());
  c.values[w.index()].data = std::make_shared<const Bytes>(std::move(bytes));
  return c;
}

struct Size {
  int64_t rows, k, n;
};
constexpr Size kSizes[] = {{1, 1, 1}, {1, 7, 10}, {1, 257, 33}, {1, 9000, 9}, {3, 1000, 17}, {5, 260, 65}, {8, 516, 5}};

std::vector<float> positive(int64_t count, std::mt19937& random) {
  std::uniform_real_distribution<float> draw(0.5F, 1.0F);  // no sum loses digits by cancellation
  std::vector<float> values(static_cast<size_t>(count));
  for (float& v : values) v = draw(random);
  return values;
}

// Ten bits behind the first one, ties to even.
float rounded(float w) {
  int exponent = 0;
  const float mantissa = std::frexp(w, &exponent);
  return std::ldexp(std::nearbyint(mantissa * 2048), exponent - 11);
}

TEST_CASE("gemv rounds weights to ten bits behind the first, at all precisions but fp32") {
  std::mt19937 random(3);
  std::vector<Case> cases;
  for (const Size& s : kSizes) {
    const std::vector<float> x = positive(s.rows * s.k, random), weights = positive(s.n * s.k, random);
    std::vector<float> seen = weights;
    for (float& w : seen) w = rounded(w);
    cases.push_back(product_case(fmt::format("{} x {} x {}", s.rows, s.k, s.n), s.rows, x, weights, seen, s.n % 2 == 0));
  }
  for (const Precision precision : kNarrow) expect_no_problems(cases, {device("cpu"), precision, 3e-6});
  expect_no_problems(cases, {device("t4"), Precision::fp16, 3e-6});
  for (Case& c : cases) c.values[1].data = c.graph.tensors[1].data;
  expect_no_problems(cases, {device("cpu"), Precision::fp32, 3e-6});
}

TEST_CASE("gemv of activations of 16 bits keeps what they hold") {
  std::mt19937 random(6);
  std::vector<Case> cases;
  for (const Size& s : kSizes) {
    const std::vector<float> x = positive(s.rows * s.k, random), weights = positive(s.n * s.k, random);
    std::vector<float> seen = weights;
    for (float& w : seen) w = rounded(w);
    cases.push_back(product_case(fmt::format("{} x {} x {}", s.rows, s.k, s.n), s.rows, x, weights, seen, s.n % 2 == 0));
  }
  for (const bool out : {false, true}) expect_no_problems(narrowed(cases, true, out), {device("cpu"), Precision::fp16, 3e-6});
  expect_no_problems(narrowed(cases, false, true), {device("cpu"), Precision::bf16, 3e-6});
}

TEST_CASE("gemv's columns may have any magnitude, and smaller weights beside larger ones") {
  std::mt19937 random(4);
  const int64_t k = 70, n = 40;
  std::vector<float> weights(static_cast<size_t>(n * k));
  for (int64_t i = 0; i < n * k; ++i) {
    const int column = static_cast<int>(i / k) * 5 - 100, fall = static_cast<int>(i % k) % 28;
    weights[static_cast<size_t>(i)] = std::ldexp(static_cast<float>(1024 + random() % 1024), column - 10 - fall);
  }
  std::vector<float> x = positive(2 * k, random), far;
  // Where x grows as the weights fall, the small weights are what counts. All results are far from 1, which the tolerance adds.
  for (int64_t i = 0; i < 2 * k; ++i) far.push_back(std::ldexp(x[static_cast<size_t>(i)], static_cast<int>(i % k) % 28 * 2 - 20));
  for (float& v : x) v = std::ldexp(v, 20);
  const std::vector<Case> cases = {product_case("alike", 2, x, weights, weights),
                                   product_case("small ones count", 2, far, weights, weights)};
  for (const Precision precision : kNarrow) expect_no_problems(cases, {device("cpu"), precision, 3e-6});
}

TEST_CASE("one row may have any magnitude, and be infinite") {
  std::mt19937 random(7);
  std::vector<Case> cases;
  for (const int64_t k : {33, 700, 2100}) {
    const int64_t n = 40;
    const std::vector<float> row = positive(k, random), weights = positive(n * k, random);
    std::vector<float> seen = weights;
    for (float& w : seen) w = rounded(w);
    const auto add = [&](const std::string& name, auto&& of_k) {
      std::vector<float> x = row;
      for (int64_t i = 0; i < k; ++i) x[static_cast<size_t>(i)] = of_k(i, x[static_cast<size_t>(i)]);
      cases.push_back(product_case(fmt::format("{}, k {}", name, k), 1, x, weights, seen));
    };
    add("large", [](int64_t, float v) { return std::ldexp(v, 90); });
    add("small", [](int64_t, float v) { return std::ldexp(v, -100); });
    add("of two magnitudes in turn", [](int64_t i, float v) { return std::ldexp(v, i % 2 == 0 ? 60 : 45); });
    add("of a magnitude for each 32 k", [](int64_t i, float v) { return std::ldexp(v, static_cast<int>(i / 32 % 5) * 20); });
    add("infinite", [](int64_t i, float v) { return i == 3 ? kInfinite : v; });
    add("no number", [](int64_t i, float v) { return i == 32 ? kNaN : v; });
  }
  for (const Precision precision : kNarrow) expect_no_problems(cases, {device("cpu"), precision, 3e-6});
}

TEST_CASE("infinite weights and NaN reach the answers of their columns only, and zeros stay zeros") {
  const int64_t k = 9, n = 7;
  std::vector<float> weights(static_cast<size_t>(n * k), 3.0F), x(static_cast<size_t>(k), 2.0F);
  const auto set = [&](int64_t column, int64_t at, float w) { weights[static_cast<size_t>(column * k + at)] = w; };
  set(0, 4, kNaN);
  set(1, 0, kInfinite);
  set(2, 8, -kInfinite);
  set(2, 1, 1e30F);  // finite beside an infinite one
  set(3, 0, kInfinite), set(3, 1, -kInfinite);
  for (int64_t at = 0; at < k; ++at) set(4, at, at % 2 == 0 ? 0.0F : -0.0F);
  for (int64_t at = 0; at < k; ++at) set(5, at, at == 0 ? std::numeric_limits<float>::max() / 4 : 0.0F);
  const std::vector<Case> cases = {product_case("not finite", 1, x, weights, weights)};
  for (const Precision precision : kNarrow) expect_no_problems(cases, {device("cpu"), precision, 3e-6});
}

TEST_CASE("gemv costs the weights that it reads, half as many where they are narrow") {
  std::mt19937 random(5);
  for (const Size& s : kSizes) {
    const Case c = product_case("cost", s.rows, positive(s.rows * s.k, random), positive(s.n * s.k, random), {});
    for (const char* name : {"h200", "t4", "cpu"}) {
      const VDevice all = read_vdevice(name);
      for (const ShapedVDevice& vdevice : {all.with_inputs(), all.without_inputs()}) {
        for (const Precision precision : {Precision::fp32, Precision::tf32, Precision::fp16, Precision::bf16}) {
          const std::vector<RKernel> rkernels =
              kernels::candidates_of(kernels::family("gemv"), {c.graph, c.graph.rops[0], vdevice, precision});
          CHECK_FALSE(rkernels.empty());
          for (const RKernel& rkernel : rkernels) {
            INFO(fmt::format("{} x {} x {} on {} in {}: {}", s.rows, s.k, s.n, name, name_of(precision), rkernel.name));
            const Phase& phase = rkernel.phases[0];
            const int64_t ring = phase.ring.chunk_bytes * phase.ring.chunks_per_rtask;
            const int64_t packed = static_cast<int64_t>(kernels::family("gemv").pack(c.graph, c.graph.rops[0], rkernel, 0).size());
            CHECK(phase.cost.weight_bytes == static_cast<double>(ring));
            CHECK(ring * phase.ring.blocks >= s.k * s.n * (precision == Precision::fp32 ? 4 : 2));
            const bool in_chunks = phase.body == "rk::gemv_row";  // scales and biases are in the ring's chunks
            CHECK(packed == ring * phase.ring.blocks + (in_chunks ? 0 : s.n * 8));
            CHECK(phase.ring.chunk_bytes <= vdevice.weight_stage_bytes);
            CHECK(phase.work_bytes <= vdevice.work_bytes());
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace tamp::test
