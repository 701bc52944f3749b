// fuse_depthwise: what becomes the prologue of a convolution, what must not, and that the answers stay. Whether a rKernel exists
// for it is the estimator's to say, so these tests need none.
#include "compiler/passes/fuse/fuse_depthwise.h"

#include "compiler/passes/passes.h"
#include "compiler/support/error.h"
#include "kernels/catalogue.h"
#include "kernels/tile/product.h"
#include "test/support/check_pass.h"

using namespace tamp;
using namespace tamp::test;

namespace {

std::optional<Estimate> always(const Graph&, const ROperator&) { return Estimate{1}; }
std::optional<Estimate> never(const Graph&, const ROperator&) { return std::nullopt; }

struct Row {
  const char* why;
  const char* text;
  int rops;  // that are left
};

const ROperator& rop_named(const Graph& graph, const std::string& name) {
  for (const ROperator& rop : graph.rops) {
    if (rop.name == name) return rop;
  }
  FAIL("no rOperator '" + name + "'");
  return graph.rops[0];
}

constexpr const char* kSeparable = R"(
  x = input f32[1,6,7,9]
  d = const f32[6,1,3,3]
  e = const f32[6]
  w = const f32[10,6,1,1]
  b = const f32[10]
  r = Elementwise(x) {relu(i0)} -> f32[1,6,7,9]
  m = Conv(r, d) {kernel=[3,3], strides=[2,1], pads=[1,1,1,1], group=6} epilogue{bias=e, act=clip, a=-0.5, b=0.5} -> f32[1,6,4,9]
  y = Conv(m, w) {kernel=[1,1]} epilogue{bias=b, act=sigmoid} -> f32[1,10,4,9]
  outputs(y)
)";

}  // namespace

TEST_CASE("an activation, a depthwise and a pointwise convolution become one rOperator") {
  const Graph source = parse_graph(kSeparable);
  const Graph fused = passes::fuse_depthwise(source, always);
  check_pass(source, fused);
  REQUIRE(fused.rops.size() == 1);
  CHECK(print(fused).find("y = Conv(x, w, none, d, e) {kernel=[1,1], input_act=relu, depthwise_kernel=[3,3], depthwise_strides=[2,1], "
                          "depthwise_pads=[1,1,1,1], depthwise_act=clip, depthwise_a=-0.5, depthwise_b=0.5} "
                          "epilogue{bias=b, act=sigmoid} -> f32[1,10,4,9]  // y (origin: r, m, y)") != std::string::npos);
}

TEST_CASE("prologues are fused where each reader can take them") {
  const Row rows[] = {
      {"a residual and no biases", R"(
        x = input f32[2,4,5,5]
        z = input f32[2,3,5,5]
        d = const f32[4,1,5,5]
        w = const f32[3,4,1,1]
        m = Conv(x, d) {kernel=[5,5], pads=[2,2,2,2], group=4} -> f32[2,4,5,5]
        y = Conv(m, w) {kernel=[1,1]} epilogue{residual=z} -> f32[2,3,5,5]
        outputs(y)
      )",
       1},
      {"uneven pads and dilations", R"(
        x = input f32[1,4,9,8]
        d = const f32[4,1,3,2]
        w = const f32[4,4,1,1]
        m = Conv(x, d) {kernel=[3,2], strides=[1,2], pads=[2,0,1,1], dilations=[2,1], group=4} -> f32[1,4,8,4]
        y = Conv(m, w) {kernel=[1,1]} -> f32[1,4,8,4]
        outputs(y)
      )",
       1},
      {"two in a row", R"(
        x = input f32[1,4,5,5]
        d = const f32[4,1,3,3]
        w = const f32[4,4,1,1]
        m = Conv(x, d) {kernel=[3,3], pads=[1,1,1,1], group=4} -> f32[1,4,5,5]
        n = Conv(m, w) {kernel=[1,1]} epilogue{act=relu} -> f32[1,4,5,5]
        o = Conv(n, d) {kernel=[3,3], pads=[1,1,1,1], group=4} -> f32[1,4,5,5]
        y = Conv(o, w) {kernel=[1,1]} -> f32[1,4,5,5]
        outputs(y)
      )",
       2},
      {"one activation, three readers", R"(
        x = input f32[1,4,5,5]
        d = const f32[4,1,3,3]
        w = const f32[4,4,1,1]
        v = const f32[2,4,3,3]
        r = Elementwise(x) {clip(i0; -0.25, 0.5)} -> f32[1,4,5,5]
        m = Conv(r, d) {kernel=[3,3], pads=[1,1,1,1], group=4} -> f32[1,4,5,5]
        a = Conv(m, w) {kernel=[1,1]} epilogue{residual=x} -> f32[1,4,5,5]
        b = Conv(r, w) {kernel=[1,1]} -> f32[1,4,5,5]
        c = Conv(r, v) {kernel=[3,3], pads=[1,1,1,1]} -> f32[1,2,5,5]
        outputs(a, b, c)
      )",
       3},
      {"a mid activation that is not zero at zero", R"(
        x = input f32[1,4,5,5]
        d = const f32[4,1,3,3]
        w = const f32[4,4,1,1]
        m = Conv(x, d) {kernel=[3,3], pads=[1,1,1,1], group=4} epilogue{act=sigmoid} -> f32[1,4,5,5]
        y = Conv(m, w) {kernel=[1,1]} -> f32[1,4,5,5]
        outputs(y)
      )",
       1},
  };
  for (const Row& row : rows) {
    INFO(row.why);
    const Graph source = parse_graph(row.text);
    const Graph fused = passes::fuse_depthwise(source, always);
    check_pass(source, fused);
    CHECK(static_cast<int>(fused.rops.size()) == row.rops);
    check_pass(source, passes::fuse_depthwise(fused, always));
  }
}

