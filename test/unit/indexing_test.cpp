// TopK, CumSum, Scatter and the operators that are said with them: the references against values worked out by hand, every version of
// their ONNX operators, and what is refused. The device bodies are tested in test/e2e/indexing_test.py, ONNX's own cases in
// test/e2e/conformance.py.
#include "compiler/passes/tidy/fold_constants.h"
#include "test/support/catch.h"
#include "test/support/onnx_model.h"

namespace tamp::test {
namespace {

using Catch::Matchers::Contains;
using Catch::Matchers::StartsWith;
constexpr int kInt64 = onnx::TensorProto::INT64, kBool = onnx::TensorProto::BOOL;

ops::Value whole(const Shape& shape, const Ints& values) {
  Bytes bytes(values.size() * sizeof(int64_t));
  if (!values.empty()) std::memcpy(bytes.data(), values.data(), bytes.size());
  return {DType::i64, shape, std::make_shared<const Bytes>(std::move(bytes))};
}
Ints whole_of(const ops::Value& value) {
  REQUIRE(value.dtype == DType::i64);
  Ints values(static_cast<size_t>(element_count(value.shape)));
  if (!values.empty()) std::memcpy(values.data(), value.data->data(), value.data->size());
  return values;
}

onnx::TensorProto whole_tensor(const std::string& name, const Shape& shape, const Ints& values) {
  onnx::TensorProto proto = tensor(name, values);
  proto.clear_dims();
  for (const int64_t extent : shape) proto.add_dims(extent);
  return proto;
}

// One node with the input x, operands that are constants, and the outputs y, y1, ..
struct One {
  std::string op;
  int64_t opset = 18;
  Shape x;
  std::vector<onnx::AttributeProto> attributes = {};
  std::vector<onnx::TensorProto> constants = {};
  size_t outputs = 1;

