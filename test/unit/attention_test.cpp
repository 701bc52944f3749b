// Attention: the reference against values worked out by hand, what is refused, the pass that makes it of two products with a softmax
// between them, where its results are put, and the device body against the reference over the stand-in.
#include "kernels/attention/attention.h"

#include <cmath>
#include <limits>

#include "compiler/ops/operator.h"
#include "compiler/passes/assign_layout.h"
#include "compiler/passes/recognise_attention.h"
#include "compiler/select/cost.h"
#include "test/kernels/heavy_bench.h"
#include "test/support/case_folder.h"
#include "test/support/check_pass.h"
#include "test/support/onnx_model.h"

namespace tamp::test {
namespace {

using Catch::Matchers::Contains;

constexpr float kInfinite = std::numeric_limits<float>::infinity();

Estimator on(const char* vdevice, Precision precision) {
  return [vdevice = read_vdevice(vdevice).with_inputs(), precision](const Graph& graph, const ROperator& rop) {
    return select::estimate(graph, rop, vdevice, precision);
  };
}

Graph recognised(const Graph& source, Precision precision = Precision::tf32) {
  Graph made = passes::recognise_attention(source, on("h200", precision));
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

}  // namespace

TEST_CASE("Attention weighs values by the softmax of scaled products and bias") {
  CaseMaker maker("by hand");
  const float third = std::log(3.0F) / 2;  // times scale 2: scores log 3 and 0
  const TensorId q = maker.input({1, 2, 1}, Lay::rows, {1, 0}), k = maker.input({1, 2, 1}, Lay::rows, {third, 0});
  const TensorId v = maker.input({1, 2, 2}, Lay::rows, {4, 0, 0, 8});
  const Case plain = maker.finish(Attention{2}, {q, k, v}, maker.output({1, 2, 2}));
  const auto answer = [](const Case& c) {
    return ops::evaluate(c.graph, c.graph.rops[0], [&](TensorId id) -> const ops::Value& { return c.values[id.index()]; })[0];
  };
  check_near(floats_of(answer(plain)), {3, 2, 2, 4});  // weights 3/4 and 1/4, then a half each
  const TensorId mask = maker.input({2}, Lay::rows, {-kInfinite, 0});
  const Case masked = maker.finish(Attention{2}, {q, k, v, mask}, maker.output({1, 2, 2}));
  check_near(floats_of(answer(masked)), {0, 8, 0, 8});
}

TEST_CASE("a query whose weights are not numbers gets NaN or zeros") {
  const auto answer = [](Weightless weightless, const std::vector<float>& queries) {
    CaseMaker maker("by hand");
    const TensorId q = maker.input({2, 1}, Lay::rows, queries), k = maker.input({2, 1}, Lay::rows, {1, 1}),
                   v = maker.input({2, 1}, Lay::rows, {2, 6}), mask = maker.input({2, 2}, Lay::rows, {0, 0, -kInfinite, -kInfinite});
    const Case c = maker.finish(Attention{1, weightless}, {q, k, v, mask}, maker.output({2, 1}));
    return floats_of(ops::evaluate(c.graph, c.graph.rops[0], [&](TensorId id) -> const ops::Value& { return c.values[id.index()]; })[0]);
  };
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (const Weightless weightless : {Weightless::nan, Weightless::zero_if_masked, Weightless::zero}) {
    const std::vector<float> masked = answer(weightless, {0, 0}), of_nan = answer(weightless, {nan, 0});
    CHECK(masked[0] == 4);
    CHECK((weightless == Weightless::nan ? std::isnan(masked[1]) : masked[1] == 0));
    CHECK((weightless == Weightless::zero ? of_nan[0] == 0 : std::isnan(of_nan[0])));
  }
}

TEST_CASE("Attention says what does not fit") {
  const auto refused = [](const Shape& q, const Shape& k, const Shape& v, const Shape& bias) {
    ops::OperandList operands;
    for (const Shape* shape : {&q, &k, &v, &bias}) {
      if (shape != &bias || !shape->empty()) operands.push_back(ops::Operand{{DType::f32, *shape}, nullptr});
    }
    try {
      ops::infer(Attention{}, ops::Given(operands));
    } catch (const std::exception& error) {
      return std::string(error.what());
    }
    return std::string("taken");
  };
  CHECK(refused({2, 5, 8}, {2, 3, 8}, {2, 3, 4}, {}) == "taken");
  CHECK(refused({2, 5, 8}, {1, 3, 8}, {3, 4}, {5, 1}) == "taken");
  CHECK_THAT(refused({2, 5, 8}, {2, 3, 7}, {2, 3, 4}, {}), Contains("rows of Q and K are of different sizes"));
  CHECK_THAT(refused({2, 5, 8}, {2, 3, 8}, {2, 4, 4}, {}), Contains("K and V have different numbers of rows"));
  CHECK_THAT(refused({2, 5, 8}, {2, 3, 8}, {2, 3, 4}, {2, 2, 3}), Contains("does not broadcast to [2,5,3]"));
  CHECK_THAT(refused({8}, {2, 3, 8}, {2, 3, 4}, {}), Contains("input Q has shape [8], expected matrices"));
}

namespace {

// As exporters write it below opset 23, with `scores` between the first product and the softmax and K turned round by a Transpose.
std::string written_out(const std::string& scores, const std::string& last, const std::string& after = "outputs(y)") {
  return R"(
    q = input f32[2,3,5,8]
    k = input f32[2,3,7,8]
    v = input f32[2,3,7,4]
    m = input f32[2,1,1,7]
    c = const f32[] {0.25}
    four = const f32[1] {4}
    t = Transpose(k) {perm=[0,1,3,2]} -> f32[2,3,8,7]
    s = MatMul(q, t) {} -> f32[2,3,5,7]
)" + scores +
         "    w = Softmax(" + last + ") {axes=[3,3]} -> f32[2,3,5,7]\n    y = MatMul(w, v) {} -> f32[2,3,5,4]\n    " + after + "\n";
}

}  // namespace

TEST_CASE("two products with a softmax between them are one rOperator") {
  const std::string divided = "    d = Elementwise(s, four) {div(i0, i1)} -> f32[2,3,5,7]\n";
  const std::string times = "    d = Elementwise(c, s) {mul(i0, i1)} -> f32[2,3,5,7]\n";
  const std::string sum = "    a = Elementwise(d, m) {add(i0, i1)} -> f32[2,3,5,7]\n";
  for (const auto& [scores, last, scale, operands] :
       {std::tuple{std::string(), "s", 1.0F, size_t{3}}, std::tuple{divided, "d", 0.25F, size_t{3}},
        std::tuple{times, "d", 0.25F, size_t{3}}, std::tuple{divided + sum, "a", 0.25F, size_t{4}}}) {
    CAPTURE(scores);
    const Graph made = recognised(parse_graph(written_out(scores, last)));
    CHECK(count_rops(made, "Attention") == 1);
    CHECK(count_rops(made, "MatMul") == 0);
    CHECK(attention_of(made).scale == scale);
    CHECK(made.rops.back().inputs.size() == operands);
  }
}

namespace {

// Behind the softmax w, `selection` makes u of it. The scores have a mask of keys m: -infinity where `kept` is false.
std::string selected(const std::string& selection, const std::string& after = "outputs(y)") {
  return R"(
    q = input f32[2,5,8]
    k = input f32[2,7,8]
    v = input f32[2,7,4]
    g = input f32[2,1,7]
    zero = const f32[] {0}
    kept = Elementwise(g, zero) {greater(i0, i1)} -> bool[2,1,7]
    masked = const f32[1] {-inf}
    small = const f32[] {-9}
    m = Elementwise(kept, zero, masked) {where(i0, i1, i2)} -> f32[2,1,7]
    s = MatMul(q, k) {trans_b=1} -> f32[2,5,7]
    a = Elementwise(s, m) {add(i0, i1)} -> f32[2,5,7]
    w = Softmax(a) {axes=[2,2]} -> f32[2,5,7]
)" + selection +
         "\n    y = MatMul(u, v) {} -> f32[2,5,4]\n    " + after + "\n";
}

}  // namespace