TEST_CASE("fuse_depthwise leaves alone what would become wrong") {
  const Row rows[] = {
      {"two readers of the depthwise result", R"(
        x = input f32[1,4,5,5]
        d = const f32[4,1,3,3]
        w = const f32[4,4,1,1]
        m = Conv(x, d) {kernel=[3,3], pads=[1,1,1,1], group=4} -> f32[1,4,5,5]
        y = Conv(m, w) {kernel=[1,1]} -> f32[1,4,5,5]
        z = Conv(m, w) {kernel=[1,1]} -> f32[1,4,5,5]
        outputs(y, z)
      )",
       3},
      {"the depthwise result is an output", R"(
        x = input f32[1,4,5,5]
        d = const f32[4,1,3,3]
        w = const f32[4,4,1,1]
        m = Conv(x, d) {kernel=[3,3], pads=[1,1,1,1], group=4} -> f32[1,4,5,5]
        y = Conv(m, w) {kernel=[1,1]} -> f32[1,4,5,5]
        outputs(m, y)
      )",
       2},
      {"the depthwise result is the residual too", R"(
        x = input f32[1,4,5,5]
        d = const f32[4,1,3,3]
        w = const f32[4,4,1,1]
        m = Conv(x, d) {kernel=[3,3], pads=[1,1,1,1], group=4} -> f32[1,4,5,5]
        y = Conv(m, w) {kernel=[1,1]} epilogue{residual=m} -> f32[1,4,5,5]
        outputs(y)
      )",
       2},
      {"two output channels a group", R"(
        x = input f32[1,4,5,5]
        d = const f32[8,1,3,3]
        w = const f32[4,8,1,1]
        m = Conv(x, d) {kernel=[3,3], pads=[1,1,1,1], group=4} -> f32[1,8,5,5]
        y = Conv(m, w) {kernel=[1,1]} -> f32[1,4,5,5]
        outputs(y)
      )",
       2},
      {"groups of two channels", R"(
        x = input f32[1,4,5,5]
        d = const f32[4,2,3,3]
        w = const f32[4,4,1,1]
        m = Conv(x, d) {kernel=[3,3], pads=[1,1,1,1], group=2} -> f32[1,4,5,5]
        y = Conv(m, w) {kernel=[1,1]} -> f32[1,4,5,5]
        outputs(y)
      )",
       2},
      {"a pointwise convolution with a stride", R"(
        x = input f32[1,4,5,5]
        d = const f32[4,1,3,3]
        w = const f32[4,4,1,1]
        m = Conv(x, d) {kernel=[3,3], pads=[1,1,1,1], group=4} -> f32[1,4,5,5]
        y = Conv(m, w) {kernel=[1,1], strides=[2,2]} -> f32[1,4,3,3]
        outputs(y)
      )",
       2},
      {"weights that vary", R"(
        x = input f32[1,4,5,5]
        d = input f32[4,1,3,3]
        w = const f32[4,4,1,1]
        m = Conv(x, d) {kernel=[3,3], pads=[1,1,1,1], group=4} -> f32[1,4,5,5]
        y = Conv(m, w) {kernel=[1,1]} -> f32[1,4,5,5]
        outputs(y)
      )",
       2},
      {"a residual of the depthwise convolution", R"(
        x = input f32[1,4,5,5]
        d = const f32[4,1,3,3]
        w = const f32[4,4,1,1]
        m = Conv(x, d) {kernel=[3,3], pads=[1,1,1,1], group=4} epilogue{residual=x} -> f32[1,4,5,5]
        y = Conv(m, w) {kernel=[1,1]} -> f32[1,4,5,5]
        outputs(y)
      )",
       2},
      {"one spatial dimension", R"(
        x = input f32[1,4,5]
        d = const f32[4,1,3]
        w = const f32[4,4,1]
        m = Conv(x, d) {kernel=[3], pads=[1,1], group=4} -> f32[1,4,5]
        y = Conv(m, w) {kernel=[1]} -> f32[1,4,5]
        outputs(y)
      )",
       2},
      {"an activation that is read by more than convolutions", R"(
        x = input f32[1,4,5,5]
        w = const f32[4,4,1,1]
        r = Elementwise(x) {relu(i0)} -> f32[1,4,5,5]
        y = Conv(r, w) {kernel=[1,1]} -> f32[1,4,5,5]
        z = MaxPool(r) {kernel=[2,2]} -> f32[1,4,4,4]
        outputs(y, z)
      )",
       3},
      {"an activation that is a residual too", R"(
        x = input f32[1,4,5,5]
        w = const f32[4,4,1,1]
        r = Elementwise(x) {relu(i0)} -> f32[1,4,5,5]
        y = Conv(r, w) {kernel=[1,1]} epilogue{residual=r} -> f32[1,4,5,5]
        outputs(y)
      )",
       2},
      {"an activation that makes something of the pads", R"(
        x = input f32[1,4,5,5]
        w = const f32[4,4,3,3]
        r = Elementwise(x) {clip(i0; 0.25, 1)} -> f32[1,4,5,5]
        s = Elementwise(x) {sigmoid(i0)} -> f32[1,4,5,5]
        y = Conv(r, w) {kernel=[3,3], pads=[1,1,1,1]} -> f32[1,4,5,5]
        z = Conv(s, w) {kernel=[3,3], pads=[1,1,1,1]} -> f32[1,4,5,5]
        outputs(y, z)
      )",
       4},
      {"an activation that repeats its input", R"(
        x = input f32[1,4,1,1]
        z = input f32[1,4,2,2]
        w = const f32[4,4,1,1]
        r = Elementwise(x) {relu(i0)} -> f32[1,4,1,1]
        s = Elementwise(r, z) {add(i0, i1)} -> f32[1,4,2,2]
        y = Conv(s, w) {kernel=[1,1]} -> f32[1,4,2,2]
        outputs(y)
      )",
       3},
  };
  for (const Row& row : rows) {
    INFO(row.why);
    const Graph source = parse_graph(row.text);
    const Graph fused = passes::fuse_depthwise(source, always);
    check_pass(source, fused);
    CHECK(static_cast<int>(fused.rops.size()) == row.rops);
  }
}

