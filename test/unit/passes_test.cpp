// What passes promise: the same answers on random graphs, what each one must and must not rewrite, and how things lie in memory.
// What rewritten graphs look like is in passes_golden_test.cpp.
#include "compiler/passes/passes.h"

#include <algorithm>
#include <random>

#include "compiler/ops/ops.h"
#include "compiler/passes/assign_layout.h"
#include "compiler/passes/canonicalise.h"
#include "compiler/passes/fold_batch_norm.h"
#include "compiler/passes/fold_constants.h"
#include "compiler/passes/fuse_elementwise.h"
#include "compiler/passes/fuse_epilogue.h"
#include "compiler/passes/recognise_activations.h"
#include "compiler/passes/remove_identities.h"
#include "compiler/passes/slice_gathers.h"
#include "test/support/catch.h"
#include "test/support/graph_text.h"
#include "test/support/placed_run.h"

using namespace tamp;
using test::distance;
using test::parse_graph;
using test::random_inputs;

namespace {

std::vector<std::string> output_names(const Graph& graph) {
  std::vector<std::string> names;
  for (const TensorId id : graph.outputs) names.push_back(graph.tensor(id).name);
  return names;
}

// What holds after every pass, and that the answers stay.
void check_pass(const Graph& before, const Graph& after, const std::vector<ops::Value>& inputs) {
  CHECK_NOTHROW(verify(after));
  CHECK_NOTHROW(ops::verify_shapes(after));
  CHECK(output_names(before) == output_names(after));
  CHECK(print(parse_graph(print(after))) == print(after));
  CHECK(distance(ops::run(before, inputs), test::run_any(after, inputs)) < 1e-5);
}

// ---- random graphs ----

class RandomGraph {
 public:
  explicit RandomGraph(unsigned seed) : random_(seed) {}

  Graph make(int rops) {
    for (int i = 0; i < 2; ++i) {
      Tensor input;
      input.name = "x" + std::to_string(i);
      input.shape = {pick(1, 2), pick(1, 4), pick(1, 5), pick(1, 5)};
      input.role = Role::input;
      graph_.inputs.push_back(add_tensor(graph_, std::move(input)));
      live_.push_back(graph_.inputs.back());
    }
    while (static_cast<int>(graph_.rops.size()) < rops) add_some();
    for (int i = 0; i < 3; ++i) graph_.outputs.push_back(any());
    graph_.outputs.push_back(live_.back());
    return remove_dead(std::move(graph_));
  }

 private:
  int64_t pick(int64_t low, int64_t high) { return std::uniform_int_distribution<int64_t>(low, high)(random_); }
  // Recent tensors more often, so that chains form.
  TensorId any() { return live_[static_cast<size_t>(pick(pick(0, 2) > 0 ? std::max<int64_t>(0, static_cast<int64_t>(live_.size()) - 4) : 0, static_cast<int64_t>(live_.size()) - 1))]; }
  const Shape& shape(TensorId id) const { return graph_.tensor(id).shape; }

  TensorId constant(const Shape& of, bool positive = false) {
    std::uniform_real_distribution<float> uniform(positive ? 0.5F : -0.7F, positive ? 1.5F : 0.7F);
    std::vector<float> values;
    for (int64_t i = 0; i < element_count(of); ++i) values.push_back(uniform(random_));
    return add_f32_constant(graph_, "k" + std::to_string(graph_.tensors.size()), of, values);
  }

  TensorId add(OpAttrs attrs, std::vector<TensorId> inputs, Shape out) {
    Tensor tensor;
    tensor.name = "t" + std::to_string(graph_.tensors.size());
    tensor.shape = std::move(out);
    ROperator rop;
    rop.name = tensor.name;
    rop.attrs = std::move(attrs);
    rop.inputs = std::move(inputs);
    rop.outputs = {add_tensor(graph_, std::move(tensor))};
    rop.origin = {rop.name};
    graph_.rops.push_back(std::move(rop));
    live_.push_back(graph_.rops.back().outputs[0]);
    return live_.back();
  }
  TensorId add_step(ElementwiseOp op, std::vector<TensorId> inputs, float a = 0, float b = 0) {
    ElementwiseStep step{op, {}, a, b};
    for (size_t i = 0; i < inputs.size(); ++i) step.operands.push_back(static_cast<int32_t>(i));
    const Shape out = inputs.size() == 2 ? ops::broadcast(shape(inputs[0]), shape(inputs[1])) : shape(inputs[0]);
    return add(Elementwise{{step}}, std::move(inputs), out);
  }

