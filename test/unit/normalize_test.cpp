// Normalize: the reference against values worked out by hand, what the importers make of it and what they refuse, the pass that finds it
// in what exporters write, and the device body against the reference over the stand-in. ONNX's own cases are in onnx_cases_test.cpp.
#include "compiler/passes/recognise/recognise_normalizations.h"
#include "kernels/catalogue.h"
#include "test/kernels/heavy_bench.h"
#include "test/kernels/light_bench.h"
#include "test/support/catch.h"
#include "test/support/check_pass.h"
#include "test/support/of_result.h"
#include "test/support/onnx_model.h"

namespace tamp::test {
namespace {

using Catch::Matchers::Contains;

Floats run(const Model& model, const Shape& shape, const Floats& x) { return floats_of(ops::run(model.read(), {value(shape, x)})[0]); }

}  // namespace

TEST_CASE("LayerNormalization takes mean and variance from axis on, and gives both on demand") {
  Model model(17);
  model.input("x", {2, 2}).constant(tensor("s", {2}, {2, 10})).constant(tensor("b", {2}, {1, 0}));
  model.node("LayerNormalization", {"x", "s", "b"}, {"y", "mean", "inverse"}, {attribute("epsilon", 0.0F)});
  model.output("y").output("mean").output("inverse");
  const std::vector<ops::Value> all = ops::run(model.read(), {value({2, 2}, {1, 3, -4, 4})});
  check_near(floats_of(all[0]), {-1, 10, -1, 10});
  CHECK(all[1].shape == Shape{2, 1});
  check_near(floats_of(all[1]), {2, 0});
  check_near(floats_of(all[2]), {1, 0.25F});

  Model whole(17);  // axis 0: one mean for all, and a scale that broadcasts
  whole.input("x", {2, 2}).constant(tensor("s", {1}, {2}));
  whole.node("LayerNormalization", {"x", "s"}, {"y"}, {attribute("axis", 0), attribute("epsilon", 0.0F)}).output("y");
  check_near(run(whole, {2, 2}, {-2, -2, 2, 2}), {-2, -2, 2, 2});
}

TEST_CASE("RMSNormalization subtracts no mean") {
  Model model(23);
  model.input("x", {1, 2}).constant(tensor("s", {2}, {1, 2})).node("RMSNormalization", {"x", "s"}, {"y"}, {attribute("epsilon", 0.0F)});
  check_near(run(model.output("y"), {1, 2}, {3, 3}), {1, 2});
}

TEST_CASE("groups are of channels: a scale for each group before opset 21, for each channel from then on") {
  const auto model = [](int opset, const Floats& scale) {
    Model made(opset);
    const auto count = static_cast<int64_t>(scale.size());
    made.input("x", {1, 4, 1}).constant(tensor("s", {count}, scale)).constant(tensor("b", {count}, Floats(scale.size(), 1)));
    made.node("GroupNormalization", {"x", "s", "b"}, {"y"}, {attribute("num_groups", 2), attribute("epsilon", 0.0F)}, "g");
    return made.output("y");
  };
  check_near(run(model(18, {1, 2}), {1, 4, 1}, {1, 3, 5, 9}), {0, 2, -1, 3});
  check_near(run(model(21, {1, 2, 3, 4}), {1, 4, 1}, {1, 3, 5, 9}), {0, 3, -2, 5});
  CHECK_THAT(refusal(model(18, {1, 2, 3, 4})), Contains("'g'") && Contains("input scale has shape [4], expected [2]"));
  CHECK_THAT(refusal(model(21, {1, 2})), Contains("input scale has shape [2], expected [4]"));
}

TEST_CASE("instance, mean-variance and Lp normalisation") {
  Model instance(17);
  instance.input("x", {1, 2, 2}).constant(tensor("s", {2}, {1, 2})).constant(tensor("b", {2}, {0, 1}));
  instance.node("InstanceNormalization", {"x", "s", "b"}, {"y"}, {attribute("epsilon", 0.0F)}).output("y");
  check_near(run(instance, {1, 2, 2}, {1, 3, 5, 9}), {-1, 1, -1, 3});

  Model mvn(17);  // by default over all but the channels; where all are equal, zeros
  mvn.input("x", {1, 2, 1, 2}).node("MeanVarianceNormalization", {"x"}, {"y"}).output("y");
  check_near(run(mvn, {1, 2, 1, 2}, {1, 3, 7, 7}), {-1, 1, 0, 0});

  Model lp(17);
  lp.input("x", {3, 2}).node("LpNormalization", {"x"}, {"y"}).output("y");
  check_near(run(lp, {3, 2}, {3, -4, 0, 0, 0, 2}), {0.6F, -0.8F, 0, 0, 0, 1});
  Model l1(22);
  l1.input("x", {2, 2}).node("LpNormalization", {"x"}, {"y"}, {attribute("p", 1), attribute("axis", 0)}).output("y");
  check_near(run(l1, {2, 2}, {3, -4, 1, 0}), {0.75F, -1, 0.25F, 0});
}

TEST_CASE("normalisations name operand and attribute that they do not take") {
  const auto layer = [](const Shape& scale, std::vector<onnx::AttributeProto> attributes) {
    Model made(17);
    made.input("x", {2, 3}).input("s", scale).node("LayerNormalization", {"x", "s"}, {"y"}, attributes, "norm");
    return refusal(made.output("y"));
  };
  CHECK(layer({3}, {}) == "read");
  CHECK_THAT(layer({2}, {}), Contains("'norm'") && Contains("input Scale has shape [2], which does not broadcast to X's [2,3]"));
  CHECK_THAT(layer({3}, {attribute("axis", 2)}), Contains("attribute 'axis' is 2"));
  CHECK_THAT(layer({3}, {attribute("stash_type", 10)}), Contains("attribute 'stash_type' is FLOAT16, supported: FLOAT"));
  Model flat(17);
  flat.input("x", {2, 3}).input("s", {3}).node("InstanceNormalization", {"x", "s", "s"}, {"y"}).output("y");
  CHECK_THAT(refusal(flat), Contains("input X has shape [2,3], expected [N,C,...]"));
  Model lp(17);
  lp.input("x", {2, 3}).node("LpNormalization", {"x"}, {"y"}, {attribute("p", 3)}).output("y");
  CHECK_THAT(refusal(lp), Contains("attribute 'p' is 3, expected 1 or 2"));
}

TEST_CASE("BatchNormalization without spatial has a channel for each element of an image") {
  const auto model = [](const Shape& x, const Shape& each) {
    Model made(7);
    made.input("x", x).constant(tensor("s", each, {1, 2, 3, 4})).constant(tensor("b", each, {0, 0, 1, 1}));
    made.constant(tensor("m", each, {1, 1, 1, 1})).constant(tensor("v", each, {1, 1, 4, 4}));
    return made.node("BatchNormalization", {"x", "s", "b", "m", "v"}, {"y"}, {attribute("spatial", 0), attribute("epsilon", 0.0F)}, "bn")
        .output("y");
  };
  check_near(run(model({1, 2, 2}, {2, 2}), {1, 2, 2}, {1, 2, 3, 5}), {0, 2, 4, 9});
  check_near(run(model({1, 4}, {4}), {1, 4}, {1, 2, 3, 5}), {0, 2, 4, 9});
  CHECK_THAT(refusal(model({1, 4, 3}, {4})), Contains("attribute 'spatial' is 0, and input 1 has shape [4], expected [4,3]"));
}

TEST_CASE("BatchNormalization for training is refused by name") {
  const auto model = [](int opset, std::vector<onnx::AttributeProto> attributes, const std::vector<std::string>& outputs) {
    Model made(opset);
    made.input("x", {1, 2, 3});
    for (const char* name : {"s", "b", "m", "v"}) made.constant(tensor(name, {2}, {1, 1}));
    made.node("BatchNormalization", {"x", "s", "b", "m", "v"}, outputs, attributes, "bn");
    for (const std::string& name : outputs) made.output(name);
    return refusal(made);
  };
  CHECK(model(9, {}, {"y"}) == "read");
  CHECK_THAT(model(9, {}, {"y", "mean", "var", "saved_mean", "saved_var"}),
             Contains("'bn'") && Contains("output 1 is used, which is of training only"));
  for (const std::vector<std::string>& outputs : {std::vector<std::string>{"y"}, {"y", "rm", "rv"}})
    CHECK_THAT(model(14, {attribute("training_mode", 1)}, outputs), Contains("attribute 'training_mode' is 1") && Contains("supported: 0"));
}

namespace {

// What exporters write below opset 17, step by step.
Graph written_out(bool centered, const std::string& after = "") {
  const std::string head = centered
                               ? "m = Reduce(x) {kind=mean, axes=[2]} -> f32[2,3,1]\nd = Elementwise(x, m) {sub(i0, i1)} -> f32[2,3,8]\n"
                               : "d = Elementwise(x) {neg(i0)} -> f32[2,3,8]\n";
  return parse_graph(
      "x = input f32[2,3,8]\ntwo = const f32[] {2}\neps = const f32[] {0.00001}\n"
      "s = const f32[8] {1, 2, 3, 4, 5, 6, 7, 8}\nb = const f32[8] {1, 1, 2, 2, 3, 3, 4, 4}\n" +
      head + R"(
    p = Elementwise(d, two) {pow(i0, i1)} -> f32[2,3,8]
    v = Reduce(p) {kind=mean, axes=[2]} -> f32[2,3,1]
    e = Elementwise(v, eps) {add(i0, i1)} -> f32[2,3,1]
    r = Elementwise(e) {sqrt(i0)} -> f32[2,3,1]
    n = Elementwise(d, r) {div(i0, i1)} -> f32[2,3,8]
    k = Elementwise(n, s) {mul(i0, i1)} -> f32[2,3,8]
    y = Elementwise(k, b) {add(i0, i1)} -> f32[2,3,8]
)" + (after.empty() ? "outputs(y)" : after));
}

}  // namespace

TEST_CASE("rows of a Normalize are of a matrix, and constant numbers of its rows") {
  const auto infer = [](const Shape& x, const Shape& scale, DType dtype, const Shape& rows = {3}) {
    const ops::OperandList operands = {ops::Operand{{DType::f32, x}}, ops::Operand{{DType::f32, scale}}, std::nullopt,
                                       ops::Operand{{dtype, rows}}};
    return ops::infer(OpAttrs(Normalize{{1}}), operands)[0].shape;
  };
  CHECK(infer({5, 4}, {4}, DType::i64) == Shape{3, 4});
  CHECK_THROWS_WITH(infer({5, 4, 1}, {1}, DType::i64), Contains("two dimensions"));
  CHECK_THROWS_WITH(infer({5, 4}, {4}, DType::i32), Contains("expected one or two dimensions of i64"));
  CHECK_THROWS_WITH(infer({5, 4}, {5, 1}, DType::i64), Contains("does not broadcast"));
  // Two rows of X side by side.
  CHECK(infer({5, 4}, {8}, DType::i64, {3, 2}) == Shape{3, 8});
  CHECK_THROWS_WITH(infer({5, 4}, {4}, DType::i64, {3, 2}), Contains("does not broadcast to the result's [3,8]"));
  CHECK_THROWS_WITH(infer({5, 4}, {1}, DType::i64, {3, 0}), Contains("at least one row of X"));
  CHECK_THROWS_WITH(infer({5, 4}, {1}, DType::i64, {3, 2, 1}), Contains("expected one or two dimensions of i64"));
}

TEST_CASE("the steps that exporters write are recognised as one normalisation") {
  for (const bool centered : {true, false}) {
    const Graph source = written_out(centered);
    const Graph made = passes::recognise_normalizations(source);
    check_pass(source, made);
    CHECK(count_rops(made, "Normalize") == 1);
    CHECK(made.rops.size() == (centered ? 1 : 2));
    CHECK(std::get<Normalize>(made.rops.back().attrs).centered == centered);
    CHECK(made.rops.back().inputs.size() == 3);
  }
}

TEST_CASE("what else reads a step of a normalisation stays, and what is none is left alone") {
  const Graph read = written_out(true, "outputs(y, r)");
  const Graph made = passes::recognise_normalizations(read);
  check_pass(read, made);
  CHECK(count_rops(made, "Normalize") == 1);
  CHECK(count_rops(made, "Reduce") == 2);

  Graph cubed = written_out(true);  // not a variance
  for (Tensor& tensor : cubed.tensors) {
    if (tensor.name != "two") continue;
    const float three = 3;
    Bytes bytes(sizeof three);
    std::memcpy(bytes.data(), &three, sizeof three);
    tensor.data = std::make_shared<const Bytes>(bytes);
  }
  CHECK(count_rops(passes::recognise_normalizations(cubed), "Normalize") == 0);
}

TEST_CASE("rows divided by their length are a normalisation, also where the length is repeated to their shape") {
  const auto lengths = [](const std::string& least, const std::string& axes = "axes=[2]", const std::string& outputs = "y") {
    return parse_graph(R"(
    x = input f32[3,4,8]
    n = Reduce(x) {kind=l2, )" +
                       axes + R"(} -> f32[3,4,1]
    c = Elementwise(n) {clip(i0; )" +
                       least + R"()} -> f32[3,4,1]
    r = Elementwise(c) {identity(i0)} -> f32[3,4,8]
    y = Elementwise(x, r) {div(i0, i1)} -> f32[3,4,8]
    outputs()" + outputs +
                       ")\n");
  };
  const Graph source = lengths("1e-12, 3.4028235e+38");
  const Graph made = passes::recognise_normalizations(source);
  check_pass(source, made);
  CHECK(made.rops.size() == 1);
  const auto& normalize = std::get<Normalize>(made.rops[0].attrs);
  CHECK_FALSE(normalize.centered);
  CHECK(normalize.axes == std::vector<int64_t>{2});
  const Graph read = lengths("1e-12, 3.4028235e+38", "axes=[2]", "y, n");  // somebody else wants the length
  check_pass(read, passes::recognise_normalizations(read));
  CHECK(count_rops(passes::recognise_normalizations(read), "Reduce") == 1);
  // A least length whose square is no number, and lengths that are bounded above.
  for (const char* least : {"0, 3.4028235e+38", "1e-20, 3.4028235e+38", "1e-12, 2"})
    CHECK(count_rops(passes::recognise_normalizations(lengths(least)), "Normalize") == 0);
}

namespace {

Case normalize_case(const std::string& name, const Normalize& op, const Shape& shape, Lay in, Lay out, const Shape& scale,
                    const Shape& bias, bool constant = true) {
  CaseMaker maker(name);
  const TensorId x = maker.input(shape, in);
  std::vector<TensorId> inputs = {x};
  for (const Shape* factor : {&scale, &bias}) {
    if (!factor->empty()) inputs.push_back(constant ? maker.constant(*factor) : maker.input(*factor));
  }
  return maker.finish(op, inputs, maker.output(shape, out));
}

// Rows in the order of a table.
Case rows_case(const std::string& name, const Normalize& op, const Shape& x, const std::vector<int64_t>& rows, Lay in = Lay::rows) {
  CaseMaker maker(name);
  const std::vector<TensorId> inputs = {maker.input(x, in), maker.constant({x[1]}), maker.constant({x[1]}),
                                        maker.indices({static_cast<int64_t>(rows.size())}, rows)};
  return maker.finish(op, inputs, maker.output({static_cast<int64_t>(rows.size()), x[1]}));
}
// `pieces` of them side by side.
Case pieces_case(const std::string& name, const Normalize& op, const Shape& x, int64_t pieces, const std::vector<int64_t>& rows,
                 Lay in = Lay::rows) {
  CaseMaker maker(name);
  const int64_t count = static_cast<int64_t>(rows.size()) / pieces, columns = x[1] * pieces;
  const std::vector<TensorId> inputs = {maker.input(x, in), maker.constant({columns}), maker.constant({columns}),
                                        maker.indices({count, pieces}, rows)};
  return maker.finish(op, inputs, maker.output({count, columns}));
}
std::vector<int64_t> some_rows(int64_t count, int64_t of) {
  std::vector<int64_t> rows;
  for (int64_t i = 0; i < count; ++i) rows.push_back((i * 7 + 3) % of);
  return rows;
}

std::vector<Case> normalize_cases() {
  const Lay last = Lay::channels_last, slice = Lay::slice, rows = Lay::rows;
  const float eps = 1e-5F;
  return {
      normalize_case("one element", {{0}, true, eps}, {1}, rows, rows, {1}, {1}),
      normalize_case("a row of 768", {{1}, true, eps}, {5, 768}, rows, rows, {768}, {768}),
      // By a thread, by two to 32 threads of a warp, by several warps; all at the same time, and one after another.
      normalize_case("rows of 4", {{1}, true, 1e-2F}, {300, 4}, rows, rows, {4}, {4}),
      normalize_case("rows of 20", {{1}, true, eps}, {301, 20}, rows, rows, {20}, {20}),
      normalize_case("rows of 96", {{2}, true, eps}, {3, 50, 96}, rows, rows, {96}, {96}),
      normalize_case("rows of 192 without a mean", {{1}, false, eps}, {40, 192}, rows, rows, {192}, {192}),
      normalize_case("rows of 512", {{1}, true, eps}, {21, 512}, rows, rows, {}, {512}),
      normalize_case("rows of 768", {{1}, true, eps}, {23, 768}, rows, rows, {768}, {768}),
      normalize_case("rows of 768 without a mean", {{1}, false, eps}, {23, 768}, rows, rows, {768}, {}),
      normalize_case("rows of 3072", {{1}, true, eps}, {5, 3072}, rows, rows, {3072}, {3072}),
      normalize_case("rows of 4100", {{1}, true, eps}, {5, 4100}, rows, rows, {4100}, {4100}),
      // Several turns of the threads: more rows than a turn has, rows that are no whole turn, octets that do not exist, wider rows.
      normalize_case("61 rows of 768", {{1}, true, eps}, {61, 768}, rows, rows, {768}, {768}),
      normalize_case("rows of 1024 without a mean", {{1}, false, eps}, {40, 1024}, rows, rows, {1024}, {}),
      normalize_case("rows of 200", {{1}, true, eps}, {301, 200}, rows, rows, {}, {200}),
      normalize_case("rows of 8", {{1}, true, 1e-2F}, {2900, 8}, rows, rows, {8}, {8}),
      normalize_case("rows of 768 in wider rows", {{1}, true, eps}, {29, 768}, slice, slice, {768}, {768}),
      normalize_case("many rows of 63", {{2}, true, 1e-12F}, {3, 67, 63}, rows, rows, {63}, {63}),
      normalize_case("a long row, read three times", {{1}, true, eps}, {2, 9001}, rows, rows, {9001}, {}),
      normalize_case("root mean square", {{1}, false, eps}, {7, 129}, rows, rows, {129}, {}),
      normalize_case("root mean square of a long row", {{1}, false, eps}, {1, 7777}, rows, rows, {}, {}),
      normalize_case("two dimensions of the end", {{2, 3}, true, eps}, {2, 3, 5, 7}, rows, rows, {5, 7}, {7}),
      normalize_case("scale and bias of run time", {{1, 2}, true, eps}, {4, 5, 9}, rows, rows, {5, 9}, {9}, false),
      normalize_case("instances", {{2, 3}, true, eps}, {2, 8, 9, 11}, rows, rows, {8, 1, 1}, {8, 1, 1}),
      normalize_case("instances of channels-last pixels", {{2, 3}, true, eps}, {2, 8, 9, 11}, last, last, {8, 1, 1}, {8, 1, 1}),
      normalize_case("instances of a part of wider pixels", {{2, 3}, true, eps}, {1, 5, 6, 7}, slice, slice, {5, 1, 1}, {5, 1, 1}),
      normalize_case("few instances of channels-last pixels", {{2, 3}, true, eps}, {1, 3, 31, 9}, last, rows, {3, 1, 1}, {31, 1}),
      normalize_case("groups", {{2, 3, 4}, true, eps}, {2, 3, 4, 5, 3}, rows, rows, {3, 4, 1, 1}, {3, 4, 1, 1}),
      normalize_case("all but the channels", {{0, 2, 3}, true, 1e-18F}, {3, 5, 6, 7}, rows, last, {}, {}),
      normalize_case("reversed", {{1}, true, eps}, {6, 33}, Lay::reversed, rows, {33}, {33}),
      rows_case("rows in another order", {{1}, true, eps}, {150, 96}, some_rows(150, 150)),
      rows_case("one row", {{1}, true, eps}, {4, 64}, {2}),
      rows_case("some rows, several times", {{1}, false, eps}, {5, 33}, some_rows(9, 5)),
      pieces_case("four rows side by side", {{1}, true, eps}, {150, 96}, 4, some_rows(148, 150)),
      pieces_case("three short rows side by side", {{1}, false, eps}, {90, 20}, 3, some_rows(240, 90)),
      pieces_case("two rows of no whole vectors side by side", {{1}, true, eps}, {7, 34}, 2, some_rows(10, 7)),
      pieces_case("two rows that lie backwards side by side", {{1}, true, eps}, {6, 64}, 2, some_rows(4, 6), Lay::reversed),
      rows_case("rows that lie backwards", {{1}, true, eps}, {6, 64}, some_rows(4, 6), Lay::reversed),
  };
}

}  // namespace

TEST_CASE("the body of Normalize agrees with the reference") {
  expect_no_problems(normalize_cases(), {kernels::family("normalize")}, "normalize");
}

TEST_CASE("so it does with scale and bias that come through the ring, where a stage has room for them") {
  std::vector<Case> some;
  for (const Case& c : normalize_cases()) {
    for (const char* name : {"a row of 768", "rows of 4", "rows of 192 without a mean", "rows of 512", "rows of 768",
                             "rows of 768 without a mean", "rows of 3072", "61 rows of 768", "rows of 1024 without a mean", "rows of 200",
                             "rows of 768 in wider rows", "rows in another order", "scale and bias of run time"}) {
      if (c.name == name) some.push_back(c);
    }
  }
  ShapedVDevice vdevice = read_vdevice("cpu").without_inputs();
  vdevice.sms = 3;
  int rings = 0;
  for (const Case& c : some) {
    for (const RKernel& rkernel :
         kernels::candidates_of(kernels::family("normalize"), {c.graph, c.graph.rops[0], vdevice, Precision::fp32}))
      rings += rkernel.phases[0].ring.chunks_per_rtask > 0;
  }
  CHECK(rings > 4);
  const std::filesystem::path root = std::filesystem::absolute(__FILE__).parent_path().parent_path().parent_path();
  const CaseFolder folder("tamp_heavy_normalize");
  for (const std::string& problem : run_heavy_cases(some, {kernels::family("normalize")}, {vdevice}, root, folder.path()))
    FAIL_CHECK(problem);
}

TEST_CASE("x and y of Normalize may be of 16 bits") {
  const Lay rows = Lay::rows;
  const float eps = 1e-5F;
  const std::vector<Case> wide = {
      normalize_case("a row of 768", {{1}, true, eps}, {5, 768}, rows, rows, {768}, {768}),
      normalize_case("root mean square of a row of 20", {{1}, false, eps}, {7, 20}, rows, rows, {20}, {}),
      normalize_case("rows of 96", {{1}, true, eps}, {40, 96}, rows, rows, {96}, {96}),
      normalize_case("61 rows of 768", {{1}, true, eps}, {61, 768}, rows, rows, {768}, {768}),
      normalize_case("rows of 1024 without a mean", {{1}, false, eps}, {29, 1024}, rows, rows, {1024}, {}),
      normalize_case("rows of 200", {{1}, true, eps}, {301, 200}, rows, rows, {}, {200}),
      normalize_case("rows of 768 in wider rows", {{1}, true, eps}, {29, 768}, Lay::slice, Lay::slice, {768}, {768}),
      normalize_case("many rows of 63", {{2}, true, 1e-12F}, {3, 7, 63}, rows, rows, {63}, {63}),
      normalize_case("a long row, read three times", {{1}, true, eps}, {2, 9001}, rows, rows, {9001}, {}),
      normalize_case("instances of a part of wider pixels", {{2, 3}, true, eps}, {1, 5, 6, 7}, Lay::slice, Lay::slice, {5, 1, 1},
                     {5, 1, 1}),
      normalize_case("reversed", {{1}, true, eps}, {6, 33}, Lay::reversed, rows, {33}, {33}),
      rows_case("rows in another order", {{1}, true, eps}, {50, 96}, some_rows(50, 50)),
      rows_case("some rows, several times", {{1}, false, eps}, {5, 33}, some_rows(9, 5)),
  };
  std::vector<Case> cases;
  for (const Case& c : wide) {
    const TensorId x = c.graph.rops[0].inputs[0], y = c.graph.rops[0].outputs[0];
    for (const DType dtype : {DType::f16, DType::bf16}) cases.push_back(narrowed(c, {x, y}, dtype));
  }
  for (const size_t i : {size_t{0}, size_t{2}, size_t{3}}) {  // one of both, and each of another type
    const TensorId x = wide[i].graph.rops[0].inputs[0], y = wide[i].graph.rops[0].outputs[0];
    cases.push_back(narrowed(wide[i], {x}, DType::f16));
    cases.push_back(narrowed(wide[i], {y}, DType::bf16));
    cases.push_back(narrowed(narrowed(wide[i], {x}, DType::bf16), {y}, DType::f16));
  }
  expect_no_problems(cases, {kernels::family("normalize")}, "normalize_narrow");

  Case refused = narrowed(wide[0], {wide[0].graph.rops[0].inputs[1]}, DType::f16);  // the scale
  const ShapedVDevice vdevice = small_vdevice();
  CHECK(kernels::candidates_of(kernels::family("normalize"), {refused.graph, refused.graph.rops[0], vdevice, Precision::fp16}).empty());
}

TEST_CASE("a body for several turns is offered where rows are of whole, aligned octets and there are several turns") {
  const Lay rows = Lay::rows, slice = Lay::slice;
  const auto offered = [](const Case& c) {
    const ShapedVDevice vdevice = small_vdevice();
    int64_t turns = 0;
    for (const RKernel& rkernel :
         kernels::candidates_of(kernels::family("normalize"), {c.graph, c.graph.rops[0], vdevice, Precision::fp16})) {
      turns += rkernel.phases[0].body == "rk::normalize_turns";
    }
    return turns == 1;
  };
  const auto of = [](const Shape& shape, Lay lay) {
    return normalize_case("", {{1}, true, 1e-5F}, shape, lay, lay, {shape[1]}, {shape[1]});
  };
  const auto narrow = [](const Case& c) { return narrowed(c, {c.graph.rops[0].inputs[0], c.graph.rops[0].outputs[0]}, DType::f16); };
  CHECK(offered(of({61, 768}, rows)));
  CHECK(offered(narrow(of({61, 768}, rows))));
  CHECK(offered(of({29, 768}, slice)));
  CHECK_FALSE(offered(narrow(of({29, 768}, slice))));  // begins at 8 bytes
  CHECK_FALSE(offered(of({5, 768}, rows)));            // one turn
  CHECK_FALSE(offered(of({301, 20}, rows)));           // two and a half octets
  CHECK_FALSE(offered(of({40, 1032}, rows)));          // too long for a warp
  CHECK_FALSE(offered(rows_case("", {{1}, true, 1e-5F}, {150, 96}, some_rows(150, 150))));
}

namespace {

std::vector<Case> long_rows_cases() {
  const Lay last = Lay::channels_last, slice = Lay::slice, rows = Lay::rows;
  const float eps = 1e-5F;
  const Normalize map{{1, 2, 3}, true, eps}, groups{{2, 3, 4}, true, eps};
  return {
      normalize_case("a row of vectors", {{1}, true, eps}, {1, 12004}, rows, rows, {12004}, {12004}),
      normalize_case("a row of vectors without a mean", {{1}, false, eps}, {1, 12004}, rows, rows, {}, {12004}),
      normalize_case("odd rows", {{1}, true, eps}, {3, 9001}, rows, rows, {9001}, {}),
      normalize_case("an odd row without a mean", {{1}, false, eps}, {1, 7777}, rows, rows, {}, {}),
      normalize_case("backwards", {{1}, true, eps}, {2, 5000}, Lay::reversed, rows, {5000}, {5000}),
      normalize_case("groups", groups, {2, 2, 3, 30, 36}, rows, rows, {2, 3, 1, 1}, {2, 3, 1, 1}),
      normalize_case("groups of odd maps", groups, {1, 2, 3, 31, 35}, rows, rows, {2, 3, 1, 1}, {2, 1, 1, 1}),
      normalize_case("a channels-last map", map, {2, 20, 13, 17}, last, last, {20, 1, 1}, {20, 1, 1}),
      normalize_case("a channels-last map of odd channels", map, {2, 18, 13, 17}, last, last, {18, 1, 1}, {18, 1, 1}),
      normalize_case("a channels-last map to rows", map, {1, 12, 33, 31}, last, rows, {12, 1, 1}, {}),
      normalize_case("a part of wider pixels", map, {1, 12, 33, 31}, slice, slice, {12, 1, 1}, {31}),
      // Channels within a group, pixels, groups: in memory pixels, groups, channels within a group.
      normalize_case("groups of channels-last pixels", {{1, 2}, true, eps}, {1, 8, 700, 3}, last, last, {8, 1, 3}, {8, 1, 1}),
      normalize_case("groups of 10 channels-last channels", {{1, 2}, true, eps}, {1, 10, 401, 4}, last, last, {10, 1, 4}, {10, 1, 1}),
      normalize_case("odd rows of pairs", {{1}, false, eps}, {3, 9002}, rows, rows, {9002}, {9002}),
      normalize_case("groups of odd channels-last pixels", {{1, 2}, true, eps}, {2, 5, 701, 2}, last, last, {5, 1, 2}, {5, 1, 2}),
      normalize_case("channels", {{2, 3}, true, eps}, {1, 20, 40, 41}, last, last, {20, 1, 1}, {20, 1, 1}),
      normalize_case("few channels to rows", {{2, 3}, false, eps}, {2, 3, 40, 41}, last, rows, {3, 1, 1}, {40, 1}),
      normalize_case("all but the channels", {{0, 2, 3}, true, 1e-18F}, {3, 5, 26, 27}, rows, last, {}, {}),
      normalize_case("scale and bias of run time", map, {1, 20, 23, 17}, last, last, {20, 1, 1}, {20, 1, 1}, false),
  };
}

ShapedVDevice thirteen_veus() {
  ShapedVDevice vdevice = read_vdevice("cpu").without_inputs();
  vdevice.sms = 13;
  return vdevice;
}

const RKernel* split_of(const std::vector<RKernel>& offers) {
  for (const RKernel& rkernel : offers) {
    if (rkernel.phases[0].body == "rk::normalize_moments") return &rkernel;
  }
  return nullptr;
}

}  // namespace

TEST_CASE("few long rows are cut into shares") {
  const ShapedVDevice vdevice = thirteen_veus();
  std::vector<Case> cases = long_rows_cases();
  std::map<std::string, int> vectors;
  for (const Case& c : long_rows_cases()) {
    const std::vector<RKernel> offers =
        kernels::candidates_of(kernels::family("normalize"), {c.graph, c.graph.rops[0], vdevice, Precision::fp32});
    const RKernel* split = split_of(offers);
    INFO(c.name);
    REQUIRE(split);
    CHECK(split->phases[0].rtasks > 3);
    CHECK(split->phases[1].rtasks <= 13);
    ++vectors[split->phases[0].template_args[0].second];
    const TensorId x = c.graph.rops[0].inputs[0], y = c.graph.rops[0].outputs[0];
    for (const DType dtype : {DType::f16, DType::bf16}) cases.push_back(narrowed(c, {x, y}, dtype));
    cases.push_back(narrowed(c, {x}, DType::f16));
    cases.push_back(narrowed(narrowed(c, {x}, DType::bf16), {y}, DType::f16));
  }
  CHECK(vectors == std::map<std::string, int>{{"4", 7}, {"2", 3}, {"1", 9}});
  const std::filesystem::path root = std::filesystem::absolute(__FILE__).parent_path().parent_path().parent_path();
  const CaseFolder folder("tamp_split_normalize");
  for (const std::string& problem : run_heavy_cases(cases, {kernels::family("normalize")}, {vdevice}, root, folder.path()))
    FAIL_CHECK(problem);
}

TEST_CASE("rows far from zero lose no digits in shares") {
  CaseMaker maker("far from zero");
  maker.set_range(1000, 1001);
  const TensorId x = maker.input({1, 60000});
  const Case c = maker.finish(Normalize{{1}, true, 1e-5F}, {x}, maker.output({1, 60000}));
  HeavyRun run{thirteen_veus()};
  run.tolerance = 3e-4;  // what rounding a mean of 1000 to f32 may make of values of 1; squares less a squared mean would be off by 0.1
  const std::filesystem::path root = std::filesystem::absolute(__FILE__).parent_path().parent_path().parent_path();
  const CaseFolder folder("tamp_far_normalize");
  for (const std::string& problem : run_heavy_cases({c}, {kernels::family("normalize")}, run, root, folder.path())) FAIL_CHECK(problem);
}

TEST_CASE("rows are cut only where there are too few for the vEUs, and they are long") {
  const ShapedVDevice vdevice = thirteen_veus();
  const auto is_cut = [&](const Normalize& op, const Shape& shape, Lay lay) {
    const Case c = normalize_case("", op, shape, lay, lay, {}, {});
    return split_of(kernels::candidates_of(kernels::family("normalize"), {c.graph, c.graph.rops[0], vdevice, Precision::fp32})) != nullptr;
  };
  CHECK(is_cut({{1}}, {6, 20000}, Lay::rows));
  CHECK_FALSE(is_cut({{1}}, {7, 20000}, Lay::rows));
  CHECK_FALSE(is_cut({{1}}, {2, 511}, Lay::rows));
  CHECK_FALSE(is_cut({{1}}, {2, 8192}, Lay::rows));  // the body for dense rows takes them
  CHECK(is_cut({{2, 3}}, {1, 48, 40, 40}, Lay::channels_last));
  CHECK_FALSE(is_cut({{2, 3}}, {1, 56, 40, 40}, Lay::channels_last));
  Case table = rows_case("", {{1}, true, 1e-5F}, {3, 20001}, {2, 0});
  CHECK(split_of(kernels::candidates_of(kernels::family("normalize"), {table.graph, table.graph.rops[0], vdevice, Precision::fp32})) ==
        nullptr);
}

}  // namespace tamp::test
