// Where tensors lie after assign_layout, which views and Concats are free, and that memory holds the right answers.
#include "compiler/passes/place/assign_layout.h"

#include <limits>

#include "compiler/passes/tidy/fold_batch_norm.h"
#include "test/support/check_pass.h"
#include "test/support/random_graph.h"

using namespace tamp;
using namespace tamp::test;

namespace {

// What reads a copy takes less time than what does not, by more than the copy takes.
double copies_are_cheap(const Graph& graph, const ROperator& rop) {
  const auto is_copy = [&](TensorId id) { return graph.tensor(id).name.ends_with(".copy"); };
  return std::holds_alternative<Elementwise>(rop.attrs) ? 1 : is_copy(rop.inputs[0]) ? 2 : 10;
}
double copies_are_dear(const Graph&, const ROperator& rop) { return std::holds_alternative<Elementwise>(rop.attrs) ? 9 : 5; }
double no_rkernel(const Graph&, const ROperator&) { return std::numeric_limits<double>::infinity(); }

Graph placed(const Graph& source, const PlacedEstimator& estimator = copies_are_cheap, int64_t cell = 4) {
  Graph made = passes::assign_layout(source, cell, estimator);
  check_pass(source, made);
  return made;
}

// A map whose channels are the rows of `readers`' first operand "t", as in MLP-Mixer.
std::string mixer(const std::string& readers) {
  return R"(
    x = input f32[2,6,40]
    w = const f32[6,8]
    v = const f32[6,4]
    n = Softmax(x) {axes=[2,2]} -> f32[2,6,40]
    t = Transpose(n) {perm=[0,2,1]} -> f32[2,40,6]
)" + readers;
}

}  // namespace

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
           Case{"the same behind the graph's input, which is copied once",
                "c2 = Concat(x, b) {axis=1} -> f32[1,4,2,2]\nv = const f32[2,4,1,1]\nd = Conv(c2, v) {kernel=[1,1]} -> f32[1,2,2,2]\nc3 = "
                "Concat(x, b, d) {axis=1} -> f32[1,6,2,2]\nu = const f32[2,6,1,1]\ne = Conv(c3, u) {kernel=[1,1]} -> f32[1,2,2,2]\ncc = "
                "Concat(x, b, d, e) {axis=1} -> f32[1,8,2,2]\n",
                1},
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

TEST_CASE("an operand that makes its reader slow is copied to the order that the reader wants") {
  const Graph source = parse_graph(mixer("y = MatMul(t, w) {} -> f32[2,40,8]\noutputs(y)\n"));
  const Graph after = placed(source);
  REQUIRE(after.rops.size() == 3);
  CHECK(name_of(after.rops[1].attrs) == std::string("Elementwise"));
  const Tensor& copy = after.tensor(after.rops[2].inputs[0]);
  CHECK(copy.name == "t.copy");
  CHECK(copy.place.strides == std::vector<int64_t>{240, 6, 1});
  CHECK(after.buffers[copy.place.buffer.index()].kind == BufferKind::arena);
  // With the strides that a Transpose gives it, the operand is no row after row.
  CHECK(tensor_named(after, "t").place.strides == std::vector<int64_t>{240, 1, 40});
}

TEST_CASE("rows of copies begin at multiples of 16 bytes if they are long") {
  const Graph source = parse_graph(R"(
    x = input f32[2,36,5]
    w = const f32[36,8]
    n = Softmax(x) {axes=[2,2]} -> f32[2,36,5]
    t = Transpose(n) {perm=[0,2,1]} -> f32[2,5,36]
    y = MatMul(t, w) {} -> f32[2,5,8]
    outputs(y)
  )");
  CHECK(tensor_named(placed(source, copies_are_cheap, 4), "t.copy").place.strides == std::vector<int64_t>{180, 36, 1});
  CHECK(tensor_named(placed(source, copies_are_cheap, 8), "t.copy").place.strides == std::vector<int64_t>{200, 40, 1});
}