TEST_CASE("fuse_depthwise does nothing where no rKernel takes a prologue") {
  const Graph source = parse_graph(kSeparable);
  CHECK(print(passes::fuse_depthwise(source, {})) == print(source));
  CHECK(print(passes::fuse_depthwise(source, never)) == print(source));
  for (const passes::Pass& pass : passes::pipeline()) {
    if (pass.name == "fuse_depthwise") CHECK(print(pass.run(source)) == print(source));
  }
}

TEST_CASE("the estimator is asked about the rOperator that would be made") {
  const auto no_activation = [](const Graph& graph, const ROperator& rop) {
    CHECK_NOTHROW(ops::verify_shapes(graph));
    return std::get<Conv>(rop.attrs).input_activation.kind == Activation::none ? always(graph, rop) : never(graph, rop);
  };
  const Graph source = parse_graph(kSeparable);
  const Graph fused = passes::fuse_depthwise(source, no_activation);
  check_pass(source, fused);
  CHECK(fused.rops.size() == 2);
  CHECK(std::get<Conv>(rop_named(fused, "y").attrs).depthwise.has_value());
}

TEST_CASE("the pipeline fuses in front of folded convolutions and lays results out channels last") {
  const Graph source = parse_graph(R"(
    x = input f32[1,4,6,6]
    w0 = const f32[8,4,3,3]
    d = const f32[8,1,3,3]
    w = const f32[8,8,1,1]
    scale = const f32[8] {1, 2, 3, 4, 1, 2, 3, 4}
    shift = const f32[8] {0.5, -0.5, 1, 2, -0.5, 1, 2, 3}
    mean = const f32[8] {0.25, -1, 0.5, 1, 1, 1, 1, 1}
    var = const f32[8] {4, 9, 1, 2, 3, 4, 5, 6}
    lo = const f32[] {0}
    a = Conv(x, w0) {kernel=[3,3], pads=[1,1,1,1]} -> f32[1,8,6,6]
    r = Elementwise(a) {relu(i0)} -> f32[1,8,6,6]
    m = Conv(r, d) {kernel=[3,3], pads=[1,1,1,1], strides=[2,2], group=8} -> f32[1,8,3,3]
    n = BatchNorm(m, scale, shift, mean, var) {epsilon=0.001} -> f32[1,8,3,3]
    c = Elementwise(n) {clip(i0; 0, 6)} -> f32[1,8,3,3]
    p = Conv(c, w) {kernel=[1,1]} -> f32[1,8,3,3]
    q = BatchNorm(p, scale, shift, mean, var) {epsilon=0.001} -> f32[1,8,3,3]
    s = Elementwise(a) {tanh(i0)} -> f32[1,8,6,6]
    outputs(q, s)
  )");
  Graph graph = source;
  for (const passes::Pass& pass : passes::pipeline(always)) {
    graph = pass.run(std::move(graph));
    check_pass(source, graph);
  }
  const ROperator& fused = rop_named(graph, "p");
  const auto& conv = std::get<Conv>(fused.attrs);
  REQUIRE(conv.depthwise.has_value());
  CHECK(conv.input_activation.kind == Activation::relu);
  CHECK(conv.depthwise->activation.kind == Activation::clip);
  CHECK(fused.inputs.size() == kDepthwiseBias + 1);
  CHECK(graph.tensor(fused.inputs[0]).place.strides[1] == 1);  // channels last
}

