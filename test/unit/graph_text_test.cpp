// print(Graph) and parse_graph are each other's inverse.
#include "test/support/graph_text.h"

#include <fmt/format.h>

#include <stdexcept>

#include "compiler/ir/print.h"
#include "compiler/ops/ops.h"
#include "test/support/catch.h"

using namespace tamp;
using test::parse_graph;

namespace {

void check_stable(const std::string& text) {
  const std::string printed = print(parse_graph(text));
  CHECK(print(parse_graph(printed)) == printed);
}

}  // namespace

TEST_CASE("a printed graph is read back as it was") {
  const std::string text = R"(// graph "tiny"
x = input f32[1,3,8,8]
w = const f32[8,3,3,3]
b = const f32[2] {1.5, -inf}
indices = const i64[3] {0, -1, 2}
a = Conv(x, w) {kernel=[3,3], strides=[2,1], pads=[1,1,1,1], dilations=[1,2], group=1} -> f32[1,8,4,6]
"odd \x22name" = Elementwise(a) {clip(i0; 0, 6), mul(s0, i0)} -> f32[1,8,4,6]  // act1 (origin: clip1, mul1)
p = MaxPool("odd \x22name") {kernel=[2,2], strides=[2,2]} -> f32[1,8,2,3]  // pool (origin: )
outputs(p, x)
)";
  std::string expected = text;
  expected.replace(expected.find(", group=1"), 9, "");  // a default
  CHECK(print(parse_graph(text)) == expected);
}

TEST_CASE("a network that was trained again has the same structure") {
  const auto text = [](const char* name, const char* bias, const char* kernel) {
    return structure_text(
        parse_graph(fmt::format("// graph \"{}\"\nx = input f32[1,2,4,4]\nw = const f32[2,2,{},1]\nb = const f32[2] {}\n"
                                "y = Conv(x, w, b) {{kernel=[{},1]}} -> f32[1,2,{},4]\noutputs(y)\n",
                                name, kernel, bias, kernel, kernel[0] == '1' ? 4 : 3)));
  };
  CHECK(text("first", "{1, 2}", "1") == text("second", "{3, 4}", "1"));
  CHECK(text("first", "{1, 2}", "1") != text("first", "{1, 2}", "2"));
}

