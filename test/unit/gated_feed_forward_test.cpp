// The gated feed-forward part in one rTask: the pass that makes it (whether that is faster is the estimator's to say), which steps the
// family knows, and the device body against the reference over the stand-in.
#include "kernels/chain/gated_feed_forward.h"

#include "compiler/passes/fuse/fuse_regions.h"
#include "kernels/catalogue.h"
#include "test/kernels/heavy_bench.h"
#include "test/support/case_folder.h"
#include "test/support/check_pass.h"

namespace tamp::test {
namespace {

const std::string kGated = kernels::gated_feed_forwards().title;

Graph gated(const std::string& text, double gain_us = 5) {
  const Graph source = parse_graph(text);
  const GraphEstimator estimator = [&](const Graph& graph) { return 100 - gain_us * count_rops(graph, kGated); };
  Graph made = passes::fuse_regions(source, kernels::gated_feed_forwards(), estimator);
  check_pass(source, made);
  return made;
}

const std::string kLlama = R"(
  x = input f32[1,5,8]
  r = input f32[1,5,6]
  w1 = const f32[8,10]
  w2 = const f32[10,8]
  w3 = const f32[10,6]
  n = Elementwise(x) {relu(i0)} -> f32[1,5,8]
  b = MatMul(n, w2) {trans_b=1} -> f32[1,5,10]
  a = MatMul(n, w1) epilogue{act=silu} -> f32[1,5,10]
  m = Elementwise(a, b) {mul(i0, i1)} -> f32[1,5,10]
  z = MatMul(m, w3) {alpha=0.5} epilogue{residual=r} -> f32[1,5,6]
  outputs(z)
)";

}  // namespace

TEST_CASE("the gated feed-forward part becomes one rOperator") {
  for (const std::string& text : {kLlama, swapped(kLlama, "(a, b)", "(b, a)"), swapped(kLlama, " epilogue{residual=r}", "")}) {
    const Graph made = gated(text);
    REQUIRE(made.rops.size() == 2);
    const std::optional<FusedView> steps = kernels::gated_feed_forward_steps(made.rops[1]);
    REQUIRE(steps);
    CHECK(steps->step(0).epilogue.activation == Activation::silu);
    CHECK(made.tensor(steps->input(1, 1)).name == "w2");
    CHECK(steps->residual(3).valid() == (text != swapped(kLlama, " epilogue{residual=r}", "")));
  }
}

TEST_CASE("steps stay apart where they are another thing, or no faster") {
  const struct {
    const char* why;
    std::string text;
  } rows[] = {
      {"another activation", swapped(kLlama, "act=silu", "act=gelu")},
      {"a sum of both", swapped(kLlama, "mul(i0, i1)", "add(i0, i1)")},
      {"a bias", swapped(swapped(kLlama, "epilogue{act=silu}", "epilogue{bias=e, act=silu}"), "  n =", "  e = const f32[10]\n  n =")},
      {"the middle is read besides", swapped(kLlama, "outputs(z)", "outputs(z, m)")},
      {"weights of run time", swapped(kLlama, "w3 = const", "w3 = input")},
      {"other rows", swapped(kLlama, "MatMul(n, w1)", "MatMul(x, w1)")},
  };
  for (const auto& row : rows) {
    INFO(row.why);
    CHECK(count_rops(gated(row.text), kGated) == 0);
  }
  CHECK(count_rops(gated(kLlama, 3), kGated) == 0);
}

