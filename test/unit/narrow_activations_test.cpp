// Activations of a placed graph in 16 bits, wherever everybody who touches them can do it.
#include "compiler/passes/place/narrow_activations.h"

#include <set>

#include "compiler/passes/place/assign_layout.h"
#include "compiler/passes/place/wide_values.h"
#include "test/support/catch.h"
#include "test/support/graph_text.h"

using namespace tamp;
using namespace tamp::test;

namespace {

// Two convolutions side by side whose results are one tensor, and a pool behind them. What the first reads is most of all elements.
const char* const kBranches = R"(
x = input f32[1,8,6,6]
u = const f32[64,8,1,1]
t = const f32[8,8,1,1]
v = const f32[8,64,1,1]
w = const f32[16,8,1,1]
sx = Conv(x, u) {kernel=[1,1]} epilogue{act=relu} -> f32[1,64,6,6]
sb = Conv(x, t) {kernel=[1,1]} epilogue{act=relu} -> f32[1,8,6,6]
a = Conv(sx, v) {kernel=[1,1]} -> f32[1,8,6,6]
b = Conv(sb, w) {kernel=[1,1]} -> f32[1,16,6,6]
ab = Concat(a, b) {axis=1} -> f32[1,24,6,6]
p = MaxPool(ab) {kernel=[2,2], strides=[2,2]} -> f32[1,24,3,3]
y = Elementwise(p) {relu(i0)} -> f32[1,24,3,3]
outputs(y)
)";

DType type_of(const Graph& graph, const std::string& name) {
  for (const Tensor& tensor : graph.tensors) {
    if (tensor.name != name) continue;
    if (tensor.place.buffer.valid()) {
      const Buffer& buffer = graph.buffers[tensor.place.buffer.index()];
      CHECK(buffer.dtype == tensor.dtype);
      CHECK(buffer.narrowed == (tensor.dtype == DType::f16 || tensor.dtype == DType::bf16 || is_whole_byte(tensor.dtype)));
    }
    return tensor.dtype;
  }
  FAIL("no tensor " << name);
  return DType::f32;
}

bool reads_narrow(const Graph& graph, const ROperator& rop) {
  const std::vector<TensorId> reads = reads_of(rop);
  return std::any_of(reads.begin(), reads.end(), [&](TensorId id) { return graph.tensor(id).dtype == DType::f16; });
}
bool writes_narrow(const Graph& graph, const ROperator& rop) { return graph.tensor(rop.outputs[0]).dtype == DType::f16; }

// Those of the names: rOperators that take any type.
Graph narrowed(const std::set<std::string>& takers, DType to = DType::f16) {
  const Graph placed = passes::assign_layout(parse_graph(kBranches));
  const Graph graph = passes::narrow_activations(placed, to, [&](const Graph& g, const ROperator& rop) {
    return takers.contains(g.tensor(rop.outputs[0]).name) || (!reads_narrow(g, rop) && !writes_narrow(g, rop));
  });
  verify(graph);
  CHECK(print(parse_graph(print(graph))) == print(graph));
  return graph;
}

TEST_CASE("all activations are narrow where all rOperators take them, ports and constants never") {
  for (const DType to : {DType::f16, DType::bf16}) {
    const Graph placed = passes::assign_layout(parse_graph(kBranches));
    const Graph graph = passes::narrow_activations(placed, to, [](const Graph&, const ROperator&) { return true; });
    for (const char* name : {"sx", "sb", "a", "b", "ab", "p"}) CHECK(type_of(graph, name) == to);
    for (const char* name : {"x", "y", "u", "v", "w"}) CHECK(type_of(graph, name) == DType::f32);
  }
}

TEST_CASE("what one reader cannot take is wide for all, and nothing else") {
  const Graph graph = narrowed({"sx", "sb", "a", "b", "y"});  // not the pool
  for (const char* name : {"a", "b", "ab", "p"}) CHECK(type_of(graph, name) == DType::f32);
  for (const char* name : {"sx", "sb"}) CHECK(type_of(graph, name) == DType::f16);
}

TEST_CASE("parts of one buffer have one type") {
  const Graph graph = narrowed({"sx", "sb", "a", "p", "y"});  // not the second convolution, neither to read nor to write
  for (const char* name : {"sb", "a", "b", "ab"}) CHECK(type_of(graph, name) == DType::f32);
  for (const char* name : {"sx", "p"}) CHECK(type_of(graph, name) == DType::f16);
}

