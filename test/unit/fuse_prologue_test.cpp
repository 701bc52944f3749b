// PrologueMatMul: the reference against values worked out by hand, what is refused, the pass that makes it (whether that is faster is the
// estimator's to say), and the device body against the reference over the stand-in.
#include "compiler/passes/fuse/fuse_prologue.h"

#include "compiler/passes/place/assign_layout.h"
#include "compiler/select/cost.h"
#include "kernels/product/gemv.h"
#include "test/kernels/heavy_bench.h"
#include "test/support/case_folder.h"
#include "test/support/check_pass.h"
#include "test/support/onnx_model.h"

namespace tamp::test {
namespace {

using Catch::Matchers::Contains;

double gained(const Graph& graph, double us) { return 100 - us * count_rops(graph, "PrologueMatMul"); }
double faster(const Graph& graph) { return gained(graph, 10); }
double slower(const Graph& graph) { return gained(graph, -10); }
double hardly_faster(const Graph& graph) { return gained(graph, 0.1); }

Estimator on(const char* name, Precision precision) {
  return [vdevice = read_vdevice(name).with_inputs(), precision](const Graph& graph, const ROperator& rop) {
    return select::estimate(graph, rop, vdevice, precision);
  };
}

Graph fused(const std::string& text, const GraphEstimator& graphs = faster) {
  const Graph source = parse_graph(text);
  Graph made = passes::fuse_prologue(source, on("h200", Precision::fp16), graphs);
  check_pass(source, made);
  CHECK(print(parse_graph(print(made))) == print(made));
  return made;
}

// A layer of a decoder without its attention: three products read one normalisation, and one reads a gate.
const std::string kLayer = R"(
  x = input f32[2,12]
  w = const f32[12,8]
  v = const f32[8,12]
  u = const f32[12,8]
  g = const f32[12]
  h = const f32[12]
  n = Normalize(x, g, h) {axes=[1], epsilon=0.001} -> f32[2,12]
  q = MatMul(n, w) -> f32[2,8]
  k = MatMul(n, v) {trans_b=1, alpha=0.5} -> f32[2,8]
  m = MatMul(n, u) -> f32[2,8]
  gate = Elementwise(q, k, m) {sigmoid(i0), mul(s0, i1), add(s1, i2)} -> f32[2,8]
  y = MatMul(gate, v) epilogue{residual=x} -> f32[2,12]
  outputs(y)
)";

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  const size_t at = text.find(from);
  REQUIRE(at != std::string::npos);
  return text.replace(at, from.size(), to);
}

int made_of(const std::string& text) { return static_cast<int>(count_rops(fused(text), "PrologueMatMul")); }

}  // namespace

TEST_CASE("PrologueMatMul computes its rows, normalises and multiplies them") {
  CaseMaker maker("by hand");
  const TensorId b = maker.constant({4, 1}, Lay::rows, {1, 2, 3, 4}), scale = maker.constant({4}, Lay::rows, {1, 1, 2, 1}),
                 shift = maker.constant({4}, Lay::rows, {0, 0, 0, 1}), x = maker.input({1, 4}, Lay::rows, {1, 2, 3, 4}),
                 y = maker.input({1, 4}, Lay::rows, {1, 1, 0, 1});
  PrologueMatMul op{.alpha = 2, .steps = {{ElementwiseOp::mul, {3, 4}}, {ElementwiseOp::sub, {-1, 3}}}, .normalize = true, .epsilon = 0};
  const Case c = maker.finish(op, {b, scale, shift, x, y}, maker.output({1, 1}));  // rows: 0, 0, -3, 0
  const auto answers = [](const Case& of) {
    return ops::evaluate(of.graph, of.graph.rops[0], [&](TensorId id) -> const ops::Value& { return of.values[id.index()]; });
  };
  const float low = -1.7320508F, high = 0.57735027F;
  const float wanted = 2 * (high * 1 + high * 2 + low * 2 * 3 + (high + 1) * 4);
  CHECK(floats_of(answers(c)[0])[0] == Approx(wanted));

  CaseMaker plain("the root of the mean square");
  const TensorId w = plain.constant({1, 2}, Lay::rows, {1, 1}), r = plain.input({1, 1, 2}, Lay::rows, {3, 3});
  op = PrologueMatMul{.trans_b = true, .normalize = true, .centered = false, .epsilon = 0};
  CHECK(floats_of(answers(plain.finish(op, {w, TensorId(), TensorId(), r}, plain.output({1, 1, 1})))[0])[0] == Approx(2));
}

