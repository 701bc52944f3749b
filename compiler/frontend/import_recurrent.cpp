// LSTM, GRU, and RNN -> Recurrent, one cell for each direction. The two directions of a bidirectional node share nothing but their
// input, so they become two rOperators, and ONNX's results are their results side by side.
//
// Odd: activation_alpha and activation_beta are no lists by position: each function that has such a number takes the next one, and
// those behind the end of the list have the defaults of the ONNX operators of their names.
#include <algorithm>
#include <array>
#include <cctype>

#include "compiler/frontend/importers.h"
#include "compiler/support/text.h"

namespace tamp::frontend {
namespace {

size_t functions_of(CellKind kind) { return kind == CellKind::lstm ? 3 : kind == CellKind::gru ? 2 : 1; }

struct FunctionRow {
  CellFunctionKind kind;
  std::optional<float> alpha, beta;  // the default of a number that the function has
  bool needs_numbers = false;        // has no defaults
};
constexpr std::array kFunctions = {
    FunctionRow{CellFunctionKind::sigmoid, {}, {}},
    FunctionRow{CellFunctionKind::tanh, {}, {}},
    FunctionRow{CellFunctionKind::relu, {}, {}},
    FunctionRow{CellFunctionKind::affine, 1.0F, 0.0F},
    FunctionRow{CellFunctionKind::leaky_relu, 0.01F, {}},
    FunctionRow{CellFunctionKind::thresholded_relu, 1.0F, {}},
    FunctionRow{CellFunctionKind::scaled_tanh, 0.0F, 0.0F, /*needs_numbers=*/true},
    FunctionRow{CellFunctionKind::hard_sigmoid, 0.2F, 0.5F},
    FunctionRow{CellFunctionKind::elu, 1.0F, {}},
    FunctionRow{CellFunctionKind::softsign, {}, {}},
    FunctionRow{CellFunctionKind::softplus, {}, {}},
};

// Exporters do not agree about capitals.
bool same_word(std::string_view a, std::string_view b) {
  const auto lower = [](char c) { return std::tolower(static_cast<unsigned char>(c)); };
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [&](char x, char y) { return lower(x) == lower(y); });
}

const FunctionRow& function_named(const NodeImport& n, const std::string& name) {
  std::vector<std::string> known;
  for (const FunctionRow& row : kFunctions) {
    if (same_word(name, name_of(row.kind))) return row;
    known.emplace_back(name_of(row.kind));
  }
  throw n.bad("attribute 'activations' names '{}', known: {}", printable(name), join(known, ", "));
}

// Hands out the values of activation_alpha or activation_beta.
class Numbers {
 public:
  Numbers(NodeImport& n, std::string_view name, size_t functions) : n_(n), name_(name), given_(n.find_floats(name).value_or(Floats())) {
    if (given_.size() <= functions) return;
    throw n.bad("attribute '{}' has {} values for {} activations", name, given_.size(), functions);
  }
  float next(std::optional<float> fallback, const FunctionRow& row) {
    if (!fallback) return 0;
    if (taken_ < given_.size()) return given_[taken_++];
    if (row.needs_numbers) throw n_.bad("attribute '{}' has no value for {}", name_, name_of(row.kind));
    return *fallback;
  }

 private:
  using Floats = std::vector<float>;
  NodeImport& n_;
  std::string_view name_;
  Floats given_;
  size_t taken_ = 0;
};

// f, g, h of every direction.
std::vector<std::array<CellFunction, 3>> read_functions(NodeImport& n, CellKind kind, size_t directions) {
  const size_t each = functions_of(kind);
  std::vector<std::array<CellFunction, 3>> functions(directions, default_functions(kind));
  Numbers alphas(n, "activation_alpha", directions * each), betas(n, "activation_beta", directions * each);
  const std::optional<std::vector<std::string>> names = n.find_strings("activations");
  if (!names) return functions;
  if (names->size() != directions * each)
    throw n.bad("attribute 'activations' has {} names, expected {}", names->size(), directions * each);
  for (size_t i = 0; i < names->size(); ++i) {
    const FunctionRow& row = function_named(n, (*names)[i]);
    const float alpha = alphas.next(row.alpha, row);
    functions[i / each][i % each] = {row.kind, alpha, betas.next(row.beta, row)};
  }
  return functions;
}

// Which way each direction of the node goes.
std::vector<bool> read_directions(NodeImport& n) {
  const std::string direction = n.attr_string("direction", "forward");
  if (direction == "forward" || direction == "foward") return {false};  // GRU 1 has the second as its default
  if (direction == "reverse") return {true};
  if (direction == "bidirectional") return {false, true};
  throw n.bad("attribute 'direction' is '{}', expected forward, reverse, or bidirectional", printable(direction));
}

bool is_zero(const ops::Value& value) {
  return std::all_of(value.data->begin(), value.data->end(), [](std::byte byte) { return byte == std::byte{0}; });
}

class RecurrentImport {
 public:
  RecurrentImport(NodeImport& n, CellKind kind) : n_(n), kind_(kind) {}