TEST_CASE("a rOperator that reads 16 bits and cannot write them keeps its operands") {
  const Graph placed = passes::assign_layout(parse_graph(kBranches));
  const Graph graph = passes::narrow_activations(placed, DType::f16, [](const Graph& g, const ROperator& rop) {
    return !writes_narrow(g, rop) || g.tensor(rop.outputs[0]).name != "p";
  });
  CHECK(type_of(graph, "p") == DType::f32);
  CHECK(type_of(graph, "ab") == DType::f16);
}

TEST_CASE("of two operands only the one that cannot be narrow is widened") {
  const Graph placed = passes::assign_layout(parse_graph(R"(
x = input f32[1,8,6,6]
u = const f32[8,8,1,1]
v = const f32[8,8,1,1]
w = const f32[8,8,1,1]
a = Conv(x, u) {kernel=[1,1]} -> f32[1,8,6,6]
b = Conv(x, v) {kernel=[1,1]} -> f32[1,8,6,6]
y = Conv(a, w) {kernel=[1,1]} epilogue{residual=b} -> f32[1,8,6,6]
outputs(y)
)"));
  const Graph graph = passes::narrow_activations(placed, DType::f16, [](const Graph& g, const ROperator& rop) {
    return !rop.epilogue.residual.valid() || g.tensor(rop.epilogue.residual).dtype == DType::f32;
  });
  CHECK(type_of(graph, "a") == DType::f16);
  CHECK(type_of(graph, "b") == DType::f32);
}

TEST_CASE("buffers that may not be narrow are wide, and count among all elements") {
  const Graph placed = passes::assign_layout(parse_graph(kBranches));
  std::vector<bool> may(placed.buffers.size(), true);
  const auto buffer_of = [&](const std::string& name) {
    for (const Tensor& tensor : placed.tensors) {
      if (tensor.name == name) return tensor.place.buffer.index();
    }
    FAIL("no tensor " << name);
    return size_t{0};
  };
  const auto all = [](const Graph&, const ROperator&) { return true; };
  may[buffer_of("sb")] = false;
  const Graph graph = passes::narrow_activations(placed, DType::f16, all, may);
  CHECK(type_of(graph, "sb") == DType::f32);
  for (const char* name : {"sx", "a", "b", "ab", "p"}) CHECK(type_of(graph, name) == DType::f16);
  may[buffer_of("sx")] = false;  // most of all elements
  CHECK(print(passes::narrow_activations(placed, DType::f16, all, may)) == print(placed));
}

// Which of the activations may be narrow although there are masks or angles.
std::set<std::string> may_be_narrow(const std::string& text, DType to) {
  const Graph placed = passes::assign_layout(parse_graph(text));
  passes::MagnitudeCache magnitudes;
  const std::vector<bool> may = passes::may_be_narrow(placed, to, magnitudes);
  std::set<std::string> names;
  for (const ROperator& rop : placed.rops) {
    const Tensor& made = placed.tensor(rop.outputs[0]);
    if (placed.buffers[made.place.buffer.index()].kind == BufferKind::arena && may[made.place.buffer.index()]) names.insert(made.name);
  }
  return names;
}

TEST_CASE("masks of large constants stay wide on their way to the weights") {
  const auto text = [](const std::string& number) {
    return "q = input f32[2,4,8]\nk = input f32[2,4,8]\nc = input bool[2,4,4]\nzero = const f32[] {0}\nlarge = const f32[] {" + number +
           R"(}
m = Elementwise(c, zero, large) {where(i0, i1, i2)} -> f32[2,4,4]
n = Elementwise(m, m) {add(i0, i1)} -> f32[2,4,4]
s = MatMul(q, k) {trans_b=1} -> f32[2,4,4]
b = Elementwise(s, n) {add(i0, i1)} -> f32[2,4,4]
w = Softmax(b) {axes=[2,2]} -> f32[2,4,4]
p = MatMul(w, q) -> f32[2,4,8]
e = MatMul(p, k) {trans_b=1} epilogue{residual=n} -> f32[2,4,4]
g = Elementwise(n) {sigmoid(i0)} -> f32[2,4,4]
d = Elementwise(s, large) {div(i0, i1)} -> f32[2,4,4]
y = Elementwise(e, g, d) {add(i0, i1), add(s0, i2)} -> f32[2,4,4]
outputs(y)
)";
  };
  using Names = std::set<std::string>;
  const Names all = {"m", "n", "s", "b", "w", "p", "e", "g", "d"}, none_of_masks = {"s", "w", "p", "g", "d"};
  CHECK(may_be_narrow(text("-3.40282347e+38"), DType::f16) == none_of_masks);
  CHECK(may_be_narrow(text("-3.40282347e+38"), DType::bf16) == none_of_masks);
  CHECK(may_be_narrow(text("-60000"), DType::f16) == none_of_masks);  // two of them are more than fp16 holds
  CHECK(may_be_narrow(text("-1e30"), DType::bf16) == all);
  CHECK(may_be_narrow(text("-10000"), DType::f16) == all);
  CHECK(may_be_narrow(text("-inf"), DType::f16) == all);
}

