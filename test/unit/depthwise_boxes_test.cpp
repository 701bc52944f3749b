// depthwise_boxes against the reference, alone and with moments of its pixels: what is refused, the pass that wants the moments, and all
// candidates over the stand-in at sizes that fit no tile.
#include "compiler/passes/fuse/defer_normalize.h"
#include "compiler/passes/rewrite.h"
#include "kernels/catalogue.h"
#include "test/kernels/heavy_bench.h"
#include "test/support/arrays.h"
#include "test/support/case_folder.h"
#include "test/support/check_pass.h"

namespace tamp::test {
namespace {

ShapedVDevice small_device() {
  ShapedVDevice vdevice = read_vdevice("cpu").with_inputs();
  vdevice.sms = 5;
  return vdevice;
}

struct Row {
  const char* name;
  Shape in;
  std::vector<int64_t> pads_begin = {3, 3}, pads_end = {3, 3};
  bool moments = true, bias = true, rounded = false;
  Activation activation = Activation::none;
  Lay in_lay = Lay::channels_last, out_lay = Lay::channels_last;
};

Case case_of(const Row& row, DType in = DType::f32, DType out = DType::f32) {
  CaseMaker maker(row.name);
  const int64_t channels = row.in[1];
  Shape made = row.in;
  for (size_t d = 0; d < 2; ++d) made[d + 2] += row.pads_begin[d] + row.pads_end[d] - 6;
  const TensorId x = maker.input(row.in, row.in_lay), w = maker.constant({channels, 1, 7, 7}),
                 bias = row.bias ? maker.constant({channels}) : TensorId(), y = maker.output(made, row.out_lay);
  const std::vector<int64_t> sevens = {7, 7}, ones = {1, 1};
  const Conv conv{sevens, ones, ones, row.pads_begin, row.pads_end, channels};
  const Epilogue epilogue{bias, {}, row.activation, -0.25F, 0.5F};
  Case c;
  if (row.moments) {
    const TensorId pixels = maker.between({made[0], made[2], made[3], channels}),
                   moments = maker.output({made[0] * made[2] * made[3], channels / kMomentColumns, 2});
    std::vector<ROperator> steps = {{"conv", conv, epilogue, {x, w}, {y}, {}},
                                    {"pixels", Transpose{{0, 2, 3, 1}}, {}, {y}, {pixels}, {}},
                                    {"moments", Moments{}, {}, {pixels}, {moments}, {}}};
    std::vector<TensorId> results = {y, moments};
    if (row.rounded) {
      results.push_back(maker.output(made, row.out_lay));
      steps.push_back(passes::make_copy("rounded", y, results[2]));
    }
    c = maker.finish_steps(steps, results);
    if (row.rounded) c = narrowed(std::move(c), {results[2]}, DType::f16);
  } else {
    c = maker.finish(conv, {x, w}, y, epilogue);
  }
  if (in != DType::f32) c = narrowed(std::move(c), {x}, in);
  return out != DType::f32 ? narrowed(std::move(c), {y}, out) : c;
}

std::vector<Row> rows() {
  return {
      {.name = "one pixel", .in = {1, 32, 1, 1}},
      {.name = "one whole tile", .in = {1, 64, 7, 7}},
      {.name = "more rows than a tile", .in = {2, 32, 9, 7}, .bias = false},
      {.name = "half of a box of 16 bits", .in = {1, 96, 13, 17}},
      {.name = "without pads", .in = {1, 64, 12, 15}, .pads_begin = {0, 0}, .pads_end = {0, 0}},
      {.name = "uneven pads", .in = {1, 32, 10, 9}, .pads_begin = {5, 0}, .pads_end = {0, 2}},
      {.name = "rounded beside moments", .in = {2, 96, 9, 10}, .rounded = true},
      {.name = "alone", .in = {1, 40, 9, 16}, .moments = false},
      {.name = "alone with a clip", .in = {2, 96, 8, 10}, .moments = false, .activation = Activation::clip},
      {.name = "alone with relu, without bias", .in = {1, 72, 5, 8}, .moments = false, .bias = false, .activation = Activation::relu},
  };
}

std::vector<RKernel> bodies_of(const Case& c, Precision precision = Precision::tf32) {
  return kernels::candidates_of(kernels::family("depthwise_boxes"), {c.graph, c.graph.rops[0], small_device(), precision});
}

const std::string kBlock = R"(
  x = input f32[1,64,9,9]
  w = const f32[64,1,7,7]
  b = const f32[64]
  g = const f32[64]
  h = const f32[64]
  v = const f32[64,8]
  c = Conv(x, w) {kernel=[7,7], pads=[3,3,3,3], group=64} epilogue{bias=b} -> f32[1,64,9,9]
  t = Transpose(c) {perm=[0,2,3,1]} -> f32[1,9,9,64]
  n = Normalize(t, g, h) {axes=[3], epsilon=0.001} -> f32[1,9,9,64]
  y = MatMul(n, v) epilogue{act=gelu} -> f32[1,9,9,8]
  outputs(y)
)";

Graph deferred(const std::string& text, bool rounds = false) {
  const Graph source = parse_graph(text);
  const auto estimate = [&](const Graph& graph) {
    const bool rounded = print(graph).find("identity") != std::string::npos;
    return 100 - (rounded == rounds ? 10 : -10) * count_rops(graph, "product by moments");
  };
  Graph made = passes::defer_normalize(source, estimate, rounds);
  check_pass(source, made);
  return made;
}

}  // namespace

