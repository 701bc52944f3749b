// Two products of rows with an activation between them: where they become one rOperator (whether that is faster is the estimator's to say),
// and the device body against the reference over the stand-in.
#include "kernels/chain/feed_forward.h"

#include "compiler/passes/fuse/defer_normalize.h"
#include "compiler/passes/fuse/fuse_regions.h"
#include "compiler/shape/program_shape.h"
#include "kernels/catalogue.h"
#include "test/kernels/heavy_bench.h"
#include "test/support/case_folder.h"
#include "test/support/check_pass.h"
#include "test/support/onnx_model.h"

namespace tamp::test {
namespace {

// --- the pass ----------------------------------------------------------------------------------------------------------

const std::string kFeed = kernels::feed_forwards().title;

double gained(const Graph& graph, double us) { return 100 - us * (count_rops(graph, kFeed) + count_rops(graph, "product by moments")); }
double faster(const Graph& graph) { return gained(graph, 10); }

Graph fused(const std::string& text, const GraphEstimator& estimator = faster) {
  const Graph source = parse_graph(text);
  Graph made = passes::fuse_regions(source, kernels::feed_forwards(), estimator);
  made = passes::fuse_regions(made, kernels::normalised_feed_forwards(), estimator);
  check_pass(source, made);
  return made;
}
int count(const std::string& text) { return count_rops(fused(text), kFeed); }
kernels::FeedForwardSteps steps_of_first(const Graph& graph) {
  const std::optional<kernels::FeedForwardSteps> steps = kernels::feed_forward_steps(graph.rops[0]);
  REQUIRE(steps);
  return *steps;
}

const std::string kBlock = R"(
  x = input f32[2,3,32]
  g = const f32[32]
  h = const f32[32]
  v = const f32[32,64]
  c = const f32[64]
  w = const f32[32,64]
  d = const f32[32]
  n = Normalize(x, g, h) {axes=[2], epsilon=0.001} -> f32[2,3,32]
  y = MatMul(n, v) {alpha=0.5} epilogue{bias=c, act=gelu} -> f32[2,3,64]
  z = MatMul(y, w) {trans_b=1, alpha=0.25} epilogue{bias=d, residual=x} -> f32[2,3,32]
  outputs(z)
)";
const std::string kNormalize = "  n = Normalize(x, g, h) {axes=[2], epsilon=0.001} -> f32[2,3,32]\n";

// Without the normalisation, which was of x.
std::string plain(const std::string& text) { return swapped(swapped(text, kNormalize, ""), "MatMul(n, v)", "MatMul(x, v)"); }

}  // namespace

TEST_CASE("a normalisation and two products become one rOperator") {
  const Graph made = fused(kBlock);
  REQUIRE(made.rops.size() == 1);
  const kernels::FeedForwardSteps steps = steps_of_first(made);
  REQUIRE(steps.normalize);
  CHECK((steps.normalize->centered && steps.normalize->epsilon == 0.001F && steps.between().activation == Activation::gelu));
  CHECK_FALSE((steps.result || steps.keeps_moments));
  CHECK(made.rops[0].inputs.size() == 5);
  CHECK(steps.view.residual(steps.second()) == made.rops[0].inputs[0]);
  CHECK(made.rops[0].name == parse_graph(kBlock).rops[2].name);
  CHECK(made.tensor(made.rops[0].inputs[1]).shape == Shape{32, 64});
  CHECK(made.tensor(made.rops[0].inputs[2]).shape == Shape{64, 32});
  for (const std::string normalize : {"Normalize(x)", "Normalize(x, g)"})
    CHECK(count(swapped(kBlock, "Normalize(x, g, h)", normalize)) == 1);
  const Graph uncentered = fused(swapped(kBlock, "Normalize(x, g, h) {axes=[2]", "Normalize(x, g) {axes=[2], centered=0"));
  CHECK(!steps_of_first(uncentered).normalize->centered);
}

