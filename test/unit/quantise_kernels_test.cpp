// The bodies of dynamic quantisation, and of softmax and normalisation that quantise, against the reference, over the stand-in, and the
// regions that become it.
#include <numeric>

#include "compiler/ir/products.h"
#include "compiler/ops/ops.h"
#include "compiler/passes/fuse/fuse_regions.h"
#include "kernels/catalogue.h"
#include "kernels/reduce/quantise.h"
#include "kernels/reduce/quantised_rows.h"
#include "test/kernels/light_bench.h"
#include "test/support/catch.h"
#include "test/support/check_pass.h"
#include "test/support/graph_text.h"

namespace tamp::test {
namespace {

// What DynamicQuantizeLinear becomes, without or with the scale that follows.
std::vector<ElementwiseStep> chain_steps(bool scaled) {
  using enum ElementwiseOp;
  std::vector<ElementwiseStep> steps = {
      {min, {0, 1}},   {max, {2, 1}},           {sub, {-2, -1}}, {div, {-3, 3}}, {equal, {-3, 1}}, {where, {-5, 4, -4}},  {neg, {-1}},
      {div, {-7, -6}}, {rounded, {-8}, 0, 255}, {div, {5, -6}},  {round, {-10}}, {add, {-11, -9}}, {clip, {-12}, 0, 255}, {sub, {-13, -9}}};
  if (scaled) steps.push_back({mul, {-14, -6}});
  return steps;
}

Case quantise_case(const std::string& name, const Shape& shape, Lay lay_in, Lay lay_out, bool scaled, float low = -1, float high = 2) {
  CaseMaker maker(name);
  maker.set_range(low, high);
  const TensorId x = maker.input(shape, lay_in), y = maker.output(shape, lay_out);
  const TensorId most = maker.between({}), least = maker.between({});
  const auto number = [&](float value) { return maker.constant({}, Lay::rows, {value}); };
  std::vector<int64_t> axes(shape.size());
  std::iota(axes.begin(), axes.end(), int64_t{0});
  return maker.finish_steps({{"most", Reduce{ReduceKind::max, axes, false}, {}, {x}, {most}, {}},
                             {"least", Reduce{ReduceKind::min, axes, false}, {}, {x}, {least}, {}},
                             {"chain", Elementwise{chain_steps(scaled)}, {}, {least, number(0), most, number(255), number(1), x}, {y}, {}}},
                            {y});
}

// The same where others read the scale: a second result.
Case with_scale(const std::string& name, const Shape& shape, Lay lay) {
  CaseMaker maker(name);
  const TensorId x = maker.input(shape, lay), y = maker.output(shape, lay), scale = maker.output({});
  const TensorId most = maker.between({}), least = maker.between({}), low = maker.between({});
  const auto number = [&](float value) { return maker.constant({}, Lay::rows, {value}); };
  std::vector<int64_t> axes(shape.size());
  std::iota(axes.begin(), axes.end(), int64_t{0});
  using enum ElementwiseOp;
  const Elementwise of_scale{{{max, {0, 1}}, {sub, {-1, 2}}, {div, {-2, 3}}, {equal, {-2, 1}}, {where, {-4, 4, -3}}}};
  const Elementwise of_result{{{neg, {1}},
                               {div, {-1, 2}},
                               {rounded, {-2}, 0, 255},
                               {div, {0, 2}},
                               {round, {-4}},
                               {add, {-5, -3}},
                               {clip, {-6}, 0, 255},
                               {sub, {-7, -3}}}};
  return maker.finish_steps({{"most", Reduce{ReduceKind::max, axes, false}, {}, {x}, {most}, {}},
                             {"least", Reduce{ReduceKind::min, axes, false}, {}, {x}, {least}, {}},
                             {"low", Elementwise{{{min, {0, 1}}}}, {}, {least, number(0)}, {low}, {}},
                             {"scale", of_scale, {}, {most, number(0), low, number(255), number(1)}, {scale}, {}},
                             {"result", of_result, {}, {x, low, scale}, {y}, {}}},
                            {y, scale});
}

TEST_CASE("dynamic quantisation agrees with the reference") {
  const Lay last = Lay::channels_last, rows = Lay::rows, slice = Lay::slice, padded = Lay::padded;
  expect_no_problems(
      {quantise_case("few", {2, 48}, rows, rows, true), quantise_case("one", {1}, rows, rows, true),
       quantise_case("whole numbers", {3, 40}, rows, rows, false), quantise_case("odd", {7, 11, 13}, rows, rows, true),
       quantise_case("map", {1, 16, 9, 7}, last, last, true), quantise_case("map of rows", {2, 8, 9, 7}, rows, last, true),
       quantise_case("slice", {2, 12, 5, 7}, slice, last, true), quantise_case("padded", {1, 78, 5, 3}, padded, padded, true),
       quantise_case("many", {3, 5000}, rows, rows, true), quantise_case("many of odd", {5, 1237}, rows, rows, false),
       quantise_case("above zero", {1, 3000}, rows, rows, true, 1, 3), quantise_case("below zero", {1, 3000}, rows, rows, true, -7, -5),
       quantise_case("all zero", {4, 25}, rows, rows, true, 0, 0)},
      {kernels::family("quantise")}, "quantise");
}

// rounded(f(x) / 0.03; -10, 20) of a Softmax, with a factor in front or not, or of a Normalize.
Case quantised_rows_case(const std::string& name, const OpAttrs& attrs, const Shape& shape, Lay lay, bool has_factor = false) {
  CaseMaker maker(name);
  maker.set_range(-3, 3);
  const TensorId x = maker.input(shape, lay), y = maker.output(shape, lay);
  TensorId from = x;
  const TensorId made = maker.between(shape);
  std::vector<ROperator> steps;
  if (has_factor) {
    from = maker.between(shape);
    steps.push_back({"factor", Elementwise{{{ElementwiseOp::mul, {0, 1}}}}, {}, {x, maker.constant({}, Lay::rows, {0.5F})}, {from}, {}});
  }
  steps.push_back({"rows", attrs, {}, {from}, {made}, {}});
  if (std::holds_alternative<Normalize>(attrs))
    steps.back().inputs.insert(steps.back().inputs.end(), {maker.constant({shape.back()}), maker.constant({shape.back()})});
  steps.push_back({"quantise",
                   Elementwise{{{ElementwiseOp::div, {0, 1}}, {ElementwiseOp::rounded, {-1}, -10, 20}}},
                   {},
                   {made, maker.constant({}, Lay::rows, {0.03F})},
                   {y},
                   {}});
  return maker.finish_steps(steps, {y});
}

TEST_CASE("a quantised softmax agrees with the reference") {
  const Lay rows = Lay::rows, last = Lay::channels_last;
  expect_no_problems({quantised_rows_case("keys", Softmax{2, 2, false}, {3, 5, 33}, rows),
                      quantised_rows_case("keys with a factor", Softmax{3, 3, false}, {1, 2, 8, 64}, rows, true),
                      quantised_rows_case("longer than is kept", Softmax{1, 1, false}, {2, 7001}, rows, true),
                      quantised_rows_case("channels", Softmax{1, 1, false}, {2, 9, 4, 5}, last, true)},
                     {kernels::family("softmax")}, "quantised_softmax");
}

TEST_CASE("a quantised normalisation agrees with the reference") {
  const Lay rows = Lay::rows;
  expect_no_problems(
      {quantised_rows_case("rows", Normalize{{1}}, {24, 96}, rows), quantised_rows_case("long rows", Normalize{{2}}, {1, 3, 1024}, rows),
       quantised_rows_case("without a mean", Normalize{{1}, false, 1e-3F}, {7, 40}, rows)},
      {kernels::family("normalize")}, "quantised_normalize");
  const Case odd = quantised_rows_case("odd", Normalize{{1}}, {24, 98}, rows);  // no whole vectors: no body
  CHECK(kernels::candidates_of(kernels::family("normalize"), {odd.graph, odd.graph.rops[0], small_vdevice(), Precision::fp32}).empty());
}

// A residual behind a product with a bias, each with a rounding; the normalisation of that, quantised. `keeps`: others read the sum.
Case quantised_sums_case(const std::string& name, const Shape& shape, bool keeps, bool has_bias = true, DType dtype = DType::f32) {
  CaseMaker maker(name);
  maker.set_range(-3, 3);
  const TensorId x = maker.input(shape), residual = maker.input(shape), y = maker.output(shape);
  const TensorId sums = keeps ? maker.output(shape) : maker.between(shape), made = maker.between(shape);
  const auto number = [&](float value) { return maker.constant({}, Lay::rows, {value}); };
  using enum ElementwiseOp;
  ROperator chain{"chain", Elementwise{{{mul, {0, 2}}, {mul, {1, 3}}, {add, {-1, -2}}, {rounded, {-3}, -120, 135}}},
                  {},      {x, residual, number(23.71F), number(31.37F)},
                  {sums},  {}};
  if (has_bias) {
    chain.attrs = Elementwise{{{mul, {0, 2}},
                               {add, {-1, 4}},
                               {rounded, {-2}, -90, 85},
                               {mul, {-3, 5}},
                               {mul, {1, 3}},
                               {add, {-4, -5}},
                               {rounded, {-6}, -120, 135}}};
    chain.inputs.insert(chain.inputs.end(), {maker.constant({shape.back()}), number(0.731F)});
  }
  const ROperator normalize{"rows", Normalize{{static_cast<int64_t>(shape.size()) - 1}},
                            {},     {sums, maker.constant({shape.back()}), maker.constant({shape.back()})},
                            {made}, {}};
  const ROperator end{"quantise", Elementwise{{{div, {0, 1}}, {rounded, {-1}, -100, 90}}}, {}, {made, number(0.0313F)}, {y}, {}};
  Case c = maker.finish_steps({chain, normalize, end}, keeps ? std::vector{y, sums} : std::vector{y});
  if (dtype == DType::f32) return c;
  std::vector<TensorId> narrow = {x, residual, y};
  if (keeps) narrow.push_back(sums);
  return narrowed(c, narrow, dtype);
}

TEST_CASE("a quantised sum that is normalised and quantised agrees with the reference") {
  std::vector<Case> cases;
  for (const DType dtype : {DType::f32, DType::f16}) {
    cases.push_back(quantised_sums_case("rows", {24, 96}, true, true, dtype));
    cases.push_back(quantised_sums_case("rows of two batches", {2, 5, 256}, true, false, dtype));
    cases.push_back(quantised_sums_case("long rows", {1, 3, 1024}, false, true, dtype));
    cases.push_back(quantised_sums_case("short rows", {7, 40}, false, false, dtype));
  }
  expect_no_problems(cases, {kernels::family("normalize")}, "quantised_sums");
  for (const Case& c : cases) {
    const auto offered = kernels::candidates_of(kernels::family("normalize"), {c.graph, c.graph.rops[0], small_vdevice(), Precision::fp16});
    REQUIRE_FALSE(offered.empty());
    CHECK(offered[0].phases[0].body == "rk::normalize_rows_summed");
  }
}

TEST_CASE("a quantised sum becomes one rOperator with its normalisation") {
  const std::string text = R"(
    x = input f32[4,16]
    r = input f32[4,16]
    b = const f32[16]
    s = const f32[] {40.5}
    n = Elementwise(x, s, b, r) {mul(i0, i1), add(s0, i2), rounded(s1; -9, 9), add(s2, i3), rounded(s3; -128, 127)} -> f32[4,16]
    m = Normalize(n) {axes=[1], epsilon=0.001} -> f32[4,16]
    q = Elementwise(m, s) {div(i0, i1), rounded(s0; -128, 127)} -> f32[4,16]
)";
  const auto shorter = [](const Graph& of) { return static_cast<double>(of.rops.size()); };
  for (const std::string outputs : {"outputs(q)", "outputs(q, n)"}) {
    const Graph source = parse_graph(text + outputs);
    const Graph made = passes::fuse_regions(source, kernels::quantised_sums(), shorter, {});
    check_pass(source, made);
    REQUIRE(made.rops.size() == 1);
    const auto rows = kernels::summed_rows_of(made, made.rops[0]);
    REQUIRE(rows);
    CHECK(rows->chain.outputs[0].valid() == (outputs == "outputs(q, n)"));
    CHECK(holds_whole_numbers(made, made.outputs[0]));
  }
  CHECK(kernels::quantised_sums().regions(parse_graph(text + "outputs(q, m)")).empty());  // somebody else reads the normalised rows
  CHECK(kernels::quantised_sums().regions(parse_graph(swapped(text, "rounded(s3; -128, 127)", "relu(s3)") + "outputs(q)")).size() == 1);
  CHECK(kernels::quantised_sums().regions(parse_graph(swapped(text, "rounded(s0; -128, 127)", "relu(s0)") + "outputs(q)")).empty());
}

TEST_CASE("what quantises a softmax or a normalisation becomes one rOperator with it") {
  const std::string text = R"(
    x = input f32[4,16]
    s = const f32[] {0.25}
    t = const f32[] {0.004}
    m = Elementwise(x, s) {mul(i0, i1)} -> f32[4,16]
    p = Softmax(m) {axes=[1,1]} -> f32[4,16]
    q = Elementwise(p, t) {div(i0, i1), rounded(s0; 0, 255)} -> f32[4,16]
)";
  const auto shorter = [](const Graph& of) { return static_cast<double>(of.rops.size()); };
  const Graph made = passes::fuse_regions(parse_graph(text + "outputs(q)"), kernels::quantised_softmax(), shorter, {});
  REQUIRE(made.rops.size() == 1);
  const auto rows = kernels::quantised_rows_of(made, made.rops[0]);
  REQUIRE(rows);
  CHECK(rows->by.factor == 0.25F);
  CHECK(rows->by.divisor == 0.004F);
  CHECK(holds_whole_numbers(made, made.outputs[0]));
  CHECK(kernels::quantised_softmax().regions(parse_graph(text + "outputs(q, p)")).empty());  // somebody else reads the softmax
  CHECK(kernels::quantised_normalizations().regions(parse_graph(text + "outputs(q)")).empty());
}