TEST_CASE("PrologueMatMul says what does not fit") {
  const auto refused = [](const PrologueMatMul& op, const std::vector<Shape>& shapes) {
    ops::OperandList operands;
    for (const Shape& shape : shapes)
      operands.push_back(shape.empty() ? std::nullopt : std::optional(ops::Operand{{DType::f32, shape}, nullptr}));
    try {
      ops::infer(op, operands);
    } catch (const std::exception& error) {
      return std::string(error.what());
    }
    return std::string("taken");
  };
  const PrologueMatMul norm{.normalize = true}, sum{.steps = {{ElementwiseOp::add, {3, 4}}}}, plain;
  CHECK(refused(norm, {{5, 8}, {5}, {5}, {2, 3, 5}}) == "taken");
  CHECK(refused(sum, {{5, 8}, {}, {}, {2, 5}, {2, 5}}) == "taken");
  CHECK_THAT(refused(norm, {{5, 8}, {5}, {5}}), Contains("has no rows"));
  CHECK_THAT(refused(norm, {{2, 5, 8}, {5}, {5}, {2, 5}}), Contains("B has shape [2,5,8], expected one matrix"));
  CHECK_THAT(refused(norm, {{5, 8}, {1}, {}, {2, 5}}), Contains("operand 1 has shape [1], expected [5]"));
  CHECK_THAT(refused(plain, {{5, 8}, {5}, {}, {2, 5}}), Contains("no normalisation"));
  CHECK_THAT(refused(plain, {{5, 8}, {}, {}, {2, 5}, {2, 5}}), Contains("2 operands and no steps"));
  CHECK_THAT(refused(sum, {{5, 8}, {}, {}, {2, 5}, {1, 5}}), Contains("X has shape [1,5], expected [2,5]"));
  CHECK_THAT(refused(sum, {{5, 8}, {}, {}, {2, 5}}), Contains("uses operand"));
  CHECK_THAT(refused({.steps = {{ElementwiseOp::add, {0, 3}}}}, {{5, 8}, {}, {}, {2, 5}}), Contains("a step uses B"));
  CHECK_THAT(refused(plain, {{4, 8}, {}, {}, {2, 5}}), Contains("differ"));
}

TEST_CASE("products take the normalisation or the chain in front of them") {
  const Graph made = fused(kLayer);
  CHECK(made.rops.size() == 4);
  CHECK(count_rops(made, "PrologueMatMul") == 4);
  const auto& norm = std::get<PrologueMatMul>(made.rops[1].attrs);
  CHECK(norm == PrologueMatMul{.trans_b = true, .alpha = 0.5F, .normalize = true, .epsilon = 0.001F});
  const auto& chain = std::get<PrologueMatMul>(made.rops[3].attrs);
  CHECK((chain.steps.size() == 3 && !chain.normalize));
  CHECK(made.rops[3].inputs.size() == kPrologueRows + 3);
  CHECK(made.rops[3].epilogue.residual.valid());
}

