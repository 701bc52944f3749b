// The shape rule of every operator, as checks on a finished graph: what the frontend and the passes must have got right,
// and what the reference relies on to stay inside its operands. A user's mistakes are found at import, so all failures
// here are bugs in tamp.
#include <algorithm>

#include "compiler/ops/call.h"
#include "compiler/support/text.h"

namespace tamp::ops {
namespace {

// The operands' shapes of one rOperator, and checks that name it.
struct Checker {
  const Graph& graph;
  const ROperator& rop;

  void check(bool condition, const std::string& what) const { TAMP_CHECK(condition, where(rop) + ": " + what); }
  const Tensor& input(size_t i) const { return graph.tensor(rop.inputs[i]); }
  const Shape& shape(size_t i) const { return input(i).shape; }
  const Tensor& output() const { return graph.tensor(rop.outputs[0]); }
  bool has(size_t i) const { return i < rop.inputs.size() && rop.inputs[i].valid(); }

  void inputs(size_t least, size_t most) const {
    check(rop.inputs.size() >= least && rop.inputs.size() <= most, "has " + std::to_string(rop.inputs.size()) + " inputs");
    for (size_t i = 0; i < least; ++i) check(has(i), "input " + std::to_string(i) + " is missing");
  }
  void expect(const Shape& expected) const {
    check(output().shape == expected, "output is " + shape_text(output().shape) + ", expected " + shape_text(expected));
  }
  Shape joint(const Shape& a, const Shape& b) const {
    const std::optional<Shape> shape = joint_shape(a, b);
    check(shape.has_value(), "shapes " + shape_text(a) + " and " + shape_text(b) + " do not broadcast");
    return *shape;
  }
  void same_dtype() const {
    check(output().dtype == input(0).dtype, std::string("output is ") + name_of(output().dtype) + ", input " + name_of(input(0).dtype));
  }
  void per_dimension(size_t count, size_t rank, const char* attribute) const {
    check(count == rank, std::string("attribute '") + attribute + "' has " + std::to_string(count) + " entries for " +
                             std::to_string(rank) + " dimensions");
  }
};

bool broadcasts_to(const Shape& from, const Shape& to) {
  if (from.size() > to.size()) return false;
  const size_t shift = to.size() - from.size();
  for (size_t d = 0; d < from.size(); ++d) {
    if (from[d] != 1 && from[d] != to[d + shift]) return false;
  }
  return true;
}

// What Conv and Pool have in common: one or two spatial dimensions, one entry of every attribute for each.
template <class ConvOrPool>
void check_window(const Checker& c, const ConvOrPool& attrs) {
  const size_t rank = c.shape(0).size();
  c.check(rank == 3 || rank == 4, "input has shape " + shape_text(c.shape(0)) + ", supported: one or two spatial dimensions");
  c.check(c.output().shape.size() == rank, "output has shape " + shape_text(c.output().shape));
  c.per_dimension(attrs.kernel.size(), rank - 2, "kernel");
  c.per_dimension(attrs.strides.size(), rank - 2, "strides");
  c.per_dimension(attrs.dilations.size(), rank - 2, "dilations");
  c.per_dimension(attrs.pads_begin.size(), rank - 2, "pads_begin");
  c.per_dimension(attrs.pads_end.size(), rank - 2, "pads_end");
  for (size_t d = 0; d < rank - 2; ++d) {
    c.check(attrs.kernel[d] > 0 && attrs.strides[d] > 0 && attrs.dilations[d] > 0, "kernel, stride or dilation is not positive");
  }
}

// Free positions of the window along dimension d of x, besides the first; negative if it does not fit at all.
template <class ConvOrPool>
int64_t room(const Shape& x, const ConvOrPool& attrs, size_t d) {
  return x[d + 2] + attrs.pads_begin[d] + attrs.pads_end[d] - (attrs.kernel[d] - 1) * attrs.dilations[d] - 1;
}

// What a convolution of x to `channels` gives.
template <class ConvOrPrologue>
Shape convolved(const Checker& c, const Shape& x, const ConvOrPrologue& attrs, int64_t channels) {
  Shape out{x[0], channels};
  for (size_t d = 0; d < attrs.kernel.size(); ++d) {
    c.check(room(x, attrs, d) >= 0, "the kernel is larger than the padded input");
    out.push_back(room(x, attrs, d) / attrs.strides[d] + 1);
  }
  return out;
}

// What the Conv's own product multiplies: X, or the depthwise convolution of it.
Shape multiplied_shape(const Checker& c, const Conv& attrs) {
  const Shape& x = c.shape(0);
  c.check(attrs.depthwise.has_value() == c.has(kDepthwiseWeights), "depthwise weights without a depthwise prologue, or none with one");
  if (!attrs.depthwise) {
    c.check(!c.has(kDepthwiseBias), "a depthwise bias without a depthwise prologue");
    return x;
  }
  check_window(c, *attrs.depthwise);
  c.check(is_pointwise(attrs), "a depthwise prologue of a Conv that is not pointwise");
  Shape weights{x[1], 1};
  weights.insert(weights.end(), attrs.depthwise->kernel.begin(), attrs.depthwise->kernel.end());
  c.check(c.shape(kDepthwiseWeights) == weights,
          "depthwise weights are " + shape_text(c.shape(kDepthwiseWeights)) + ", expected " + shape_text(weights));
  if (c.has(kDepthwiseBias)) c.check(c.shape(kDepthwiseBias) == Shape{x[1]}, "depthwise bias is " + shape_text(c.shape(kDepthwiseBias)));
  return convolved(c, x, *attrs.depthwise, x[1]);
}

void check_shapes(const Checker& c, const Conv& attrs) {
  c.inputs(2, kDepthwiseBias + 1);
  c.same_dtype();
  check_window(c, attrs);
  const Shape x = multiplied_shape(c, attrs);
  const Shape& w = c.shape(1);
  c.check(attrs.group > 0, "group is " + std::to_string(attrs.group));
  c.check(w.size() == x.size() && w[1] * attrs.group == x[1] && w[0] % attrs.group == 0,
          "weights " + shape_text(w) + " do not fit input " + shape_text(x) + " in " + std::to_string(attrs.group) + " groups");
  c.check(std::equal(attrs.kernel.begin(), attrs.kernel.end(), w.begin() + 2), "weights " + shape_text(w) + " do not fit the kernel");
  if (c.has(2)) c.check(c.shape(2) == Shape{w[0]}, "bias is " + shape_text(c.shape(2)));
  c.expect(convolved(c, x, attrs, w[0]));
}

void check_shapes(const Checker& c, const Pool& attrs) {
  c.inputs(1, 1);
  c.same_dtype();
  check_window(c, attrs);
  const Shape& y = c.output().shape;
  c.check(y[0] == c.shape(0)[0] && y[1] == c.shape(0)[1], "output is " + shape_text(y) + " of input " + shape_text(c.shape(0)));
  for (size_t d = 0; d < attrs.kernel.size(); ++d) {
    const int64_t stride = attrs.strides[d];
    const int64_t least = room(c.shape(0), attrs, d) < 0 ? 0 : room(c.shape(0), attrs, d) / stride + 1;
    const int64_t most = std::max<int64_t>(0, room(c.shape(0), attrs, d) + stride - 1) / stride + 1;  // with ceil_mode
    c.check(y[d + 2] >= least && y[d + 2] <= most, "output is " + shape_text(y));
  }
}

void check_shapes(const Checker& c, const MatMul& attrs) {
  c.inputs(2, 3);
  c.same_dtype();
  const Shape &a = c.shape(0), &b = c.shape(1);
  c.check(a.size() >= 2 && b.size() >= 2, "operands " + shape_text(a) + " and " + shape_text(b) + " are not matrices");
  const auto rows = [](const Shape& s, bool trans) { return trans ? s.back() : s[s.size() - 2]; };
  c.check(rows(a, !attrs.trans_a) == rows(b, attrs.trans_b), "operands " + shape_text(a) + " and " + shape_text(b));
  Shape expected = c.joint(Shape(a.begin(), a.end() - 2), Shape(b.begin(), b.end() - 2));
  expected.push_back(rows(a, attrs.trans_a));
  expected.push_back(rows(b, !attrs.trans_b));
  c.expect(expected);
  if (c.has(2)) c.check(broadcasts_to(c.shape(2), expected), "operand C is " + shape_text(c.shape(2)));
}

void check_shapes(const Checker& c, const Reduce& attrs) {
  c.inputs(1, 1);
  c.same_dtype();
  Shape expected;
  size_t next = 0;
  for (size_t d = 0; d < c.shape(0).size(); ++d) {
    const bool reduced = next < attrs.axes.size() && attrs.axes[next] == static_cast<int64_t>(d);
    if (reduced) ++next;
    if (!reduced) expected.push_back(c.shape(0)[d]);
    if (reduced && attrs.keepdims) expected.push_back(1);
  }
  c.check(next == attrs.axes.size(), "axes " + shape_text(attrs.axes) + " of input " + shape_text(c.shape(0)));
  c.expect(expected);
}

void check_shapes(const Checker& c, const Softmax& attrs) {
  c.inputs(1, 1);
  c.expect(c.shape(0));
  c.check(attrs.first_axis >= 0 && attrs.first_axis <= attrs.last_axis && attrs.last_axis < static_cast<int64_t>(c.shape(0).size()),
          "axes " + shape_text({attrs.first_axis, attrs.last_axis}) + " of input " + shape_text(c.shape(0)));
}

void check_shapes(const Checker& c, const Lrn& attrs) {
  c.inputs(1, 1);
  c.check(c.shape(0).size() >= 2 && attrs.size > 0, "size " + std::to_string(attrs.size) + ", input " + shape_text(c.shape(0)));
  c.expect(c.shape(0));
}

void check_shapes(const Checker& c, const BatchNorm&) {
  c.inputs(5, 5);
  c.check(c.shape(0).size() >= 2, "input is " + shape_text(c.shape(0)));
  for (size_t i = 1; i < 5; ++i)
    c.check(c.shape(i) == Shape{c.shape(0)[1]}, "operand " + std::to_string(i) + " is " + shape_text(c.shape(i)));
  c.expect(c.shape(0));
}

void check_shapes(const Checker& c, const Elementwise& attrs) {
  c.inputs(c.rop.inputs.size(), c.rop.inputs.size());  // none may be absent
  c.check(!attrs.steps.empty(), "no steps");
  Shape joint;
  for (size_t i = 0; i < c.rop.inputs.size(); ++i) joint = c.joint(joint, c.shape(i));
  bool expands = false;  // identity may repeat its input to a larger output
  for (size_t s = 0; s < attrs.steps.size(); ++s) {
    const ElementwiseStep& step = attrs.steps[s];
    expands = expands || step.op == ElementwiseOp::identity;
    c.check(static_cast<int>(step.operands.size()) == arity_of(step.op),
            std::string(name_of(step.op)) + " has the wrong number of operands");
    for (const int32_t v : step.operands) {
      const bool known = v >= 0 ? static_cast<size_t>(v) < c.rop.inputs.size() : static_cast<size_t>(-1 - v) < s;
      c.check(known, "step " + std::to_string(s) + " uses operand " + std::to_string(v));
    }
  }
  if (!expands) return c.expect(joint);
  c.check(broadcasts_to(joint, c.output().shape), "output is " + shape_text(c.output().shape) + " of " + shape_text(joint));
}

void check_shapes(const Checker& c, const Reshape&) {
  c.inputs(1, 1);
  c.same_dtype();
  c.check(element_count(c.shape(0)) == element_count(c.output().shape),
          "output is " + shape_text(c.output().shape) + " of input " + shape_text(c.shape(0)));
}

void check_shapes(const Checker& c, const Transpose& attrs) {
  c.inputs(1, 1);
  c.same_dtype();
  c.per_dimension(attrs.perm.size(), c.shape(0).size(), "perm");
  std::vector<int64_t> sorted = attrs.perm;
  std::sort(sorted.begin(), sorted.end());
  Shape expected;
  for (size_t d = 0; d < sorted.size(); ++d) {
    c.check(sorted[d] == static_cast<int64_t>(d), "perm " + shape_text(attrs.perm) + " is no permutation");
    expected.push_back(c.shape(0)[static_cast<size_t>(attrs.perm[d])]);
  }
  c.expect(expected);
}

void check_shapes(const Checker& c, const Slice& attrs) {
  c.inputs(1, 1);
  c.same_dtype();
  const Shape &x = c.shape(0), &y = c.output().shape;
  c.per_dimension(attrs.starts.size(), x.size(), "starts");
  c.per_dimension(attrs.steps.size(), x.size(), "steps");
  c.per_dimension(y.size(), x.size(), "output");
  const bool empty = element_count(y) == 0;  // nothing is read, so starts may lie anywhere
  for (size_t d = 0; d < x.size(); ++d) {
    c.check(attrs.steps[d] != 0, "step 0");
    const int64_t last = attrs.starts[d] + (y[d] - 1) * attrs.steps[d];
    c.check(empty || (attrs.starts[d] >= 0 && attrs.starts[d] < x[d] && last >= 0 && last < x[d]),
            "output " + shape_text(y) + " leaves input " + shape_text(x));
  }
}

void check_shapes(const Checker& c, const Concat& attrs) {
  c.inputs(1, c.rop.inputs.size());
  Shape expected = c.shape(0);
  const size_t axis = static_cast<size_t>(attrs.axis);
  c.check(attrs.axis >= 0 && axis < expected.size(), "axis " + std::to_string(attrs.axis) + " of " + shape_text(expected));
  expected[axis] = 0;
  for (size_t i = 0; i < c.rop.inputs.size(); ++i) {
    c.check(c.has(i) && c.input(i).dtype == c.output().dtype, "input " + std::to_string(i) + " is missing or of another type");
    Shape other = c.shape(i);
    c.check(other.size() == expected.size(), "inputs " + shape_text(c.shape(0)) + " and " + shape_text(other));
    expected[axis] += other[axis];
    other[axis] = expected[axis];
    c.check(other == expected, "inputs " + shape_text(c.shape(0)) + " and " + shape_text(c.shape(i)));
  }
  c.expect(expected);
}

void check_shapes(const Checker& c, const Pad& attrs) {
  c.inputs(1, 1);
  c.same_dtype();
  const Shape& x = c.shape(0);
  c.per_dimension(attrs.before.size(), x.size(), "before");
  c.per_dimension(attrs.after.size(), x.size(), "after");
  Shape expected;
  for (size_t d = 0; d < x.size(); ++d) {
    const int64_t left = x[d] + std::min<int64_t>(0, attrs.before[d]) + std::min<int64_t>(0, attrs.after[d]);
    expected.push_back(x[d] + attrs.before[d] + attrs.after[d]);
    c.check(left >= 0 && (left > 0 || attrs.mode == PadMode::constant || expected[d] == 0), "pads of input " + shape_text(x));
  }
  c.expect(expected);
}

void check_shapes(const Checker& c, const Gather& attrs) {
  c.inputs(2, 2);
  c.same_dtype();
  const Shape& x = c.shape(0);
  c.check(attrs.axis >= 0 && attrs.axis < static_cast<int64_t>(x.size()), "axis " + std::to_string(attrs.axis) + " of " + shape_text(x));
  c.check(c.input(1).dtype == DType::i32 || c.input(1).dtype == DType::i64, std::string("indices are ") + name_of(c.input(1).dtype));
  Shape expected(x.begin(), x.begin() + attrs.axis);
  expected.insert(expected.end(), c.shape(1).begin(), c.shape(1).end());
  expected.insert(expected.end(), x.begin() + attrs.axis + 1, x.end());
  c.expect(expected);
}

// One cell of a Recurrent: its operands, and the tensors that it makes.
class CellChecker {
 public:
  CellChecker(const Checker& c, const Recurrent& attrs, size_t number)
      : c_(c), attrs_(attrs), cell_(attrs.cells[number]), number_(number), batch_(attrs.batch), hidden_(cell_.hidden) {}