  void add_some() {
    const TensorId x = any();
    switch (pick(0, 14)) {
      case 0: case 1: case 2: return add_conv(x);
      case 3: return add_batch_norm(x);
      case 4: return void(add_step(ElementwiseOp::relu, {x}));
      case 5: return void(add_step(ElementwiseOp::mul, {x, add_step(ElementwiseOp::sigmoid, {x})}));
      case 6: return void(add_step(ElementwiseOp::clip, {x}, -0.5F, 0.5F));
      case 7: return add_sum(x);
      case 8: return add_sum(x);
      case 9: return add_concat(x);
      case 10: return add_concat(x);
      case 11: return add_transpose(x);
      case 12: return add_slice(x);
      case 13: return add_reshape(x);
      case 14: return add_matmul(x);
    }
  }

  void add_conv(TensorId x) {
    const Shape s = shape(x);
    if (s.size() != 3 && s.size() != 4) return;
    const size_t spatial = s.size() - 2;
    Conv conv;
    conv.kernel.assign(spatial, pick(0, 1) == 0 ? 1 : 3);
    conv.strides.assign(spatial, pick(1, 2));
    conv.dilations.assign(spatial, 1);
    conv.pads_begin.assign(spatial, conv.kernel[0] / 2);
    conv.pads_end = conv.pads_begin;
    Shape out{s[0], pick(1, 4)}, weight{out[1], s[1]};
    for (size_t d = 0; d < spatial; ++d) {
      out.push_back((s[d + 2] - 1) / conv.strides[d] + 1);
      weight.push_back(conv.kernel[d]);
    }
    std::vector<TensorId> inputs = {x, constant(weight)};
    if (pick(0, 1) == 0) inputs.push_back(constant({out[1]}));
    add(conv, inputs, out);
  }

  void add_batch_norm(TensorId x) {
    if (shape(x).size() < 2) return;
    const Shape channels{shape(x)[1]};
    add(BatchNorm{}, {x, constant(channels), constant(channels), constant(channels), constant(channels, /*positive=*/true)}, shape(x));
  }

  // A tensor of the same shape if there is one, else a constant that broadcasts.
  void add_sum(TensorId x) {
    const TensorId other = same_shape(x);
    const bool swap = pick(0, 1) == 0;
    TensorId addend = other;
    if (other == x || pick(0, 3) == 0) {
      Shape s = shape(x);
      for (size_t d = 0; d < s.size(); ++d) {
        if (d != 1 && pick(0, 2) > 0) s[d] = 1;
      }
      addend = constant(s);
    }
    add_step(pick(0, 3) == 0 ? ElementwiseOp::sub : ElementwiseOp::add, swap ? std::vector{addend, x} : std::vector{x, addend});
  }
  TensorId same_shape(TensorId x) {
    std::vector<TensorId> found;
    for (const TensorId id : live_) {
      if (shape(id) == shape(x)) found.push_back(id);
    }
    return found[static_cast<size_t>(pick(0, static_cast<int64_t>(found.size()) - 1))];
  }

  void add_concat(TensorId x) {
    if (shape(x).empty()) return;
    const auto axis = static_cast<size_t>(pick(0, static_cast<int64_t>(shape(x).size()) - 1));
    std::vector<TensorId> parts = {x};
    Shape out = shape(x);
    for (const TensorId id : live_) {
      Shape s = shape(id);
      if (s.size() != out.size() || parts.size() == 3 || pick(0, 1) == 0) continue;
      s[axis] = out[axis];
      if (s != out) continue;
      parts.push_back(id);
      out[axis] += shape(id)[axis];
    }
    if (element_count(out) < 400) add(Concat{static_cast<int64_t>(axis)}, parts, out);
  }