TEST_CASE("a chain in front of a normalisation, views, and other normalisations") {
  const std::string chain = replaced(replaced(kLayer, "n = Normalize(x,", "r = Elementwise(x) {relu(i0)} -> f32[2,12]\n  n = Normalize(r,"),
                                     "residual=x", "residual=x, act=relu");
  const Graph made = fused(chain);
  CHECK(count_rops(made, "PrologueMatMul") == 4);
  CHECK(count_rops(made, "Elementwise") == 0);
  const auto& first = std::get<PrologueMatMul>(made.rops[0].attrs);
  CHECK((first.normalize && first.steps.size() == 1));

  const Graph views =
      fused(replaced(replaced(kLayer, "q = MatMul(n, w) -> f32[2,8]",
                              "t = Reshape(n) -> f32[1,2,12]\n  p = MatMul(t, w) -> f32[1,2,8]\n  q = Reshape(p) -> f32[2,8]"),
                     "k = MatMul", "j = Reshape(t) -> f32[2,12]\n  k = MatMul"));
  CHECK(count_rops(views, "PrologueMatMul") == 4);
  CHECK(count_rops(passes::assign_layout(views), "Reshape") == 0);

  // As a classifier behind a pooling has them: dimensions of one element in another order.
  const Graph classifier = fused(R"(
    x = input f32[1,1,1,768]
    w = const f32[10,768]
    n = Normalize(x) {axes=[3], epsilon=0.001} -> f32[1,1,1,768]
    t = Transpose(n) {perm=[0,3,1,2]} -> f32[1,768,1,1]
    r = Reshape(t) -> f32[1,768]
    y = MatMul(r, w) {trans_b=1} -> f32[1,10]
    outputs(y)
  )");
  CHECK(count_rops(classifier, "PrologueMatMul") == 1);
  CHECK(count_rops(passes::assign_layout(classifier), "Reshape") == 0);

  CHECK(made_of(replaced(kLayer, "Normalize(x, g, h) {axes=[1]", "Normalize(x, g) {axes=[1], centered=0")) == 4);
  CHECK(made_of(replaced(kLayer, "Normalize(x, g, h)", "Normalize(x)")) == 4);
}

TEST_CASE("rows that others read, or that are another thing, stay as they are") {
  CHECK(made_of(replaced(kLayer, "outputs(y)", "outputs(y, n)")) == 1);
  CHECK(made_of(replaced(kLayer, "residual=x", "residual=n")) == 1);
  CHECK(made_of(replaced(kLayer, "outputs(y)", "outputs(y, gate)")) == 3);
  CHECK(made_of(replaced(kLayer, "Normalize(x, g, h) {axes=[1]", "Normalize(x) {axes=[0]")) == 1);
  CHECK(made_of(replaced(kLayer, "w = const", "w = input")) == 1);
  CHECK(made_of(replaced(kLayer, "h = const", "h = input")) == 1);
  CHECK(made_of(replaced(kLayer, "add(s1, i2)", "erf(s1), add(s2, i2), erf(s3), tanh(s4), mul(s5, i0)")) == 3);  // there is no body of it
  CHECK(made_of(replaced(replaced(kLayer, "Elementwise(q, k, m)", "Elementwise(q, k, c)"), "q = MatMul",
                         "c = const f32[8]\n  q = MatMul")) == 2);
  std::string many = kLayer;
  for (size_t at; (at = many.find("[2,")) != std::string::npos;) many.replace(at, 3, "[9,");
  CHECK(made_of(many) == 0);
}

TEST_CASE("rows stay as they are where the graph is not faster without them") {
  for (const GraphEstimator& estimator : {GraphEstimator(slower), GraphEstimator(hardly_faster), GraphEstimator()}) {
    const Graph made = fused(kLayer, estimator);
    CHECK(count_rops(made, "PrologueMatMul") == 0);
  }
  const Graph source = parse_graph(kLayer);
  CHECK(print(passes::fuse_prologue(source, {}, faster)) == print(source));
  // Of two kinds the one that gains.
  const auto of_chains = [](const Graph& graph) {
    double us = 100;
    for (const ROperator& rop : graph.rops) {
      if (const auto* op = std::get_if<PrologueMatMul>(&rop.attrs)) us += op->normalize ? 10 : -10;
    }
    return us;
  };
  CHECK(count_rops(fused(kLayer, of_chains), "PrologueMatMul") == 1);
}

