// The bodies of the direct and depthwise convolution and matmul families against the reference: on the CPU, over the stand-in, at sizes
// that fit no tile. See test/kernels/light_bench.h for what else is checked.
#include "kernels/catalogue.h"
#include "test/kernels/light_bench.h"
#include "test/support/catch.h"

namespace tamp::test {
namespace {

// --- convolution --------------------------------------------------------------------------------------------------------

struct ConvCase {
  std::string name;
  Conv attrs;
  Shape in;
  int64_t outputs;
  Lay lay_in = Lay::channels_last, lay_out = Lay::channels_last;
  bool epilogue = false;
  bool constant = true;
};

Conv square(int64_t taps, int64_t stride, int64_t group, int64_t pad, int64_t dilation = 1) {
  return Conv{{taps, taps}, {stride, stride}, {dilation, dilation}, {pad, pad}, {pad, pad}, group};
}

Case conv_case(const ConvCase& c) {
  CaseMaker maker(c.name);
  const TensorId x = maker.input(c.in, c.lay_in);
  Shape weights = {c.outputs, c.in[1] / c.attrs.group}, out = {c.in[0], c.outputs};
  for (size_t d = 0; d < c.attrs.kernel.size(); ++d) {
    weights.push_back(c.attrs.kernel[d]);
    const int64_t span = (c.attrs.kernel[d] - 1) * c.attrs.dilations[d] + 1;
    out.push_back((c.in[d + 2] + c.attrs.pads_begin[d] + c.attrs.pads_end[d] - span) / c.attrs.strides[d] + 1);
  }
  const TensorId w = c.constant ? maker.constant(weights) : maker.input(weights);
  Epilogue e;
  if (c.epilogue) {
    e.bias = maker.constant({c.outputs});
    e.residual = maker.input(out, c.lay_out);
    e.activation = Activation::clip;
    e.a = -0.5F;
    e.b = 0.75F;
    e.residual_after_activation = true;
  }
  return maker.finish(c.attrs, {x, w}, maker.output(out, c.lay_out), e);
}

std::vector<Case> depthwise_cases() {
  const std::vector<ConvCase> table = {
      {"3x3", square(3, 1, 8, 1), {2, 8, 7, 9}, 8},
      {"3x3 stride 2", square(3, 2, 32, 1), {1, 32, 31, 33}, 32},
      {"3x3 on one pixel", square(3, 1, 4, 1), {1, 4, 1, 1}, 4},
      {"5x5", square(5, 1, 12, 2), {1, 12, 9, 5}, 12},
      {"5x5 stride 2 into a slice", square(5, 2, 4, 2), {2, 4, 9, 11}, 4, Lay::slice, Lay::slice},
      {"7x7", square(7, 1, 4, 3), {1, 4, 9, 9}, 4},
      {"7x7 stride 2", square(7, 2, 4, 3), {1, 4, 13, 10}, 4},
      {"3x3 in groups of channels", square(3, 1, 64, 1), {1, 64, 11, 13}, 64, Lay::channels_last, Lay::channels_last, true},
      {"5x5 in groups of channels, short rows", square(5, 1, 40, 2), {2, 40, 9, 6}, 40},
      {"7x7 in groups of channels", square(7, 1, 96, 3), {1, 96, 15, 17}, 96, Lay::channels_last, Lay::channels_last, true},
      {"7x7 stride 2 in groups of channels", square(7, 2, 44, 3), {1, 44, 19, 23}, 44},
      {"epilogue", square(3, 1, 8, 1), {1, 8, 5, 5}, 8, Lay::channels_last, Lay::channels_last, true},
      {"dilated", square(3, 1, 8, 2, 2), {1, 8, 7, 9}, 8},
      {"1x5 with stride 3", {{1, 5}, {1, 3}, {1, 1}, {0, 2}, {0, 1}, 8}, {1, 8, 3, 17}, 8},
      {"one dimension", {{3}, {1}, {1}, {1}, {1}, 8}, {2, 8, 11}, 8},
      {"odd channels", square(3, 1, 5, 1), {1, 5, 7, 9}, 5},
      {"3x3, pixels of 39 channels padded", square(3, 2, 39, 1), {1, 39, 7, 9}, 39, Lay::padded, Lay::padded, true},
      {"7x7, pixels of 6 channels padded", square(7, 1, 6, 3), {2, 6, 7, 9}, 6, Lay::padded, Lay::padded},
      {"dilated, pixels of 5 channels padded", square(3, 1, 5, 2, 2), {1, 5, 7, 9}, 5, Lay::padded, Lay::padded, true},
      {"odd channels with stride 2", square(5, 2, 39, 2), {2, 39, 8, 9}, 39, Lay::channels_last, Lay::slice, true},
      {"rows", square(3, 2, 6, 1), {1, 6, 7, 9}, 6, Lay::rows, Lay::rows},
      {"odd channels, dilated", square(3, 1, 3, 2, 2), {1, 3, 7, 9}, 3},
  };
  std::vector<Case> cases;
  for (const ConvCase& c : table) cases.push_back(conv_case(c));
  return cases;
}

TEST_CASE("depthwise convolution agrees with the reference") {
  expect_no_problems(depthwise_cases(), {kernels::family("depthwise")}, "depthwise");
}

TEST_CASE("depthwise convolution of 16 bits agrees with the reference") {
  std::vector<Case> cases = narrowed(depthwise_cases(), true, true);
  for (const Case& c : depthwise_cases()) {
    cases.push_back(narrowed(c, DType::f16, DType::f32));
    cases.push_back(narrowed(c, DType::f32, DType::bf16));
  }
  expect_no_problems(cases, {kernels::family("depthwise")}, "narrow_depthwise");
}

// Enough of them for the body with strips (more than two turns of all threads of three vEUs), at odd sizes.
std::vector<Case> strip_cases() {
  const std::vector<ConvCase> table = {
      {"strips", square(3, 1, 32, 1), {3, 32, 37, 30}, 32},
      {"strips with stride 2", square(3, 2, 24, 1), {5, 24, 59, 61}, 24},
      {"strips of few rows", square(3, 1, 36, 1), {25, 36, 7, 7}, 36},
      {"strips into a slice", square(3, 1, 16, 1), {7, 16, 30, 29}, 16, Lay::slice, Lay::slice},
      {"strips without pads", {{3, 3}, {2, 2}, {1, 1}, {0, 0}, {1, 1}, 16}, {9, 16, 40, 38}, 16},
  };
  std::vector<Case> cases;
  for (const ConvCase& c : table) {
    CaseMaker maker(c.name);
    const TensorId x = maker.input(c.in, c.lay_in);
    Shape out = {c.in[0], c.outputs};
    for (size_t d = 0; d < 2; ++d) out.push_back((c.in[d + 2] + c.attrs.pads_begin[d] + c.attrs.pads_end[d] - 3) / c.attrs.strides[d] + 1);
    Epilogue e;
    if (cases.size() != 1) {
      e.bias = maker.constant({c.outputs});
      e.activation = cases.empty() ? Activation::relu : Activation::clip;
      e.a = -0.5F;
      e.b = 0.75F;
    }
    cases.push_back(maker.finish(c.attrs, {x, maker.constant({c.outputs, 1, 3, 3})}, maker.output(out, c.lay_out), e));
  }
  return cases;
}

bool offers_strips(const Case& c) {
  const std::vector<RKernel> all =
      kernels::candidates_of(kernels::family("depthwise"), {c.graph, c.graph.rops[0], small_vdevice(), Precision::fp32});
  return std::any_of(all.begin(), all.end(), [](const RKernel& r) { return r.phases[0].body == "rk::depthwise_strips"; });
}

TEST_CASE("depthwise convolution by strips agrees with the reference") {
  std::vector<Case> cases = strip_cases();
  for (const Case& c : strip_cases()) {
    cases.push_back(narrowed(c, DType::f16, DType::f16));
    cases.push_back(narrowed(c, DType::bf16, DType::f32));
    cases.push_back(narrowed(c, DType::f32, DType::bf16));
    CHECK(offers_strips(c));
  }
  expect_no_problems(cases, {kernels::family("depthwise")}, "strips");
  // Not where there is little to do, nor with a residual, other filters or channels that are no whole vectors.
  for (const Case& c : depthwise_cases()) CHECK_FALSE(offers_strips(c));
}

TEST_CASE("direct convolution agrees with the reference") {
  const Lay last = Lay::channels_last, rows = Lay::rows;
  const std::vector<ConvCase> table = {
      {"groups of 4", square(3, 1, 8, 1), {1, 32, 7, 9}, 32},
      {"groups of 8 with stride 2", square(3, 2, 4, 1), {2, 32, 9, 9}, 32},
      {"over many rTasks", square(3, 1, 8, 1), {1, 64, 13, 15}, 64},
      {"groups of 3 to 4", square(3, 1, 2, 1), {1, 6, 7, 5}, 8},
      {"groups of 4 to 3", square(3, 1, 2, 1), {1, 8, 7, 5}, 6},
      {"rows to rows", square(3, 1, 1, 1), {1, 3, 9, 7}, 8, rows, rows},
      {"rows to channels last", square(3, 2, 1, 1), {1, 3, 9, 7}, 8, rows, last},
      {"channels last to rows", square(1, 1, 1, 0), {1, 8, 5, 7}, 4, last, rows},
      {"slices", square(3, 1, 2, 1), {1, 8, 5, 7}, 8, Lay::slice, Lay::slice},
      {"depthwise with a multiplier", square(3, 1, 5, 1), {1, 5, 6, 7}, 15},
      {"depthwise with four filters a channel", square(3, 1, 5, 1), {1, 5, 6, 7}, 20},
      {"dilated and not square", {{2, 3}, {2, 1}, {3, 2}, {1, 0}, {0, 3}, 1}, {1, 5, 9, 11}, 7},
      {"one dimension", {{5}, {2}, {1}, {2}, {2}, 2}, {2, 6, 15}, 8},
      {"one dimension of rows", {{3}, {1}, {2}, {0}, {1}, 1}, {2, 3, 15}, 5, rows, rows},
      {"epilogue", square(3, 1, 2, 1), {1, 8, 5, 5}, 8, last, last, true},
      {"epilogue, one channel at a time", square(3, 1, 1, 1), {1, 3, 5, 5}, 5, rows, rows, true},
      {"weights made by the program", square(3, 1, 2, 1), {1, 8, 5, 5}, 8, last, last, false, false},
  };
  std::vector<Case> cases;
  for (const ConvCase& c : table) cases.push_back(conv_case(c));
  expect_no_problems(cases, {kernels::family("direct")}, "direct");
}

// --- products -----------------------------------------------------------------------------------------------------------

struct MatMulCase {
  std::string name;
  MatMul attrs;
  Shape a, b, c, out;  // c may be empty: none
  Lay lay = Lay::rows;
  bool epilogue = false;
};

Case matmul_case(const MatMulCase& c) {
  CaseMaker maker(c.name);
  std::vector<TensorId> inputs = {maker.input(c.a, c.lay), maker.input(c.b, c.lay)};
  if (!c.c.empty()) inputs.push_back(maker.input(c.c, Lay::rows));
  Epilogue e;
  if (c.epilogue) {
    e.bias = maker.constant({c.out.back()});
    e.residual = maker.input(c.out, c.lay);
    e.activation = Activation::tanh;
  }
  return maker.finish(c.attrs, inputs, maker.output(c.out, c.lay), e);
}

TEST_CASE("products of activations agree with the reference") {
  const std::vector<MatMulCase> table = {
      {"one element", {}, {1, 1}, {1, 1}, {}, {1, 1}},
      {"odd sizes", {}, {33, 35}, {35, 67}, {}, {33, 67}},
      {"both transposed", {true, true, 0.5F, 1}, {35, 33}, {67, 35}, {}, {33, 67}},
      {"gemm with a row of C", {false, true, 2, 0.5F}, {5, 70}, {9, 70}, {9}, {5, 9}},
      {"gemm with a column of C", {true, false, 1, -1}, {7, 5}, {7, 9}, {5, 1}, {5, 9}},
      {"batched", {}, {3, 2, 17, 9}, {3, 2, 9, 33}, {}, {3, 2, 17, 33}},
      {"broadcast on both sides", {}, {3, 1, 5, 9}, {2, 9, 3}, {}, {3, 2, 5, 3}},
      {"a matrix for all", {}, {4, 3, 5, 9}, {9, 3}, {}, {4, 3, 5, 3}},
      {"channels last", {}, {2, 3, 5, 9}, {2, 3, 9, 7}, {}, {2, 3, 5, 7}, Lay::channels_last},
      {"backwards", {}, {2, 5, 9}, {2, 9, 7}, {}, {2, 5, 7}, Lay::reversed},
      {"epilogue", {}, {2, 5, 40}, {2, 40, 7}, {}, {2, 5, 7}, Lay::rows, true},
      {"nothing to add up", {}, {3, 0}, {0, 5}, {}, {3, 5}},
      {"several tiles per rTask", {}, {20, 20, 3}, {20, 3, 40}, {}, {20, 20, 40}},
  };
  std::vector<Case> cases;
  for (const MatMulCase& c : table) cases.push_back(matmul_case(c));
  expect_no_problems(cases, {kernels::family("matmul_direct")}, "matmul");
}

}  // namespace
}  // namespace tamp::test
