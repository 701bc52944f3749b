// Normalisation by moments: the references of Moments and NormalizeBy against values worked out by hand, what is refused, the pass that
// puts them beside products (whether that is faster is the estimator's to say), and the device body against the reference over the
// stand-in.
#include "compiler/passes/fuse/defer_normalize.h"
#include "compiler/passes/place/assign_layout.h"
#include "compiler/passes/place/narrow_activations.h"
#include "compiler/passes/place/value_bounds.h"
#include "compiler/passes/rewrite.h"
#include "kernels/catalogue.h"
#include "kernels/product/staged_conv_moments.h"
#include "kernels/product/staged_conv_plan.h"
#include "test/kernels/heavy_bench.h"
#include "test/support/case_folder.h"
#include "test/support/check_pass.h"
#include "test/support/onnx_model.h"

namespace tamp::test {
namespace {

using Catch::Matchers::Contains;

using kernels::staged::moment_steps;

int by_moments(const Graph& graph) { return count_rops(graph, "product by moments"); }
double gained_by_moments(const Graph& graph, double us) { return 100 - us * by_moments(graph); }
double faster_by_moments(const Graph& graph) { return gained_by_moments(graph, 10); }
// Moments of rows that are not rounded have no body.
double faster_by_rounding(const Graph& graph) {
  return gained_by_moments(graph, print(graph).find("identity") == std::string::npos ? -1 : 10);
}

Graph deferred(const std::string& text, const GraphEstimator& estimator = faster_by_moments, bool rounds = false) {
  const Graph source = parse_graph(text);
  Graph made = passes::defer_normalize(source, estimator, rounds);
  check_pass(source, made);
  return made;
}

constexpr const char* kPorts = R"(
  x = input f32[2,3,12]
  r = input f32[2,3,64]
  w = const f32[12,64]
  v = const f32[64,8]
  u = const f32[16,64]
  b = const f32[64]
  c = const f32[8]
  g = const f32[64]
  h = const f32[64]
)";
// As in a network that normalises before each part: the sum is the next residual.
const std::string kSumGoesOn = std::string(kPorts) + R"(
  s = MatMul(x, w) epilogue{bias=b, residual=r} -> f32[2,3,64]
  n = Normalize(s, g, h) {axes=[2], epsilon=0.001} -> f32[2,3,64]
  m = MatMul(n, v) epilogue{bias=c, act=gelu} -> f32[2,3,8]
  outputs(m, s)
)";
// As in BERT: the normalised rows are the next residual.
const std::string kRowsGoOn = std::string(kPorts) + R"(
  s = MatMul(x, w) epilogue{bias=b} -> f32[2,3,64]
  n = Normalize(s, g, h) {axes=[2], epsilon=0.001} -> f32[2,3,64]
  m = MatMul(n, u) {trans_b=1, alpha=0.5} -> f32[2,3,16]
  k = MatMul(m, u) epilogue{residual=n} -> f32[2,3,64]
  outputs(k)
)";

std::vector<float> result_of(const Case& c) {
  return floats_of(ops::evaluate(c.graph, c.graph.rops[0], [&](TensorId id) -> const ops::Value& { return c.values[id.index()]; })[0]);
}

}  // namespace

TEST_CASE("Moments are mean and squares of each 32 columns") {
  // Sixteen values of 6 and sixteen of 2: mean 4, each 2 apart. Then 32 of 2.
  std::vector<float> row(64, 2.0F);
  std::fill_n(row.begin(), 16, 6.0F);
  CaseMaker maker("by hand");
  const TensorId x = maker.input({1, 64}, Lay::rows, row);
  check_near(result_of(maker.finish(Moments{}, {x}, maker.output({1, 2, 2}))), {4, 128, 2, 0});
}

TEST_CASE("NormalizeBy takes mean and deviation of a row from its moments") {
  // 32 columns with the mean 3 and the sum of squares 128 around it: deviation 2.
  std::vector<float> row(32, 3.0F);
  row[0] = 7;
  const auto first = [&](bool centered) {
    CaseMaker maker("given moments");
    const TensorId x = maker.input({1, 32}, Lay::rows, row), moments = maker.input({1, 1, 2}, Lay::rows, {3, 128});
    return result_of(maker.finish(NormalizeBy{centered, 0}, {x, moments}, maker.output({1, 32})))[0];
  };
  check_near({first(true)}, {(7 - 3) / 2.0F});
  check_near({first(false)}, {7 / 3.605551F});  // the root of 4 + 9
}

