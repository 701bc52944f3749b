// Recurrent: cell by cell, each over its whole sequence. The input's share of the gates is one matrix product for all steps; the hidden
// state's share and the functions follow step by step. Small networks are computed in double (gemm.h says why).
//
// Odd: a sequence of a batch that is shorter than the longest keeps its state in the steps behind its end, and its y is zero there. The
// same rule is right for both directions: backwards those steps come first, and leave the initial state as it is. The states of a sequence
// of no steps are zero, without the initial state, as in onnxruntime, which tamp takes as the measure.
#include <algorithm>

#include "compiler/ops/functions.h"
#include "compiler/ops/gemm.h"
#include "compiler/ops/operator.h"
#include "compiler/support/error.h"
#include "compiler/support/text.h"

namespace tamp::ops {
namespace {

double apply(const CellFunction& f, double x) {
  switch (f.kind) {
    case CellFunctionKind::sigmoid: return sigmoid(x);
    case CellFunctionKind::tanh: return std::tanh(x);
    case CellFunctionKind::relu: return relu(x);
    case CellFunctionKind::affine: return f.a * x + f.b;
    case CellFunctionKind::leaky_relu: return leaky_relu(x, f.a);
    case CellFunctionKind::thresholded_relu: return x > f.a || std::isnan(x) ? x : 0.0;
    case CellFunctionKind::scaled_tanh: return f.a * std::tanh(f.b * x);
    case CellFunctionKind::hard_sigmoid: return hard_sigmoid<double>(x, f.a, f.b);
    case CellFunctionKind::elu: return elu(x, f.a);
    case CellFunctionKind::softsign: return x / (1.0 + std::fabs(x));
    case CellFunctionKind::softplus: return softplus(x);
  }
  TAMP_CHECK(false, "cell function out of range");
}

// The states that a cell leaves for others: y [T,B,H] and the last ones [B,H].
template <class T>
struct States {
  std::vector<T> y, h, c;
};

// The evaluation of one cell. Gates lie as [B, G*H]; `now` points to the gates of one step, which hold the input's share at first.
template <class T>
class CellRun {
 public:
  CellRun(const Call& call, const Recurrent& attrs, const RecurrentCell& cell, const std::vector<States<T>>& before)
      : call_(call), cell_(cell), batch_(attrs.batch), hidden_(cell.hidden), width_(gates_of(cell.kind) * cell.hidden) {
    r_ = numbers(cell.r, width_ * hidden_);
    bias_ = numbers(cell.bias, 2 * width_);
    peepholes_ = numbers(cell.peepholes, 3 * hidden_);
    if (cell.lengths >= 0) lengths_ = numbers(cell.lengths, batch_);
    states_.h = cell.h0_cell >= 0 ? before[index(cell.h0_cell)].h : numbers(cell.h0, batch_ * hidden_);
    states_.c = cell.c0_cell >= 0 ? before[index(cell.c0_cell)].c : numbers(cell.c0, batch_ * hidden_);
    forget_empty_sequences();
    input_gates(before);
  }

  States<T> run() {
    states_.y.assign(index(cell_.steps * batch_ * hidden_), T(0));
    for (int64_t s = 0; s < cell_.steps; ++s) step(cell_.reverse ? cell_.steps - 1 - s : s);
    return std::move(states_);
  }

 private:
  static size_t index(int64_t i) { return static_cast<size_t>(i); }

  // The values of operand `place`; zeros where there is none.
  std::vector<T> numbers(int32_t place, int64_t count) const {
    if (place < 0) return std::vector<T>(index(count), T(0));
    const Numbers<T> given(call_.input(index(place)));
    return std::vector<T>(given.data(), given.data() + count);
  }

  void forget_empty_sequences() {
    for (size_t b = 0; b < lengths_.size(); ++b) {
      if (lengths_[b] > 0) continue;
      std::fill_n(states_.h.begin() + static_cast<int64_t>(b) * hidden_, hidden_, T(0));
      std::fill_n(states_.c.begin() + static_cast<int64_t>(b) * hidden_, hidden_, T(0));
    }
  }

  void input_gates(const std::vector<States<T>>& before) {
    const int64_t rows = cell_.steps * batch_;
    if (cell_.x_is_gates) {
      gates_ = numbers(cell_.x, rows * width_);
      return;
    }
    const int64_t size = call_.input(index(cell_.w)).shape[1];
    const std::vector<T> x = cell_.x_cell >= 0 ? before[index(cell_.x_cell)].y : numbers(cell_.x, rows * size);
    const std::vector<T> w = numbers(cell_.w, width_ * size);
    gates_.resize(index(rows * width_));
    multiply(Matrix<const T>{x.data(), rows, size, size}, Matrix<const T>{w.data(), width_, size, size, true},
             Matrix<T>{gates_.data(), rows, width_, width_});
  }