namespace {

struct GatedSizes {
  Shape x;
  int64_t inner, columns;
  bool has_residual = true, turned = false;
  float alpha = 1;
};

Case gated_case(const std::string& name, const GatedSizes& e, Lay lay = Lay::rows) {
  CaseMaker maker(name);
  Shape y = e.x, z = e.x;
  y.back() = e.inner, z.back() = e.columns;
  const TensorId x = maker.input(e.x, lay);
  maker.set_range(-0.3F, 0.3F);
  const auto weights = [&](int64_t k, int64_t n) { return maker.constant(e.turned ? Shape{n, k} : Shape{k, n}); };
  const TensorId gate = weights(e.x.back(), e.inner), up = weights(e.x.back(), e.inner), down = weights(e.inner, e.columns);
  const TensorId residual = e.has_residual ? maker.input(z, lay) : TensorId();
  const TensorId out = maker.output(z, lay), a = maker.between(y), b = maker.between(y), m = maker.between(y);
  const MatMul product{.trans_b = e.turned, .alpha = e.alpha};
  return maker.finish_steps({{"gate", product, {{}, {}, Activation::silu}, {x, gate}, {a}, {}},
                             {"up", product, {}, {x, up}, {b}, {}},
                             {"middle", Elementwise{{{ElementwiseOp::mul, {0, 1}}}}, {}, {a, b}, {m}, {}},
                             {"down", product, {{}, residual}, {m, down}, {out}, {}}},
                            {out});
}

std::vector<Case> gated_cases() {
  return {
      gated_case("one row", {{1, 8}, 8, 2}),
      gated_case("odd sizes", {{2, 19, 20}, 37, 70}),
      gated_case("no residual, weights by columns", {{33, 48}, 130, 24, false, true, 0.5F}),
      gated_case("several chunks and blocks", {{1, 50, 132}, 200, 260}),
      gated_case("a part of wider rows", {{17, 24}, 64, 128}, Lay::slice),
  };
}

ShapedVDevice gated_device() {
  ShapedVDevice vdevice = read_vdevice("h200").with_inputs();
  vdevice.weight_stage_bytes = 16384;  // several chunks
  return vdevice;
}

std::vector<Case> with_types(const std::vector<Case>& cases, DType x, DType z, DType residual) {
  std::vector<Case> made;
  for (const Case& c : cases) {
    const FusedView steps = *kernels::gated_feed_forward_steps(c.graph.rops[0]);
    std::vector<TensorId> ids;
    if (x != DType::f32) ids.push_back(steps.input(0, 0));
    if (z != DType::f32) ids.push_back(steps.output(3));
    if (residual != DType::f32 && steps.residual(3).valid()) ids.push_back(steps.residual(3));
    made.push_back(ids.empty() ? c : narrowed(c, ids, x != DType::f32 ? x : z));
  }
  return made;
}

void expect_right(const std::vector<Case>& cases, Precision precision, double tolerance, const std::string& name) {
  const std::filesystem::path root = std::filesystem::absolute(__FILE__).parent_path().parent_path().parent_path();
  const CaseFolder folder("tamp_gated_feed_forward_" + name);
  for (const std::string& problem :
       run_heavy_cases(cases, {kernels::family("gated_feed_forward")}, {gated_device(), precision, tolerance}, root, folder.path()))
    FAIL_CHECK(problem);
}

size_t count_bodies(const Case& c, Precision precision = Precision::fp16, const ShapedVDevice& vdevice = gated_device()) {
  return kernels::candidates_of(kernels::family("gated_feed_forward"), {c.graph, c.graph.rops[0], vdevice, precision}).size();
}

}  // namespace

TEST_CASE("the gated feed-forward body agrees with the reference") {
  const std::vector<Case> cases = gated_cases();
  const DType f32 = DType::f32, f16 = DType::f16, bf16 = DType::bf16;
  for (const Case& c : with_types(cases, f16, f16, f16)) CHECK(count_bodies(c) == 2);
  expect_right(with_types(cases, f16, f16, f16), Precision::fp16, 1e-2, "fp16");
  expect_right(with_types({cases[1], cases[3]}, f16, f32, f32), Precision::fp16, 1e-2, "stream");  // the residual stream stays in fp32
  expect_right(with_types({cases[1], cases[2]}, bf16, bf16, f32), Precision::bf16, 1e-1, "bf16");
  expect_right({cases[1]}, Precision::fp16, 1e-2, "fp32");
}

TEST_CASE("there is no gated feed-forward body for rows that do not fit") {
  const Case usual = gated_case("usual", {{40, 64}, 192, 64});
  CHECK(count_bodies(usual) == 2);
  CHECK(count_bodies(usual, Precision::fp16, read_vdevice("a100").without_inputs()) == 2);
  CHECK(count_bodies(usual, Precision::tf32) == 0);
  CHECK(count_bodies(usual, Precision::fp16, read_vdevice("t4").without_inputs()) == 0);
  CHECK(count_bodies(gated_case("long rows", {{40, 1028}, 8, 64})) == 0);
  CHECK(count_bodies(gated_case("only one size of tile", {{40, 1024}, 4096, 16})) == 1);
  CHECK(count_bodies(gated_case("reversed", {{40, 64}, 192, 64}, Lay::reversed)) == 0);
  CHECK(count_bodies(with_types({usual}, DType::bf16, DType::bf16, DType::bf16)[0]) == 0);
}

}  // namespace tamp::test