TEST_CASE("Moments and NormalizeBy say what does not fit") {
  const auto refused = [](const OpAttrs& op, const std::vector<Shape>& shapes) {
    ops::OperandList operands;
    for (const Shape& shape : shapes) operands.push_back(ops::Operand{{DType::f32, shape}, nullptr});
    try {
      ops::infer(op, operands);
    } catch (const std::exception& error) {
      return std::string(error.what());
    }
    return std::string("taken");
  };
  CHECK(refused(Moments{}, {{2, 3, 64}}) == "taken");
  CHECK_THAT(refused(Moments{}, {{2, 3, 48}}), Contains("X has shape [2,3,48], expected rows of a multiple of 32"));
  CHECK(refused(NormalizeBy{}, {{2, 3, 64}, {6, 2, 2}, {2, 3, 64}}) == "taken");
  CHECK_THAT(refused(NormalizeBy{}, {{2, 3, 64}, {2, 3, 2, 2}}), Contains("moments has shape [2,3,2,2], expected [6,2,2]"));
  CHECK_THAT(refused(NormalizeBy{}, {{2, 3, 64}, {6, 2, 2}, {6, 64}}), Contains("rounded has shape [6,64], expected [2,3,64]"));
}

TEST_CASE("a normalisation between products becomes moments beside them") {
  const Graph made = deferred(kSumGoesOn);
  CHECK(by_moments(made) == 2);
  CHECK(count_rops(made, "Normalize") == 0);
  const auto front = moment_steps(made.rops[0]), behind = moment_steps(made.rops[1]);
  REQUIRE((front && behind));
  CHECK((front->kept.valid() && !front->normalize));
  REQUIRE(behind->normalize);
  CHECK(*behind->normalize == NormalizeBy{true, 0.001F});
  CHECK(behind->taken == front->kept);
  CHECK_FALSE(behind->kept.valid());
  CHECK(behind->product.epilogue.activation == Activation::gelu);
  CHECK(made.rops[1].name == parse_graph(kSumGoesOn).rops[2].name);
  CHECK(made.rops[1].origin.size() >= 1);
}

TEST_CASE("a product between two normalisations takes moments and gives them") {
  const Graph made = deferred(R"(
  x = input f32[2,3,64]
  w = const f32[64,64]
  g = const f32[64]
  p = MatMul(x, w) -> f32[2,3,64]
  n = Normalize(p) {axes=[2]} -> f32[2,3,64]
  q = MatMul(n, w) -> f32[2,3,64]
  o = Normalize(q, g, g) {axes=[2]} -> f32[2,3,64]
  y = MatMul(o, w) epilogue{act=relu} -> f32[2,3,64]
  outputs(y)
)");
  CHECK(by_moments(made) == 3);
  const auto inner = moment_steps(made.rops[1]);
  REQUIRE(inner);
  CHECK((inner->normalize && inner->kept.valid()));
  CHECK(inner->taken == made.rops[0].outputs[1]);
}

TEST_CASE("in tf32 the product behind a normalisation reads rows that the product in front has rounded") {
  const Graph made = deferred(kSumGoesOn, faster_by_rounding, true);
  const auto front = moment_steps(made.rops[0]), behind = moment_steps(made.rops[1]);
  REQUIRE((front && behind && front->rounded.valid()));
  CHECK(behind->exact == front->product.outputs[0]);
  CHECK(behind->product.inputs[0] == front->rounded);
  // Where rows as they are have a body, there is nothing to round; but sums with a residual that was not normalised have none.
  const auto rounds_usual = [](const std::string& text) {
    return kernels::staged::keeps_rounded(deferred(text, faster_by_moments, true).rops[0]);
  };
  CHECK_FALSE(rounds_usual(kRowsGoOn));
  CHECK(rounds_usual(kSumGoesOn));
  CHECK(by_moments(deferred(kSumGoesOn, faster_by_rounding)) == 0);
}