  void step(int64_t t) {
    T* now = gates_.data() + t * batch_ * width_;
    std::vector<T> h(index(batch_ * hidden_)), c;
    if (cell_.kind == CellKind::lstm) {
      c = h;
      lstm_step(now, h.data(), c.data());
    } else if (cell_.kind == CellKind::gru) {
      gru_step(now, h.data());
    } else {
      rnn_step(now, h.data());
    }
    for (int64_t b = 0; b < batch_; ++b) {
      if (!lengths_.empty() && static_cast<T>(t) >= lengths_[index(b)]) continue;
      const auto from = h.begin() + b * hidden_;
      std::copy_n(from, hidden_, states_.y.begin() + (t * batch_ + b) * hidden_);
      std::copy_n(from, hidden_, states_.h.begin() + b * hidden_);
      if (!c.empty()) std::copy_n(c.begin() + b * hidden_, hidden_, states_.c.begin() + b * hidden_);
    }
  }

  // state [B,H] times the rows of R that belong to gates [first, first + count): [B, count*H].
  std::vector<T> recurrent_share(const std::vector<T>& state, int64_t first, int64_t count) const {
    const int64_t rows = count * hidden_;
    std::vector<T> share(index(batch_ * rows));
    multiply(Matrix<const T>{state.data(), batch_, hidden_, hidden_},
             Matrix<const T>{r_.data() + first * hidden_ * hidden_, rows, hidden_, hidden_, true},
             Matrix<T>{share.data(), batch_, rows, rows});
    return share;
  }

  double function(size_t which, double x) const {
    const double limit = cell_.clip;
    return apply(cell_.functions[which], limit > 0 ? clip<double>(x, -limit, limit) : x);
  }
  // onnxruntime does not clip the argument of an LSTM's h.
  double output_function(double c) const { return apply(cell_.functions[2], c); }
  double wb(int64_t gate, int64_t j) const { return bias_[index(gate * hidden_ + j)]; }
  double rb(int64_t gate, int64_t j) const { return bias_[index(width_ + gate * hidden_ + j)]; }
  double peephole(int64_t which, int64_t j) const { return peepholes_[index(which * hidden_ + j)]; }

  void lstm_step(const T* now, T* h, T* c) const {
    const std::vector<T> share = recurrent_share(states_.h, 0, 4);
    for (int64_t b = 0; b < batch_; ++b) {
      for (int64_t j = 0; j < hidden_; ++j) {
        const auto argument = [&](int64_t gate) {
          const int64_t at = b * width_ + gate * hidden_ + j;
          return double(now[at]) + double(share[index(at)]) + wb(gate, j) + rb(gate, j);
        };
        const double last = states_.c[index(b * hidden_ + j)];
        const double i = function(0, argument(0) + peephole(0, j) * last);
        const double f = cell_.input_forget ? 1.0 - i : function(0, argument(2) + peephole(2, j) * last);
        const double next = f * last + i * function(1, argument(3));
        const double o = function(0, argument(1) + peephole(1, j) * next);
        c[b * hidden_ + j] = static_cast<T>(next);
        h[b * hidden_ + j] = static_cast<T>(o * output_function(next));
      }
    }
  }

  void gru_step(const T* now, T* h) const {
    const bool linear = cell_.linear_before_reset;
    const int64_t early = linear ? 3 : 2;  // gates whose share does not wait for the reset gate
    const std::vector<T> share = recurrent_share(states_.h, 0, early);
    std::vector<T> z(index(batch_ * hidden_)), r = z, reset = z;
    for (int64_t b = 0; b < batch_; ++b) {
      for (int64_t j = 0; j < hidden_; ++j) {
        const auto gate = [&](int64_t g) {
          const double sum = double(now[b * width_ + g * hidden_ + j]) + double(share[index((b * early + g) * hidden_ + j)]);
          return static_cast<T>(function(0, sum + wb(g, j) + rb(g, j)));
        };
        const size_t at = index(b * hidden_ + j);
        z[at] = gate(0);
        r[at] = gate(1);
        reset[at] = r[at] * states_.h[at];
      }
    }
    const std::vector<T> late = linear ? std::vector<T>() : recurrent_share(reset, 2, 1);
    for (int64_t b = 0; b < batch_; ++b) {
      for (int64_t j = 0; j < hidden_; ++j) {
        const size_t at = index(b * hidden_ + j);
        const double own =
            linear ? double(r[at]) * (double(share[index((b * early + 2) * hidden_ + j)]) + rb(2, j)) : double(late[at]) + rb(2, j);
        const double fresh = function(1, double(now[b * width_ + 2 * hidden_ + j]) + own + wb(2, j));
        h[at] = static_cast<T>((1.0 - double(z[at])) * fresh + double(z[at]) * double(states_.h[at]));
      }
    }
  }