TEST_CASE("a normalisation of a depthwise convolution's pixels becomes moments of them") {
  const Graph made = deferred(kBlock);
  CHECK(count_rops(made, "depthwise convolution with moments") == 1);
  CHECK(count_rops(made, "product by moments") == 1);
  CHECK(count_rops(made, "Conv") + count_rops(made, "Normalize") + count_rops(made, "MatMul") == 0);
  // In tf32 the product reads the pixels rounded, by a view of its own.
  const Graph rounds = deferred(kBlock, true);
  CHECK(count_rops(rounds, "depthwise convolution with moments") == 1);
  CHECK(count_rops(rounds, "Transpose") == 2);
  // Pixels that become one row after the other.
  const std::string flat = swapped(swapped(swapped(kBlock, "n = Normalize(t,", "r = Reshape(t) -> f32[1,81,64]\n  n = Normalize(r,"),
                                           "{axes=[3], epsilon=0.001} -> f32[1,9,9,64]", "{axes=[2], epsilon=0.001} -> f32[1,81,64]"),
                                   "-> f32[1,9,9,8]", "-> f32[1,81,8]");
  CHECK(count_rops(deferred(flat), "depthwise convolution with moments") == 1);
  const struct {
    const char* why;
    std::string text;
  } others[] = {
      {"an activation", swapped(kBlock, "epilogue{bias=b}", "epilogue{bias=b, act=relu}")},
      {"a residual", swapped(kBlock, "epilogue{bias=b}", "epilogue{bias=b, residual=x}")},
      {"not depthwise", swapped(swapped(kBlock, "w = const f32[64,1,7,7]", "w = const f32[64,2,7,7]"), "group=64", "group=32")},
      {"weights of run time", swapped(kBlock, "w = const", "w = input")},
      {"pixels in another order", swapped(kBlock, "perm=[0,2,3,1]", "perm=[0,3,2,1]")},
  };
  for (const auto& other : others) {
    INFO(other.why);
    CHECK(count_rops(deferred(other.text), "product by moments") == 0);
  }
}

TEST_CASE("depthwise_boxes is for large filters without stride, in memory that boxes can be cut from") {
  const Row usual = {.name = "usual", .in = {1, 64, 9, 9}, .moments = false};
  CHECK_FALSE(bodies_of(case_of(usual)).empty());
  const auto changed = [&](const auto& change) {
    Case c = case_of(usual);
    change(c.graph, c.graph.rops[0]);
    return bodies_of(c);
  };
  CHECK(changed([](Graph&, ROperator& rop) { std::get<Conv>(rop.attrs).dilations = {2, 2}; }).empty());
  CHECK(changed([](Graph&, ROperator& rop) { std::get<Conv>(rop.attrs).strides = {2, 2}; }).empty());
  CHECK(changed([](Graph&, ROperator& rop) { std::get<Conv>(rop.attrs).kernel = {5, 5}; }).empty());
  CHECK(changed([](Graph&, ROperator& rop) { rop.epilogue.activation = Activation::gelu; }).empty());
  CHECK(changed([](Graph& graph, ROperator& rop) {
          graph.buffers[graph.tensor(rop.inputs[0]).place.buffer.index()].kind = BufferKind::input;
        }).empty());
  CHECK(bodies_of(case_of({.name = "rows", .in = {1, 64, 9, 9}, .moments = false, .in_lay = Lay::rows})).empty());
  CHECK(bodies_of(case_of({.name = "result in rows", .in = {1, 64, 9, 9}, .moments = false, .out_lay = Lay::rows})).empty());
  CHECK(bodies_of(case_of({.name = "42 channels", .in = {1, 42, 9, 9}, .moments = false})).empty());
  // Without boxes.
  const Case c = case_of(usual);
  const ShapedVDevice without = read_vdevice("cpu").without_inputs();
  CHECK(kernels::candidates_of(kernels::family("depthwise_boxes"), {c.graph, c.graph.rops[0], without, Precision::tf32}).empty());
}

TEST_CASE("depthwise convolution by boxes agrees with the reference") {
  std::vector<Case> cases;
  for (const Row& row : rows()) {
    cases.push_back(case_of(row));
    if (row.rounded) continue;  // of results of fp32
    cases.push_back(case_of(row, DType::f16, DType::f16));
    cases.push_back(case_of(row, DType::bf16, DType::f32));
    cases.push_back(case_of(row, DType::f32, DType::f16));
    for (const Case& c : cases) CHECK_FALSE(bodies_of(c).empty());
  }
  const std::filesystem::path root = std::filesystem::absolute(__FILE__).parent_path().parent_path().parent_path();
  const CaseFolder folder("tamp_depthwise_boxes");
  for (const std::string& problem :
       run_heavy_cases(cases, {kernels::family("depthwise_boxes")}, {small_device(), Precision::fp16, 1e-2}, root, folder.path()))
    FAIL_CHECK(problem);
}

}  // namespace tamp::test
