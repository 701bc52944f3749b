// staged_conv against the reference: on the CPU, over the stand-in, candidates of every case (class Sample), at sizes that fit no tile, no
// box and no chunk, in every precision that it has. See test/kernels/heavy_bench.h for what is checked; what a rTask has not said it reads
// is NaN there, so a box that reaches too far shows.
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <map>
#include <set>

#include "kernels/catalogue.h"
#include "kernels/product/staged_conv_plan.h"
#include "test/kernels/conv_cases.h"
#include "test/kernels/heavy_bench.h"
#include "test/support/case_folder.h"
#include "test/support/catch.h"

namespace tamp::test {
namespace {

ShapedVDevice device(int64_t sms) {
  ShapedVDevice vdevice = read_vdevice("cpu").with_inputs();
  vdevice.sms = sms;  // small cases split and fill too
  return vdevice;
}

std::vector<Case> cases() {
  const std::vector<ConvRow> rows = {
      {.name = "1x1, 64 to 65", .in = {1, 64, 5, 7}, .out_channels = 65, .kernel = {1, 1}, .activation = Activation::relu},
      {.name = "1x1, long k, small map", .in = {1, 328, 7, 7}, .out_channels = 72, .kernel = {1, 1}, .residual = 1},
      {.name = "1x1 stride 2, batch 3",
       .in = {3, 12, 9, 9},
       .out_channels = 24,
       .kernel = {1, 1},
       .strides = {2, 2},
       .activation = Activation::hard_sigmoid},
      {.name = "1x1 with padding", .in = {1, 8, 5, 5}, .out_channels = 20, .kernel = {1, 1}, .pads_begin = {1, 0}, .pads_end = {2, 1}},
      {.name = "1x1 with padding behind columns", .in = {1, 36, 6, 5}, .out_channels = 20, .kernel = {1, 1}, .pads_end = {0, 3}},
      {.name = "1x1 with padding behind rows",
       .in = {2, 36, 6, 5},
       .out_channels = 20,
       .kernel = {1, 1},
       .pads_end = {3, 0},
       .residual = 1},
      {.name = "3x3, one pixel",
       .in = {1, 32, 1, 1},
       .out_channels = 16,
       .kernel = {3, 3},
       .pads_begin = {1, 1},
       .pads_end = {1, 1},
       .bias = false},
      {.name = "3x3, 16 to 30, batch 2",
       .in = {2, 16, 9, 6},
       .out_channels = 30,
       .kernel = {3, 3},
       .pads_begin = {1, 1},
       .pads_end = {1, 1},
       .activation = Activation::sigmoid,
       .residual = 2},
      {.name = "3x3 stride 2, 100 to 40",
       .in = {1, 100, 11, 13},
       .out_channels = 40,
       .kernel = {3, 3},
       .strides = {2, 2},
       .pads_begin = {0, 1},
       .pads_end = {2, 0},
       .activation = Activation::hard_swish},
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
      {.name = "3x3, out in NCHW",
       .in = {1, 36, 8, 8},
       .out_channels = 33,
       .kernel = {3, 3},
       .pads_begin = {1, 1},
       .pads_end = {1, 1},
       .out_lay = Lay::rows,
       .residual = 1},
      {.name = "1x7", .in = {1, 40, 6, 17}, .out_channels = 24, .kernel = {1, 7}, .pads_begin = {0, 3}, .pads_end = {0, 3}},
      {.name = "5x5, 48 to 64",
       .in = {1, 48, 9, 10},
       .out_channels = 64,
       .kernel = {5, 5},
       .pads_begin = {2, 2},
       .pads_end = {2, 2},
       .activation = Activation::clip},
      {.name = "3x3, two groups of 48",
       .in = {1, 96, 7, 5},
       .out_channels = 72,
       .kernel = {3, 3},
       .pads_begin = {1, 1},
       .pads_end = {1, 1},
       .group = 2,
       .activation = Activation::relu,
       .residual = 1},
      {.name = "3x3, 16 groups of 4",
       .in = {1, 64, 7, 5},
       .out_channels = 64,
       .kernel = {3, 3},
       .pads_begin = {1, 1},
       .pads_end = {1, 1},
       .group = 16,
       .activation = Activation::relu},
      {.name = "3x3 stride 2, 3 groups of 8 to 16",
       .in = {2, 24, 9, 9},
       .out_channels = 48,
       .kernel = {3, 3},
       .strides = {2, 2},
       .pads_begin = {1, 1},
       .pads_end = {1, 1},
       .group = 3,
       .residual = 2},
      {.name = "one dimension",
       .in = {1, 16, 50},
       .out_channels = 20,
       .kernel = {5},
       .strides = {3},
       .dilations = {2},
       .pads_begin = {4},
       .pads_end = {1},
       .activation = Activation::leaky_relu},
  };
  std::vector<Case> out;
  for (const ConvRow& row : rows) out.push_back(conv_case(row));
  CaseMaker maker("matrix product, batches");
  MatMul matmul;
  out.push_back(maker.finish(matmul, {maker.input({2, 3, 5, 64}), maker.constant({1, 64, 36})}, maker.output({2, 3, 5, 36})));
  return out;
}

void expect_no_problems(const std::vector<Case>& those, const HeavyRun& run, const std::string& name) {
  const std::filesystem::path root = std::filesystem::absolute(__FILE__).parent_path().parent_path().parent_path();
  const CaseFolder folder("tamp_staged_" + name);
  for (const std::string& problem : run_heavy_cases(those, {kernels::family("staged_conv")}, run, root, folder.path())) FAIL_CHECK(problem);
}

void expect_no_problems(const HeavyRun& run, const std::string& name) {
  const std::filesystem::path root = std::filesystem::absolute(__FILE__).parent_path().parent_path().parent_path();
  const CaseFolder folder("tamp_staged_" + name);
  for (const std::string& problem : run_heavy_cases(cases(), {kernels::family("staged_conv")}, run, root, folder.path()))
    FAIL_CHECK(problem);
}

TEST_CASE("convolutions by boxes agree with the reference in tf32") { expect_no_problems({device(4), Precision::tf32, 2e-2}, "tf32"); }
TEST_CASE("convolutions by boxes agree with the reference in fp16") { expect_no_problems({device(9), Precision::fp16, 2e-2}, "fp16"); }
TEST_CASE("convolutions by boxes agree with the reference in bf16") { expect_no_problems({device(9), Precision::bf16, 1.5e-1}, "bf16"); }

// Cases of 16 bits that boxes can be cut from: pixels begin at multiples of 16 bytes.
std::vector<Case> narrow_cases(bool in, bool out, const ShapedVDevice& vdevice, DType dtype) {
  std::vector<Case> kept;
  const ConvRow deep = {.name = "3x3, 136 to 130, 9 x 17",
                        .in = {1, 136, 9, 17},
                        .out_channels = 130,
                        .kernel = {3, 3},
                        .pads_begin = {1, 1},
                        .pads_end = {1, 1},
                        .activation = Activation::relu,
                        .residual = 1};
  const ConvRow batch = {.name = "1x1, 72 to 200, batch 5", .in = {5, 72, 7, 9}, .out_channels = 200, .kernel = {1, 1}, .residual = 1};
  const ConvRow stride = {.name = "3x3, stride 2, 72 to 136, 11 x 22",
                          .in = {2, 72, 11, 22},
                          .out_channels = 136,
                          .kernel = {3, 3},
                          .strides = {2, 2},
                          .pads_begin = {1, 1},
                          .pads_end = {1, 1},
                          .activation = Activation::relu,
                          .residual = 1};
  const ConvRow bare = {
      .name = "3x2, stride 2, no padding, 64 to 64, 9 x 20", .in = {1, 64, 9, 20}, .out_channels = 64, .kernel = {3, 2}, .strides = {1, 2}};
  const ConvRow wide = {.name = "5x7, stride 2, 64 to 72, 12 x 14",
                        .in = {1, 64, 12, 14},
                        .out_channels = 72,
                        .kernel = {5, 7},
                        .strides = {2, 2},
                        .pads_begin = {2, 3},
                        .pads_end = {2, 3}};
  std::vector<Case> all = cases();
  all.push_back(conv_case(stride));
  all.push_back(conv_case(bare));
  all.push_back(conv_case(wide));
  all.push_back(conv_case(deep));
  all.push_back(conv_case(batch));
  for (const Case& c : all) {
    Case narrow = narrowed(c, in ? dtype : DType::f32, out ? dtype : DType::f32);
    const Precision precision = dtype == DType::f16 ? Precision::fp16 : Precision::bf16;
    if (!kernels::candidates_of(kernels::family("staged_conv"), {narrow.graph, narrow.graph.rops[0], vdevice, precision}).empty())
      kept.push_back(std::move(narrow));
  }
  CHECK(kept.size() > 8);
  return kept;
}

TEST_CASE("convolutions by boxes read 16 bits, write them, and do both") {
  const ShapedVDevice vdevice = device(9);
  expect_no_problems(narrow_cases(true, true, vdevice, DType::f16), {vdevice, Precision::fp16, 2e-2}, "narrow");
  expect_no_problems(narrow_cases(true, false, vdevice, DType::bf16), {vdevice, Precision::bf16, 1.5e-1}, "narrow_in");
  expect_no_problems(narrow_cases(false, true, vdevice, DType::f16), {vdevice, Precision::fp16, 2e-2}, "narrow_out");
}

TEST_CASE("to results of fp32 a residual of the inputs' 16 bits is added, without and with wgmma's weights") {
  ShapedVDevice vdevice = device(9);
  for (const bool wide : {false, true}) {
    vdevice.wide_products = vdevice.more_tiles = wide;
    std::vector<Case> mixed;
    for (Case c : cases()) {
      const TensorId residual = c.graph.rops[0].epilogue.residual;
      if (!residual.valid()) continue;
      c = narrowed(narrowed(std::move(c), DType::f16, DType::f32), {residual}, DType::f16);
      const std::vector<RKernel> found =
          kernels::candidates_of(kernels::family("staged_conv"), {c.graph, c.graph.rops[0], vdevice, Precision::fp16});
      for (const RKernel& rkernel : found) CHECK(kernels::staged::config_of(rkernel).splits == 1);
      if (!found.empty()) mixed.push_back(std::move(c));
    }
    CHECK(mixed.size() > 1);
    expect_no_problems(mixed, {vdevice, Precision::fp16, 2e-2}, wide ? "mixed_wide" : "mixed");
  }
}

TEST_CASE("weights by rows, as wgmma reads them, give the same, in tiles of 64 and of 128 channels") {
  ShapedVDevice vdevice = device(4);
  vdevice.wide_products = vdevice.more_tiles = vdevice.even_stages = true;
  const std::vector<Case> narrow = narrow_cases(true, true, vdevice, DType::f16);
  std::set<std::string> tiles, by_pairs, sums;
  for (const Case& c : narrow) {
    for (const RKernel& rkernel :
         kernels::candidates_of(kernels::family("staged_conv"), {c.graph, c.graph.rops[0], vdevice, Precision::fp16})) {
      const kernels::staged::Config config = kernels::staged::config_of(rkernel);
      const kernels::staged::Shape& shape = kernels::staged::shape_of(config);
      if (config.deep != 0) tiles.insert(fmt::format("{}x{}", shape.channels(), shape.pixels()));
      if (config.pairs != 0) by_pairs.insert(c.name);
      if (config.splits > 1) sums.insert(rkernel.phases[1].body);
    }
  }
  CHECK(sums == std::set<std::string>{"rk::split_k_sum", "rk::split_k_sum_rows"});
  CHECK(tiles == std::set<std::string>{"128x128", "128x144", "128x192", "128x224", "128x64", "64x128", "64x160", "64x64", "64x96"});
  CHECK(by_pairs.size() >= 3);
  expect_no_problems(narrow, {vdevice, Precision::fp16, 2e-2}, "deep");
}

TEST_CASE("tiles of 128 channels in tf32 give the same, in as many rounds as they take") {
  ShapedVDevice vdevice = device(4);
  vdevice.wide_products = true;
  const ConvRow rows[] = {
      {.name = "3x3, 72 to 130, 9 x 33",
       .in = {1, 72, 9, 33},
       .out_channels = 130,
       .kernel = {3, 3},
       .pads_begin = {1, 1},
       .pads_end = {1, 1},
       .activation = Activation::relu,
       .residual = 1},
      {.name = "1x1, 40 to 200, batch 5", .in = {5, 40, 7, 9}, .out_channels = 200, .kernel = {1, 1}, .residual = 1},
      {.name = "1x1, 64 to 130, gelu", .in = {1, 64, 14, 15}, .out_channels = 130, .kernel = {1, 1}, .activation = Activation::gelu},
      {.name = "1x1, 64 to 130, gelu by tanh",
       .in = {1, 64, 14, 15},
       .out_channels = 130,
       .kernel = {1, 1},
       .activation = Activation::gelu_tanh},
      {.name = "3x3, stride 2, 40 to 136, 11 x 22",
       .in = {2, 40, 11, 22},
       .out_channels = 136,
       .kernel = {3, 3},
       .strides = {2, 2},
       .pads_begin = {1, 1},
       .pads_end = {1, 1}},
  };
  std::vector<Case> wide;
  std::set<std::string> tiles;
  bool pairs = false;
  for (const ConvRow& row : rows) {
    wide.push_back(conv_case(row));
    for (const RKernel& rkernel :
         kernels::candidates_of(kernels::family("staged_conv"), {wide.back().graph, wide.back().graph.rops[0], vdevice, Precision::tf32})) {
      const kernels::staged::Config config = kernels::staged::config_of(rkernel);
      const kernels::staged::Shape& shape = kernels::staged::shape_of(config);
      if (config.deep == 0) continue;
      tiles.insert(fmt::format("{}x{}", shape.channels(), shape.pixels()));
      pairs = pairs || config.pairs != 0;
      CHECK(rkernel.phases[0].many_registers);
    }
  }
  CHECK(tiles == std::set<std::string>{"128x128", "128x192"});
  CHECK(pairs);
  expect_no_problems(wide, {vdevice, Precision::tf32, 2e-2}, "wide");
}

// The packed data of each candidate, as words, when the weights of output channel n have been multiplied by 2^exponent(n).
template <class Exponent>
std::vector<std::vector<float>> packed(const Exponent& exponent) {
  Case c = conv_case({.name = "scales", .in = {1, 40, 5, 5}, .out_channels = 36, .kernel = {3, 3}, .bias = false});
  Tensor& tensor = c.graph.tensor(c.graph.rops[0].inputs[1]);
  std::vector<float> weights(tensor.data->size() / 4);
  std::memcpy(weights.data(), tensor.data->data(), tensor.data->size());
  for (size_t i = 0; i < weights.size(); ++i) weights[i] = std::ldexp(weights[i], exponent(static_cast<int>(i / (40 * 9))));
  auto data = std::make_shared<Bytes>(tensor.data->size());
  std::memcpy(data->data(), weights.data(), data->size());
  tensor.data = data;
  std::vector<std::vector<float>> out;
  for (const RKernel& rkernel :
       kernels::candidates_of(kernels::family("staged_conv"), {c.graph, c.graph.rops[0], device(4), Precision::tf32})) {
    const Bytes bytes = kernels::family("staged_conv").pack(c.graph, c.graph.rops[0], rkernel, 0);
    out.emplace_back(bytes.size() / 4);
    std::memcpy(out.back().data(), bytes.data(), bytes.size());
  }
  return out;
}

TEST_CASE("a channel's weights in 16 bits are the same whatever power of two they are multiplied by; its scale takes it") {
  const auto exponent = [](int n) { return n % 3 == 0 ? 90 : n % 3 == 1 ? -90 : 0; };
  const auto plain = packed([](int) { return 0; }), scaled = packed(exponent);
  REQUIRE(plain.size() == scaled.size());
  REQUIRE(!plain.empty());
  for (size_t i = 0; i < plain.size(); ++i) {
    const size_t channels = (36 + 31) / 32 * 32, others = (36 + 15) / 16 * 16;  // padded to tiles of 64, 32 or 16
    REQUIRE(plain[i].size() == scaled[i].size());
    size_t scales = 0;
    for (const size_t count : {channels, others}) {
      const float* const a = plain[i].data() + plain[i].size() - count;
      const float* const b = scaled[i].data() + scaled[i].size() - count;
      bool right = true;
      for (int n = 0; n < 36; ++n) right = right && a[n] > 0 && b[n] == std::ldexp(a[n], exponent(n));
      if (right && std::memcmp(plain[i].data(), scaled[i].data(), (plain[i].size() - count) * 4) == 0) scales = count;
    }
    CHECK(scales > 0);
  }
}

TEST_CASE("every candidate fits the vDevices that copy boxes") {
  for (const std::string& name : builtin_vdevices()) {
    const ShapedVDevice vdevice = read_vdevice(name).with_inputs();
    for (const Case& c : cases()) {
      const std::vector<RKernel> rkernels =
          kernels::candidates_of(kernels::family("staged_conv"), {c.graph, c.graph.rops[0], vdevice, Precision::tf32});
      INFO(name << " " << c.name);
      CHECK(rkernels.empty() == (vdevice.input_stages == 0));
      for (const RKernel& rkernel : rkernels) {
        const Phase& phase = rkernel.phases[0];
        INFO(rkernel.name);
        REQUIRE(phase.boxes.has_value());
        CHECK(phase.work_bytes <= vdevice.work_bytes());
        CHECK(phase.ring.chunk_bytes <= vdevice.weight_stage_bytes);
        CHECK(phase.boxes->boxes_per_chunk * phase.boxes->box_bytes() <= vdevice.input_stage_bytes);
        CHECK(phase.rtasks == phase.ring.blocks * phase.boxes->tiles());
      }
    }
  }
}

TEST_CASE("weights that fp16 cannot hold are those of a product in tf32") {
  const auto all_are = [](Precision wanted, float factor, float one) {
    Case c = conv_case({.name = "factor", .in = {1, 40, 5, 5}, .out_channels = 36, .kernel = {3, 3}});
    Tensor& tensor = c.graph.tensor(c.graph.rops[0].inputs[1]);
    std::vector<float> weights(tensor.data->size() / 4, factor);
    weights[7] *= one;  // of them
    auto data = std::make_shared<Bytes>(tensor.data->size());
    std::memcpy(data->data(), weights.data(), data->size());
    tensor.data = data;
    const auto rkernels = kernels::candidates_of(kernels::family("staged_conv"), {c.graph, c.graph.rops[0], device(4), Precision::fp16});
    return !rkernels.empty() && std::all_of(rkernels.begin(), rkernels.end(), [&](const RKernel& rkernel) {
      return rkernel.config_value("precision") == static_cast<int64_t>(wanted);
    });
  };
  CHECK(all_are(Precision::fp16, 1, 1));
  CHECK(all_are(Precision::fp16, 0, 1));
  CHECK(all_are(Precision::fp16, 60000, 1));
  CHECK(all_are(Precision::fp16, 1e-9F, 1e9F));  // small beside its largest
  CHECK(all_are(Precision::tf32, 1, -1e5F));
  CHECK(all_are(Precision::tf32, 1e5F, 1));
  CHECK(all_are(Precision::tf32, 1e-5F, 1));
}

TEST_CASE("what boxes cannot be cut from is not offered") {
  const auto count = [](const Case& c, Precision precision) {
    return kernels::candidates_of(kernels::family("staged_conv"), {c.graph, c.graph.rops[0], device(4), precision}).size();
  };
  const ConvRow good = {.name = "good", .in = {1, 16, 8, 8}, .out_channels = 16, .kernel = {3, 3}};
  CHECK(count(conv_case(good), Precision::tf32) > 0);
  CHECK(count(conv_case(good), Precision::fp32) == 0);
  ConvRow row = good;
  row.in_lay = Lay::rows;  // NCHW
  CHECK(count(conv_case(row), Precision::tf32) == 0);
  row = good;
  row.in = {1, 18, 8, 8};  // pixels begin anywhere
  CHECK(count(conv_case(row), Precision::tf32) == 0);
  row = good;
  row.group = 16;  // depthwise
  CHECK(count(conv_case(row), Precision::tf32) == 0);
}

}  // namespace
}  // namespace tamp::test
