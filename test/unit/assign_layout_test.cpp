// Where tensors lie after assign_layout, which views and Concats are free, and that memory holds the right answers.
#include "compiler/passes/assign_layout.h"

#include "compiler/passes/fold_batch_norm.h"
#include "test/support/check_pass.h"
#include "test/support/random_graph.h"

using namespace tamp;
using namespace tamp::test;

TEST_CASE("assign_layout alone keeps the answers of graphs with many views") {
  for (unsigned seed = 1000; seed < 1300; ++seed) {
    CAPTURE(seed);
    const Graph source = passes::fold_batch_norm(random_graph(seed, 3 + static_cast<int>(seed % 12)));
    CAPTURE(print(source));
    if (!has_finite_answers(source)) continue;
    check_pass(source, passes::assign_layout(source));
  }
}

TEST_CASE("results of Conv and Pool are channels-last and chains keep that") {
  const Graph graph = passes::assign_layout(parse_graph(R"(
    x = input f32[1,3,5,7]
    w = const f32[4,3,1,1]
    s = input f32[2,3,9]
    v = const f32[4,3,1]
    a = Conv(x, w) {kernel=[1,1]} -> f32[1,4,5,7]
    b = Elementwise(x, a, a) {exp(i1), mul(s0, i2)} -> f32[1,4,5,7]
    p = AveragePool(b) {kernel=[2,2]} -> f32[1,4,4,6]
    l = LRN(p) {size=3, alpha=1, beta=1, bias=1} -> f32[1,4,4,6]
    y = Reduce(l) {kind=max, axes=[1,2,3]} -> f32[1,1,1,1]
    c = Conv(s, v) {kernel=[1]} -> f32[2,4,9]
    z = Reduce(c) {kind=max, axes=[0,1,2], keepdims=0} -> f32[]
    outputs(y, z)
  )"));
  CHECK(tensor_named(graph, "a").place.strides == std::vector<int64_t>{0, 1, 28, 4});
  CHECK(tensor_named(graph, "b").place.strides == std::vector<int64_t>{0, 1, 28, 4});
  CHECK(tensor_named(graph, "p").place.strides == std::vector<int64_t>{0, 1, 24, 4});
  CHECK(tensor_named(graph, "l").place.strides == std::vector<int64_t>{0, 1, 24, 4});
  CHECK(tensor_named(graph, "c").place.strides == std::vector<int64_t>{36, 1, 4});
}

TEST_CASE("graph inputs and outputs are row-major at the start of buffers of their own") {
  const Graph graph = passes::assign_layout(parse_graph(R"(
    x = input f32[1,2,3,3]
    w = const f32[2,2,1,1]
    y = Conv(x, w) {kernel=[1,1]} -> f32[1,2,3,3]
    z = Conv(y, w) {kernel=[1,1]} -> f32[1,2,3,3]
    t = Transpose(z) {perm=[0,2,3,1]} -> f32[1,3,3,2]
    f = Reshape(t) -> f32[18]
    outputs(y, f)
  )"));
  CHECK(graph.rops.size() == 2);  // no copies: z lies so that f is row-major
  for (size_t i = 0; i < graph.outputs.size(); ++i) {
    const Tensor& output = graph.tensor(graph.outputs[i]);
    const Buffer& buffer = graph.buffers[output.place.buffer.index()];
    CHECK(is_row_major(output));
    CHECK(output.place.offset == 0);
    CHECK(buffer.kind == BufferKind::output);
    CHECK(buffer.io_index == static_cast<int32_t>(i));
    CHECK(buffer.elements == element_count(output.shape));
  }
  CHECK(is_row_major(graph.tensor(graph.inputs[0])));
}

TEST_CASE("Concat costs a copy only for what is not freshly computed") {
  struct Case {
    const char *why, *text;
    int copies;
  };
  const std::string head =
      "x = input f32[1,2,2,2]\nw = const f32[2,2,1,1] {1, 2, 3, 4}\na = Conv(x, w) {kernel=[1,1]} -> f32[1,2,2,2]\nb = Conv(a, w) "
      "{kernel=[1,1]} -> f32[1,2,2,2]\n";
  const std::string tail = "y = Reduce(cc) {kind=sum, axes=[1]} -> f32[1,1,2,2]\noutputs(y)";
  for (const Case& c : {
           Case{"fresh operands", "cc = Concat(a, b) {axis=1} -> f32[1,4,2,2]\n", 0},
           Case{"the graph's input", "cc = Concat(a, x) {axis=1} -> f32[1,4,2,2]\n", 1},
           Case{"the same operand again", "cc = Concat(a, b, a) {axis=1} -> f32[1,6,2,2]\n", 1},
           Case{"a part of something", "s = Slice(b) {starts=[0,1,0,0]} -> f32[1,1,2,2]\ncc = Concat(a, s) {axis=1} -> f32[1,3,2,2]\n", 1},
           Case{"a Transpose that nobody else reads",
                "s = Transpose(b) {perm=[0,1,3,2]} -> f32[1,2,2,2]\ncc = Concat(a, s) {axis=1} -> f32[1,4,2,2]\n", 0},
           Case{"along another axis", "cc = Concat(a, b) {axis=3} -> f32[1,2,2,4]\n", 0},
           Case{"DenseNet: one Concat is the beginning of the next",
                "c2 = Concat(a, b) {axis=1} -> f32[1,4,2,2]\nv = const f32[2,4,1,1]\nd = Conv(c2, v) {kernel=[1,1]} -> f32[1,2,2,2]\ncc = "
                "Concat(a, b, d) {axis=1} -> f32[1,6,2,2]\n",
                0},
           Case{"two Concats in different order",
                "c2 = Concat(b, a) {axis=1} -> f32[1,4,2,2]\ncc = Concat(a, b, c2) {axis=1} -> f32[1,8,2,2]\n", 2},
       }) {
    INFO(c.why);
    std::string end = tail;
    if (std::string(c.why) == "along another axis") end = "y = Reduce(cc) {kind=sum, axes=[1]} -> f32[1,1,2,4]\noutputs(y)";
    const Graph source = parse_graph(head + c.text + end);
    const Graph graph = passes::assign_layout(source);
    CHECK(count_rops(graph, "Elementwise") == c.copies);
    CHECK(count_rops(graph, "Concat") == 0);
    check_pass(source, graph);
  }
}

TEST_CASE("states of a recurrent network are written where the stacked output wants them") {
  const Graph source = parse_graph(R"(
    x = input f32[2,1,4]
    w = const f32[4,4]
    x0s = Slice(x) {starts=[0,0,0]} -> f32[1,1,4]
    x0 = Reshape(x0s) -> f32[1,4]
    x1s = Slice(x) {starts=[1,0,0]} -> f32[1,1,4]
    x1 = Reshape(x1s) -> f32[1,4]
    h0 = MatMul(x0, w) epilogue{act=tanh} -> f32[1,4]
    p1 = MatMul(h0, w) epilogue{residual=x1} -> f32[1,4]
    h1 = Elementwise(p1) {tanh(i0)} -> f32[1,4]
    u0 = Reshape(h0) -> f32[1,1,4]
    u1 = Reshape(h1) -> f32[1,1,4]
    y = Concat(u0, u1) {axis=0} -> f32[2,1,4]
    outputs(y)
  )");
  const Graph graph = passes::assign_layout(source);
  CHECK(graph.rops.size() == 3);
  CHECK(tensor_named(graph, "h1").place.offset == 4);
  check_pass(source, graph);
}

TEST_CASE("a tensor without elements is placed") {
  const Graph source = parse_graph(R"(
    x = input f32[2,3]
    e = Slice(x) {starts=[2,0]} -> f32[0,3]
    r = Reshape(e) -> f32[3,0]
    t = Transpose(r) {perm=[1,0]} -> f32[0,3]
    y = Concat(t, x) {axis=0} -> f32[2,3]
    outputs(y, r)
  )");
  check_pass(source, passes::assign_layout(source));
}

TEST_CASE("rOperators made by the passes have names of their own") {
  const Graph graph = passes::assign_layout(parse_graph(R"(
    x = input f32[1,2]
    a = Concat(x, x, x) {axis=0} -> f32[3,2]
    y = Softmax(a) {axes=[0,0]} -> f32[3,2]
    outputs(y)
  )"));
  std::vector<std::string> names;
  for (const ROperator& rop : graph.rops) names.push_back(rop.name);
  CHECK(names == std::vector<std::string>{"x.copy", "x.copy2", "x.copy3", "y"});
}
