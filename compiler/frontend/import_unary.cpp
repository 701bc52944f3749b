// Functions of one operand that need more than a row of kernels/shared/functions.h says.
#include <limits>

#include "compiler/frontend/importers.h"
#include "compiler/support/text.h"

namespace tamp::frontend {
namespace {

TensorId single_operand(NodeImport& n) {
  n.expect_counts(1, 1);
  return n.in(0);
}

// Version 1 of the old functions had an optimisation hint that no reader uses.
void ignore_hint(NodeImport& n) {
  if (n.version() == 1) n.ignore("consumed_inputs");
}

void clip_between(NodeImport& n, TensorId x, float low, float high) { n.result(0, n.elementwise(ElementwiseOp::clip, {x}, low, high)); }

// Clip as max and min: for bounds that clip's own, which are floats, do not hold, and for bounds that are known only at run time. A bound
// that is left out is the end of the type, which matters to infinities alone.
void clip_by_steps(NodeImport& n, TensorId x) {
  constexpr double kLowest = std::numeric_limits<double>::lowest(), kMost = std::numeric_limits<double>::max();
  const bool is_f64 = n.dtype(x) == DType::f64;
  for (const size_t i : {size_t{1}, size_t{2}}) {
    if (!n.has(i) && !is_f64) continue;
    const TensorId bound = n.has(i) ? n.in(i) : n.constant_f64(i == 1 ? kLowest : kMost);
    if (element_count(n.shape(bound)) != 1) throw n.bad("bound of shape {}, expected one element", shape_text(n.shape(bound)));
    x = n.elementwise(i == 1 ? ElementwiseOp::max : ElementwiseOp::min, {x, n.reshape(bound, {})});
  }
  n.result(0, x);
}

// Whether clip's float holds the bound `i`: of f64 it may not, and the end of f64 is none.
bool is_float_bound(NodeImport& n, size_t i, std::string_view name) {
  if (n.dtype(n.in(0)) != DType::f64) return true;
  if (!n.has(i)) return false;
  const double bound = n.number(i, name);
  return static_cast<double>(static_cast<float>(bound)) == bound;
}

// Version 1 writes the target type as a name.
int cast_target(NodeImport& n) {
  if (n.version() >= 6) {
    const std::optional<int64_t> to = n.find_int("to");
    if (!to) throw n.bad("attribute 'to' is missing");
    return *to >= 0 && *to < 1000 ? static_cast<int>(*to) : 999;
  }
  const std::string name = n.attr_string("to", "");
  for (int type = 1; is_onnx_type(type); ++type) {
    if (name == onnx_type_name(type)) return type;
  }
  throw n.bad("attribute 'to' is '{}', which is no type", printable(name));
}

}  // namespace

void import_gelu(NodeImport& n) {
  const TensorId x = single_operand(n);
  n.expect_float({x});
  const std::string approximate = n.attr_string("approximate", "none");
  if (approximate != "none" && approximate != "tanh")
    throw n.bad("attribute 'approximate' is '{}', expected none or tanh", printable(approximate));
  n.result(0, n.elementwise(approximate == "tanh" ? ElementwiseOp::gelu_tanh : ElementwiseOp::gelu, {x}));
}

// Bounds are attributes before version 11 and optional operands from then on.
void import_clip(NodeImport& n) {
  constexpr float kLow = std::numeric_limits<float>::lowest(), kHigh = std::numeric_limits<float>::max();
  n.expect_outputs(1);
  if (n.version() < 11) {
    const TensorId x = single_operand(n);
    ignore_hint(n);
    n.expect_float({x});
    const float low = n.attr_float("min", kLow), high = n.attr_float("max", kHigh);
    return clip_between(n, x, low, high);
  }
  n.expect_inputs(1, 3);
  const TensorId x = n.in(0);
  n.expect_number({x});
  bool constant = true;
  for (const size_t i : {size_t{1}, size_t{2}}) {
    if (n.has(i)) n.expect_same_dtype({x, n.in(i)});
    constant = constant && (!n.has(i) || n.is_constant(n.in(i)));
  }
  if (!constant || !is_float(n.dtype(x)) || !is_float_bound(n, 1, "min") || !is_float_bound(n, 2, "max")) return clip_by_steps(n, x);
  const float low = n.has(1) ? static_cast<float>(n.number(1, "min")) : kLow;
  const float high = n.has(2) ? static_cast<float>(n.number(2, "max")) : kHigh;
  clip_between(n, x, low, high);
}

namespace {

// x of integers of a few bits: of a float without its fraction, then the lowest bits.
TensorId cast_to_narrow_integer(NodeImport& n, TensorId x, NarrowType to) {
  const float count = highest_of(to) - lowest_of(to) + 1;
  const auto number = [&](float value) { return n.cast(n.constant_f32(value), DType::i32); };
  const bool has_sign = lowest_of(to) < 0;
  TensorId whole = n.cast(x, DType::i32);
  if (has_sign) whole = n.elementwise(ElementwiseOp::sub, {whole, number(lowest_of(to))});
  whole = n.elementwise(ElementwiseOp::mod, {whole, number(count)});
  if (has_sign) whole = n.elementwise(ElementwiseOp::add, {whole, number(lowest_of(to))});
  return n.cast(whole, held_as(to));
}

TensorId cast_to_narrow(NodeImport& n, TensorId x, NarrowType to, bool saturate) {
  if (n.narrow(x) == to) return x;
  if (to == NarrowType::e8m0) throw n.refuse("casts to FLOAT8E8M0, supported: as the type of constants, and casts from it");
  if (!is_float(to)) return n.of_narrow(cast_to_narrow_integer(n, x, to), to);
  return n.of_narrow(narrow_float(n, x, to, saturate), to);
}

}  // namespace

TensorId narrow_float(NodeImport& n, TensorId x, NarrowType to, bool saturate) {
  return n.elementwise(ElementwiseOp::small_float, {n.cast(x, DType::f32)}, static_cast<float>(to), saturate ? 1.0F : 0.0F);
}

void import_cast(NodeImport& n) {
  const TensorId x = single_operand(n);
  const bool saturate = n.version() < 19 || n.attr_flag("saturate", true);  // of the narrow floats only
  if (n.version() >= 24) n.ignore("round_mode");                            // of FLOAT8E8M0 only
  const int type = cast_target(n);
  const NarrowType narrow = narrow_of_onnx(type);
  if (narrow != NarrowType::none) return n.result(0, cast_to_narrow(n, x, narrow, saturate));
  const std::optional<DType> to = dtype_of_onnx(type);
  if (!to && is_onnx_type(type)) throw n.refuse("attribute 'to' is {}, which is not supported", onnx_type_name(type));
  if (!to) throw n.bad("attribute 'to' is {}, which is no element type", type);
  n.result(0, n.cast(n.as_held(x), *to));
}

// The type is that of a second operand, whose elements nobody looks at.
void import_cast_like(NodeImport& n) {
  n.expect_counts(2, 2);
  const bool saturate = n.version() < 19 || n.attr_flag("saturate", true);  // as in Cast
  if (n.version() >= 24) n.ignore("round_mode");
  const NarrowType narrow = n.narrow(n.in(1));
  if (narrow != NarrowType::none) return n.result(0, cast_to_narrow(n, n.in(0), narrow, saturate));
  n.result(0, n.cast(n.as_held(n.in(0)), n.dtype(n.in(1))));
}

void import_is_inf(NodeImport& n) {
  const TensorId x = single_operand(n);
  n.expect_float({x});
  const bool negative = n.attr_flag("detect_negative", true), positive = n.attr_flag("detect_positive", true);
  n.result(0, n.elementwise(ElementwiseOp::is_inf, {x}, negative ? 1.0F : 0.0F, positive ? 1.0F : 0.0F));
}

}  // namespace tamp::frontend
