// Attention, RotaryEmbedding, Einsum and ONNX Runtime's own operators: against values worked out by hand, and what is refused. ONNX's own
// cases are in onnx_cases_test.cpp, ONNX Runtime's answers in test/e2e/transformers_test.py.
#include <cmath>

#include "compiler/ops/ops.h"
#include "test/support/catch.h"
#include "test/support/onnx_model.h"

namespace tamp {
namespace {

using namespace test;
using Catch::Matchers::Contains;

// Answers for inputs of f32, in the order of the model's inputs.
std::vector<Floats> answers(const Model& model, const std::vector<Floats>& inputs) {
  const Graph graph = model.read();
  std::vector<ops::Value> values;
  for (size_t i = 0; i < inputs.size(); ++i) values.push_back(value(graph.tensor(graph.inputs[i]).shape, inputs[i]));
  return floats_of_all(ops::run(graph, values));
}

Floats einsum(const std::string& equation, const std::vector<Shape>& shapes, const std::vector<Floats>& inputs) {
  Model model(12);
  std::vector<std::string> names;
  for (const Shape& shape : shapes) {
    names.push_back("x" + std::to_string(names.size()));
    model.input(names.back(), shape);
  }
  model.node("Einsum", names, {"y"}, {attribute("equation", equation.c_str())}, "sum").output("y");
  return answers(model, inputs)[0];
}

}  // namespace

TEST_CASE("Einsum takes diagonals, sums, products, and any order of the output") {
  CHECK(einsum("ij->ji", {{2, 3}}, {{1, 2, 3, 4, 5, 6}}) == Floats{1, 4, 2, 5, 3, 6});
  CHECK(einsum("ij->", {{2, 2}}, {{1, 2, 3, 4}}) == Floats{10});
  CHECK(einsum("ii->i", {{2, 2}}, {{1, 2, 3, 4}}) == Floats{1, 4});
  CHECK(einsum("ii", {{2, 2}}, {{1, 2, 3, 4}}) == Floats{5});
  CHECK(einsum("iji->j", {{2, 2, 2}}, {{1, 2, 3, 4, 5, 6, 7, 8}}) == Floats{7, 11});
  CHECK(einsum(" i j , j k -> i k ", {{2, 2}, {2, 2}}, {{1, 2, 3, 4}, {5, 6, 7, 8}}) == Floats{19, 22, 43, 50});
  CHECK(einsum("ij,jk", {{2, 2}, {2, 2}}, {{1, 2, 3, 4}, {5, 6, 7, 8}}) == Floats{19, 22, 43, 50});
  CHECK(einsum("ba,cb", {{2, 1}, {1, 2}}, {{1, 2}, {3, 4}}) == Floats{11});          // implicit: ac
  CHECK(einsum("bA,Bb", {{2, 2}, {1, 2}}, {{1, 2, 3, 4}, {1, 1}}) == Floats{4, 6});  // capitals come first: AB
  CHECK(einsum("i,j->ij", {{2}, {2}}, {{1, 2}, {3, 4}}) == Floats{3, 4, 6, 8});      // nothing is summed
  CHECK(einsum("i,i,i->", {{2}, {2}, {2}}, {{1, 2}, {3, 4}, {5, 6}}) == Floats{63});
  CHECK(einsum("ij,jk,kl->il", {{1, 2}, {2, 2}, {2, 1}}, {{1, 2}, {3, 4, 5, 6}, {7, 8}}) == Floats{219});
}

TEST_CASE("Einsum's ellipsis stands for what the letters leave, aligned at its end") {
  CHECK(einsum("...ij->...ji", {{1, 2, 2}}, {{1, 2, 3, 4}}) == Floats{1, 3, 2, 4});
  CHECK(einsum("b...,b...->...", {{2, 2}, {2, 2}}, {{1, 2, 3, 4}, {5, 6, 7, 8}}) == Floats{26, 44});
  CHECK(einsum("...i,...i", {{2, 2}, {2, 2}}, {{1, 2, 3, 4}, {5, 6, 7, 8}}) == Floats{17, 53});
  CHECK(einsum("...i,i->...i", {{2, 2}, {2}}, {{1, 2, 3, 4}, {5, 6}}) == Floats{5, 12, 15, 24});
  CHECK(einsum("...ij,...jk->...ik", {{2, 1, 2}, {2, 1}}, {{1, 2, 3, 4}, {5, 6}}) == Floats{17, 39});
  CHECK(einsum("ij,ij->ij", {{2, 1}, {2, 2}}, {{2, 3}, {1, 2, 3, 4}}) == Floats{2, 4, 9, 12});  // extents of 1 repeat
  CHECK(einsum("ij,jk->ik", {{1, 1}, {2, 1}}, {{3}, {1, 2}}) == Floats{9});
}

TEST_CASE("a broken equation is refused by name") {
  const auto model = [](const char* equation, const Shape& shape = {2, 3}) {
    Model made(12);
    made.input("x", shape).input("z", {3, 2}).node("Einsum", {"x", "z"}, {"y"}, {attribute("equation", equation)}, "sum");
    return refusal(made.output("y"));
  };
  CHECK(model("ij,jk->ik") == "read");
  CHECK_THAT(model("ij,jk,kl->il"), Contains("'sum'") && Contains("it has 3 operands, the node has 2 inputs"));
  CHECK_THAT(model("ij,j->i"), Contains("operand 'j' does not fit input 1 of shape [3,2]"));
  CHECK_THAT(model("ij,ik->jk"), Contains("index 'i' has extents 2 and 3"));
  CHECK_THAT(model("ij,jk->iq"), Contains("index 'q' of the output is in no operand"));
  CHECK_THAT(model("ij,jk->ii"), Contains("index 'i' is twice in the output"));
  CHECK_THAT(model("i1,jk->i"), Contains("'1' is no letter"));
  CHECK_THAT(model("i.j,jk->i"), Contains("'.' is no letter"));
  CHECK_THAT(model("ij,jk->i->k"), Contains("more than one output"));
  CHECK_THAT(model("......ij,jk->ik"), Contains("more than one ellipsis"));
  CHECK_THAT(model("i...,jk->k"), Contains("an operand has an ellipsis, the output has none"));
  CHECK_THAT(model("iij,jk->ik", {2, 3, 3}), Contains("index 'i' has extents"));
}

namespace {

// One head of size 1; all scores are 0 where q is, so that every key that is looked at counts the same.
Model attention(const Shape& q, const Shape& k, Attributes attributes, int opset = 23, const std::vector<std::string>& more = {}) {
  Model model(opset);
  model.input("q", q).input("k", k).input("v", k);
  std::vector<std::string> inputs = {"q", "k", "v"};
  inputs.insert(inputs.end(), more.begin(), more.end());
  model.node("Attention", inputs, {"y", "present_key", "present_value", "scores"}, attributes, "att");
  return model;
}

onnx::TensorProto truths(const std::string& name, const Shape& shape, const std::vector<int>& values) {
  onnx::TensorProto proto;
  proto.set_name(name);
  proto.set_data_type(onnx::TensorProto::BOOL);
  for (const int64_t extent : shape) proto.add_dims(extent);
  for (const int one : values) proto.add_int32_data(one);
  return proto;
}

const Shape kOne = {1, 1, 2, 1};  // two queries or keys

}  // namespace

TEST_CASE("Attention averages the values of the keys that a query may look at") {
  CHECK(answers(attention(kOne, kOne, {}).output("y"), {{0, 0}, {1, 2}, {4, 8}})[0] == Floats{6, 6});
  CHECK(answers(attention(kOne, kOne, {attribute("is_causal", 1)}).output("y"), {{0, 0}, {1, 2}, {4, 8}})[0] == Floats{4, 6});
  // Three dimensions, two heads of queries that share one of keys; scores 0 and log 3.
  const Floats grouped = answers(attention({1, 1, 2}, {1, 2, 1}, {attribute("q_num_heads", 2), attribute("kv_num_heads", 1)}).output("y"),
                                 {{0, std::log(3.0F)}, {1, 0}, {4, 8}})[0];
  check_near(grouped, {6, 5});
  // scale
  check_near(answers(attention(kOne, kOne, {attribute("scale", 0.5F)}).output("y"), {{0, 2 * std::log(3.0F)}, {0, 1}, {4, 8}})[0], {6, 7});
}

TEST_CASE("Attention's masks are bool or added; a query without a key gives zeros") {
  Model masked = attention(kOne, kOne, {}, 23, {"mask"});
  masked.constant(truths("mask", {2, 2}, {1, 0, 0, 0}));
  CHECK(answers(masked.output("y"), {{0, 0}, {1, 2}, {4, 8}})[0] == Floats{4, 0});

  Model added = attention(kOne, kOne, {attribute("qk_matmul_output_mode", 3)}, 23, {"mask"});
  added.input("mask", {1, 1, 2, 2});
  added.output("y").output("scores");
  const std::vector<Floats> both = answers(added, {{0, 0}, {1, 2}, {4, 8}, {0, std::log(3.0F), -INFINITY, -INFINITY}});
  check_near(both[0], {7, 0});
  check_near(both[1], {0.25F, 0.75F, 0, 0});

  Model late(24);  // of run time, with the number of keys that count
  late.input("q", kOne).input("k", kOne).input("v", kOne).constant(tensor("lengths", Ints{1}));
  late.node("Attention", {"q", "k", "v", "", "", "", "lengths"}, {"y"}).output("y");
  CHECK(answers(late, {{0, 0}, {1, 2}, {4, 8}})[0] == Floats{4, 4});

  Model near = attention(kOne, kOne, {attribute("left_window_size", 0)}, 25);
  CHECK(answers(near.output("y"), {{0, 0}, {1, 2}, {4, 8}})[0] == Floats{6, 8});
}

TEST_CASE("Attention puts the past before its keys and shows each stage of the scores") {
  Model model = attention({1, 1, 1, 1}, {1, 1, 1, 1}, {attribute("is_causal", 1)}, 23, {"", "past_k", "past_v"});
  model.input("past_k", {1, 1, 1, 1}).input("past_v", {1, 1, 1, 1}).output("y").output("present_key").output("present_value");
  CHECK(answers(model, {{0}, {1}, {4}, {2}, {8}}) == std::vector<Floats>{{6}, {2, 1}, {8, 4}});

  const auto scores = [](int64_t mode) {
    Model staged = attention({1, 1, 1, 1}, kOne, {attribute("qk_matmul_output_mode", mode), attribute("softcap", 2.0F)}, 23, {"mask"});
    staged.constant(tensor("mask", {1, 2}, {0, 1})).output("scores");
    return answers(staged, {{2}, {0, 1}, {4, 8}})[0];
  };
  const float capped = 2 * std::tanh(1.0F);
  check_near(scores(0), {0, 2});
  check_near(scores(1), {0, capped});
  check_near(scores(2), {0, capped + 1});
  check_near(scores(3), {1 / (1 + std::exp(capped + 1)), 1 - 1 / (1 + std::exp(capped + 1))});
}

TEST_CASE("Attention names what does not fit") {
  const auto text = [](Model model) { return refusal(model.output("y")); };
  CHECK_THAT(text(attention({1, 2, 4}, {1, 2, 4}, {})), Contains("'att'") && Contains("attribute 'q_num_heads' is missing"));
  CHECK_THAT(text(attention({1, 2, 4}, {1, 2, 4}, {attribute("q_num_heads", 3), attribute("kv_num_heads", 1)})),
             Contains("attribute 'q_num_heads' is 3, which does not divide the last extent of input Q"));
  CHECK_THAT(text(attention({1, 3, 2, 1}, {1, 2, 2, 1}, {})), Contains("3 heads of Q do not share 2 heads"));
  CHECK_THAT(text(attention(kOne, {1, 1, 2, 2}, {})), Contains("do not fit"));
  CHECK_THAT(text(attention(kOne, kOne, {attribute("softmax_precision", 7)})),
             Contains("'softmax_precision' is 7, expected a type of floats"));
  CHECK_THAT(text(attention(kOne, kOne, {}, 23, {"m"}).input("m", {3, 2})),
             Contains("attn_mask has shape [3,2], which does not broadcast"));
  CHECK_THAT(text(attention(kOne, kOne, {}, 23, {"m"}).input("m", {2, 1})), Contains("its last extent is 1"));
  CHECK_THAT(text(attention(kOne, kOne, {}, 23, {"", "p", ""}).input("p", kOne)), Contains("one of past_key and past_value"));
}

TEST_CASE("RotaryEmbedding turns pairs of elements, by position") {
  const auto model = [](const Shape& x, Attributes attributes, bool by_id) {
    Model made(23);
    made.input("x", x);
    const Shape cache = by_id ? Shape{2, 1} : Shape{1, 1, 1};  // a quarter turn at position 1
    made.constant(tensor("cos", cache, by_id ? Floats{1, 0} : Floats{0})).constant(tensor("sin", cache, by_id ? Floats{0, 1} : Floats{1}));
    onnx::TensorProto ids = tensor("ids", Ints{1});
    ids.clear_dims();
    ids.add_dims(1);
    ids.add_dims(1);
    if (by_id) made.constant(ids);
    std::vector<std::string> inputs = {"x", "cos", "sin"};
    if (by_id) inputs.emplace_back("ids");
    return made.node("RotaryEmbedding", inputs, {"y"}, attributes, "rot").output("y");
  };
  CHECK(answers(model({1, 1, 1, 2}, {}, true), {{3, 4}})[0] == Floats{-4, 3});
  CHECK(answers(model({1, 1, 1, 2}, {}, false), {{3, 4}})[0] == Floats{-4, 3});
  CHECK(answers(model({1, 1, 4}, {attribute("num_heads", 2)}, true), {{1, 2, 3, 4}})[0] == Floats{-2, 1, -4, 3});
  CHECK(answers(model({1, 1, 1, 4}, {attribute("rotary_embedding_dim", 2), attribute("interleaved", 1)}, true), {{1, 2, 3, 4}})[0] ==
        Floats{-2, 1, 3, 4});
  CHECK_THAT(refusal(model({1, 1, 4}, {}, true)), Contains("'rot'") && Contains("attribute 'num_heads' is missing"));
  CHECK_THAT(refusal(model({1, 1, 1, 3}, {}, true)), Contains("expected an even number"));
  CHECK_THAT(refusal(model({1, 1, 1, 4}, {}, true)), Contains("input cos_cache has shape [2,1], expected [positions,2]"));
}

namespace {

Model microsoft(const std::string& op, const std::vector<std::string>& inputs, const std::vector<std::string>& outputs,
                Attributes attributes = {}) {
  Model model(17);
  auto* import = model.proto.add_opset_import();
  import->set_domain("com.microsoft");
  import->set_version(1);
  model.node(op, inputs, outputs, attributes, "ms");
  model.proto.mutable_graph()->mutable_node(0)->set_domain("com.microsoft");
  return model;
}

}  // namespace

TEST_CASE("ONNX Runtime's own operators") {
  CHECK(answers(microsoft("FusedMatMul", {"a", "b"}, {"y"}, {attribute("transB", 1), attribute("alpha", 2.0F)})
                    .input("a", {1, 2})
                    .input("b", {1, 2})
                    .output("y"),
                {{1, 2}, {3, 4}})[0] == Floats{22});
  const Floats skip = answers(microsoft("SkipLayerNormalization", {"x", "s", "g"}, {"y", "", "", "sum"})
                                  .input("x", {1, 1, 2})
                                  .input("s", {1, 1, 2})
                                  .constant(tensor("g", {2}, {2, 2}))
                                  .output("y")
                                  .output("sum"),
                              {{1, 2}, {0, 1}})[0];
  check_near(skip, {-2, 2});
  check_near(answers(microsoft("QuickGelu", {"x"}, {"y"}).input("x", {1}).output("y"), {{1}})[0], {1 / (1 + std::exp(-1.702F))});
  Model old(12);  // before ONNX had it
  old.input("x", {1, 2}).constant(tensor("s", {2}, {1, 1})).node("LayerNormalization", {"x", "s"}, {"y"}).output("y");
  check_near(answers(old, {{1, 3}})[0], {-1, 1});
  CHECK_THAT(refusal(microsoft("Frob", {"x"}, {"y"}).input("x", {1}).output("y")),
             Contains("(com.microsoft.Frob, opset 1): the operator of ONNX Runtime is not supported"));
  Model newer = microsoft("Gelu", {"x"}, {"y"}).input("x", {1}).output("y");
  newer.proto.mutable_opset_import(1)->set_version(2);
  CHECK_THAT(refusal(newer), Contains("opset 2 of domain com.microsoft is newer than 1"));
  CHECK_THAT(refusal(microsoft("FusedMatMul", {"a", "a"}, {"y"}, {attribute("transBatchA", 1)}).input("a", {2, 2}).output("y")),
             Contains("attribute 'transBatchA' is 1, supported: 0"));
}

}  // namespace tamp
