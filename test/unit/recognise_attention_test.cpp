// recognise_attention: two products with a softmax between them, as exporters write them, become one Attention.
#include "compiler/passes/recognise/recognise_attention.h"

#include "compiler/select/cost.h"
#include "test/support/check_pass.h"

namespace tamp::test {
namespace {

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

}  // namespace tamp::test
