// A normalisation of rows, a product and the attention of its columns: where they become one rOperator (whether that is faster is the
// estimator's to say), and the device body against the reference over the stand-in.
#include "kernels/chain/self_attention.h"

#include <limits>
#include <numeric>
#include <random>

#include "compiler/passes/fuse/fuse_regions.h"
#include "compiler/shape/program_shape.h"
#include "kernels/catalogue.h"
#include "test/kernels/heavy_bench.h"
#include "test/support/case_folder.h"
#include "test/support/check_pass.h"
#include "test/support/hard_masks.h"
#include "test/support/onnx_model.h"

namespace tamp::test {
namespace {

const std::string kSelf = kernels::self_attentions().title;
constexpr float kInfinite = std::numeric_limits<float>::infinity();

struct SelfCase {
  int64_t windows, rows, heads, k;
  Attention op{0.25F};
  Shape scores{};  // none where empty
  bool has_bias = true, has_table = true;
  Lay lay = Lay::rows;  // of x
  DType in = DType::f32, out = DType::f32;
  float masked = 0;             // share of the scores
  bool side_by_side = true;     // heads of the result's rows
  std::vector<float> values{};  // of x
  bool hard_masks = false;      // the scores are those
  bool centered = true;
};

std::vector<int64_t> shuffled(int64_t count) {
  std::vector<int64_t> order(static_cast<size_t>(count));
  std::iota(order.begin(), order.end(), 0);
  std::mt19937 random(11);
  std::shuffle(order.begin(), order.end(), random);
  if (count > 8) std::sort(order.begin() + 2, order.begin() + 6);
  return order;
}

Case self_case(const std::string& name, const SelfCase& e) {
  CaseMaker maker(name);
  const int64_t count = e.windows * e.rows, columns = 3 * e.heads * 32;
  const TensorId x = e.values.empty() ? maker.input({count, e.k}, e.lay) : maker.input({count, e.k}, e.lay, e.values);
  const float edge = std::sqrt(3.0F / static_cast<float>(e.k));
  maker.set_range(-edge, edge);
  const TensorId w = maker.constant({e.k, columns});
  maker.set_range(-1, 1);
  const TensorId b = e.has_bias ? maker.constant({columns}) : TensorId();
  TensorId scores, table;
  if (!e.scores.empty()) {
    std::vector<float> values(static_cast<size_t>(element_count(e.scores)));
    std::mt19937 random(5);
    std::uniform_real_distribution<float> any(-1, 1), part(0, 1);
    for (float& value : values) value = part(random) < e.masked ? -kInfinite : any(random);
    if (e.hard_masks) values = hard_masks(values.size() / static_cast<size_t>(e.scores.back()), static_cast<size_t>(e.scores.back()));
    scores = maker.constant(e.scores, Lay::rows, values);
  }
  if (e.has_table) table = maker.indices({e.windows, e.rows}, shuffled(count));
  const Shape heads = {e.heads, count, 32};
  const TensorId n = maker.between({count, e.k}), m = maker.between({count, columns}), r = maker.between({count, 3 * e.heads, 32}),
                 p = maker.between({3 * e.heads, count, 32}), out = maker.output(heads);
  std::vector<ROperator> steps = {{"n", Normalize{{1}, e.centered, 1e-3F}, {}, {x}, {n}, {}},
                                  {"m", MatMul{}, {b, {}}, {n, w}, {m}, {}},
                                  {"r", Reshape{{count, 3 * e.heads, 32}}, {}, {m}, {r}, {}},
                                  {"p", Transpose{{1, 0, 2}}, {}, {r}, {p}, {}}};
  std::vector<TensorId> inputs;
  for (int64_t part = 0; part < 3; ++part) {
    inputs.push_back(maker.between(heads));
    steps.push_back({"part", Slice{{part * e.heads, 0, 0}, {1, 1, 1}, heads}, {}, {p}, {inputs.back()}, {}});
  }
  inputs.insert(inputs.end(), {scores, table});
  steps.push_back({"a", e.op, {}, without_last_none(inputs), {out}, {}});
  Case c = maker.finish_steps(steps, {out});
  if (e.side_by_side) {
    Tensor& tensor = c.graph.tensor(out);
    tensor.place.strides = {e.heads == 1 ? 0 : 32, count == 1 ? 0 : e.heads * 32, 1};
  }
  if (e.in != DType::f32) c = narrowed(std::move(c), {x}, e.in);
  if (e.out != DType::f32) c = narrowed(std::move(c), {out}, e.out);
  return c;
}

Attention with(float scale, Weightless weightless = Weightless::nan) { return {scale, weightless}; }

std::vector<Case> self_cases(DType in, DType out) {
  const auto made = [&](const std::string& name, SelfCase e) {
    e.in = in;
    e.out = out;
    return self_case(name, e);
  };
  SelfCase root = {2, 31, 2, 72, with(0.3F)};
  root.centered = false;
  SelfCase masked = {2, kOfLargest, 2, 96, with(0.3F), {kOfLargest, kOfLargest}};
  masked.hard_masks = true;
  return {
      made("rows whose keys are all masked", masked),
      made("windows of 49, two of a rTask", {8, 49, 3, 96, with(0.18F), {8, 3, 49, 49}}),
      made("an odd number of windows", {3, 49, 2, 96, with(0.18F), {1, 2, 49, 49}}),
      made("a window of a rTask", {4, 49, 1, 192, with(0.18F), {1, 1, 49, 49}}),
      made("long rows", {1, 49, 2, 384, with(0.18F), {2, 49, 49}, true, false}),
      made("nothing added, no table", {1, 33, 2, 128, with(1), {}, false, false}),
      made("a full window", {2, 64, 2, 64, with(-0.3F), {2, 1, 1, 64}}),
      made("a row alone", {1, 1, 2, 64, with(1), {}, true, false}),
      made("few columns", {2, 17, 2, 40, with(0.5F), {17, 17}}),
      made("heads apart", {2, 16, 2, 96, with(0.5F), {}, true, true, Lay::rows, in, out, 0, false}),
      made("the root of the mean square", root),
      made("masked keys", {2, 40, 2, 64, with(0.3F, Weightless::zero_if_masked), {2, 2, 40, 40}, true, true, Lay::rows, in, out, 0.97F}),
  };
}

ShapedVDevice small_device(bool wide = true) {
  ShapedVDevice vdevice = read_vdevice("h200").with_inputs();
  vdevice.sms = 12;
  vdevice.wide_products = vdevice.even_stages = wide;
  return vdevice;
}

std::vector<RKernel> bodies_of(const Case& c, const ShapedVDevice& vdevice, Precision precision) {
  return kernels::candidates_of(kernels::family("self_attention"), {c.graph, c.graph.rops[0], vdevice, precision});
}

ShapedVDevice clusters() {
  ShapedVDevice vdevice = read_vdevice("h200").with_clusters();
  vdevice.wide_products = vdevice.even_stages = true;
  return vdevice;
}

void run(const std::vector<Case>& cases, Precision precision, double limit, const ShapedVDevice& vdevice = small_device()) {
  const std::filesystem::path root = std::filesystem::absolute(__FILE__).parent_path().parent_path().parent_path();
  const CaseFolder folder("tamp_self_attention");
  for (const std::string& problem :
       run_heavy_cases(cases, {kernels::family("self_attention")}, {vdevice, precision, limit}, root, folder.path()))
    FAIL_CHECK(problem);
}

std::vector<float> equal_values(int64_t count) { return std::vector<float>(static_cast<size_t>(count), 3.3F); }

}  // namespace

// --- the pass ----------------------------------------------------------------------------------------------------------

namespace {

double gained(const Graph& graph, double us) { return 100 - us * count_rops(graph, kSelf); }
double faster(const Graph& graph) { return gained(graph, 10); }

Graph fused(const std::string& text, const GraphEstimator& estimator = faster) {
  const Graph source = parse_graph(text);
  Graph made = passes::fuse_regions(source, kernels::self_attentions(), estimator);
  check_pass(source, made);
  return made;
}

// Two heads of windows by a table.
const std::string kBlock = R"(
  x = input f32[1,2,3,40]
  g = const f32[40]
  h = const f32[40]
  w = const f32[40,192]
  b = const f32[192]
  s = const f32[1,2,3,3]
  t = const i64[2,3] {4, 0, 2, 1, 3, 5}
  n = Normalize(x, g, h) {axes=[3], epsilon=0.001} -> f32[1,2,3,40]
  m = MatMul(n, w) {alpha=0.5} epilogue{bias=b} -> f32[1,2,3,192]
  q0 = Slice(m) {starts=[0,0,0,0]} -> f32[1,2,3,64]
  q1 = Reshape(q0) -> f32[6,2,32]
  q = Transpose(q1) {perm=[1,0,2]} -> f32[2,6,32]
  k0 = Slice(m) {starts=[0,0,0,128]} -> f32[1,2,3,64]
  k1 = Reshape(k0) -> f32[6,2,32]
  k = Transpose(k1) {perm=[1,0,2]} -> f32[2,6,32]
  v0 = Slice(m) {starts=[0,0,0,64]} -> f32[1,2,3,64]
  v1 = Reshape(v0) -> f32[6,2,32]
  v = Transpose(v1) {perm=[1,0,2]} -> f32[2,6,32]
  a = Attention(q, k, v, s, t) {scale=0.25} -> f32[2,6,32]
  a1 = Transpose(a) {perm=[1,0,2]} -> f32[6,2,32]
  y = Reshape(a1) -> f32[1,2,3,64]
  outputs(y)
)";
// Windows one behind the other.
const std::string kCut = R"(
  x = input f32[3,5,40]
  g = const f32[40]
  w = const f32[192,40]
  s = const f32[3,1,5,5]
  n = Normalize(x, g) {axes=[2], centered=0, epsilon=0.001} -> f32[3,5,40]
  m = MatMul(n, w) {trans_b=1} -> f32[3,5,192]
  r = Reshape(m) -> f32[3,5,3,2,32]
  p = Transpose(r) {perm=[2,0,3,1,4]} -> f32[3,3,2,5,32]
  q0 = Slice(p) {starts=[0,0,0,0,0]} -> f32[1,3,2,5,32]
  k0 = Slice(p) {starts=[1,0,0,0,0]} -> f32[1,3,2,5,32]
  v0 = Slice(p) {starts=[2,0,0,0,0]} -> f32[1,3,2,5,32]
  q = Reshape(q0) -> f32[3,2,5,32]
  k = Reshape(k0) -> f32[3,2,5,32]
  v = Reshape(v0) -> f32[3,2,5,32]
  y = Attention(q, k, v, s) {scale=0.25, weightless=zero} -> f32[3,2,5,32]
  outputs(y)
)";

}  // namespace

