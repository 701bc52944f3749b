// The end of a quantised network: which regions there are, in which ways they are joined, what is read back of them, and the device's body
// against the reference over the stand-in, to the bit.
#include "kernels/product/rounded_head.h"

#include "compiler/ir/products.h"
#include "compiler/passes/fuse/fuse_regions.h"
#include "compiler/select/cost.h"
#include "kernels/catalogue.h"
#include "kernels/product/numbers.cuh"
#include "test/kernels/heavy_bench.h"
#include "test/support/case_folder.h"
#include "test/support/check_pass.h"
#include "test/support/graph_text.h"

namespace tamp::test {
namespace {

// Means of 8 channels of 7 x 3, rounded, ten columns, rounded, and the scale of the answer.
const std::string kHead = R"(
    x = input f32[2,8,7,3]
    forty = const f32[] {40}
    third = const f32[] {0.3}
    small = const f32[] {0.0125}
    w = const f32[10,8]
    wc = const f32[10,8,1,1]
    b = const f32[10]
    h = Elementwise(x, forty) {mul(i0, i1)} -> f32[2,8,7,3]
    q = Elementwise(h) {rounded(i0; -100, 100)} -> f32[2,8,7,3]
    mean = Reduce(q) {kind=mean, axes=[2,3]} -> f32[2,8,1,1]
    m = Elementwise(mean, third) {mul(i0, i1), rounded(s0; -128, 127)} -> f32[2,8,1,1]
    v = Reshape(m) -> f32[2,8]
    c = MatMul(v, w) {trans_b=1} epilogue{bias=b, act=rounded, a=-90, b=100} -> f32[2,10]
    y = Elementwise(c, small) {mul(i0, i1)} -> f32[2,10]
    outputs(y)
)";
const std::string kEnd = "y = Elementwise(c, small) {mul(i0, i1)} -> f32[2,10]";

std::string of_pixels() {
  std::string text = swapped(kHead, "    v = Reshape(m) -> f32[2,8]\n", "");
  text = swapped(text, "MatMul(v, w) {trans_b=1}", "Conv(m, wc) {kernel=[1,1]}");
  text = swapped(text, kEnd, "y = Elementwise(c, small) {mul(i0, i1)} -> f32[2,10,1,1]");
  return swapped(text, "a=-90, b=100} -> f32[2,10]", "a=-90, b=100} -> f32[2,10,1,1]");
}
std::string with_table() {
  return swapped(kHead, kEnd, "y = Elementwise(c, small) {mul(i0, i1), sigmoid(s0), div(s1, i1), rounded(s2; 0, 255)} -> f32[2,10]");
}

std::vector<FusionRegion> regions(const std::string& text) {
  const Graph graph = parse_graph(text);
  verify(graph);
  return kernels::rounded_heads().regions(graph);
}
const ROperator* head_in(const Graph& graph) {
  for (const ROperator& rop : graph.rops) {
    if (kernels::is_rounded_head(rop)) return &rop;
  }
  return nullptr;
}

}  // namespace

TEST_CASE("the end of a quantised network is sums of tiles and a product that rounds") {
  for (const auto& [text, left, table] :
       {std::tuple(kHead, 4, false), std::tuple(of_pixels(), 4, false), std::tuple(with_table(), 4, true)}) {
    const Graph graph = parse_graph(text);
    const std::vector<FusionRegion> found = regions(text);
    REQUIRE(found.size() == 1);
    REQUIRE(found[0].ways.size() == 5);  // tiles of 7, 4, 3, 2 and 1 rows
    for (const auto& way : found[0].ways) {
      FusionRegion region = found[0];
      region.join = way;
      const Graph made = passes::with_fused(graph, "rounded head", {region});
      check_pass(graph, made);
      CHECK(std::ssize(made.rops) == left);
      REQUIRE(head_in(made));
      const std::optional<kernels::RoundedHead> head = kernels::rounded_head_of(made, *head_in(made));
      REQUIRE(head);
      CHECK(head->count == 21);
      CHECK(head->scale == 0.3F);
      CHECK(head->low == -128);
      CHECK(head->rounds);
      CHECK(head->table.valid() == table);
      CHECK(head->factor == (table ? 1 : 0.0125F));
    }
  }
}

TEST_CASE("a head may end in floats, or in numbers without a scale") {
  const std::string floats = swapped(kHead, "bias=b, act=rounded, a=-90, b=100", "bias=b, act=relu");
  for (const std::string& text : {floats, swapped(kHead, "outputs(y)", "outputs(y, c)")}) {
    const Graph graph = parse_graph(text);
    REQUIRE(regions(text).size() == 1);
    const Graph made = passes::with_fused(graph, "rounded head", regions(text));
    check_pass(graph, made);
    REQUIRE(head_in(made));
    CHECK(kernels::rounded_head_of(made, *head_in(made))->factor == 1);
    CHECK(kernels::rounded_head_of(made, *head_in(made))->rounds == (text != floats));
  }
}

