// separable_conv against the reference: on the CPU, over the stand-in, candidates of every case (class Sample), at sizes that fit no tile.
// See test/kernels/heavy_bench.h for what else is checked.
#include <fmt/format.h>

#include <cstdlib>
#include <limits>
#include <tuple>

#include "kernels/catalogue.h"
#include "test/kernels/heavy_bench.h"
#include "test/support/case_folder.h"
#include "test/support/catch.h"

namespace tamp::test {
namespace {

ShapedVDevice device(const char* name, int64_t sms) {
  ShapedVDevice vdevice = read_vdevice(name).with_inputs();
  vdevice.sms = sms;
  return vdevice;
}

struct Row {
  const char* name;
  Shape in;
  int64_t out_channels;
  int64_t taps = 0, stride = 1;  // taps 0: no depthwise convolution
  std::vector<int64_t> pads_begin = {0, 0}, pads_end = {0, 0};
  Activation before = Activation::none, between = Activation::none, after = Activation::none;
  int residual = 0;                                           // 1: before the activation, 2: after
  bool depthwise_bias = true, bias = true, infinity = false;  // one infinity in the input
  Lay in_lay = Lay::channels_last, out_lay = Lay::channels_last;
};

Case case_of(const Row& row) {
  CaseMaker maker(row.name);
  Conv conv{{1, 1}, {1, 1}, {1, 1}, {0, 0}, {0, 0}, 1};
  conv.input_activation.kind = row.before;
  Shape out = {row.in[0], row.out_channels, row.in[2], row.in[3]};
  std::vector<float> values(static_cast<size_t>(element_count(row.in)));
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i * 7 % 13) / 13 - 0.5F;
  values[values.size() / 2] = std::numeric_limits<float>::infinity();
  std::vector<TensorId> inputs = {row.infinity ? maker.input(row.in, row.in_lay, values) : maker.input(row.in, row.in_lay),
                                  maker.constant({row.out_channels, row.in[1], 1, 1})};
  if (row.taps > 0) {
    const std::vector<int64_t> kernel = {row.taps, row.taps};
    conv.depthwise = DepthwisePrologue{kernel, {row.stride, row.stride}, {1, 1}, row.pads_begin, row.pads_end, {row.between, -0.25F, 0.5F}};
    if (row.between == Activation::none || row.between == Activation::relu) conv.depthwise->activation = {row.between};
    for (size_t d = 0; d < 2; ++d) out[d + 2] = (row.in[d + 2] + row.pads_begin[d] + row.pads_end[d] - row.taps) / row.stride + 1;
    inputs.push_back(TensorId());
    inputs.push_back(maker.constant({row.in[1], 1, row.taps, row.taps}));
    if (row.depthwise_bias) inputs.push_back(maker.constant({row.in[1]}));
  }
  Epilogue epilogue;
  if (row.bias) epilogue.bias = maker.constant({row.out_channels});
  if (row.residual != 0) epilogue.residual = maker.input(out, row.out_lay);
  epilogue.residual_after_activation = row.residual == 2;
  epilogue.activation = row.after;
  epilogue.a = row.after == Activation::clip ? -0.25F : 0.1F;
  epilogue.b = 0.5F;
  return maker.finish(conv, inputs, maker.output(out, row.out_lay), epilogue);
}

std::vector<Case> all_cases() {
  using enum Activation;
  const std::vector<Row> rows = {
      {.name = "everything one, but channels",
       .in = {1, 4, 1, 1},
       .out_channels = 1,
       .taps = 3,
       .pads_begin = {1, 1},
       .pads_end = {1, 1},
       .depthwise_bias = false,
       .bias = false},
      {.name = "3x3, 32 to 16, clip between",
       .in = {1, 32, 9, 17},
       .out_channels = 16,
       .taps = 3,
       .pads_begin = {1, 1},
       .pads_end = {1, 1},
       .between = clip},
      {.name = "3x3, 32 to 16, an infinity that the clip takes away",
       .in = {1, 32, 9, 17},
       .out_channels = 16,
       .taps = 3,
       .pads_begin = {1, 1},
       .pads_end = {1, 1},
       .between = clip,
       .infinity = true},
      {.name = "3x3, 36 to 33, relu before, residual",
       .in = {1, 36, 7, 7},
       .out_channels = 33,
       .taps = 3,
       .pads_begin = {1, 1},
       .pads_end = {1, 1},
       .before = relu,
       .after = relu,
       .residual = 1},
      {.name = "3x3, 200 to 72, batch 2",
       .in = {2, 200, 5, 10},
       .out_channels = 72,
       .taps = 3,
       .pads_begin = {1, 1},
       .pads_end = {1, 1},
       .between = relu,
       .after = hard_swish,
       .residual = 2},
      {.name = "3x3 stride 2, 64 to 40, uneven pads",
       .in = {1, 64, 14, 21},
       .out_channels = 40,
       .taps = 3,
       .stride = 2,
       .pads_begin = {0, 1},
       .pads_end = {2, 0},
       .between = clip},
      {.name = "3x3 stride 2, 420 to 20",
       .in = {1, 420, 6, 5},
       .out_channels = 20,
       .taps = 3,
       .stride = 2,
       .pads_begin = {1, 1},
       .pads_end = {1, 1},
       .residual = 1,
       .depthwise_bias = false},
      {.name = "5x5, 44 to 48, relu before",
       .in = {1, 44, 11, 9},
       .out_channels = 48,
       .taps = 5,
       .pads_begin = {2, 2},
       .pads_end = {2, 2},
       .before = relu,
       .after = relu},
      {.name = "5x5 stride 2, 100 to 30",
       .in = {1, 100, 9, 16},
       .out_channels = 30,
       .taps = 5,
       .stride = 2,
       .pads_begin = {2, 2},
       .pads_end = {2, 2},
       .before = relu,
       .after = gelu},
      {.name = "7x7, 68 to 24",
       .in = {1, 68, 8, 8},
       .out_channels = 24,
       .taps = 7,
       .pads_begin = {3, 3},
       .pads_end = {3, 3},
       .before = relu},
      {.name = "7x7 stride 2, 32 to 40",
       .in = {1, 32, 13, 12},
       .out_channels = 40,
       .taps = 7,
       .stride = 2,
       .pads_begin = {3, 3},
       .pads_end = {3, 3}},
      {.name = "relu and 1x1, 96 to 64", .in = {1, 96, 6, 20}, .out_channels = 64, .before = relu, .after = clip, .residual = 2},
      {.name = "relu and 1x1 on one pixel", .in = {3, 8, 1, 1}, .out_channels = 5, .before = relu, .bias = false},
      {.name = "slices, 3x3, 64 to 64",
       .in = {1, 64, 10, 12},
       .out_channels = 64,
       .taps = 3,
       .before = relu,
       .between = relu,
       .residual = 1,
       .in_lay = Lay::slice,
       .out_lay = Lay::slice},
      {.name = "padded pixels, 3x3, 36 to 33, residual",
       .in = {1, 36, 9, 10},
       .out_channels = 33,
       .taps = 3,
       .pads_begin = {1, 1},
       .pads_end = {1, 1},
       .after = clip,
       .residual = 1,
       .out_lay = Lay::padded},
      {.name = "padded pixels, 5x5, 78 to 78, residual",
       .in = {1, 78, 5, 9},
       .out_channels = 78,
       .taps = 5,
       .pads_begin = {2, 2},
       .pads_end = {2, 2},
       .before = relu,
       .after = silu,
       .residual = 2,
       .in_lay = Lay::padded,
       .out_lay = Lay::padded},
      {.name = "NCHW out, 3x3, 32 to 12",
       .in = {1, 32, 6, 6},
       .out_channels = 12,
       .taps = 3,
       .after = leaky_relu,
       .residual = 2,
       .out_lay = Lay::rows},
  };
  std::vector<Case> cases;
  for (const Row& row : rows) cases.push_back(case_of(row));
  return cases;
}

// With inputs of 16 bits, where they lie so that boxes can be cut; a body that multiplies by zeros makes more of an infinity than the
// reference does.
std::vector<Case> narrow_cases(DType in, DType out) {
  using enum Activation;
  std::vector<Case> cases;
  for (const int64_t taps : {3, 5, 7}) {
    for (const int64_t stride : {1, 2}) {
      const std::vector<int64_t> pads = {taps / 2, taps / 2};
      const std::string name = fmt::format("{} taps, stride {}", taps, stride);
      cases.push_back(case_of({.name = name.c_str(),
                               .in = {2, 40, 9, 13},
                               .out_channels = 36,
                               .taps = taps,
                               .stride = stride,
                               .pads_begin = pads,
                               .pads_end = pads,
                               .before = stride == 1 ? relu : none,
                               .between = stride == 1 ? none : clip,
                               .after = relu,
                               .residual = 1}));
      cases.push_back(case_of({.name = (name + ", many channels").c_str(),
                               .in = {1, 136, 5, 7},
                               .out_channels = 20,
                               .taps = taps,
                               .stride = stride,
                               .pads_begin = pads,
                               .pads_end = pads,
                               .between = relu,
                               .after = hard_swish,
                               .residual = 2,
                               .depthwise_bias = false}));
    }
  }
  cases.push_back(case_of({.name = "relu and 1x1", .in = {1, 104, 6, 20}, .out_channels = 64, .before = relu, .after = clip}));
  cases.push_back(case_of({.name = "relu and 1x1, one pixel", .in = {3, 8, 1, 1}, .out_channels = 5, .before = relu, .bias = false}));
  cases.push_back(case_of({.name = "residual and result are slices",
                           .in = {1, 64, 10, 12},
                           .out_channels = 64,
                           .taps = 3,
                           .before = relu,
                           .between = relu,
                           .residual = 1,
                           .out_lay = Lay::slice}));
  cases.push_back(case_of({.name = "padded pixels",
                           .in = {1, 78, 5, 9},
                           .out_channels = 33,
                           .taps = 5,
                           .pads_begin = {2, 1},
                           .pads_end = {1, 2},
                           .after = silu,
                           .residual = 1,
                           .in_lay = Lay::padded,
                           .out_lay = Lay::padded}));
  cases.push_back(case_of({.name = "NCHW out", .in = {1, 32, 6, 6}, .out_channels = 12, .taps = 3, .residual = 2, .out_lay = Lay::rows}));
  for (Case& c : cases) c = narrowed(std::move(c), in, out);
  return cases;
}

std::vector<std::string> problems_of(const std::vector<Case>& cases, const HeavyRun& run, const std::string& name) {
  const std::filesystem::path root = std::filesystem::absolute(__FILE__).parent_path().parent_path().parent_path();
  const CaseFolder folder("tamp_separable_" + name);
  const std::vector<std::string> problems = run_heavy_cases(cases, {kernels::family("separable_conv")}, run, root, folder.path());
  return problems;
}

std::vector<RKernel> offers(const Case& c, const ShapedVDevice& vdevice, Precision precision) {
  return kernels::candidates_of(kernels::family("separable_conv"), {c.graph, c.graph.rops[0], vdevice, precision});
}

// As a pass asks before tensors have places.
std::optional<Estimate> estimate_of(Case c, const ShapedVDevice& vdevice, Precision precision) {
  for (Tensor& tensor : c.graph.tensors) tensor.place = {};
  return kernels::estimate({c.graph, c.graph.rops[0], vdevice, precision});
}

}  // namespace