TEST_CASE("masks of inputs stay wide on their way to the weights, other inputs do not") {
  const std::string text = R"(
q = input f32[2,4,8]
k = input f32[2,4,8]
c = input f32[2,4,4]
half = const f32[] {0.5}
m = Elementwise(c, half) {mul(i0, i1)} -> f32[2,4,4]
s = MatMul(q, k) {trans_b=1} -> f32[2,4,4]
b = Elementwise(s, m) {add(i0, i1)} -> f32[2,4,4]
w = Softmax(b) {axes=[2,2]} -> f32[2,4,4]
p = MatMul(w, q) -> f32[2,4,8]
h = Elementwise(p, q) {add(i0, i1)} -> f32[2,4,8]
a = Attention(h, k, q, m) -> f32[2,4,8]
y = Elementwise(a, h) {add(i0, i1)} -> f32[2,4,8]
outputs(y)
)";
  for (const DType to : {DType::f16, DType::bf16}) CHECK(may_be_narrow(text, to) == std::set<std::string>{"s", "w", "p", "h", "a"});
}

TEST_CASE("angles stay wide on their way to sines, also those of an outer product") {
  const std::string text = R"(
x = input f32[2,8]
u = const f32[8,8]
v = const f32[1,8]
f = const f32[1,8]
m = MatMul(x, u) -> f32[2,8]
a = Elementwise(m, f) {mul(i0, i1)} -> f32[2,8]
g = Elementwise(x) {relu(i0)} -> f32[2,8]
h = Reshape(g) -> f32[16,1]
n = MatMul(h, v) -> f32[16,8]
r = Elementwise(n) {cos(i0)} -> f32[16,8]
o = Elementwise(r) {relu(i0)} -> f32[16,8]
d = Concat(a, a) {axis=1} -> f32[2,16]
c = Elementwise(d) {neg(i0), cos(s0)} -> f32[2,16]
s = Elementwise(d, c) {sin(i0), add(s0, i1)} -> f32[2,16]
e = Elementwise(m) {sigmoid(i0), tan(s0)} -> f32[2,8]
t = Concat(s, e) {axis=1} -> f32[2,24]
y = Elementwise(t) {relu(i0)} -> f32[2,24]
outputs(y, o)
)";
  // `s` and `e` lie in `t`.
  for (const DType to : {DType::f16, DType::bf16}) CHECK(may_be_narrow(text, to) == std::set<std::string>{"r", "c", "s", "e"});
}

TEST_CASE("where most elements cannot be narrow none are") {
  const Graph placed = passes::assign_layout(parse_graph(kBranches));
  CHECK(print(narrowed({"sb", "b", "a", "p", "y"})) == print(placed));  // not the largest
}