TEST_CASE("weights that are selected once more behind the softmax are the attention's") {
  const std::string nan = "n = Elementwise(w) {is_nan(i0)} -> bool[2,5,7]\n";
  const std::string of_nan = nan + "u = Elementwise(n, zero, w) {where(i0, i1, i2)} -> f32[2,5,7]";  // as PyTorch exports it
  const std::string of_kept = "u = Elementwise(kept, w, zero) {where(i0, i1, i2)} -> f32[2,5,7]";    // as the importer of Attention does
  for (const auto& [selection, weightless] : {std::pair{of_nan, Weightless::zero}, std::pair{of_kept, Weightless::zero_if_masked}}) {
    CAPTURE(selection);
    const Graph made = recognised(parse_graph(selected(selection)));
    REQUIRE(count_rops(made, "Attention") == 1);
    CHECK(count_rops(made, "MatMul") == 0);
    CHECK(count_rops(made, "Elementwise") == 2);  // the mask
    CHECK(attention_of(made).weightless == weightless);
  }
  // Other masks, of which it is known where they are -infinity.
  for (const std::string kept : {"x = Elementwise(m, masked) {greater(i0, i1)} -> bool[2,1,7]\n",
                                 "x = Elementwise(kept, kept) {logical_and(i0, i1)} -> bool[2,1,7]\n"}) {
    CAPTURE(kept);
    CHECK(count_rops(recognised(parse_graph(selected(kept + "u = Elementwise(x, w, zero) {where(i0, i1, i2)} -> f32[2,5,7]"))),
                     "Attention") == 1);
  }
  const std::string other = "o = Elementwise(g, zero) {less(i0, i1)} -> bool[2,1,7]\n";
  for (const auto& [selection, after] :
       {std::pair{nan + "u = Elementwise(n, small, w) {where(i0, i1, i2)} -> f32[2,5,7]", "outputs(y)"},
        std::pair{nan + "u = Elementwise(n, w, zero) {where(i0, i1, i2)} -> f32[2,5,7]", "outputs(y)"}, std::pair{of_nan, "outputs(y, w)"},
        std::pair{of_nan + "\nz = Elementwise(n, small, zero) {where(i0, i1, i2)} -> f32[2,5,7]", "outputs(y, z)"},
        std::pair{of_nan, "outputs(y, u)"}, std::pair{of_nan + "\nz = Elementwise(w) {exp(i0)} -> f32[2,5,7]", "outputs(y, z)"},
        std::pair{other + "u = Elementwise(o, w, zero) {where(i0, i1, i2)} -> f32[2,5,7]", "outputs(y)"},
        std::pair{"x = Elementwise(m, small) {greater(i0, i1)} -> bool[2,1,7]\n" +
                      std::string("u = Elementwise(x, w, zero) {where(i0, i1, i2)} -> f32[2,5,7]"),
                  "outputs(y)"},
        std::pair{std::string("u = Elementwise(kept, zero, w) {where(i0, i1, i2)} -> f32[2,5,7]"), "outputs(y)"}}) {
    CAPTURE(selection, after);
    CHECK(count_rops(recognised(parse_graph(selected(selection, after))), "Attention") == 0);
  }
}