TEST_CASE("depthwise and pointwise convolutions in one agree with the reference in tf32") {
  for (const std::string& problem : problems_of(all_cases(), {device("cpu", 4), Precision::tf32, 2e-2}, "tf32")) FAIL_CHECK(problem);
}

TEST_CASE("depthwise and pointwise convolutions in one write 16 bits, and add residuals of 16 bits") {
  const HeavyRun run = {device("cpu", 4), Precision::fp16, 2e-2};
  for (const std::string& problem : problems_of(narrowed(all_cases(), false, true), run, "narrow")) FAIL_CHECK(problem);
}

TEST_CASE("depthwise and pointwise convolutions in one read 16 bits") {
  for (const auto& [dtype, precision, tolerance] :
       {std::tuple(DType::f16, Precision::fp16, 2e-2), std::tuple(DType::bf16, Precision::bf16, 1e-1)}) {
    std::vector<Case> cases = narrow_cases(dtype, dtype);
    if (dtype == DType::f16)
      for (Case& c : narrow_cases(dtype, DType::f32)) cases.push_back(std::move(c));
    for (const Case& c : cases) {
      INFO(c.name);
      CHECK_FALSE(offers(c, device("cpu", 4), precision).empty());
    }
    for (const std::string& problem : problems_of(cases, {device("cpu", 4), precision, tolerance}, fmt::format("in_{}", name_of(dtype))))
      FAIL_CHECK(problem);
  }
}

