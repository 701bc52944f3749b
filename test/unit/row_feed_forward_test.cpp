// The feed-forward part of one row: the pattern (whether it is faster is the estimator's to say), which steps the family knows, and the
// device bodies against the reference over the stand-in.
#include "kernels/product/row_feed_forward.h"

#include "compiler/passes/fuse/fuse_regions.h"
#include "compiler/select/cost.h"
#include "kernels/catalogue.h"
#include "kernels/product/gemv_cell.h"
#include "kernels/product/gemv_of_rows.h"
#include "test/kernels/heavy_bench.h"
#include "test/support/case_folder.h"
#include "test/support/check_pass.h"

namespace tamp::test {
namespace {

const std::string kFeed = kernels::row_feed_forwards().title;

// With `prologues`, products have taken the normalisation and the multiplication in front of them before.
Graph fed(const std::string& text, bool prologues, double gain_us = 5) {
  const Graph source = parse_graph(text);
  const Estimator any = [](const Graph&, const ROperator&) { return Estimate{1}; };
  const auto gaining = [](const Graph& graph) { return 100.0 - 10 * count_rops(graph, kernels::products_with_prologue().title); };
  Graph graph = prologues ? passes::fuse_regions(source, kernels::products_with_prologue(), gaining, any) : source;
  const GraphEstimator estimator = [&](const Graph& of) { return 100 - gain_us * count_rops(of, kFeed); };
  Graph made = passes::fuse_regions(graph, kernels::row_feed_forwards(), estimator);
  check_pass(source, made);
  return made;
}

const std::string kGatedRow = R"(
  x = input f32[1,8]
  r = input f32[1,6]
  s = const f32[8]
  t = const f32[8]
  w1 = const f32[8,10]
  w2 = const f32[10,8]
  w3 = const f32[10,6]
  e = const f32[10]
  n = Normalize(x, s, t) {axes=[1], epsilon=0.001} -> f32[1,8]
  b = MatMul(n, w2) {trans_b=1} epilogue{bias=e} -> f32[1,10]
  a = MatMul(n, w1) epilogue{act=silu} -> f32[1,10]
  m = Elementwise(a, b) {mul(i0, i1)} -> f32[1,10]
  z = MatMul(m, w3) {alpha=0.5} epilogue{residual=r} -> f32[1,6]
  outputs(z)
)";

const std::string kPlainRow = R"(
  x = input f32[1,1,8]
  w1 = const f32[8,10]
  w2 = const f32[10,8]
  e = const f32[10]
  n = Normalize(x) {axes=[2], epsilon=0.001} -> f32[1,1,8]
  a = MatMul(n, w1) epilogue{bias=e, act=gelu} -> f32[1,1,10]
  z = MatMul(a, w2) epilogue{residual=x} -> f32[1,1,8]
  outputs(z)
)";

}  // namespace

TEST_CASE("the feed-forward part of a row becomes one rOperator") {
  for (const std::string& text : {kGatedRow, swapped(kGatedRow, "(a, b)", "(b, a)"), swapped(kGatedRow, "act=silu", "act=gelu")}) {
    const Graph made = fed(text, true);
    REQUIRE(made.rops.size() == 1);
    const std::optional<kernels::RowFeedSteps> steps = kernels::row_feed_steps(made.rops[0]);
    REQUIRE(steps);
    CHECK(steps->normalize);
    CHECK(steps->view.step(steps->first).epilogue.activation != Activation::none);
    REQUIRE(steps->up);
    CHECK(made.tensor(steps->view.input(*steps->up, 1)).name == "w2");
    CHECK(made.tensor(steps->view.residual(steps->second())).name == "r");
    CHECK(made.rops[0].origin == std::vector<std::string>{"n", "a", "n", "b", "m", "z"});
  }
  const Graph plain = fed(kPlainRow, true);
  REQUIRE(plain.rops.size() == 1);
  CHECK((kernels::row_feed_steps(plain.rops[0]) && !kernels::row_feed_steps(plain.rops[0])->up));
  CHECK(fed(kPlainRow, false).rops.size() == 2);  // the normalisation stays, for whoever else reads it
}