TEST_CASE("a factor of Q or K is one of the scores") {
  const Graph made = recognised(parse_graph(R"(
    q = input f32[3,5,8]
    k = input f32[3,7,8]
    v = input f32[3,7,4]
    c = const f32[] {0.5}
    a = Elementwise(q, c) {mul(i0, i1)} -> f32[3,5,8]
    b = Elementwise(k, c) {mul(i0, i1)} -> f32[3,7,8]
    s = MatMul(a, b) {trans_b=1, alpha=3} -> f32[3,5,7]
    w = Softmax(s) {axes=[2,2]} -> f32[3,5,7]
    y = MatMul(w, v) {} -> f32[3,5,4]
    outputs(y)
  )"));
  CHECK(made.rops.size() == 1);
  CHECK(attention_of(made).scale == 0.75F);
}

TEST_CASE("a factor of K in front of Transposes is one of the scores") {
  // As torchvision's MaxViT writes it: K is multiplied before an Einsum turns it round.
  const auto keys = [](const std::string& scaled, const std::string& outputs) {
    return R"(
    q = input f32[2,5,3,8]
    k = input f32[2,7,3,8]
    v = input f32[2,3,7,4]
    c = const f32[] {0.25}
    h = const f32[8] {1, 2, 3, 4, 5, 6, 7, 8}
    one = const f32[1,1,1,1] {-2}
)" + scaled +
           R"(
    i = Transpose(q) {perm=[0,2,1,3]} -> f32[2,3,5,8]
    a = Transpose(b) {perm=[0,2,1,3]} -> f32[2,3,7,8]
    t = Transpose(a) {perm=[0,1,3,2]} -> f32[2,3,8,7]
    s = MatMul(i, t) {alpha=3} -> f32[2,3,5,7]
    w = Softmax(s) {axes=[3,3]} -> f32[2,3,5,7]
    y = MatMul(w, v) {} -> f32[2,3,5,4]
    )" + outputs +
           "\n";
  };
  const std::string times = "b = Elementwise(k, c) {mul(i0, i1)} -> f32[2,7,3,8]";
  for (const auto& [scaled, scale] :
       {std::pair{times, 0.75F}, std::pair{std::string("b = Elementwise(c, k) {mul(i0, i1)} -> f32[2,7,3,8]"), 0.75F},
        std::pair{std::string("b = Elementwise(k, one) {mul(i0, i1)} -> f32[2,7,3,8]"), -6.0F}}) {
    CAPTURE(scaled);
    const Graph made = recognised(parse_graph(keys(scaled, "outputs(y)")));
    REQUIRE(count_rops(made, "Attention") == 1);
    CHECK(attention_of(made).scale == scale);
    CHECK(count_rops(made, "Elementwise") == 0);
  }
  // Numbers of each channel, sums, and what somebody else reads stay in front of it.
  for (const auto& [scaled, outputs] :
       {std::pair{std::string("b = Elementwise(k, h) {mul(i0, i1)} -> f32[2,7,3,8]"), "outputs(y)"},
        std::pair{std::string("b = Elementwise(k, c) {add(i0, i1)} -> f32[2,7,3,8]"), "outputs(y)"},
        std::pair{std::string("b = Elementwise(k, k) {mul(i0, i1)} -> f32[2,7,3,8]"), "outputs(y)"}, std::pair{times, "outputs(y, b)"},
        std::pair{times, "outputs(y, t)"}, std::pair{times, "d = Elementwise(b) {exp(i0)} -> f32[2,7,3,8]\n    outputs(y, d)"},
        std::pair{times, "d = Elementwise(a) {exp(i0)} -> f32[2,3,7,8]\n    outputs(y, d)"}}) {
    CAPTURE(scaled, outputs);
    const Graph made = recognised(parse_graph(keys(scaled, outputs)));
    REQUIRE(count_rops(made, "Attention") == 1);
    CHECK(attention_of(made).scale == 3);
    CHECK(print(made).find("b = Elementwise(") != std::string::npos);
  }
}

