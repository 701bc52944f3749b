// Operators that only move or repeat elements; all element types.
#include <algorithm>
#include <cmath>
#include <limits>

#include "compiler/frontend/importers.h"
#include "compiler/support/text.h"

namespace tamp::frontend {
namespace {

// ONNX clamps where numpy's slices do: [0, extent] going up, [-1, extent - 1] going down.
struct Range {
  int64_t start = 0, extent = 0;
};
Range clamp_range(int64_t start, int64_t end, int64_t step, int64_t extent) {
  const auto resolve = [&](int64_t index, int64_t low, int64_t high) {
    if (index < 0) index = index < -extent ? low : index + extent;
    return std::clamp(index, low, high);
  };
  if (extent == 0) return {0, 0};
  const int64_t low = step > 0 ? 0 : -1, high = step > 0 ? extent : extent - 1;
  const int64_t first = resolve(start, std::max<int64_t>(low, 0), high), last = resolve(end, low, high);
  const int64_t span = step > 0 ? last - first : first - last;
  if (span <= 0) return {0, 0};
  // |INT64_MIN| is no int64_t, but any step beyond the extent takes one element.
  const int64_t stride = step > extent || step < -extent ? extent + 1 : std::abs(step);
  return {first, (span - 1) / stride + 1};
}

struct SliceArguments {
  Ints starts, ends, axes, steps;
};

SliceArguments slice_arguments(NodeImport& n, int64_t rank) {
  SliceArguments given;
  std::optional<Ints> axes, steps;
  if (n.version() < 10) {
    const std::optional<Ints> starts = n.find_ints("starts"), ends = n.find_ints("ends");
    if (!starts || !ends) throw n.bad("attributes 'starts' and 'ends' are needed");
    given.starts = *starts;
    given.ends = *ends;
    axes = n.find_ints("axes");
  } else {
    given.starts = n.ints(1, "starts");
    given.ends = n.ints(2, "ends");
    axes = n.optional_ints(3, "axes");
    steps = n.optional_ints(4, "steps");
  }
  const size_t count = given.starts.size();
  given.axes = axes ? *axes : range(0, static_cast<int64_t>(count));
  given.steps = steps.value_or(Ints(count, 1));
  if (given.ends.size() != count || given.axes.size() != count || given.steps.size() != count) {
    throw n.bad("starts, ends, axes, and steps have {}, {}, {}, and {} values", count, given.ends.size(), given.axes.size(),
                given.steps.size());
  }
  n.axes(given.axes, rank);
  for (int64_t& one : given.axes) one = n.axis(one, rank);
  return given;
}

// How long each output of Split is.
Ints split_lengths(NodeImport& n, int64_t extent) {
  const auto outputs = static_cast<int64_t>(n.output_count());
  const bool as_input = n.version() == 1 || n.version() >= 13;
  std::optional<Ints> lengths = as_input ? n.optional_ints(1, "split") : std::nullopt;
  if (n.version() < 13 && !lengths) lengths = n.find_ints("split");
  const std::optional<int64_t> parts = n.version() >= 18 ? n.find_int("num_outputs") : std::nullopt;
  if (lengths && parts) throw n.bad("both input 'split' and attribute 'num_outputs' are given");
  if (n.version() >= 18 && !lengths && !parts) throw n.bad("neither input 'split' nor attribute 'num_outputs' is given");
  if (!lengths) {
    if (parts && *parts != outputs) throw n.bad("attribute 'num_outputs' is {}, the node has {} outputs", *parts, outputs);
    if (!parts && extent % outputs != 0) throw n.bad("extent {} does not divide into {} equal parts", extent, outputs);
    const int64_t part = (extent + outputs - 1) / outputs;
    lengths.emplace();
    for (int64_t k = 0; k < outputs; ++k) lengths->push_back(std::clamp<int64_t>(extent - k * part, 0, part));
  }
  int64_t sum = 0;
  for (const int64_t length : *lengths) {
    if (length < 0 || length > extent) throw n.bad("split {} of an extent of {}", shape_text(*lengths), extent);
    sum += length;
  }
  if (static_cast<int64_t>(lengths->size()) != outputs || sum != extent)
    throw n.bad("split {} must give {} parts that add up to {}", shape_text(*lengths), outputs, extent);
  return *lengths;
}

PadMode pad_mode(NodeImport& n) {
  const std::string mode = n.attr_string("mode", "constant");
  if (mode == "constant") return PadMode::constant;
  if (mode == "reflect") return PadMode::reflect;
  if (mode == "edge") return PadMode::edge;
  if (mode == "wrap" && n.version() >= 19) return PadMode::wrap;
  throw n.bad("attribute 'mode' is '{}', expected constant, reflect, edge, or (from opset 19) wrap", printable(mode));
}

// Pad's constant is a float. None where the value is known only at run time, or is a number of a wide type that has more digits.
std::optional<float> narrow_value(NodeImport& n, size_t i) {
  if (!n.is_constant(n.in(i))) return std::nullopt;
  constexpr double kExact = 9007199254740992.0;  // 2^53: from here on a double stands for several integers
  const double value = n.number(i, "constant_value");
  if (is_integer(n.dtype(n.in(i))) && std::fabs(value) >= kExact) return std::nullopt;
  const auto narrow = static_cast<float>(value);
  const DType dtype = n.dtype(n.in(0));
  const bool is_narrow = dtype == DType::f32 || dtype == DType::f16 || dtype == DType::bf16;
  if (!is_narrow && static_cast<double>(narrow) != value) return std::nullopt;
  return narrow;
}

// before and after of every dimension.
void read_pads(NodeImport& n, Pad& pad, const Shape& shape) {
  const auto rank = static_cast<int64_t>(shape.size());
  Ints pads, axes = range(0, rank);
  if (n.version() < 11) {
    const std::optional<Ints> given = n.find_ints(n.version() == 1 ? "paddings" : "pads");
    if (!given) throw n.bad("the attribute with the pads is missing");
    pads = *given;
    pad.value = n.attr_float("value", 0);
  } else {
    pads = n.ints(1, "pads");
    if (n.has(3)) axes = n.ints(3, "axes");
  }
  n.axes(axes, rank);
  if (pads.size() != 2 * axes.size()) throw n.bad("{} pads for {} dimensions, expected two each", pads.size(), axes.size());
  pad.before = pad.after = Ints(shape.size(), 0);
  for (size_t i = 0; i < axes.size(); ++i) {
    const auto d = static_cast<size_t>(n.axis(axes[i], rank));
    pad.before[d] = pads[i];
    pad.after[d] = pads[i + axes.size()];
    for (const int64_t one : {pad.before[d], pad.after[d]}) {
      if (one < -kMaxElements || one > kMaxElements) throw n.bad("pad {} of dimension {} is too large", one, d);
    }
  }
}

// Tile as Reshape, repeat, Reshape: [a, b] with repeats [1, 3] is [a, 1, b] repeated to [a, 3, b]. Neighbouring dimensions
// that are not repeated stay one.
struct Tiling {
  Shape split, repeated;