TEST_CASE("of two products around a normalisation the one takes it that makes the graph faster") {
  const std::string text = R"(
    x = input f32[2,12]
    w = const f32[12,8]
    v = const f32[8,12]
    s = MatMul(x, w) -> f32[2,8]
    n = Normalize(s) {axes=[1], epsilon=0.001} -> f32[2,8]
    y = MatMul(n, v) -> f32[2,12]
    outputs(y)
  )";
  const Graph source = parse_graph(text);
  const auto taken_by = [&](double before, double behind) {
    const auto us = [&](const Graph& graph) {
      return 100 - before * count_rops(graph, "NormalizedMatMul") - behind * count_rops(graph, "PrologueMatMul");
    };
    const Graph made = passes::fuse_rows(source, on("h200", Precision::fp16), us);
    check_pass(source, made);
    return std::pair(count_rops(made, "NormalizedMatMul"), count_rops(made, "PrologueMatMul"));
  };
  CHECK(taken_by(5, 4) == std::pair(1, 0));
  CHECK(taken_by(4, 5) == std::pair(0, 1));
  CHECK(taken_by(5, -1) == std::pair(1, 0));
  CHECK(taken_by(-1, 5) == std::pair(0, 1));
  CHECK(taken_by(-1, -1) == std::pair(0, 0));
}

namespace {

struct Sizes {
  Shape rows;
  int64_t columns;
  int operands = 1;  // 0 steps for one, else silu(X0) * X1 + X2 as far as there are
  bool normalize = true, centered = true, has_factors = true, trans_b = false;
  Activation activation = Activation::none;
  bool has_bias = true, has_residual = false;
  float mean = 0;  // of X0
  Lay lay = Lay::rows;
};

Case case_of(const std::string& name, const Sizes& e) {
  CaseMaker maker(name);
  const int64_t k = e.rows.back();
  Shape out = e.rows;
  out.back() = e.columns;
  const auto row = [&](int64_t count, bool wanted) { return wanted ? maker.constant({count}) : TensorId(); };
  std::vector<TensorId> inputs = {maker.constant(e.trans_b ? Shape{e.columns, k} : Shape{k, e.columns})};
  for (int i = 0; i < 2; ++i) inputs.push_back(row(k, e.normalize && e.has_factors));
  for (int i = 0; i < e.operands; ++i) {
    std::vector<float> values;
    if (e.mean != 0) {
      for (int64_t at = 0; at < element_count(e.rows); ++at)
        values.push_back(e.mean + static_cast<float>(at * 7 % 13) / 8 + static_cast<float>(at % 3));
    }
    inputs.push_back(values.empty() ? maker.input(e.rows, e.lay) : maker.input(e.rows, e.lay, values));
  }
  PrologueMatMul op{.trans_b = e.trans_b, .alpha = 0.5F, .normalize = e.normalize, .centered = e.centered, .epsilon = 1e-3F};
  if (e.operands > 1) op.steps = {{ElementwiseOp::sigmoid, {3}}, {ElementwiseOp::mul, {-1, 3}}, {ElementwiseOp::mul, {-2, 4}}};
  if (e.operands > 2) op.steps.push_back({ElementwiseOp::add, {-3, 5}});
  Epilogue epilogue;
  epilogue.activation = e.activation;
  if (e.has_bias) epilogue.bias = maker.constant({e.columns});
  if (e.has_residual) epilogue.residual = maker.input(out);
  return maker.finish(op, inputs, maker.output(out), epilogue);
}

std::vector<Case> cases() {
  return {
      case_of("one four", {{1, 4}, 1}),
      case_of("an odd k", {{1, 7}, 10}),
      case_of("a k of one", {{2, 1}, 9, 2}),
      case_of("one row, two turns, a gate", {{1, 1, 1536}, 33, 2, false}),
      case_of("the root of the mean square", {{1, 576}, 40, 1, true, false}),
      case_of("no factors, transposed weights", {{2, 260}, 65, 1, true, true, false, true}),
      case_of("rows, and a chain that is normalised", {{3, 516}, 17, 3, true, true, true, false, Activation::gelu_tanh, true, true}),
      case_of("an odd k in several turns, root of the mean square", {{5, 1031}, 12, 2, true, false, true, false, Activation::relu}),
      case_of("more turns than a thread has together", {{2, 4356}, 9, 2, true, true, true, true, Activation::none, false}),
      case_of("an odd k, more turns than a thread has together", {{1, 4357}, 9, 1}),
      case_of("as many rows as there can be", {{2, 4, 132}, 5, 1, true, true, true, false, Activation::silu, true, true}),
      case_of("as many rows, a copy", {{8, 1028}, 12, 1, false}),
      case_of("a mean far from zero", {{2, 768}, 24, 1, true, true, true, false, Activation::none, true, false, 20}),
      case_of("one row, a mean far from zero", {{1, 768}, 24, 1, true, true, true, false, Activation::none, true, false, 20}),
      case_of("one row, an odd k in three turns", {{1, 2051}, 37, 1, true, true, true, false, Activation::gelu_tanh, true, true}),
      case_of("one row, the root of the mean square of a gate", {{1, 1031}, 21, 2, true, false, true, true, Activation::relu, false, true}),
      case_of("one row that is a part", {{1, 192}, 70, 2, true, true, true, false, Activation::none, true, true, 0, Lay::slice}),
      case_of("one row that does not lie together",
              {{1, 64}, 8, 2, true, true, true, false, Activation::none, true, false, 0, Lay::reversed}),
      case_of("a part of wider rows", {{3, 192}, 72, 2, true, true, true, false, Activation::none, true, false, 0, Lay::slice}),
      case_of("k that does not lie together", {{4, 64}, 8, 2, true, true, true, false, Activation::none, true, false, 0, Lay::reversed}),
  };
}

void expect_no_problems(const std::vector<Case>& cases, Precision precision, double tolerance, const std::string& name) {
  const std::filesystem::path root = std::filesystem::absolute(__FILE__).parent_path().parent_path().parent_path();
  const CaseFolder folder("tamp_fuse_prologue_" + name);
  ShapedVDevice vdevice = read_vdevice("h200").without_inputs();  // with room for all cases
  vdevice.sms = 4;
  for (const std::string& problem : run_heavy_cases(cases, {kernels::gemv()}, {vdevice, precision, tolerance}, root, folder.path()))
    FAIL_CHECK(problem);
}

}  // namespace