  void add_transpose(TensorId x) {
    Transpose transpose;
    for (size_t d = 0; d < shape(x).size(); ++d) transpose.perm.push_back(static_cast<int64_t>(d));
    std::shuffle(transpose.perm.begin(), transpose.perm.end(), random_);
    Shape out;
    for (const int64_t d : transpose.perm) out.push_back(shape(x)[static_cast<size_t>(d)]);
    add(transpose, {x}, out);
  }

  void add_slice(TensorId x) {
    Slice slice;
    Shape out;
    for (const int64_t extent : shape(x)) {
      const int64_t step = pick(1, 2) * (pick(0, 3) == 0 ? -1 : 1);
      const int64_t start = step > 0 ? pick(0, (extent - 1) / 2) : pick(extent / 2, extent - 1);
      const int64_t room = step > 0 ? (extent - 1 - start) / step : start / -step;
      slice.starts.push_back(start);
      slice.steps.push_back(step);
      out.push_back(pick(room / 2, room) + 1);
    }
    add(slice, {x}, out);
  }

  void add_reshape(TensorId x) {
    int64_t left = element_count(shape(x));
    Shape out;
    for (int64_t rank = pick(1, 4); rank > 1; --rank) {
      const int64_t factor = pick(1, 4);
      out.push_back(left % factor == 0 ? factor : 1);
      left /= out.back();
    }
    out.push_back(left);
    std::shuffle(out.begin(), out.end(), random_);
    add(Reshape{}, {x}, out);
  }

  void add_matmul(TensorId x) {
    if (shape(x).size() < 2) return;
    const bool trans = pick(0, 1) == 0;
    const int64_t depth = shape(x).back(), columns = pick(1, 5);
    Shape out = shape(x);
    out.back() = columns;
    MatMul matmul;
    matmul.trans_b = trans;
    std::vector<TensorId> inputs = {x, constant(trans ? Shape{columns, depth} : Shape{depth, columns})};
    if (pick(0, 1) == 0) {
      matmul.beta = 0.5F;
      inputs.push_back(pick(0, 1) == 0 ? constant({columns}) : constant(pick(0, 1) == 0 ? out : Shape{1}));
    }
    add(matmul, inputs, out);
  }

  std::mt19937 random_;
  Graph graph_;
  std::vector<TensorId> live_;
};

}  // namespace

TEST_CASE("every pass alone and the whole pipeline keep the answers of random graphs") {
  for (unsigned seed = 0; seed < 300; ++seed) {
    CAPTURE(seed);
    const Graph source = RandomGraph(seed).make(4 + static_cast<int>(seed % 20));
    CAPTURE(print(source));
    const std::vector<ops::Value> inputs = random_inputs(source);
    if (distance(ops::run(source, inputs), ops::run(source, inputs)) > 0) continue;  // beyond float's range
    Graph graph = source;
    for (const passes::Pass& pass : passes::pipeline()) {
      CAPTURE(pass.name);
      const bool needs_others = pass.name == "assign_layout";  // it refuses BatchNorm
      if (!needs_others) check_pass(source, pass.run(source), inputs);
      graph = pass.run(std::move(graph));
      check_pass(source, graph, inputs);
    }
    for (const Tensor& tensor : graph.tensors) CHECK(tensor.place.buffer.valid());
    for (const ROperator& rop : graph.rops) {
      const std::string name = name_of(rop.attrs);
      CHECK((name != "BatchNorm" && name != "Reshape" && name != "Transpose" && name != "Slice" && name != "Concat"));
    }
  }
}

TEST_CASE("assign_layout alone keeps the answers of graphs with many views") {
  for (unsigned seed = 1000; seed < 1300; ++seed) {
    CAPTURE(seed);
    const Graph source = passes::fold_batch_norm(RandomGraph(seed).make(3 + static_cast<int>(seed % 12)));
    CAPTURE(print(source));
    const std::vector<ops::Value> inputs = random_inputs(source);
    if (distance(ops::run(source, inputs), ops::run(source, inputs)) > 0) continue;
    check_pass(source, passes::assign_layout(source), inputs);
  }
}