TEST_CASE("what a prologue reads lies so that boxes can be cut from it, or is copied") {
  const Row rows[] = {
      {"a graph input", R"(
        x = input f32[1,8,5,6]
        d = const f32[8,1,3,3]
        w = const f32[8,8,1,1]
        m = Conv(x, d) {kernel=[3,3], pads=[1,1,1,1], group=8} -> f32[1,8,5,6]
        y = Conv(m, w) {kernel=[1,1]} -> f32[1,8,5,6]
        outputs(y)
      )",
       2},
      {"a graph output", R"(
        a = input f32[1,3,5,6]
        v = const f32[8,3,1,1]
        d = const f32[8,1,3,3]
        w = const f32[8,8,1,1]
        x = Conv(a, v) {kernel=[1,1]} -> f32[1,8,5,6]
        m = Conv(x, d) {kernel=[3,3], pads=[1,1,1,1], group=8} -> f32[1,8,5,6]
        y = Conv(m, w) {kernel=[1,1]} -> f32[1,8,5,6]
        z = Conv(m, w) {kernel=[1,1]} -> f32[1,8,5,6]
        e = const f32[8,1,3,3]
        n = Conv(x, e) {kernel=[3,3], pads=[1,1,1,1], group=8} -> f32[1,8,5,6]
        q = Conv(n, w) {kernel=[1,1]} -> f32[1,8,5,6]
        outputs(x, y, z, q)
      )",
       6},
      {"a part of a Concat that begins at an odd channel", R"(
        a = input f32[1,3,5,6]
        v = const f32[8,3,1,1]
        u = const f32[5,3,1,1]
        d = const f32[8,1,3,3]
        w = const f32[8,8,1,1]
        b = Conv(a, u) {kernel=[1,1]} -> f32[1,5,5,6]
        x = Conv(a, v) {kernel=[1,1]} -> f32[1,8,5,6]
        c = Concat(b, x) {axis=1} -> f32[1,13,5,6]
        p = MaxPool(c) {kernel=[2,2]} -> f32[1,13,4,5]
        m = Conv(x, d) {kernel=[3,3], pads=[1,1,1,1], group=8} -> f32[1,8,5,6]
        y = Conv(m, w) {kernel=[1,1]} -> f32[1,8,5,6]
        outputs(p, y)
      )",
       5},
      {"39 channels", R"(
        a = input f32[2,3,4,3]
        v = const f32[39,3,1,1]
        d = const f32[39,1,3,3]
        w = const f32[39,39,1,1]
        x = Conv(a, v) {kernel=[1,1]} -> f32[2,39,4,3]
        s = Elementwise(x) {tanh(i0)} -> f32[2,39,4,3]
        m = Conv(s, d) {kernel=[3,3], pads=[1,1,1,1], group=39} -> f32[2,39,4,3]
        y = Conv(m, w) {kernel=[1,1]} epilogue{residual=x} -> f32[2,39,4,3]
        outputs(y)
      )",
       3},
  };
  for (const Row& row : rows) {
    INFO(row.why);
    const Graph source = parse_graph(row.text);
    Graph graph = source;
    for (const passes::Pass& pass : passes::pipeline(always)) {
      graph = pass.run(std::move(graph));
      check_pass(source, graph);
    }
    CHECK(static_cast<int>(graph.rops.size()) == row.rops);
    for (const ROperator& rop : graph.rops) {
      const auto* conv = std::get_if<Conv>(&rop.attrs);
      if (conv && conv->depthwise) CHECK(lies_for_boxes(graph.tensor(rop.inputs[0])));
    }
  }
}