TEST_CASE("a normalisation that something else reads stays beside the products") {
  const Graph made = deferred(kRowsGoOn);
  CHECK(by_moments(made) == 2);
  CHECK(count_rops(made, "Normalize") == 1);
  CHECK(count_rops(made, "MatMul") == 1);
}

TEST_CASE("other normalisations and what stands between them and the products") {
  const auto count = [](const std::string& text) { return by_moments(deferred(text)); };
  CHECK(count(swapped(kSumGoesOn, "Normalize(s, g, h)", "Normalize(s)")) == 2);
  CHECK(count(swapped(kSumGoesOn, "Normalize(s, g, h) {axes=[2]", "Normalize(s, g) {axes=[2], centered=0")) == 2);
  CHECK(count(swapped(swapped(kSumGoesOn, "n = Normalize(s, g, h) {axes=[2], epsilon=0.001} -> f32[2,3,64]", R"(t = Reshape(s) -> f32[6,64]
  o = Normalize(t, g, h) {axes=[1], epsilon=0.001} -> f32[6,64]
  n = Reshape(o) -> f32[2,3,64])"),
                      "outputs(m, s)", "outputs(m)")) == 2);
  // A Transpose that moves a dimension of one element alone keeps the rows in their order; another one does not.
  CHECK(
      count(swapped(swapped(kSumGoesOn, "n = Normalize(s, g, h) {axes=[2], epsilon=0.001} -> f32[2,3,64]", R"(t = Reshape(s) -> f32[1,6,64]
  o = Normalize(t, g, h) {axes=[2], epsilon=0.001} -> f32[1,6,64]
  p = Transpose(o) {perm=[1,0,2]} -> f32[6,1,64]
  n = Reshape(p) -> f32[2,3,64])"),
                    "outputs(m, s)", "outputs(m)")) == 2);
  CHECK(count(swapped(swapped(swapped(kSumGoesOn, "n = Normalize(s, g, h)", "o = Normalize(s, g, h)"), "m = MatMul(n, v)",
                              "n = Transpose(o) {perm=[1,0,2]} -> f32[3,2,64]\n  m = MatMul(n, v)"),
                      "epilogue{bias=c, act=gelu} -> f32[2,3,8]", "epilogue{bias=c, act=gelu} -> f32[3,2,8]")) == 0);
  // Two products behind it, one of which has moments of its own.
  const std::string chain = swapped(kSumGoesOn, "outputs(m, s)", R"(k = MatMul(n, u) {trans_b=1} -> f32[2,3,16]
  d = MatMul(k, u) -> f32[2,3,64]
  e = Normalize(d, h, g) {axes=[2], epsilon=0.001} -> f32[2,3,64]
  q = MatMul(e, v) -> f32[2,3,8]
  outputs(m, q, s))");
  CHECK(count(chain) == 5);
}

TEST_CASE("rows that are several of the product's side by side have the moments of all of them") {
  // Three rows of 64 are one of 192, as in front of Swin's patch merging.
  const std::string merged = std::string(kPorts) + R"(
  g3 = const f32[192]
  v3 = const f32[192,8]
  s = MatMul(x, w) epilogue{bias=b} -> f32[2,3,64]
  t = Reshape(s) -> f32[2,192]
  n = Normalize(t, g3) {axes=[1], epsilon=0.001} -> f32[2,192]
  m = MatMul(n, v3) -> f32[2,8]
  outputs(m)
)";
  const Graph made = deferred(merged);
  REQUIRE(by_moments(made) == 2);
  CHECK(count_rops(made, "Normalize") == 0);
  const auto behind = std::find_if(made.rops.begin(), made.rops.end(), [](const ROperator& rop) { return rop.name == "m"; });
  REQUIRE(behind != made.rops.end());
  const auto steps = moment_steps(*behind);
  REQUIRE(steps);
  CHECK(made.tensor(steps->product.inputs[0]).shape == Shape{2, 192});
  CHECK(made.tensor(steps->taken).shape == Shape{2, 6, 2});
  CHECK(print(deferred(merged, faster_by_rounding, true)).find("identity") != std::string::npos);
  // A half of a row, and rows that end within one.
  const auto stays = [&](const char* shape, const char* columns, const char* result) {
    std::string text = merged;
    for (size_t at; (at = text.find("[2,192]")) != std::string::npos;) text.replace(at, 7, shape);
    for (size_t at; (at = text.find("[192")) != std::string::npos;) text.replace(at, 4, columns);
    return by_moments(deferred(swapped(text, "f32[2,8]", result))) == 0;
  };
  CHECK(stays("[12,32]", "[32", "f32[12,8]"));
  CHECK(stays("[4,96]", "[96", "f32[4,8]"));
  CHECK_FALSE(stays("[3,128]", "[128", "f32[3,8]"));
}

