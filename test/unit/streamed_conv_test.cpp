// streamed_conv against the reference, over the stand-in: pixels and channels that fill no turn, no group and no step (heavy_bench.h).
#include "kernels/catalogue.h"
#include "kernels/product/streamed_numbers.cuh"
#include "test/kernels/conv_cases.h"
#include "test/kernels/heavy_bench.h"
#include "test/support/case_folder.h"
#include "test/support/catch.h"

namespace tamp::test {
namespace {

ShapedVDevice device(int64_t sms) {
  ShapedVDevice vdevice = read_vdevice("cpu").with_inputs();
  vdevice.sms = sms;
  return vdevice;
}

std::vector<RKernel> offered(const Case& c, const ShapedVDevice& vdevice, Precision precision) {
  return kernels::candidates_of(kernels::family("streamed_conv"), {c.graph, c.graph.rops[0], vdevice, precision});
}

const std::vector<ConvRow> kRows = {
    {.name = "16 to 16, 2 images",
     .in = {2, 16, 13, 17},
     .out_channels = 16,
     .kernel = {1, 1},
     .activation = Activation::relu,
     .residual = 1},
    {.name = "8 to 24", .in = {1, 8, 20, 19}, .out_channels = 24, .kernel = {1, 1}, .bias = false},
    {.name = "24 to 72, clip", .in = {1, 24, 20, 20}, .out_channels = 72, .kernel = {1, 1}, .activation = Activation::clip},
    {.name = "40 to 120, hard-swish", .in = {3, 40, 9, 11}, .out_channels = 120, .kernel = {1, 1}, .activation = Activation::hard_swish},
    {.name = "72 to 40, residual behind",
     .in = {1, 72, 21, 14},
     .out_channels = 40,
     .kernel = {1, 1},
     .activation = Activation::relu,
     .residual = 2},
    {.name = "128 to 200, silu", .in = {1, 128, 16, 20}, .out_channels = 200, .kernel = {1, 1}, .activation = Activation::silu},
    {.name = "152 to 24", .in = {1, 152, 16, 17}, .out_channels = 24, .kernel = {1, 1}, .residual = 1},
    {.name = "120 to 8", .in = {1, 120, 17, 16}, .out_channels = 8, .kernel = {1, 1}, .residual = 1},
};

std::vector<Case> narrow_cases(DType dtype, DType out, const ShapedVDevice& vdevice, Precision precision) {
  std::vector<Case> cases;
  for (const ConvRow& row : kRows) {
    Case c = narrowed(conv_case(row), dtype, out);
    INFO(c.name);
    CHECK(offered(c, vdevice, precision).size() == 1);
    cases.push_back(std::move(c));
  }
  return cases;
}

void expect_no_problems(const std::vector<Case>& cases, const HeavyRun& run, const std::string& name) {
  const std::filesystem::path root = std::filesystem::absolute(__FILE__).parent_path().parent_path().parent_path();
  const CaseFolder folder("tamp_streamed_" + name);
  for (const std::string& problem : run_heavy_cases(cases, {kernels::family("streamed_conv")}, run, root, folder.path()))
    FAIL_CHECK(problem);
}

TEST_CASE("pointwise convolutions of few channels give the same, in fp16 and bf16, with one rTask and with several") {
  expect_no_problems(narrow_cases(DType::f16, DType::f16, device(4), Precision::fp16), {device(4), Precision::fp16, 2e-2}, "fp16");
  expect_no_problems(narrow_cases(DType::bf16, DType::bf16, device(1), Precision::bf16), {device(1), Precision::bf16, 1.5e-1}, "bf16");
}

TEST_CASE("results of 32 bits are stored, too") {
  std::vector<Case> cases;
  for (const ConvRow& row : kRows) {
    if (row.residual == 0) cases.push_back(narrowed(conv_case(row), DType::f16, DType::f32));
  }
  for (const Case& c : cases) CHECK(offered(c, device(2), Precision::fp16).size() == 1);
  expect_no_problems(cases, {device(2), Precision::fp16, 2e-2}, "wide_out");
}

TEST_CASE("what cannot be streamed is not offered") {
  const auto count = [](const ConvRow& row) {
    return offered(narrowed(conv_case(row), DType::f16, DType::f16), device(1), Precision::fp16).size();
  };
  const ConvRow good = {.name = "good", .in = {1, 16, 16, 16}, .out_channels = 16, .kernel = {1, 1}};
  CHECK(count(good) == 1);
  ConvRow row = good;
  row.in = {1, 168, 16, 16};  // more than 320 bytes a pixel
  CHECK(count(row) == 0);
  row = good;
  row.in = {1, 16, 6, 6};  // few pixels
  CHECK(count(row) == 0);
  row = good;
  row.in = {1, 14, 16, 16};  // no whole accesses of 8 bytes
  CHECK(count(row) == 0);
  row = good;
  row.out_channels = 20;
  CHECK(count(row) == 0);
  row = good;
  row.kernel = {3, 3};
  CHECK(count(row) == 0);
  row = good;
  row.strides = {2, 2};
  CHECK(count(row) == 0);
  row = good;
  row.in = {1, 16, 1, 256};  // one row, whose pixels begin in front of the map
  row.pads_begin = row.pads_end = {0, 1};
  CHECK(count(row) == 0);
  row.pads_begin = {0, 0};  // or end behind it
  CHECK(count(row) == 0);
  row = good;
  row.in_lay = Lay::rows;
  CHECK(count(row) == 0);
}

TEST_CASE("the words of a pixel's lanes are each of its bytes once") {
  for (const bool wide : {false, true}) {
    for (int steps = 1; steps <= rk::kStreamedMostSteps; ++steps) {
      std::vector<int> seen(static_cast<size_t>(steps * 8), 0);
      for (int step = 0; step < steps; ++step) {
        for (int t = 0; t < 4; ++t) {
          for (int word = 0; word < 2; ++word) ++seen.at(static_cast<size_t>(rk::streamed_byte(steps, wide, step, t, word) / 4));
        }
      }
      CHECK(seen == std::vector<int>(seen.size(), 1));
    }
  }
}

}  // namespace
}  // namespace tamp::test