namespace {

int count(const Graph& graph, const std::string& op) {
  int found = 0;
  for (const ROperator& rop : graph.rops) found += name_of(rop.attrs) == op;
  return found;
}

const Tensor& tensor(const Graph& graph, const std::string& name) {
  for (const Tensor& t : graph.tensors) {
    if (t.name == name) return t;
  }
  FAIL("no tensor '" + name + "'");
  return graph.tensors[0];
}

struct Row {
  const char* why;
  const char* text;
  Graph (*pass)(Graph);
};

}  // namespace

TEST_CASE("a pass leaves alone what it does not understand or would make wrong") {
  const Row rows[] = {
      {"an output that is an input needs its copy", "x = input f32[2]\ny = Elementwise(x) {identity(i0)} -> f32[2]\noutputs(y)", passes::remove_identities},
      {"two outputs of one value", "x = input f32[2]\na = Elementwise(x) {relu(i0)} -> f32[2]\nb = Elementwise(a) {identity(i0)} -> f32[2]\noutputs(a, b)",
       passes::remove_identities},
      {"a Reshape of several dimensions that happen to be equal", "x = input f32[2,2]\ny = Transpose(x) {perm=[1,0]} -> f32[2,2]\nz = Slice(x) {starts=[1,0], steps=[-1,1]} -> f32[2,2]\noutputs(y, z)",
       passes::remove_identities},
      {"an input is not constant", "x = input f32[2]\na = const f32[2] {1, 2}\ny = Elementwise(a, x) {add(i0, i1)} -> f32[2]\noutputs(y)", passes::fold_constants},
      {"a constant may not grow without bound", "a = const f32[1] {1}\ny = Elementwise(a) {identity(i0)} -> f32[70000000]\noutputs(y)", passes::fold_constants},
      {"indices that are not evenly spaced", "x = input f32[4]\ni = const i64[3] {0, 1, 3}\nj = const i64[2] {2, 2}\ny = Gather(x, i) {axis=0} -> f32[3]\nz = Gather(x, j) {axis=0} -> f32[2]\noutputs(y, z)",
       passes::slice_gathers},
      {"a gelu with another constant",
       "x = input f32[2]\nr = const f32[] {1.5}\none = const f32[] {1}\nh = const f32[] {0.5}\nd = Elementwise(x, r) {div(i0, i1)} -> f32[2]\ne = Elementwise(d) {erf(i0)} -> f32[2]\n"
       "p = Elementwise(e, one) {add(i0, i1)} -> f32[2]\nq = Elementwise(x, p) {mul(i0, i1)} -> f32[2]\ny = Elementwise(q, h) {mul(i0, i1)} -> f32[2]\noutputs(y)",
       passes::recognise_activations},
      {"no bias, no third operand", "x = input f32[1,2,2,2]\nw = const f32[2,2,1,1] {1, 2, 3, 4}\ny = Conv(x, w) {kernel=[1,1]} -> f32[1,2,2,2]\noutputs(y)", passes::canonicalise},
      {"two readers", "x = input f32[2,2]\nw = const f32[2,2] {1, 2, 3, 4}\na = MatMul(x, w) -> f32[2,2]\nb = Elementwise(a) {relu(i0)} -> f32[2,2]\nc = Elementwise(a) {tanh(i0)} -> f32[2,2]\noutputs(b, c)",
       passes::fuse_epilogue},
      {"a bias along the rows of a MatMul is none",
       "x = input f32[2,2]\nw = const f32[2,2] {1, 2, 3, 4}\nr = const f32[2,1] {1, 2}\na = MatMul(x, w) -> f32[2,2]\nb = Elementwise(a, r) {add(i0, i1)} -> f32[2,2]\noutputs(b)", passes::fuse_epilogue},
      {"constant minus product is no bias", "x = input f32[2,2]\nw = const f32[2,2] {1, 2, 3, 4}\nr = const f32[2] {1, 2}\na = MatMul(x, w) -> f32[2,2]\nb = Elementwise(r, a) {sub(i0, i1)} -> f32[2,2]\noutputs(b)",
       passes::fuse_epilogue},
      {"an activation that grows its operand", "x = input f32[1,2]\nw = const f32[2,2] {1, 2, 3, 4}\nz = input f32[3,2]\na = MatMul(x, w) -> f32[1,2]\nb = Elementwise(a, z) {add(i0, i1)} -> f32[3,2]\noutputs(b)",
       passes::fuse_epilogue},
      {"a producer of another shape would be computed more than once", "x = input f32[2]\nz = input f32[3,2]\na = Elementwise(x) {exp(i0)} -> f32[2]\nb = Elementwise(a, z) {add(i0, i1)} -> f32[3,2]\noutputs(b)",
       passes::fuse_elementwise},
      {"an output in the middle", "x = input f32[2]\na = Elementwise(x) {exp(i0)} -> f32[2]\nb = Elementwise(a) {neg(i0)} -> f32[2]\noutputs(a, b)", passes::fuse_elementwise},
      {"a cast in between rounds", "x = input f32[2]\na = Elementwise(x) {cast(i0)} -> i32[2]\nb = Elementwise(a) {cast(i0)} -> f32[2]\noutputs(b)", passes::fuse_elementwise},
  };
  for (const Row& row : rows) {
    INFO(row.why);
    const Graph graph = parse_graph(row.text);
    CHECK(print(row.pass(graph)) == print(graph));
  }
}

