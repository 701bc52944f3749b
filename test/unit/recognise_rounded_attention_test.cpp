// recognise_rounded_attention: the attention of a quantised network, as scale_products leaves it, becomes one Attention.
#include "compiler/passes/recognise/recognise_rounded_attention.h"

#include "compiler/select/cost.h"
#include "test/support/check_pass.h"

namespace tamp::test {
namespace {

Graph recognised(const Graph& source, Precision precision = Precision::fp16) {
  const Estimator estimator = [vdevice = read_vdevice("h200").with_inputs(), precision](const Graph& graph, const ROperator& rop) {
    return select::estimate(graph, rop, vdevice, precision);
  };
  Graph made = passes::recognise_rounded_attention(source, estimator);
  check_pass(source, made);
  return made;
}

const Attention& attention_of(const Graph& graph) {
  for (const ROperator& rop : graph.rops) {
    if (const auto* op = std::get_if<Attention>(&rop.attrs)) return *op;
  }
  FAIL("no Attention");
  throw std::logic_error("no Attention");
}

// The roundings of quantised() with its scores rounded, or not.
AttentionRounding usual(bool rounds_scores) {
  AttentionRounding by;
  if (rounds_scores) by.products = {-122, 133};
  if (rounds_scores) by.product_step = 0.03125F;
  by.weights = {0, 255};
  by.weight_steps = 255;
  by.results = {-129, 126};
  by.result_steps = 0.00390625F;
  return by;
}

// `scores` makes `last` of s, the product of Q and K; `behind` makes y of t, the product with V.
std::string quantised(const std::string& scores, const std::string& last,
                      const std::string& behind = "y = Elementwise(t) {rounded(i0; -129, 126)} -> f32[2,3,5,4]",
                      const std::string& after = "outputs(y)") {
  return R"(
    a = input f32[2,3,5,8]
    b = input f32[2,3,8,7]
    c = input f32[2,3,7,4]
    m = input f32[2,1,1,7]
    eighth = const f32[] {0.125}
    step = const f32[] {0.03125}
    half = const f32[] {0.5}
    c255 = const f32[] {255}
    hundred = const f32[] {100}
    a1 = Elementwise(a, hundred) {mul(i0, i1)} -> f32[2,3,5,8]
    b1 = Elementwise(b, hundred) {mul(i0, i1)} -> f32[2,3,8,7]
    c1 = Elementwise(c, hundred) {mul(i0, i1)} -> f32[2,3,7,4]
    q = Elementwise(a1) {rounded(i0; -128, 127)} -> f32[2,3,5,8]
    k = Elementwise(b1) {rounded(i0; -128, 127)} -> f32[2,3,8,7]
    v = Elementwise(c1) {rounded(i0; -100, 155)} -> f32[2,3,7,4]
    s = MatMul(q, k) {alpha=0.01} -> f32[2,3,5,7]
)" + scores +
         "    w = Softmax(" + last + R"() {axes=[3,3]} -> f32[2,3,5,7]
    d = Elementwise(w, c255) {mul(i0, i1)} -> f32[2,3,5,7]
    e = Elementwise(d) {rounded(i0; 0, 255)} -> f32[2,3,5,7]
    t = MatMul(e, v) {alpha=0.00390625} -> f32[2,3,5,4]
    )" + behind +
         "\n    " + after + "\n";
}

const std::string kRounded = "    r = Elementwise(s) {rounded(i0; -122, 133)} -> f32[2,3,5,7]\n";
const std::string kScaled = "    p = Elementwise(r, step) {mul(i0, i1)} -> f32[2,3,5,7]\n";
const std::string kUnrounded = "y = Elementwise(t) {neg(i0)} -> f32[2,3,5,4]";

}  // namespace

TEST_CASE("an attention that rounds scores, weights and the result is one rOperator") {
  const Graph made = recognised(parse_graph(quantised(kRounded + kScaled, "p")));
  CHECK(count_rops(made, "Attention") == 1);
  CHECK(count_rops(made, "MatMul") == 0);
  CHECK(made.rops.back().inputs.size() == 3);
  const AttentionRounding& by = attention_of(made).rounding.value();
  CHECK(attention_of(made).scale == 0.01F);
  CHECK(by == usual(true));
}