  // Marks the results that it makes.
  void check_all(std::vector<bool>& made) const {
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
  void check(bool condition, const std::string& what) const { c_.check(condition, "cell " + std::to_string(number_) + " " + what); }

  void operand(const char* name, int32_t place, const Shape& shape, bool needed = false) const {
    check(place >= 0 || !needed, std::string("has no ") + name);
    if (place < 0) return;
    check(c_.has(static_cast<size_t>(place)), std::string("names an operand as ") + name + " that is missing");
    const Tensor& found = c_.input(static_cast<size_t>(place));
    check(found.shape == shape, std::string("has a ") + name + " of " + shape_text(found.shape) + ", expected " + shape_text(shape));
    check(found.dtype == c_.output().dtype, std::string("has a ") + name + " of type " + name_of(found.dtype));
  }

  void check_lengths() const {
    if (cell_.lengths < 0) return;
    check(c_.has(static_cast<size_t>(cell_.lengths)), "names an operand as lengths that is missing");
    const Tensor& lengths = c_.input(static_cast<size_t>(cell_.lengths));
    check(lengths.dtype == DType::i32 && lengths.shape == Shape{batch_},
          std::string("has lengths ") + name_of(lengths.dtype) + shape_text(lengths.shape));
  }

  void check_input(int64_t rows) const {
    check(!cell_.x_is_gates || (cell_.x >= 0 && cell_.w < 0), "has gates as its input, but not as an operand alone");
    if (cell_.x_is_gates) return operand("x", cell_.x, {cell_.steps, batch_, rows}, true);
    check(cell_.w >= 0 && c_.has(static_cast<size_t>(cell_.w)) && c_.shape(static_cast<size_t>(cell_.w)).size() == 2, "has no w");
    const int64_t size = c_.shape(static_cast<size_t>(cell_.w))[1];
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

  void result(const char* name, int32_t place, const Shape& shape, std::vector<bool>& made) const {
    if (place < 0) return;
    const auto at = static_cast<size_t>(place);
    check(at < made.size() && !made[at], std::string("makes no result of its own as ") + name);
    made[at] = true;
    const Tensor& found = c_.graph.tensor(c_.rop.outputs[at]);
    check(found.shape == shape && found.dtype == c_.output().dtype,
          std::string("makes a ") + name + " of " + name_of(found.dtype) + shape_text(found.shape) + ", expected " + shape_text(shape));
  }

  const Checker& c_;
  const Recurrent& attrs_;
  const RecurrentCell& cell_;
  size_t number_;
  int64_t batch_, hidden_;
};

void check_shapes(const Checker& c, const Recurrent& attrs) {
  c.check(!attrs.cells.empty() && attrs.batch >= 0, "has no cells");
  std::vector<bool> made(c.rop.outputs.size(), false);
  for (size_t i = 0; i < attrs.cells.size(); ++i) CellChecker(c, attrs, i).check_all(made);
  c.check(std::all_of(made.begin(), made.end(), [](bool one) { return one; }), "has an output that no cell makes");
}

void check_epilogue(const Checker& c) {
  const Epilogue& epilogue = c.rop.epilogue;
  const Shape& y = c.output().shape;
  if (epilogue.bias.valid()) {
    const Shape& bias = c.graph.tensor(epilogue.bias).shape;
    const bool last = std::holds_alternative<MatMul>(c.rop.attrs);
    c.check(y.size() >= 2 && element_count(bias) == (last ? y.back() : y[1]),
            "epilogue bias " + shape_text(bias) + " for " + shape_text(y));
  }
  if (!epilogue.residual.valid()) return;
  const Shape& residual = c.graph.tensor(epilogue.residual).shape;
  c.check(residual == y, "epilogue residual " + shape_text(residual) + " for " + shape_text(y));
}

}  // namespace

void verify_shapes(const Graph& graph, const ROperator& rop) {
  const bool one = rop.outputs.size() == 1 || std::holds_alternative<Recurrent>(rop.attrs);
  TAMP_CHECK(one && rop.outputs[0].valid(), where(rop) + ": has not one output");
  const Checker checker{graph, rop};
  std::visit([&](const auto& attrs) { check_shapes(checker, attrs); }, rop.attrs);  // a missing overload does not compile
  check_epilogue(checker);
}

}  // namespace tamp::ops
