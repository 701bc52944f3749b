// Products with normalised rows: the pattern (whether it is faster is the estimator's to say), and the device body behind every product
// that has parts, against the reference over the stand-in.
#include <set>

#include "compiler/passes/fuse/fuse_regions.h"
#include "compiler/passes/place/assign_layout.h"
#include "compiler/passes/place/narrow_activations.h"
#include "kernels/catalogue.h"
#include "kernels/product/split_k_normalize.h"
#include "kernels/product/staged_conv_plan.h"
#include "test/kernels/heavy_bench.h"
#include "test/support/case_folder.h"
#include "test/support/check_pass.h"
#include "test/support/onnx_model.h"

namespace tamp::test {
namespace {

const std::string kNormalized = kernels::normalized_products().title;
double gained(const Graph& graph, double us) { return 100 - us * count_rops(graph, kNormalized); }
double faster(const Graph& graph) { return gained(graph, 10); }
double slower(const Graph& graph) { return gained(graph, -10); }
double hardly_faster(const Graph& graph) { return gained(graph, 0.5); }

Graph fused(const std::string& text, const GraphEstimator& estimator = faster) {
  const Graph source = parse_graph(text);
  Graph made = passes::fuse_regions(source, kernels::normalized_products(), estimator);
  check_pass(source, made);
  return made;
}

constexpr const char* kOperands = R"(
  x = input f32[2,3,12]
  r = input f32[2,3,8]
  w = const f32[12,8]
  v = const f32[8,12]
  b = const f32[8]
  g = const f32[8]
  h = const f32[8]
)";
// A residual that is normalised, so behind it the sum has no other reader.
const std::string kPostNorm = std::string(kOperands) + R"(
  s = MatMul(x, w) epilogue{bias=b, residual=r} -> f32[2,3,8]
  n = Normalize(s, g, h) {axes=[2], epsilon=0.001} -> f32[2,3,8]
  y = MatMul(n, v) -> f32[2,3,12]
  outputs(y)
)";
// The sum is the next residual.
const std::string kPreNorm = std::string(kOperands) + R"(
  s = MatMul(x, w) epilogue{bias=b, residual=r} -> f32[2,3,8]
  n = Normalize(s, g, h) {axes=[2], epsilon=0.001} -> f32[2,3,8]
  m = MatMul(n, v) -> f32[2,3,12]
  y = MatMul(m, w) epilogue{residual=s} -> f32[2,3,8]
  outputs(y)
)";

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  const size_t at = text.find(from);
  REQUIRE(at != std::string::npos);
  return text.replace(at, from.size(), to);
}

}  // namespace

TEST_CASE("a product and the normalisation of its rows become one rOperator") {
  const Graph made = fused(kPostNorm);
  REQUIRE(made.rops.size() == 3);  // with a view
  const std::optional<FusedView> steps = kernels::normalized_product_steps(made.rops[0]);
  REQUIRE(steps);
  CHECK(*steps->as<Normalize>(1) == Normalize{{2}, true, 0.001F});
  CHECK(made.rops[0].outputs.size() == 1);
  CHECK(made.rops[0].inputs.size() == 6);
  CHECK(count_rops(passes::assign_layout(made), "Reshape") == 0);
}

TEST_CASE("a sum that has other readers is a second result") {
  const Graph made = fused(kPreNorm);
  CHECK(count_rops(made, kNormalized) == 1);
  CHECK(count_rops(made, "Normalize") == 0);
  CHECK(made.rops[0].outputs.size() == 2);
  const Graph output = fused(replaced(kPostNorm, "outputs(y)", "outputs(y, s)"));
  CHECK(output.rops[0].outputs.size() == 2);
}