TEST_CASE("a normalisation, a product and the attention of its columns become one rOperator") {
  const Graph made = fused(kBlock);
  CHECK(count_rops(made, "MatMul") + count_rops(made, "Normalize") + count_rops(made, "Attention") + count_rops(made, "Slice") == 0);
  REQUIRE(count_rops(made, kSelf) == 1);
  const auto steps = kernels::self_attention_steps(made.rops[0]);
  REQUIRE(steps);
  CHECK(made.tensor(made.rops[0].outputs[0]).shape == Shape{2, 6, 32});
  CHECK(steps->attention().scale == 0.25F);
  CHECK(steps->normalize().epsilon == 0.001F);
}

TEST_CASE("windows that lie one behind the other get a table") {
  const Graph made = fused(kCut);
  REQUIRE(count_rops(made, kSelf) == 1);
  const ROperator& rop = made.rops[0];
  const auto steps = kernels::self_attention_steps(rop);
  REQUIRE(steps);
  CHECK(!steps->normalize().centered);
  CHECK(steps->attention().weightless == Weightless::zero);
  CHECK(made.tensor(steps->view.input(steps->kAttention, kAttentionRowTable)).shape == Shape{3, 5});
  CHECK(made.tensor(rop.outputs[0]).shape == Shape{2, 15, 32});
}