TEST_CASE("parts of rows stay apart where they are another thing, or hardly faster") {
  const struct {
    const char* why;
    std::string text;
  } rows[] = {
      {"a sum of both", swapped(kGatedRow, "mul(i0, i1)", "add(i0, i1)")},
      {"two activations", swapped(kGatedRow, "bias=e}", "bias=e, act=relu}")},
      {"the middle is read besides", swapped(kGatedRow, "outputs(z)", "outputs(z, m)")},
      {"a factor is read besides", swapped(kGatedRow, "outputs(z)", "outputs(z, a)")},
      {"weights of run time", swapped(kGatedRow, "w3 = const", "w3 = input")},
      {"an activation behind", swapped(kGatedRow, "residual=r", "residual=r, act=relu")},
      {"other rows", swapped(kGatedRow, "MatMul(n, w1)", "MatMul(x, w1)")},
      {"a factor is added, too",
       swapped(swapped(swapped(kGatedRow, "w3 = const f32[10,6]", "w3 = const f32[10,10]"), "residual=r", "residual=a"),
               "alpha=0.5} epilogue{residual=a} -> f32[1,6]", "alpha=0.5} epilogue{residual=a} -> f32[1,10]")},
  };
  for (const auto& row : rows) {
    INFO(row.why);
    CHECK(count_rops(fed(row.text, true), kFeed) == 0);
  }
  CHECK(count_rops(fed(kGatedRow, true, 2), kFeed) == 0);
}

namespace {

struct RowSizes {
  int64_t k, inner, columns;
  Activation activation = Activation::silu;
  bool gated = true, has_residual = true, turned = false, biased = false;
  std::optional<bool> centred = false;  // none: there is no normalisation
  float alpha = 1;
  int bits = 16;  // of weights; 8 and 4: whole multiples of a step
};

// Numbers that fp16 holds, so that only what is done to x and y is measured. With 16 bits they have no step.
std::vector<float> held(int64_t count, int64_t seed, int bits) {
  std::vector<float> values(static_cast<size_t>(count));
  const int64_t numbers = bits == 4 ? 16 : 33, middle = numbers / 2;
  for (int64_t i = 0; i < count; ++i) {
    const float of_step = bits == 16 ? static_cast<float>(32 + (i * 31 + seed) % 29) / 32 : 1;
    values[static_cast<size_t>(i)] = of_step * static_cast<float>((i * 7919 + seed * 31) % numbers - middle) / 64;
  }
  return values;
}

Case row_case(const std::string& name, const RowSizes& e, Lay lay = Lay::rows) {
  CaseMaker maker(name);
  const TensorId x = maker.input({1, e.k}, lay);
  auto weights = [&, seed = int64_t{0}](int64_t k, int64_t n) mutable {
    return maker.constant(e.turned ? Shape{n, k} : Shape{k, n}, Lay::rows, held(k * n, ++seed, e.bits));
  };
  const auto bias = [&](int64_t n) { return e.biased ? maker.constant({n}) : TensorId(); };
  const TensorId first = weights(e.k, e.inner), up = weights(e.k, e.inner), second = weights(e.inner, e.columns);
  const TensorId residual = e.has_residual ? maker.input({1, e.columns}, lay) : TensorId();
  const TensorId out = maker.output({1, e.columns}, lay), n = maker.between({1, e.k}), a = maker.between({1, e.inner}),
                 b = maker.between({1, e.inner}), m = maker.between({1, e.inner});
  const MatMul product{.trans_b = e.turned, .alpha = e.alpha};
  const TensorId rows = e.centred ? n : x;
  std::vector<ROperator> steps;
  if (e.centred) {
    std::vector<float> scales(static_cast<size_t>(e.k), 0.5F);
    scales[0] = 2;
    const TensorId scale = maker.constant({e.k}, Lay::rows, scales), shift = e.biased ? maker.constant({e.k}) : TensorId();
    steps.push_back({"norm", Normalize{{1}, *e.centred, 1e-5F}, {}, {x, scale, shift}, {n}, {}});
  }
  steps.push_back({"first", product, {bias(e.inner), {}, e.activation}, {rows, first}, {a}, {}});
  if (e.gated) {
    steps.push_back({"up", product, {bias(e.inner), {}}, {rows, up}, {b}, {}});
    steps.push_back({"middle", Elementwise{{{ElementwiseOp::mul, {0, 1}}}}, {}, {a, b}, {m}, {}});
  }
  steps.push_back({"second", product, {bias(e.columns), residual}, {e.gated ? m : a, second}, {out}, {}});
  return maker.finish_steps(steps, {out});
}

// With 132 vEUs a rTask has eight columns of up to 1056, sixteen of up to 2112.
std::vector<Case> row_cases(int bits) {
  return {
      row_case("small", {.k = 8, .inner = 8, .columns = 2, .bits = bits}),
      row_case("odd sizes", {.k = 68, .inner = 1301, .columns = 70, .biased = true, .alpha = 0.5F, .bits = bits}),
      row_case("no gate",
               {.k = 300, .inner = 1000, .columns = 300, .activation = Activation::gelu, .gated = false, .centred = true, .bits = bits}),
      row_case("no gate, biases, weights by columns", {.k = 64,
                                                       .inner = 3000,
                                                       .columns = 129,
                                                       .activation = Activation::gelu_tanh,
                                                       .gated = false,
                                                       .has_residual = false,
                                                       .turned = true,
                                                       .biased = true,
                                                       .centred = true,
                                                       .bits = bits}),
      row_case("not normalised", {.k = 96, .inner = 520, .columns = 64, .centred = std::nullopt, .bits = bits}),
      row_case("more tiles than warps", {.k = 40, .inner = 9600, .columns = 24, .bits = bits}),
      row_case("long rows", {.k = 5000, .inner = 130, .columns = 40, .bits = bits}),
  };
}

ShapedVDevice row_device(int64_t stage_bytes = 16384) {
  ShapedVDevice vdevice = read_vdevice("h200").with_rows();
  vdevice.weight_stage_bytes = stage_bytes;
  return vdevice;
}

void expect_row(const std::vector<Case>& cases, const HeavyRun& run, const std::string& name) {
  const std::filesystem::path root = std::filesystem::absolute(__FILE__).parent_path().parent_path().parent_path();
  const CaseFolder folder("tamp_row_feed_forward_" + name);
  for (const std::string& problem : run_heavy_cases(cases, {kernels::family("row_feed_forward")}, run, root, folder.path()))
    FAIL_CHECK(problem);
}

size_t count_rows_bodies(const Case& c, Precision precision = Precision::tf32, const ShapedVDevice& vdevice = row_device()) {
  return kernels::candidates_of(kernels::family("row_feed_forward"), {c.graph, c.graph.rops[0], vdevice, precision}).size();
}

}  // namespace

