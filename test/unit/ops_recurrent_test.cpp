// The reference of Recurrent against ONNX's equations, written down here once more without any of its shortcuts: sequence by
// sequence, each cut to its own length and, for the reverse direction, turned around. Then what joins cells, and the shape rules.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "compiler/ops/ops.h"
#include "compiler/support/error.h"
#include "test/support/catch.h"
#include "test/support/graph_text.h"

namespace tamp {
namespace {

using Numbers = std::vector<double>;
using test::parse_graph;

// Numbers in (-1, 1) that depend on the seed alone.
Numbers varied(int64_t count, uint32_t seed) {
  Numbers numbers;
  for (int64_t i = 0; i < count; ++i) {
    seed = seed * 1664525U + 1013904223U;
    numbers.push_back(static_cast<double>(static_cast<float>(static_cast<int32_t>(seed >> 8) - (1 << 23)) / static_cast<float>(1 << 23)));
  }
  return numbers;
}

TensorId constant(Graph& graph, const std::string& name, const Shape& shape, const Numbers& numbers) {
  return add_f32_constant(graph, name, shape, std::vector<float>(numbers.begin(), numbers.end()));
}

Numbers numbers_of(const ops::Value& value) {
  std::vector<float> floats(value.data->size() / sizeof(float));
  if (!floats.empty()) std::memcpy(floats.data(), value.data->data(), value.data->size());
  return Numbers(floats.begin(), floats.end());
}

void check_close(const Numbers& found, const Numbers& expected) {
  REQUIRE(found.size() == expected.size());
  for (size_t i = 0; i < found.size(); ++i) {
    CAPTURE(i, found[i], expected[i]);
    CHECK(std::abs(found[i] - expected[i]) < 1e-5);
  }
}

struct Setting {
  const char* name;
  CellKind kind = CellKind::lstm;
  int64_t steps = 1, batch = 1, inputs = 1, hidden = 1;
  bool reverse = false, linear_before_reset = false, input_forget = false;
  float clip = 0;
  bool has_bias = false, has_peepholes = false, has_state = false;
  std::vector<int32_t> lengths = {};  // empty: none
};

struct Operands {
  Numbers x, w, r, bias, peepholes, h0, c0;

  explicit Operands(const Setting& s) {
    const int64_t rows = gates_of(s.kind) * s.hidden;
    x = varied(s.steps * s.batch * s.inputs, 1);
    w = varied(rows * s.inputs, 2);
    r = varied(rows * s.hidden, 3);
    for (double& weight : r)
      weight = static_cast<float>(weight / std::sqrt(static_cast<double>(s.hidden)));  // else errors grow from step to step
    bias = s.has_bias ? varied(2 * rows, 4) : Numbers(static_cast<size_t>(2 * rows), 0);
    peepholes = s.has_peepholes ? varied(3 * s.hidden, 5) : Numbers(static_cast<size_t>(3 * s.hidden), 0);
    h0 = s.has_state ? varied(s.batch * s.hidden, 6) : Numbers(static_cast<size_t>(s.batch * s.hidden), 0);
    c0 = s.has_state ? varied(s.batch * s.hidden, 7) : Numbers(static_cast<size_t>(s.batch * s.hidden), 0);
  }
};

struct Results {
  Numbers y, y_h, y_c;
};

// One step of one sequence, by ONNX's equations with their default functions.
struct PlainCell {
  const Setting& s;
  const Operands& o;

  double product(const Numbers& matrix, int64_t row, const Numbers& vector) const {
    double sum = 0;
    for (size_t k = 0; k < vector.size(); ++k) sum += matrix[static_cast<size_t>(row) * vector.size() + k] * vector[k];
    return sum;
  }
  double clipped(double v) const { return s.clip > 0 ? std::clamp<double>(v, -s.clip, s.clip) : v; }
  double sigmoid(double v) const { return 1 / (1 + std::exp(-clipped(v))); }
  double tanh(double v) const { return std::tanh(clipped(v)); }
  double wb(int64_t row) const { return o.bias[static_cast<size_t>(row)]; }
  double rb(int64_t row) const { return o.bias[static_cast<size_t>(gates_of(s.kind) * s.hidden + row)]; }