TEST_CASE("no head where the mean is not rounded, the map not whole, or somebody else reads what is between") {
  REQUIRE(regions(kHead).size() == 1);
  CHECK(regions(swapped(kHead, "rounded(s0; -128, 127)", "neg(s0)")).empty());
  CHECK(regions(swapped(kHead, "rounded(i0; -100, 100)", "neg(i0)")).empty());
  CHECK(regions(swapped(kHead, "kind=mean", "kind=sum")).empty());
  CHECK(regions(swapped(kHead, "outputs(y)", "outputs(y, m)")).empty());
  CHECK(regions(swapped(kHead, "outputs(y)", "outputs(y, v)")).empty());
  CHECK(regions(swapped(kHead, "outputs(y)", "outputs(y, mean)")).empty());
  CHECK(regions(swapped(kHead, "w = const f32[10,8]", "w = input f32[10,8]")).empty());
  CHECK(regions(swapped(kHead, "bias=b, act=rounded, a=-90, b=100", "bias=b, act=sigmoid")).empty());
  CHECK(regions(swapped(kHead, "third = const f32[] {0.3}", "third = input f32[]")).empty());
  // The images as one row.
  std::string joined = swapped(kHead, "v = Reshape(m) -> f32[2,8]", "v = Reshape(m) -> f32[1,16]");
  joined = swapped(swapped(joined, "w = const f32[10,8]", "w = const f32[10,16]"), "b=100} -> f32[2,10]", "b=100} -> f32[1,10]");
  CHECK(regions(swapped(joined, kEnd, "y = Elementwise(c, small) {mul(i0, i1)} -> f32[1,10]")).empty());
}

TEST_CASE("a head is made where that is estimated to be faster") {
  const Graph graph = parse_graph(kHead);
  const auto shorter = [](const Graph& of) { return static_cast<double>(of.rops.size()); };
  const Estimator like = [](const Graph& of, const ROperator& rop) -> std::optional<Estimate> {
    if (!std::holds_alternative<TileSums>(rop.attrs)) return Estimate{1};
    return Estimate{std::abs(static_cast<double>(of.tensor(rop.outputs[0]).shape[2]) - 3)};
  };
  const Graph made = passes::fuse_regions(graph, kernels::rounded_heads(), shorter, like);
  REQUIRE(head_in(made));
  CHECK(made.tensor(head_in(made)->inputs[0]).shape == Shape{2, 8, 3});
  const Estimator none = [](const Graph&, const ROperator&) { return std::optional<Estimate>(); };
  CHECK(print(passes::fuse_regions(graph, kernels::rounded_heads(), shorter, none)) == print(graph));
  const auto longer = [](const Graph& of) { return 100 - static_cast<double>(of.rops.size()); };
  CHECK(print(passes::fuse_regions(graph, kernels::rounded_heads(), longer, like)) == print(graph));
}