TEST_CASE("many elements are quantised in two phases, few in one") {
  ShapedVDevice vdevice = small_vdevice();
  vdevice.sms = 132;
  const auto names = [&](const Shape& shape) {
    const Case c = quantise_case("", shape, Lay::rows, Lay::rows, true);
    std::vector<std::string> all;
    for (const RKernel& r : kernels::candidates_of(kernels::family("quantise"), {c.graph, c.graph.rops[0], vdevice, Precision::fp32}))
      all.push_back(r.name);
    return all;
  };
  CHECK(names({4, 64}) == std::vector<std::string>{"quantise<1>"});
  CHECK(names({128, 768}) == std::vector<std::string>{"quantise<96>", "quantise<33>", "quantise<shares, 96>", "quantise<shares, 33>"});
}

// DynamicQuantizeLinear as the passes leave it; `rest` may read more of it.
std::string dynamic(const std::string& last, const std::string& rest) {
  return R"(
    x = input f32[4,16]
    zero = const f32[] {0}
    steps = const f32[] {255}
    one = const f32[] {1}
    most = Reduce(x) {kind=max, axes=[0,1], keepdims=0} -> f32[]
    least = Reduce(x) {kind=min, axes=[0,1], keepdims=0} -> f32[]
    q = Elementwise(least, zero, most, steps, one, x) {min(i0, i1), max(i2, i1), sub(s1, s0), div(s2, i3), equal(s2, i1), where(s4, i4, s3), neg(s0), div(s6, s5), rounded(s7; 0, 255), div(i5, s5), round(s9), add(s10, s8), clip(s11; 0, )" +
         last + R"(), sub(s12, s8), mul(s13, s5)} -> f32[4,16]
)" + rest;
}