  void add(int64_t from, int64_t to) {
    if (from == to && plain_ && !split.empty()) {
      split.back() *= from;
      repeated.back() *= to;
      return;
    }
    plain_ = from == to;
    split.push_back(from);
    repeated.push_back(to);
  }

 private:
  bool plain_ = false;
};

}  // namespace

void import_identity(NodeImport& n) {
  n.expect_counts(1, 1);
  n.result(0, n.in(0));
}

void import_concat(NodeImport& n) {
  n.expect_counts(1, std::numeric_limits<size_t>::max());
  std::vector<TensorId> parts;
  for (size_t i = 0; i < n.input_count(); ++i) parts.push_back(n.in(i));
  n.expect_same_dtype(parts);
  const std::optional<int64_t> given = n.find_int("axis");
  if (!given && n.version() >= 4) throw n.bad("attribute 'axis' is missing");
  const int64_t axis = n.axis(given.value_or(1), n.rank(parts[0]), "attribute 'axis'");
  n.result(0, parts.size() == 1 ? parts[0] : n.add(Concat{axis}, parts));
}

void import_transpose(NodeImport& n) {
  n.expect_counts(1, 1);
  const TensorId x = n.in(0);
  const Shape shape = n.shape(x);
  Ints perm = range(0, n.rank(x));
  std::reverse(perm.begin(), perm.end());
  perm = n.find_ints("perm").value_or(perm);
  n.result(0, perm == range(0, n.rank(x)) ? x : n.add(Transpose{perm}, {x}));
}

namespace {

// x[.., :count, ..] with a count that is known only at run time: as much as it can be at most, of which `count` is valid.
bool slice_to_count(NodeImport& n) {
  if (n.version() < 10 || n.is_constant(n.in(2))) return false;
  const std::optional<Counted> end = n.counted(n.in(2));
  const std::optional<Ints> axes = end ? n.optional_ints(3, "axes") : std::nullopt,
                            steps = end ? n.optional_ints(4, "steps") : std::nullopt;
  if (!end || n.ints(1, "starts") != Ints{0} || steps.value_or(Ints{1}) != Ints{1} || axes.value_or(Ints{0}).size() != 1) return false;
  const TensorId x = n.in(0);
  const int64_t axis = n.axis(axes.value_or(Ints{0})[0], n.rank(x)), extent = n.shape(x)[static_cast<size_t>(axis)];
  TensorId part = n.slice_axis(x, axis, 0, std::min(extent, end->most));
  if (part == x) part = n.elementwise(ElementwiseOp::identity, {x});  // x itself stays whole
  const TensorId count = extent < end->most ? n.elementwise(ElementwiseOp::min, {end->count, n.constant_i64({extent}, {1})}) : end->count;
  n.padded_result(0, part, count, axis);
  return true;
}

// A whole number of run time as another one plus a constant.
struct Sum {
  TensorId from;
  int64_t more = 0;
};
Sum sum_of(NodeImport& n, TensorId id) {
  Sum sum{id, 0};
  while (const ROperator* const rop = maker_of(n.builder().graph, sum.from)) {
    const auto* const chain = std::get_if<Elementwise>(&rop->attrs);
    const ElementwiseOp op = chain && chain->steps.size() == 1 ? chain->steps[0].op : ElementwiseOp::sqrt;
    const bool adds = op == ElementwiseOp::add;
    const bool moves = std::holds_alternative<Reshape>(rop->attrs) || op == ElementwiseOp::cast || op == ElementwiseOp::identity;
    const size_t constant = adds && n.is_constant(rop->inputs[0]) ? 0 : 1;
    const TensorId from = moves ? rop->inputs[0] : adds ? rop->inputs[1 - constant] : TensorId();
    const bool is_one = from.valid() && (n.dtype(from) == DType::i64 || n.dtype(from) == DType::i32) && element_count(n.shape(from)) == 1;
    if (!is_one || (adds && !n.is_constant(rop->inputs[constant]))) break;
    if (adds) sum.more += n.flat_ints(rop->inputs[constant]).at(0);
    sum.from = from;
  }
  return sum;
}

// x[.., i : i + extent, ..] with an i that is known only at run time.
bool slice_from_place(NodeImport& n) {
  if (n.version() < 10 || n.is_constant(n.in(1)) || n.is_constant(n.in(2)) || element_count(n.shape(n.in(1))) != 1) return false;
  const Sum start = sum_of(n, n.in(1)), end = sum_of(n, n.in(2));
  const Ints axes = n.optional_ints(3, "axes").value_or(Ints{0});
  if (axes.size() != 1 || start.from != end.from) return false;
  const TensorId x = n.in(0);
  const int64_t axis = n.axis(axes[0], n.rank(x)), extent = end.more - start.more;
  if (extent < 1 || extent > n.shape(x)[static_cast<size_t>(axis)]) return false;
  if (n.optional_ints(4, "steps").value_or(Ints{1}) != Ints{1}) return false;
  const TensorId first = n.reshape(n.cast(n.in(1), DType::i64), {1});
  n.result(0, n.add(Gather{axis}, {x, n.elementwise(ElementwiseOp::add, {first, n.counting(extent, 1, 0)})}));
  return true;
}

}  // namespace

void import_slice(NodeImport& n) {
  n.expect_counts(n.version() < 10 ? 1 : 3, n.version() < 10 ? 1 : 5);
  if (slice_from_place(n) || slice_to_count(n)) return;
  const TensorId x = n.in(0);
  const Shape shape = n.shape(x);
  const SliceArguments given = slice_arguments(n, n.rank(x));
  Slice slice = whole_slice(shape);
  for (size_t i = 0; i < given.axes.size(); ++i) {
    if (given.steps[i] == 0) throw n.bad("step 0 along axis {}", given.axes[i]);
    const auto d = static_cast<size_t>(given.axes[i]);
    const Range range = clamp_range(given.starts[i], given.ends[i], given.steps[i], shape[d]);
    slice.starts[d] = range.start;
    slice.steps[d] = range.extent > 1 ? given.steps[i] : 1;
    slice.extents[d] = range.extent;
  }
  n.result(0, slice == whole_slice(shape) && !n.keeps_copies() ? x : n.add(slice, {x}));
}

void import_split(NodeImport& n) {
  n.expect_inputs(1, n.version() == 1 || n.version() >= 13 ? 2 : 1);
  const TensorId x = n.in(0);
  const int64_t axis = n.axis(n.attr_int("axis", 0), n.rank(x), "attribute 'axis'");
  if (n.output_count() == 0) throw n.bad("has no outputs");
  const Ints lengths = split_lengths(n, n.shape(x)[static_cast<size_t>(axis)]);
  int64_t start = 0;
  for (size_t k = 0; k < lengths.size(); ++k) {
    if (n.wants(k)) n.result(k, n.slice_axis(x, axis, start, lengths[k]));
    start += lengths[k];
  }
}

void import_pad(NodeImport& n) {
  n.expect_counts(n.version() < 11 ? 1 : 2, n.version() < 11 ? 1 : n.version() < 18 ? 3 : 4);
  const TensorId x = n.in(0);
  const Shape shape = n.shape(x);
  Pad pad;
  pad.mode = pad_mode(n);
  read_pads(n, pad, shape);
  const auto is_zero = [](int64_t one) { return one == 0; };
  const bool nothing =
      std::all_of(pad.before.begin(), pad.before.end(), is_zero) && std::all_of(pad.after.begin(), pad.after.end(), is_zero);
  if (nothing) return n.result(0, x);
  if (n.version() < 11 || !n.has(2) || pad.mode != PadMode::constant) return n.result(0, n.add(pad, {x}));
  const TensorId value = n.in(2);
  if (element_count(n.shape(value)) != 1)
    throw n.bad("input 2 (constant_value) has shape {}, expected one element", shape_text(n.shape(value)));
  const std::optional<float> narrow = narrow_value(n, 2);
  pad.value = narrow.value_or(0);
  const TensorId padded = n.add(pad, {x});
  if (narrow) return n.result(0, padded);
  n.expect_same_dtype({x, value});
  pad.value = 0;  // of the tensor that marks where x is
  const TensorId is_inside = n.add(pad, {n.expand(n.constant_bool(true), shape)});
  n.result(0, n.elementwise(ElementwiseOp::where, {is_inside, padded, n.reshape(value, {})}));
}

// An index out of range is refused here if it is constant; at run time it takes the nearest element (kernels/typed/gather.cuh).
void import_gather(NodeImport& n) {
  n.expect_counts(2, 2);
  const TensorId x = n.in(0), indices = n.in(1);
  const int64_t axis = n.axis(n.attr_int("axis", 0), n.rank(x), "attribute 'axis'");
  const int64_t extent = n.shape(x)[static_cast<size_t>(axis)];
  if (n.dtype(indices) != DType::i64 && n.dtype(indices) != DType::i32)
    throw n.bad("indices are {}, expected i64", name_of(n.dtype(indices)));
  const bool known = n.is_constant(indices);
  if (!known && extent == 0 && element_count(n.shape(indices)) > 0) throw n.bad("axis {} has no elements to take from", axis);
  for (const int64_t index : known ? n.flat_ints(indices) : Ints()) {
    if (index < -extent || index >= extent) throw n.bad("index {} is outside the {} elements of axis {}", index, extent, axis);
  }
  n.result(0, n.add(Gather{axis}, {x, indices}));
}

// Two-way: an extent of 1 in the wanted shape keeps the input's.
void import_expand(NodeImport& n) {
  n.expect_counts(2, 2);
  const TensorId x = n.in(0);
  const Ints wanted = n.ints(1, "shape");
  for (const int64_t extent : wanted) {
    if (extent < 0) throw n.bad("shape {} has a negative extent", shape_text(wanted));
  }
  n.result(0, n.expand(x, n.broadcast(n.shape(x), wanted)));
}

void import_tile(NodeImport& n) {
  n.expect_counts(n.version() < 6 ? 3 : 2, n.version() < 6 ? 3 : 2);
  const TensorId x = n.in(0);
  const Shape shape = n.shape(x);
  Ints repeats(shape.size(), 1);
  if (n.version() < 6) {
    const auto count = static_cast<int64_t>(n.number(1, "tiles")), along = static_cast<int64_t>(n.number(2, "axis"));
    repeats[static_cast<size_t>(n.axis(along, n.rank(x)))] = count;
  } else {
    repeats = n.ints(1, "repeats");
  }
  if (repeats.size() != shape.size()) throw n.bad("{} repeats for {} dimensions", repeats.size(), shape.size());
  Tiling tiling;
  Shape result;
  for (size_t d = 0; d < shape.size(); ++d) {
    if (repeats[d] < 0) throw n.bad("repeats {} have a negative value", shape_text(repeats));
    if (repeats[d] > kMaxElements) throw n.refuse("repeats {} are too large", shape_text(repeats));
    result.push_back(shape[d] * repeats[d]);
    if (repeats[d] != 1) tiling.add(1, repeats[d]);
    if (repeats[d] == 1 || shape[d] != 1) tiling.add(shape[d], shape[d]);
  }
  if (result == shape) return n.result(0, x);
  const TensorId apart = n.reshape(x, tiling.split);
  n.result(0, n.reshape(n.expand(apart, tiling.repeated), result));
}

}  // namespace tamp::frontend
