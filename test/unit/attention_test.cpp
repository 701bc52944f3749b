// Attention: the reference against values worked out by hand, what is refused, where its results are put, and the device body against the
// reference over the stand-in.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <numeric>
#include <random>
#include <set>

#include "compiler/ops/operator.h"
#include "compiler/passes/place/assign_layout.h"
#include "compiler/support/text.h"
#include "kernels/catalogue.h"
#include "test/kernels/heavy_bench.h"
#include "test/support/case_folder.h"
#include "test/support/check_pass.h"
#include "test/support/hard_masks.h"
#include "test/support/onnx_model.h"

namespace tamp::test {
namespace {

using Catch::Matchers::Contains;

constexpr float kInfinite = std::numeric_limits<float>::infinity();

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

TEST_CASE("scores vanish beside a mask as large as floats are") {
  CaseMaker maker("by hand");
  const TensorId q = maker.input({3, 1}, Lay::rows, {1, 1, 1}), k = maker.input({2, 1}, Lay::rows, {3, -5}),
                 v = maker.input({2, 1}, Lay::rows, {2, 6});
  const float least = std::numeric_limits<float>::lowest();
  const TensorId mask = maker.input({3, 2}, Lay::rows, {least, least, -3e9F, -3e9F, least, 0});
  const Case c = maker.finish(Attention{1}, {q, k, v, mask}, maker.output({3, 1}));
  check_near(floats_of(ops::evaluate(c.graph, c.graph.rops[0], [&](TensorId id) -> const ops::Value& { return c.values[id.index()]; })[0]),
             {4, 4, 6});
}

TEST_CASE("Attention by a table is within windows of the rows") {
  CaseMaker maker("by hand");
  const std::vector<float> ones(4, 1.0F);
  const TensorId q = maker.input({1, 4, 1}, Lay::rows, ones), k = maker.input({1, 4, 1}, Lay::rows, ones),
                 v = maker.input({1, 4, 1}, Lay::rows, {1, 2, 4, 8}),
                 bias = maker.input({2, 1, 2, 2}, Lay::rows, {0, -kInfinite, 0, 0, 0, 0, -kInfinite, 0}),
                 table = maker.indices({2, 2}, {2, 0, 1, 3});
  const auto answer = [&](TensorId added) {
    const Case c = maker.finish(Attention{}, {q, k, v, added, table}, maker.output({1, 4, 1}));
    return floats_of(ops::evaluate(c.graph, c.graph.rops[0], [&](TensorId id) -> const ops::Value& { return c.values[id.index()]; })[0]);
  };
  check_near(answer(TensorId()), {2.5F, 5, 2.5F, 5});  // rows 2 and 0 see each other, and 1 and 3
  check_near(answer(bias), {2.5F, 5, 4, 8});           // row 2, the first of its window, does not see row 0; row 3 sees only itself
}

TEST_CASE("Attention by a table is the attention of windows that are cut out") {
  std::mt19937 random(3);
  std::vector<int64_t> order(24);
  std::iota(order.begin(), order.end(), 0);
  std::shuffle(order.begin(), order.end(), random);
  const std::vector<float> numbers = [&] {
    std::uniform_real_distribution<float> draw(-1, 1);
    std::vector<float> made(static_cast<size_t>(24 * 2 * 5));
    for (float& x : made) x = draw(random);
    return made;
  }();
  // Two heads, four windows of six rows: [heads,rows,columns], and [windows,heads,rows,columns] with the rows in the table's order.
  const auto cut = [&](int64_t columns) {
    std::vector<float> made;
    for (size_t i = 0; i < 24 * 2; ++i) {
      const auto row = static_cast<size_t>(order[i / 12 * 6 + i % 6]), head = i / 6 % 2, width = static_cast<size_t>(columns);
      const auto first = numbers.begin() + static_cast<std::ptrdiff_t>((head * 24 + row) * width);
      made.insert(made.end(), first, first + static_cast<std::ptrdiff_t>(width));
    }
    return made;
  };
  const std::vector<float> of_q(numbers.begin(), numbers.begin() + static_cast<std::ptrdiff_t>(24 * 2 * 3));
  CaseMaker maker("by a table");
  const TensorId q = maker.input({2, 24, 3}, Lay::rows, of_q), v = maker.input({2, 24, 5}, Lay::rows, numbers),
                 bias = maker.input({4, 1, 6, 6}), table = maker.indices({4, 6}, order), q2 = maker.input({4, 2, 6, 3}, Lay::rows, cut(3)),
                 v2 = maker.input({4, 2, 6, 5}, Lay::rows, cut(5));
  const auto answer = [&](const std::vector<TensorId>& inputs, const Shape& shape) {
    const Case c = maker.finish(Attention{0.7F}, inputs, maker.output(shape));
    return floats_of(ops::evaluate(c.graph, c.graph.rops[0], [&](TensorId id) -> const ops::Value& { return c.values[id.index()]; })[0]);
  };
  const std::vector<float> by_table = answer({q, q, v, bias, table}, {2, 24, 5}), windows = answer({q2, q2, v2, bias}, {4, 2, 6, 5});
  for (size_t i = 0; i < windows.size(); ++i) {
    const size_t column = i % 5, row = static_cast<size_t>(order[i / 60 * 6 + i / 5 % 6]), head = i / 30 % 2;
    CHECK(by_table[(head * 24 + row) * 5 + column] == windows[i]);
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

TEST_CASE("Attention says which table does not fit") {
  const auto refused = [](const Shape& q, const Shape& k, const Shape& bias, const Shape& table, const std::vector<int64_t>& rows,
                          DType dtype = DType::i64) {
    Bytes bytes(rows.size() * sizeof(int64_t));
    std::memcpy(bytes.data(), rows.data(), bytes.size());
    ops::OperandList operands = {ops::Operand{{DType::f32, q}, nullptr}, ops::Operand{{DType::f32, k}, nullptr},
                                 ops::Operand{{DType::f32, k}, nullptr}, ops::Operand{{DType::f32, bias}, nullptr},
                                 ops::Operand{{dtype, table}, rows.empty() ? nullptr : &bytes}};
    if (bias.empty()) operands[3] = std::nullopt;
    try {
      return "taken: " + shape_text(ops::infer(Attention{}, ops::Given(operands))[0].shape);
    } catch (const std::exception& error) {
      return std::string(error.what());
    }
  };
  const Shape rows = {2, 6, 8};
  CHECK(refused(rows, rows, {}, {3, 2}, {0, 3, 1, 4, 2, 5}) == "taken: [2,6,8]");
  CHECK(refused(rows, rows, {3, 1, 2, 2}, {3, 2}, {}) == "taken: [2,6,8]");
  CHECK(refused(rows, rows, {2, 1, 2}, {3, 2}, {}) == "taken: [2,6,8]");
  CHECK_THAT(refused(rows, rows, {2, 1, 2, 2}, {3, 2}, {}),
             Contains("the bias has shape [2,1,2,2], which does not broadcast to [3,2,2,2]"));
  CHECK_THAT(refused(rows, rows, {}, {6}, {}),
             Contains("the rows of the windows have shape [6] of i64, expected [windows, rows of each] of i64"));
  CHECK_THAT(refused(rows, rows, {}, {3, 2}, {}, DType::i32), Contains("have shape [3,2] of i32, expected"));
  CHECK_THAT(refused(rows, rows, {}, {2, 2}, {}), Contains("have shape [2,2] of i64, but input Q has 6 rows"));
  CHECK_THAT(refused(rows, {2, 7, 8}, {}, {3, 2}, {}), Contains("but input K has 7 rows"));
  CHECK_THAT(refused(rows, rows, {}, {3, 2}, {0, 3, 1, 4, 2, 6}), Contains("the rows of the windows have row 6 of 6"));
  CHECK_THAT(refused(rows, rows, {}, {3, 2}, {0, 3, 1, -1, 2, 5}), Contains("have row -1 of 6"));
  CHECK_THAT(refused(rows, rows, {}, {3, 2}, {0, 3, 1, 4, 0, 5}), Contains("the rows of the windows have row 0 twice"));
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

// Windows of `rows` rows of all that lie in memory, by a shuffled table. `side_by_side`: the heads of a row are neighbours, as behind a
// product.
struct Windowed {
  int64_t windows, heads, rows, size, values;
  Shape bias = {};
  bool known_bias = false, side_by_side = true;
};
Case window_case(const std::string& name, const Windowed& w, Lay lay = Lay::rows) {
  CaseMaker maker(name);
  const int64_t count = w.windows * w.rows;
  std::vector<int64_t> order(static_cast<size_t>(count));
  std::iota(order.begin(), order.end(), 0);
  std::mt19937 random(11);
  std::shuffle(order.begin(), order.end(), random);
  if (count > 8) std::sort(order.begin() + 2, order.begin() + 6);
  const TensorId q = maker.input({w.heads, count, w.size}, lay), k = maker.input({w.heads, count, w.size}, lay),
                 v = maker.input({w.heads, count, w.values}, lay), table = maker.indices({w.windows, w.rows}, order);
  TensorId bias;
  if (!w.bias.empty()) bias = w.known_bias ? maker.constant(w.bias) : maker.input(w.bias);
  const TensorId out = maker.output({w.heads, count, w.values}, lay);
  Case made = maker.finish(Attention{0.3F}, {q, k, v, bias, table}, out);
  for (const TensorId id : {q, k, v, out}) {
    Tensor& tensor = made.graph.tensor(id);
    if (!w.side_by_side || lay != Lay::rows) continue;
    const Shape& shape = tensor.shape;
    for (const auto& [d, stride] : {std::pair{size_t{0}, shape[2]}, std::pair{size_t{1}, shape[0] * shape[2]}})
      tensor.place.strides[d] = shape[d] == 1 ? 0 : stride;
  }
  return made;
}

std::vector<Case> window_cases() {
  return {window_case("windows of seven rows", {3, 2, 7, 32, 32}),
          window_case("windows with a bias each", {5, 3, 49, 32, 32, {5, 3, 49, 49}, true}),
          window_case("windows that share a bias", {3, 2, 49, 24, 16, {2, 49, 49}, true}),
          window_case("a bias of run time for each window", {4, 2, 20, 32, 32, {4, 1, 20, 20}}),
          window_case("a bias of keys", {4, 2, 20, 32, 32, {4, 1, 1, 20}}),
          window_case("64 rows, 24 columns", {2, 1, 64, 24, 24, {2, 1, 64, 64}, true}),
          window_case("one window", {1, 3, 33, 32, 32, {1, 3, 33, 33}}),
          window_case("one row of a window", {9, 2, 1, 8, 8}),
          window_case("heads one behind the other", {3, 2, 18, 32, 32, {}, false, false}),
          window_case("more rows and columns than a warp has", {2, 2, 70, 40, 56, {2, 1, 70, 70}}),
          window_case("single elements by a table", {3, 2, 19, 7, 13, {1, 2, 19, 19}}),
          window_case("everything reversed, by a table", {2, 2, 18, 16, 16}, Lay::reversed)};
}

// Queries and heads that are masked by hard_masks, in sizes that all bodies take.
std::vector<Case> masked_cases() {
  const auto made = [](const std::string& name, const Extents& e, const Shape& bias) {
    CaseMaker maker(name);
    const TensorId q = maker.input(matrix(e.batch, e.queries, e.size)), k = maker.input(matrix(e.batch, e.keys, e.size)),
                   v = maker.input(matrix(e.batch, e.keys, e.values));
    const auto keys = static_cast<size_t>(e.keys), count = static_cast<size_t>(element_count(bias)) / keys;
    const TensorId masks = maker.input(bias, Lay::rows, hard_masks(count, keys));
    return maker.finish(Attention{0.3F}, {q, k, v, masks}, maker.output(matrix(e.batch, e.queries, e.values)));
  };
  return {made("queries that are masked, of 32 columns", {{1}, 24, 40, 32, 32}, {24, 40}),
          made("queries that are masked, of 64 columns", {{1, 2}, 12, 129, 64, 64}, {12, 129}),
          made("heads whose keys are masked, of 32 columns", {{kOfLargest}, 18, 40, 32, 32}, {kOfLargest, 1, 40}),
          made("heads whose keys are masked, of 64 columns", {{kOfLargest}, 1, 129, 64, 64}, {kOfLargest, 1, 129})};
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
  for (Case& c : window_cases()) cases.push_back(std::move(c));
  for (Case& c : masked_cases()) cases.push_back(std::move(c));
  return cases;
}

}  // namespace

TEST_CASE("the body of Attention agrees with the reference") {
  ShapedVDevice vdevice = read_vdevice("h200").without_inputs();
  vdevice.sms = 4;
  const std::filesystem::path root = std::filesystem::absolute(__FILE__).parent_path().parent_path().parent_path();
  const CaseFolder folder("tamp_attention");
  const HeavyRun run{vdevice, Precision::tf32, 4e-3};
  for (const std::string& problem : run_heavy_cases(attention_cases(), {kernels::family("attention")}, run, root, folder.path()))
    FAIL_CHECK(problem);
}

TEST_CASE("operands and results of Attention may be of 16 bits") {
  ShapedVDevice vdevice = read_vdevice("h200").without_inputs();
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
        attention_case("rows shorter than the body's", {{2}, 18, 35, 40, 56}), attention_case("24 of 32 columns", {{2}, 33, 129, 24, 16}),
        attention_case("all keys that registers hold", {{1}, 33, 256, 64, 64}, Lay::rows, {33, 256}),
        attention_case("windows with a bias each", {{5, 2}, 49, 49, 32, 32}, Lay::channels_last, {5, 1, 49, 49}),
        attention_case("64 keys, 24 of 32 columns", {{3}, 40, 64, 24, 16}), attention_case("80 columns", {{1}, 17, 33, 80, 80}),
        attention_case("one key in many", {{2}, 3, 1, 64, 64}),
        attention_case("a bias of all scores, five turns", {{1}, 131, 130, 32, 32}, Lay::rows, {131, 130})}) {
    for (const DType dtype : {DType::f16, DType::bf16}) cases.push_back(narrowed(c, all_of(c), dtype));
  }
  for (const Case& c : window_cases()) {
    for (const DType dtype : {DType::f16, DType::bf16}) cases.push_back(narrowed(c, all_of(c), dtype));
  }
  for (const Case& c : masked_cases()) {
    for (const DType dtype : {DType::f16, DType::bf16}) cases.push_back(narrowed(c, all_of(c), dtype));
  }
  const Case windows = window_case("narrow rows by a table, results of 32 bits", {3, 2, 49, 32, 32});
  cases.push_back(
      narrowed(windows, {windows.graph.rops[0].inputs[0], windows.graph.rops[0].inputs[1], windows.graph.rops[0].inputs[2]}, DType::f16));
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
  for (const std::string& problem : run_heavy_cases(cases, {kernels::family("attention")}, run, root, folder.path())) FAIL_CHECK(problem);

  const Case refused = narrowed(masked, {inputs[1]}, DType::f16);  // K alone
  CHECK(kernels::candidates_of(kernels::family("attention"), {refused.graph, refused.graph.rops[0], vdevice, Precision::fp16}).empty());
}

namespace {

// Of whole numbers, with scores, weights and results rounded; `bias`: added in steps of the scores.
Case rounded_case(const std::string& name, const Extents& e, Lay lay = Lay::rows, const Shape& bias = {}, bool all = true) {
  CaseMaker maker(name);
  std::mt19937 random(5);
  const auto whole = [&](const Shape& shape, int most) {
    std::uniform_int_distribution<int> draw(-most, most);
    std::vector<float> values(static_cast<size_t>(element_count(shape)));
    for (float& value : values) value = static_cast<float>(draw(random));
    return values;
  };
  const auto input = [&](const Shape& shape) { return maker.input(shape, lay, whole(shape, 127)); };
  const TensorId q = input(matrix(e.batch, e.queries, e.size)), k = input(matrix(e.batch, e.keys, e.size)),
                 v = input(matrix(e.batch, e.keys, e.values));
  std::vector<TensorId> inputs = {q, k, v};
  if (!bias.empty()) inputs.push_back(maker.input(bias, Lay::rows, whole(bias, 60)));
  // Ties would be rounded the one way or the other, and then a result is a step off: factors that are no short fractions.
  AttentionRounding by;
  by.weights = {0, 255};
  by.weight_steps = 255.13F;
  by.result_steps = 0.00371F;
  if (all) {
    by.products = {-122, 133};
    by.sums = {-190, 65};
    by.product_step = 0.7317F;
    by.sum_step = 0.0513F;
    by.results = {-129, 126};
  }
  const float scale = (all ? 0.011F : 0.0004F) * 8 / std::sqrt(static_cast<float>(e.size));
  return maker.finish(Attention{scale, Weightless::nan, {}, by}, inputs, maker.output(matrix(e.batch, e.queries, e.values), lay));
}

std::vector<Case> rounded_cases() {
  return {rounded_case("rounded: one of everything", {{}, 1, 1, 1, 1}),
          rounded_case("rounded: a head of BERT, cut", {{1, 2}, 24, 40, 64, 64}),
          rounded_case("rounded: keys for some warps only", {{2}, 16, 17, 32, 32}),
          rounded_case("rounded: scores and results as they are", {{2}, 19, 33, 32, 32}, Lay::rows, {}, false),
          rounded_case("rounded: a mask of keys", {{2, 3}, 20, 37, 32, 32}, Lay::rows, {2, 1, 1, 37}),
          rounded_case("rounded: a bias of all scores", {{2, 3}, 33, 37, 32, 32}, Lay::rows, {3, 33, 37}),
          rounded_case("rounded: 197 keys", {{2}, 65, 197, 64, 64}),
          rounded_case("rounded: 24 of 32 columns", {{2}, 33, 129, 24, 16}),
          rounded_case("rounded: heads side by side", {{2, 3}, 35, 26, 32, 32}, Lay::channels_last),
          rounded_case("rounded: everything reversed", {{2}, 18, 20, 16, 16}, Lay::reversed),
          rounded_case("rounded: single elements", {{2}, 18, 35, 7, 13}),
          rounded_case("rounded: large heads", {{1}, 19, 70, 128, 128}),
          rounded_case("rounded: 512 keys and a mask", {{1}, 17, 512, 64, 64}, Lay::rows, {1, 512}),
          rounded_case("rounded: 300 keys, a bias of all scores", {{1}, 9, 300, 32, 32}, Lay::rows, {9, 300})};
}

}  // namespace

TEST_CASE("bodies that round agree with the reference") {
  ShapedVDevice vdevice = read_vdevice("h200").without_inputs();
  vdevice.sms = 4;
  std::vector<Case> cases;
  for (const Case& c : rounded_cases()) {
    const std::vector<TensorId>& inputs = c.graph.rops[0].inputs;
    const std::vector<TensorId> narrow = {inputs[0], inputs[1], inputs[2], c.graph.rops[0].outputs[0]};
    cases.push_back(c);
    for (const DType dtype : {DType::f16, DType::bf16}) cases.push_back(narrowed(c, narrow, dtype));
  }
  const std::filesystem::path root = std::filesystem::absolute(__FILE__).parent_path().parent_path().parent_path();
  const CaseFolder folder("tamp_attention_rounded");
  const HeavyRun run{vdevice, Precision::fp16, 4e-3};
  for (const std::string& problem : run_heavy_cases(cases, {kernels::family("attention")}, run, root, folder.path())) FAIL_CHECK(problem);
}

TEST_CASE("an Attention with roundings has bodies of its own") {
  const ShapedVDevice vdevice = read_vdevice("h200").with_inputs();
  const auto names = [&](const Case& c) {
    std::set<std::string> found;
    for (const RKernel& rkernel :
         kernels::candidates_of(kernels::family("attention"), {c.graph, c.graph.rops[0], vdevice, Precision::fp16}))
      found.insert(rkernel.phases[0].body);
    return found;
  };
  const auto narrow = [](const Case& c) {
    const std::vector<TensorId>& inputs = c.graph.rops[0].inputs;
    return narrowed(c, {inputs[0], inputs[1], inputs[2], c.graph.rops[0].outputs[0]}, DType::f16);
  };
  const Case heads = rounded_case("heads", {{12}, 128, 128, 64, 64}), many = rounded_case("many keys", {{1}, 16, 513, 64, 64});
  CHECK(names(heads) == std::set<std::string>{"rk::attention_rounded"});  // f32
  CHECK(names(narrow(heads)) == std::set<std::string>{"rk::attention_rounded", "rk::attention_rounded_once", "rk::attention_rounded_rows"});
  CHECK(names(narrow(many)) == std::set<std::string>{"rk::attention_rounded"});
  Case ended = heads;
  std::get<Attention>(ended.graph.rops[0].attrs).weightless = Weightless::zero;
  CHECK(names(ended).empty());
}

namespace {

// What the H200 is offered for these heads, by name.
std::map<std::string, RKernel> offered(const Extents& extents, bool is_narrow = true) {
  const ShapedVDevice vdevice = read_vdevice("h200").with_inputs();
  Case c = attention_case("offered", extents);
  const std::vector<TensorId> inputs = c.graph.rops[0].inputs;
  if (is_narrow) c = narrowed(c, {inputs[0], inputs[1], inputs[2], c.graph.rops[0].outputs[0]}, DType::f16);
  std::map<std::string, RKernel> by_name;
  for (RKernel& rkernel : kernels::candidates_of(kernels::family("attention"), {c.graph, c.graph.rops[0], vdevice, Precision::fp16}))
    by_name.emplace(rkernel.name, std::move(rkernel));
  return by_name;
}
bool has(const std::map<std::string, RKernel>& by_name, const std::string& name) { return by_name.find(name) != by_name.end(); }

}  // namespace

TEST_CASE("up to 256 keys of 16 bits may be loaded at once, and are where heads are few") {
  const ShapedVDevice vdevice = read_vdevice("h200").with_inputs();
  CHECK(has(offered({{12}, 16, 256, 64, 64}), "attention_once<16x64>"));
  CHECK(!has(offered({{12}, 16, 256, 64, 64}), "attention_once<32x64>"));  // one tile has all queries
  CHECK(!has(offered({{12}, 16, 257, 64, 64}), "attention_once<16x64>"));
  CHECK(!has(offered({{12}, 16, 64, 96, 96}), "attention_once<16x96>"));
  CHECK(!has(offered({{12}, 16, 64, 64, 64}, false), "attention_once<16x64>"));
  const std::map<std::string, RKernel> bert = offered({{1, 12}, 128, 128, 64, 64});
  REQUIRE(has(bert, "attention_once<16x64>"));
  const Phase& once = bert.at("attention_once<16x64>").phases[0];
  CHECK(once.rtasks == 96);
  CHECK(has(bert, "attention_once<32x64>"));
  for (const auto& [name, rkernel] : bert) {
    if (name != "attention_once<16x64>" && rkernel.phases[0].rtasks <= vdevice.veus())
      CHECK(once.cost.calibrated_cycles < rkernel.phases[0].cost.calibrated_cycles);
  }
}

TEST_CASE("up to 64 keys of 16 bits may be a warp's own, as Swin's windows have them") {
  const auto few = [](const Extents& extents, bool is_narrow = true) {
    std::vector<int64_t> rtasks;
    for (const auto& [name, rkernel] : offered(extents, is_narrow)) {
      if (name.starts_with("attention_few")) rtasks.push_back(rkernel.phases[0].rtasks);
    }
    return rtasks;
  };
  // 48 heads of 4 tiles of queries: in one round of 132 vEUs two for each rTask, or eight.
  CHECK(few({{4, 12}, 49, 49, 32, 32}) == std::vector<int64_t>{96, 24});
  CHECK(few({{64, 12}, 49, 49, 32, 32}) == std::vector<int64_t>{384});
  CHECK(few({{1}, 1, 64, 24, 8}) == std::vector<int64_t>{1, 1});
  CHECK(few({{4, 12}, 49, 65, 32, 32}).empty());
  CHECK(few({{4, 12}, 49, 49, 40, 32}).empty());
  CHECK(few({{4, 12}, 49, 49, 32, 32}, false).empty());
}

TEST_CASE("two bodies take the rows of windows by a table") {
  const ShapedVDevice vdevice = read_vdevice("h200").with_inputs();
  const auto offered = [&](const Windowed& w, bool is_narrow, Precision precision = Precision::fp16) {
    Case c = window_case("offered", w);
    const ROperator rop = c.graph.rops[0];
    if (is_narrow) c = narrowed(c, {rop.inputs[0], rop.inputs[1], rop.inputs[2], rop.outputs[0]}, DType::f16);
    std::set<std::string> bodies;
    for (const RKernel& rkernel : kernels::candidates_of(kernels::family("attention"), {c.graph, c.graph.rops[0], vdevice, precision}))
      bodies.insert(rkernel.phases[0].body);
    return bodies;
  };
  using Bodies = std::set<std::string>;
  CHECK(offered({64, 3, 49, 32, 32}, true) == Bodies{"rk::attention", "rk::attention_few"});
  CHECK(offered({64, 3, 49, 32, 32}, false) == Bodies{"rk::attention"});
  CHECK(offered({4, 3, 65, 32, 32}, true) == Bodies{"rk::attention"});
  CHECK(offered({4, 3, 49, 128, 128}, true) == Bodies{"rk::attention"});
  CHECK(offered({4, 3, 49, 32, 32}, false, Precision::fp32).empty());

  // Few queries have a body of their own, which takes none.
  for (const Shape& bias : {Shape(), Shape{1, 2, 4, 4}}) {
    const Case few = window_case("few", {4, 2, 4, 16, 16, bias});
    for (const Precision precision : {Precision::fp32, Precision::tf32}) {
      const kernels::Request request{few.graph, few.graph.rops[0], vdevice, precision};
      CHECK(kernels::candidates_of(kernels::family("attention_step"), request).empty());
      CHECK(!kernels::family("attention_step").estimate(request));
    }
  }

  // A table that is known at run time only is refused.
  Case unknown = window_case("unknown", {4, 3, 49, 32, 32});
  unknown.graph.tensor(unknown.graph.rops[0].inputs[kAttentionRowTable]).role = Role::input;
  CHECK(kernels::candidates_of(kernels::family("attention"), {unknown.graph, unknown.graph.rops[0], vdevice, Precision::fp16}).empty());
}

TEST_CASE("a rTask by a table says which rows it reads and writes") {
  CaseMaker maker("two windows of a map of two by four");
  const TensorId q = maker.input({1, 8, 32}), k = maker.input({1, 8, 32}), v = maker.input({1, 8, 32}),
                 table = maker.indices({2, 4}, {0, 1, 4, 5, 2, 3, 6, 7}), out = maker.output({1, 8, 32});
  const Case c = maker.finish(Attention{}, {q, k, v, TensorId(), table}, out);
  const ShapedVDevice vdevice = read_vdevice("h200").with_inputs();
  const std::vector<RKernel> rkernels =
      kernels::candidates_of(kernels::family("attention"), {c.graph, c.graph.rops[0], vdevice, Precision::tf32});
  REQUIRE(!rkernels.empty());
  REQUIRE(rkernels[0].phases[0].rtasks == 2);
  Accesses accesses;
  kernels::family("attention").accesses(c.graph, c.graph.rops[0], rkernels[0], 0, 1, accesses);
  const auto runs_of = [](const std::vector<Region>& regions, TensorId id) {
    std::vector<std::pair<int64_t, int64_t>> runs;
    for (const Region& region : regions) {
      for (int64_t i = 0; region.tensor == id && i < region.run.count; ++i)
        runs.emplace_back(region.run.offset + i * region.run.stride, region.run.length);
    }
    return runs;
  };
  const std::vector<std::pair<int64_t, int64_t>> second = {{64, 64}, {192, 64}};  // rows 2 and 3, and 6 and 7
  CHECK(runs_of(accesses.writes, out) == second);
  for (const TensorId id : {q, k, v}) CHECK(runs_of(accesses.reads, id) == second);
}

}  // namespace tamp::test