TEST_CASE("every tile of separable_conv fits its vDevice, and is what the pass was promised") {
  for (const std::string& name : builtin_vdevices()) {
    const ShapedVDevice vdevice = read_vdevice(name).with_inputs();
    for (const Case& c : all_cases()) {
      const std::vector<RKernel> rkernels = offers(c, vdevice, Precision::tf32);
      INFO(name << " " << c.name);
      CHECK((!estimate_of(c, vdevice, Precision::tf32) || !rkernels.empty()));
      for (const RKernel& rkernel : rkernels) {
        INFO(rkernel.name);
        const Phase& phase = rkernel.phases.at(0);
        CHECK(phase.work_bytes <= vdevice.work_bytes());
        CHECK(phase.ring.chunk_bytes <= vdevice.weight_stage_bytes);
        CHECK(phase.ring.chunk_bytes % 16 == 0);
        CHECK(phase.boxes->boxes_per_chunk * phase.boxes->box_bytes() <= vdevice.input_stage_bytes);
        CHECK(phase.rtasks > 0);
      }
    }
  }
}

TEST_CASE("separable_conv offers nothing that its body cannot do") {
  const ShapedVDevice cpu = device("cpu", 4);
  using enum Activation;
  const Row fine = {.name = "fine", .in = {1, 32, 8, 8}, .out_channels = 32, .taps = 3};
  CHECK_FALSE(offers(case_of(fine), cpu, Precision::tf32).empty());
  CHECK(offers(case_of(fine), cpu, Precision::fp32).empty());
  CHECK_FALSE(offers(narrowed(case_of(fine), DType::f16, DType::f16), cpu, Precision::fp16).empty());
  CHECK(offers(narrowed(case_of(fine), DType::f16, DType::bf16), cpu, Precision::fp16).empty());
  CHECK(offers(narrowed(case_of(fine), DType::f16, DType::f16), cpu, Precision::tf32).empty());
  const Row halves = {.name = "channels that are no whole cells of 16 bits", .in = {1, 36, 8, 8}, .out_channels = 32, .taps = 3};
  CHECK(offers(narrowed(case_of(halves), DType::f16, DType::f16), cpu, Precision::fp16).empty());
  CHECK(offers(case_of(fine), device("t4", 4), Precision::tf32).empty());
  const Row rows[] = {
      {.name = "no prologue", .in = {1, 32, 8, 8}, .out_channels = 32},
      {.name = "channels that are no whole cells", .in = {1, 30, 8, 8}, .out_channels = 32, .taps = 3},
      {.name = "an even filter", .in = {1, 32, 8, 8}, .out_channels = 32, .taps = 4},
      {.name = "stride 3", .in = {1, 32, 8, 8}, .out_channels = 32, .taps = 3, .stride = 3},
      {.name = "another activation before", .in = {1, 32, 8, 8}, .out_channels = 32, .taps = 3, .before = leaky_relu},
      {.name = "another activation between", .in = {1, 32, 8, 8}, .out_channels = 32, .taps = 3, .between = sigmoid},
      {.name = "reversed memory", .in = {1, 32, 8, 8}, .out_channels = 32, .taps = 3, .out_lay = Lay::reversed},
      {.name = "NCHW in", .in = {1, 32, 8, 8}, .out_channels = 32, .taps = 3, .in_lay = Lay::rows},
  };
  for (const Row& row : rows) {
    INFO(row.name);
    CHECK(offers(case_of(row), cpu, Precision::tf32).empty());
  }
  Case dilated = case_of(fine);
  std::get<Conv>(dilated.graph.rops[0].attrs).depthwise->dilations = {2, 2};
  CHECK(offers(dilated, cpu, Precision::tf32).empty());
}

TEST_CASE("a large map with many output channels keeps its depthwise convolution to itself") {
  const ShapedVDevice h200 = read_vdevice("h200").with_inputs();
  const Case small =
      case_of({.name = "small", .in = {1, 384, 14, 14}, .out_channels = 64, .taps = 3, .pads_begin = {1, 1}, .pads_end = {1, 1}});
  const Case large =
      case_of({.name = "large", .in = {1, 256, 80, 80}, .out_channels = 512, .taps = 5, .pads_begin = {2, 2}, .pads_end = {2, 2}});
  const std::optional<Estimate> estimate = estimate_of(small, h200, Precision::tf32);
  REQUIRE(estimate);
  CHECK(estimate->us > 0);
  CHECK(estimate->us <= h200.cost("separable_conv.two_roperators_us"));
  CHECK_FALSE(estimate_of(small, h200, Precision::fp32));
  CHECK_FALSE(estimate_of(large, h200, Precision::tf32));
  // What is worth it is the device's to say.
  ShapedVDevice dear = h200;
  dear.costs["separable_conv.two_roperators_us"] = estimate->us / 2;
  CHECK_FALSE(estimate_of(small, dear, Precision::tf32));
}

}  // namespace tamp::test