TEST_CASE("normalisations stay where they are another thing, or no gain") {
  const struct {
    const char* why;
    std::string text;
  } rows[] = {
      {"an activation in front", swapped(kSumGoesOn, "residual=r}", "residual=r, act=relu}")},
      {"another axis", swapped(swapped(kSumGoesOn, "Normalize(s, g, h)", "Normalize(s)"), "axes=[2]", "axes=[1]")},
      {"a scale of run time", swapped(kSumGoesOn, "g = const f32[64]", "g = input f32[64]")},
      {"weights of run time", swapped(kSumGoesOn, "v = const f32[64,8]", "v = input f32[64,8]")},
      {"no product behind",
       swapped(swapped(kSumGoesOn, "m = MatMul(n, v) epilogue{bias=c, act=gelu} -> f32[2,3,8]", ""), "outputs(m, s)", "outputs(n)")},
  };
  for (const auto& row : rows) {
    INFO(row.why);
    Graph made;
    try {
      made = deferred(row.text);
    } catch (const std::exception& error) {
      FAIL(error.what());
    }
    CHECK(by_moments(made) == 0);
  }
  const auto slower = [](const Graph& graph) { return gained_by_moments(graph, -1); };
  CHECK(by_moments(deferred(kSumGoesOn, slower)) == 0);
  CHECK(by_moments(deferred(kSumGoesOn, GraphEstimator())) == 0);
  std::string many = kSumGoesOn;
  for (size_t at; (at = many.find("2,3,")) != std::string::npos;) many.replace(at, 4, "1400,3,");
  CHECK(by_moments(deferred(many)) == 0);
}

