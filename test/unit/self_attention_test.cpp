// SelfAttention: the reference against values worked out by hand and against the rOperators that it stands for, what is refused, the pass
// that makes it (whether that is faster is the estimator's to say), and the device body against the reference over the stand-in.
#include "kernels/chain/self_attention.h"

#include <limits>
#include <numeric>
#include <random>

#include "compiler/passes/fuse/fuse_self_attention.h"
#include "compiler/shape/program_shape.h"
#include "test/kernels/heavy_bench.h"
#include "test/support/case_folder.h"
#include "test/support/check_pass.h"
#include "test/support/hard_masks.h"
#include "test/support/onnx_model.h"

namespace tamp::test {
namespace {

using Catch::Matchers::Contains;

constexpr float kInfinite = std::numeric_limits<float>::infinity();

std::vector<float> answer(const Case& c) {
  return floats_of(ops::evaluate(c.graph, c.graph.rops[0], [&](TensorId id) -> const ops::Value& { return c.values[id.index()]; })[0]);
}

}  // namespace

TEST_CASE("SelfAttention attends to the rows of a window") {
  CaseMaker maker("by hand");
  // Four rows of two, which are 1 and -1 or -1 and 1 when normalised; two heads of one column. Q and K are 0, so all keys count the same.
  const TensorId x = maker.input({2, 2, 2}, Lay::rows, {3, 1, 0, 2, 5, 1, 7, 9}),
                 w = maker.constant({2, 6}, Lay::rows, {0, 0, 0, 0, 1, 5, 0, 0, 0, 0, 0, 0}),
                 b = maker.constant({6}, Lay::rows, {0, 0, 0, 0, 10, 0}),
                 scores = maker.constant({2, 1, 2, 2}, Lay::rows, {0, -kInfinite, 0, 0, 0, 0, 0, 0}),
                 table = maker.indices({2, 2}, {2, 0, 1, 3});
  const auto made = [&](const std::vector<TensorId>& inputs, const SelfAttention& op) {
    return answer(maker.finish(op, inputs, maker.output({2, 4, 1})));
  };
  SelfAttention op{2};
  op.epsilon = 0;
  // V of head 0 is 11, 9, 11, 9 and of head 1 5, -5, 5, -5.
  check_near(made({x, w, b}, op), {10, 10, 10, 10, 0, 0, 0, 0});
  check_near(made({x, w, b, TensorId(), table}, op), {11, 9, 11, 9, 5, -5, 5, -5});  // rows 2 and 0 see each other, and 1 and 3
  const TensorId other = maker.indices({2, 2}, {2, 1, 0, 3});
  check_near(made({x, w, b, scores, other}, op), {10, 10, 11, 10, 0, 0, 5, 0});  // row 2, the first of its window, sees itself alone
  op.centered = false;
  op.epsilon = 5;  // row 0 is 3 / sqrt(10): of V, with 1 and 1 for the others
  CHECK(made({x, w, b}, op)[0] > 10);
}

namespace {

struct SelfCase {
  int64_t windows, rows, heads, k;
  SelfAttention op{1, 0.25F, Weightless::nan, true, 1e-3F};
  Shape scores{};  // none where empty
  bool has_bias = true, has_table = true;
  Lay lay = Lay::rows;  // of x
  DType in = DType::f32, out = DType::f32;
  float masked = 0;             // share of the scores
  bool side_by_side = true;     // heads of the result's rows
  std::vector<float> values{};  // of x
  bool hard_masks = false;      // the scores are those
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
  std::vector<TensorId> inputs = {x, maker.constant({e.k, columns})};
  maker.set_range(-1, 1);
  inputs.push_back(e.has_bias ? maker.constant({columns}) : TensorId());
  inputs.push_back(TensorId());
  if (!e.scores.empty()) {
    std::vector<float> values(static_cast<size_t>(element_count(e.scores)));
    std::mt19937 random(5);
    std::uniform_real_distribution<float> any(-1, 1), part(0, 1);
    for (float& value : values) value = part(random) < e.masked ? -kInfinite : any(random);
    if (e.hard_masks) values = hard_masks(values.size() / static_cast<size_t>(e.scores.back()), static_cast<size_t>(e.scores.back()));
    inputs.back() = maker.constant(e.scores, Lay::rows, values);
  }
  inputs.push_back(e.has_table ? maker.indices({e.windows, e.rows}, shuffled(count)) : TensorId());
  while (!inputs.back().valid()) inputs.pop_back();
  const TensorId out = maker.output({e.heads, count, 32});
  SelfAttention op = e.op;
  op.heads = e.heads;
  Case c = maker.finish(op, inputs, out);
  if (e.side_by_side) {
    Tensor& tensor = c.graph.tensor(out);
    tensor.place.strides = {e.heads == 1 ? 0 : 32, count == 1 ? 0 : e.heads * 32, 1};
  }
  if (e.in != DType::f32) c = narrowed(std::move(c), {x}, e.in);
  if (e.out != DType::f32) c = narrowed(std::move(c), {out}, e.out);
  return c;
}

SelfAttention with(float scale, Weightless weightless = Weightless::nan, bool centered = true) {
  return {1, scale, weightless, centered, 1e-3F};
}

std::vector<Case> self_cases(DType in, DType out) {
  const auto made = [&](const std::string& name, SelfCase e) {
    e.in = in;
    e.out = out;
    return self_case(name, e);
  };
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
      made("the root of the mean square", {2, 31, 2, 72, with(0.3F, Weightless::nan, false), {}}),
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
  return kernels::self_attention().candidates({c.graph, c.graph.rops[0], vdevice, precision});
}

ShapedVDevice clusters() {
  ShapedVDevice vdevice = read_vdevice("h200").with_clusters();
  vdevice.wide_products = vdevice.even_stages = true;
  return vdevice;
}

void run(const std::vector<Case>& cases, Precision precision, double limit, const ShapedVDevice& vdevice = small_device()) {
  const std::filesystem::path root = std::filesystem::absolute(__FILE__).parent_path().parent_path().parent_path();
  const CaseFolder folder("tamp_self_attention");
  for (const std::string& problem : run_heavy_cases(cases, {kernels::self_attention()}, {vdevice, precision, limit}, root, folder.path()))
    FAIL_CHECK(problem);
}

std::vector<float> equal_values(int64_t count) { return std::vector<float>(static_cast<size_t>(count), 3.3F); }

}  // namespace

TEST_CASE("SelfAttention is a Normalize, a MatMul and an Attention") {
  const Case c = self_case("whole", {2, 5, 2, 24, with(0.7F), {2, 2, 5, 5}});
  const Graph& g = c.graph;
  Graph parts = parse_graph(R"(
    x = input f32[10,24]
    w = const f32[24,192]
    b = const f32[192]
    s = const f32[2,2,5,5]
    t = const i64[2,5] {0, 1, 2, 3, 4, 5, 6, 7, 8, 9}
    n = Normalize(x) {axes=[1], epsilon=0.001} -> f32[10,24]
    m = MatMul(n, w) epilogue{bias=b} -> f32[10,192]
    r = Reshape(m) -> f32[10,3,2,32]
    p = Transpose(r) {perm=[1,2,0,3]} -> f32[3,2,10,32]
    q0 = Slice(p) {starts=[0,0,0,0]} -> f32[1,2,10,32]
    k0 = Slice(p) {starts=[1,0,0,0]} -> f32[1,2,10,32]
    v0 = Slice(p) {starts=[2,0,0,0]} -> f32[1,2,10,32]
    q = Reshape(q0) -> f32[2,10,32]
    k = Reshape(k0) -> f32[2,10,32]
    v = Reshape(v0) -> f32[2,10,32]
    y = Attention(q, k, v, s, t) {scale=0.7} -> f32[2,10,32]
    outputs(y)
  )");
  const std::vector<TensorId>& inputs = g.rops[0].inputs;
  std::vector<ops::Value> values(parts.tensors.size());
  for (size_t i = 0; i < 5; ++i) values[i] = c.values[inputs[i].index()];
  for (const ROperator& rop : parts.rops)
    values[rop.outputs[0].index()] = ops::evaluate(parts, rop, [&](TensorId id) -> const ops::Value& { return values[id.index()]; })[0];
  check_near(answer(c), floats_of(values[parts.outputs[0].index()]));
}

TEST_CASE("SelfAttention says what does not fit") {
  const auto refused = [](const std::vector<Shape>& shapes, int64_t heads = 2) {
    ops::OperandList operands;
    for (const Shape& shape : shapes)
      operands.push_back(shape.empty() ? std::nullopt : std::optional(ops::Operand{{DType::f32, shape}, nullptr}));
    if (operands.size() > kSelfRowTable) operands[kSelfRowTable]->type.dtype = DType::i64;
    try {
      ops::infer(SelfAttention{heads}, operands);
    } catch (const std::exception& error) {
      return std::string(error.what());
    }
    return std::string("taken");
  };
  const Shape x = {2, 3, 5}, w = {5, 24};
  CHECK(refused({x, w}) == "taken");
  CHECK(refused({x, w, {24}, {3, 2, 2, 2}, {3, 2}}) == "taken");
  CHECK_THAT(refused({x, {6, 24}}), Contains("W has shape [6,24], expected [5,columns], a multiple of 6 columns"));
  CHECK_THAT(refused({x, {5, 20}}), Contains("W has shape [5,20], expected [5,columns], a multiple of 6 columns"));
  CHECK_THAT(refused({x, w}, 0), Contains("heads is 0, expected at least 1"));
  CHECK_THAT(refused({x, w, {1}}), Contains("B has shape [1], expected [24]"));
  CHECK_THAT(refused({x, w, {}, {3, 3}}), Contains("the bias has shape [3,3], which does not broadcast to [2,6,6]"));
  CHECK_THAT(refused({x, w, {}, {}, {2, 2}}), Contains("the rows of the windows have shape [2,2] of i64, but input Q has 6 rows"));
  CHECK(refused({x}) != "taken");
}

// --- the pass ----------------------------------------------------------------------------------------------------------

namespace {

double gained(const Graph& graph, double us) { return 100 - us * count_rops(graph, "SelfAttention"); }
double faster(const Graph& graph) { return gained(graph, 10); }

Graph fused(const std::string& text, const GraphEstimator& estimator = faster) {
  const Graph source = parse_graph(text);
  Graph made = passes::fuse_self_attention(source, estimator);
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
  REQUIRE(count_rops(made, "SelfAttention") == 1);
  const auto& op = std::get<SelfAttention>(made.rops[0].attrs);
  CHECK(op.heads == 2);
  CHECK(op.scale == 0.25F);
  CHECK(op.epsilon == 0.001F);
}

TEST_CASE("windows that lie one behind the other get a table") {
  const Graph made = fused(kCut);
  REQUIRE(count_rops(made, "SelfAttention") == 1);
  const ROperator& rop = made.rops[0];
  CHECK(!std::get<SelfAttention>(rop.attrs).centered);
  CHECK(std::get<SelfAttention>(rop.attrs).weightless == Weightless::zero);
  CHECK(made.tensor(rop.inputs[kSelfRowTable]).shape == Shape{3, 5});
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
    CHECK(count_rops(fused(row.text), "SelfAttention") == 0);
  }
  const auto slower = [](const Graph& graph) { return gained(graph, -5); };
  const auto hardly_faster = [](const Graph& graph) { return gained(graph, 1); };
  const auto never = [](const Graph&) { return std::numeric_limits<double>::infinity(); };  // nothing computes either graph
  for (const GraphEstimator& estimator : {GraphEstimator(slower), GraphEstimator(hardly_faster), GraphEstimator(never), GraphEstimator()})
    CHECK(print(fused(kBlock, estimator)) == print(parse_graph(kBlock)));
}

// --- the body ----------------------------------------------------------------------------------------------------------

TEST_CASE("SelfAttention agrees with the reference in tf32") {
  std::vector<Case> cases = self_cases(DType::f32, DType::f32);
  cases.push_back(self_case("rows of equal values",
                            {1, 11, 1, 96, with(0.3F), {}, true, true, Lay::rows, DType::f32, DType::f32, 0, true, equal_values(11 * 96)}));
  cases.push_back(self_case("parts of wider rows", {2, 16, 2, 96, with(0.5F), {}, true, true, Lay::slice}));
  run(cases, Precision::tf32, 1e-2);
}

TEST_CASE("SelfAttention agrees with the reference in fp16") {
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

TEST_CASE("SelfAttention agrees with the reference in bf16") { run(self_cases(DType::bf16, DType::bf16), Precision::bf16, 5e-2); }

TEST_CASE("bodies of a SelfAttention are there where it fits one round, by wgmma alone") {
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

TEST_CASE("weights that halves do not hold make no body of a SelfAttention") {
  for (const float value : {1e-6F, 1e6F}) {
    CaseMaker maker("weights");
    std::vector<float> values(64 * 96, 0.1F);
    for (size_t k = 0; k < 64; ++k) values[k * 96 + 5] = value;
    const TensorId x = maker.input({9, 64}), w = maker.constant({64, 96}, Lay::rows, values);
    const Case c = maker.finish(with(1), {x, w}, maker.output({1, 9, 32}));
    CHECK(bodies_of(c, small_device(), Precision::tf32).empty());
  }
}

TEST_CASE("a program is fitted as if a SelfAttention were its product") {
  const Graph self = parse_graph(R"(
  x = input f32[49,384]
  w = const f32[384,1152]
  z = SelfAttention(x, w) {heads=12} -> f32[12,49,32]
  outputs(z)
)");
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
