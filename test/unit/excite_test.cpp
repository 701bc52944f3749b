// Squeeze-and-excite: the references against values worked out by hand, what is refused, the pass that makes the two rOperators, and
// the device bodies against the references over the stand-in.
#include "compiler/ops/operator.h"
#include "compiler/passes/fuse/recognise_excitation.h"
#include "compiler/passes/place/assign_layout.h"
#include "compiler/passes/place/narrow_activations.h"
#include "compiler/select/cost.h"
#include "kernels/catalogue.h"
#include "test/kernels/heavy_bench.h"
#include "test/support/case_folder.h"
#include "test/support/check_pass.h"
#include "test/support/onnx_model.h"

namespace tamp::test {
namespace {

using Catch::Matchers::Contains;

Estimator on(const char* vdevice, Precision precision) {
  return [vdevice = read_vdevice(vdevice).with_inputs(), precision](const Graph& graph, const ROperator& rop) {
    return select::estimate(graph, rop, vdevice, precision);
  };
}

Graph recognised(const std::string& text, Precision precision = Precision::tf32) {
  const Graph source = parse_graph(text);
  Graph made = passes::recognise_excitation(source, on("h200", precision));
  check_pass(source, made);
  return made;
}

template <class Op>
const Op& only(const Graph& graph) {
  for (const ROperator& rop : graph.rops) {
    if (const auto* op = std::get_if<Op>(&rop.attrs)) return *op;
  }
  FAIL("no such rOperator");
  throw std::logic_error("no such rOperator");
}

std::vector<ops::Value> answers(const Case& c) {
  return ops::evaluate(c.graph, c.graph.rops[0], [&](TensorId id) -> const ops::Value& { return c.values[id.index()]; });
}

}  // namespace

TEST_CASE("ChannelSqueeze multiplies means in parts, ChannelExcite adds them up") {
  CaseMaker maker("by hand");
  const TensorId x = maker.input({1, 2, 2, 1}, Lay::rows, {2, 6, 4, 8});  // by channel and row; means are 4 and 6
  const TensorId w = maker.constant({1, 2, 1, 1}, Lay::rows, {3, 10});
  const Case parts = maker.finish(ChannelSqueeze{1}, {x, w}, maker.output({1, 4, 2}));
  check_near(floats_of(answers(parts)[0]), {3 + 20, 9 + 40, 0, 0, 0, 0, 0, 0});
  const TensorId s = maker.input({1, 4, 2}, Lay::rows, {1, 2, 0, 0, 0, 0, 0, 0});
  const TensorId v = maker.constant({2, 1, 1, 1}, Lay::rows, {0.5F, -1}), hidden_bias = maker.constant({1}, Lay::rows, {-5}),
                 bias = maker.constant({2}, Lay::rows, {0.25F, 0.125F});
  const Case gated = maker.finish(ChannelExcite{{Activation::leaky_relu, 0.5F, 0}, {Activation::relu}}, {x, s, v, hidden_bias, bias},
                                  maker.output({1, 2, 2, 1}));
  check_near(floats_of(answers(gated)[0]), {0, 0, 4 * 1.125F, 8 * 1.125F});  // the hidden value is -1, gates are -0.25 and 1.125
}

TEST_CASE("ChannelExcite multiplies sums of tiles by both weights") {
  CaseMaker other("gates by hand");
  const TensorId map = other.input({1, 2, 2, 1}, Lay::rows, {2, 6, 4, 8}), sums = other.input({1, 2, 2}, Lay::rows, {2, 6, 8, 4});
  const TensorId v = other.constant({2, 1, 1, 1}, Lay::rows, {0.5F, -1}), first = other.constant({1, 2, 1, 1}, Lay::rows, {3, 10});
  const Case gated =
      other.finish(ChannelExcite{{Activation::relu}, {}}, {map, sums, v, TensorId(), TensorId(), first}, other.output({1, 2, 2, 1}));
  check_near(floats_of(answers(gated)[0]), {72, 216, -288, -576});  // means 4 and 6, hidden value 72, gates 36 and -72
}

TEST_CASE("squeeze-and-excite says what does not fit") {
  const auto refused = [](const OpAttrs& op, const std::vector<Shape>& shapes) {
    ops::OperandList operands;
    for (const Shape& shape : shapes) operands.push_back(ops::Operand{{DType::f32, shape}, nullptr});
    try {
      ops::infer(op, operands);
    } catch (const std::exception& error) {
      return std::string(error.what());
    }
    return std::string("taken");
  };
  DepthwisePrologue conv{{3, 3}, {1, 1}, {1, 1}, {1, 1}, {1, 1}, {}};
  CHECK(refused(ChannelSqueeze{2}, {{1, 40, 5, 5}, {6, 40, 1, 1}}) == "taken");
  CHECK(refused(ChannelSqueeze{2, conv}, {{1, 40, 5, 5}, {6, 40, 1, 1}, {40, 1, 3, 3}, {40}}) == "taken");
  CHECK_THAT(refused(ChannelSqueeze{2}, {{1, 40, 5}, {6, 40, 1, 1}}), Contains("input X has shape [1,40,5]"));
  CHECK_THAT(refused(ChannelSqueeze{2}, {{1, 40, 5, 5}, {6, 41, 1, 1}}), Contains("W has shape [6,41,1,1]"));
  CHECK_THAT(refused(ChannelSqueeze{0}, {{1, 40, 5, 5}, {6, 40, 1, 1}}), Contains("attribute 'rows' is 0"));
  CHECK_THAT(refused(ChannelSqueeze{2}, {{1, 40, 5, 5}, {6, 40, 1, 1}, {40, 1, 3, 3}}), Contains("without a depthwise convolution"));
  CHECK_THAT(refused(ChannelSqueeze{2, conv}, {{1, 40, 5, 5}, {6, 40, 1, 1}, {40, 1, 3, 5}}), Contains("depthwise weights are"));
  CHECK_THAT(refused(ChannelSqueeze{2, conv}, {{1, 40, 5, 5}, {6, 40, 1, 1}, {40, 1, 3, 3}, {4}}), Contains("depthwise bias is [4]"));
  CHECK(refused(ChannelExcite{}, {{2, 40, 5, 5}, {2, 8, 6}, {40, 6, 1, 1}, {6}, {40}}) == "taken");
  CHECK_THAT(refused(ChannelExcite{}, {{2, 40, 5}, {2, 8, 6}, {40, 6, 1, 1}}), Contains("input X has shape [2,40,5]"));
  CHECK_THAT(refused(ChannelExcite{}, {{2, 40, 5, 5}, {2, 6, 6}, {40, 6, 1, 1}}), Contains("S has shape [2,6,6]"));
  CHECK_THAT(refused(ChannelExcite{}, {{2, 40, 5, 5}, {2, 8, 6}, {41, 6, 1, 1}}), Contains("W has shape [41,6,1,1]"));
  CHECK_THAT(refused(ChannelExcite{}, {{2, 40, 5, 5}, {2, 8, 6}, {40, 6, 1, 1}, {8}}), Contains("the hidden bias has shape [8]"));
  CHECK_THAT(refused(ChannelExcite{}, {{2, 40, 5, 5}, {2, 8, 6}, {40, 6, 1, 1}, {6}, {6}}), Contains("B has shape [6]"));
  CHECK(refused(ChannelExcite{}, {{2, 40, 5, 5}, {2, 40, 3}, {40, 6, 1, 1}, {6}, {40}, {6, 40, 1, 1}}) == "taken");
  CHECK_THAT(refused(ChannelExcite{}, {{2, 40, 5, 5}, {2, 8, 3}, {40, 6, 1, 1}, {6}, {40}, {6, 40, 1, 1}}),
             Contains("S has shape [2,8,3]"));
  CHECK_THAT(refused(ChannelExcite{}, {{2, 40, 5, 5}, {2, 40, 3}, {40, 6, 1, 1}, {6}, {40}, {7, 40, 1, 1}}), Contains("FW has shape"));
}

namespace {

// As it stands behind fuse_epilogue. `conv` makes x, `gate` is the operands of the multiplication.
std::string excitation(const std::string& conv, const std::string& gate = "x, g", const std::string& after = "outputs(y)") {
  return R"(
    a = input f32[2,40,6,5]
    d = const f32[40,1,3,3]
    dense = const f32[40,10,3,3]
    db = const f32[40]
    w = const f32[6,40,1,1]
    wb = const f32[6]
    v = const f32[40,6,1,1]
    vb = const f32[40]
)" + conv +
         R"(
    m = Reduce(x) {kind=mean, axes=[2,3]} -> f32[2,40,1,1]
    h = Conv(m, w) {kernel=[1,1]} epilogue{bias=wb, act=silu} -> f32[2,6,1,1]
    g = Conv(h, v) {kernel=[1,1]} epilogue{bias=vb, act=hard_sigmoid, a=0.2, b=0.5} -> f32[2,40,1,1]
    y = Elementwise()" +
         gate + ") {mul(i0, i1)} -> f32[2,40,6,5]\n    " + after + "\n";
}
const std::string kDepthwise =
    "    x = Conv(a, d) {kernel=[3,3], pads=[1,1,1,1], group=40} epilogue{bias=db, act=hard_swish} -> f32[2,40,6,5]\n";
const std::string kGrouped =
    "    x = Conv(a, dense) {kernel=[3,3], pads=[1,1,1,1], group=4} epilogue{bias=db, act=relu} -> f32[2,40,6,5]\n";
const std::string kCopied = "    x = Elementwise(a) {relu(i0)} -> f32[2,40,6,5]\n";

}  // namespace