TEST_CASE("a factor in front of views is one of the product, also without attention") {
  const Graph made = recognised(parse_graph(R"(
    x = input f32[2,6,8]
    z = input f32[2,3,4,5]
    c = const f32[] {0.5}
    d = const f32[1] {4}
    a = Elementwise(x, c) {mul(i0, i1)} -> f32[2,6,8]
    r = Reshape(a) -> f32[2,6,2,4]
    s = Slice(r) {starts=[0,3,0,0]} -> f32[2,3,2,4]
    b = Elementwise(d, z) {mul(i0, i1)} -> f32[2,3,4,5]
    t = Slice(b) {starts=[0,0,0,1]} -> f32[2,3,4,4]
    y = MatMul(s, t) {alpha=3} -> f32[2,3,2,4]
    outputs(y)
  )"));
  CHECK(print(made).find("y = MatMul(s, t) {alpha=6}") != std::string::npos);
  CHECK(count_rops(made, "Elementwise") == 0);
  const Graph stays[] = {
      parse_graph(R"(
    x = input f32[2,6]
    c = const f32[] {0.5}
    a = Elementwise(x, c) {mul(i0, i1)} -> f32[2,6]
    t = Transpose(a) {perm=[1,0]} -> f32[6,2]
    y = MatMul(t, a) {} -> f32[6,6]
    outputs(y)
  )"),
      parse_graph(R"(
    x = input f32[6,6]
    c = const f32[] {0.5}
    a = Elementwise(x, c) {mul(i0, i1)} -> f32[6,6]
    t = Transpose(a) {perm=[1,0]} -> f32[6,6]
    y = MatMul(t, t) {} -> f32[6,6]
    outputs(y)
  )"),
      parse_graph(R"(
    x = input f32[6]
    z = input f32[6,4]
    c = const f32[1,1] {0.5}
    a = Elementwise(x, c) {mul(i0, i1)} -> f32[1,6]
    r = Reshape(a) -> f32[1,6]
    y = MatMul(r, z) {} -> f32[1,4]
    outputs(y)
  )"),
      parse_graph(R"(
    x = input f32[2,6]
    z = input f32[2,4]
    w = const f32[4]
    c = const f32[] {0.5}
    a = Elementwise(x, c) {mul(i0, i1)} -> f32[2,6]
    t = Transpose(a) {perm=[1,0]} -> f32[6,2]
    y = MatMul(t, z, w) {} -> f32[6,4]
    outputs(y)
  )"),
  };
  for (const Graph& source : stays) CHECK(print(recognised(source)) == print(source));
}

TEST_CASE("a constant factor of each head, as cosine attention has it, is one of Q") {
  const std::string head = "    h = const f32[3,1,1] {10, 2, 0.5}\n    g = const f32[2,1,1,1] {4, 3}\n";
  const std::string times = "    d = Elementwise(s, h) {mul(i0, i1)} -> f32[2,3,5,7]\n",
                    sum = "    a = Elementwise(d, m) {add(i0, i1)} -> f32[2,3,5,7]\n";
  const std::string over = "    d = Elementwise(s, g) {div(i0, i1)} -> f32[2,3,5,7]\n";
  for (const auto& [scores, last] : {std::pair{times, "d"}, std::pair{times + sum, "a"}, std::pair{over, "d"}}) {
    CAPTURE(scores);
    const Graph made = recognised(parse_graph(written_out(head + scores, last)));
    CHECK(count_rops(made, "Attention") == 1);
    CHECK(count_rops(made, "MatMul") == 0);
    CHECK(count_rops(made, "Elementwise") == 1);
    CHECK(attention_of(made).scale == 1.0F);
  }
  // One over a factor is no factor, and neither are numbers for each query.
  const std::string under = "    d = Elementwise(h, s) {div(i0, i1)} -> f32[2,3,5,7]\n";
  const std::string queries = "    u = const f32[3,5,1]\n    d = Elementwise(s, u) {mul(i0, i1)} -> f32[2,3,5,7]\n";
  for (const std::string& scores : {under, queries})
    CHECK(count_rops(recognised(parse_graph(written_out(head + scores, "d"))), "Attention") == 0);
}

TEST_CASE("constants that are added to the scores through Reshapes are one bias") {
  const auto windows = [](const std::string& mask, const std::string& outputs) {
    return "q = input f32[4,2,3,8]\nk = input f32[4,2,3,8]\nv = input f32[4,2,3,8]\nb = const f32[1,2,3,3]\n" + mask +
           "s = MatMul(q, k) {trans_b=1} -> f32[4,2,3,3]\n"
           "a = Elementwise(s, b) {add(i0, i1)} -> f32[4,2,3,3]\n"
           "u = Reshape(a) -> f32[2,2,2,3,3]\n"
           "c = Elementwise(m, u) {add(i0, i1)} -> f32[2,2,2,3,3]\n"
           "d = Reshape(c) -> f32[4,2,3,3]\n"
           "w = Softmax(d) {axes=[3,3]} -> f32[4,2,3,3]\n"
           "y = MatMul(w, v) {} -> f32[4,2,3,8]\n" +
           outputs + "\n";
  };
  const Graph made = recognised(parse_graph(windows("m = const f32[1,2,1,3,3]\n", "outputs(y)")));
  CHECK(made.rops.size() == 1);
  REQUIRE(count_rops(made, "Attention") == 1);
  CHECK(made.tensor(made.rops[0].inputs[3]).shape == Shape{4, 2, 3, 3});
  // What is the same for all windows is there once.
  const Graph same = recognised(parse_graph(windows("m = const f32[1,1,1,3,3]\n", "outputs(y)")));
  REQUIRE(count_rops(same, "Attention") == 1);
  CHECK(same.tensor(same.rops[0].inputs[3]).shape == Shape{1, 2, 3, 3});
  // Known at run time only, or read by somebody else: left as it is.
  CHECK(count_rops(recognised(parse_graph(windows("m = input f32[1,2,1,3,3]\n", "outputs(y)"))), "Attention") == 0);
  CHECK(count_rops(recognised(parse_graph(windows("m = const f32[1,2,1,3,3]\n", "outputs(y, a)"))), "Attention") == 0);
}

TEST_CASE("attention is left alone where somebody else reads a step, or where it is another thing") {
  CHECK(count_rops(recognised(parse_graph(written_out("", "s", "outputs(y, w)"))), "Attention") == 0);
  CHECK(count_rops(recognised(parse_graph(written_out("", "s", "outputs(y, s)"))), "Attention") == 0);
  std::string other_axis = written_out("", "s");
  other_axis.replace(other_axis.find("axes=[3,3]"), 10, "axes=[2,2]");
  CHECK(count_rops(recognised(parse_graph(other_axis)), "Attention") == 0);
  // No body: fp32 has no tensor cores, few queries apart, and larger heads no registers.
  std::string many = written_out("", "s");
  for (size_t at = many.find("[2,3,5,"); at != std::string::npos; at = many.find("[2,3,5,")) many.replace(at, 7, "[2,3,9,");
  CHECK(count_rops(recognised(parse_graph(many), Precision::fp32), "Attention") == 0);
  CHECK(count_rops(recognised(parse_graph(many)), "Attention") == 1);
  const Graph large = parse_graph(R"(
    q = input f32[5,160]
    k = input f32[7,160]
    v = input f32[7,160]
    s = MatMul(q, k) {trans_b=1} -> f32[5,7]
    w = Softmax(s) {axes=[1,1]} -> f32[5,7]
    y = MatMul(w, v) {} -> f32[5,160]
    outputs(y)
  )");
  CHECK(count_rops(recognised(large), "Attention") == 0);
}

TEST_CASE("heads are put side by side without a copy") {
  const Graph source = parse_graph(R"(
    q = input f32[1,3,5,8]
    k = input f32[1,3,7,8]
    v = input f32[1,3,7,4]
    a = Attention(q, k, v) {} -> f32[1,3,5,4]
    t = Transpose(a) {perm=[0,2,1,3]} -> f32[1,5,3,4]
    r = Reshape(t) -> f32[1,5,12]
    y = Elementwise(r) {exp(i0)} -> f32[1,5,12]
    outputs(y)
  )");
  const Graph placed = passes::assign_layout(source);
  check_pass(source, placed);
  CHECK(placed.rops.size() == 2);
  CHECK(tensor_named(placed, "a").place.strides == std::vector<int64_t>{0, 4, 12, 1});
}

namespace {

struct Extents {
  Shape batch;
  int64_t queries, keys, size, values;
};

Shape matrix(Shape batch, int64_t rows, int64_t columns) {
  batch.insert(batch.end(), {rows, columns});
  return batch;
}

Case attention_case(const std::string& name, const Extents& e, Lay lay = Lay::rows, const Shape& bias = {}, float scale = 0.3F) {
  CaseMaker maker(name);
  const TensorId q = maker.input(matrix(e.batch, e.queries, e.size), lay), k = maker.input(matrix(e.batch, e.keys, e.size), lay),
                 v = maker.input(matrix(e.batch, e.keys, e.values), lay);
  std::vector<TensorId> inputs = {q, k, v};
  if (!bias.empty()) inputs.push_back(maker.input(bias));
  return maker.finish(Attention{scale}, inputs, maker.output(matrix(e.batch, e.queries, e.values), lay));
}

std::vector<Case> attention_cases() {
  std::vector<Case> cases = {
      attention_case("one of everything", {{}, 1, 1, 1, 1}),
      attention_case("a head of BERT, cut", {{1, 2}, 24, 40, 64, 64}),
      attention_case("keys for some warps only", {{2}, 16, 17, 32, 32}),
      attention_case("more keys than a turn has", {{1}, 9, 203, 32, 32}),
      attention_case("large heads", {{2}, 19, 70, 128, 128}),
      attention_case("96 columns, in two parts", {{1}, 17, 33, 96, 96}),
      attention_case("whole vectors, odd sizes", {{3}, 21, 30, 20, 44}),
      attention_case("single elements", {{2}, 18, 35, 7, 13}),
      attention_case("values of another size", {{2}, 5, 11, 48, 8}),
      attention_case("heads side by side", {{2, 3}, 5, 6, 32, 32}, Lay::channels_last),
      attention_case("everything reversed", {{2}, 18, 20, 16, 16}, Lay::reversed),
      attention_case("a mask of keys", {{2, 3}, 5, 37, 32, 32}, Lay::rows, {2, 1, 1, 37}),
      attention_case("a bias of all scores", {{2, 3}, 33, 37, 32, 32}, Lay::rows, {3, 33, 37}),
      attention_case("one key in many", {{2}, 3, 1, 64, 64}),
      attention_case("many queries", {{1}, 150, 12, 32, 32}),
      attention_case("a head of vit_b_16, and more keys than stages", {{2}, 65, 197, 64, 64}),
      attention_case("80 columns, and more queries than a rTask has", {{1}, 130, 21, 80, 80}),
      attention_case("128 columns, three turns", {{1}, 17, 33, 128, 128}),
      attention_case("32 columns, a bias of all scores, five turns", {{1}, 131, 130, 32, 32}, Lay::rows, {131, 130}),
  };
  CaseMaker causal("a causal mask");
  std::vector<float> mask(20 * 20, 0.0F);
  for (size_t m = 0; m < 20; ++m) {
    for (size_t n = m + 1; n < 20; ++n) mask[m * 20 + n] = -kInfinite;
  }
  const TensorId q = causal.input({2, 20, 32}), k = causal.input({2, 20, 32}), v = causal.input({2, 20, 32});
  const TensorId bias = causal.input({20, 20}, Lay::rows, mask);
  cases.push_back(causal.finish(Attention{1}, {q, k, v, bias}, causal.output({2, 20, 32})));

  CaseMaker none("all keys of a query masked: NaN, as the reference says");
  mask.assign(3 * 20, 0.0F);
  for (size_t n = 0; n < 20; ++n) mask[20 + n] = -kInfinite;
  const TensorId q3 = none.input({1, 3, 32}), k3 = none.input({1, 20, 32}), v3 = none.input({1, 20, 32});
  const TensorId masked = none.input({3, 20}, Lay::rows, mask);
  cases.push_back(none.finish(Attention{1}, {q3, k3, v3, masked}, none.output({1, 3, 32})));

  // Query 1 has no key; a score of query 2 is NaN, one of query 3 infinite.
  for (const auto& [name, weightless] :
       {std::pair{"no numbers: zeros if masked", Weightless::zero_if_masked}, std::pair{"no numbers: zeros", Weightless::zero}}) {
    CaseMaker maker(name);
    std::vector<float> queries(5 * 32, 0.5F), bias_of_scores(5 * 20, 0.0F);
    for (size_t n = 0; n < 20; ++n) bias_of_scores[20 + n] = -kInfinite;
    queries[2 * 32 + 3] = std::numeric_limits<float>::quiet_NaN();
    bias_of_scores[3 * 20 + 7] = kInfinite;
    const TensorId rows = maker.input({1, 5, 32}, Lay::rows, queries), keys = maker.input({1, 20, 32}), values = maker.input({1, 20, 32});
    const TensorId bias_id = maker.input({5, 20}, Lay::rows, bias_of_scores);
    cases.push_back(maker.finish(Attention{1, weightless}, {rows, keys, values, bias_id}, maker.output({1, 5, 32})));
  }

  CaseMaker shared("heads that share keys and values");
  const TensorId q4 = shared.input({2, 3, 5, 32}), k4 = shared.input({2, 1, 9, 32}), v4 = shared.input({2, 1, 9, 32});
  cases.push_back(shared.finish(Attention{0.2F}, {q4, k4, v4}, shared.output({2, 3, 5, 32})));

  CaseMaker large("scores beyond what exp holds");  // whole numbers, which tf32 has exactly
  const auto whole = [](int64_t count, int64_t step) {
    std::vector<float> values;
    for (int64_t i = 0; i < count; ++i) values.push_back(static_cast<float>(i * step % 17 - 8));
    return values;
  };
  const TensorId q5 = large.input({2, 7, 32}, Lay::rows, whole(2 * 7 * 32, 5)),
                 k5 = large.input({2, 50, 32}, Lay::rows, whole(2 * 50 * 32, 7)), v5 = large.input({2, 50, 32});
  cases.push_back(large.finish(Attention{1}, {q5, k5, v5}, large.output({2, 7, 32})));
  return cases;
}

}  // namespace

TEST_CASE("the body of Attention agrees with the reference") {
  VDevice vdevice = read_vdevice("h200");
  vdevice.sms = 4;
  const std::filesystem::path root = std::filesystem::absolute(__FILE__).parent_path().parent_path().parent_path();
  const CaseFolder folder("tamp_attention");
  const HeavyRun run{vdevice, Precision::tf32, 4e-3};
  for (const std::string& problem : run_heavy_cases(attention_cases(), {kernels::attention()}, run, root, folder.path()))
    FAIL_CHECK(problem);
}

TEST_CASE("operands and results of Attention may be of 16 bits") {
  VDevice vdevice = read_vdevice("h200");
  vdevice.sms = 4;
  const auto all_of = [](const Case& c) {  // but the bias
    const std::vector<TensorId>& inputs = c.graph.rops[0].inputs;
    return std::vector<TensorId>{inputs[0], inputs[1], inputs[2], c.graph.rops[0].outputs[0]};
  };
  std::vector<Case> cases;
  for (const Case& c :
       {attention_case("one of everything", {{}, 1, 1, 1, 1}), attention_case("a head of BERT, cut", {{1, 2}, 24, 40, 64, 64}),
        attention_case("large heads", {{1}, 19, 30, 128, 128}), attention_case("whole vectors, odd sizes", {{3}, 21, 30, 20, 44}),
        attention_case("single elements", {{2}, 18, 35, 7, 13}),
        attention_case("heads side by side", {{2, 3}, 5, 6, 32, 32}, Lay::channels_last),
        attention_case("everything reversed", {{2}, 18, 20, 16, 16}, Lay::reversed),
        attention_case("a mask of keys", {{2, 3}, 5, 37, 32, 32}, Lay::rows, {2, 1, 1, 37}),
        attention_case("a head of vit_b_16, and more keys than stages", {{2}, 65, 197, 64, 64}),
        attention_case("more queries than a rTask of one tile has", {{1, 2}, 130, 33, 64, 64}, Lay::channels_last),
        attention_case("80 columns", {{1}, 17, 33, 80, 80}), attention_case("one key in many", {{2}, 3, 1, 64, 64}),
        attention_case("a bias of all scores, five turns", {{1}, 131, 130, 32, 32}, Lay::rows, {131, 130})}) {
    for (const DType dtype : {DType::f16, DType::bf16}) cases.push_back(narrowed(c, all_of(c), dtype));
  }
  const Case masked = attention_case("a narrow mask", {{2}, 5, 37, 32, 32}, Lay::rows, {2, 1, 37});
  const std::vector<TensorId>& inputs = masked.graph.rops[0].inputs;
  const TensorId out = masked.graph.rops[0].outputs[0];
  cases.push_back(narrowed(narrowed(masked, all_of(masked), DType::f16), {inputs[3]}, DType::f16));
  cases.push_back(narrowed(masked, {inputs[3]}, DType::bf16));
  for (const Case& c : attention_cases()) {
    if (std::get<Attention>(c.graph.rops[0].attrs).weightless != Weightless::nan) cases.push_back(narrowed(c, all_of(c), DType::f16));
  }
  cases.push_back(narrowed(masked, {out}, DType::f16));
  cases.push_back(narrowed(masked, {inputs[0], inputs[1], inputs[2]}, DType::bf16));
  const std::filesystem::path root = std::filesystem::absolute(__FILE__).parent_path().parent_path().parent_path();
  const CaseFolder folder("tamp_attention_narrow");
  const HeavyRun run{vdevice, Precision::fp16, 4e-3};
  for (const std::string& problem : run_heavy_cases(cases, {kernels::attention()}, run, root, folder.path())) FAIL_CHECK(problem);

  const Case refused = narrowed(masked, {inputs[1]}, DType::f16);  // K alone
  CHECK(kernels::attention().candidates({refused.graph, refused.graph.rops[0], vdevice, Precision::fp16}).empty());
}

}  // namespace tamp::test