TEST_CASE("other forms of products and normalisations, and what stands between the two") {
  const auto count = [](const std::string& text) { return count_rops(fused(text), kNormalized); };
  CHECK(count(replaced(kPostNorm, "Normalize(s, g, h)", "Normalize(s)")) == 1);
  CHECK(count(replaced(kPostNorm, "Normalize(s, g, h) {axes=[2]", "Normalize(s, g) {axes=[2], centered=0")) == 1);
  CHECK(count(replaced(kPostNorm, "bias=b, residual=r", "bias=b")) == 1);
  CHECK(count(replaced(kPostNorm, "MatMul(x, w)", "MatMul(x, v) {trans_b=1, alpha=0.5}")) == 1);
  const std::string views = replaced(replaced(kPreNorm, "n = Normalize(s, g, h) {axes=[2]", R"(t = Reshape(s) -> f32[6,8]
  o = Normalize(t, g, h) {axes=[1])"),
                                     "-> f32[2,3,8]\n  m", "-> f32[6,8]\n  n = Reshape(o) -> f32[2,3,8]\n  m");
  const Graph made = fused(views);
  CHECK(count_rops(made, kNormalized) == 1);
  CHECK(made.rops[0].outputs.size() == 2);
}

TEST_CASE("products and normalisations stay apart where they are another thing") {
  const struct {
    const char* why;
    std::string text;
  } rows[] = {
      {"another axis", replaced(replaced(kPostNorm, "Normalize(s, g, h)", "Normalize(s)"), "axes=[2]", "axes=[1]")},
      {"several axes", replaced(replaced(kPostNorm, "Normalize(s, g, h)", "Normalize(s)"), "axes=[2]", "axes=[1,2]")},
      {"an activation between", replaced(kPostNorm, "residual=r}", "residual=r, act=relu}")},
      {"a scale for each row",
       replaced(replaced(kPostNorm, "g = const f32[8]", "g = const f32[3,1]"), "Normalize(s, g, h)", "Normalize(s, g)")},
      {"a scale of run time", replaced(kPostNorm, "g = const f32[8]", "g = input f32[8]")},
      {"weights of run time", replaced(kPostNorm, "w = const f32[12,8]", "w = input f32[12,8]")},
      {"weights for each image", replaced(kPostNorm, "w = const f32[12,8]", "w = const f32[2,12,8]")},
      {"rows that are cut",
       replaced(replaced(kPostNorm, "n = Normalize(s, g, h) {axes=[2], epsilon=0.001} -> f32[2,3,8]",
                         "t = Reshape(s) -> f32[2,3,2,4]\n  o = Normalize(t) {axes=[3], epsilon=0.001} -> f32[2,3,2,4]\n"
                         "  n = Reshape(o) -> f32[2,3,8]"),
                "  g = const f32[8]\n  h = const f32[8]\n", "")},
  };
  for (const auto& row : rows) {
    INFO(row.why);
    const Graph made = fused(row.text);
    CHECK(count_rops(made, kNormalized) == 0);
    CHECK(print(made) == print(parse_graph(row.text)));
  }
  std::string odd = kPostNorm;
  for (size_t at; (at = odd.find('8')) != std::string::npos;) odd.replace(at, 1, "6");
  CHECK(count_rops(fused(odd), kNormalized) == 0);
}

TEST_CASE("products stay as they are where the graph is not clearly faster without them") {
  for (const GraphEstimator& estimator : {GraphEstimator(slower), GraphEstimator(hardly_faster), GraphEstimator()})
    CHECK(print(fused(kPreNorm, estimator)) == print(parse_graph(kPreNorm)));
  // Of two kinds the one that gains; a sum with two normalisations has one of them in the product.
  const std::string two = replaced(kPreNorm, "outputs(y)", R"(z = Normalize(y, g, h) {axes=[2], epsilon=0.001} -> f32[2,3,8]
  k = Normalize(y, h, g) {axes=[2], epsilon=0.001} -> f32[2,3,8]
  p = MatMul(z, v) -> f32[2,3,12]
  q = MatMul(p, w) -> f32[2,3,8]
  a = Normalize(q) {axes=[2], epsilon=0.001} -> f32[2,3,8]
  outputs(a, k))");
  CHECK(count_rops(fused(two), kNormalized) == 3);
  CHECK(count_rops(fused(two), "Normalize") == 1);
  const auto without_residual = [](const Graph& graph) {
    double us = 100;
    for (const ROperator& rop : graph.rops) {
      if (const auto steps = kernels::normalized_product_steps(rop)) us += steps->residual(0).valid() ? 10 : -10;
    }
    return us;
  };
  CHECK(count_rops(fused(two, without_residual), kNormalized) == 1);
}

namespace {

struct Sizes {
  Shape a;
  int64_t columns;
  bool keeps_sum = false, has_residual = true, has_bias = true, has_factors = true, centered = true, trans_b = false;
};

Case normalized_case(const std::string& name, const Sizes& e, Lay lay = Lay::rows) {
  CaseMaker maker(name);
  Shape out = e.a;
  out.back() = e.columns;
  const int64_t k = e.a.back();
  const TensorId a = maker.input(e.a), b = maker.constant(e.trans_b ? Shape{e.columns, k} : Shape{k, e.columns});
  const auto row = [&](bool wanted) { return wanted ? maker.constant({e.columns}) : TensorId(); };
  const TensorId bias = row(e.has_bias), r = e.has_residual ? maker.input(out, lay) : TensorId();
  std::vector<TensorId> rows = {TensorId(), row(e.has_factors), row(e.has_factors)};
  const TensorId y = maker.output(out, lay), s = rows[0] = e.keeps_sum ? maker.output(out, lay) : maker.between(out);
  const ROperator product{"product", MatMul{false, e.trans_b, 0.5F}, {bias, r}, {a, b}, {s}, {}},
      normalize{"normalize", Normalize{{static_cast<int64_t>(out.size()) - 1}, e.centered, 1e-3F}, {}, without_last_none(rows), {y}, {}};
  return maker.finish_steps({product, normalize}, e.keeps_sum ? std::vector{y, s} : std::vector{y});
}

std::vector<Case> normalized_cases() {
  return {
      normalized_case("two rows of one vector", {{2, 128}, 4}),
      normalized_case("rows that are no multiple of a tile, a sum", {{2, 9, 192}, 72, true}),
      normalized_case("no residual, no bias", {{3, 7, 200}, 96, true, false, false}),
      normalized_case("no factors, transposed weights", {{1, 21, 320}, 40, false, true, true, false, true, true}),
      normalized_case("the root of the mean square", {{13, 256}, 132, true, true, true, true, false}),
      normalized_case("nothing but a product", {{11, 192}, 64, false, false, false, false, false}),
      normalized_case("as many columns as in a large network", {{3, 128}, 1024, true}),
      normalized_case("more rows than threads", {{70, 128}, 772}),
      normalized_case("a part of wider rows", {{18, 192}, 72, true}, Lay::slice),
  };
}

ShapedVDevice device(int64_t sms, bool wide = false) {
  ShapedVDevice vdevice = read_vdevice("cpu").with_inputs();
  vdevice.sms = sms;  // small cases split and fill too
  vdevice.wide_products = wide;
  return vdevice;
}

void expect_no_problems(const std::vector<Case>& cases, const HeavyRun& run, const std::string& name) {
  const std::filesystem::path root = std::filesystem::absolute(__FILE__).parent_path().parent_path().parent_path();
  const CaseFolder folder("tamp_normalized_" + name);
  for (const std::string& problem : run_heavy_cases(cases, {kernels::family("staged_conv")}, run, root, folder.path())) FAIL_CHECK(problem);
}

// The case with A of type `a`, the residual and the sum of type `sums`, and the result of type `out`.
Case with_types(Case c, DType a, DType sums, DType out) {
  const ROperator rop = c.graph.rops[0];
  std::vector<TensorId> of_sums;
  const TensorId residual = kernels::normalized_product_steps(rop)->residual(0);
  if (residual.valid()) of_sums.push_back(residual);
  if (rop.outputs.size() > 1) of_sums.push_back(rop.outputs[1]);
  if (a != DType::f32) c = narrowed(std::move(c), {rop.inputs[0]}, a);
  if (sums != DType::f32) c = narrowed(std::move(c), of_sums, sums);
  if (out != DType::f32) c = narrowed(std::move(c), {rop.outputs[0]}, out);
  return c;
}

std::vector<Case> with_types(const std::vector<Case>& cases, DType a, DType sums, DType out) {
  std::vector<Case> made;
  for (const Case& c : cases) made.push_back(with_types(c, a, sums, out));
  return made;
}

std::vector<RKernel> rkernels_of(const Case& c, const ShapedVDevice& vdevice, Precision precision) {
  return kernels::candidates_of(kernels::family("staged_conv"), {c.graph, c.graph.rops[0], vdevice, precision});
}

}  // namespace

TEST_CASE("products with normalised rows agree with the reference in tf32") {
  expect_no_problems(normalized_cases(), {device(4), Precision::tf32, 3e-2}, "tf32");
}

TEST_CASE("products with normalised rows agree with the reference in 16 bits, whatever lies in memory") {
  expect_no_problems(normalized_cases(), {device(9), Precision::bf16, 2e-1}, "bf16");
  const ShapedVDevice wide = device(5, true);
  expect_no_problems(with_types(normalized_cases(), DType::f16, DType::f16, DType::f16), {wide, Precision::fp16, 3e-2}, "f16");
  const std::vector<Case> some = {normalized_cases()[1], normalized_cases()[4]};
  expect_no_problems(with_types(some, DType::f16, DType::f16, DType::f32), {wide, Precision::fp16, 3e-2}, "f32_out");
  expect_no_problems(with_types(some, DType::f16, DType::f32, DType::f16), {wide, Precision::fp16, 3e-2}, "f32_sums");
}

TEST_CASE("a product with normalised rows has parts in any number that fills the vEUs") {
  ShapedVDevice h200 = read_vdevice("h200").with_inputs();
  h200.wide_products = true;
  const Case c = with_types(normalized_case("feed-forward", {{1, 128, 3072}, 768}), DType::f16, DType::f16, DType::f16);
  std::set<int64_t> splits;
  std::set<std::string> bodies;
  for (const RKernel& rkernel : rkernels_of(c, h200, Precision::fp16)) {
    const kernels::staged::Config config = kernels::staged::config_of(rkernel);
    REQUIRE(rkernel.phases.size() == 2);
    CHECK(rkernel.phases[1].body == "rk::split_k_normalize");
    CHECK(rkernel.phases[1].rtasks == 128);
    CHECK(rkernel.phases[1].ring.chunk_bytes <= h200.weight_stage_bytes);
    CHECK(config.splits > 1);
    if (kernels::staged::shape_of(config).channels() == 64 && config.tile_w == 64) splits.insert(config.splits);
  }
  CHECK(splits == std::set<int64_t>{2, 4, 5, 8, 10, 16});
}

TEST_CASE("no body normalises rows that it cannot hold, or whose sums and residual differ in type") {
  const ShapedVDevice vdevice = device(4);
  const auto count = [&](const Case& c, Precision precision = Precision::fp16) { return rkernels_of(c, vdevice, precision).size(); };
  const Case usual = normalized_case("usual", {{2, 9, 192}, 72, true});
  CHECK(count(usual) > 0);
  CHECK(count(usual, Precision::fp32) == 0);
  CHECK(count(normalized_case("reversed", {{2, 9, 192}, 72}, Lay::reversed)) == 0);
  CHECK(count(normalized_case("longer than a stage of the ring", {{3, 128}, 4096})) == 0);
  CHECK(count(normalized_case("one row", {{1, 192}, 72})) == 0);
  CHECK(count(narrowed(usual, {usual.graph.rops[0].outputs[1]}, DType::f16)) == 0);
  CHECK(count(narrowed(usual, {usual.graph.rops[0].outputs[0]}, DType::f16)) > 0);
  // k that is one box cannot be split.
  CHECK(count(normalized_case("short k", {{2, 9, 32}, 72})) == 0);
}

}  // namespace tamp::test