TEST_CASE("what is not rounded stays as it is") {
  const Graph scores = recognised(parse_graph(quantised("    p = Elementwise(s, step) {mul(i0, i1)} -> f32[2,3,5,7]\n", "p")));
  CHECK(attention_of(scores).scale == 0.01F * 0.03125F);
  CHECK(attention_of(scores).rounding.value() == usual(false));
  const Graph plain = recognised(parse_graph(quantised("", "s", kUnrounded)));
  CHECK_FALSE(attention_of(plain).rounding.value().results.rounds());
  CHECK(count_rops(plain, "Attention") == 1);
}

TEST_CASE("a mask is added between two roundings, or to the rounded product") {
  const std::string turned =
      "    g = Elementwise(r, half) {mul(i0, i1)} -> f32[2,3,5,7]\n    h = Elementwise(m, g) {add(i0, i1)} -> f32[2,3,5,7]\n";
  const Graph sum = recognised(parse_graph(quantised(kRounded + turned, "h")));
  CHECK(attention_of(sum).rounding.value().product_step == 0.5F);
  CHECK(attention_of(sum).rounding.value().sum_step == 1);
  CHECK(sum.rops.back().inputs.size() == 4);

  const std::string both =
      turned +
      "    i = Elementwise(h) {rounded(i0; -255, 0)} -> f32[2,3,5,7]\n    p = Elementwise(i, step) {mul(i0, i1)} -> f32[2,3,5,7]\n";
  const AttentionRounding two = attention_of(recognised(parse_graph(quantised(kRounded + both, "p")))).rounding.value();
  CHECK(two.products == RoundedTo{-122, 133});
  CHECK(two.sums == RoundedTo{-255, 0});
  CHECK(two.product_step == 0.5F);
  CHECK(two.sum_step == 0.03125F);
}

TEST_CASE("a mask of run time is brought to the steps in which the sum is rounded") {
  const std::string scores = kRounded + R"(
    g = Elementwise(r, half) {mul(i0, i1)} -> f32[2,3,5,7]
    h = Elementwise(g, m) {add(i0, i1)} -> f32[2,3,5,7]
    n = Elementwise(h, eighth) {div(i0, i1)} -> f32[2,3,5,7]
    i = Elementwise(n) {rounded(i0; -255, 0)} -> f32[2,3,5,7]
    p = Elementwise(i, step) {mul(i0, i1)} -> f32[2,3,5,7]
)";
  const Graph made = recognised(parse_graph(quantised(scores, "p")));
  const AttentionRounding by = attention_of(made).rounding.value();
  CHECK(by.product_step == 4);
  CHECK(by.sum_step == 0.03125F);
  CHECK(tensor_named(made, "y.bias").shape == Shape{2, 1, 1, 7});
}

TEST_CASE("an attention is left alone whose steps others read, or that nobody can compute") {
  const auto taken = [](const std::string& text, Precision precision = Precision::fp16) {
    return count_rops(recognised(parse_graph(text), precision), "Attention");
  };
  const std::string usual = "y = Elementwise(t) {rounded(i0; -129, 126)} -> f32[2,3,5,4]";
  CHECK(taken(quantised(kRounded + kScaled, "p", usual, "outputs(y, e)")) == 0);
  CHECK(taken(quantised(kRounded + kScaled, "p", usual, "outputs(y, r)")) == 0);
  CHECK(taken(quantised(kRounded + kScaled, "p"), Precision::fp32) == 0);
  CHECK(taken(quantised(kRounded + kScaled, "p"), Precision::bf16) == 1);
  CHECK(taken(swapped(quantised(kRounded + kScaled, "p"), "{rounded(i0; 0, 255)}", "{relu(i0)}")) == 0);
  const Graph read = recognised(parse_graph(quantised(kRounded + kScaled, "p", usual, "outputs(y, t)")));
  CHECK(count_rops(read, "Attention") == 1);  // without the last rounding
  CHECK_FALSE(attention_of(read).rounding.value().results.rounds());
}

}  // namespace tamp::test