namespace {

struct MomentSizes {
  int64_t rows, k, columns;
  bool takes = true, keeps = true, has_residual = true, has_bias = true, centered = true, trans_b = false;
  ActivationCall activation{};
  Lay residual = Lay::rows;
};

// Means between -1 and 1, and squares that make a deviation of about one.
std::vector<float> some_moments(int64_t count) {
  std::vector<float> values;
  for (int64_t i = 0; i < count; ++i) {
    values.push_back(static_cast<float>(i % 7 - 3) / 3);
    values.push_back(static_cast<float>(20 + i % 5 * 6));
  }
  return values;
}

// A product of `rows`, between a NormalizeBy where there are moments `taken` and the Moments and the copy that are among the results.
Case case_of(CaseMaker& maker, const MomentSizes& e, TensorId rows, TensorId taken, TensorId beside, bool rounds, float alpha,
             float epsilon) {
  const TensorId w = maker.constant(e.trans_b ? Shape{e.columns, e.k} : Shape{e.k, e.columns}),
                 bias = e.has_bias ? maker.constant({e.columns}) : TensorId(),
                 residual = e.has_residual ? maker.input({e.rows, e.columns}, e.residual) : TensorId(),
                 y = maker.output({e.rows, e.columns});
  std::vector<ROperator> steps;
  std::vector<TensorId> results = {y};
  TensorId read = rows;
  if (e.takes) {
    std::vector<TensorId> operands = {rows, taken};
    if (beside.valid()) operands.push_back(beside);
    read = maker.between({e.rows, e.k});
    steps.push_back({"by", NormalizeBy{e.centered, epsilon}, {}, operands, {read}, {}});
  }
  const Epilogue epilogue{bias, residual, e.activation.kind, e.activation.a, e.activation.b};
  steps.push_back({"product", MatMul{false, e.trans_b, alpha, 1}, epilogue, {read, w}, {y}, {}});
  if (e.keeps) {
    results.push_back(maker.output({e.rows, e.columns / kMomentColumns, 2}));
    steps.push_back({"kept", Moments{}, {}, {y}, {results.back()}, {}});
  }
  if (rounds) {
    results.push_back(maker.output({e.rows, e.columns}));
    steps.push_back(passes::make_copy("rounded", y, results.back()));
  }
  return maker.finish_steps(steps, results);
}
TensorId residual_of(const Case& c) { return moment_steps(c.graph.rops[0])->product.epilogue.residual; }

// Of f16 but for the moments.
Case moment_case(const std::string& name, const MomentSizes& e) {
  CaseMaker maker(name);
  const TensorId a = maker.input({e.rows, e.k});
  const int64_t parts = e.k / kMomentColumns;
  const TensorId taken = e.takes ? maker.input({e.rows, parts, 2}, Lay::rows, some_moments(e.rows * parts)) : TensorId();
  Case c = narrowed(case_of(maker, e, a, taken, {}, false, 0.5F, 1e-3F), {a}, DType::f16);
  if (e.has_residual) c = narrowed(std::move(c), {residual_of(c)}, DType::f16);
  return narrowed(std::move(c), {c.graph.rops[0].outputs[0]}, DType::f16);
}

// Results, and their residual, of f32, with a result of f16 beside them.
Case rounded_case(const std::string& name, const MomentSizes& e) {
  CaseMaker maker(name);
  const TensorId a = maker.input({e.rows, e.k});
  Case c = case_of(maker, e, a, {}, {}, true, 1, 0);
  return narrowed(std::move(c), {a, c.graph.rops[0].outputs[2]}, DType::f16);
}

std::vector<Case> moment_cases() {
  return {
      moment_case("keeps moments", {19, 96, 64, false}),
      moment_case("keeps moments of one part, no residual", {7, 64, 32, false, true, false, false}),
      rounded_case("keeps moments and rounds", {19, 96, 64, false}),
      moment_case("takes moments", {19, 96, 72, true, false, false}),
      moment_case("takes many moments, transposed weights", {9, 768, 40, true, false, true, true, true, true}),
      moment_case("takes and keeps", {13, 192, 96}),
      moment_case("the root of the mean square", {5, 64, 64, true, false, false, false, false}),
      moment_case("an activation behind", {21, 128, 136, true, false, false, true, true, false, {Activation::gelu}}),
      moment_case("a residual that is a part of wider rows", {21, 128, 136, true, false, true, true, true, false, {}, Lay::slice}),
      moment_case("a clamp behind", {21, 128, 136, true, false, true, true, true, false, {Activation::relu}}),
  };
}

// Rows of f32 and the same rows rounded to f16, of all kinds that f16 holds too little of (each second one), and of kinds that it holds.
Case exact_case(const std::string& name, const MomentSizes& e) {
  std::vector<float> rows, moments;
  for (int64_t row = 0; row < e.rows; ++row) {
    // Too large; small beside their mean; all equal; too small; of all sizes, but not too large.
    const struct {
      float scale, mean;
    } kinds[] = {{1e6F, 0}, {1, 1}, {1e-3F, 1}, {20, -30}, {0, 0.125F}, {1e3F, 500}, {1e-6F, 0}, {0.1F, 0}};
    const auto& kind = kinds[row % 8];
    for (int64_t part = 0; part < e.k / kMomentColumns; ++part) {
      double mean = 0, squares = 0;
      const size_t first = rows.size();
      for (int64_t i = 0; i < kMomentColumns; ++i) {
        const auto spread = static_cast<float>((part * 7 + i * 5 + row) % 11 - 5) / 3;
        rows.push_back(kind.mean + kind.scale * spread);
        mean += rows.back() / static_cast<double>(kMomentColumns);
      }
      for (size_t i = first; i < rows.size(); ++i) squares += (rows[i] - mean) * (rows[i] - mean);
      moments.push_back(static_cast<float>(mean));
      moments.push_back(static_cast<float>(squares));
    }
  }
  CaseMaker maker(name);
  const TensorId a = maker.input({e.rows, e.k}, Lay::rows, rows),
                 taken = maker.input({e.rows, e.k / kMomentColumns, 2}, Lay::rows, moments),
                 beside = maker.input({e.rows, e.k}, Lay::rows, rows);
  Case c = narrowed(case_of(maker, e, a, taken, beside, false, 1, 1e-12F), {beside}, DType::f16);
  if (e.has_residual) c = narrowed(std::move(c), {residual_of(c)}, DType::f16);
  return narrowed(std::move(c), {c.graph.rops[0].outputs[0]}, DType::f16);
}
std::vector<Case> exact_cases() {
  return {
      exact_case("rows that f16 does not hold", {19, 96, 72, true, false, false}),
      exact_case("the same with a residual and many k", {70, 768, 136, true, false, true, true, true, false, {Activation::relu}}),
      exact_case("a part of wider rows", {21, 128, 64, true, false, true, true, true, false, {}, Lay::slice}),
      exact_case("behind gelu", {21, 64, 128, true, false, false, true, true, false, {Activation::gelu}}),
      exact_case("by the root of the mean square", {9, 64, 64, true, false, false, true, false}),
  };
}

ShapedVDevice small_device(bool wide) {
  ShapedVDevice vdevice = read_vdevice("cpu").with_inputs();
  vdevice.sms = 5;
  vdevice.wide_products = wide;
  return vdevice;
}

std::vector<RKernel> bodies_of(const Case& c, const ShapedVDevice& vdevice, Precision precision) {
  return kernels::candidates_of(kernels::family("staged_conv"), {c.graph, c.graph.rops[0], vdevice, precision});
}

}  // namespace

