// patch_conv and patch_strip against the reference: on the CPU, over the stand-in, candidates of every case (class Sample), at sizes that
// fit no tile. See test/kernels/heavy_bench.h for what else is checked.
#include "kernels/first/patch_conv.h"

#include <cstdlib>

#include "kernels/catalogue.h"
#include "test/kernels/conv_cases.h"
#include "test/kernels/heavy_bench.h"
#include "test/support/case_folder.h"
#include "test/support/catch.h"

namespace tamp::test {
namespace {

// A network's input comes in rows.
Case case_of(const ConvRow& row) { return conv_case(row, Lay::rows); }

std::vector<Case> cases_of(const std::vector<ConvRow>& rows) {
  std::vector<Case> cases;
  for (const ConvRow& row : rows) cases.push_back(case_of(row));
  return cases;
}

std::vector<Case> all_cases() {
  return cases_of({
      {.name = "1x1, everything one", .in = {1, 1, 1, 1}, .out_channels = 1, .kernel = {1, 1}, .bias = false},
      {.name = "1x1, 3 to 8", .in = {1, 3, 5, 7}, .out_channels = 8, .kernel = {1, 1}, .activation = Activation::relu},
      {.name = "7x7 stride 2, 3 to 64",
       .in = {1, 3, 24, 28},
       .out_channels = 64,
       .kernel = {7, 7},
       .strides = {2, 2},
       .pads_begin = {3, 3},
       .pads_end = {3, 3},
       .activation = Activation::relu},
      {.name = "7x7 stride 2, 3 to 96, no padding",
       .in = {1, 3, 31, 40},
       .out_channels = 96,
       .kernel = {7, 7},
       .strides = {2, 2},
       .activation = Activation::relu},
      {.name = "11x11 stride 4, 3 to 64",
       .in = {1, 3, 43, 48},
       .out_channels = 64,
       .kernel = {11, 11},
       .strides = {4, 4},
       .pads_begin = {2, 2},
       .pads_end = {2, 2},
       .activation = Activation::relu},
      {.name = "3x3 stride 2, 3 to 32, odd rows",
       .in = {1, 3, 23, 35},
       .out_channels = 32,
       .kernel = {3, 3},
       .strides = {2, 2},
       .activation = Activation::relu},
      {.name = "3x3 stride 2, 3 to 32, clip",
       .in = {2, 3, 22, 36},
       .out_channels = 32,
       .kernel = {3, 3},
       .strides = {2, 2},
       .pads_begin = {1, 1},
       .pads_end = {1, 1},
       .activation = Activation::clip},
      {.name = "3x3, 3 to 16, batch 2",
       .in = {2, 3, 16, 12},
       .out_channels = 16,
       .kernel = {3, 3},
       .pads_begin = {1, 1},
       .pads_end = {1, 1}},
      {.name = "3x3, 3 to 39, asymmetric pads",
       .in = {1, 3, 9, 20},
       .out_channels = 39,
       .kernel = {3, 3},
       .pads_begin = {0, 2},
       .pads_end = {2, 1},
       .activation = Activation::relu},
      {.name = "3x3, 3 to 44, channels last in",
       .in = {2, 3, 8, 11},
       .out_channels = 44,
       .kernel = {3, 3},
       .pads_begin = {1, 1},
       .pads_end = {1, 1},
       .in_lay = Lay::channels_last,
       .activation = Activation::sigmoid},
      {.name = "5x5, 1 to 6, NCHW out",
       .in = {1, 1, 14, 16},
       .out_channels = 6,
       .kernel = {5, 5},
       .out_lay = Lay::rows,
       .activation = Activation::tanh},
      {.name = "3x5, 2 to 24, dilated, residual",
       .in = {1, 2, 13, 16},
       .out_channels = 24,
       .kernel = {3, 5},
       .dilations = {2, 3},
       .pads_begin = {2, 6},
       .pads_end = {2, 6},
       .activation = Activation::relu,
       .residual = 1},
      {.name = "2x2 stride 3, 4 to 20, residual after",
       .in = {1, 4, 11, 13},
       .out_channels = 20,
       .kernel = {2, 2},
       .strides = {3, 3},
       .activation = Activation::hard_swish,
       .residual = 2},
      {.name = "4x4 stride 4, reversed memory",
       .in = {1, 3, 16, 16},
       .out_channels = 130,
       .kernel = {4, 4},
       .strides = {4, 4},
       .in_lay = Lay::reversed,
       .out_lay = Lay::reversed,
       .activation = Activation::gelu},
      {.name = "3x3 stride 2, 3 to 39, padded pixels",
       .in = {1, 3, 13, 20},
       .out_channels = 39,
       .kernel = {3, 3},
       .strides = {2, 2},
       .pads_begin = {1, 1},
       .pads_end = {1, 1},
       .out_lay = Lay::padded,
       .activation = Activation::clip},
      {.name = "3x3, 3 to 18, padded pixels, residual",
       .in = {2, 3, 6, 12},
       .out_channels = 18,
       .kernel = {3, 3},
       .pads_begin = {1, 1},
       .pads_end = {1, 1},
       .out_lay = Lay::padded,
       .activation = Activation::relu,
       .residual = 2},
      {.name = "3x3, slices",
       .in = {1, 4, 6, 12},
       .out_channels = 32,
       .kernel = {3, 3},
       .pads_begin = {1, 1},
       .pads_end = {1, 1},
       .in_lay = Lay::slice,
       .out_lay = Lay::slice,
       .activation = Activation::leaky_relu,
       .residual = 1},
      {.name = "3x3 in the padding alone",
       .in = {1, 1, 2, 4},
       .out_channels = 12,
       .kernel = {3, 3},
       .strides = {2, 5},
       .pads_begin = {7, 11},
       .pads_end = {4, 9}},
      {.name = "one dimension",
       .in = {2, 2, 50},
       .out_channels = 20,
       .kernel = {5},
       .strides = {3},
       .dilations = {2},
       .pads_begin = {4},
       .pads_end = {1},
       .activation = Activation::silu},
      {.name = "infinity reaches its own pixels only",
       .in = {1, 3, 12, 16},
       .out_channels = 16,
       .kernel = {3, 3},
       .pads_begin = {1, 1},
       .pads_end = {1, 1},
       .values = {1, 2, -1, 0, 3, 0.5F, 1, 1, 2, 1, INFINITY, 0.25F, 1, -1, 2, 4, 0, 1, 1,
                  1, 1, 0,  1, 1, 1,    2, 3, 4, 3, 2,        1,     1, 0,  0, 1, 1, 1}},
  });
}

// Of several tiles for each of two vEUs, with channels that are multiples of 8.
std::vector<Case> strip_cases() {
  return cases_of({
      {.name = "7x7 stride 2, 3 to 64, odd padding",
       .in = {3, 3, 38, 44},
       .out_channels = 64,
       .kernel = {7, 7},
       .strides = {2, 2},
       .pads_begin = {3, 3},
       .pads_end = {3, 3},
       .activation = Activation::relu},
      {.name = "7x7 stride 2, 3 to 96, no padding",
       .in = {3, 3, 31, 40},
       .out_channels = 96,
       .kernel = {7, 7},
       .strides = {2, 2},
       .activation = Activation::relu},
      {.name = "3x3 stride 2, 3 to 32, odd rows", .in = {2, 3, 47, 67}, .out_channels = 32, .kernel = {3, 3}, .strides = {2, 2}},
      {.name = "3x3 stride 2, 3 to 32, clip",
       .in = {5, 3, 22, 36},
       .out_channels = 32,
       .kernel = {3, 3},
       .strides = {2, 2},
       .pads_begin = {1, 1},
       .pads_end = {1, 1},
       .activation = Activation::clip},
      {.name = "3x3 stride 2, 3 to 40, silu, asymmetric pads",
       .in = {4, 3, 21, 28},
       .out_channels = 40,
       .kernel = {3, 3},
       .strides = {2, 2},
       .pads_begin = {0, 0},
       .pads_end = {1, 1},
       .activation = Activation::silu},
      {.name = "5x5 stride 2, 1 to 16", .in = {6, 1, 30, 33}, .out_channels = 16, .kernel = {5, 5}, .strides = {2, 2}, .bias = false},
      {.name = "4x4 stride 4, slice in, padded out",
       .in = {5, 2, 20, 24},
       .out_channels = 24,
       .kernel = {4, 4},
       .strides = {4, 4},
       .in_lay = Lay::slice,
       .out_lay = Lay::padded,
       .activation = Activation::hard_swish},
      {.name = "2x6 stride 1 and 2, 4 to 8, gelu",
       .in = {5, 4, 9, 18},
       .out_channels = 8,
       .kernel = {2, 6},
       .strides = {1, 2},
       .pads_begin = {1, 1},
       .pads_end = {0, 2},
       .activation = Activation::gelu},
      {.name = "2x6 stride 1 and 2, 4 to 8, gelu by tanh",
       .in = {5, 4, 9, 18},
       .out_channels = 8,
       .kernel = {2, 6},
       .strides = {1, 2},
       .pads_begin = {1, 1},
       .pads_end = {0, 2},
       .activation = Activation::gelu_tanh},
      {.name = "3x3 stride 2, channels last in",
       .in = {5, 3, 8, 11},
       .out_channels = 16,
       .kernel = {3, 3},
       .strides = {2, 2},
       .pads_begin = {1, 1},
       .pads_end = {1, 1},
       .in_lay = Lay::channels_last},
      {.name = "rows of more pixels than a tile", .in = {1, 3, 7, 600}, .out_channels = 8, .kernel = {3, 3}, .strides = {2, 2}},
      {.name = "3x3 in the padding alone",
       .in = {6, 1, 2, 4},
       .out_channels = 16,
       .kernel = {3, 3},
       .strides = {2, 4},
       .pads_begin = {7, 11},
       .pads_end = {4, 9}},
      {.name = "infinity reaches its own pixels only",
       .in = {5, 3, 12, 16},
       .out_channels = 16,
       .kernel = {3, 3},
       .strides = {2, 2},
       .pads_begin = {1, 1},
       .pads_end = {1, 1},
       .values = {1, 2, -1, 0, 3, 0.5F, 1, 1, 2, 1, INFINITY, 0.25F, 1, -1, 2, 4, 0, 1, 1,
                  1, 1, 0,  1, 1, 1,    2, 3, 4, 3, 2,        1,     1, 0,  0, 1, 1, 1}},
      {.name = "infinity without padding",
       .in = {5, 3, 12, 16},
       .out_channels = 16,
       .kernel = {3, 5},
       .strides = {2, 2},
       .values = {1, 2, -1, 0, 3, 0.5F, 1, 1, 2, 1, INFINITY, 0.25F, 1, -1, 2, 4, 0, 1, 1,
                  1, 1, 0,  1, 1, 1,    2, 3, 4, 3, 2,        1,     1, 0,  0, 1, 1, 1}},
  });
}

ShapedVDevice device(const char* name, int64_t sms) {
  ShapedVDevice vdevice = read_vdevice(name).without_inputs();
  vdevice.sms = sms;
  return vdevice;
}

void expect_no_problems(const std::vector<Case>& cases, const HeavyRun& run, const std::string& name,
                        const kernels::Family& family = kernels::family("patch_conv")) {
  const std::filesystem::path root = std::filesystem::absolute(__FILE__).parent_path().parent_path().parent_path();
  const CaseFolder folder("tamp_patch_" + name);
  for (const std::string& problem : run_heavy_cases(cases, {family}, run, root, folder.path())) FAIL_CHECK(problem);
}

std::vector<RKernel> offers(const Case& c, const ShapedVDevice& vdevice, Precision precision) {
  return kernels::candidates_of(kernels::family("patch_conv"), {c.graph, c.graph.rops[0], vdevice, precision});
}

TEST_CASE("convolutions of patches agree with the reference to the precision of tf32") {
  expect_no_problems(all_cases(), {device("cpu", 4), Precision::tf32, 2e-2}, "tf32");
}

TEST_CASE("convolutions of patches write 16 bits, and add residuals of 16 bits") {
  expect_no_problems(narrowed(all_cases(), false, true), {device("cpu", 4), Precision::fp16, 2e-2}, "narrow");
}

TEST_CASE("many vEUs and small stages give the same answers") {
  ShapedVDevice vdevice = device("h200", 40);
  vdevice.weight_stages = 2;
  vdevice.weight_stage_bytes = 7168;
  expect_no_problems(all_cases(), {vdevice, Precision::tf32, 2e-2}, "small");
}

TEST_CASE("strips of patches agree with the reference to the precision of tf32") {
  expect_no_problems(strip_cases(), {device("cpu", 2), Precision::tf32, 2e-2}, "strips_tf32", kernels::family("patch_strip"));
}

TEST_CASE("strips of patches multiply and write 16 bits") {
  const ShapedVDevice vdevice = device("cpu", 2);
  expect_no_problems(narrowed(strip_cases(), false, true), {vdevice, Precision::fp16, 2e-2}, "strips_fp16", kernels::family("patch_strip"));
  expect_no_problems({strip_cases()[0], strip_cases()[4]}, {vdevice, Precision::bf16, 1e-1}, "strips_bf16", kernels::family("patch_strip"));
}

TEST_CASE("every candidate of a convolution of patches fits its vDevice") {
  for (const std::string& name : builtin_vdevices()) {
    const ShapedVDevice vdevice = read_vdevice(name).without_inputs();
    for (const Case& c : all_cases()) {
      for (const RKernel& rkernel : offers(c, vdevice, vdevice.default_precision)) {
        INFO(name << " " << c.name << " " << rkernel.name);
        const Phase& phase = rkernel.phases[0];
        CHECK(phase.work_bytes <= vdevice.work_bytes());
        CHECK(phase.ring.chunk_bytes <= vdevice.weight_stage_bytes);
        CHECK(phase.ring.chunk_bytes % 16 == 0);
      }
    }
  }
}

TEST_CASE("the first convolution of a large network is one wave on an H200") {
  const ShapedVDevice vdevice = read_vdevice("h200").without_inputs();
  const Case c = case_of({.name = "resnet",
                          .in = {1, 3, 224, 224},
                          .out_channels = 64,
                          .kernel = {7, 7},
                          .strides = {2, 2},
                          .pads_begin = {3, 3},
                          .pads_end = {3, 3}});
  bool found = false;
  for (const RKernel& rkernel : offers(c, vdevice, Precision::tf32)) found = found || (rkernel.rtasks() <= 132 && rkernel.rtasks() > 90);
  CHECK(found);
}

// The first convolution of resnet50.
Case stem_of(int64_t batch) {
  return case_of({.name = "resnet",
                  .in = {batch, 3, 224, 224},
                  .out_channels = 64,
                  .kernel = {7, 7},
                  .strides = {2, 2},
                  .pads_begin = {3, 3},
                  .pads_end = {3, 3}});
}

std::vector<RKernel> strips(const Case& c, const ShapedVDevice& vdevice, Precision precision) {
  return kernels::candidates_of(kernels::family("patch_strip"), {c.graph, c.graph.rops[0], vdevice, precision});
}

TEST_CASE("strips are for batches, and fit beside the rings of inputs and weights") {
  const ShapedVDevice vdevice = read_vdevice("h200").with_inputs();
  for (const Precision precision : {Precision::tf32, Precision::fp16, Precision::bf16}) {
    CHECK(strips(stem_of(1), vdevice, precision).empty());
    const std::vector<RKernel> rkernels = strips(stem_of(32), vdevice, precision);
    REQUIRE(rkernels.size() == 1);
    CHECK(rkernels[0].rtasks() <= 132);
    CHECK(rkernels[0].rtasks() > 120);
    CHECK(rkernels[0].phases[0].work_bytes <= vdevice.work_bytes());
  }
}

TEST_CASE("strips refuse what their loads and stores cannot do") {
  const ShapedVDevice vdevice = device("cpu", 2);
  const auto offered = [&](ConvRow row, Precision precision) {
    row.in = {8, 3, 16, 16};
    return !strips(case_of(row), vdevice, precision).empty();
  };
  const ConvRow good = {.name = "good", .in = {}, .out_channels = 16, .kernel = {3, 3}, .strides = {2, 2}};
  CHECK(offered(good, Precision::tf32));
  CHECK(offered(good, Precision::fp16));
  CHECK_FALSE(offered(good, Precision::fp32));
  ConvRow row = good;
  row.strides = {2, 1};
  CHECK_FALSE(offered(row, Precision::tf32));
  row = good, row.dilations = {1, 2};
  CHECK_FALSE(offered(row, Precision::tf32));
  row = good, row.kernel = {3, 9};
  CHECK_FALSE(offered(row, Precision::tf32));
  row = good, row.kernel = {8, 8};  // too many weights for registers
  CHECK_FALSE(offered(row, Precision::tf32));
  row = good, row.out_channels = 12;
  CHECK(offered(row, Precision::tf32));
  CHECK_FALSE(offered(row, Precision::fp16));
  row = good, row.out_lay = Lay::rows;
  CHECK_FALSE(offered(row, Precision::tf32));
  row = good, row.residual = 1;
  CHECK_FALSE(offered(row, Precision::tf32));
  row = good, row.activation = Activation::tanh;
  CHECK_FALSE(offered(row, Precision::tf32));
}

TEST_CASE("convolutions that patches do not suit are left to others") {
  const ShapedVDevice h200 = read_vdevice("h200").without_inputs();
  const Case good = case_of({.name = "good", .in = {1, 3, 8, 8}, .out_channels = 16, .kernel = {3, 3}});
  const Case wide = case_of({.name = "wide", .in = {1, 5, 8, 8}, .out_channels = 16, .kernel = {3, 3}});
  CHECK_FALSE(offers(good, h200, Precision::tf32).empty());
  CHECK(offers(good, h200, Precision::fp32).empty());
  CHECK(offers(good, read_vdevice("t4").without_inputs(), Precision::tf32).empty());
  CHECK(offers(wide, h200, Precision::tf32).empty());
  CHECK_FALSE(offers(narrowed(good, DType::f32, DType::f16), h200, Precision::fp16).empty());
  CHECK(offers(narrowed(good, DType::f16, DType::f16), h200, Precision::fp16).empty());
}

}  // namespace
}  // namespace tamp::test
