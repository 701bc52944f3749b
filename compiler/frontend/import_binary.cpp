// Functions whose row in kernels/shared/functions.h is all that is needed, and functions of two or more operands, with numpy's
// broadcasting. Before version 7 broadcasting followed the attributes `broadcast` and `axis`: B is reshaped first, then the same.
#include <array>
#include <limits>

#include "compiler/frontend/importers.h"
#include "compiler/support/text.h"

namespace tamp::frontend {
namespace {

struct Pair {
  TensorId a, b;
};

// B's dimensions lie at A's from `axis` on (by default at A's last ones).
TensorId align_old_style(NodeImport& n, TensorId a, TensorId b) {
  const Shape as = n.shape(a), bs = n.shape(b);
  const bool broadcast = n.attr_flag("broadcast", false);
  const std::optional<int64_t> given = n.find_int("axis");
  if (!broadcast) {
    if (as != bs) throw n.bad("shapes {} and {} differ and attribute 'broadcast' is 0", shape_text(as), shape_text(bs));
    return b;
  }
  if (element_count(bs) == 1) return n.reshape(b, {});
  if (bs.size() > as.size()) throw n.bad("B has shape {}, which has more dimensions than A's {}", shape_text(bs), shape_text(as));
  const auto rank = static_cast<int64_t>(as.size()), last = rank - static_cast<int64_t>(bs.size());
  const int64_t axis = given ? n.axis(*given, rank, "attribute 'axis'") : last;
  if (axis > last) throw n.bad("attribute 'axis' is {}: B of shape {} ends beyond A of shape {}", axis, shape_text(bs), shape_text(as));
  for (size_t d = 0; d < bs.size(); ++d) {
    if (bs[d] == as[d + static_cast<size_t>(axis)] || bs[d] == 1) continue;
    throw n.bad("B of shape {} does not fit A of shape {} at axis {}", shape_text(bs), shape_text(as), axis);
  }
  Shape aligned = bs;
  aligned.resize(as.size() - static_cast<size_t>(axis), 1);
  return n.reshape(b, aligned);
}

Pair two_operands(NodeImport& n) {
  n.expect_counts(2, 2);
  Pair pair{n.in(0), n.in(1)};
  if (n.version() < 7) {
    if (n.version() == 1) n.ignore("consumed_inputs");
    pair.b = align_old_style(n, pair.a, pair.b);
  }
  return pair;
}

std::vector<TensorId> all_operands(NodeImport& n) {
  n.expect_counts(1, std::numeric_limits<size_t>::max());
  if (n.version() == 1) n.ignore("consumed_inputs");
  std::vector<TensorId> operands;
  for (size_t i = 0; i < n.input_count(); ++i) operands.push_back(n.in(i));
  n.expect_number(operands);
  for (const TensorId id : operands) {
    if (n.version() >= 8 || n.shape(id) == n.shape(operands[0])) continue;
    throw n.bad("shapes {} and {} differ, broadcasting came with opset 8", shape_text(n.shape(operands[0])), shape_text(n.shape(id)));
  }
  return operands;
}

TensorId chain(NodeImport& n, ElementwiseOp op, const std::vector<TensorId>& operands) {
  TensorId result = operands[0];
  for (size_t i = 1; i < operands.size(); ++i) result = n.elementwise(op, {result, operands[i]});
  return result;
}

}  // namespace

void import_function(NodeImport& n, ElementwiseOp op) {
  using rk::functions::Types;
  const FunctionRow& row = row_of(op);
  std::vector<TensorId> operands;
  if (row.arity == 2) {
    const Pair pair = two_operands(n);
    operands = {pair.a, pair.b};
  } else {
    TAMP_CHECK(row.arity == 1, std::string(row.name) + " has an importer of its own");
    n.expect_counts(1, 1);
    if (n.version() == 1) n.ignore("consumed_inputs");  // an optimisation hint that no reader uses
    operands = {n.in(0)};
  }
  switch (row.types) {
    case Types::reals: n.expect_float(operands); break;
    case Types::wholes: n.expect_whole(operands); break;
    case Types::numbers: n.expect_number(operands); break;
    case Types::truths: n.expect_bool(operands); break;
    case Types::all: n.expect_same_dtype(operands); break;
  }
  std::array<float, 2> attributes{};
  for (int i = 0; i < row.attributes.count; ++i) {
    const auto k = static_cast<size_t>(i);
    attributes[k] = n.attr_float(row.attributes.names[k], row.attributes.defaults[k]);
  }
  n.result(0, n.elementwise(op, operands, attributes[0], attributes[1]));
}

void import_bit_shift(NodeImport& n) {
  const Pair pair = two_operands(n);
  n.expect_whole({pair.a, pair.b});
  const std::string direction = n.attr_string("direction", "");
  if (direction != "LEFT" && direction != "RIGHT")
    throw n.bad("attribute 'direction' is '{}', expected LEFT or RIGHT", printable(direction));
  const DType dtype = n.dtype(pair.a);
  const bool is_signed = dtype == DType::i8 || dtype == DType::i16 || dtype == DType::i32 || dtype == DType::i64;
  if (is_signed && n.version() < 28) throw n.bad("operands are {}, expected unsigned integers before opset 28", name_of(dtype));
  n.result(0, n.elementwise(direction == "LEFT" ? ElementwiseOp::shift_left : ElementwiseOp::shift_right, {pair.a, pair.b}));
}

// From version 12 on the exponent may be of another type; the result has the base's.
void import_pow(NodeImport& n) {
  const Pair pair = two_operands(n);
  const DType base = n.dtype(pair.a), exponent = n.dtype(pair.b);
  if (base == DType::boolean || exponent == DType::boolean) throw n.bad("an operand is bool, expected numbers");
  if (base == exponent) return n.result(0, n.elementwise(ElementwiseOp::pow, {pair.a, pair.b}));
  if (n.version() < 12) throw n.bad("operands of different types: {} and {}", name_of(base), name_of(exponent));
  if (is_float(base)) return n.result(0, n.elementwise(ElementwiseOp::pow, {pair.a, n.cast(pair.b, base)}));
  const TensorId wide = n.elementwise(ElementwiseOp::pow, {n.cast(pair.a, DType::f64), n.cast(pair.b, DType::f64)});
  n.result(0, n.cast(wide, base));
}

// Floats need fmod = 1 before version 28, which defines the floored remainder for them too.
void import_mod(NodeImport& n) {
  const Pair pair = two_operands(n);
  n.expect_number({pair.a, pair.b});
  const bool fmod = n.attr_flag("fmod", false);
  if (!fmod && is_float(n.dtype(pair.a)) && n.version() < 28)
    throw n.bad("attribute 'fmod' is 0, which is for integers; the operands are floats");
  n.result(0, n.elementwise(fmod ? ElementwiseOp::fmod : ElementwiseOp::mod, {pair.a, pair.b}));
}

// The slope broadcasts one way. Before version 7 it has one element or one per channel, dimension 1.
void import_prelu(NodeImport& n) {
  n.expect_counts(2, 2);
  if (n.version() == 1) n.ignore("consumed_inputs");
  const TensorId x = n.in(0);
  TensorId slope = n.in(1);
  n.expect_float({x, slope});
  const Shape shape = n.shape(x);
  if (n.version() < 7) {
    const int64_t count = element_count(n.shape(slope));
    if (count != 1 && (shape.size() < 2 || count != shape[1]))
      throw n.bad("slope has {} elements, expected 1 or one per channel of {}", count, shape_text(shape));
    Shape per_channel(shape.size() < 2 ? 0 : shape.size() - 1, 1);
    if (count != 1) per_channel[0] = count;
    slope = n.reshape(slope, per_channel);
  }
  if (n.broadcast(shape, n.shape(slope)) != shape)
    throw n.bad("slope of shape {} does not broadcast to X's {}", shape_text(n.shape(slope)), shape_text(shape));
  n.result(0, n.elementwise(ElementwiseOp::prelu, {x, slope}));
}

void import_where(NodeImport& n) {
  n.expect_counts(3, 3);
  n.expect_bool({n.in(0)});
  n.expect_same_dtype({n.in(1), n.in(2)});
  n.result(0, n.elementwise(ElementwiseOp::where, {n.in(0), n.in(1), n.in(2)}));
}

void import_variadic(NodeImport& n, ElementwiseOp op) { n.result(0, chain(n, op, all_operands(n))); }

void import_mean(NodeImport& n) {
  const std::vector<TensorId> operands = all_operands(n);
  n.expect_float(operands);
  const TensorId sum = chain(n, ElementwiseOp::add, operands);
  const TensorId count = n.cast(n.constant_f32(static_cast<float>(operands.size())), n.dtype(sum));
  n.result(0, operands.size() == 1 ? sum : n.elementwise(ElementwiseOp::div, {sum, count}));
}

}  // namespace tamp::frontend