TEST_CASE("every operator and attribute survives print and parse") {
  const Graph graph = parse_graph(R"(
    x = input f32[2,4,6,6]
    m = input f32[2,5]
    i = const i32[2] {3, 0}
    g = const f32[2,3,2,2]
    at = const i64[2,1,1,6]
    w = const f32[6,2,1,1]
    b = const f32[6]
    v = const f32[4] {1, 2, 3, 4}
    s = const bool[1] {1}
    rois = const f32[3,4]
    regions = const f32[3,5]
    of = const f32[3] {0, 1, 1}
    ti = const i64[9,2]
    tw = const f32[9,2]
    conv = Conv(x, w, none) {kernel=[1,1], strides=[2,2], pads=[0,0,2,2], group=2} epilogue{bias=b, act=leaky_relu, a=0.1, b=0} -> f32[2,6,4,4]
    res = Conv(x, w) {kernel=[1,1], strides=[2,2], pads=[0,0,2,2], group=2} epilogue{residual=conv, act=relu, residual_after_activation=1} -> f32[2,6,4,4]
    mm = MatMul(m, m) {trans_b=1, alpha=0.5} -> f32[2,2]
    mt = MatMul(m, m, none) {trans_a=1, beta=2} -> f32[5,5]
    mp = MaxPool(x) {kernel=[3,3], strides=[2,2], pads=[1,1,1,1]} -> f32[2,4,3,3]
    ap = AveragePool(x) {kernel=[2,2], dilations=[2,2], count_include_pad=1} -> f32[2,4,4,4]
    r = Reduce(x) {kind=log_sum_exp, axes=[2,3], keepdims=0} -> f32[2,4]
    sm = Softmax(x) {axes=[1,3]} -> f32[2,4,6,6]
    ls = LogSoftmax(x) {axes=[3,3]} -> f32[2,4,6,6]
    lrn = LRN(x) {size=5, alpha=0.001, beta=0.75, bias=2} -> f32[2,4,6,6]
    bn = BatchNorm(x, v, v, v, v) {epsilon=0.001} -> f32[2,4,6,6]
    ew = Elementwise(x, x, s) {where(i2, i0, i1)} -> f32[2,4,6,6]
    rs = Reshape(x) -> f32[8,36]
    tr = Transpose(x) {perm=[0,2,3,1]} -> f32[2,6,6,4]
    sl = Slice(x) {starts=[0,3,0,5], steps=[1,-1,1,-2]} -> f32[2,2,6,3]
    cc = Concat(x, x) {axis=3} -> f32[2,4,6,12]
    pd = Pad(x) {before=[0,0,1,1], after=[0,0,2,-1], mode=reflect, value=0.5} -> f32[2,4,9,6]
    ga = Gather(x, i) {axis=1} -> f32[2,2,6,6]
    gs = GridSample(x, g) {mode=cubic, padding=reflection, align_corners=1} -> f32[2,4,3,2]
    rz = Resample(x, ti, tw) {axes=[3], outside=0.5} -> f32[2,4,6,9]
    ra = RoiAlign(x, rois, of) {height=2, width=3, sampling_ratio=2, spatial_scale=0.25, largest=1, half_pixel=0} -> f32[3,4,2,3]
    mr = MaxRoiPool(x, regions) {height=2, width=3, spatial_scale=0.5} -> f32[3,4,2,3]
    gp = GridSample(x, g) {in_pixels=1} -> f32[2,4,3,2]
    pi = PoolIndices(x) {kernel=[3,3], strides=[2,2], ceil_mode=1, column_major=1} -> i64[2,4,3,3]
    cm = MaxPool(x) {kernel=[3,3], strides=[2,2], ceil_mode=1} -> f32[2,4,3,3]
    mu = MaxUnpool(cm, pi) -> f32[2,4,6,6]
    tv, tx = TopK(x) {axis=3, k=2, largest=0, nan_first=0} -> f32[2,4,6,2], i64[2,4,6,2]
    cs = CumSum(x) {axis=1, exclusive=1} -> f32[2,4,6,6]
    cp = CumProd(x) {axis=2, reverse=1} -> f32[2,4,6,6]
    sc = Scatter(x, at, x) {axis=3, kind=max} -> f32[2,4,6,6]
    ce = MaxPool(x) {kernel=[3,3], strides=[2,2], ceil_mode=1} -> f32[2,4,3,3]
    ex = Elementwise(b) {identity(i0)} -> f32[3,6]
    outputs(res, mm, mt, mp, ap, r, sm, ls, lrn, bn, ew, rs, tr, sl, cc, pd, ga, gs, rz, ra, mr, gp, mu, tv, tx, cs, cp, sc, ce, ex)
  )");
  const std::string printed = print(graph);
  const Graph again = parse_graph(printed);
  CHECK(print(again) == printed);
  for (size_t i = 0; i < graph.rops.size(); ++i) CHECK(again.rops[i].attrs == graph.rops[i].attrs);
  CHECK_NOTHROW(ops::verify_shapes(graph));
  CHECK(std::get<Pad>(graph.rops[16].attrs).mode == PadMode::reflect);
  CHECK(std::get<Slice>(graph.rops[14].attrs).extents == std::vector<int64_t>{2, 2, 6, 3});
  CHECK(std::get<Reshape>(graph.rops[12].attrs).shape == std::vector<int64_t>{8, 36});
  CHECK(std::get<Slice>(graph.rops[14].attrs).steps == std::vector<int64_t>{1, -1, 1, -2});
  CHECK(graph.rops[1].epilogue.residual_after_activation);
}

