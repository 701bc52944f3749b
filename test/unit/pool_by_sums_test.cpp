// The end of a classifier without a level for its pooling: where the pass makes it and where not, and the device's body against the
// reference over the stand-in.
#include "compiler/passes/fuse/pool_by_sums.h"

#include "compiler/ops/operator.h"
#include "compiler/passes/place/assign_layout.h"
#include "compiler/passes/place/narrow_activations.h"
#include "compiler/select/cost.h"
#include "kernels/catalogue.h"
#include "test/kernels/heavy_bench.h"
#include "test/support/case_folder.h"
#include "test/support/check_pass.h"
#include "test/support/onnx_model.h"

namespace tamp::test {
namespace {

constexpr const char *kConv = "convolution with tile sums", *kProduct = "product with sums of channels";

Estimator on(const char* vdevice, Precision precision) {
  return [vdevice = read_vdevice(vdevice).with_inputs(), precision](const Graph& graph, const ROperator& rop) {
    return select::estimate(graph, rop, vdevice, precision);
  };
}

// A level of the program takes as long, whatever is in it.
double by_levels(const Graph& graph) { return static_cast<double>(graph.rops.size()); }

Graph pooled(const std::string& text, Precision precision = Precision::tf32, const GraphEstimator& graphs = by_levels) {
  const Graph source = parse_graph(text);
  Graph made = passes::pool_by_sums(source, on("h200", precision), graphs);
  check_pass(source, made);
  return made;
}
bool is_pooled(const std::string& text) {
  const Graph made = pooled(text);
  CHECK(count_rops(made, kConv) == count_rops(made, kProduct));
  return count_rops(made, kProduct) == 1;
}

// `images` of 72 channels; `conv` and `mean` are the ends of lines, `after` what comes behind the mean m.
std::string classifier(int images, const std::string& conv, const std::string& after, const std::string& mean = "} -> f32[N,72,1,1]") {
  std::string text = R"(
    i = input f32[N,40,7,5]
    r = input f32[N,72,7,5]
    c = const f32[72,40,1,1]
    cb = const f32[72]
    w = const f32[72,33]
    wt = const f32[33,72]
    wb = const f32[33]
    x = Conv(i, c) {kernel=[1,1]} epilogue{bias=cb, )" +
                     conv + R"(} -> f32[N,72,7,5]
    m = Reduce(x) {kind=mean, axes=[2,3])" +
                     mean + "\n" + after;
  for (size_t at; (at = text.find("[N,")) != std::string::npos;) text.replace(at + 1, 1, std::to_string(images));
  return text;
}
const std::string kView = "    v = Reshape(m) -> f32[N,72]\n";
const std::string kLast = "    y = MatMul(v, w) epilogue{bias=wb, act=relu} -> f32[N,33]\n    outputs(y)\n";

const ROperator& only(const Graph& graph, const char* title) {
  for (const ROperator& rop : graph.rops) {
    if (title_of(rop) == title) return rop;
  }
  FAIL("no " << title);
  throw std::logic_error("no such rOperator");
}

}  // namespace

TEST_CASE("a convolution, a mean of its pixels and a product are two rOperators") {
  for (const Precision precision : {Precision::tf32, Precision::fp16, Precision::bf16}) {
    const Graph made = pooled(classifier(1, "act=hard_swish", kView + kLast), precision);
    REQUIRE(made.rops.size() == 2);
    CHECK(FusedView::of(only(made, kConv))->step(0).epilogue.activation == Activation::hard_swish);
    const std::optional<FusedView> product = FusedView::of(only(made, kProduct));
    CHECK(product->as<MatMul>(1)->alpha == Approx(1.0 / 35));
    CHECK(product->step(1).epilogue.activation == Activation::relu);
    CHECK(product->bias(1).valid());
  }
  CHECK(is_pooled(classifier(1, "residual=r, act=relu", kView + kLast)));
  CHECK(is_pooled(classifier(3, "act=relu", kView + kLast)));
  CHECK(is_pooled(classifier(1, "act=relu", "    y = MatMul(m, w) -> f32[N,33]\n    outputs(y)\n", ", keepdims=0} -> f32[N,72]")));
  const Graph scaled =
      pooled(classifier(1, "act=relu", kView + "    y = MatMul(v, wt) {trans_b=1, alpha=7} -> f32[N,33]\n    outputs(y)\n"));
  CHECK(FusedView::of(only(scaled, kProduct))->as<MatMul>(1)->alpha == Approx(0.2));
}

TEST_CASE("the map may have other readers, its means not") {
  CHECK(is_pooled(classifier(1, "act=relu", kView + "    y = MatMul(v, w) -> f32[N,33]\n    outputs(y, x)\n")));
  for (const char* const means : {"m", "v"}) {
    CAPTURE(means);
    CHECK_FALSE(is_pooled(classifier(1, "act=relu", kView + "    y = MatMul(v, w) -> f32[N,33]\n    outputs(y, " + means + ")\n")));
  }
  CHECK_FALSE(is_pooled(classifier(1, "act=relu", kView + "    z = MatMul(v, w) -> f32[N,33]\n" + kLast)));
}

TEST_CASE("other ends of a network stay as they are") {
  std::string largest = classifier(1, "act=relu", kView + kLast);
  largest.replace(largest.find("kind=mean"), 9, "kind=max");
  CHECK_FALSE(is_pooled(largest));
  std::string odd = classifier(1, "act=relu", kView + kLast);
  for (size_t at; (at = odd.find("72")) != std::string::npos;) odd.replace(at, 2, "70");
  CHECK_FALSE(is_pooled(odd));
  CHECK_FALSE(is_pooled(classifier(1, "act=relu, residual=r, residual_after_activation=1", kView + kLast)));
  // The images as rows of another product.
  CHECK_FALSE(is_pooled(classifier(
      2, "act=relu", "    v = Reshape(m) -> f32[1,144]\n    q = const f32[144,8]\n    y = MatMul(v, q) -> f32[1,8]\n    outputs(y)\n")));
}

TEST_CASE("a classifier stays as it is where it is not faster otherwise") {
  const std::string text = classifier(1, "act=relu", kView + kLast);
  const auto untouched = [](const Graph& source, const Graph& made) { return print(source) == print(made); };
  CHECK(untouched(parse_graph(text), pooled(text, Precision::tf32, [](const Graph&) { return 10.0; })));
  CHECK(untouched(parse_graph(text),
                  pooled(text, Precision::tf32, [](const Graph& graph) { return 10.0 - static_cast<double>(graph.rops.size()); })));
  CHECK(untouched(parse_graph(text), pooled(text, Precision::fp32)));  // there is no body of such a convolution
  const std::string many = classifier(9, "act=relu", kView + kLast);
  CHECK(untouched(parse_graph(many), pooled(many)));
  CHECK(untouched(parse_graph(text), passes::pool_by_sums(parse_graph(text), {}, by_levels)));
  CHECK(untouched(parse_graph(text), passes::pool_by_sums(parse_graph(text), on("h200", Precision::tf32), {})));
}

TEST_CASE("the sums stay f32 where the map is narrow") {
  const ShapedVDevice vdevice = read_vdevice("h200").with_inputs();
  Graph graph = passes::assign_layout(pooled(classifier(1, "act=relu", kView + kLast), Precision::fp16));
  graph = passes::narrow_activations(std::move(graph), DType::f16, [&](const Graph& placed, const ROperator& rop) {
    return !kernels::candidates({placed, rop, vdevice, Precision::fp16}).empty();
  });
  const ROperator& conv = only(graph, kConv);
  CHECK(graph.tensor(conv.outputs[0]).dtype == DType::f16);
  CHECK(graph.tensor(conv.outputs[1]).dtype == DType::f32);
}

namespace {

struct Sizes {
  int64_t images, channels, parts, columns;
  bool trans_b = false;
  Activation activation = Activation::none;
  bool has_bias = true, has_residual = false;
};

Case case_of(const std::string& name, const Sizes& e) {
  CaseMaker maker(name);
  const TensorId sums = maker.input({e.images, e.channels, e.parts}, Lay::channels_last);
  const TensorId weights = maker.constant(e.trans_b ? Shape{e.columns, e.channels} : Shape{e.channels, e.columns});
  Epilogue epilogue;
  epilogue.activation = e.activation;
  if (e.has_bias) epilogue.bias = maker.constant({e.columns});
  if (e.has_residual) epilogue.residual = maker.input({e.images, e.columns});
  const TensorId pooled = maker.between({e.images, e.channels}), y = maker.output({e.images, e.columns});
  const ROperator add{"add", Reduce{ReduceKind::sum, {2}, false}, {}, {sums}, {pooled}, {}},
      product{"product", MatMul{false, e.trans_b, 0.25F}, epilogue, {pooled, weights}, {y}, {}};
  return maker.finish_steps({add, product}, {y});
}

std::vector<Case> cases() {
  return {
      case_of("four channels", {1, 4, 1, 1}),
      case_of("more channels than a turn of all threads", {1, 1284, 4, 33, true}),
      case_of("more parts than loads under way", {1, 72, 9, 10, false, Activation::relu}),
      case_of("rows, and parts that end a turn", {3, 516, 8, 17, true, Activation::none, false}),
      case_of("another activation", {2, 260, 3, 65, false, Activation::hard_swish}),
      case_of("a residual", {5, 36, 2, 40, true, Activation::relu, true, true}),
      case_of("as many rows as there can be", {8, 132, 5, 5}),
  };
}

void expect_no_problems(const std::vector<Case>& cases, Precision precision, double tolerance) {
  const std::filesystem::path root = std::filesystem::absolute(__FILE__).parent_path().parent_path().parent_path();
  const CaseFolder folder(std::string("tamp_pool_by_sums_") + name_of(precision));
  ShapedVDevice vdevice = read_vdevice("h200").with_inputs();
  vdevice.sms = 4;
  for (const std::string& problem : run_heavy_cases(cases, {kernels::family("gemv")}, {vdevice, precision, tolerance}, root, folder.path()))
    FAIL_CHECK(problem);
}

}  // namespace

TEST_CASE("products with means of channels agree with the reference") {
  expect_no_problems(cases(), Precision::fp32, 1e-5);
  expect_no_problems(cases(), Precision::tf32, 2e-3);
  std::vector<Case> narrow;
  for (const Case& c : cases()) {
    const TensorId y = c.graph.rops[0].outputs[0], residual = FusedView::of(c.graph.rops[0])->residual(1);
    for (const DType dtype : kNarrowTypes) {
      narrow.push_back(narrowed(c, residual.valid() ? std::vector{y, residual} : std::vector{y}, dtype));
    }
  }
  expect_no_problems(narrow, Precision::fp16, 2e-3);
}

TEST_CASE("products with means of channels have a body for plain sums of few rows that fit") {
  const auto bodies = [](const Case& c) {
    return kernels::candidates_of(kernels::family("gemv"), {c.graph, c.graph.rops[0], read_vdevice("h200").with_inputs(), Precision::tf32})
        .size();
  };
  CHECK(bodies(case_of("fits", {1, 2048, 4, 1000})) > 0);
  CHECK(bodies(case_of("rows", {9, 64, 2, 10})) == 0);
  CHECK(bodies(case_of("channels", {1, 30, 2, 10})) == 0);
  CHECK(bodies(case_of("shared memory", {8, 4096, 2, 10})) == 0);
  const Case wide = case_of("narrow sums", {1, 64, 2, 10});
  CHECK(bodies(narrowed(wide, {wide.graph.rops[0].inputs[0]}, DType::f16)) == 0);
}

TEST_CASE("products with means of channels cost more where there are more parts") {
  const auto us = [](int64_t parts) {
    const Case c = case_of("cost", {1, 2048, parts, 1000});
    const std::optional<Estimate> estimate = on("h200", Precision::tf32)(c.graph, c.graph.rops[0]);
    REQUIRE(estimate.has_value());
    return estimate->us;
  };
  CHECK(us(1) < us(2));
  CHECK(us(2) < us(7));
}

}  // namespace tamp::test