TEST_CASE("two products without a normalisation, biases or a residual become one rOperator") {
  const Graph made = fused(plain(kBlock));
  REQUIRE(made.rops.size() == 1);
  CHECK(!steps_of_first(made).normalize);
  for (const char* epilogue : {"epilogue{bias=d}", "epilogue{residual=x}", ""}) {
    for (const char* activation : {"epilogue{bias=c, act=silu}", "epilogue{act=relu}", "epilogue{act=gelu_tanh}"}) {
      INFO(epilogue << " " << activation);
      const std::string text = swapped(swapped(kBlock, "epilogue{bias=d, residual=x}", epilogue), "epilogue{bias=c, act=gelu}", activation);
      CHECK(count(text) == 1);
      CHECK(count(plain(text)) == 1);
    }
  }
}

TEST_CASE("views may lie between the steps") {
  const std::string text =
      swapped(kBlock, "y = MatMul(n, v) {alpha=0.5} epilogue{bias=c, act=gelu} -> f32[2,3,64]", R"(m = Reshape(n) -> f32[6,32]
  o = MatMul(m, v) {alpha=0.5} epilogue{bias=c, act=gelu} -> f32[6,64]
  y = Reshape(o) -> f32[2,3,64])");
  const Graph made = fused(text);
  CHECK(count_rops(made, kFeed) == 1);
  CHECK(count_rops(made, "MatMul") == 0);
  CHECK(count_rops(made, "Normalize") == 0);
}

TEST_CASE("a normalisation that something else reads stays in front") {
  for (const std::string& text : {swapped(kBlock, "outputs(z)", "outputs(z, n)"), swapped(kBlock, "residual=x", "residual=n"),
                                  swapped(kBlock, "outputs(z)", "q = MatMul(n, v) -> f32[2,3,64]\n  outputs(z, q)")}) {
    const Graph made = fused(text);
    CHECK(count_rops(made, "Normalize") == 1);
    REQUIRE(count_rops(made, kFeed) == 1);
    for (const ROperator& rop : made.rops) {
      if (const auto steps = kernels::feed_forward_steps(rop)) CHECK(!steps->normalize);
    }
  }
}

TEST_CASE("products stay apart where they are another thing, or no gain") {
  std::string wide = kBlock;
  for (size_t at; (at = wide.find("32]")) != std::string::npos;) wide.replace(at, 3, "224]");
  for (size_t at; (at = wide.find("f32[32,")) != std::string::npos;) wide.replace(at, 7, "f32[224,");
  const struct {
    const char* why;
    std::string text;
  } rows[] = {
      {"y is an output", swapped(kBlock, "outputs(z)", "outputs(z, y)")},
      {"y is read besides", swapped(kBlock, "outputs(z)", "q = MatMul(y, w) {trans_b=1} -> f32[2,3,32]\n  outputs(z, q)")},
      {"no activation", swapped(kBlock, "bias=c, act=gelu", "bias=c")},
      {"an activation without a body", swapped(kBlock, "act=gelu", "act=sigmoid")},
      {"an activation behind", swapped(kBlock, "residual=x}", "residual=x, act=relu}")},
      {"weights of run time", swapped(kBlock, "w = const f32[32,64]", "w = input f32[32,64]")},
      {"first weights of run time", swapped(kBlock, "v = const f32[32,64]", "v = input f32[32,64]")},
      {"wide rows", wide},
  };
  for (const auto& row : rows) {
    INFO(row.why);
    Graph made;
    try {
      made = fused(row.text);
    } catch (const std::exception& error) {
      FAIL(error.what());
    }
    CHECK(count_rops(made, kFeed) == 0);
  }
  const auto slower = [](const Graph& graph) { return gained(graph, -5); };
  const auto hardly_faster = [](const Graph& graph) { return gained(graph, 1); };
  for (const GraphEstimator& estimator : {GraphEstimator(slower), GraphEstimator(hardly_faster), GraphEstimator()})
    CHECK(print(fused(kBlock, estimator)) == print(parse_graph(kBlock)));
}