  void rnn_step(const T* now, T* h) const {
    const std::vector<T> share = recurrent_share(states_.h, 0, 1);
    for (int64_t b = 0; b < batch_; ++b) {
      for (int64_t j = 0; j < hidden_; ++j) {
        const int64_t at = b * hidden_ + j;
        h[at] = static_cast<T>(function(0, double(now[at]) + double(share[index(at)]) + wb(0, j) + rb(0, j)));
      }
    }
  }

  const Call& call_;
  const RecurrentCell& cell_;
  int64_t batch_, hidden_, width_;
  std::vector<T> r_, bias_, peepholes_, lengths_, gates_;
  States<T> states_;
};

template <class T>
std::vector<Value> run_cells(const Call& call, const Recurrent& attrs) {
  std::vector<Value> results(call.rop.outputs.size());
  const auto store = [&](int32_t place, const std::vector<T>& numbers) {
    if (place < 0) return;
    const Tensor& output = call.graph.tensor(call.rop.outputs[static_cast<size_t>(place)]);
    results[static_cast<size_t>(place)] = value_from(output.dtype, output.shape, numbers);
  };
  std::vector<States<T>> done;
  for (const RecurrentCell& cell : attrs.cells) {
    done.push_back(CellRun<T>(call, attrs, cell, done).run());
    store(cell.y, done.back().y);
    store(cell.y_h, done.back().h);
    store(cell.y_c, done.back().c);
  }
  return results;
}

// Of the largest cell: the others are about as large.
int64_t multiply_adds(const Call& call, const Recurrent& attrs) {
  int64_t most = 0;
  for (const RecurrentCell& cell : attrs.cells) {
    const int64_t inputs = cell.w >= 0 ? call.input(static_cast<size_t>(cell.w)).shape[1] : 0;
    most = std::max(most, cell.steps * attrs.batch * gates_of(cell.kind) * cell.hidden * (inputs + cell.hidden));
  }
  return most;
}

// The work of one cell, whose operands are there.
int64_t work_of_cell(const Given& given, const Recurrent& attrs, const RecurrentCell& cell) {
  constexpr int64_t kPerGate = 100, kPerStep = 2000;
  const auto elements = [&](int32_t place) { return place >= 0 ? given.elements(static_cast<size_t>(place)) : 0; };
  const int64_t per_row = elements(cell.r) + elements(cell.w) + kPerGate * gates_of(cell.kind) * cell.hidden;
  return saturating_product({cell.steps, saturating_sum(saturating_product({attrs.batch, per_row}), kPerStep)});
}

// One cell of a Recurrent: its operands, and the tensors that it makes.
class CellChecker {
 public:
  CellChecker(const Given& given, const Recurrent& attrs, size_t number)
      : given_(given), attrs_(attrs), cell_(attrs.cells[number]), number_(number), batch_(attrs.batch), hidden_(cell_.hidden) {}

  // Adds the types of the cell's results, each at its place.
  void check_all(std::vector<std::optional<TensorType>>& made) const {
    const RecurrentCell& cell = cell_;
    const int64_t rows = gates_of(cell.kind) * hidden_;
    const bool lstm = cell.kind == CellKind::lstm;
    check(cell.steps >= 0 && hidden_ > 0, "has " + std::to_string(cell.steps) + " steps of " + std::to_string(hidden_));
    check((cell.x >= 0) != (cell.x_cell >= 0), "has not one input");
    check(lstm || (cell.peepholes < 0 && cell.c0 < 0 && cell.c0_cell < 0 && cell.y_c < 0), "has what only an LSTM has");
    check((cell.h0 < 0 || cell.h0_cell < 0) && (cell.c0 < 0 || cell.c0_cell < 0), "has two initial states");
    check(cell.clip >= 0, "has a negative clip");
    operand("r", cell.r, {rows, hidden_}, true);
    operand("bias", cell.bias, {2 * rows});
    operand("peepholes", cell.peepholes, {3 * hidden_});
    operand("h0", cell.h0, {batch_, hidden_});
    operand("c0", cell.c0, {batch_, hidden_});
    check_lengths();
    check_input(rows);
    check_state(cell.h0_cell, false);
    check_state(cell.c0_cell, true);
    result("y", cell.y, {cell.steps, batch_, hidden_}, made);
    result("y_h", cell.y_h, {batch_, hidden_}, made);
    result("y_c", cell.y_c, {batch_, hidden_}, made);
  }

