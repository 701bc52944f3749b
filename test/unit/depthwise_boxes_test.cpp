// depthwise_boxes against the reference, alone and with moments (MomentConv): what is refused, the reference's moments, the pass that makes
// a MomentConv, and all candidates over the stand-in at sizes that fit no tile.
#include "kernels/depthwise/depthwise_boxes.h"

#include "compiler/passes/fuse/defer_normalize.h"
#include "test/kernels/heavy_bench.h"
#include "test/support/arrays.h"
#include "test/support/case_folder.h"
#include "test/support/check_pass.h"

namespace tamp::test {
namespace {

using Catch::Matchers::Contains;

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
  Case c;
  if (row.moments) {
    std::vector<TensorId> inputs = {x, w};
    if (row.bias) inputs.push_back(bias);
    const TensorId moments = maker.output({made[0] * made[2] * made[3], channels / kMomentColumns, 2});
    const TensorId rounded = row.rounded ? maker.output(made, row.out_lay) : TensorId();
    c = maker.finish(MomentConv{sevens, ones, ones, row.pads_begin, row.pads_end, row.rounded}, inputs, y);
    for (const TensorId id : {moments, rounded}) {
      if (!id.valid()) continue;
      c.graph.rops[0].outputs.push_back(id);
      c.graph.outputs.push_back(id);
    }
    if (row.rounded) c = narrowed(std::move(c), {rounded}, DType::f16);
  } else {
    Epilogue epilogue;
    epilogue.bias = bias;
    epilogue.activation = row.activation;
    epilogue.a = -0.25F;
    epilogue.b = 0.5F;
    c = maker.finish(Conv{sevens, ones, ones, row.pads_begin, row.pads_end, channels}, {x, w}, y, epilogue);
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
  return kernels::depthwise_boxes().candidates({c.graph, c.graph.rops[0], small_device(), precision});
}

}  // namespace

TEST_CASE("MomentConv gives the moments of each 32 channels of a pixel, rows of pixels in the order of the map") {
  // One tap of the filter counts, so y is x; of its 64 channels the first 16 are 3, the next 16 are 1, and all others 2. Pixel (1, 0) is
  // ten times as large.
  std::vector<float> x(static_cast<size_t>(64 * 2 * 2), 2.0F), w(static_cast<size_t>(64 * 49), 0.0F);
  for (size_t i = 0; i < 32 * 4; ++i) x[i] = i < 16 * 4 ? 3 : 1;
  for (size_t c = 0; c < 64; ++c) x[c * 4 + 2] *= 10, w[c * 49 + 24] = 1;
  CaseMaker maker("by hand");
  const TensorId in = maker.input({1, 64, 2, 2}, Lay::rows, x), filter = maker.constant({64, 1, 7, 7}, Lay::rows, w),
                 y = maker.output({1, 64, 2, 2}), moments = maker.output({4, 2, 2});
  Case c = maker.finish(MomentConv{{7, 7}, {1, 1}, {1, 1}, {3, 3}, {3, 3}}, {in, filter}, y);
  c.graph.rops[0].outputs.push_back(moments);
  const auto results = ops::evaluate(c.graph, c.graph.rops[0], [&](TensorId id) -> const ops::Value& { return c.values[id.index()]; });
  check_near(floats_of(results[0]), x);
  check_near(floats_of(results[1]), {2, 32, 2, 0, 2, 32, 2, 0, 20, 3200, 20, 0, 2, 32, 2, 0});
}

TEST_CASE("MomentConv says what does not fit") {
  const auto refused = [](const std::vector<Shape>& shapes) {
    ops::OperandList operands;
    for (const Shape& shape : shapes) operands.push_back(ops::Operand{{DType::f32, shape}, nullptr});
    try {
      ops::infer(MomentConv{{7, 7}, {1, 1}, {1, 1}, {3, 3}, {3, 3}}, operands);
    } catch (const std::exception& error) {
      return std::string(error.what());
    }
    return std::string("taken");
  };
  CHECK(refused({{1, 64, 9, 9}, {64, 1, 7, 7}, {64}}) == "taken");
  CHECK_THAT(refused({{1, 64, 9}, {64, 1, 7}}), Contains("input X has shape [1,64,9], expected [N,C,H,W]"));
  CHECK_THAT(refused({{1, 64, 9, 9}, {128, 1, 7, 7}}), Contains("expected a filter for each of 64 channels"));
  CHECK_THAT(refused({{1, 48, 9, 9}, {48, 1, 7, 7}}), Contains("X has 48 channels, expected a multiple of 32"));
}

namespace {

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
    const bool rounded = print(graph).find("keeps_rounded") != std::string::npos;
    return 100 - (rounded == rounds ? 10 : -10) * count_rops(graph, "MomentMatMul");
  };
  Graph made = passes::defer_normalize(source, estimate, rounds);
  check_pass(source, made);
  return made;
}

}  // namespace

TEST_CASE("a normalisation of a depthwise convolution's pixels becomes moments of them") {
  const Graph made = deferred(kBlock);
  CHECK(count_rops(made, "MomentConv") == 1);
  CHECK(count_rops(made, "MomentMatMul") == 1);
  CHECK(count_rops(made, "Conv") + count_rops(made, "Normalize") + count_rops(made, "MatMul") == 0);
  // In tf32 the product reads the pixels rounded, by a view of its own.
  const Graph rounds = deferred(kBlock, true);
  CHECK(count_rops(rounds, "MomentConv") == 1);
  CHECK(count_rops(rounds, "Transpose") == 2);
  // Pixels that become one row after the other.
  const std::string flat = swapped(swapped(swapped(kBlock, "n = Normalize(t,", "r = Reshape(t) -> f32[1,81,64]\n  n = Normalize(r,"),
                                           "{axes=[3], epsilon=0.001} -> f32[1,9,9,64]", "{axes=[2], epsilon=0.001} -> f32[1,81,64]"),
                                   "-> f32[1,9,9,8]", "-> f32[1,81,8]");
  CHECK(count_rops(deferred(flat), "MomentConv") == 1);
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
    CHECK(count_rops(deferred(other.text), "MomentMatMul") == 0);
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
  CHECK(kernels::depthwise_boxes().candidates({c.graph, c.graph.rops[0], without, Precision::tf32}).empty());
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
       run_heavy_cases(cases, {kernels::depthwise_boxes()}, {small_device(), Precision::fp16, 1e-2}, root, folder.path()))
    FAIL_CHECK(problem);
}

}  // namespace tamp::test
