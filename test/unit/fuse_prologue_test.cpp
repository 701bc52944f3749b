// Products that make their rows: the pattern (whether it is faster is the estimator's to say), and the device body against the reference
// over the stand-in.
#include "compiler/passes/fuse/fuse_regions.h"
#include "compiler/passes/fuse/fuse_rows.h"
#include "compiler/passes/place/assign_layout.h"
#include "compiler/select/cost.h"
#include "kernels/catalogue.h"
#include "kernels/product/gemv_of_rows.h"
#include "kernels/product/split_k_normalize.h"
#include "test/kernels/heavy_bench.h"
#include "test/support/case_folder.h"
#include "test/support/check_pass.h"
#include "test/support/onnx_model.h"

namespace tamp::test {
namespace {

const std::string kPrologue = kernels::products_with_prologue().title;
double gained(const Graph& graph, double us) { return 100 - us * count_rops(graph, kPrologue); }
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
  Graph made = passes::fuse_regions(source, kernels::products_with_prologue(), graphs, on("h200", Precision::fp16));
  check_pass(source, made);
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

int made_of(const std::string& text) { return static_cast<int>(count_rops(fused(text), kPrologue)); }

}  // namespace

TEST_CASE("products take the normalisation or the chain in front of them") {
  const Graph made = fused(kLayer);
  CHECK(made.rops.size() == 4);
  CHECK(count_rops(made, kPrologue) == 4);
  const auto norm = kernels::steps_of_rows(made.rops[1]), chain = kernels::steps_of_rows(made.rops[3]);
  REQUIRE((norm && chain));
  CHECK((!norm->chain && *norm->normalize == Normalize{{1}, true, 0.001F}));
  CHECK((norm->product->trans_b && norm->product->alpha == 0.5F && norm->scale().valid() && norm->shift().valid()));
  CHECK((chain->chain->steps.size() == 3 && !chain->normalize));
  CHECK(made.rops[3].inputs.size() == 5);
  CHECK(chain->residual() == made.inputs[0]);
}

TEST_CASE("a chain in front of a normalisation, views, and other normalisations") {
  const std::string chain = replaced(replaced(kLayer, "n = Normalize(x,", "r = Elementwise(x) {relu(i0)} -> f32[2,12]\n  n = Normalize(r,"),
                                     "residual=x", "residual=x, act=relu");
  const Graph made = fused(chain);
  CHECK(count_rops(made, kPrologue) == 4);
  CHECK(count_rops(made, "Elementwise") == 0);
  const auto first = kernels::steps_of_rows(made.rops[0]);
  CHECK((first && first->normalize && first->chain->steps.size() == 1));

  const Graph views =
      fused(replaced(replaced(kLayer, "q = MatMul(n, w) -> f32[2,8]",
                              "t = Reshape(n) -> f32[1,2,12]\n  p = MatMul(t, w) -> f32[1,2,8]\n  q = Reshape(p) -> f32[2,8]"),
                     "k = MatMul", "j = Reshape(t) -> f32[2,12]\n  k = MatMul"));
  CHECK(count_rops(views, kPrologue) == 4);
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
  CHECK(count_rops(classifier, kPrologue) == 1);
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
    CHECK(count_rops(made, kPrologue) == 0);
  }
  // Of two kinds the one that gains.
  const auto of_chains = [](const Graph& graph) {
    double us = 100;
    for (const ROperator& rop : graph.rops) {
      if (const auto steps = kernels::steps_of_rows(rop)) us += steps->normalize ? 10 : -10;
    }
    return us;
  };
  CHECK(count_rops(fused(kLayer, of_chains), kPrologue) == 1);
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
  const std::string kNormalized = kernels::normalized_products().title;
  const auto taken_by = [&](double before, double behind) {
    const auto us = [&](const Graph& graph) {
      return 100 - before * count_rops(graph, kNormalized) - behind * count_rops(graph, kPrologue);
    };
    const Graph made =
        passes::fuse_rows(source, {kernels::products_with_prologue(), kernels::normalized_products()}, on("h200", Precision::fp16), us);
    check_pass(source, made);
    return std::pair(count_rops(made, kNormalized), count_rops(made, kPrologue));
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
  int operands = 1;  // more than one: silu(X0) * X1 + X2 as far as there are; one that is not normalised: -X0
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
  const TensorId weights = maker.constant(e.trans_b ? Shape{e.columns, k} : Shape{k, e.columns});
  const bool has_factors = e.normalize && e.has_factors;
  const TensorId scale = row(k, has_factors), shift = row(k, has_factors);
  std::vector<TensorId> inputs;
  for (int i = 0; i < e.operands; ++i) {
    std::vector<float> values;
    if (e.mean != 0) {
      for (int64_t at = 0; at < element_count(e.rows); ++at)
        values.push_back(e.mean + static_cast<float>(at * 7 % 13) / 8 + static_cast<float>(at % 3));
    }
    inputs.push_back(values.empty() ? maker.input(e.rows, e.lay) : maker.input(e.rows, e.lay, values));
  }
  std::vector<ROperator> steps;
  TensorId rows = inputs[0];
  const auto add = [&](OpAttrs attrs, std::vector<TensorId> operands) {
    rows = maker.between(e.rows);
    steps.push_back({"step", std::move(attrs), {}, without_last_none(std::move(operands)), {rows}, {}});
  };
  std::vector<ElementwiseStep> chain = {{ElementwiseOp::sigmoid, {0}}, {ElementwiseOp::mul, {-1, 0}}, {ElementwiseOp::mul, {-2, 1}}};
  if (e.operands > 2) chain.push_back({ElementwiseOp::add, {-3, 2}});
  if (e.operands > 1) add(Elementwise{chain}, inputs);
  if (e.operands == 1 && !e.normalize) add(Elementwise{{{ElementwiseOp::neg, {0}}}}, inputs);
  if (e.normalize) add(Normalize{{static_cast<int64_t>(e.rows.size()) - 1}, e.centered, 1e-3F}, {rows, scale, shift});
  Epilogue epilogue;
  epilogue.activation = e.activation;
  if (e.has_bias) epilogue.bias = maker.constant({e.columns});
  if (e.has_residual) epilogue.residual = maker.input(out);
  const TensorId y = maker.output(out);
  steps.push_back({"product", MatMul{false, e.trans_b, 0.5F}, epilogue, {rows, weights}, {y}, {}});
  return maker.finish_steps(steps, {y});
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
      case_of("as many rows, with another sign", {{8, 1028}, 12, 1, false}),
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
  for (const std::string& problem : run_heavy_cases(cases, {kernels::family("gemv")}, {vdevice, precision, tolerance}, root, folder.path()))
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
  expect_no_problems({narrowed(gate, {kernels::steps_of_rows(gate.graph.rops[0])->steps.input(0, 1)}, DType::f16)}, Precision::fp16, 1e-2,
                     "mixed");
}

TEST_CASE("products that make their rows have a body where all rows fit in shared memory") {
  const auto bodies = [](const Case& c) {
    return kernels::candidates_of(kernels::family("gemv"), {c.graph, c.graph.rops[0], read_vdevice("h200").with_inputs(), Precision::tf32})
        .size();
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