TEST_CASE("the cells of a recurrent network survive print and parse") {
  const std::string text = R"(// graph "encoder and decoder"
x = input f32[5,2,3]
gates = input f32[4,2,12]
lengths = input i32[2]
w = const f32[16,3]
r = const f32[16,4]
b = const f32[32]
p = const f32[12]
u = const f32[12,4]
v = const f32[4,4]
y, y_h, y_c = Recurrent(x, w, r, b, p, lengths) {batch=2, cell=[kind=LSTM steps=5 hidden=4 reverse=1 input_forget=1 clip=0.5 functions=HardSigmoid:0.2:0.5/ScaledTanh:1:0.25/Softsign:0:0 x=0 w=1 r=2 bias=3 peepholes=4 lengths=5 y=0 y_h=1 y_c=2]} -> f32[5,2,4], f32[2,4], f32[2,4]  // encoder (origin: encoder)
z = Recurrent(gates, u, y_h, v) {batch=2, cell=[kind=GRU steps=4 hidden=4 linear_before_reset=1 x=0 x_is_gates=1 r=1 h0=2], cell=[kind=RNN steps=4 hidden=4 x_cell=0 w=3 r=3 h0_cell=0 y=0]} -> f32[4,2,4]
outputs(y, y_c, z)
)";
  const Graph graph = parse_graph(text);
  std::string expected = text;
  expected.replace(expected.find(" (origin: encoder)"), 18, "");  // the name says it already
  CHECK(print(graph) == expected);
  CHECK_NOTHROW(ops::verify_shapes(graph));
  const auto& encoder = std::get<Recurrent>(graph.rops[0].attrs).cells.at(0);
  CHECK(encoder.functions[0] == CellFunction{CellFunctionKind::hard_sigmoid, 0.2F, 0.5F});
  CHECK(encoder.peepholes == 4);
  const auto& decoder = std::get<Recurrent>(graph.rops[1].attrs).cells;
  CHECK(decoder.at(0).functions == default_functions(CellKind::gru));
  CHECK(decoder.at(1).h0_cell == 0);
  CHECK(decoder.at(1).y_h == -1);
}

TEST_CASE("places and buffers survive print and parse") {
  check_stable(R"(
    buf0 = buffer f32[4] input 0
    buf1 = buffer f32[4] output 0
    buf2 = buffer f32[4] constant c
    buf3 = buffer f32[8] arena
    x = input f32[2,2] @ buf0+0 strides[2,1]
    c = const f32[4] {1, 2, 3, 4} @ buf2+0 strides[1]
    v = view f32[2,2] @ buf3+4 strides[-1,2]
    y = Elementwise(x, v) {add(i0, i1)} -> f32[2,2] @ buf1+0 strides[2,1]
    outputs(y)
  )");
  const Graph graph = parse_graph("buf0 = buffer f32[8] arena\nv = view f32[2,2] @ buf0+4 strides[-1,2]\noutputs(v)");
  CHECK(graph.buffers[0].elements == 8);
  CHECK(graph.tensors[0].place.offset == 4);
  CHECK(graph.tensors[0].place.strides == std::vector<int64_t>{-1, 2});
}

TEST_CASE("tensors of one name are told apart") {
  Graph graph = parse_graph("x = input f32[1]\ny = Elementwise(x) {relu(i0)} -> f32[1]\noutputs(y)");
  graph.tensors[1].name = "x";
  CHECK_THAT(print(graph), Catch::Contains("x%1 = Elementwise(x%0)"));
}

TEST_CASE("constants without values depend on their name only") {
  const Graph a = parse_graph("w = const f32[3,3,3]\nx = input f32[1]\noutputs(x)");
  const Graph b = parse_graph("x = input f32[1]\nv = const f32[27]\nw = const f32[27]\noutputs(x)");
  CHECK(*a.tensors[0].data == *b.tensors[2].data);
  CHECK(*b.tensors[1].data != *b.tensors[2].data);
  for (int i = 0; i < 27; ++i) CHECK(std::abs(f32_data(a.tensors[0])[i]) <= 1);
}

TEST_CASE("what is not of the form is refused with the line") {
  struct Row {
    const char *text, *message;
  };
  for (const Row& row : {Row{"y = Elementwise(x) {relu(i0)} -> f32[1]", "not 'x'"}, Row{"x = input f32[1]\nx = input f32[1]", "a new name"},
                         Row{"x = input f33[1]", "not 'f33'"}, Row{"x = input f32[1]\ny = Convolution(x) -> f32[1]", "not 'Convolution'"},
                         Row{"x = input f32[1]\ny = Softmax(x) {axis=1} -> f32[1]", "than 'axis'"},
                         Row{"x = input f32[1]\ny = Recurrent(x) {cell=[kind=LSTM gates=1]} -> f32[1]", "than 'gates'"},
                         Row{"x = input f32[1]\ny = Recurrent(x) {cell=[kind=CNN]} -> f32[1]", "not 'CNN'"},
                         Row{"x = input f32[1] junk", "the end of the line"}, Row{"c = const f32[2] {1}", "as many values"}}) {
    CAPTURE(row.text);
    CHECK_THROWS_WITH(parse_graph(row.text), Catch::Contains(row.message));
  }
}
