// What the frontend makes of LSTM, GRU, and RNN, in all the ways that their operands can be given. That the cells compute what ONNX says is
// ops_recurrent_test's matter; here it is what they are made of.
#include <algorithm>

#include "compiler/ops/ops.h"
#include "test/support/catch.h"
#include "test/support/onnx_model.h"

namespace tamp {
namespace {

using namespace test;

constexpr int kI32 = onnx::TensorProto::INT32;

// Small and different from one to the next.
Floats waves(int64_t count, int seed = 0) {
  Floats values;
  for (int64_t i = 0; i < count; ++i) values.push_back(static_cast<float>((i * 37 + seed * 11) % 29 - 14) / 20);
  return values;
}

// A recurrent node in the making: T = 3 steps, B = 2 sequences, I = 4 inputs, H = 5.
struct Sizes {
  int64_t steps = 3, batch = 2, inputs = 4, hidden = 5;
};
struct Recurrence {
  std::string op = "LSTM";
  bool bidirectional = false, batch_first = false;
  std::vector<std::string> operands = {};  // behind X, W, R; "" = left out
  std::vector<std::string> run_time = {};  // of W, R and the operands
  Attributes attributes = {};
  std::vector<std::string> outputs = {"Y", "Y_h"};
  int64_t opset = 17;
  std::vector<int32_t> lengths = {3, 1};
  Sizes sizes = {};
  std::map<std::string, onnx::TensorProto> instead = {};

  std::map<std::string, onnx::TensorProto> tensors() const {
    const int64_t d = bidirectional ? 2 : 1, rows = (op == "LSTM" ? 4 : op == "GRU" ? 3 : 1) * sizes.hidden;
    const Shape state = batch_first ? Shape{sizes.batch, d, sizes.hidden} : Shape{d, sizes.batch, sizes.hidden};
    const auto made = [](const std::string& name, const Shape& shape, int seed) {
      return tensor(name, shape, waves(element_count(shape), seed));
    };
    std::map<std::string, onnx::TensorProto> all = {
        {"W", made("W", {d, rows, sizes.inputs}, 1)}, {"R", made("R", {d, rows, sizes.hidden}, 2)},
        {"B", made("B", {d, 2 * rows}, 3)},           {"initial_h", made("initial_h", state, 4)},
        {"initial_c", made("initial_c", state, 5)},   {"P", made("P", {d, 3 * sizes.hidden}, 6)}};
    onnx::TensorProto& length = all["sequence_lens"];
    length.set_name("sequence_lens");
    length.set_data_type(kI32);
    length.add_dims(static_cast<int64_t>(lengths.size()));
    for (const int32_t one : lengths) length.add_int32_data(one);
    for (const auto& [name, other] : instead) all[name] = other;
    return all;
  }

  Shape x_shape() const {
    return batch_first ? Shape{sizes.batch, sizes.steps, sizes.inputs} : Shape{sizes.steps, sizes.batch, sizes.inputs};
  }

  Model model() const {
    Model made(opset);
    made.input("X", x_shape());
    std::vector<std::string> inputs = {"X", "W", "R"};
    inputs.insert(inputs.end(), operands.begin(), operands.end());
    const std::map<std::string, onnx::TensorProto> all = tensors();
    for (size_t i = 1; i < inputs.size(); ++i) {
      if (inputs[i].empty()) continue;
      const onnx::TensorProto& one = all.at(inputs[i]);
      if (std::find(run_time.begin(), run_time.end(), inputs[i]) == run_time.end()) {
        made.constant(one);
      } else {
        made.input(inputs[i], Shape(one.dims().begin(), one.dims().end()), one.data_type());
      }
    }
    Attributes given = attributes;
    if (bidirectional) given.push_back(attribute("direction", "bidirectional"));
    if (batch_first) given.push_back(attribute("layout", 1));
    made.node(op, inputs, outputs, given, "n");
    for (const std::string& name : outputs) {
      if (!name.empty()) made.output(name);
    }
    return made;
  }

