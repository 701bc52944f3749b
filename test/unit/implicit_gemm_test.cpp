// The tile products (convolution, MatMul) and gemv against the reference: on the CPU, over the stand-in, candidates of
// every case, at sizes that fit no tile, in fp32 and tf32. See test/kernels/heavy_bench.h for what is checked.
#include <cstdlib>

#include "kernels/catalogue.h"
#include "test/kernels/conv_cases.h"
#include "test/kernels/heavy_bench.h"
#include "test/support/case_folder.h"
#include "test/support/catch.h"

namespace tamp::test {
namespace {

ShapedVDevice device(const char* name, int64_t sms) {
  ShapedVDevice vdevice = read_vdevice(name).without_inputs();
  vdevice.sms = sms;  // small cases split and fill too
  return vdevice;
}

std::vector<std::string> problems_of(const std::vector<Case>& cases, const HeavyRun& run, const std::string& name) {
  const std::filesystem::path root = std::filesystem::absolute(__FILE__).parent_path().parent_path().parent_path();
  const CaseFolder folder("tamp_heavy_" + name);
  const std::vector<std::string> problems =
      run_heavy_cases(cases, {kernels::family("implicit_gemm"), kernels::family("gemv")}, run, root, folder.path());
  return problems;
}

void expect_no_problems(const std::vector<Case>& cases, const HeavyRun& run, const std::string& name) {
  for (const std::string& problem : problems_of(cases, run, name)) FAIL_CHECK(problem);
}

// --- convolutions ------------------------------------------------------------------------------------------------------

std::vector<Case> conv_cases() {
  const std::vector<ConvRow> rows = {
      {.name = "1x1, everything one", .in = {1, 1, 1, 1}, .out_channels = 1, .kernel = {1, 1}, .bias = false},
      {.name = "1x1, channels 64 to 65", .in = {1, 64, 5, 7}, .out_channels = 65, .kernel = {1, 1}, .activation = Activation::relu},
      {.name = "1x1, long k, small map", .in = {1, 320, 7, 7}, .out_channels = 72, .kernel = {1, 1}, .residual = 1},
      {.name = "3x3, 3 channels, NCHW in",
       .in = {1, 3, 13, 11},
       .out_channels = 16,
       .kernel = {3, 3},
       .strides = {2, 2},
       .pads_begin = {1, 1},
       .pads_end = {1, 1},
       .in_lay = Lay::rows,
       .activation = Activation::clip},
      {.name = "7x7 stride 2, NCHW in",
       .in = {2, 3, 19, 17},
       .out_channels = 64,
       .kernel = {7, 7},
       .strides = {2, 2},
       .pads_begin = {3, 3},
       .pads_end = {3, 3},
       .in_lay = Lay::rows,
       .activation = Activation::relu},
      {.name = "3x3, 16 to 30, batch 2",
       .in = {2, 16, 9, 6},
       .out_channels = 30,
       .kernel = {3, 3},
       .pads_begin = {1, 1},
       .pads_end = {1, 1},
       .activation = Activation::sigmoid,
       .residual = 2},
      {.name = "3x3, 5 channels last",
       .in = {1, 5, 6, 10},
       .out_channels = 33,
       .kernel = {3, 3},
       .pads_begin = {0, 1},
       .pads_end = {2, 0},
       .activation = Activation::hard_swish},
      {.name = "3x3, 30 channels, NCHW both",
       .in = {1, 30, 8, 8},
       .out_channels = 64,
       .kernel = {3, 3},
       .pads_begin = {1, 1},
       .pads_end = {1, 1},
       .in_lay = Lay::rows,
       .out_lay = Lay::rows,
       .residual = 1},
      {.name = "3x3, dilated, slices",
       .in = {1, 64, 12, 12},
       .out_channels = 64,
       .kernel = {3, 3},
       .dilations = {2, 3},
       .pads_begin = {2, 3},
       .pads_end = {2, 3},
       .in_lay = Lay::slice,
       .out_lay = Lay::slice,
       .activation = Activation::gelu,
       .residual = 1},
      {.name = "3x3, two groups",
       .in = {2, 24, 7, 5},
       .out_channels = 72,
       .kernel = {3, 3},
       .pads_begin = {1, 1},
       .pads_end = {1, 1},
       .group = 2,
       .activation = Activation::relu,
       .residual = 1},
      {.name = "1x1, groups of odd size", .in = {1, 30, 4, 4}, .out_channels = 45, .kernel = {1, 1}, .group = 3, .residual = 2},
      {.name = "3x1, reversed memory",
       .in = {1, 8, 9, 9},
       .out_channels = 12,
       .kernel = {3, 1},
       .pads_begin = {1, 0},
       .pads_end = {1, 0},
       .in_lay = Lay::reversed,
       .out_lay = Lay::reversed,
       .activation = Activation::tanh},
      {.name = "one dimension",
       .in = {1, 16, 50},
       .out_channels = 20,
       .kernel = {5},
       .strides = {3},
       .dilations = {2},
       .pads_begin = {4},
       .pads_end = {1},
       .activation = Activation::leaky_relu},
      {.name = "1x1 on one pixel",
       .in = {3, 48, 1, 1},
       .out_channels = 20,
       .kernel = {1, 1},
       .activation = Activation::silu,
       .residual = 1},
      {.name = "1x1 stride 2",
       .in = {1, 12, 9, 9},
       .out_channels = 24,
       .kernel = {1, 1},
       .strides = {2, 2},
       .activation = Activation::hard_sigmoid},
  };
  std::vector<Case> cases;
  for (const ConvRow& row : rows) cases.push_back(conv_case(row));
  return cases;
}

// --- matrix products ---------------------------------------------------------------------------------------------------

struct MatMulRow {
  const char* name;
  Shape a, b, out;
  bool trans_a = false, trans_b = false;
  float alpha = 1, beta = 1;
  Shape c = {};           // a constant C; empty: none
  bool c_varies = false;  // C is an activation
  Lay lay = Lay::rows;
  Activation activation = Activation::none;
  bool residual = false;
};

Case matmul_case(const MatMulRow& row) {
  CaseMaker maker(row.name);
  MatMul matmul{row.trans_a, row.trans_b, row.alpha, row.beta};
  std::vector<TensorId> inputs = {maker.input(row.a, row.lay), maker.constant(row.b)};
  if (!row.c.empty()) inputs.push_back(row.c_varies ? maker.input(row.c) : maker.constant(row.c));
  Epilogue epilogue;
  epilogue.activation = row.activation;
  if (row.residual) epilogue.residual = maker.input(row.out);
  return maker.finish(matmul, inputs, maker.output(row.out, row.lay), epilogue);
}

std::vector<Case> matmul_cases() {
  const std::vector<MatMulRow> rows = {
      {.name = "one row", .a = {1, 7}, .b = {7, 10}, .out = {1, 10}, .c = {10}, .activation = Activation::relu},
      {.name = "one row, long",
       .a = {1, 1537},
       .b = {100, 1537},
       .out = {1, 100},
       .trans_b = true,
       .alpha = 0.5F,
       .beta = 2,
       .c = {1, 100}},
      {.name = "one row, several pieces", .a = {1, 9000}, .b = {9000, 9}, .out = {1, 9}},
      {.name = "five rows", .a = {5, 132}, .b = {132, 65}, .out = {5, 65}, .alpha = -1, .c = {1}, .activation = Activation::tanh},
      {.name = "eight rows, transposed", .a = {260, 8}, .b = {260, 33}, .out = {8, 33}, .trans_a = true, .c = {8, 1}},
      {.name = "seven rows of a batch", .a = {7, 1, 64}, .b = {64, 64}, .out = {7, 1, 64}, .lay = Lay::reversed, .residual = true},
      {.name = "many rows", .a = {70, 65}, .b = {65, 40}, .out = {70, 40}, .c = {70, 40}, .c_varies = true},
      {.name = "many rows, transposed",
       .a = {64, 35},
       .b = {30, 64},
       .out = {35, 30},
       .trans_a = true,
       .trans_b = true,
       .c = {30},
       .c_varies = true},
      {.name = "batches", .a = {2, 3, 5, 64}, .b = {1, 64, 36}, .out = {2, 3, 5, 36}, .activation = Activation::gelu, .residual = true},
      {.name = "batches in slices",
       .a = {2, 9, 33},
       .b = {33, 64},
       .out = {2, 9, 64},
       .lay = Lay::slice,
       .activation = Activation::gelu_tanh},
  };
  std::vector<Case> cases;
  for (const MatMulRow& row : rows) cases.push_back(matmul_case(row));
  return cases;
}

std::vector<Case> all_cases() {
  std::vector<Case> cases = conv_cases();
  for (Case& c : matmul_cases()) cases.push_back(std::move(c));
  return cases;
}

// Those whose results may be of 16 bits: what is added to them must be, too, which constants are not.
constexpr const char* kConstantAdded = "eight rows, transposed";
std::vector<Case> cases_of_16_bits() {
  std::vector<Case> cases = all_cases();
  std::erase_if(cases, [](const Case& c) { return c.name == kConstantAdded; });
  return cases;
}

// --- tests -------------------------------------------------------------------------------------------------------------

TEST_CASE("products of tiles and gemv agree with the reference in fp32") {
  expect_no_problems(all_cases(), {device("cpu", 4), Precision::fp32, 1e-4}, "fp32");
}

TEST_CASE("products of tiles agree with the reference in tf32, to its precision") {
  expect_no_problems(all_cases(), {device("cpu", 4), Precision::tf32, 2e-2}, "tf32");
}

TEST_CASE("products of tiles and gemv write 16 bits, and add residuals of 16 bits") {
  expect_no_problems(narrowed(cases_of_16_bits(), false, true), {device("cpu", 4), Precision::fp16, 2e-2}, "narrow");
}

TEST_CASE("gemv reads 16 bits, products of tiles do not") {
  const ShapedVDevice vdevice = device("cpu", 4);
  std::vector<Case> cases;
  for (const Case& c : cases_of_16_bits()) {
    if (kernels::candidates_of(kernels::family("gemv"), {c.graph, c.graph.rops[0], vdevice, Precision::fp16}).empty()) continue;
    for (const bool out : {false, true}) {
      for (Case& narrow : narrowed({c}, true, out)) cases.push_back(std::move(narrow));
    }
  }
  REQUIRE_FALSE(cases.empty());
  for (const Case& c : cases) {
    CHECK(kernels::candidates_of(kernels::family("implicit_gemm"), {c.graph, c.graph.rops[0], vdevice, Precision::fp16}).empty());
  }
  expect_no_problems(cases, {vdevice, Precision::fp16, 2e-2}, "narrow_in");
}

TEST_CASE("small rings and few stages give the same answers") {
  expect_no_problems(all_cases(), {device("t4", 12), Precision::fp32, 1e-4}, "t4");
}

TEST_CASE("tf32 falls back to fp32 where the device has no tf32") {
  const Case c = conv_case({.name = "conv", .in = {1, 16, 8, 8}, .out_channels = 16, .kernel = {3, 3}});
  for (const RKernel& rkernel :
       kernels::candidates_of(kernels::family("implicit_gemm"), {c.graph, c.graph.rops[0], device("t4", 40), Precision::tf32})) {
    CHECK_FALSE(rkernel.phases[0].cost.tensor_core);
  }
}

TEST_CASE("every candidate fits its vDevice") {
  for (const std::string& name : builtin_vdevices()) {
    const ShapedVDevice vdevice = read_vdevice(name).without_inputs();
    for (const Case& c : all_cases()) {
      for (const kernels::Family& family : {kernels::family("implicit_gemm"), kernels::family("gemv")}) {
        for (const RKernel& rkernel : kernels::candidates_of(family, {c.graph, c.graph.rops[0], vdevice, vdevice.default_precision})) {
          INFO(name << " " << c.name << " " << rkernel.name);
          for (const Phase& phase : rkernel.phases) {
            CHECK(phase.work_bytes <= vdevice.work_bytes());
            CHECK(phase.ring.chunk_bytes <= vdevice.weight_stage_bytes);
            CHECK(phase.ring.chunk_bytes % 16 == 0);
            CHECK(phase.rtasks > 0);
          }
        }
      }
    }
  }
}

TEST_CASE("what the bodies cannot take is not offered") {
  CaseMaker maker("weights that vary");
  const Case varies = maker.finish(MatMul{}, {maker.input({4, 8}), maker.input({8, 4})}, maker.output({4, 4}));
  const Case depthwise = conv_case({.name = "depthwise", .in = {1, 16, 8, 8}, .out_channels = 16, .kernel = {3, 3}, .group = 16});
  CaseMaker empty_maker("no rows");
  const Case empty = empty_maker.finish(MatMul{}, {empty_maker.input({0, 8}), empty_maker.constant({8, 4})}, empty_maker.output({0, 4}));
  std::vector<Case> cases = {varies, depthwise, empty};
  for (const Case& c : all_cases()) {
    if (c.name == kConstantAdded) cases.push_back(narrowed(c, DType::f32, DType::f16));
  }
  REQUIRE(cases.size() == 4);
  for (const Case& c : cases) {
    INFO(c.name);
    CHECK(kernels::candidates_of(kernels::family("implicit_gemm"), {c.graph, c.graph.rops[0], device("cpu", 4), Precision::fp32}).empty());
    CHECK(kernels::candidates_of(kernels::family("gemv"), {c.graph, c.graph.rops[0], device("cpu", 4), Precision::fp32}).empty());
  }
}

}  // namespace
}  // namespace tamp::test