TEST_CASE("products beside a normalisation agree with the reference in fp16") {
  const std::filesystem::path root = std::filesystem::absolute(__FILE__).parent_path().parent_path().parent_path();
  const CaseFolder folder("tamp_moments");
  for (const std::string& problem :
       run_heavy_cases(moment_cases(), {kernels::family("staged_conv")}, {small_device(true), Precision::fp16, 3e-2}, root, folder.path()))
    FAIL_CHECK(problem);
}

TEST_CASE("products read rows of fp32 where fp16 holds too little of them") {
  const std::filesystem::path root = std::filesystem::absolute(__FILE__).parent_path().parent_path().parent_path();
  const CaseFolder folder("tamp_exact_rows");
  for (const std::string& problem :
       run_heavy_cases(exact_cases(), {kernels::family("staged_conv")}, {small_device(true), Precision::fp16, 2e-2}, root, folder.path()))
    FAIL_CHECK(problem);
}

TEST_CASE("there are no bodies by moments for other types, and for more moments than a thread can hold") {
  const ShapedVDevice vdevice = small_device(true);
  const Case usual = moment_case("usual", {19, 96, 64});
  CHECK(!bodies_of(usual, vdevice, Precision::fp16).empty());
  CHECK(bodies_of(usual, vdevice, Precision::fp32).empty());
  CHECK(bodies_of(narrowed(usual, {usual.graph.rops[0].outputs[1]}, DType::f16), vdevice, Precision::fp16).empty());
  for (const RKernel& rkernel : bodies_of(moment_case("long rows", {19, 2048, 64}), vdevice, Precision::fp16)) {
    CHECK(kernels::staged::config_of(rkernel).parts <= 12);
    CHECK(rkernel.phases.size() == 1);
  }
  // Moments are of results that are stored in one way, where their residual lies as they do.
  CHECK(bodies_of(moment_case("kept beside a part of wider rows", {19, 96, 64, false, true, true, true, true, false, {}, Lay::slice}),
                  vdevice, Precision::fp16)
            .empty());
  CHECK(bodies_of(moment_case("kept behind gelu", {19, 96, 64, false, true, false, true, true, false, {Activation::gelu}}), vdevice,
                  Precision::fp16)
            .empty());
}

}  // namespace tamp::test