namespace {

enum class End : uint8_t { plain, whole, factor, table };
struct Sizes {
  int64_t images, channels, parts, pixels, columns;
  End end = End::factor;
  bool trans_b = true, has_bias = true;
};

std::vector<float> whole_numbers(int64_t count, int64_t most, int64_t seed, float step = 1) {
  std::vector<float> values;
  for (int64_t i = 0; i < count; ++i) values.push_back(step * static_cast<float>((i * 7919 + seed * 104729) % (2 * most + 1) - most));
  return values;
}

// All that is between two roundings is exact. Of one part sums are whole means, so every second half of them is a tie; 1/63 times a
// multiple of 63, in floats, would not be.
Case case_of(const std::string& name, const Sizes& e) {
  CaseMaker maker(name);
  const int64_t count = e.images * e.channels * e.parts, most = 150 * std::max<int64_t>(e.pixels / e.parts, 1);
  const std::vector<float> values =
      e.parts > 1 ? whole_numbers(count, most, 1) : whole_numbers(count, 150, 1, static_cast<float>(e.pixels));
  const TensorId sums = maker.input({e.images, e.channels, e.parts}, Lay::channels_last, values);
  const Shape shape = e.trans_b ? Shape{e.columns, e.channels} : Shape{e.channels, e.columns};
  const TensorId weights = maker.constant(shape, Lay::rows, whole_numbers(e.columns * e.channels, 127, 2, 1.0F / 256));
  const auto number = [&](float value) { return maker.constant({}, Lay::rows, {value}); };
  const TensorId pixels = number(static_cast<float>(e.pixels)), scale = number(0.5F), sum = maker.between({e.images, e.channels});
  const TensorId mean = maker.between({e.images, e.channels}), y = maker.output({e.images, e.columns});
  Epilogue epilogue;
  if (e.has_bias) epilogue.bias = maker.constant({e.columns}, Lay::rows, whole_numbers(e.columns, 1000, 3, 1.0F / 256));
  if (e.end != End::plain) {
    epilogue.activation = Activation::rounded;
    epilogue.a = -120;
    epilogue.b = 135;
  }
  const bool has_end = e.end == End::factor || e.end == End::table;
  const TensorId whole = has_end ? maker.between({e.images, e.columns}) : y;
  const auto chain = [](std::string of, std::vector<ElementwiseStep> steps, std::vector<TensorId> inputs, TensorId to) {
    Elementwise attrs;
    attrs.steps = std::move(steps);
    return ROperator{std::move(of), std::move(attrs), {}, std::move(inputs), {to}, {}};
  };
  std::vector<ROperator> steps = {
      {"sum", Reduce{ReduceKind::sum, {2}, false}, {}, {sums}, {sum}, {}},
      chain("mean", {{ElementwiseOp::div, {0, 1}}, {ElementwiseOp::mul, {-1, 2}}, {ElementwiseOp::rounded, {-2}, -100, 110}},
            {sum, pixels, scale}, mean),
      {"product", MatMul{false, e.trans_b}, epilogue, {mean, weights}, {whole}, {}}};
  if (e.end == End::factor) steps.push_back(chain("end", {{ElementwiseOp::mul, {0, 1}}}, {whole, number(0.75F)}, y));
  if (e.end == End::table) {
    const TensorId index = maker.between({e.images, e.columns}, DType::i64), low = number(-120);
    const TensorId table = maker.constant({256});
    ROperator place = chain("index", {{ElementwiseOp::sub, {0, 1}}, {ElementwiseOp::cast, {-1}}}, {whole, low}, index);
    std::get<Elementwise>(place.attrs).dtype = DType::i64;
    steps.push_back(std::move(place));
    steps.push_back({"end", Gather{0}, {}, {table, index}, {y}, {}});
  }
  return maker.finish_steps(steps, {y});
}

std::vector<Case> cases() {
  return {
      case_of("four channels", {1, 4, 1, 1, 1}),
      case_of("means between two whole numbers", {1, 600, 1, 63, 20}),
      case_of("means that are no binary numbers", {1, 24, 2, 49, 33, End::factor, false}),
      case_of("more channels than a turn of all threads", {1, 1284, 4, 49, 33, End::table}),
      case_of("more parts than loads under way", {1, 72, 9, 560, 10, End::whole, true, false}),
      case_of("rows, and parts that end a turn", {3, 516, 8, 64, 17, End::table, false}),
      case_of("floats", {2, 260, 3, 128, 65, End::plain}),
      case_of("five rows", {5, 36, 2, 16, 40}),
      case_of("as many rows as there can be", {8, 132, 5, 35, 5, End::table}),
  };
}

void expect_the_same(const std::vector<Case>& cases, Precision precision, double tolerance) {
  const std::filesystem::path root = std::filesystem::absolute(__FILE__).parent_path().parent_path().parent_path();
  const CaseFolder folder(std::string("tamp_rounded_head_") + name_of(precision));
  ShapedVDevice vdevice = read_vdevice("h200").with_inputs();
  vdevice.sms = 4;
  for (const std::string& problem : run_heavy_cases(cases, {kernels::family("gemv")}, {vdevice, precision, tolerance}, root, folder.path()))
    FAIL_CHECK(problem);
}

}  // namespace

TEST_CASE("rounded heads agree with the reference to the bit") {
  constexpr double kExact = 1e-9;  // a step is 0.75 at least
  expect_the_same(cases(), Precision::fp32, kExact);
  expect_the_same(cases(), Precision::fp16, kExact);
}

TEST_CASE("rounded heads store 16 bits, too") {
  std::vector<Case> narrow;
  for (const Case& c : cases()) narrow.push_back(narrowed(c, {c.graph.rops[0].outputs[0]}, DType::f16));
  expect_the_same(narrow, Precision::fp16, 1e-3);
}

TEST_CASE("rounded heads have a body for plain sums of few rows") {
  const auto bodies = [](const Case& c) {
    return kernels::candidates_of(kernels::family("gemv"), {c.graph, c.graph.rops[0], read_vdevice("h200").with_inputs(), Precision::fp16})
        .size();
  };
  CHECK(bodies(case_of("fits", {1, 1280, 1, 49, 1000})) > 0);
  CHECK(bodies(case_of("rows", {9, 64, 2, 49, 10})) == 0);
  CHECK(bodies(case_of("channels", {1, 30, 2, 49, 10})) == 0);
}

}  // namespace tamp::test