TEST_CASE("a normalisation, product and attention stay apart where they are another thing, or no gain") {
  const struct {
    const char* why;
    std::string text;
  } rows[] = {
      {"the product is an output", swapped(kBlock, "outputs(y)", "outputs(y, m)")},
      {"the normalised rows are", swapped(kBlock, "outputs(y)", "outputs(y, n)")},
      {"the queries are", swapped(kBlock, "outputs(y)", "outputs(y, q)")},
      {"rows that are not normalised", swapped(swapped(kBlock, "  n = Normalize(x, g, h) {axes=[3], epsilon=0.001} -> f32[1,2,3,40]\n", ""),
                                               "MatMul(n, w)", "MatMul(x, w)")},
      {"keys that are the queries", swapped(kBlock, "Attention(q, k, v", "Attention(q, q, v")},
      {"an activation", swapped(kBlock, "epilogue{bias=b}", "epilogue{bias=b, act=relu}")},
      {"weights of run time", swapped(kBlock, "w = const f32[40,192]", "w = input f32[40,192]")},
      {"scores of run time", swapped(kBlock, "s = const f32[1,2,3,3]", "s = input f32[1,2,3,3]")},
  };
  for (const auto& row : rows) {
    INFO(row.why);
    CHECK(count_rops(fused(row.text), kSelf) == 0);
  }
  const auto slower = [](const Graph& graph) { return gained(graph, -5); };
  const auto hardly_faster = [](const Graph& graph) { return gained(graph, 1); };
  const auto never = [](const Graph&) { return std::numeric_limits<double>::infinity(); };  // nothing computes either graph
  for (const GraphEstimator& estimator : {GraphEstimator(slower), GraphEstimator(hardly_faster), GraphEstimator(never), GraphEstimator()})
    CHECK(print(fused(kBlock, estimator)) == print(parse_graph(kBlock)));
}