TEST_CASE("the bodies of a row's feed-forward part agree with the reference") {
  const std::vector<Case> cases = row_cases(16);
  for (const Case& c : cases) {
    INFO(c.name);
    CHECK(count_rows_bodies(c) == 1);
  }
  expect_row(cases, {row_device(), Precision::tf32, 1e-4}, "fp32");
  expect_row({cases[1], cases[4]}, {row_device(51200), Precision::fp16, 1e-4}, "long_stages");
  std::vector<Case> narrow;
  for (const Case& c : {cases[1], cases[2]}) {
    const kernels::RowFeedSteps steps = *kernels::row_feed_steps(c.graph.rops[0]);
    narrow.push_back(narrowed(c, {steps.x(), c.graph.rops[0].outputs[0], steps.view.residual(steps.second())}, DType::f16));
  }
  expect_row(narrow, {row_device(), Precision::fp16, 1e-2}, "fp16");
}

TEST_CASE("the bodies of a row's feed-forward part agree with the reference, with quantised weights") {
  for (const int bits : {8, 4}) {
    std::vector<Case> cases = row_cases(bits);
    for (const Case& c : cases) {
      INFO(c.name);
      const std::vector<RKernel> rkernels =
          kernels::candidates_of(kernels::family("row_feed_forward"), {c.graph, c.graph.rops[0], row_device(), Precision::tf32});
      REQUIRE_FALSE(rkernels.empty());
      for (const char* const name : {"first_cell", "second_cell"})
        CHECK(kernels::bits_of_cell(static_cast<rk::GemvCell>(rkernels[0].config_value(name))) <= bits);
    }
    // Sums of thousands of numbers of both signs, each of which is exact to 2^-18.
    expect_row(cases, {row_device(), Precision::tf32, 2e-3}, "packed");
  }
}

TEST_CASE("there are no such bodies for rows that do not fit") {
  const RowSizes usual{.k = 64, .inner = 192, .columns = 64};
  CHECK(count_rows_bodies(row_case("usual", usual)) == 1);
  CHECK(count_rows_bodies(row_case("usual", usual), Precision::fp32) == 0);
  CHECK(count_rows_bodies(row_case("usual", usual), Precision::tf32, read_vdevice("t4").with_rows()) == 0);
  CHECK(count_rows_bodies(row_case("no fours", {.k = 66, .inner = 192, .columns = 64})) == 0);
  CHECK(count_rows_bodies(row_case("too long", {.k = 8196, .inner = 8, .columns = 8})) == 0);
  CHECK(count_rows_bodies(row_case("too wide", {.k = 8, .inner = 132 * 128 + 1, .columns = 8})) == 0);
  CHECK(count_rows_bodies(row_case("reversed", usual, Lay::reversed)) == 0);
}

}  // namespace tamp::test