  void step(const Numbers& x, Numbers& h, Numbers& c) const {
    const Numbers last = h;
    const auto gate = [&](int64_t g, int64_t j) {
      const int64_t row = g * s.hidden + j;
      return product(o.w, row, x) + product(o.r, row, last) + wb(row) + rb(row);
    };
    for (int64_t j = 0; j < s.hidden; ++j) {
      const auto at = static_cast<size_t>(j), wide = static_cast<size_t>(s.hidden);
      if (s.kind == CellKind::rnn) {
        h[at] = tanh(gate(0, j));
      } else if (s.kind == CellKind::lstm) {
        const double i = sigmoid(gate(0, j) + o.peepholes[at] * c[at]);
        const double f = s.input_forget ? 1 - i : sigmoid(gate(2, j) + o.peepholes[2 * wide + at] * c[at]);
        c[at] = f * c[at] + i * tanh(gate(3, j));
        h[at] = sigmoid(gate(1, j) + o.peepholes[wide + at] * c[at]) * std::tanh(c[at]);
      } else {
        const int64_t row = 2 * s.hidden + j;
        Numbers reset = last;
        for (int64_t k = 0; k < s.hidden; ++k) reset[static_cast<size_t>(k)] *= sigmoid(gate(1, k));
        const double own =
            s.linear_before_reset ? sigmoid(gate(1, j)) * (product(o.r, row, last) + rb(row)) : product(o.r, row, reset) + rb(row);
        const double z = sigmoid(gate(0, j)), fresh = tanh(product(o.w, row, x) + own + wb(row));
        h[at] = (1 - z) * fresh + z * last[at];
      }
    }
  }
};

Results plain_results(const Setting& s, const Operands& o) {
  Results results;
  results.y.assign(static_cast<size_t>(s.steps * s.batch * s.hidden), 0);
  for (int64_t b = 0; b < s.batch; ++b) {
    const int64_t length = s.lengths.empty() ? s.steps : s.lengths[static_cast<size_t>(b)];
    Numbers h(o.h0.begin() + b * s.hidden, o.h0.begin() + (b + 1) * s.hidden);
    Numbers c(o.c0.begin() + b * s.hidden, o.c0.begin() + (b + 1) * s.hidden);
    if (length == 0) h.assign(h.size(), 0), c.assign(c.size(), 0);  // as onnxruntime has it
    for (int64_t i = 0; i < length; ++i) {
      const int64_t t = s.reverse ? length - 1 - i : i;
      const auto from = o.x.begin() + (t * s.batch + b) * s.inputs;
      PlainCell{s, o}.step(Numbers(from, from + s.inputs), h, c);
      std::copy(h.begin(), h.end(), results.y.begin() + (t * s.batch + b) * s.hidden);
    }
    results.y_h.insert(results.y_h.end(), h.begin(), h.end());
    results.y_c.insert(results.y_c.end(), c.begin(), c.end());
  }
  return results;
}

Graph graph_of(const Setting& s, const Operands& o) {
  Graph graph;
  ROperator rop;
  rop.name = "cell";
  RecurrentCell cell;
  cell.kind = s.kind;
  cell.steps = s.steps;
  cell.hidden = s.hidden;
  cell.reverse = s.reverse;
  cell.linear_before_reset = s.linear_before_reset;
  cell.input_forget = s.input_forget;
  cell.clip = s.clip;
  cell.functions = default_functions(s.kind);
  const auto place = [&](bool present, TensorId id) {
    if (present) rop.inputs.push_back(id);
    return present ? static_cast<int32_t>(rop.inputs.size()) - 1 : -1;
  };
  const int64_t rows = gates_of(s.kind) * s.hidden;
  const bool lstm = s.kind == CellKind::lstm;
  cell.x = place(true, constant(graph, "x", {s.steps, s.batch, s.inputs}, o.x));
  cell.w = place(true, constant(graph, "w", {rows, s.inputs}, o.w));
  cell.r = place(true, constant(graph, "r", {rows, s.hidden}, o.r));
  cell.bias = place(s.has_bias, constant(graph, "b", {2 * rows}, o.bias));
  cell.peepholes = place(s.has_peepholes, constant(graph, "p", {3 * s.hidden}, o.peepholes));
  cell.h0 = place(s.has_state, constant(graph, "h0", {s.batch, s.hidden}, o.h0));
  cell.c0 = place(s.has_state && lstm, constant(graph, "c0", {s.batch, s.hidden}, o.c0));
  Bytes lengths(s.lengths.size() * sizeof(int32_t));
  if (!lengths.empty()) std::memcpy(lengths.data(), s.lengths.data(), lengths.size());
  cell.lengths = place(!s.lengths.empty(), s.lengths.empty() ? TensorId() : add_constant(graph, "n", DType::i32, {s.batch}, lengths));
  const auto result = [&](const char* name, const Shape& shape) {
    Tensor tensor;
    tensor.name = name;
    tensor.shape = shape;
    rop.outputs.push_back(add_tensor(graph, tensor));
    return static_cast<int32_t>(rop.outputs.size()) - 1;
  };
  cell.y = result("y", {s.steps, s.batch, s.hidden});
  cell.y_h = result("y_h", {s.batch, s.hidden});
  if (lstm) cell.y_c = result("y_c", {s.batch, s.hidden});
  rop.attrs = Recurrent{s.batch, {cell}};
  graph.outputs = rop.outputs;
  graph.rops.push_back(rop);
  return graph;
}

std::vector<Numbers> run(const std::string& text) {
  std::vector<Numbers> results;
  for (const ops::Value& value : ops::run(parse_graph(text), {})) results.push_back(numbers_of(value));
  return results;
}

}  // namespace

TEST_CASE("every kind of cell computes ONNX's equations") {
  constexpr CellKind lstm = CellKind::lstm, gru = CellKind::gru, rnn = CellKind::rnn;
  const auto s = GENERATE_COPY(values<Setting>({
      {"smallest lstm", lstm},
      {"smallest gru", gru},
      {"smallest rnn", rnn},
      {"lstm", lstm, 5, 3, 4, 7},
      {"gru", gru, 5, 3, 4, 7},
      {"rnn", rnn, 5, 3, 4, 7},
      {"lstm with everything", lstm, 6, 4, 3, 5, true, false, false, 0.4F, true, true, true, {6, 1, 3, 5}},
      {"lstm whose gates are coupled", lstm, 4, 2, 3, 5, false, false, true, 0, true, true, true},
      {"lstm with a narrow clip", lstm, 4, 1, 9, 3, false, false, false, 0.1F, true, false, true},
      {"reverse lstm", lstm, 4, 1, 2, 3, true},
      {"lstm of short sequences", lstm, 4, 3, 2, 3, false, false, false, 0, false, false, true, {2, 4, 0}},
      {"gru that resets before", gru, 4, 2, 3, 5, false, true, false, 0.7F, true, false, true},
      {"reverse gru of short sequences", gru, 4, 3, 2, 3, true, true, false, 0, true, false, true, {1, 4, 2}},
      {"gru that resets behind", gru, 7, 1, 2, 3, true, false, false, 0, true, false, true},
      {"reverse rnn of short sequences", rnn, 3, 2, 2, 3, true, false, false, 0.5F, true, false, true, {1, 3}},
  }));
  CAPTURE(s.name);
  const Operands operands(s);
  const Results expected = plain_results(s, operands);
  const std::vector<ops::Value> found = ops::run(graph_of(s, operands), {});
  check_close(numbers_of(found.at(0)), expected.y);
  check_close(numbers_of(found.at(1)), expected.y_h);
  if (s.kind == CellKind::lstm) check_close(numbers_of(found.at(2)), expected.y_c);
}

TEST_CASE("a large network is computed in fp32 with the same result") {
  const Setting s{"large", CellKind::lstm, 60, 2, 200, 256, false, false, false, 0, true, false, true};
  const Operands operands(s);
  const std::vector<ops::Value> found = ops::run(graph_of(s, operands), {});
  check_close(numbers_of(found.at(0)), plain_results(s, operands).y);
}

TEST_CASE("the functions of a cell are those of ONNX") {
  // An rnn of one step whose argument is x, at x = -2, -0.5, 0, 0.5, 2.
  struct Row {
    const char* function;
    Numbers values;
  };
  for (const Row& row : {
           Row{"Sigmoid:0:0", {0.1192029, 0.3775407, 0.5, 0.6224593, 0.8807971}},
           Row{"Tanh:0:0", {-0.9640276, -0.4621172, 0, 0.4621172, 0.9640276}},
           Row{"Relu:0:0", {0, 0, 0, 0.5, 2}},
           Row{"Affine:3:1", {-5, -0.5, 1, 2.5, 7}},
           Row{"LeakyRelu:0.1:0", {-0.2, -0.05, 0, 0.5, 2}},
           Row{"ThresholdedRelu:0.5:0", {0, 0, 0, 0, 2}},
           Row{"ScaledTanh:2:0.5", {-1.5231883, -0.4898373, 0, 0.4898373, 1.5231883}},
           Row{"HardSigmoid:0.25:0.5", {0, 0.375, 0.5, 0.625, 1}},
           Row{"Elu:2:0", {-1.7293294, -0.7869387, 0, 0.5, 2}},
           Row{"Softsign:0:0", {-0.6666667, -0.3333333, 0, 0.3333333, 0.6666667}},
           Row{"Softplus:0:0", {0.1269280, 0.4740770, 0.6931472, 0.9740770, 2.1269280}},
       }) {
    CAPTURE(row.function);
    check_close(run(R"(
      x = const f32[1,5,1] {-2, -0.5, 0, 0.5, 2}
      one = const f32[1,1] {1}
      y = Recurrent(x, one, one) {batch=5, cell=[kind=RNN steps=1 hidden=1 functions=)" +
                    std::string(row.function) + R"(/Sigmoid:0:0/Sigmoid:0:0 x=0 w=1 r=2 y=0]} -> f32[1,5,1]
      outputs(y))")[0],
                row.values);
  }
}

TEST_CASE("each gate takes the function that ONNX gives it") {
  // Affine functions with different numbers show which one was applied: with x = 1 and weights 1, every argument is 1.
  const std::vector<Numbers> lstm = run(R"(
    x = const f32[1,1,1] {1}
    w = const f32[4,1] {1, 1, 1, 1}
    r = const f32[4,1]
    c0 = const f32[1,1] {10}
    y, y_c = Recurrent(x, w, r, c0) {batch=1, cell=[kind=LSTM steps=1 hidden=1 functions=Affine:2:0/Affine:3:0/Affine:5:0 x=0 w=1 r=2 c0=3 y=0 y_c=1]} -> f32[1,1,1], f32[1,1]
    outputs(y, y_c))");
  check_close(lstm[1], {2 * 10 + 2 * 3});
  check_close(lstm[0], {2 * 5 * 26});
  const std::vector<Numbers> gru = run(R"(
    x = const f32[1,1,1] {1}
    w = const f32[3,1] {1, 1, 1}
    r = const f32[3,1] {0, 0, 1}
    h0 = const f32[1,1] {10}
    y_h = Recurrent(x, w, r, h0) {batch=1, cell=[kind=GRU steps=1 hidden=1 functions=Affine:2:0/Affine:3:0/Sigmoid:0:0 x=0 w=1 r=2 h0=3 y_h=0]} -> f32[1,1]
    outputs(y_h))");
  check_close(gru[0], {(1 - 2) * 3 * (1 + 2 * 10) + 2 * 10});
}

TEST_CASE("cells that are joined compute what they compute apart") {
  const std::string operands = R"(
    x = const f32[4,2,3]
    z = const f32[5,2,2]
    w = const f32[20,3]
    r = const f32[20,5]
    b = const f32[40]
    v = const f32[15,5]
    u = const f32[15,5]
    p = const f32[5,2]
    q = const f32[5,5]
    n = const i32[2] {4, 2}
  )";
  const std::vector<Numbers> apart = run(operands + R"(
    y1, h1 = Recurrent(x, w, r, b, n) {batch=2, cell=[kind=LSTM steps=4 hidden=5 x=0 w=1 r=2 bias=3 lengths=4 y=0 y_h=1]} -> f32[4,2,5], f32[2,5]
    y2, h2 = Recurrent(y1, v, u) {batch=2, cell=[kind=GRU steps=4 hidden=5 x=0 w=1 r=2 y=0 y_h=1]} -> f32[4,2,5], f32[2,5]
    y3 = Recurrent(z, p, q, h2) {batch=2, cell=[kind=RNN steps=5 hidden=5 x=0 w=1 r=2 h0=3 y=0]} -> f32[5,2,5]
    outputs(y3, h1, y2))");
  const std::vector<Numbers> joined = run(operands + R"(
    y3, h1, y2 = Recurrent(x, w, r, b, n, v, u, z, p, q) {batch=2, cell=[kind=LSTM steps=4 hidden=5 x=0 w=1 r=2 bias=3 lengths=4 y_h=1], cell=[kind=GRU steps=4 hidden=5 x_cell=0 w=5 r=6 y=2], cell=[kind=RNN steps=5 hidden=5 x=7 w=8 r=9 h0_cell=1 y=0]} -> f32[5,2,5], f32[2,5], f32[4,2,5]
    outputs(y3, h1, y2))");
  for (size_t i = 0; i < 3; ++i) check_close(joined[i], apart[i]);
}

TEST_CASE("a decoder begins at both states of its encoder") {
  const std::vector<Numbers> results = run(R"(
    x = const f32[3,1,2]
    w = const f32[8,2]
    r = const f32[8,2]
    a, h, c = Recurrent(x, w, r) {batch=1, cell=[kind=LSTM steps=3 hidden=2 x=0 w=1 r=2 y=0 y_h=1 y_c=2]} -> f32[3,1,2], f32[1,2], f32[1,2]
    apart = Recurrent(x, w, r, h, c) {batch=1, cell=[kind=LSTM steps=3 hidden=2 x=0 w=1 r=2 h0=3 c0=4 y=0]} -> f32[3,1,2]
    joined = Recurrent(x, w, r) {batch=1, cell=[kind=LSTM steps=3 hidden=2 x=0 w=1 r=2], cell=[kind=LSTM steps=3 hidden=2 x=0 w=1 r=2 h0_cell=0 c0_cell=0 y=0]} -> f32[3,1,2]
    outputs(apart, joined))");
  check_close(results[1], results[0]);
}

TEST_CASE("gates that were computed ahead give what the weights give") {
  for (const char* kind : {"kind=GRU", "kind=GRU linear_before_reset=1"}) {
    const std::string text = R"(
      x = const f32[4,2,3]
      w = const f32[15,3]
      wt = Transpose(w) {perm=[1,0]} -> f32[3,15]
      r = const f32[15,5]
      wb = const f32[15]
      rb = const f32[15]
      zeros = const f32[1] {0}
      none15 = Elementwise(rb, zeros) {mul(i0, i1)} -> f32[15]
      both = Concat(wb, rb) {axis=0} -> f32[30]
      own = Concat(none15, rb) {axis=0} -> f32[30]
      ahead = MatMul(x, wt) -> f32[4,2,15]
      gates = Elementwise(ahead, wb) {add(i0, i1)} -> f32[4,2,15]
      a = Recurrent(x, w, r, both) {batch=2, cell=[KIND steps=4 hidden=5 x=0 w=1 r=2 bias=3 y=0]} -> f32[4,2,5]
      b = Recurrent(gates, r, own) {batch=2, cell=[KIND steps=4 hidden=5 x=0 x_is_gates=1 r=1 bias=2 y=0]} -> f32[4,2,5]
      outputs(a, b))";
    std::string filled = text;
    for (size_t at = filled.find("KIND"); at != std::string::npos; at = filled.find("KIND", at + 1)) filled.replace(at, 4, kind);
    const std::vector<Numbers> results = run(filled);
    check_close(results[1], results[0]);
  }
}