TEST_CASE("products that make their rows agree with the reference") {
  expect_no_problems(cases(), Precision::fp32, 2e-5, "fp32");
  expect_no_problems(cases(), Precision::tf32, 1e-2, "tf32");
}

TEST_CASE("products that make their rows of values of 16 bits agree with the reference") {
  expect_no_problems(narrowed(cases(), /*in=*/true, /*out=*/true), Precision::fp16, 1e-2, "fp16");
  expect_no_problems(narrowed(cases(), /*in=*/true, /*out=*/false), Precision::bf16, 1e-2, "bf16");
  const Case gate = case_of("one operand of 16 bits", {{2, 260}, 33, 2});
  expect_no_problems({narrowed(gate, {gate.graph.rops[0].inputs[kPrologueRows + 1]}, DType::f16)}, Precision::fp16, 1e-2, "mixed");
}

TEST_CASE("products that make their rows have a body where all rows fit in shared memory") {
  const auto bodies = [](const Case& c) {
    return kernels::gemv().candidates({c.graph, c.graph.rops[0], read_vdevice("h200").with_inputs(), Precision::tf32}).size();
  };
  CHECK(bodies(case_of("fits", {{1, 8192}, 1000})) > 0);
  CHECK(bodies(case_of("rows", {{9, 64}, 10})) == 0);
  CHECK(bodies(case_of("shared memory", {{8, 8192}, 10})) == 0);
}

TEST_CASE("products that make their rows cost more the more they do for them") {
  const auto us = [](const Sizes& sizes) {
    const Case c = case_of("cost", sizes);
    const std::optional<Estimate> estimate = on("h200", Precision::fp16)(c.graph, c.graph.rops[0]);
    REQUIRE(estimate.has_value());
    return estimate->us;
  };
  CHECK(us({{1, 768}, 1000, 1, false}) < us({{1, 768}, 1000, 1}));
  CHECK(us({{1, 768}, 1000, 1}) < us({{1, 768}, 1000, 2}));
  CHECK(us({{1, 768}, 1000, 1}) < us({{8, 768}, 1000, 1}));
}

}  // namespace tamp::test