TEST_CASE("rows between the products of a Fused count as narrow") {
  const Graph placed = passes::assign_layout(parse_graph(R"(
x = input f32[2,64]
u = const f32[64,512]
v = const f32[512,64]
w = const f32[64,16]
f = Fused(x, u, v) {title=chain, steps=[s = MatMul(i0, i1) -> f32[2,512]; e = MatMul(s, i2) -> f32[2,64]; outputs(e)]} -> f32[2,64]
m = MatMul(f, w) -> f32[2,16]
y = Elementwise(m) {relu(i0)} -> f32[2,16]
outputs(y)
)"));
  const auto takes = [](const Graph& g, const ROperator& rop) {
    return !std::holds_alternative<Fused>(rop.attrs) || !writes_narrow(g, rop);
  };
  // Of 160 elements in memory 32 are narrow; of 1184 with the hidden ones, 1056.
  CHECK(type_of(passes::narrow_activations(placed, DType::f16, takes), "f") == DType::f32);
  CHECK(type_of(passes::narrow_activations(placed, DType::f16, takes), "m") == DType::f16);
}

TEST_CASE("rows between a product and attention in a Fused count as narrow") {
  const Graph placed = passes::assign_layout(parse_graph(R"(
x = input f32[4,64]
w = const f32[64,96]
u = const f32[64,64]
v = const f32[32,16]
r = MatMul(x, u) -> f32[4,64]
a = Fused(r, w) {title=heads, steps=[n = Normalize(i0) {axes=[1]} -> f32[4,64]; s = MatMul(n, i1) -> f32[4,96]; q = Slice(s) {starts=[0,0]} -> f32[4,32]; k = Slice(s) {starts=[0,32]} -> f32[4,32]; v = Slice(s) {starts=[0,64]} -> f32[4,32]; e = Attention(q, k, v) -> f32[4,32]; outputs(e)]} -> f32[4,32]
m = MatMul(a, v) -> f32[4,16]
y = Elementwise(m) {relu(i0)} -> f32[4,16]
outputs(y)
)"));
  const auto takes = [](const Graph& g, const ROperator& rop) {
    return g.tensor(rop.outputs[0]).name == "m" || g.tensor(rop.outputs[0]).name == "y" || !writes_narrow(g, rop);
  };
  // Of 448 elements in memory 64 are narrow; of 1088 with normalised rows, queries, keys and values, 704.
  CHECK(type_of(passes::narrow_activations(placed, DType::f16, takes), "a") == DType::f32);
  CHECK(type_of(passes::narrow_activations(placed, DType::f16, takes), "m") == DType::f16);
}

TEST_CASE("where nobody takes 16 bits the graph stays as it is") {
  const Graph placed = passes::assign_layout(parse_graph(kBranches));
  CHECK(print(narrowed({})) == print(placed));
}

}  // namespace

namespace {

// Results that are rounded between bounds of bytes, and others.
const char* const kRounded = R"(
x = input f32[1,16,8,8]
w = const f32[16,16,1,1]
a = Conv(x, w) {kernel=[1,1]} epilogue{act=rounded, a=0, b=255} -> f32[1,16,8,8]
b = Conv(a, w) {kernel=[1,1]} epilogue{act=rounded, a=-128, b=127} -> f32[1,16,8,8]
c = Conv(b, w) {kernel=[1,1]} epilogue{act=rounded, a=-5, b=250} -> f32[1,16,8,8]
d = MaxPool(c) {kernel=[2,2], strides=[1,1]} -> f32[1,16,7,7]
e = Conv(d, w) {kernel=[1,1]} epilogue{act=rounded, a=-300, b=300} -> f32[1,16,7,7]
f = Conv(e, w) {kernel=[1,1]} -> f32[1,16,7,7]
y = Elementwise(f) {relu(i0)} -> f32[1,16,7,7]
outputs(y)
)";

// In bytes, but for results of the names, of which no body makes bytes.
Graph in_bytes(const std::set<std::string>& refused) {
  const Graph placed = passes::assign_layout(parse_graph(kRounded));
  const Graph halves = passes::narrow_activations(placed, DType::f16, [](const Graph&, const ROperator&) { return true; });
  const Graph graph = passes::whole_numbers_in_bytes(halves, [&](const Graph& g, const ROperator& rop) {
    const Tensor& made = g.tensor(rop.outputs[0]);
    return !(refused.contains(made.name) && is_whole_byte(made.dtype));
  });
  verify(graph);
  CHECK(print(parse_graph(print(graph))) == print(graph));
  return graph;
}

int32_t low_of(const Graph& graph, const std::string& name) {
  for (const Tensor& tensor : graph.tensors) {
    if (tensor.name == name) return graph.buffers[tensor.place.buffer.index()].low;
  }
  FAIL("no tensor " << name);
  return 0;
}

}  // namespace

TEST_CASE("whole numbers lie in bytes that hold all of them") {
  const Graph graph = in_bytes({});
  CHECK(type_of(graph, "a") == DType::whole_u8);
  CHECK(low_of(graph, "a") == 0);
  CHECK(type_of(graph, "b") == DType::whole_i8);
  CHECK(type_of(graph, "c") == DType::whole_u8);
  CHECK(low_of(graph, "c") == -5);
  CHECK(type_of(graph, "d") == DType::whole_u8);  // a maximum is one of them
  CHECK(low_of(graph, "d") == -5);
  CHECK(type_of(graph, "e") == DType::f16);  // 601 numbers
  CHECK(type_of(graph, "f") == DType::f16);  // not rounded
}

TEST_CASE("whole numbers stay halves where a rOperator has no body for bytes") {
  const Graph graph = in_bytes({"b"});
  CHECK(type_of(graph, "a") == DType::whole_u8);
  CHECK(type_of(graph, "b") == DType::f16);
  CHECK(low_of(graph, "b") == 0);
  CHECK(type_of(graph, "c") == DType::whole_u8);
}

TEST_CASE("what does not say its bounds lies in no bytes") {
  std::string text = kRounded;
  text.replace(text.find("b=255"), 5, "b=0.5");
  const Graph placed = passes::assign_layout(parse_graph(text));
  const Graph graph =
      passes::whole_numbers_in_bytes(passes::narrow_activations(placed, DType::f16, [](const Graph&, const ROperator&) { return true; }),
                                     [](const Graph&, const ROperator&) { return true; });
  CHECK(type_of(graph, "a") == DType::f16);
}