TEST_CASE("a sequence ends at its length, whatever the length says") {
  const std::vector<Numbers> results = run(R"(
    x = const f32[2,3,1]
    w = const f32[1,1]
    n = const i32[3] {-5, 1, 99}
    h0 = const f32[3,1] {7, 8, 9}
    y, h = Recurrent(x, w, w, n, h0) {batch=3, cell=[kind=RNN steps=2 hidden=1 x=0 w=1 r=2 lengths=3 h0=4 y=0 y_h=1]} -> f32[2,3,1], f32[3,1]
    outputs(y, h))");
  CHECK(results[0][0] == 0);
  CHECK(results[0][3] == 0);
  CHECK(results[1][0] == 0);  // no steps: not the initial state
  CHECK(results[0][4] == 0);
  CHECK(results[1][1] == results[0][1]);
  CHECK(results[1][2] == results[0][5]);
}

TEST_CASE("a Recurrent whose parts do not fit is a bug that the shape rules find") {
  const std::string operands = R"(
    x = input f32[4,2,3]
    d = input f64[4,2,3]
    w = const f32[20,3]
    r = const f32[20,5]
    v = const f32[20,5]
    b = const f32[20]
    n = const i32[3]
    h = const f32[2,4]
  )";
  struct Row {
    const char *rop, *message;
  };
  for (const Row& row : {
           Row{"y = Recurrent(x, w, r) {batch=2} -> f32[4,2,5]", "has no cells"},
           Row{"y = Recurrent(x, w, r) {batch=2, cell=[kind=LSTM steps=4 hidden=5 x=0 w=1 r=2 y=0]} -> f32[4,2,6]",
               "output 0 is f32[4,2,6], expected f32[4,2,5]"},
           Row{"y = Recurrent(x, w, r) {batch=3, cell=[kind=LSTM steps=4 hidden=5 x=0 w=1 r=2 y=0]} -> f32[4,3,5]", "has a x of [4,2,3]"},
           Row{"y = Recurrent(x, w, r) {batch=2, cell=[kind=GRU steps=4 hidden=5 x=0 w=1 r=2 y=0]} -> f32[4,2,5]", "has a r of [20,5]"},
           Row{"y = Recurrent(x, w, r) {batch=2, cell=[kind=LSTM steps=4 hidden=5 w=1 r=2 y=0]} -> f32[4,2,5]", "has not one input"},
           Row{"y = Recurrent(x, w, r) {batch=2, cell=[kind=LSTM steps=4 hidden=5 x=0 r=2 y=0]} -> f32[4,2,5]", "has no w"},
           Row{"y = Recurrent(x, w, r) {batch=2, cell=[kind=LSTM steps=4 hidden=5 x=0 w=1 y=0]} -> f32[4,2,5]", "has no r"},
           Row{"y = Recurrent(x, w, r) {batch=2, cell=[kind=LSTM steps=4 hidden=5 x=0 w=9 r=2 y=0]} -> f32[4,2,5]", "has no w"},
           Row{"y = Recurrent(d, w, r) {batch=2, cell=[kind=LSTM steps=4 hidden=5 x=0 w=1 r=2 y=0]} -> f32[4,2,5]", "x of type f64"},
           Row{"y = Recurrent(x, w, r, b) {batch=2, cell=[kind=LSTM steps=4 hidden=5 x=0 w=1 r=2 bias=3 y=0]} -> f32[4,2,5]",
               "bias of [20]"},
           Row{"y = Recurrent(x, w, r, h) {batch=2, cell=[kind=LSTM steps=4 hidden=5 x=0 w=1 r=2 h0=3 y=0]} -> f32[4,2,5]", "h0 of [2,4]"},
           Row{"y = Recurrent(x, w, r, n) {batch=2, cell=[kind=LSTM steps=4 hidden=5 x=0 w=1 r=2 lengths=3 y=0]} -> f32[4,2,5]",
               "lengths i32[3]"},
           Row{"y = Recurrent(x, w, r, v) {batch=2, cell=[kind=LSTM steps=4 hidden=5 x=0 w=1 r=2], cell=[kind=LSTM steps=4 hidden=5 "
               "reverse=1 "
               "x_cell=0 w=3 r=3 y=0]} -> f32[4,2,5]",
               "cell 1 does not fit the cell that it reads"},
           Row{"y = Recurrent(x, w, r, v) {batch=2, cell=[kind=LSTM steps=4 hidden=5 x_cell=0 w=3 r=3 y=0]} -> f32[4,2,5]",
               "a cell behind it"},
           Row{"y, z = Recurrent(x, w, r) {batch=2, cell=[kind=LSTM steps=4 hidden=5 x=0 w=1 r=2 y=0]} -> f32[4,2,5], f32[2,5]",
               "has 2 outputs, expected 1"},
           Row{"y = Recurrent(x, w, r) {batch=2, cell=[kind=LSTM steps=4 hidden=5 x=0 w=1 r=2 y=1]} -> f32[4,2,5]", "no cell makes"},
           Row{"y = Recurrent(x, w, r) {batch=2, cell=[kind=LSTM steps=4 hidden=5 x=0 w=1 r=2 y=0 y_h=0]} -> f32[4,2,5]",
               "no result of its own"},
       }) {
    CAPTURE(row.rop);
    const Graph graph = parse_graph(operands + row.rop + "\noutputs(y)");
    CHECK_THROWS_WITH(ops::verify_shapes(graph), Catch::Contains(row.message));
  }
}

}  // namespace tamp