  std::vector<ops::Value> run() const {
    const Graph graph = model().read();
    const std::map<std::string, onnx::TensorProto> all = tensors();
    std::vector<ops::Value> inputs;
    for (const TensorId id : graph.inputs) {
      const Tensor& tensor = graph.tensor(id);
      if (tensor.name == "X") {
        inputs.push_back(value(tensor.shape, waves(element_count(tensor.shape))));
      } else {
        const TempFolder folder;
        inputs.push_back(frontend::read_tensor_pb(folder.write(all.at(tensor.name), "t.pb")));
      }
    }
    return ops::run(graph, inputs);
  }
};

const std::vector<std::string> kAllOfLstm = {"B", "sequence_lens", "initial_h", "initial_c", "P"};

const ROperator& only_recurrent(const Graph& graph) {
  const ROperator* found = nullptr;
  for (const ROperator& rop : graph.rops) {
    if (!std::holds_alternative<Recurrent>(rop.attrs)) continue;
    REQUIRE(found == nullptr);
    found = &rop;
  }
  REQUIRE(found != nullptr);
  return *found;
}
RecurrentCell cell_of(const Graph& graph) { return std::get<Recurrent>(only_recurrent(graph).attrs).cells.at(0); }

}  // namespace

TEST_CASE("a recurrent node becomes one cell a direction, with matrices of its own") {
  CHECK(print(Recurrence{"LSTM", false, false, {"B"}}.model().read()) == R"(// graph "m"
X = input f32[3,2,4]
W.0 = const f32[20,4]
R.0 = const f32[20,5]
B.0 = const f32[40]
n, n:2 = Recurrent(X, W.0, R.0, B.0) {batch=2, cell=[kind=LSTM steps=3 hidden=5 x=0 w=1 r=2 bias=3 y=0 y_h=1]} -> f32[3,2,5], f32[2,5]
Y = Reshape(n) -> f32[3,1,2,5]  // n.2 (origin: n)
Y_h = Reshape(n:2) -> f32[1,2,5]  // n.3 (origin: n)
outputs(Y, Y_h)
)");
  CHECK(print(Recurrence{"GRU", true, false, {}, {}, {}, {"Y"}}.model().read()) == R"(// graph "m"
X = input f32[3,2,4]
W.0 = const f32[15,4]
R.0 = const f32[15,5]
W.1 = const f32[15,4]
R.1 = const f32[15,5]
n.forward = Recurrent(X, W.0, R.0) {batch=2, cell=[kind=GRU steps=3 hidden=5 x=0 w=1 r=2 y=0]} -> f32[3,2,5]  // n.forward (origin: n)
n.reverse = Recurrent(X, W.1, R.1) {batch=2, cell=[kind=GRU steps=3 hidden=5 reverse=1 x=0 w=1 r=2 y=0]} -> f32[3,2,5]  // n.reverse (origin: n)
n = Reshape(n.forward) -> f32[3,1,2,5]
n:2 = Reshape(n.reverse) -> f32[3,1,2,5]  // n.2 (origin: n)
Y = Concat(n, n:2) {axis=1} -> f32[3,2,2,5]  // n.3 (origin: n)
outputs(Y)
)");
}

TEST_CASE("results are computed and stored only where somebody reads them") {
  for (const auto& [outputs, count] : std::vector<std::pair<std::vector<std::string>, size_t>>{
           {{"Y", "Y_h", "Y_c"}, 3}, {{"Y"}, 1}, {{"", "Y_h"}, 1}, {{"", "", "Y_c"}, 1}, {{"Y", "", "Y_c"}, 2}}) {
    CHECK(only_recurrent(Recurrence{"LSTM", false, false, {}, {}, {}, outputs}.model().read()).outputs.size() == count);
  }
  Recurrence named{"LSTM", false, false, {}, {}, {}, {"Y", "Y_h", "Y_c"}};
  Model model = named.model();
  model.proto.mutable_graph()->clear_output();
  model.node("Relu", {"Y_c"}, {"z"}).output("z");
  const RecurrentCell cell = cell_of(model.read());
  CHECK(cell.y == -1);
  CHECK(cell.y_h == -1);
  CHECK(cell.y_c == 0);
}

TEST_CASE("operands may be constants or come at run time, with the same result") {
  for (const char* op : {"LSTM", "GRU", "RNN"}) {
    for (const bool both : {false, true}) {
      CAPTURE(op, both);
      Recurrence node{op, both, false, kAllOfLstm};
      if (node.op != "LSTM") node.operands.resize(3);
      const std::vector<Floats> expected = floats_of_all(node.run());
      node.run_time = {"W", "R", "B", "sequence_lens", "initial_h", "initial_c", "P"};
      CHECK(floats_of_all(node.run()) == expected);
      node.run_time = {"R", "initial_h"};
      CHECK(floats_of_all(node.run()) == expected);
    }
  }
}

TEST_CASE("a bidirectional node is a forward and a reverse node side by side") {
  Recurrence both{"LSTM", true, false, kAllOfLstm, {}, {}, {"Y", "Y_h", "Y_c"}};
  const std::vector<Floats> joined = floats_of_all(both.run());
  for (const int64_t d : {0, 1}) {
    Recurrence one{"LSTM", false, false, kAllOfLstm, {}, {attribute("direction", d == 0 ? "forward" : "reverse")}, {"Y", "Y_h", "Y_c"}};
    for (const auto& [name, whole] : both.tensors()) {
      if (name == "sequence_lens") continue;
      Shape shape(whole.dims().begin(), whole.dims().end());
      shape[0] = 1;
      const auto count = static_cast<int>(element_count(shape));
      const auto from = whole.float_data().begin() + d * count;
      one.instead[name] = tensor(name, shape, Floats(from, from + count));
    }
    const std::vector<Floats> alone = floats_of_all(one.run());
    for (size_t t = 0; t < 3; ++t) {  // [T,2,B,H]
      const auto at = joined[0].begin() + static_cast<std::ptrdiff_t>(t) * 20 + d * 10;
      CHECK(Floats(at, at + 10) ==
            Floats(alone[0].begin() + static_cast<std::ptrdiff_t>(t) * 10, alone[0].begin() + static_cast<std::ptrdiff_t>(t) * 10 + 10));
    }
    for (const size_t k : {1, 2}) CHECK(Floats(joined[k].begin() + d * 10, joined[k].begin() + d * 10 + 10) == alone[k]);
  }
}

TEST_CASE("layout 1 has the batch in front of everything") {
  // One sequence: then both layouts hold the same numbers in the same order.
  for (const bool both : {false, true}) {
    Recurrence node{"LSTM", both, false, kAllOfLstm, {}, {}, {"Y", "Y_h", "Y_c"}};
    node.sizes.batch = 1;
    node.lengths = {2};
    const std::vector<ops::Value> expected = node.run();
    node.batch_first = true;
    const std::vector<ops::Value> found = node.run();
    const int64_t d = both ? 2 : 1;
    CHECK(found[0].shape == Shape{1, 3, d, 5});
    CHECK(found[1].shape == Shape{1, d, 5});
    CHECK(floats_of_all(found) == floats_of_all(expected));
  }
  // Two sequences: each is what it is alone.
  Recurrence two{"GRU", true, true};
  const std::vector<ops::Value> pair = two.run();
  CHECK(pair[0].shape == Shape{2, 3, 2, 5});
  Recurrence one{"GRU", true, true};
  one.sizes.batch = 1;
  const Floats first = floats_of(one.run()[0]), whole = floats_of(pair[0]);
  CHECK(Floats(whole.begin(), whole.begin() + 30) == first);
}

TEST_CASE("what says nothing is left out of the cell") {
  const auto zeros = [](const std::string& name, const Shape& shape) {
    return tensor(name, shape, Floats(static_cast<size_t>(element_count(shape)), 0.0F));
  };
  Recurrence node{"LSTM", false, false, kAllOfLstm};
  node.lengths = {3, 3};
  node.instead = {{"initial_h", zeros("initial_h", {1, 2, 5})}, {"initial_c", zeros("initial_c", {1, 2, 5})}};
  RecurrentCell cell = cell_of(node.model().read());
  CHECK(cell.h0 == -1);
  CHECK(cell.c0 == -1);
  CHECK(cell.lengths == -1);
  CHECK(cell.bias >= 0);
  node.lengths = {3, 2};
  node.instead.erase("initial_c");
  cell = cell_of(node.model().read());
  CHECK(cell.lengths >= 0);
  CHECK(cell.c0 >= 0);
}

TEST_CASE("a sequence without a step ends in zeros, not in its initial state") {
  for (const std::vector<std::string>& run_time : {std::vector<std::string>{}, std::vector<std::string>{"initial_h"}}) {
    Recurrence node{"GRU", false, false, {"", "sequence_lens", "initial_h"}, run_time};
    node.lengths = {0, 3};
    const Floats state = floats_of(node.run()[1]);
    CHECK(Floats(state.begin(), state.begin() + 5) == Floats(5, 0.0F));
    CHECK(state[5] != 0);
  }
}

TEST_CASE("activations take their numbers in turn, and their defaults from ONNX") {
  const auto functions_of = [](const Attributes& attributes, bool both = false) {
    const Graph graph = Recurrence{"LSTM", both, false, {}, {}, attributes}.model().read();
    std::vector<CellFunction> all;
    for (const ROperator& rop : graph.rops) {
      const auto* recurrent = std::get_if<Recurrent>(&rop.attrs);
      if (recurrent) all.insert(all.end(), recurrent->cells[0].functions.begin(), recurrent->cells[0].functions.end());
    }
    return all;
  };
  using F = CellFunctionKind;
  const auto names = [](const std::vector<std::string>& list) { return attribute("activations", list); };
  CHECK(functions_of({}) == std::vector<CellFunction>{{F::sigmoid}, {F::tanh}, {F::tanh}});
  CHECK(functions_of({names({"HardSigmoid", "relu", "Elu"})}) ==
        std::vector<CellFunction>{{F::hard_sigmoid, 0.2F, 0.5F}, {F::relu}, {F::elu, 1, 0}});
  CHECK(functions_of({names({"LeakyRelu", "ThresholdedRelu", "Affine"})}) ==
        std::vector<CellFunction>{{F::leaky_relu, 0.01F, 0}, {F::thresholded_relu, 1, 0}, {F::affine, 1, 0}});
  CHECK(functions_of({names({"LeakyRelu", "Tanh", "HardSigmoid"}), attribute("activation_alpha", Floats{0.5F, 0.25F}),
                      attribute("activation_beta", Floats{0.75F})}) ==
        std::vector<CellFunction>{{F::leaky_relu, 0.5F, 0}, {F::tanh}, {F::hard_sigmoid, 0.25F, 0.75F}});
  CHECK(functions_of({names({"Sigmoid", "Softsign", "Elu", "Softplus", "ScaledTanh", "Tanh"}), attribute("activation_alpha", Floats{2, 3}),
                      attribute("activation_beta", Floats{4})},
                     true) ==
        std::vector<CellFunction>{{F::sigmoid}, {F::softsign}, {F::elu, 2, 0}, {F::softplus}, {F::scaled_tanh, 3, 4}, {F::tanh}});
}

TEST_CASE("attributes reach the cell, in the versions that have them") {
  RecurrentCell cell =
      cell_of(Recurrence{"LSTM", false, false, {}, {}, {attribute("clip", 2.5F), attribute("input_forget", 1), attribute("hidden_size", 5)}}
                  .model()
                  .read());
  CHECK(cell.clip == 2.5F);
  CHECK(cell.input_forget);
  cell = cell_of(
      Recurrence{"GRU", false, false, {}, {}, {attribute("linear_before_reset", 1), attribute("direction", "reverse")}}.model().read());
  CHECK(cell.linear_before_reset);
  CHECK(cell.reverse);
  for (const int64_t opset : {1, 3, 6}) {
    Recurrence old{"GRU", false, false,
                   {},    {},    {attribute("output_sequence", 1), attribute("direction", opset < 3 ? "foward" : "forward")}};
    old.opset = opset;
    CHECK(cell_of(old.model().read()).kind == CellKind::gru);
  }
}

TEST_CASE("a recurrent node that ONNX does not allow is refused by name") {
  const std::vector<std::string> b = {"B"};
  const auto with = [](const std::string& name, const onnx::TensorProto& other, std::vector<std::string> operands = {}) {
    Recurrence node{"LSTM", false, false, std::move(operands)};
    node.instead[name] = other;
    return node;
  };
  const auto given = [](const std::string& op, const Attributes& attributes, int64_t opset = 17) {
    Recurrence node{op, false, false, {}, {}, attributes};
    node.opset = opset;
    return node;
  };
  const auto of_lengths = [](const std::vector<int32_t>& lengths) {
    Recurrence node{"RNN", false, false, {"", "sequence_lens"}};
    node.lengths = lengths;
    return node;
  };
  const auto shaped = [](const std::string& name, const Shape& shape) { return tensor(name, shape, waves(element_count(shape))); };
  Recurrence empty{"LSTM"};
  empty.sizes.steps = 0;
  struct Row {
    Recurrence node;
    std::string refusal;
  };
  for (const Row& row : {
           Row{with("W", shaped("W", {1, 20, 3})), "input W has shape [1,20,3], expected [1,20,4] for one direction and X [3,2,4]"},
           Row{with("W", shaped("W", {2, 20, 4})), "input W has shape [2,20,4], expected [1,20,4]"},
           Row{with("R", shaped("R", {1, 16, 5})), "input R has shape [1,16,5], expected [1,20,5]"},
           Row{with("R", shaped("R", {20, 5})), "input R has shape [20,5], expected [directions,gates,hidden]"},
           Row{with("B", shaped("B", {1, 20}), b), "input B has shape [1,20], expected [1,40]"},
           Row{with("initial_h", shaped("initial_h", {2, 5}), {"", "", "initial_h"}), "input initial_h has shape [2,5], expected [1,2,5]"},
           Row{with("initial_c", shaped("initial_c", {1, 1, 5}), {"", "", "", "initial_c"}),
               "input initial_c has shape [1,1,5], expected [1,2,5]"},
           Row{with("P", shaped("P", {1, 20}), {"", "", "", "", "P"}), "input P has shape [1,20], expected [1,15]"},
           Row{with("sequence_lens", tensor("sequence_lens", Ints{3, 1}), {"", "sequence_lens"}),
               "input sequence_lens is i64, expected i32"},
           Row{of_lengths({3}), "input sequence_lens has shape [1], expected [2]"},
           Row{of_lengths({3, 4}), "input sequence_lens has the value 4, expected 0 to 3"},
           Row{of_lengths({-1, 1}), "input sequence_lens has the value -1, expected 0 to 3"},
           Row{given("LSTM", {attribute("hidden_size", 6)}), "attribute 'hidden_size' is 6, input R has shape [1,20,5]"},
           Row{given("LSTM", {attribute("clip", -1.0F)}), "attribute 'clip' is -1, it must be positive"},
           Row{given("LSTM", {attribute("direction", "sideways")}),
               "attribute 'direction' is 'sideways', expected forward, reverse, or bidirectional"},
           Row{given("LSTM", {attribute("activations", std::vector<std::string>{"Tanh"})}),
               "attribute 'activations' has 1 names, expected 3"},
           Row{given("RNN", {attribute("activations", std::vector<std::string>{"Swish"})}),
               "attribute 'activations' names 'Swish', known: Sigmoid"},
           Row{given("RNN", {attribute("activations", std::vector<std::string>{"ScaledTanh"})}),
               "attribute 'activation_alpha' has no value for ScaledTanh"},
           Row{given("RNN", {attribute("activation_alpha", Floats{1, 2})}), "attribute 'activation_alpha' has 2 values for 1 activations"},
           Row{given("GRU", {attribute("layout", 2)}), "attribute 'layout' is 2, expected 0 or 1"},
           Row{given("GRU", {attribute("layout", 1)}, 13), "unknown attribute 'layout'"},
           Row{given("GRU", {attribute("linear_before_reset", 1)}, 2), "unknown attribute 'linear_before_reset'"},
           Row{given("GRU", {attribute("input_forget", 1)}), "unknown attribute 'input_forget'"},
           Row{given("LSTM", {attribute("output_sequence", 1)}, 7), "unknown attribute 'output_sequence'"},
           Row{empty, "input X has shape [0,2,4], supported: at least one element"},
       }) {
    CAPTURE(row.refusal);
    CHECK_THAT(refusal(row.node.model()), Catch::Contains(row.refusal) && Catch::Contains("node #0 'n' (" + row.node.op));
  }
}

TEST_CASE("sequence lengths may be read by others too") {
  Recurrence node{"GRU", false, false, {"", "sequence_lens"}, {"sequence_lens"}};
  CHECK(refusal(node.model()) == "read");
  Model also_read = node.model();
  also_read.node("Identity", {"sequence_lens"}, {"copy"}).output("copy");
  CHECK(refusal(also_read) == "read");
  Model also_output = node.model();
  also_output.output("sequence_lens");
  CHECK(refusal(also_output) == "read");
}

}  // namespace tamp