  void run() {
    const bool lstm = kind_ == CellKind::lstm;
    n_.expect_counts(3, lstm ? 8 : 6, lstm ? 3 : 2);
    read_attributes();
    read_sizes();
    read_lengths();
    for (size_t d = 0; d < reverse_.size(); ++d) emit_direction(static_cast<int64_t>(d));
    for (size_t k = 0; k < 3; ++k) {
      if (n_.wants(k)) n_.result(k, join_directions(k));
    }
  }

 private:
  enum Input : size_t { kX, kW, kR, kB, kLengths, kH0, kC0, kP };

  int64_t directions() const { return static_cast<int64_t>(reverse_.size()); }

  void read_attributes() {
    reverse_ = read_directions(n_);
    functions_ = read_functions(n_, kind_, reverse_.size());
    cell_.kind = kind_;
    if (const std::optional<float> clip = n_.find_float("clip")) {
      if (!(*clip > 0)) throw n_.bad("attribute 'clip' is {}, it must be positive", *clip);
      cell_.clip = *clip;
    }
    if (kind_ == CellKind::lstm) cell_.input_forget = n_.attr_int("input_forget", 0) != 0;
    if (kind_ == CellKind::gru && n_.version() >= 3) cell_.linear_before_reset = n_.attr_int("linear_before_reset", 0) != 0;
    if (n_.version() >= 14) batch_first_ = n_.attr_flag("layout", false);
    if (n_.version() < 7) n_.ignore("output_sequence");  // what is wanted is seen from the outputs
  }

  void read_sizes() {
    x_ = n_.in(kX);
    const Shape x = n_.shape(x_), r = n_.shape(n_.in(kR));
    if (x.size() != 3)
      throw n_.bad("input X has shape {}, expected [{}]", shape_text(x), batch_first_ ? "batch,steps,size" : "steps,batch,size");
    if (element_count(x) == 0) throw n_.refuse("input X has shape {}, supported: at least one element", shape_text(x));
    cell_.steps = x[batch_first_ ? 1 : 0];
    batch_ = x[batch_first_ ? 0 : 1];
    if (r.size() != 3 || r[2] < 1) throw n_.bad("input R has shape {}, expected [directions,gates,hidden]", shape_text(r));
    cell_.hidden = r[2];
    const std::optional<int64_t> hidden = n_.find_int("hidden_size");
    if (hidden && *hidden != cell_.hidden) throw n_.bad("attribute 'hidden_size' is {}, input R has shape {}", *hidden, shape_text(r));
    const int64_t rows = gates_of(kind_) * cell_.hidden;
    const Shape state = batch_first_ ? Shape{batch_, directions(), cell_.hidden} : Shape{directions(), batch_, cell_.hidden};
    expect(kR, "R", {directions(), rows, cell_.hidden});
    expect(kW, "W", {directions(), rows, x[2]});
    expect(kB, "B", {directions(), 2 * rows});
    expect(kH0, "initial_h", state);
    expect(kC0, "initial_c", state);
    expect(kP, "P", {directions(), 3 * cell_.hidden});
    if (batch_first_) x_ = swap_first_two(x_);
  }

  void expect(size_t i, const char* name, const Shape& shape) const {
    if (!n_.has(i)) return;
    n_.expect_float({n_.in(kX), n_.in(i)});
    const Shape found = n_.shape(n_.in(i));
    if (found == shape) return;
    throw n_.bad("input {} has shape {}, expected {} for {} and X {}", name, shape_text(found), shape_text(shape),
                 directions() == 1 ? "one direction" : "two directions", shape_text(n_.shape(n_.in(kX))));
  }