TEST_CASE("rKernels that know no prologue refuse a rOperator that has one") {
  Graph graph = parse_graph(kSeparable);
  for (const passes::Pass& pass : passes::pipeline(always)) graph = pass.run(std::move(graph));
  REQUIRE(graph.rops.size() == 1);
  const ROperator& rop = graph.rops[0];
  CHECK_FALSE(kernels::product_of(graph, rop).has_value());
  const auto product = kernels::product_with_prologue(graph, rop);
  REQUIRE(product.has_value());
  CHECK(product->k() == 6);
  CHECK(product->taps() == 9);
  const ShapedVDevice vdevice = read_vdevice("h200").with_inputs();
  for (const char* name : {"implicit_gemm", "depthwise", "direct", "gemv"})
    CHECK(kernels::candidates_of(kernels::family(name), {graph, rop, vdevice, Precision::tf32}).empty());
}

TEST_CASE("a prologue of wrong shape is a bug that verify_shapes finds") {
  const char* const rows[] = {
      "y = Conv(x, w) {kernel=[1,1], depthwise_kernel=[3,3]} -> f32[1,2,3,3]",                          // no weights
      "y = Conv(x, w, none, d) {kernel=[1,1]} -> f32[1,2,5,5]",                                         // weights for nothing
      "y = Conv(x, w, none, d) {kernel=[1,1], depthwise_kernel=[5,3]} -> f32[1,2,1,3]",                 // another kernel
      "y = Conv(x, w, none, d) {kernel=[1,1], depthwise_kernel=[3,3]} -> f32[1,2,5,5]",                 // the input's extents
      "y = Conv(x, w, none, d) {kernel=[1,1], strides=[2,2], depthwise_kernel=[3,3]} -> f32[1,2,2,2]",  // not pointwise
      "y = Conv(x, w, none, d, b) {kernel=[1,1], depthwise_kernel=[3,3]} -> f32[1,2,3,3]",              // a bias too long
      "y = Conv(x, w, none, none, b) {kernel=[1,1]} -> f32[1,2,5,5]",                                   // a bias for nothing
  };
  const std::string head = "x = input f32[1,4,5,5]\nw = const f32[2,4,1,1]\nd = const f32[4,1,3,3]\nb = const f32[5]\n";
  for (const char* row : rows) {
    INFO(row);
    const Graph graph = parse_graph(head + row + "\noutputs(y)\n");
    CHECK_THROWS_AS(ops::verify_shapes(graph), InternalError);
  }
}