TEST_CASE("reductions and the chain that reads them become one dynamic quantisation") {
  const auto count = [](const std::string& text) { return kernels::dynamic_quantisations().regions(parse_graph(text)).size(); };
  CHECK(count(dynamic("255", "outputs(q)")) == 1);
  CHECK(count(dynamic("254", "outputs(q)")) == 0);        // another formula
  CHECK(count(dynamic("255", "outputs(q, most)")) == 0);  // somebody else reads the range
  CHECK(count(dynamic("255", "p = Reshape(q) -> f32[64]\n outputs(p)")) == 1);
  const auto shorter = [](const Graph& of) { return static_cast<double>(of.rops.size()); };
  const Graph graph = parse_graph(dynamic("255", "outputs(q)"));
  const Graph made = passes::fuse_regions(graph, kernels::dynamic_quantisations(), shorter, {});
  tamp::verify(made);
  ops::verify_shapes(made);
  REQUIRE(made.rops.size() == 1);
  CHECK(std::holds_alternative<Fused>(made.rops[0].attrs));
  CHECK(ops::layout_of(made.rops[0].attrs) == ops::Layout::like_equal);  // a map stays channels-last
  CHECK_FALSE(holds_whole_numbers(made, made.outputs[0]));
}

TEST_CASE("what is quantised without its scale holds whole numbers") {
  const Case whole = quantise_case("whole", {4, 16}, Lay::rows, Lay::rows, false),
             scaled = quantise_case("scaled", {4, 16}, Lay::rows, Lay::rows, true);
  CHECK(holds_whole_numbers(whole.graph, whole.graph.outputs[0]));
  CHECK_FALSE(holds_whole_numbers(scaled.graph, scaled.graph.outputs[0]));
}

}  // namespace
}  // namespace tamp::test