 private:
  void check(bool condition, const std::string& what) const {
    if (!condition) throw bad_input("cell {} {}", number_, what);
  }
  bool has(int32_t place) const { return place >= 0 && given_.has(static_cast<size_t>(place)); }
  const TensorType& type(int32_t place) const { return given_.type(static_cast<size_t>(place)); }

  void operand(const char* name, int32_t place, const Shape& shape, bool needed = false) const {
    check(place >= 0 || !needed, std::string("has no ") + name);
    if (place < 0) return;
    check(has(place), std::string("names an operand as ") + name + " that is missing");
    const TensorType& found = type(place);
    check(found.shape == shape, std::string("has a ") + name + " of " + shape_text(found.shape) + ", expected " + shape_text(shape));
    check(found.dtype == type(cell_.r).dtype, std::string("has a ") + name + " of type " + name_of(found.dtype));
  }

  void check_lengths() const {
    if (cell_.lengths < 0) return;
    check(has(cell_.lengths), "names an operand as lengths that is missing");
    const TensorType& lengths = type(cell_.lengths);
    check(lengths.dtype == DType::i32 && lengths.shape == Shape{batch_},
          std::string("has lengths ") + name_of(lengths.dtype) + shape_text(lengths.shape));
  }

  void check_input(int64_t rows) const {
    check(!cell_.x_is_gates || (cell_.x >= 0 && cell_.w < 0), "has gates as its input, but not as an operand alone");
    if (cell_.x_is_gates) return operand("x", cell_.x, {cell_.steps, batch_, rows}, true);
    check(has(cell_.w) && type(cell_.w).shape.size() == 2, "has no w");
    const int64_t size = type(cell_.w).shape[1];
    operand("w", cell_.w, {rows, size});
    operand("x", cell_.x, {cell_.steps, batch_, size});
    if (cell_.x_cell < 0) return;
    check(static_cast<size_t>(cell_.x_cell) < number_, "reads a cell behind it");
    const RecurrentCell& from = attrs_.cells[static_cast<size_t>(cell_.x_cell)];
    check(from.steps == cell_.steps && from.reverse == cell_.reverse && from.hidden == size, "does not fit the cell that it reads");
  }

  void check_state(int32_t from, bool of_lstm) const {
    if (from < 0) return;
    check(static_cast<size_t>(from) < number_, "begins at the state of a cell behind it");
    const RecurrentCell& other = attrs_.cells[static_cast<size_t>(from)];
    check(other.hidden == hidden_ && (!of_lstm || other.kind == CellKind::lstm), "does not fit the cell whose state it begins at");
  }

  void result(const char* name, int32_t place, const Shape& shape, std::vector<std::optional<TensorType>>& made) const {
    if (place < 0) return;
    const auto at = static_cast<size_t>(place);
    if (at >= made.size()) made.resize(at + 1);
    check(!made[at], std::string("makes no result of its own as ") + name);
    made[at] = TensorType{type(cell_.r).dtype, shape};
  }

  const Given& given_;
  const Recurrent& attrs_;
  const RecurrentCell& cell_;
  size_t number_;
  int64_t batch_, hidden_;
};

}  // namespace

TensorTypes infer(const Recurrent& op, const Given& given) {
  if (op.cells.empty() || op.batch < 0) throw bad_input("has no cells");
  std::vector<std::optional<TensorType>> made;
  for (size_t i = 0; i < op.cells.size(); ++i) CellChecker(given, op, i).check_all(made);
  TensorTypes results;
  for (const std::optional<TensorType>& result : made) {
    if (!result) throw bad_input("has an output that no cell makes");
    results.push_back(*result);
  }
  return results;
}

std::vector<Value> evaluate(const Recurrent& op, const Call& call) {
  if (in_double(call.output().dtype, multiply_adds(call, op))) return run_cells<double>(call, op);
  return run_cells<float>(call, op);
}

Traits traits_of(const Recurrent&) { return {Layout::row_major, InF32::all}; }

int64_t own_work(const Recurrent& op, const Given& given, const TensorTypes&) {
  int64_t work = 0;
  for (const RecurrentCell& cell : op.cells) work = saturating_sum(work, work_of_cell(given, op, cell));
  return work;
}

}  // namespace tamp::ops