TEST_CASE("two products in front of a normalisation keep moments") {
  const Graph source = fused(swapped(kBlock, "outputs(z)", R"(u = const f32[32,8]
  o = Normalize(z, h, g) {axes=[2], epsilon=0.01} -> f32[2,3,32]
  q = MatMul(o, u) -> f32[2,3,8]
  outputs(q, z))"));
  REQUIRE(count_rops(source, kFeed) == 1);
  const Graph made = passes::defer_normalize(source, faster);
  check_pass(source, made);
  CHECK(count_rops(made, "Normalize") == 0);
  REQUIRE(made.rops.size() == 2);
  CHECK(steps_of_first(made).keeps_moments);
  REQUIRE(made.rops[0].outputs.size() == 2);
  CHECK(made.tensor(made.rops[0].outputs[1]).shape == Shape{6, 1, 2});
  CHECK(made.rops[1].inputs.back() == made.rops[0].outputs[1]);
}

TEST_CASE("moments are kept once, and none of a result that is normalised") {
  const Graph twice = fused(swapped(kBlock, "outputs(z)", R"(u = const f32[32,8]
  other = const f32[32,16]
  o = Normalize(z, h, g) {axes=[2], epsilon=0.01} -> f32[2,3,32]
  q = MatMul(o, u) -> f32[2,3,8]
  s = Normalize(z, h, g) {axes=[2], epsilon=0.1} -> f32[2,3,32]
  t = MatMul(s, other) -> f32[2,3,16]
  outputs(q, t, z))"));
  const Graph once = passes::defer_normalize(twice, faster);
  check_pass(twice, once);
  CHECK(once.rops[0].outputs.size() == 2);
  CHECK(count_rops(once, "Normalize") == 1);
  const auto by_results = [](const Graph& graph) { return 100 + 10 * count_rops(graph, "Normalize") - 10 * count_rops(graph, kFeed); };
  const Graph normalised = fused(swapped(kBlock, "outputs(z)", R"(u = const f32[32,8]
  o = Normalize(z, h, g) {axes=[2], epsilon=0.01} -> f32[2,3,32]
  s = Normalize(o) {axes=[2], epsilon=0.1} -> f32[2,3,32]
  q = MatMul(s, u) -> f32[2,3,8]
  outputs(q))"),
                                 by_results);
  REQUIRE(steps_of_first(normalised).result);
  const Graph made = passes::defer_normalize(normalised, faster);
  check_pass(normalised, made);
  CHECK(count_rops(made, "Normalize") == 1);
}

TEST_CASE("a normalisation that alone reads the result of two products is a step of theirs") {
  const std::string text = swapped(kBlock, "outputs(z)", R"(o = Normalize(z, h, g) {axes=[2], epsilon=0.01} -> f32[2,3,32]
  outputs(o))");
  const auto by_results = [](double us) {
    return [us](const Graph& graph) { return 100 - 10 * count_rops(graph, kFeed) - us * (1 - count_rops(graph, "Normalize")); };
  };
  const Graph made = fused(text, by_results(5));
  REQUIRE(made.rops.size() == 1);
  const kernels::FeedForwardSteps steps = steps_of_first(made);
  REQUIRE(steps.result);
  CHECK((steps.result->centered && steps.result->epsilon == 0.01F && steps.normalize->epsilon == 0.001F));
  REQUIRE(made.rops[0].inputs.size() == 7);
  CHECK(made.tensor(made.rops[0].inputs[5]).name == "h");
  CHECK(made.tensor(made.rops[0].inputs[6]).name == "g");
  // Rows that are a map in between.
  const auto as_map = [&](const char* back) {
    return swapped(text, "  o = Normalize(z, h, g)", std::string(R"(  p = Transpose(z) {perm=[2,0,1]} -> f32[32,2,3]
  s = Transpose(p) {perm=)") + back + R"(} -> f32[2,3,32]
  o = Normalize(s, h, g))");
  };
  CHECK(count_rops(fused(as_map("[1,2,0]"), by_results(5)), "Normalize") == 0);
  CHECK(count_rops(fused(swapped(as_map("[1,2,0]"), "outputs(o)", "outputs(o, p)"), by_results(5)), "Normalize") == 1);
  CHECK(count_rops(fused(swapped(swapped(as_map("[2,1,0]"), "-> f32[2,3,32]\n  o =", "-> f32[3,2,32]\n  o ="),
                                 "epsilon=0.01} -> f32[2,3,32]", "epsilon=0.01} -> f32[3,2,32]"),
                         by_results(5)),
                   "Normalize") == 1);
  for (const std::string& other :
       {swapped(text, "outputs(o)", "outputs(o, z)"),
        swapped(swapped(text, "axes=[2], epsilon=0.01", "axes=[1], epsilon=0.01"), "Normalize(z, h, g)", "Normalize(z)"),
        swapped(text, "  outputs(o)", "  q = MatMul(z, v) -> f32[2,3,64]\n  outputs(o, q)")})
    CHECK(count_rops(fused(other, by_results(5)), "Normalize") == 1);
  CHECK(count_rops(fused(text, by_results(0)), "Normalize") == 1);
}

// --- the body ----------------------------------------------------------------------------------------------------------

namespace {

struct FeedOp {
  Activation activation = Activation::gelu;
  bool normalize = true, keeps_moments = false, centered = true;
  bool normalize_result = false, result_centered = true;
};
struct FeedCase {
  int64_t rows, k, h, c;
  FeedOp op{};
  bool has_biases = true, has_residual = true;
  Lay lay = Lay::rows, z_lay = Lay::rows;   // of x and the residual; of z
  DType in = DType::f32, out = DType::f32;  // of x; of z and the residual
  std::vector<float> values{};              // of x
  bool narrow_residual = true;              // as z
};

Case feed_case(const std::string& name, const FeedCase& e) {
  CaseMaker maker(name);
  const TensorId x = e.values.empty() ? maker.input({e.rows, e.k}, e.lay) : maker.input({e.rows, e.k}, e.lay, e.values);
  const auto weights = [&](int64_t k, int64_t columns) {
    const float edge = std::sqrt(3.0F / static_cast<float>(k));
    maker.set_range(-edge, edge);
    return maker.constant({k, columns});
  };
  const TensorId w1 = weights(e.k, e.h), w2 = weights(e.h, e.c);
  maker.set_range(-1, 1);
  const TensorId b1 = e.has_biases ? maker.constant({e.h}) : TensorId(), b2 = e.has_biases ? maker.constant({e.c}) : TensorId();
  const TensorId residual = e.has_residual ? maker.input({e.rows, e.c}, e.lay) : TensorId();
  std::vector<ROperator> steps;
  TensorId rows = x;
  if (e.op.normalize) {
    rows = maker.between({e.rows, e.k});
    steps.push_back({"n", Normalize{{1}, e.op.centered, 1e-3F}, {}, {x}, {rows}, {}});
  }
  const TensorId y = maker.between({e.rows, e.h});
  steps.push_back({"y", MatMul{}, {b1, {}, e.op.activation}, {rows, w1}, {y}, {}});
  TensorId z = e.op.normalize_result ? maker.between({e.rows, e.c}) : maker.output({e.rows, e.c}, e.z_lay);
  steps.push_back({"z", MatMul{}, {b2, residual}, {y, w2}, {z}, {}});
  std::vector<TensorId> results = {z};
  if (e.op.normalize_result) {
    const TensorId scale = maker.constant({e.c}), shift = maker.constant({e.c});
    results = {maker.output({e.rows, e.c}, e.z_lay)};
    steps.push_back({"r", Normalize{{1}, e.op.result_centered, 1e-2F}, {}, {z, scale, shift}, results, {}});
    z = results[0];
  }
  if (e.op.keeps_moments) {
    results.push_back(maker.output({e.rows, e.c / kMomentColumns, 2}));
    steps.push_back({"m", Moments{}, {}, {z}, {results[1]}, {}});
  }
  Case c = maker.finish_steps(steps, results);
  if (e.in != DType::f32) c = narrowed(std::move(c), {x}, e.in);
  if (e.out != DType::f32)
    c = narrowed(std::move(c), e.has_residual && e.narrow_residual ? std::vector{residual, z} : std::vector{z}, e.out);
  return c;
}

FeedOp normalising_result(bool centered = true) { return {Activation::gelu, true, false, true, true, centered}; }
FeedOp with(Activation activation, bool normalize = true, bool keeps_moments = false, bool centered = true) {
  return {activation, normalize, keeps_moments, centered};
}

std::vector<Case> feed_cases(DType in, DType out) {
  const auto made = [&](const std::string& name, FeedCase e) {
    e.in = in;
    e.out = out;
    return feed_case(name, e);
  };
  const bool plain = in != DType::f32 || out != DType::f32;  // in tf32 there are bodies that normalise alone
  return {
      made("half boxes, part of a tile", {77, 96, 384, 96}),
      made("half boxes, two rows", {2, 96, 384, 96}),
      made("whole boxes", {33, 64, 128, 64, with(Activation::silu)}),
      made("whole boxes, a whole tile", {32, 64, 128, 64, with(Activation::relu, !plain), false}),
      made("as small as it can be", {31, 32, 64, 32, with(Activation::gelu_tanh, true, true)}),
      made("as small as it can be, without residual", {33, 32, 64, 32, with(Activation::gelu, !plain), true, false}),
      made("whole boxes, tiles of z that are not whole", {33, 192, 256, 160, with(Activation::gelu, !plain, true)}),
      made("an odd number of tiles that share boxes", {33, 96, 192, 96, with(Activation::gelu_tanh)}),
      made("an odd number of tiles of whole boxes", {7, 128, 320, 96, with(Activation::relu), false, false}),
      made("nothing added", {5, 128, 128, 32, with(Activation::silu, !plain), false, false}),
      made("parts of wider rows", {33, 96, 128, 64, with(Activation::gelu, true, true), true, true, Lay::slice}),
      made("rows that become a part of wider ones",
           {33, 64, 64, 96, with(Activation::gelu, true, true), true, true, Lay::rows, Lay::slice}),
      made("the root of the mean square", {9, 64, 64, 96, with(Activation::gelu, true, false, false)}),
      made("a normalised result", {33, 96, 128, 96, normalising_result()}),
      made("a normalised result, parts of wider rows", {37, 64, 64, 160, normalising_result(false), true, true, Lay::slice, Lay::slice}),
      made("a normalised result with nothing added", {31, 32, 64, 32, normalising_result(), false, false}),
  };
}

ShapedVDevice small_device(bool wide = true) {
  ShapedVDevice vdevice = read_vdevice("h200").with_inputs();
  vdevice.sms = 5;
  vdevice.wide_products = vdevice.even_stages = wide;
  return vdevice;
}
ShapedVDevice clusters() {
  ShapedVDevice vdevice = read_vdevice("h200").with_clusters();
  vdevice.wide_products = vdevice.even_stages = true;
  return vdevice;
}

std::vector<RKernel> bodies_of(const Case& c, const ShapedVDevice& vdevice, Precision precision) {
  return kernels::candidates_of(kernels::family("feed_forward"), {c.graph, c.graph.rops[0], vdevice, precision});
}

void run(const std::vector<Case>& cases, Precision precision, double limit) {
  const std::filesystem::path root = std::filesystem::absolute(__FILE__).parent_path().parent_path().parent_path();
  const CaseFolder folder("tamp_feed_forward");
  for (const std::string& problem :
       run_heavy_cases(cases, {kernels::family("feed_forward")}, {small_device(), precision, limit}, root, folder.path()))
    FAIL_CHECK(problem);
}

std::vector<float> equal_values(int64_t count) { return std::vector<float>(static_cast<size_t>(count), 3.3F); }

}  // namespace

TEST_CASE("chains of two products agree with the reference in tf32") {
  std::vector<Case> cases = feed_cases(DType::f32, DType::f32);
  cases.push_back(feed_case("rows of equal values", {11, 96, 128, 96, with(Activation::gelu), true, true, Lay::rows, Lay::rows, DType::f32,
                                                     DType::f32, equal_values(11 * 96)}));
  run(cases, Precision::tf32, 1e-2);
}

TEST_CASE("chains of two products agree with the reference in fp16") {
  std::vector<Case> cases = feed_cases(DType::f16, DType::f16);
  for (const auto& [in, out] : {std::pair{DType::f32, DType::f32}, std::pair{DType::f16, DType::f32}, std::pair{DType::f32, DType::f16}})
    cases.push_back(feed_case("mixed", {33, 96, 128, 64, with(Activation::gelu, in != out), true, true, Lay::rows, Lay::rows, in, out}));
  cases.push_back(feed_case("rows of equal values", {11, 96, 128, 96, with(Activation::gelu), true, true, Lay::rows, Lay::rows, DType::f16,
                                                     DType::f16, equal_values(11 * 96)}));
  // As in a program of tf32, whose normalised results alone are narrow.
  FeedCase result{33, 96, 128, 64, normalising_result()};
  result.out = DType::f16;
  result.narrow_residual = false;
  cases.push_back(feed_case("a narrow result beside a residual that is not", result));
  run(cases, Precision::fp16, 1e-2);
}

TEST_CASE("chains of two products agree with the reference in bf16") {
  std::vector<Case> cases = feed_cases(DType::bf16, DType::bf16);
  cases.push_back(
      feed_case("mixed", {33, 96, 128, 64, with(Activation::gelu, false), true, true, Lay::rows, Lay::rows, DType::f32, DType::bf16}));
  run(cases, Precision::bf16, 5e-2);
}

TEST_CASE("bodies for two products are there where they fit one round, by wgmma alone") {
  const ShapedVDevice vdevice = small_device();
  const auto count = [&](const FeedCase& e, Precision precision = Precision::tf32) {
    return bodies_of(feed_case("c", e), vdevice, precision).size();
  };
  CHECK(count({33, 96, 384, 96}) == 1);
  CHECK(count({160, 96, 384, 96}) == 1);
  CHECK(count({161, 96, 384, 96}) == 0);  // more tiles than vEUs
  CHECK(count({33, 96, 384, 96}, Precision::fp32) == 0);
  CHECK(bodies_of(feed_case("c", {33, 96, 384, 96}), small_device(false), Precision::tf32).empty());
  CHECK(count({33, 48, 384, 96}) == 0);
  CHECK(count({33, 96, 96, 96}) == 0);
  CHECK(count({33, 96, 384, 80}) == 0);
  CHECK(count({33, 96, 768, 96}) == 0);
  CHECK(count({33, 224, 64, 96}) == 0);
  CHECK(count({33, 160, 128, 96}) == 0);   // a chunk of weights is longer than a stage
  CHECK(count({33, 128, 512, 192}) == 0);  // more work space than there is
  CHECK(count({33, 96, 384, 96, with(Activation::sigmoid)}) == 0);
  CHECK(count({33, 96, 384, 96, with(Activation::gelu, false)}) == 0);  // halves may not hold what was not normalised
  CHECK(count({33, 96, 384, 96, with(Activation::gelu, false)}, Precision::fp16) == 1);
  CHECK(count({33, 96, 384, 96, {}, true, true, Lay::reversed}) == 0);
  FeedCase bfloats{33, 96, 384, 96};
  bfloats.in = DType::bf16;
  CHECK(count(bfloats, Precision::fp16) == 0);
  CHECK(count(bfloats, Precision::bf16) == 1);
}

TEST_CASE("weights that halves do not hold have no body") {
  for (const float value : {1e-6F, 1e6F}) {
    Case c = feed_case("weights", {9, 96, 64, 32});
    std::vector<float> values(96 * 64, 0.1F);
    for (size_t k = 0; k < 96; ++k) values[k * 64 + 5] = value;
    Bytes bytes(values.size() * sizeof(float));
    std::memcpy(bytes.data(), values.data(), bytes.size());
    c.graph.tensor(steps_of_first(c.graph).view.input(1, 1)).data = std::make_shared<const Bytes>(std::move(bytes));
    CHECK(bodies_of(c, small_device(), Precision::tf32).empty());
  }
}

TEST_CASE("members of a cluster share a tile of two products, and keep every fourth row") {
  FeedCase e{69, 192, 768, 192};
  e.op.keeps_moments = true;
  const Case c = feed_case("cluster", e);
  const std::vector<RKernel> bodies = bodies_of(c, clusters(), Precision::tf32);
  REQUIRE(bodies.size() == 1);  // 768 columns are too many for one
  const Phase& phase = bodies[0].phases[0];
  CHECK(phase.cluster == 4);
  CHECK(phase.rtasks == 3 * 4);
  CHECK(phase.ring.rtasks_per_block * phase.ring.blocks == phase.rtasks);
  CHECK(phase.work_bytes <= clusters().work_bytes() + clusters().input_stages * clusters().input_stage_bytes);
  const ROperator& rop = c.graph.rops[0];
  const TensorId residual = steps_of_first(c.graph).view.residual(2);
  const int64_t stored = 5 + 64;
  std::vector<int> written(static_cast<size_t>(stored), 0), kept(static_cast<size_t>(stored), 0);
  for (int64_t t = 0; t < phase.rtasks; ++t) {
    const int64_t tile = t % 3, member = t / 3, rows = tile < 2 ? 32 : 5;
    Accesses accesses;
    kernels::family("feed_forward").accesses(c.graph, rop, bodies[0], 0, t, accesses);
    for (const Region& region : accesses.writes) {
      const bool is_z = region.tensor == rop.outputs[0];
      const int64_t columns = is_z ? 192 : 2 * 192 / kMomentColumns;
      CHECK(region.run.length == columns);
      for (int64_t i = 0; i < region.run.count; ++i) {
        const int64_t at = region.run.offset + i * region.run.stride, row = at / columns;
        CHECK(at % columns == 0);
        CHECK(row / 32 == tile);
        CHECK(row % 4 == member);
        (is_z ? written : kept).at(static_cast<size_t>(row)) += 1;
      }
    }
    for (const Region& region : accesses.reads) {
      if (region.tensor == rop.inputs[0]) {
        CHECK(region.run.offset == tile * 32 * 192);
        CHECK(region.run.count * region.run.length == rows * 192);
      } else {
        CHECK(region.tensor == residual);
        CHECK(region.run.offset == (tile * 32 + member) * 192);
      }
    }
  }
  CHECK(written == std::vector<int>(static_cast<size_t>(stored), 1));
  CHECK(kept == written);
  // A small one can be of one or of four.
  const Case small = feed_case("both", {33, 64, 256, 32});
  CHECK(bodies_of(small, clusters(), Precision::tf32).size() == 2);
  CHECK(bodies_of(small, small_device(), Precision::tf32).size() == 1);
  CHECK(bodies_of(feed_case("no quarters", {33, 64, 192, 32}), clusters(), Precision::tf32).size() == 1);
}

TEST_CASE("a program is fitted as if a chain of products were these") {
  // On average the two sum over 480 channels, which is enough for products by wgmma; 192 are not.
  const std::string text = R"(
  x = input f32[28,192]
  v = const f32[192,768]
  w = const f32[768,192]
  y = MatMul(x, v) epilogue{act=gelu} -> f32[28,768]
  z = MatMul(y, w) -> f32[28,192]
  outputs(z)
)";
  const Graph feed = fused(text), products = parse_graph(text);
  REQUIRE(count_rops(feed, kFeed) == 1);
  const ShapedVDevice one = shape::usual_shape(feed, read_vdevice("h200"), Precision::fp16),
                      two = shape::usual_shape(products, read_vdevice("h200"), Precision::fp16);
  CHECK(two.wide_products);
  CHECK(two.even_stages);
  CHECK(one.wide_products == two.wide_products);
  CHECK(one.even_stages == two.even_stages);
  CHECK(one.more_tiles == two.more_tiles);
}

}  // namespace tamp::test