TEST_CASE("readers that want the same order share one copy") {
  const Graph source = parse_graph(mixer(R"(
    a = MatMul(t, w) {} -> f32[2,40,8]
    b = MatMul(t, v) {} -> f32[2,40,4]
    c = Softmax(t) {axes=[2,2]} -> f32[2,40,6]
    d = Softmax(t) {axes=[1,1]} -> f32[2,40,6]
    outputs(a, b, c, d)
  )"));
  const Graph after = placed(source);
  CHECK(count_rops(after, "Elementwise") == 1);  // d's rows lie well where they are
  const auto operand_of = [&](const std::string& name) {
    for (const ROperator& rop : after.rops) {
      if (rop.name == name) return after.tensor(rop.inputs[0]).name;
    }
    return std::string();
  };
  CHECK(operand_of("a") == "t.copy");
  CHECK(operand_of("b") == "t.copy");
  CHECK(operand_of("c") == "t.copy");
  CHECK(operand_of("d") == "t");
}

TEST_CASE("nothing is left of a copy that is not worth it") {
  const Graph source = parse_graph(mixer(R"(
    a = MatMul(t, w) {} -> f32[2,40,8]
    y = Softmax(a) {axes=[1,1]} -> f32[2,40,8]
    outputs(y)
  )"));
  const Graph without = passes::assign_layout(source);
  for (const PlacedEstimator& estimator : {PlacedEstimator(copies_are_dear), PlacedEstimator(no_rkernel)}) {
    const Graph after = placed(source, estimator);
    CHECK(print(after) == print(without));
    CHECK(after.tensors.size() == without.tensors.size());
    CHECK(after.buffers.size() == without.buffers.size());
  }
}

TEST_CASE("operands that lie well are not copied") {
  struct Row {
    const char *why, *text;
  };
  for (const Row& row : {
           Row{"rows one after another", R"(
             x = input f32[2,6,40]
             w = const f32[40,8]
             n = Softmax(x) {axes=[2,2]} -> f32[2,6,40]
             a = MatMul(n, w) {} -> f32[2,6,8]
             b = Softmax(a) {axes=[2,2]} -> f32[2,6,8]
             y = Normalize(b) {axes=[2]} -> f32[2,6,8]
             outputs(y)
           )"},
           Row{"rows that are read transposed", R"(
             x = input f32[2,6,40]
             z = input f32[2,40,8]
             n = Softmax(x) {axes=[2,2]} -> f32[2,6,40]
             t = Transpose(n) {perm=[0,2,1]} -> f32[2,40,6]
             y = MatMul(t, z) {trans_a=1} -> f32[2,6,8]
             outputs(y)
           )"},
           Row{"convolutions", R"(
             x = input f32[1,8,4,4]
             w = const f32[8,8,1,1]
             a = Conv(x, w) {kernel=[1,1]} -> f32[1,8,4,4]
             y = Conv(a, w) {kernel=[1,1]} -> f32[1,8,4,4]
             outputs(y)
           )"},
           Row{"pixels of so few channels that they are not padded", R"(
             x = input f32[1,3,4,4]
             w = const f32[3,3,1,1]
             a = Conv(x, w) {kernel=[1,1]} -> f32[1,3,4,4]
             y = Conv(a, w) {kernel=[1,1]} -> f32[1,3,4,4]
             outputs(y)
           )"},
           Row{"inputs of the graph and constants", R"(
             x = input f32[1,8,4,4]
             c = const f32[5,6]
             w = const f32[8,8,1,1]
             v = const f32[6,8]
             a = Conv(x, w) {kernel=[1,1]} -> f32[1,8,4,4]
             y = Softmax(a) {axes=[1,1]} -> f32[1,8,4,4]
             z = MatMul(c, v) {} -> f32[5,8]
             outputs(y, z)
           )"},
           Row{"one row, one column, and nothing", R"(
             x = input f32[1,40]
             z = input f32[0,40]
             u = const f32[1,8]
             w = const f32[40,8]
             n = Softmax(x) {axes=[1,1]} -> f32[1,40]
             e = Softmax(z) {axes=[1,1]} -> f32[0,40]
             t = Transpose(n) {perm=[1,0]} -> f32[40,1]
             a = MatMul(n, w) {} -> f32[1,8]
             b = MatMul(t, u) {} -> f32[40,8]
             c = MatMul(e, w) {} -> f32[0,8]
             outputs(a, b, c)
           )"},
       }) {
    INFO(row.why);
    const Graph source = parse_graph(row.text);
    CHECK(print(placed(source)) == print(passes::assign_layout(source)));
  }
}

TEST_CASE("pixels that do not begin at multiples of 16 bytes are copied for a convolution") {
  const Graph source = parse_graph(R"(
    x = input f32[1,8,4,4]
    u = const f32[6,8,1,1]
    w = const f32[8,8,1,1]
    v = const f32[5,14,1,1]
    s = const f32[5,4,1,1]
    a = Conv(x, w) {kernel=[1,1]} -> f32[1,8,4,4]
    b = Conv(x, u) {kernel=[1,1]} -> f32[1,6,4,4]
    c = Concat(b, a) {axis=1} -> f32[1,14,4,4]
    y = Conv(a, w) {kernel=[1,1]} -> f32[1,8,4,4]
    z = Conv(c, v) {kernel=[1,1]} -> f32[1,5,4,4]
    outputs(y, z)
  )");
  const Graph after = placed(source);
  CHECK(tensor_named(after, "a.copy").place.strides == std::vector<int64_t>{0, 1, 32, 8});
  CHECK(print(placed(source, copies_are_dear)) == print(passes::assign_layout(source)));
}

TEST_CASE("copies that are worth it keep the answers of graphs with many views") {
  int copies = 0;
  for (unsigned seed = 1000; seed < 1200; ++seed) {
    CAPTURE(seed);
    const Graph source = passes::fold_batch_norm(random_graph(seed, 3 + static_cast<int>(seed % 12)));
    CAPTURE(print(source));
    if (!has_finite_answers(source)) continue;
    const Graph after = placed(source, copies_are_cheap, seed % 2 == 0 ? 4 : 8);
    copies += print(after) != print(passes::assign_layout(source, seed % 2 == 0 ? 4 : 8));
  }
  CHECK(copies > 10);
}

TEST_CASE("a view that no strides express is copied into a Concat once") {
  struct Row {
    const char *why, *text;
    int copies;
  };
  const std::string head = R"(
    x = input f32[2,3,4,5]
    u = const f32[8,3,1,1]
    w = const f32[4,3,1,1]
    i = Conv(x, u) {kernel=[1,1]} -> f32[2,8,4,5]
    s = Conv(x, w) {kernel=[1,1]} -> f32[2,4,4,5]
  )";
  for (const Row& row : {
           Row{"the pixels of a transposed convolution", R"(
             a = Reshape(i) -> f32[2,2,2,2,4,5]
             b = Transpose(a) {perm=[0,1,4,2,5,3]} -> f32[2,2,4,2,5,2]
             c = Reshape(b) -> f32[2,2,8,10]
             v = const f32[3,4,1,1]
             z = const f32[2,2,1,1]
             d = Conv(c, z) {kernel=[1,1]} -> f32[2,2,8,10]
             e = Concat(c, d) {axis=1} -> f32[2,4,8,10]
             y = Conv(e, v) {kernel=[1,1]} -> f32[2,3,8,10]
             outputs(y)
           )",
               1},
           Row{"twice in one Concat", R"(
             a = Reshape(i) -> f32[2,2,2,2,4,5]
             b = Transpose(a) {perm=[0,1,4,2,5,3]} -> f32[2,2,4,2,5,2]
             c = Reshape(b) -> f32[2,2,8,10]
             v = const f32[3,4,1,1]
             e = Concat(c, c) {axis=1} -> f32[2,4,8,10]
             y = Conv(e, v) {kernel=[1,1]} -> f32[2,3,8,10]
             outputs(y)
           )",
               2},
           Row{"along another axis", R"(
             a = Reshape(i) -> f32[2,2,2,2,4,5]
             b = Transpose(a) {perm=[0,1,4,2,5,3]} -> f32[2,2,4,2,5,2]
             c = Reshape(b) -> f32[2,2,8,10]
             d = Elementwise(c) {exp(i0)} -> f32[2,2,8,10]
             y = Concat(c, d) {axis=3} -> f32[2,2,8,20]
             outputs(y)
           )",
               2},  // and exp
           Row{"into an answer, and an answer itself", R"(
             a = Reshape(i) -> f32[2,2,2,2,4,5]
             b = Transpose(a) {perm=[0,1,4,2,5,3]} -> f32[2,2,4,2,5,2]
             c = Reshape(b) -> f32[2,2,8,10]
             d = Elementwise(c) {exp(i0)} -> f32[2,2,8,10]
             y = Concat(c, d) {axis=1} -> f32[2,4,8,10]
             outputs(y, c)
           )",
               3},
           Row{"rows of pixels", R"(
             a = Transpose(i) {perm=[0,1,3,2]} -> f32[2,8,5,4]
             c = Reshape(a) -> f32[2,160]
             b = Transpose(s) {perm=[0,2,3,1]} -> f32[2,4,5,4]
             d = Reshape(b) -> f32[2,80]
             e = Concat(c, d) {axis=1} -> f32[2,240]
             y = Softmax(e) {axes=[1,1]} -> f32[2,240]
             outputs(y)
           )",
               0},
       }) {
    INFO(row.why);
    const Graph source = parse_graph(head + row.text);
    const Graph graph = passes::assign_layout(source);
    check_pass(source, graph);
    CHECK(count_rops(graph, "Elementwise") == row.copies);
    check_pass(source, placed(source));
  }
}