  // Lengths that are known are checked, and left out where they say nothing.
  void read_lengths() {
    if (!n_.has(kLengths)) return;
    const TensorId id = n_.in(kLengths);
    if (n_.dtype(id) != DType::i32) throw n_.bad("input sequence_lens is {}, expected i32", name_of(n_.dtype(id)));
    if (n_.shape(id) != Shape{batch_}) throw n_.bad("input sequence_lens has shape {}, expected [{}]", shape_text(n_.shape(id)), batch_);
    lengths_ = id;
    if (!n_.is_constant(id)) return;
    const Ints lengths = n_.flat_ints(id);
    for (const int64_t length : lengths) {
      if (length < 0 || length > cell_.steps) throw n_.bad("input sequence_lens has the value {}, expected 0 to {}", length, cell_.steps);
    }
    const auto is_whole = [&](int64_t length) { return length == cell_.steps; };
    if (std::all_of(lengths.begin(), lengths.end(), is_whole)) lengths_ = TensorId();
  }

  TensorId swap_first_two(TensorId id) { return n_.add(Transpose{{1, 0, 2}}, {id}); }

  // Part d of operand i along the directions; none if it is left out or known to be zeros.
  TensorId part(size_t i, int64_t d) {
    if (!n_.has(i)) return TensorId();
    const bool is_state = i == kH0 || i == kC0;
    TensorId id = is_state && batch_first_ ? swap_first_two(n_.in(i)) : n_.in(i);
    id = n_.part(id, d);
    return n_.is_constant(id) && is_zero(n_.value(id)) && i != kW && i != kR ? TensorId() : id;
  }

  void emit_direction(int64_t d) {
    RecurrentCell cell = cell_;
    cell.reverse = reverse_[static_cast<size_t>(d)];
    cell.functions = functions_[static_cast<size_t>(d)];
    std::vector<TensorId> inputs;
    const auto place = [&](TensorId id) -> int32_t {
      if (id.valid()) inputs.push_back(id);
      return id.valid() ? static_cast<int32_t>(inputs.size()) - 1 : -1;
    };
    cell.x = place(x_);
    cell.w = place(part(kW, d));
    cell.r = place(part(kR, d));
    cell.bias = place(part(kB, d));
    cell.peepholes = place(part(kP, d));
    cell.lengths = place(lengths_);
    cell.h0 = place(part(kH0, d));
    cell.c0 = place(part(kC0, d));

    int32_t results = 0;
    for (size_t k = 0; k < 3; ++k) {
      if (n_.wants(k)) (k == 0 ? cell.y : k == 1 ? cell.y_h : cell.y_c) = results++;
    }
    if (results == 0) return;
    const char* suffix = directions() == 1 ? "" : cell.reverse ? ".reverse" : ".forward";
    const std::vector<TensorId> made = n_.add_all(Recurrent{batch_, {cell}}, inputs, suffix);
    for (size_t k = 0, next = 0; k < 3; ++k) {
      if (n_.wants(k)) results_[k].push_back(made[next++]);
    }
  }

  // Result k in ONNX's shape: the directions along a dimension of their own.
  TensorId join_directions(size_t k) {
    const int64_t axis = k == 0 ? (batch_first_ ? 2 : 1) : (batch_first_ ? 1 : 0);
    std::vector<TensorId> parts;
    for (const TensorId id : results_[k]) {
      const TensorId turned = k == 0 && batch_first_ ? swap_first_two(id) : id;
      Shape shape = n_.shape(turned);
      Ints kept;
      for (int64_t d = 0; d < n_.rank(turned); ++d) kept.push_back(d < axis ? d : d + 1);
      shape.insert(shape.begin() + axis, 1);
      parts.push_back(n_.reshape(turned, shape, kept));
    }
    return parts.size() == 1 ? parts[0] : n_.add(Concat{axis}, parts);
  }

  NodeImport& n_;
  CellKind kind_;
  RecurrentCell cell_;  // what the directions have in common
  std::vector<bool> reverse_;
  std::vector<std::array<CellFunction, 3>> functions_;
  bool batch_first_ = false;
  int64_t batch_ = 0;
  TensorId x_, lengths_;
  std::array<std::vector<TensorId>, 3> results_;
};

}  // namespace

void import_recurrent(NodeImport& n, CellKind kind) { RecurrentImport(n, kind).run(); }

}  // namespace tamp::frontend