TEST_CASE("squeeze-and-excite is two rOperators, the first with the depthwise convolution") {
  for (const char* const gate : {"x, g", "g, x"}) {
    for (const Precision precision : {Precision::tf32, Precision::fp32, Precision::fp16}) {
      const Graph made = recognised(excitation(kDepthwise, gate), precision);
      CHECK(made.rops.size() == 2);
      REQUIRE(only<ChannelSqueeze>(made).depthwise.has_value());
      CHECK(only<ChannelSqueeze>(made).depthwise->activation.kind == Activation::hard_swish);
      CHECK(only<ChannelExcite>(made).hidden == ActivationCall{Activation::silu});
      CHECK(only<ChannelExcite>(made).gate == ActivationCall{Activation::hard_sigmoid, 0.2F, 0.5F});
    }
  }
  for (const auto& [maker, precision] : {std::pair{kGrouped, Precision::fp32}, std::pair{kCopied, Precision::tf32}}) {
    const Graph made = recognised(excitation(maker), precision);
    CHECK(made.rops.size() == 3);
    CHECK(!only<ChannelSqueeze>(made).depthwise);
  }
}

TEST_CASE("squeeze-and-excite is two rOperators behind another convolution, which adds up its channels") {
  for (const Precision precision : {Precision::tf32, Precision::fp16, Precision::bf16}) {
    const Graph made = recognised(excitation(kGrouped, "g, x"), precision);
    CHECK(made.rops.size() == 2);
    const std::optional<FusedView> steps = FusedView::of(made.rops[0]);
    REQUIRE((steps && steps->as<Conv>(0) && steps->as<TileSums>(1)));
    CHECK(steps->as<Conv>(0)->group == 4);
    CHECK(steps->step(0).epilogue.activation == Activation::relu);
    CHECK(only<ChannelExcite>(made).hidden == ActivationCall{Activation::silu});
    CHECK(made.rops[1].inputs.size() == kExciteFirstWeights + 1);
  }
  // The map may have other readers, the mean not.
  CHECK(count_rops(recognised(excitation(kGrouped, "x, g", "outputs(y, x)")), "convolution with tile sums") == 1);
  CHECK(count_rops(recognised(excitation(kGrouped, "x, g", "outputs(y, m)")), "convolution with tile sums") == 0);
  // Channels that are no multiple of four, or that an addition follows, stay with ChannelSqueeze.
  std::string odd = excitation(kGrouped);
  for (size_t at; (at = odd.find("40")) != std::string::npos;) odd.replace(at, 2, "38");
  for (size_t at; (at = odd.find("38,10")) != std::string::npos;) odd.replace(at, 5, "38,19");
  odd.replace(odd.find("group=4"), 7, "group=2");
  CHECK(count_rops(recognised(odd), "convolution with tile sums") == 0);
  CHECK(count_rops(recognised(odd), "ChannelSqueeze") == 1);
}