TEST_CASE("a Concat whose result is taken apart to a map lies as the map should") {
  const Graph source = parse_graph(R"(
    x = input f32[2,8,5,4]
    u = const f32[4,8,1,1]
    w = const f32[3,8,1,1]
    a = Conv(x, u) {kernel=[1,1]} -> f32[2,4,5,4]
    b = Conv(x, u) {kernel=[1,1]} -> f32[2,4,5,4]
    c = Reshape(a) -> f32[2,4,1,5,4]
    d = Reshape(b) -> f32[2,4,1,5,4]
    e = Concat(c, d) {axis=2} -> f32[2,4,2,5,4]
    m = Reshape(e) -> f32[2,8,5,4]
    y = Conv(m, w) {kernel=[1,1]} -> f32[2,3,5,4]
    outputs(y)
  )");
  const Graph graph = passes::assign_layout(source);
  check_pass(source, graph);
  CHECK(graph.rops.size() == 3);
  CHECK(tensor_named(graph, "m").place.strides == std::vector<int64_t>{160, 1, 32, 8});
  CHECK(tensor_named(graph, "a").place.strides == std::vector<int64_t>{160, 2, 32, 8});
  CHECK(tensor_named(graph, "b").place.offset == 1);
}

TEST_CASE("a Concat lies as a map should also where the map is joined with another") {
  // A step of a U-Net with the map before the skip: the phases of a transposed convolution are interleaved.
  const Graph source = parse_graph(R"(
    x = input f32[2,8,5,4]
    z = input f32[2,3,5,8]
    u = const f32[4,8,1,1]
    v = const f32[4,3,1,1]
    w = const f32[3,8,1,1]
    a = Conv(x, u) {kernel=[1,1]} -> f32[2,4,5,4]
    b = Conv(x, u) {kernel=[1,1]} -> f32[2,4,5,4]
    s = Conv(z, v) {kernel=[1,1]} -> f32[2,4,5,8]
    c = Reshape(a) -> f32[2,4,5,4,1]
    d = Reshape(b) -> f32[2,4,5,4,1]
    e = Concat(c, d) {axis=4} -> f32[2,4,5,4,2]
    m = Reshape(e) -> f32[2,4,5,8]
    j = Concat(m, s) {axis=1} -> f32[2,8,5,8]
    y = Conv(j, w) {kernel=[1,1]} -> f32[2,3,5,8]
    outputs(y)
  )");
  const Graph graph = passes::assign_layout(source);
  check_pass(source, graph);
  CHECK(graph.rops.size() == 4);
  CHECK(tensor_named(graph, "j").place.strides == std::vector<int64_t>{320, 1, 64, 8});
  CHECK(tensor_named(graph, "a").place.strides == std::vector<int64_t>{320, 1, 64, 16});
  CHECK(tensor_named(graph, "b").place.offset == 8);
  CHECK(tensor_named(graph, "s").place.offset == 4);
}