// --- the body ----------------------------------------------------------------------------------------------------------

TEST_CASE("self-attention agrees with the reference in tf32") {
  std::vector<Case> cases = self_cases(DType::f32, DType::f32);
  cases.push_back(self_case("rows of equal values",
                            {1, 11, 1, 96, with(0.3F), {}, true, true, Lay::rows, DType::f32, DType::f32, 0, true, equal_values(11 * 96)}));
  cases.push_back(self_case("parts of wider rows", {2, 16, 2, 96, with(0.5F), {}, true, true, Lay::slice}));
  run(cases, Precision::tf32, 1e-2);
}

TEST_CASE("self-attention agrees with the reference in fp16") {
  std::vector<Case> cases = self_cases(DType::f16, DType::f16);
  for (const auto& [in, out] : {std::pair{DType::f32, DType::f32}, std::pair{DType::f16, DType::f32}, std::pair{DType::f32, DType::f16}})
    cases.push_back(self_case("mixed", {2, 49, 2, 96, with(0.2F), {2, 49, 49}, true, true, Lay::rows, in, out}));
  cases.push_back(self_case("rows of equal values",
                            {1, 11, 1, 96, with(0.3F), {}, true, true, Lay::rows, DType::f16, DType::f16, 0, true, equal_values(11 * 96)}));
  run(cases, Precision::fp16, 1e-2);
  run({self_case("more weights than the ring holds",
                 {1, 49, 1, 768, with(0.2F), {1, 1, 49, 49}, true, true, Lay::rows, DType::f16, DType::f16})},
      Precision::fp16, 1e-2, clusters());
}

TEST_CASE("self-attention agrees with the reference in bf16") { run(self_cases(DType::bf16, DType::bf16), Precision::bf16, 5e-2); }

TEST_CASE("bodies of self-attention are there where it fits one round, by wgmma alone") {
  const ShapedVDevice vdevice = small_device();
  const auto count = [&](const SelfCase& e, Precision precision = Precision::tf32) {
    return bodies_of(self_case("c", e), vdevice, precision).size();
  };
  CHECK(count({4, 49, 3, 96}) == 2);  // of one window and of two
  CHECK(count({5, 49, 3, 96}) == 1);
  CHECK(count({9, 49, 3, 96}) == 0);  // more rTasks than vEUs
  CHECK(count({1, 49, 3, 96}) == 1);
  CHECK(count({4, 49, 3, 96}, Precision::fp32) == 0);
  CHECK(count({4, 49, 3, 96}, Precision::fp16) == 2);
  CHECK(bodies_of(self_case("c", {4, 49, 3, 96}), small_device(false), Precision::tf32).empty());
  CHECK(count({1, 65, 3, 96}) == 0);
  CHECK(count({1, 49, 3, 100}) == 0);
  CHECK(count({1, 49, 3, 448}) == 0);
  CHECK(count({1, 49, 3, 1024}, Precision::fp16) == 0);  // more work space than there is
}

TEST_CASE("weights that halves do not hold make no body of self-attention") {
  for (const float value : {1e-6F, 1e6F}) {
    Case c = self_case("weights", {1, 9, 1, 64});
    std::vector<float> values(64 * 96, 0.1F);
    for (size_t k = 0; k < 64; ++k) values[k * 96 + 5] = value;
    Bytes bytes(values.size() * sizeof(float));
    std::memcpy(bytes.data(), values.data(), bytes.size());
    c.graph.tensor(kernels::self_attention_steps(c.graph.rops[0])->view.input(1, 1)).data = std::make_shared<const Bytes>(std::move(bytes));
    CHECK(bodies_of(c, small_device(), Precision::tf32).empty());
  }
}

TEST_CASE("a program is fitted as if attention and the product in front were the product") {
  const Graph self = self_case("self", {1, 49, 12, 384}).graph;
  const Graph product = parse_graph(R"(
  x = input f32[49,384]
  w = const f32[384,1152]
  n = Normalize(x) {axes=[1]} -> f32[49,384]
  z = MatMul(n, w) -> f32[49,1152]
  outputs(z)
)");
  for (const Precision precision : {Precision::fp16, Precision::tf32}) {
    const ShapedVDevice one = shape::usual_shape(self, read_vdevice("h200"), precision),
                        two = shape::usual_shape(product, read_vdevice("h200"), precision);
    CHECK(two.wide_products);
    CHECK(two.even_stages);
    CHECK(one.wide_products == two.wide_products);
    CHECK(one.even_stages == two.even_stages);
    CHECK(one.more_tiles == two.more_tiles);
  }
}

}  // namespace tamp::test
