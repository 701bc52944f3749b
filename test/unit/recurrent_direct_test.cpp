// The body of the recurrent_direct family against the reference: every kind of cell and every feature of one, at sizes that fit
// nothing, over the stand-in. See test/kernels/light_bench.h for what else is checked (reads and writes of every rTask).
#include <bit>
#include <cstdlib>

#include "kernels/catalogue.h"
#include "test/kernels/light_bench.h"
#include "test/support/case_folder.h"
#include "test/support/catch.h"

namespace tamp::test {
namespace {

// Which optional operands and results there are.
enum Part : uint32_t { kBias = 1, kH0 = 2, kC0 = 4, kPeepholes = 8, kY = 16, kYH = 32, kYC = 64 };
constexpr uint32_t kAll = kBias | kH0 | kC0 | kPeepholes | kY | kYH | kYC;

struct CellCase {
  std::string name;
  CellKind kind;
  int64_t steps, batch, input, hidden;
  uint32_t parts = kAll;
  std::vector<int32_t> lengths = {};  // empty: none
  Lay lay = Lay::rows;
  bool constant_weights = false;
  std::function<void(RecurrentCell&)> set = [](RecurrentCell&) {};  // the cell's attributes
};

bool has(const CellCase& c, Part part) {
  if (c.kind != CellKind::lstm && (part == kC0 || part == kYC || part == kPeepholes)) return false;
  return (c.parts & part) != 0;
}

// A f32 operand of small whole numbers, said to be i32.
TensorId add_lengths(CaseMaker& maker, const CellCase& c) {
  std::vector<float> bits;
  for (const int32_t length : c.lengths) bits.push_back(std::bit_cast<float>(length));
  return maker.input({c.batch}, c.lay, bits);
}

Case made(const CellCase& c) {
  CaseMaker maker(c.name);
  RecurrentCell cell;
  cell.kind = c.kind;
  cell.steps = c.steps;
  cell.hidden = c.hidden;
  cell.functions = default_functions(c.kind);
  c.set(cell);
  const int64_t rows = gates_of(c.kind) * c.hidden;
  std::vector<TensorId> inputs, outputs;
  const auto in = [&](TensorId id) { return inputs.push_back(id), static_cast<int32_t>(inputs.size()) - 1; };
  const auto weight = [&](const Shape& shape) { return in(c.constant_weights ? maker.constant(shape, c.lay) : maker.input(shape, c.lay)); };
  const auto out = [&](const Shape& shape) {
    outputs.push_back(maker.output(shape, c.lay));
    return static_cast<int32_t>(outputs.size()) - 1;
  };
  cell.x = in(maker.input({c.steps, c.batch, cell.x_is_gates ? rows : c.input}, c.lay));
  if (!cell.x_is_gates) cell.w = weight({rows, c.input});
  cell.r = weight({rows, c.hidden});
  if (has(c, kBias)) cell.bias = weight({2 * rows});
  if (has(c, kPeepholes)) cell.peepholes = weight({3 * c.hidden});
  if (!c.lengths.empty()) cell.lengths = in(add_lengths(maker, c));
  if (has(c, kH0)) cell.h0 = in(maker.input({c.batch, c.hidden}, c.lay));
  if (has(c, kC0)) cell.c0 = in(maker.input({c.batch, c.hidden}, c.lay));
  if (has(c, kY)) cell.y = out({c.steps, c.batch, c.hidden});
  if (has(c, kYH)) cell.y_h = out({c.batch, c.hidden});
  if (has(c, kYC)) cell.y_c = out({c.batch, c.hidden});
  Case result = maker.finish(Recurrent{c.batch, {cell}}, inputs, outputs[0]);
  result.graph.rops[0].outputs = result.graph.outputs = outputs;
  if (cell.lengths >= 0) {
    const TensorId lengths = inputs[static_cast<size_t>(cell.lengths)];
    result.graph.tensor(lengths).dtype = result.values[lengths.index()].dtype = DType::i32;
  }
  return result;
}

void expect_no_problems(const std::vector<CellCase>& table, const std::string& name) {
  std::vector<Case> cases;
  for (const CellCase& c : table) cases.push_back(made(c));
  const std::filesystem::path root = std::filesystem::absolute(__FILE__).parent_path().parent_path().parent_path();
  const CaseFolder folder("tamp_recurrent_direct_" + name);
  CHECK(join(run_cases(cases, {kernels::family("recurrent_direct")}, root, folder.path()), "\n") == "");
}

const auto kBackwards = [](RecurrentCell& cell) { cell.reverse = true; };
const auto kLinear = [](RecurrentCell& cell) { cell.linear_before_reset = true; };
const auto kLinearBackwards = [](RecurrentCell& cell) { cell.linear_before_reset = cell.reverse = true; };
const auto kGates = [](RecurrentCell& cell) { cell.x_is_gates = true; };
const auto kLinearGates = [](RecurrentCell& cell) { cell.x_is_gates = cell.linear_before_reset = true; };
const auto kForget = [](RecurrentCell& cell) { cell.input_forget = true; };
const auto kClip = [](RecurrentCell& cell) { cell.clip = 0.4F; };
const auto kLinearClip = [](RecurrentCell& cell) { cell.linear_before_reset = true, cell.clip = 0.4F; };

TEST_CASE("lstm cells agree with the reference") {
  const CellKind lstm = CellKind::lstm;
  expect_no_problems({{"one element", lstm, 1, 1, 1, 1},
                      {"odd", lstm, 9, 3, 7, 33},
                      {"groups of four", lstm, 5, 2, 36, 68},
                      {"groups of four, constant weights", lstm, 3, 1, 132, 64, kAll, {}, Lay::rows, true},
                      {"input odd only", lstm, 3, 2, 7, 8},
                      {"hidden odd only", lstm, 3, 2, 8, 3},
                      {"nothing optional, y", lstm, 4, 2, 3, 7, kY},
                      {"nothing optional, last h", lstm, 4, 2, 3, 7, kYH},
                      {"nothing optional, last c", lstm, 4, 2, 3, 7, kYC},
                      {"backwards", lstm, 7, 2, 4, 5, kAll, {}, Lay::rows, false, kBackwards},
                      {"lengths", lstm, 5, 3, 4, 5, kAll, {3, 0, 5}},
                      {"lengths backwards", lstm, 5, 3, 4, 5, kAll, {3, 0, 5}, Lay::rows, false, kBackwards},
                      {"lengths out of range", lstm, 4, 3, 4, 5, kAll, {-7, 2000000000, 1}},
                      {"lengths, last states only", lstm, 5, 3, 4, 5, kYH | kYC, {3, 1, 5}},
                      {"channels last", lstm, 3, 2, 8, 12, kAll, {}, Lay::channels_last},
                      {"slices", lstm, 3, 2, 8, 12, kAll, {2, 3}, Lay::slice, true},
                      {"every stride negative", lstm, 3, 2, 8, 12, kAll, {2, 3}, Lay::reversed, false, kBackwards},
                      {"input is gates", lstm, 3, 2, 1, 7, kAll, {}, Lay::rows, true, kGates},
                      {"input is gates, slices", lstm, 3, 2, 1, 7, kAll, {}, Lay::slice, false, kGates},
                      {"input and forget coupled", lstm, 4, 2, 3, 5, kAll, {}, Lay::rows, false, kForget},
                      {"clip", lstm, 4, 2, 3, 5, kAll, {}, Lay::rows, false, kClip},
                      {"more elements than threads", lstm, 2, 1, 3, 301}},
                     "lstm");
}

TEST_CASE("gru cells agree with the reference") {
  const CellKind gru = CellKind::gru;
  expect_no_problems({{"one element", gru, 1, 1, 1, 1},
                      {"odd", gru, 9, 3, 7, 33},
                      {"odd, linear", gru, 9, 3, 7, 33, kAll, {}, Lay::rows, false, kLinear},
                      {"groups of four", gru, 5, 2, 36, 68, kAll, {}, Lay::rows, true},
                      {"groups of four, linear", gru, 5, 2, 36, 68, kAll, {}, Lay::rows, true, kLinear},
                      {"nothing optional, y", gru, 4, 2, 3, 7, kY},
                      {"nothing optional, last h, linear", gru, 4, 2, 3, 7, kYH, {}, Lay::rows, false, kLinear},
                      {"lengths", gru, 5, 3, 4, 5, kAll, {3, 0, 5}},
                      {"lengths backwards, linear", gru, 5, 3, 4, 5, kAll, {3, 0, 5}, Lay::rows, false, kLinearBackwards},
                      {"slices", gru, 3, 2, 8, 12, kAll, {2, 3}, Lay::slice, true},
                      {"every stride negative", gru, 3, 2, 8, 12, kAll, {2, 3}, Lay::reversed, false, kLinearBackwards},
                      {"input is gates", gru, 3, 2, 1, 7, kAll, {}, Lay::rows, true, kGates},
                      {"input is gates, linear", gru, 3, 2, 1, 7, kAll, {}, Lay::rows, true, kLinearGates},
                      {"clip", gru, 4, 2, 3, 5, kAll, {}, Lay::rows, false, kClip},
                      {"clip, linear", gru, 4, 2, 3, 5, kAll, {}, Lay::rows, false, kLinearClip},
                      {"more elements than threads", gru, 2, 1, 3, 301}},
                     "gru");
}

TEST_CASE("rnn cells agree with the reference") {
  const CellKind rnn = CellKind::rnn;
  expect_no_problems({{"one element", rnn, 1, 1, 1, 1},
                      {"odd", rnn, 9, 3, 7, 33},
                      {"groups of four", rnn, 5, 2, 36, 68, kAll, {}, Lay::rows, true},
                      {"nothing optional, y", rnn, 4, 2, 3, 7, kY},
                      {"lengths backwards", rnn, 5, 3, 4, 5, kAll, {3, 0, 5}, Lay::rows, false, kBackwards},
                      {"slices", rnn, 3, 2, 8, 12, kAll, {2, 3}, Lay::slice},
                      {"every stride negative", rnn, 3, 2, 8, 12, kAll, {}, Lay::reversed},
                      {"input is gates", rnn, 3, 2, 1, 7, kAll, {}, Lay::rows, true, kGates},
                      {"clip", rnn, 4, 2, 3, 5, kAll, {}, Lay::rows, false, kClip}},
                     "rnn");
}

TEST_CASE("every activation agrees with the reference in every place") {
  const std::vector<CellFunction> functions = {{CellFunctionKind::sigmoid, 0, 0},
                                               {CellFunctionKind::tanh, 0, 0},
                                               {CellFunctionKind::relu, 0, 0},
                                               {CellFunctionKind::affine, 0.6F, 0.1F},
                                               {CellFunctionKind::leaky_relu, 0.2F, 0},
                                               {CellFunctionKind::thresholded_relu, 0.3F, 0},
                                               {CellFunctionKind::scaled_tanh, 0.7F, 1.3F},
                                               {CellFunctionKind::hard_sigmoid, 0.25F, 0.4F},
                                               {CellFunctionKind::elu, 0.8F, 0},
                                               {CellFunctionKind::softsign, 0, 0},
                                               {CellFunctionKind::softplus, 0, 0}};
  std::vector<CellCase> table;
  for (size_t i = 0; i < functions.size(); ++i) {
    const std::array<CellFunction, 3> three = {functions[i], functions[(i + 1) % functions.size()], functions[(i + 2) % functions.size()]};
    const auto set = [three](RecurrentCell& cell) { cell.functions = three; };
    const std::string name = name_of(functions[i].kind);
    table.push_back({"lstm " + name, CellKind::lstm, 3, 2, 3, 5, kAll, {}, Lay::rows, false, set});
    table.push_back({"gru " + name, CellKind::gru, 3, 2, 3, 5, kAll, {}, Lay::rows, false, set});
    table.push_back({"rnn " + name, CellKind::rnn, 3, 2, 3, 5, kAll, {}, Lay::rows, false, set});
  }
  expect_no_problems(table, "functions");
}

std::vector<RKernel> offers(const Case& c, const ShapedVDevice& vdevice) {
  return kernels::candidates_of(kernels::family("recurrent_direct"), {c.graph, c.graph.rops[0], vdevice, Precision::fp32});
}

TEST_CASE("a state that does not fit shared memory is refused") {
  const ShapedVDevice vdevice = small_vdevice();
  const int64_t fits = vdevice.work_bytes() / 4 / 6 / 4 * 4;  // h, c and four gates
  CHECK(offers(made({"fits", CellKind::lstm, 1, 1, 1, fits}), vdevice).size() == 1);
  CHECK(offers(made({"too large", CellKind::lstm, 1, 1, 1, fits + 4}), vdevice).empty());
  CHECK(offers(made({"fits without gates", CellKind::rnn, 1, 1, 1, fits + 4}), vdevice).size() == 1);
}

TEST_CASE("what is not one cell of f32 is refused") {
  Case two = made({"two cells", CellKind::rnn, 2, 1, 3, 3});
  Recurrent& recurrent = std::get<Recurrent>(two.graph.rops[0].attrs);
  recurrent.cells.push_back(recurrent.cells[0]);
  CHECK(offers(two, small_vdevice()).empty());

  Case half = made({"f16", CellKind::rnn, 2, 1, 3, 3});
  half.graph.tensor(half.graph.rops[0].inputs[0]).dtype = DType::f16;
  CHECK(offers(half, small_vdevice()).empty());

  Case wide = made({"i64 lengths", CellKind::rnn, 2, 1, 3, 3, kAll, {2}});
  const RecurrentCell& cell = std::get<Recurrent>(wide.graph.rops[0].attrs).cells[0];
  wide.graph.tensor(wide.graph.rops[0].inputs[static_cast<size_t>(cell.lengths)]).dtype = DType::i64;
  CHECK(offers(wide, small_vdevice()).empty());

  CHECK(offers(made({"one cell", CellKind::rnn, 2, 1, 3, 3}), small_vdevice()).size() == 1);
}

}  // namespace
}  // namespace tamp::test