TEST_CASE("BatchNorm is not folded into weights that someone else's answer needs") {
  const Graph graph = passes::fold_batch_norm(parse_graph(R"(
    x = input f32[1,1,2,2]
    w = const f32[2,1,1,1] {1, 2}
    s = const f32[2] {4, 9}
    a = Conv(x, w) {kernel=[1,1]} -> f32[1,2,2,2]
    b = Conv(x, w) {kernel=[1,1]} -> f32[1,2,2,2]
    y = BatchNorm(a, s, s, s, s) -> f32[1,2,2,2]
    z = BatchNorm(b, s, s, s, s) -> f32[1,2,2,2]
    outputs(a, y, z)
  )"));
  CHECK(count(graph, "BatchNorm") == 0);
  CHECK(count(graph, "Elementwise") == 1);                          // a is an output
  CHECK(f32_data(tensor(graph, "w"))[1] == 2);                      // shared weights stay for a
  CHECK(f32_data(tensor(graph, "b.folded_weight"))[1] != 2);
}

TEST_CASE("of two MatMuls that are added the one further from the inputs takes the other as residual") {
  for (const char* order : {"a, b", "b, a"}) {
    const Graph graph = passes::fuse_epilogue(parse_graph(std::string(R"(
      x = input f32[1,4]
      h = input f32[1,4]
      w = const f32[4,4]
      t = Elementwise(h) {tanh(i0)} -> f32[1,4]
      b = MatMul(t, w) -> f32[1,4]
      a = MatMul(x, w) -> f32[1,4]
      y = Elementwise()") + order + R"() {add(i0, i1)} -> f32[1,4]
      outputs(y)
    )"));
    CHECK(graph.rops.size() == 3);
    CHECK(graph.rops.back().name == "b");
    CHECK(graph.tensor(graph.rops.back().epilogue.residual).name == "a");
  }
}

TEST_CASE("a chain longer than the device's bodies hold becomes several") {
  std::string text = "x0 = input f32[3]\n";
  for (int i = 1; i <= 40; ++i) text += "x" + std::to_string(i) + " = Elementwise(x" + std::to_string(i - 1) + ") {neg(i0)} -> f32[3]\n";
  const Graph graph = passes::fuse_elementwise(parse_graph(text + "outputs(x40)"));
  CHECK(graph.rops.size() == 3);
  for (const ROperator& rop : graph.rops) CHECK(std::get<Elementwise>(rop.attrs).steps.size() <= 16);

  std::string wide, sum;
  for (int i = 0; i < 12; ++i) wide += "x" + std::to_string(i) + " = input f32[3]\n";
  for (int i = 1; i < 12; ++i) {
    const std::string last = i == 1 ? "x0" : "s" + std::to_string(i - 1);
    sum += "s" + std::to_string(i) + " = Elementwise(" + last + ", x" + std::to_string(i) + ") {add(i0, i1)} -> f32[3]\n";
  }
  const Graph joined = passes::fuse_elementwise(parse_graph(wide + sum + "outputs(s11)"));
  CHECK(joined.rops.size() == 2);
  for (const ROperator& rop : joined.rops) CHECK(rop.inputs.size() <= 8);
}

// ---- layout ----

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
  CHECK(tensor(graph, "a").place.strides == std::vector<int64_t>{0, 1, 28, 4});
  CHECK(tensor(graph, "b").place.strides == std::vector<int64_t>{0, 1, 28, 4});
  CHECK(tensor(graph, "p").place.strides == std::vector<int64_t>{0, 1, 24, 4});
  CHECK(tensor(graph, "l").place.strides == std::vector<int64_t>{0, 1, 24, 4});
  CHECK(tensor(graph, "c").place.strides == std::vector<int64_t>{36, 1, 4});
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
  const std::string head = "x = input f32[1,2,2,2]\nw = const f32[2,2,1,1] {1, 2, 3, 4}\na = Conv(x, w) {kernel=[1,1]} -> f32[1,2,2,2]\nb = Conv(a, w) {kernel=[1,1]} -> f32[1,2,2,2]\n";
  const std::string tail = "y = Reduce(cc) {kind=sum, axes=[1]} -> f32[1,1,2,2]\noutputs(y)";
  for (const Case& c : {
           Case{"fresh operands", "cc = Concat(a, b) {axis=1} -> f32[1,4,2,2]\n", 0},
           Case{"the graph's input", "cc = Concat(a, x) {axis=1} -> f32[1,4,2,2]\n", 1},
           Case{"the same operand again", "cc = Concat(a, b, a) {axis=1} -> f32[1,6,2,2]\n", 1},
           Case{"a part of something", "s = Slice(b) {starts=[0,1,0,0]} -> f32[1,1,2,2]\ncc = Concat(a, s) {axis=1} -> f32[1,3,2,2]\n", 1},
           Case{"a Transpose that nobody else reads", "s = Transpose(b) {perm=[0,1,3,2]} -> f32[1,2,2,2]\ncc = Concat(a, s) {axis=1} -> f32[1,4,2,2]\n", 0},
           Case{"along another axis", "cc = Concat(a, b) {axis=3} -> f32[1,2,2,4]\n", 0},
           Case{"DenseNet: one Concat is the beginning of the next",
                "c2 = Concat(a, b) {axis=1} -> f32[1,4,2,2]\nv = const f32[2,4,1,1]\nd = Conv(c2, v) {kernel=[1,1]} -> f32[1,2,2,2]\ncc = Concat(a, b, d) {axis=1} -> f32[1,6,2,2]\n", 0},
           Case{"two Concats in different order", "c2 = Concat(b, a) {axis=1} -> f32[1,4,2,2]\ncc = Concat(a, b, c2) {axis=1} -> f32[1,8,2,2]\n", 2},
       }) {
    INFO(c.why);
    std::string end = tail;
    if (std::string(c.why) == "along another axis") end = "y = Reduce(cc) {kind=sum, axes=[1]} -> f32[1,1,2,4]\noutputs(y)";
    const Graph source = parse_graph(head + c.text + end);
    const Graph graph = passes::assign_layout(source);
    CHECK(count(graph, "Elementwise") == c.copies);
    CHECK(count(graph, "Concat") == 0);
    check_pass(source, graph, random_inputs(source));
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
  CHECK(tensor(graph, "h1").place.offset == 4);
  check_pass(source, graph, random_inputs(source));
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
  check_pass(source, passes::assign_layout(source), random_inputs(source));
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