  Model model() const {
    Model made(opset);
    made.input("x", x);
    std::vector<std::string> operands = {"x"}, results;
    for (const onnx::TensorProto& constant : constants) {
      made.constant(constant);
      operands.push_back(constant.name());
    }
    for (size_t k = 0; k < outputs; ++k) results.push_back(k == 0 ? "y" : "y" + std::to_string(k));
    made.node(op, operands, results, attributes, "n");
    for (const std::string& result : results) made.output(result);
    return made;
  }
  std::vector<ops::Value> of(const Floats& values) const { return ops::run(model().read(), {value(x, values)}); }
  Floats floats(const Floats& values) const { return floats_of(of(values)[0]); }
};

One top_k(int64_t k, std::vector<onnx::AttributeProto> attributes = {}, int64_t opset = 11) {
  return {"TopK", opset, {2, 4}, std::move(attributes), {tensor("k", Ints{k})}, 2};
}

}  // namespace

TEST_CASE("TopK gives values and places, lower places first") {
  const Floats x = {1, 3, 3, 2, 5, 4, 4, 5};
  const auto check = [&](const One& one, const Floats& values, const Ints& places) {
    const std::vector<ops::Value> results = one.of(x);
    CHECK(floats_of(results[0]) == values);
    CHECK(whole_of(results[1]) == places);
    CHECK(results[0].shape == results[1].shape);
  };
  check(top_k(2), {3, 3, 5, 5}, {1, 2, 0, 3});
  check(top_k(3, {attribute("largest", 0), attribute("sorted", 0)}, 24), {1, 2, 3, 4, 4, 5}, {0, 3, 1, 1, 2, 0});
  check(top_k(1, {attribute("axis", 0)}), {5, 4, 4, 5}, {1, 1, 1, 1});
  check(top_k(4, {}, 10), {3, 3, 2, 1, 5, 5, 4, 4}, {1, 2, 3, 0, 0, 3, 1, 2});
  check({"TopK", 9, {2, 4}, {attribute("k", 1), attribute("axis", -1)}, {}, 2}, {3, 5}, {1, 0});
  check(top_k(0), {}, {});
}

TEST_CASE("TopK of more than there is, of no number, and of a version's other attributes is refused") {
  CHECK_THAT(refusal(top_k(5).model()), Contains("K is 5, axis 1 of input [2,4] has 4 elements"));
  CHECK_THAT(refusal(top_k(-1).model()), Contains("K is -1"));
  CHECK_THAT(refusal(top_k(1, {attribute("axis", 2)}).model()), Contains("attribute 'axis' is 2, expected -2 to 1"));
  CHECK_THAT(refusal(top_k(1, {attribute("largest", 0)}, 10).model()), Contains("unknown attribute 'largest'"));
  CHECK_THAT(refusal(One{"TopK", 9, {4}, {}, {}, 2}.model()), Contains("attribute 'k' is missing"));
  CHECK_THAT(refusal(One{"TopK", 11, {4}, {}, {tensor("k", Ints{1, 2})}, 2}.model()), Contains("input 1 (K) has 2 values, expected one"));
  CHECK_THAT(refusal(One{"TopK", 11, {}, {}, {tensor("k", Ints{1})}, 2}.model()), Contains("attribute 'axis'"));
}

TEST_CASE("ArgMax and ArgMin give the first or last place, with or without the dimension") {
  const Floats x = {1, 3, 3, 1, 5, 4, 4, 5};
  const auto arg = [&](const char* op, std::vector<onnx::AttributeProto> attributes, const Shape& shape, const Ints& expected) {
    const ops::Value y = One{op, 13, {2, 4}, std::move(attributes)}.of(x)[0];
    CHECK(y.shape == shape);
    CHECK(whole_of(y) == expected);
  };
  arg("ArgMax", {}, {1, 4}, {1, 1, 1, 1});
  arg("ArgMax", {attribute("axis", 1), attribute("keepdims", 0)}, {2}, {1, 0});
  arg("ArgMax", {attribute("axis", -1), attribute("select_last_index", 1)}, {2, 1}, {2, 3});
  arg("ArgMin", {attribute("axis", 1), attribute("keepdims", 0)}, {2}, {0, 1});
  arg("ArgMin", {attribute("axis", 1), attribute("keepdims", 0), attribute("select_last_index", 1)}, {2}, {3, 2});
  CHECK_THAT(refusal(One{"ArgMax", 11, {2}, {attribute("select_last_index", 1)}}.model()), Contains("unknown attribute"));
  CHECK_THAT(refusal(One{"ArgMax", 13, {2, 0}, {attribute("axis", 1)}}.model()), Contains("axis 1 of [2,0] has no elements"));
}

TEST_CASE("NaN is the largest of all, and the smallest to ArgMin") {
  const Floats x = {1, NAN, 0, NAN};
  CHECK(whole_of(One{"TopK", 11, {4}, {}, {tensor("k", Ints{4})}, 2}.of(x)[1]) == Ints{1, 3, 0, 2});
  CHECK(whole_of(One{"TopK", 11, {4}, {attribute("largest", 0)}, {tensor("k", Ints{4})}, 2}.of(x)[1]) == Ints{2, 0, 1, 3});
  CHECK(whole_of(One{"ArgMax", 13, {4}}.of(x)[0]) == Ints{1});
  CHECK(whole_of(One{"ArgMin", 13, {4}}.of(x)[0]) == Ints{1});
}

TEST_CASE("Hardmax is one where the first largest element stands") {
  const Floats x = {1, 3, 3, 1, 5, 4, 4, 5};
  CHECK(One{"Hardmax", 13, {2, 4}}.floats(x) == Floats{0, 1, 0, 0, 1, 0, 0, 0});
  CHECK(One{"Hardmax", 11, {1, 2, 4}}.floats(x) == Floats{0, 0, 0, 0, 1, 0, 0, 0});
  CHECK(One{"Hardmax", 13, {2, 0}}.floats({}).empty());
}

TEST_CASE("CumSum and CumProd sum from either end, with or without the element itself") {
  const auto sum = [](const char* op, int exclusive, int reverse, int64_t opset) {
    return One{op, opset, {2, 3}, {attribute("exclusive", exclusive), attribute("reverse", reverse)}, {whole_tensor("axis", {}, {-1})}}
        .floats({1, 2, 3, 4, 5, 6});
  };
  CHECK(sum("CumSum", 0, 0, 11) == Floats{1, 3, 6, 4, 9, 15});
  CHECK(sum("CumSum", 1, 0, 14) == Floats{0, 1, 3, 0, 4, 9});
  CHECK(sum("CumSum", 0, 1, 14) == Floats{6, 5, 3, 15, 11, 6});
  CHECK(sum("CumSum", 1, 1, 14) == Floats{5, 3, 0, 11, 6, 0});
  CHECK(sum("CumProd", 0, 0, 26) == Floats{1, 2, 6, 4, 20, 120});
  CHECK(sum("CumProd", 1, 1, 26) == Floats{6, 3, 1, 30, 6, 1});
  CHECK_THAT(refusal(One{"CumSum", 14, {2}, {}, {whole_tensor("axis", {}, {1})}}.model()), Contains("axis is 1, expected -1 to 0"));
  CHECK_THAT(refusal(One{"CumSum", 14, {2}, {}, {tensor("axis", Ints{0, 0})}}.model()), Contains("input 1 (axis) has 2 values"));
}

namespace {

// x[3,2] with indices and updates that are constants, or inputs of the model.
struct Putting {
  std::string op = "ScatterElements";
  int64_t opset = 18;
  Shape indices_shape;
  Ints indices;
  Shape updates_shape;
  std::vector<onnx::AttributeProto> attributes = {};