TEST_CASE("squeeze-and-excite is left alone where somebody else reads a step, or where it is another thing") {
  const auto squeezes = [](const std::string& text) { return count_rops(recognised(text), "ChannelSqueeze"); };
  for (const char* const step : {"m", "h", "g"}) {
    CAPTURE(step);
    CHECK(squeezes(excitation(kDepthwise, "x, g", std::string("outputs(y, ") + step + ")")) == 0);
  }
  CHECK(squeezes(excitation(kDepthwise, "x, g", "outputs(y, x)")) == 1);  // the map itself may have readers
  std::string other = excitation(kDepthwise);
  other.replace(other.find("kind=mean"), 9, "kind=max");
  CHECK(squeezes(other) == 0);
  other = excitation(kDepthwise);
  other.replace(other.find("mul(i0, i1)"), 11, "add(i0, i1)");
  CHECK(squeezes(other) == 0);
  const Graph unknown = parse_graph(excitation(kDepthwise));
  CHECK(print(passes::recognise_excitation(unknown, {})) == print(unknown));
}

TEST_CASE("the parts of hidden values stay f32 where the maps are narrow") {
  const ShapedVDevice vdevice = read_vdevice("h200").with_inputs();
  Graph graph = passes::recognise_excitation(parse_graph(excitation(kDepthwise, "x, g", R"(z = Elementwise(y) {relu(i0)} -> f32[2,40,6,5]
    outputs(z))")),
                                             on("h200", Precision::fp16));
  graph = passes::assign_layout(std::move(graph));
  graph = passes::narrow_activations(std::move(graph), DType::f16, [&](const Graph& placed, const ROperator& rop) {
    return !kernels::candidates({placed, rop, vdevice, Precision::fp16}).empty();
  });
  const ROperator& squeeze = graph.rops[0];
  CHECK(graph.tensor(squeeze.outputs[0]).dtype == DType::f32);
  CHECK(graph.tensor(squeeze.outputs[1]).dtype == DType::f16);
  CHECK(graph.tensor(graph.rops[1].outputs[0]).dtype == DType::f16);
}

namespace {

struct SqueezeSizes {
  Shape map;
  int64_t hidden, rows;
  int64_t taps = 0, stride = 1, pad = 1;
  Activation activation = Activation::none;
  bool has_bias = true;
};

Case squeeze_case(const std::string& name, const SqueezeSizes& e, Lay lay = Lay::channels_last) {
  CaseMaker maker(name);
  const int64_t channels = e.map[1];
  std::vector<TensorId> inputs = {maker.input(e.map, lay), maker.constant({e.hidden, channels, 1, 1})};
  ChannelSqueeze op{e.rows};
  Shape map = e.map;
  if (e.taps > 0) {
    op.depthwise =
        DepthwisePrologue{{e.taps, e.taps}, {e.stride, e.stride}, {1, 1}, {e.pad, e.pad}, {e.pad, e.pad}, {e.activation, -0.25F, 0.5F}};
    for (size_t d : {2, 3}) map[d] = (map[d] + 2 * e.pad - e.taps) / e.stride + 1;
    inputs.push_back(maker.constant({channels, 1, e.taps, e.taps}));
    if (e.has_bias) inputs.push_back(maker.constant({channels}));
  }
  const int64_t parts = (channels + 31) / 32 * ((map[2] + e.rows - 1) / e.rows);
  const TensorId made = e.taps > 0 ? maker.output(map, lay) : TensorId();
  Case c = maker.finish(op, inputs, maker.output({map[0], padded_hidden(e.hidden), parts}, Lay::channels_last));
  if (made.valid()) {
    c.graph.rops[0].outputs.push_back(made);
    c.graph.outputs.push_back(made);
  }
  return c;
}

std::vector<Case> squeeze_cases() {
  return {
      squeeze_case("one of everything", {{1, 1, 1, 1}, 1, 1}),
      squeeze_case("whole blocks", {{1, 64, 8, 8}, 8, 4}),
      squeeze_case("a part of a block, odd sizes", {{2, 44, 7, 5}, 11, 3}),
      squeeze_case("many turns", {{1, 32, 23, 31}, 4, 23}),
      squeeze_case("padded pixels", {{2, 39, 5, 3}, 10, 2}, Lay::padded),
      squeeze_case("odd channels", {{2, 21, 5, 3}, 5, 2}),
      squeeze_case("a part of wider pixels", {{2, 24, 6, 4}, 6, 2}, Lay::slice),
      squeeze_case("rows of pixels", {{2, 35, 6, 4}, 6, 5}, Lay::rows),
      squeeze_case("odd channels, many turns", {{3, 21, 23, 30}, 5, 20}),
      squeeze_case("rows of pixels, many turns", {{2, 35, 13, 14}, 6, 13}, Lay::rows),
      squeeze_case("more hidden values than a turn and a chunk", {{1, 40, 3, 3}, 613, 1}),
      squeeze_case("depthwise, one pixel", {{1, 4, 1, 1}, 1, 1, 3}),
      squeeze_case("depthwise, relu", {{2, 40, 7, 6}, 10, 2, 3, 1, 1, Activation::relu}),
      squeeze_case("depthwise, stride 2", {{1, 64, 11, 9}, 6, 3, 3, 2, 1, Activation::silu}),
      squeeze_case("depthwise, 5 taps", {{2, 36, 9, 7}, 9, 4, 5, 1, 2, Activation::hard_swish, false}),
      squeeze_case("depthwise, 5 taps, stride 2, no pads", {{1, 33, 12, 13}, 5, 2, 5, 2, 0, Activation::sigmoid}),
      squeeze_case("depthwise, 7 taps", {{1, 32, 8, 8}, 5, 8, 7, 1, 3, Activation::leaky_relu}),
      squeeze_case("depthwise, 5 taps, many turns", {{1, 44, 17, 15}, 3, 17, 5, 1, 2, Activation::silu}),
      squeeze_case("depthwise, 7 taps, stride 2", {{2, 40, 15, 16}, 3, 3, 7, 2, 3, Activation::relu}),
      squeeze_case("depthwise, padded pixels", {{2, 39, 6, 5}, 7, 3, 3, 1, 1, Activation::silu}, Lay::padded),
      squeeze_case("depthwise, rows of pixels", {{1, 37, 6, 5}, 7, 3, 3, 1, 1, Activation::clip}, Lay::rows),
      squeeze_case("depthwise, many turns", {{1, 16, 40, 22}, 3, 40, 3, 1, 1, Activation::tanh}),
      squeeze_case("depthwise, many hidden values", {{1, 40, 4, 4}, 613, 1, 3, 1, 1, Activation::hard_sigmoid}),
  };
}

struct ExciteSizes {
  Shape map;
  int64_t hidden, parts;
  ActivationCall inner{Activation::relu}, gate{Activation::sigmoid};
  bool has_hidden_bias = true, has_bias = true;
};

Case excite_case(const std::string& name, const ExciteSizes& e, Lay lay = Lay::channels_last) {
  CaseMaker maker(name);
  const int64_t channels = e.map[1];
  std::vector<TensorId> inputs = {maker.input(e.map, lay)};
  maker.set_range(-0.3F, 0.3F);
  inputs.push_back(maker.input({e.map[0], padded_hidden(e.hidden), e.parts}, Lay::channels_last));
  inputs.push_back(maker.constant({channels, e.hidden, 1, 1}));
  maker.set_range(-1, 1);
  inputs.push_back(e.has_hidden_bias ? maker.constant({e.hidden}) : TensorId());
  if (e.has_bias) inputs.push_back(maker.constant({channels}));
  return maker.finish(ChannelExcite{e.inner, e.gate}, inputs, maker.output(e.map, lay));
}

std::vector<Case> excite_cases() {
  const ActivationCall hard{Activation::hard_sigmoid, 1.0F / 6, 0.5F};
  return {
      excite_case("one of everything", {{1, 1, 1, 1}, 1, 1}),
      excite_case("whole blocks", {{1, 64, 8, 8}, 8, 6, {Activation::silu}, hard}),
      excite_case("odd sizes", {{2, 44, 7, 5}, 11, 9, {Activation::hard_swish}, hard, false, true}),
      excite_case("many turns", {{1, 32, 33, 31}, 4, 131, {}, {Activation::tanh}, true, false}),
      excite_case("many parts", {{1, 8, 2, 3}, 48, 97}),
      excite_case("padded pixels", {{2, 39, 5, 3}, 10, 2}, Lay::padded),
      excite_case("odd channels", {{2, 21, 5, 3}, 5, 40}),
      excite_case("a part of wider pixels", {{2, 24, 6, 4}, 6, 2}, Lay::slice),
      excite_case("rows of pixels", {{2, 35, 6, 4}, 6, 5}, Lay::rows),
      excite_case("everything reversed", {{2, 35, 6, 4}, 6, 5, {}, hard, false, false}, Lay::reversed),
      excite_case("more hidden values than a warp has, in chunks", {{2, 40, 3, 3}, 613, 3}),
      excite_case("as many hidden values as there can be", {{1, 8, 2, 1}, 1024, 2}),
  };
}

struct SummedSizes {
  Shape in;
  int64_t channels, kernel;
  std::vector<int64_t> tile;
  int64_t group = 1, stride = 1;
  Activation activation = Activation::relu;
  bool has_bias = true, has_residual = false;
};

Case summed_case(const std::string& name, const SummedSizes& e, Lay in = Lay::channels_last, Lay out = Lay::channels_last) {
  CaseMaker maker(name);
  const int64_t pad = e.kernel / 2;
  Shape map = {e.in[0], e.channels};
  for (const size_t d : {2, 3}) map.push_back((e.in[d] + 2 * pad - e.kernel) / e.stride + 1);
  const TensorId x = maker.input(e.in, in), w = maker.constant({e.channels, e.in[1] / e.group, e.kernel, e.kernel}),
                 bias = e.has_bias ? maker.constant({e.channels}) : TensorId(),
                 residual = e.has_residual ? maker.input(map, out) : TensorId();
  const TensorId sums =
      maker.output({map[0], map[1], (map[2] + e.tile[0] - 1) / e.tile[0] * ((map[3] + e.tile[1] - 1) / e.tile[1])}, Lay::channels_last);
  const TensorId y = maker.output(map, out);
  const Conv op{{e.kernel, e.kernel}, {e.stride, e.stride}, {1, 1}, {pad, pad}, {pad, pad}, e.group};
  const ROperator conv{"conv", op, {bias, residual, e.activation, 0.1F, 0.5F}, {x, w}, {y}, {}},
      add{"sums", TileSums{e.tile}, {}, {y}, {sums}, {}};
  return maker.finish_steps({conv, add}, {y, sums});
}
TensorId residual_of(const Case& c) { return FusedView::of(c.graph.rops[0])->residual(0); }

std::vector<Case> summed_cases() {
  return {
      summed_case("summed, one pixel", {{1, 16, 1, 1}, 8, 3, {1, 1}}),
      summed_case("summed, groups of 8", {{1, 48, 14, 14}, 48, 3, {2, 14}, 6}),
      summed_case("summed, 13 groups, stride 2", {{1, 104, 15, 13}, 104, 3, {3, 4}, 13, 2}),
      summed_case("summed, two images, odd sizes", {{2, 40, 7, 5}, 44, 3, {3, 5}, 1, 1, Activation::none}),
      summed_case("summed, one tap, another activation", {{2, 36, 6, 7}, 72, 1, {2, 4}, 1, 1, Activation::silu, false}),
      summed_case("summed, clip, rows of pixels", {{1, 32, 9, 9}, 20, 3, {4, 9}, 1, 1, Activation::clip}, Lay::channels_last, Lay::rows),
      summed_case("summed, large tile", {{1, 64, 17, 16}, 132, 3, {8, 8}, 1, 1, Activation::hard_swish}, Lay::slice, Lay::slice),
      summed_case("summed, residual", {{1, 64, 7, 7}, 132, 1, {2, 7}, 1, 1, Activation::relu, true, true}),
      summed_case("summed, residual, groups, no bias", {{2, 104, 15, 13}, 104, 3, {3, 4}, 13, 2, Activation::clip, false, true}),
      summed_case("summed, residual, another activation", {{1, 40, 5, 6}, 44, 1, {5, 6}, 1, 1, Activation::silu, true, true},
                  Lay::channels_last, Lay::slice),
      summed_case("summed, residual, rows of pixels", {{2, 32, 9, 9}, 20, 3, {4, 9}, 1, 1, Activation::relu, true, true},
                  Lay::channels_last, Lay::rows),
  };
}

struct OfSums {
  Shape map;
  int64_t hidden, parts;
  ActivationCall inner{Activation::relu}, gate{Activation::sigmoid};
  bool has_biases = true;
};

Case of_sums_case(const std::string& name, const OfSums& e, Lay lay = Lay::channels_last) {
  CaseMaker maker(name);
  const int64_t channels = e.map[1];
  std::vector<TensorId> inputs = {maker.input(e.map, lay)};
  inputs.push_back(maker.input({e.map[0], channels, e.parts}, Lay::channels_last));
  maker.set_range(-0.3F, 0.3F);
  inputs.push_back(maker.constant({channels, e.hidden, 1, 1}));
  for (const int64_t count : {e.hidden, channels}) inputs.push_back(e.has_biases ? maker.constant({count}) : TensorId());
  inputs.push_back(maker.constant({e.hidden, channels, 1, 1}));
  return maker.finish(ChannelExcite{e.inner, e.gate}, inputs, maker.output(e.map, lay));
}

std::vector<Case> of_sums_cases() {
  const ActivationCall hard{Activation::hard_sigmoid, 1.0F / 6, 0.5F};
  return {
      of_sums_case("of sums, few", {{1, 4, 1, 1}, 1, 1}),
      of_sums_case("of sums, 48 channels, many parts", {{1, 48, 9, 9}, 8, 76}),
      of_sums_case("of sums, odd sizes, two images", {{2, 44, 7, 5}, 11, 9, {Activation::hard_swish}, hard}),
      of_sums_case("of sums, no biases", {{2, 104, 5, 3}, 26, 14, {Activation::silu}, {Activation::tanh}, false}),
      of_sums_case("of sums, weights in chunks", {{1, 440, 7, 7}, 110, 2}),
      of_sums_case("of sums, as many as there can be", {{1, 1024, 2, 1}, 256, 3}),
      of_sums_case("of sums, rows of pixels", {{2, 36, 6, 4}, 6, 5}, Lay::rows),
  };
}

VDevice few_vdevice() {
  VDevice vdevice = read_vdevice("h200");
  vdevice.sms = 6;
  return vdevice;
}

void check_bodies(const std::vector<Case>& cases, Precision precision, double tolerance, const std::string& name) {
  const std::filesystem::path root = std::filesystem::absolute(__FILE__).parent_path().parent_path().parent_path();
  const CaseFolder folder("tamp_excite_" + name);
  const HeavyRun run{few_vdevice().without_inputs(), precision, tolerance};
  for (const std::string& problem :
       run_heavy_cases(cases, {kernels::family("squeeze"), kernels::family("excite")}, run, root, folder.path()))
    FAIL_CHECK(problem);
}

void check_summed(const std::vector<Case>& cases, Precision precision, double tolerance, const std::string& name) {
  const std::filesystem::path root = std::filesystem::absolute(__FILE__).parent_path().parent_path().parent_path();
  const CaseFolder folder("tamp_summed_" + name);
  const HeavyRun run{few_vdevice().with_inputs(), precision, tolerance};
  for (const std::string& problem :
       run_heavy_cases(cases, {kernels::family("staged_conv"), kernels::family("excite")}, run, root, folder.path()))
    FAIL_CHECK(problem);
}

std::vector<Case> all_cases() {
  std::vector<Case> cases = squeeze_cases();
  for (Case& c : excite_cases()) cases.push_back(std::move(c));
  return cases;
}

}  // namespace

TEST_CASE("the bodies of squeeze-and-excite agree with the reference") { check_bodies(all_cases(), Precision::fp32, 2e-5, "fp32"); }

TEST_CASE("weights of squeeze-and-excite may be of 16 bits") { check_bodies(all_cases(), Precision::tf32, 2e-3, "tf32"); }

TEST_CASE("convolutions that add up their channels, and gates of such sums, agree with the reference") {
  std::vector<Case> cases = summed_cases();
  check_summed(cases, Precision::tf32, 2e-2, "tf32");
  check_summed(of_sums_cases(), Precision::tf32, 2e-3, "gates");
  std::vector<Case> narrow;
  for (const size_t i : {1, 3, 4}) {
    const ROperator& rop = cases[i].graph.rops[0];
    if (i == 1) narrow.push_back(narrowed(cases[i], {rop.inputs[0], rop.outputs[0]}, DType::f16));
    narrow.push_back(narrowed(cases[i], {rop.outputs[0]}, DType::f16));
  }
  for (const Case& c : cases) {  // a residual has the type of the result
    const ROperator& rop = c.graph.rops[0];
    if (!residual_of(c).valid()) continue;
    narrow.push_back(narrowed(c, {rop.inputs[0], residual_of(c), rop.outputs[0]}, DType::f16));
    narrow.push_back(narrowed(c, {residual_of(c), rop.outputs[0]}, DType::f16));
  }
  for (const Case& c : of_sums_cases()) narrow.push_back(narrowed(c, {c.graph.rops[0].inputs[0], c.graph.rops[0].outputs[0]}, DType::f16));
  check_summed(narrow, Precision::fp16, 2e-2, "narrow");
  const Case sums = narrowed(cases[0], {cases[0].graph.rops[0].outputs[1]}, DType::f16);
  CHECK(
      kernels::candidates_of(kernels::family("staged_conv"), {sums.graph, sums.graph.rops[0], few_vdevice().with_inputs(), Precision::fp16})
          .empty());
}

TEST_CASE("maps of squeeze-and-excite may be of 16 bits") {
  std::vector<Case> cases;
  for (const Case& c : all_cases()) {
    const ROperator& rop = c.graph.rops[0];
    const bool squeezes = std::holds_alternative<ChannelSqueeze>(rop.attrs);
    const DType dtype = cases.size() % 3 == 0 ? DType::bf16 : DType::f16;
    if (!squeezes) {
      cases.push_back(narrowed(c, {rop.inputs[0], rop.outputs[0]}, dtype));
      cases.push_back(narrowed(c, {rop.inputs[0]}, dtype));
    } else if (rop.outputs.size() == 1) {
      cases.push_back(narrowed(c, {rop.inputs[0]}, dtype));
    } else {
      cases.push_back(narrowed(c, {rop.inputs[0], rop.outputs[1]}, dtype));
      cases.push_back(narrowed(c, {rop.outputs[1]}, dtype));
    }
  }
  check_bodies(cases, Precision::fp16, 2e-3, "narrow");
  const Case plain = squeeze_case("narrow parts", {{1, 64, 8, 8}, 8, 4});
  const Case parts = narrowed(plain, {plain.graph.rops[0].outputs[0]}, DType::f16);
  CHECK(kernels::candidates_of(kernels::family("squeeze"),
                               {parts.graph, parts.graph.rops[0], few_vdevice().without_inputs(), Precision::fp16})
            .empty());
}

}  // namespace tamp::test