  Model model(bool constant) const {
    Model made(opset);
    made.input("x", {3, 2});
    if (constant)
      made.constant(whole_tensor("i", indices_shape, indices));
    else
      made.input("i", indices_shape, kInt64);
    made.input("u", updates_shape).node(op, {"x", "i", "u"}, {"y"}, attributes, "n").output("y");
    return made;
  }
  Floats floats(bool constant) const {
    const Graph graph = model(constant).read();
    std::vector<ops::Value> inputs = {value({3, 2}, {0, 1, 2, 3, 4, 5})};
    if (!constant) inputs.push_back(whole(indices_shape, indices));
    Floats updates = counting(element_count(updates_shape));
    for (float& one : updates) one *= 10;
    inputs.push_back(value(updates_shape, updates));
    return floats_of(ops::run(graph, inputs)[0]);
  }
};

}  // namespace

TEST_CASE("scattered elements are replaced or combined in the order of the updates") {
  const bool constant = GENERATE(false, true);
  CAPTURE(constant);
  const auto put = [&](const char* reduction, int64_t opset = 18) {
    std::vector<onnx::AttributeProto> attributes;
    if (opset >= 16) attributes = {attribute("reduction", reduction)};
    return Putting{"ScatterElements", opset, {2, 2}, {2, -2, 2, 0}, {2, 2}, attributes}.floats(constant);
  };
  CHECK(put("none") == Floats{0, 40, 2, 20, 30, 5});
  CHECK(put("none", 13) == Floats{0, 40, 2, 20, 30, 5});
  CHECK(put("add", 16) == Floats{0, 41, 2, 23, 44, 5});
  CHECK(put("mul") == Floats{0, 40, 2, 60, 1200, 5});
  CHECK(put("max") == Floats{0, 40, 2, 20, 30, 5});
  CHECK(put("min") == Floats{0, 1, 2, 3, 4, 5});
  CHECK(Putting{"Scatter", 9, {3, 1}, {1, 0, -1}, {3, 1}, {attribute("axis", 1)}}.floats(constant) == Floats{0, 10, 20, 3, 4, 30});
  // More updates than are looked through where they are constants.
  CHECK(Putting{"ScatterElements", 18, {6, 2}, {0, 2, 1, 1, 0, 0, 0, 1, 1, 2, 2, 2}, {6, 2}}.floats(constant) ==
        Floats{70, 60, 90, 80, 110, 120});
}

TEST_CASE("scattered rows and elements of ScatterND") {
  const bool constant = GENERATE(false, true);
  CAPTURE(constant);
  CHECK(Putting{"ScatterND", 18, {2, 1}, {-1, 0}, {2, 2}}.floats(constant) == Floats{30, 40, 2, 3, 10, 20});
  CHECK(Putting{"ScatterND", 18, {3, 2}, {0, 1, -1, -2, 0, 1}, {3}, {attribute("reduction", "add")}}.floats(constant) ==
        Floats{0, 41, 2, 3, 24, 5});
  CHECK(Putting{"ScatterND", 11, {5, 2}, {0, 0, 0, 1, 1, 0, 0, 0, 2, 1}, {5}}.floats(constant) == Floats{40, 20, 30, 3, 4, 50});
  CHECK(Putting{"ScatterND", 13, {2}, {1, 0}, {}}.floats(constant) == Floats{0, 1, 10, 3, 4, 5});
}

TEST_CASE("at run time an update with a wild index changes nothing, and reading takes the nearest element") {
  constexpr int64_t kFar = int64_t{1} << 62;
  CHECK(Putting{"ScatterElements", 18, {1, 2}, {3, -4}, {1, 2}}.floats(false) == Floats{0, 1, 2, 3, 4, 5});
  CHECK(Putting{"ScatterND", 18, {3, 2}, {3, -1, 0, 2, kFar, -kFar}, {3}}.floats(false) == Floats{0, 1, 2, 3, 4, 5});
  CHECK(floats_of(
            ops::run(Model(13).input("x", {3, 1}).input("i", {4, 1}, kInt64).node("GatherElements", {"x", "i"}, {"y"}).output("y").read(),
                     {value({3, 1}, {1, 2, 3}), whole({4, 1}, {3, -4, -3, kFar})})[0]) == Floats{3, 1, 1, 3});
}

TEST_CASE("a wild index among constants is refused by its axis") {
  CHECK_THAT(refusal(Putting{"ScatterElements", 18, {1, 2}, {3, 0}, {1, 2}}.model(true)),
             Contains("index 3 is outside the 3 elements of axis 0"));
  CHECK_THAT(refusal(Putting{"ScatterND", 18, {1, 2}, {0, -3}, {1}}.model(true)), Contains("index -3 is outside the 2 elements of axis 1"));
  CHECK_THAT(refusal(One{"GatherElements", 13, {3}, {}, {tensor("i", Ints{-4})}}.model()),
             Contains("index -4 is outside the 3 elements of axis 0"));
  CHECK_THAT(refusal(One{"GatherND", 13, {3}, {}, {tensor("i", Ints{3})}}.model()),
             Contains("index 3 is outside the 3 elements of axis 0"));
}

TEST_CASE("what does not fit is refused in ONNX's words") {
  CHECK_THAT(refusal(Putting{"ScatterElements", 18, {1, 2}, {0, 0}, {2, 2}}.model(true)),
             Contains("indices have shape [1,2], updates have [2,2]"));
  CHECK_THAT(refusal(Putting{"ScatterElements", 18, {1, 3}, {0, 0, 0}, {1, 3}}.model(true)),
             Contains("input updates has shape [1,3], data has [3,2]"));
  CHECK_THAT(refusal(Putting{"ScatterND", 18, {1, 3}, {0, 0, 0}, {1}}.model(true)), Contains("expected a last dimension of 1 to 2"));
  CHECK_THAT(refusal(Putting{"ScatterND", 18, {2, 1}, {0, 0}, {2, 3}}.model(true)), Contains("updates have shape [2,3], expected [2,2]"));
  CHECK_THAT(refusal(Putting{"ScatterND", 16, {2, 1}, {0, 0}, {2, 2}, {attribute("reduction", "max")}}.model(true)),
             Contains("'reduction' is 'max'"));
  CHECK_THAT(refusal(Putting{"ScatterND", 13, {2, 1}, {0, 0}, {2, 2}, {attribute("reduction", "add")}}.model(true)),
             Contains("unknown attribute"));
  CHECK_THAT(refusal(One{"GatherElements", 13, {3, 2}, {}, {tensor("i", Ints{0})}}.model()), Contains("indices have shape [1]"));
  CHECK_THAT(refusal(One{"GatherND", 12, {3, 2}, {attribute("batch_dims", 1)}, {tensor("i", Ints{0})}}.model()),
             Contains("'batch_dims' is 1, expected 0 to 0"));
  CHECK_THAT(refusal(One{"GatherND", 11, {3, 2}, {attribute("batch_dims", 0)}, {tensor("i", Ints{0})}}.model()),
             Contains("unknown attribute 'batch_dims'"));
}

TEST_CASE("a few bytes cannot ask for gigabytes of coordinates") {
  const auto asks = [](const char* op, const Shape& x, const std::vector<onnx::AttributeProto>& attributes) {
    Model model;
    model.input("x", x);
    if (std::string(op) == "GatherElements") {
      model.input("i", {x[0], 1}, kInt64).node(op, {"x", "i"}, {"y"}, attributes);
    } else {
      model.node(op, {"x"}, {"y"}, attributes);
    }
    return refusal(model.output("y"));
  };
  CHECK_THAT(asks("GatherElements", {1 << 29, 2}, {attribute("axis", 1)}), Contains("would make a constant of"));
  CHECK_THAT(asks("Hardmax", {1, 1 << 30}, {}), Contains("would make a constant of"));
  CHECK_THAT(asks("Trilu", {1, 1 << 30}, {}), Contains("would make a constant of"));
}

TEST_CASE("elements and slices are gathered, by batches too") {
  CHECK(One{"GatherElements", 13, {2, 2}, {attribute("axis", 1)}, {whole_tensor("i", {2, 2}, {0, 0, 1, 0})}}.floats({1, 2, 3, 4}) ==
        Floats{1, 1, 4, 3});
  CHECK(One{"GatherND", 13, {2, 2}, {}, {whole_tensor("i", {2, 2}, {0, 0, 1, 1})}}.floats({0, 1, 2, 3}) == Floats{0, 3});
  CHECK(One{"GatherND", 11, {2, 2}, {}, {whole_tensor("i", {2, 1}, {1, 0})}}.floats({0, 1, 2, 3}) == Floats{2, 3, 0, 1});
  CHECK(One{"GatherND", 12, {2, 2, 2}, {attribute("batch_dims", 1)}, {whole_tensor("i", {2, 1}, {1, 0})}}.floats(
            {0, 1, 2, 3, 4, 5, 6, 7}) == Floats{2, 3, 4, 5});
}

TEST_CASE("OneHot, Trilu, EyeLike and ReverseSequence") {
  const auto hot = [](int64_t opset, const Shape& shape, const std::vector<onnx::AttributeProto>& attributes) {
    return One{"OneHot", opset, shape, attributes, {whole_tensor("d", {}, {3}), tensor("v", {2}, {5, 7})}}.floats({1, -1});
  };
  CHECK(hot(11, {2}, {}) == Floats{5, 7, 5, 5, 5, 7});
  CHECK(hot(9, {2}, {}) == Floats{5, 7, 5, 5, 5, 5});
  CHECK(hot(11, {2}, {attribute("axis", 0)}) == Floats{5, 5, 7, 5, 5, 7});
  CHECK(One{"OneHot", 11, {}, {}, {whole_tensor("d", {}, {2}), tensor("v", {2}, {0, 1})}}.floats({1}) == Floats{0, 1});
  CHECK_THAT(refusal(One{"OneHot", 11, {2}, {}, {whole_tensor("d", {}, {-1}), tensor("v", {2}, {0, 1})}}.model()),
             Contains("(depth) is -1"));
  CHECK_THAT(refusal(One{"OneHot", 11, {2}, {}, {whole_tensor("d", {}, {2}), tensor("v", {1}, {0})}}.model()),
             Contains("(values) has shape [1]"));

  const auto triangle = [](int upper, const Ints& k) {
    std::vector<onnx::TensorProto> constants;
    if (!k.empty()) constants.push_back(whole_tensor("k", {}, k));
    return One{"Trilu", 14, {2, 3}, {attribute("upper", upper)}, constants}.floats({1, 2, 3, 4, 5, NAN});
  };
  CHECK(triangle(0, {}) == Floats{1, 0, 0, 4, 5, 0});
  CHECK(triangle(1, {2}) == Floats{0, 0, 3, 0, 0, 0});
  CHECK(triangle(0, {-5}) == Floats(6, 0));
  CHECK(triangle(1, {INT64_MAX}) == Floats(6, 0));
  CHECK_THAT(refusal(One{"Trilu", 14, {3}}.model()), Contains("at least two dimensions"));

  CHECK(One{"EyeLike", 9, {2, 3}, {attribute("k", 1)}}.floats(Floats(6, 9)) == Floats{0, 1, 0, 0, 0, 1});
  CHECK(One{"EyeLike", 22, {2, 2}, {attribute("dtype", kBool)}}.of(Floats(4, 9))[0].dtype == DType::boolean);
  CHECK_THAT(refusal(One{"EyeLike", 22, {2}}.model()), Contains("expected two dimensions"));

  const auto turned = [](std::vector<onnx::AttributeProto> attributes, const Ints& lengths) {
    return One{"ReverseSequence", 10, {2, 2}, std::move(attributes), {tensor("l", lengths)}}.floats({1, 2, 3, 4});
  };
  CHECK(turned({}, {2, 1}) == Floats{3, 2, 1, 4});
  CHECK(turned({attribute("time_axis", 1), attribute("batch_axis", 0)}, {0, 2}) == Floats{1, 2, 4, 3});
  CHECK_THAT(refusal(One{"ReverseSequence", 10, {2, 2}, {}, {tensor("l", Ints{3, 1})}}.model()),
             Contains("sequence_lens has 3, expected 0 to 2"));
  CHECK_THAT(refusal(One{"ReverseSequence", 10, {2, 2}, {attribute("time_axis", 1)}, {tensor("l", Ints{1, 1})}}.model()),
             Contains("are 1 and 1"));
}

TEST_CASE("blocks of pixels become depth and come back") {
  const Floats x = counting(16);
  CHECK(One{"DepthToSpace", 1, {1, 4, 1, 2}, {attribute("blocksize", 2)}}.floats(counting(8)) == Floats{1, 3, 2, 4, 5, 7, 6, 8});
  for (const char* mode : {"DCR", "CRD"}) {
    Model both(28);
    both.input("x", {1, 4, 2, 2}).node("DepthToSpace", {"x"}, {"s"}, {attribute("blocksize", 2), attribute("mode", mode)});
    both.node("SpaceToDepth", {"s"}, {"y"}, {attribute("blocksize", 2), attribute("mode", mode)}).output("y");
    CHECK(floats_of(ops::run(both.read(), {value({1, 4, 2, 2}, x)})[0]) == x);
  }
  CHECK_THAT(refusal(One{"DepthToSpace", 13, {1, 3, 2, 2}, {attribute("blocksize", 2)}}.model()),
             Contains("a depth that blocks of 2 by 2"));
  CHECK_THAT(refusal(One{"SpaceToDepth", 13, {1, 3, 3, 2}, {attribute("blocksize", 2)}}.model()), Contains("a height or width"));
  CHECK_THAT(refusal(One{"SpaceToDepth", 13, {1, 3, 2, 2}}.model()), Contains("'blocksize' is 0"));
}

TEST_CASE("Compress, NonZero and Unique of constants; of what is known at run time they have room for all or say why not") {
  onnx::TensorProto condition = scalar("c", 0, kBool);
  condition.clear_int32_data();
  condition.add_dims(3);
  for (const int one : {0, 1, 1}) condition.add_int32_data(one);
  CHECK(One{"Compress", 11, {2, 3}, {attribute("axis", -1)}, {condition}}.floats({1, 2, 3, 4, 5, 6}) == Floats{2, 3, 5, 6});
  CHECK(One{"Compress", 9, {2, 3}, {}, {condition}}.floats({1, 2, 3, 4, 5, 6}) == Floats{2, 3});
  CHECK_THAT(refusal(One{"Compress", 11, {2, 2}, {attribute("axis", 0)}, {condition}}.model()),
             Contains("chooses element 2 of the 2 along axis 0"));
  const Model late = Model().input("x", {3}).input("c", {2}, kBool).node("Compress", {"x", "c"}, {"y"}, {}, "n").output("y");
  CHECK(refusal(late) == "read");
  CHECK_THAT(refusal(One{"NonZero", 13, {}}.model()), StartsWith("2: ") && Contains("input X is a scalar that is known only at run time"));
  CHECK_THAT(refusal(One{"Unique", 11, {3}}.model()), StartsWith("2: ") && Contains("shapes depend on the values of input X"));

  const auto folded = [](const char* op, const onnx::TensorProto& x, const std::vector<onnx::AttributeProto>& attributes, size_t outputs) {
    Model model;
    std::vector<std::string> results;
    for (size_t k = 0; k < outputs; ++k) results.push_back("y" + std::to_string(k));
    model.constant(x).node(op, {"x"}, results, attributes);
    for (const std::string& result : results) model.output(result);
    const Graph graph = model.read();
    CHECK(graph.rops.empty());
    return ops::run(graph, {});
  };
  const ops::Value places = folded("NonZero", tensor("x", {2, 2}, {1, 0, -2, NAN}), {}, 1)[0];
  CHECK(places.shape == Shape{2, 3});
  CHECK(whole_of(places) == Ints{0, 1, 1, 0, 0, 1});
  const auto unique = folded("Unique", tensor("x", {6}, {2, 1, 1, 3, 4, 3}), {attribute("sorted", 0)}, 4);
  CHECK(floats_of(unique[0]) == Floats{2, 1, 3, 4});
  CHECK(whole_of(unique[1]) == Ints{0, 1, 3, 4});
  CHECK(whole_of(unique[2]) == Ints{0, 1, 1, 2, 3, 2});
  CHECK(whole_of(unique[3]) == Ints{1, 2, 2, 1});
  const auto rows = folded("Unique", tensor("x", {3, 2}, {1, 0, 1, 0, 0, 9}), {attribute("axis", 0)}, 2);
  CHECK(floats_of(rows[0]) == Floats{0, 9, 1, 0});
  CHECK(whole_of(rows[1]) == Ints{2, 0});
}

TEST_CASE("the value of Pad may be known only at run time, or have more digits than a float") {
  Model model;
  model.input("x", {2}).input("v", {}).constant(tensor("p", Ints{1, 1})).node("Pad", {"x", "p", "v"}, {"y"}).output("y");
  CHECK(floats_of(ops::run(model.read(), {value({2}, {1, 2}), value({}, {NAN})})[0])[1] == 1);
  CHECK(floats_of(ops::run(model.read(), {value({2}, {1, 2}), value({}, {7})})[0]) == Floats{7, 1, 2, 7});
  Model wide;
  wide.input("x", {2}, kInt64)
      .constant(tensor("p", Ints{0, 1}))
      .constant(scalar("v", INT64_MAX))
      .node("Pad", {"x", "p", "v"}, {"y"})
      .output("y");
  CHECK(whole_of(ops::run(wide.read(), {whole({2}, {1, 2})})[0]) == Ints{1, 2, INT64_MAX});
}

namespace {

// All of the graph but the last node is constant.
void expect_one_rop(const Model& model, const std::map<std::string, int64_t>& dims = {}) {
  const Graph graph = passes::fold_constants(model.read(dims));
  CHECK(graph.rops.size() == 1);
}

}  // namespace

TEST_CASE("positions and masks of transformers fold to constants") {
  SECTION("position ids: Range from the length of a past and of the input") {
    Model model;
    model.input("ids", {1, -1}, kInt64).input("past", {1, 2, -2, 4}).constant(tensor("table", {16, 2}, counting(32)));
    model.constant(whole_tensor("zero", {}, {0})).constant(whole_tensor("one", {}, {1})).constant(whole_tensor("two", {}, {2}));
    model.constant(tensor("front", Ints{0})).constant(tensor("back", Ints{-1, 1}));
    model.node("Shape", {"past"}, {"ps"})
        .node("Gather", {"ps", "two"}, {"p"})
        .node("Shape", {"ids"}, {"is"})
        .node("Gather", {"is", "one"}, {"n"});
    model.node("Add", {"p", "n"}, {"end"}).node("Range", {"p", "end", "one"}, {"r"}).node("Unsqueeze", {"r", "front"}, {"u"});
    model.node("Shape", {"u"}, {"us"}).node("Gather", {"us", "one"}, {"last"}).node("Unsqueeze", {"last", "front"}, {"lu"});
    model.constant(tensor("any", Ints{-1})).node("Concat", {"any", "lu"}, {"to"}, {attribute("axis", 0)});
    model.node("Reshape", {"u", "to"}, {"positions"})
        .node("Gather", {"table", "positions"}, {"e"})
        .node("Cast", {"ids"}, {"f"}, {attribute("to", 1)});
    model.node("ReduceSum", {"f"}, {"s"}).node("Add", {"e", "s"}, {"y"}).output("y");
    const Graph graph = model.read({{"S1", 3}, {"S2", 5}});
    CHECK(graph.rops.size() == 3);
  }
  SECTION("Where(Equal(shape, -1), ones, shape) and Expand") {
    Model model;
    model.input("x", {-1, 3})
        .constant(tensor("two", {1, 1}, {2}))
        .constant(tensor("minus", Ints{-1}))
        .constant(tensor("given", Ints{-1, -1, 3}));
    model.node("Shape", {"given"}, {"rank"}).node("ConstantOfShape", {"rank"}, {"ones"}, {[] {
                                                    onnx::AttributeProto proto;
                                                    proto.set_name("value");
                                                    proto.set_type(onnx::AttributeProto::TENSOR);
                                                    *proto.mutable_t() = tensor("v", Ints{1});
                                                    return proto;
                                                  }()});
    model.node("Mul", {"ones", "minus"}, {"all"}).node("Equal", {"given", "all"}, {"is"}).node("Where", {"is", "ones", "given"}, {"to"});
    model.node("Expand", {"two", "to"}, {"e"}).node("Mul", {"x", "e"}, {"y"}).output("y");
    expect_one_rop(model, {{"S1", 4}});
  }
  SECTION("a causal mask by Trilu of ones, and one by Less of two ranges") {
    Model model;
    model.input("x", {1, 2, -1, -1})
        .constant(whole_tensor("zero", {}, {0}))
        .constant(whole_tensor("one", {}, {1}))
        .constant(whole_tensor("three", {}, {3}));
    model.constant(tensor("low", {}, {-1e9F})).constant(tensor("f0", {}, {0})).constant(tensor("column", Ints{-1, 1}));
    model.node("Shape", {"x"}, {"s"})
        .node("Gather", {"s", "three"}, {"n"})
        .constant(tensor("front", Ints{0}))
        .node("Unsqueeze", {"n", "front"}, {"nn"});
    model.node("Concat", {"nn", "nn"}, {"square"}, {attribute("axis", 0)}).node("Expand", {"low", "square"}, {"lows"});
    model.node("Trilu", {"lows", "one"}, {"upper"}, {attribute("upper", 1)});
    model.node("Range", {"zero", "n", "one"}, {"r"}).node("Reshape", {"r", "column"}, {"rc"}).node("Greater", {"r", "rc"}, {"later"});
    model.node("Where", {"later", "low", "f0"}, {"mask"})
        .node("Add", {"upper", "mask"}, {"both"})
        .node("Add", {"x", "both"}, {"y"})
        .output("y");
    expect_one_rop(model, {{"S1", 6}});
  }
  SECTION("CumSum of a mask of ones, and ScatterND into zeros") {
    Model model;
    model.input("x", {2, -1}).constant(whole_tensor("one", {}, {1}));
    model.node("Shape", {"x"}, {"s"})
        .node("ConstantOfShape", {"s"}, {"zeros"})
        .constant(tensor("f1", {}, {1}))
        .node("Add", {"zeros", "f1"}, {"ones"});
    model.node("CumSum", {"ones", "one"}, {"sums"}).constant(whole_tensor("at", {1, 2}, {1, 0})).constant(tensor("nine", {1}, {9}));
    model.node("ScatterND", {"sums", "at", "nine"}, {"put"}).node("NonZero", {"put"}, {"places"});
    model.node("Transpose", {"places"}, {"pt"}).node("GatherND", {"x", "pt"}, {"y"}).output("y");
    const Graph graph = model.read({{"S1", 3}});
    for (const ROperator& rop : graph.rops) CHECK_FALSE(std::holds_alternative<Scatter>(rop.attrs));
    CHECK(floats_of(ops::run(graph, {value({2, 3}, counting(6))})[0]) == counting(6));
  }
}

}  // namespace tamp::test
