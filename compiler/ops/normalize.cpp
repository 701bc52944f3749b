// Normalize: two walks over the elements of every mean, one for the mean and one for the variance, and a third that writes.
#include <algorithm>
#include <array>
#include <cmath>

#include "compiler/ops/operator.h"
#include "compiler/support/text.h"

namespace tamp::ops {
namespace {

// Offsets of an operand that is walked with `strides` in `shape`: those of the kept dimensions and those of the normalised ones.
struct Offsets {
  std::vector<int64_t> kept, normalised;
};

bool is_normalised(const Normalize& op, size_t d) {
  return std::find(op.axes.begin(), op.axes.end(), static_cast<int64_t>(d)) != op.axes.end();
}

Offsets offsets_of(const Normalize& op, const Shape& shape, const std::vector<int64_t>& strides) {
  std::array<Shape, 2> extents;
  std::array<std::vector<int64_t>, 2> steps;
  for (size_t d = 0; d < shape.size(); ++d) {
    const size_t part = is_normalised(op, d) ? 1 : 0;
    extents[part].push_back(shape[d]);
    steps[part].push_back(strides[d]);
  }
  Offsets offsets;
  for_each_offset(extents[0], steps[0], 0, [&](int64_t at) { offsets.kept.push_back(at); });
  for_each_offset(extents[1], steps[1], 0, [&](int64_t at) { offsets.normalised.push_back(at); });
  return offsets;
}

// Scale or bias; `absent` where there is none.
class Factor {
 public:
  Factor(const Normalize& op, const Call& call, size_t input, double absent) : absent_(absent) {
    if (!call.has_input(input)) return;
    const Value& value = call.input(input);
    const Shape& shape = call.output().shape;
    numbers_.emplace(value);
    offsets_ = offsets_of(op, shape, broadcast_strides(value.shape, shape));
  }
  double at(size_t kept, size_t i) const { return numbers_ ? (*numbers_)[offsets_.kept[kept] + offsets_.normalised[i]] : absent_; }

 private:
  double absent_;
  std::optional<Numbers<double>> numbers_;
  Offsets offsets_;
};

// The type of the result where the rows are taken from elsewhere in X.
TensorTypes infer_rows(const Normalize& op, const Given& given) {
  const TensorType& rows = given.type(kNormalizeRows);
  if (given.rank(0) != 2 || op.axes != std::vector<int64_t>{1})
    throw bad_input("rows are of input X of two dimensions, normalised along the second");
  if (rows.dtype != DType::i64 || rows.shape.empty() || rows.shape.size() > 2)
    throw bad_input("rows have shape {} of {}, expected one or two dimensions of i64", shape_text(rows.shape), name_of(rows.dtype));
  const int64_t parts = rows.shape.size() == 2 ? rows.shape[1] : 1;
  if (parts == 0) throw bad_input("rows have shape {}, expected at least one row of X for each row", shape_text(rows.shape));
  return {{given.dtype(0), {rows.shape[0], saturating_product({parts, given.shape(0)[1]})}}};
}

// X with its rows in the order of the operand `rows`, in the result's shape.
Value taken_rows(const Call& call) {
  const Value& x = call.input(0);
  const Numbers<int64_t> rows(call.input(kNormalizeRows));
  const int64_t extent = x.shape[0], row = x.shape[1] * bytes_of(x.dtype), count = element_count(call.input(kNormalizeRows).shape);
  auto bytes = std::make_shared<Bytes>();
  for (int64_t r = 0; r < count; ++r) {
    if (rows[r] < 0 || rows[r] >= extent) throw bad_input("{}: row {} is outside of X", where(call.rop), rows[r]);
    const std::byte* from = x.data->data() + rows[r] * row;
    bytes->insert(bytes->end(), from, from + row);
  }
  return {x.dtype, call.output().shape, bytes};
}

}  // namespace

TensorTypes infer(const Normalize& op, const Given& given) {
  static constexpr std::array kNames = {"X", "Scale", "B"};
  given.expect(1, kNormalizeRows + 1);
  const Shape& x = given.shape(0);
  int64_t before = -1;
  for (const int64_t axis : op.axes) {
    if (axis <= before || axis >= given.rank(0))
      throw bad_input("axes {} of input X of shape {}, expected ascending dimensions of it", shape_text(op.axes), shape_text(x));
    before = axis;
  }
  const bool rows = given.has(kNormalizeRows);
  const TensorTypes made = rows ? infer_rows(op, given) : TensorTypes{given.type(0)};
  for (size_t i = 1; i < kNames.size(); ++i) {
    if (!given.has(i) || (broadcasts_to(given.shape(i), made[0].shape) && (!rows || given.rank(i) <= 1))) continue;
    throw bad_input("input {} has shape {}, which does not broadcast to {}{}", kNames[i], shape_text(given.shape(i)),
                    rows ? "the result's " : "X's ", shape_text(made[0].shape));
  }
  return made;
}

std::vector<Value> evaluate(const Normalize& op, const Call& call) {
  const Shape& shape = call.output().shape;
  const Value taken = call.has_input(kNormalizeRows) ? taken_rows(call) : call.input(0);
  const Numbers<double> x(taken);
  std::vector<double> y(static_cast<size_t>(element_count(shape)));
  if (y.empty()) return {output_from(call, y)};
  const Offsets offsets = offsets_of(op, shape, dense_strides(shape));
  const Factor scale(op, call, 1, 1), bias(op, call, 2, 0);
  const auto count = static_cast<double>(offsets.normalised.size());
  for (size_t row = 0; row < offsets.kept.size(); ++row) {
    const int64_t from = offsets.kept[row];
    double mean = 0, squares = 0;
    if (op.centered) {
      for (const int64_t at : offsets.normalised) mean += x[from + at];
      mean /= count;
    }
    for (const int64_t at : offsets.normalised) squares += (x[from + at] - mean) * (x[from + at] - mean);
    const double factor = 1 / std::sqrt(squares / count + op.epsilon);
    for (size_t i = 0; i < offsets.normalised.size(); ++i) {
      const int64_t at = from + offsets.normalised[i];
      y[static_cast<size_t>(at)] = (x[at] - mean) * factor * scale.at(row, i) + bias.at(row, i);
    }
  }
  return {output_from(call, y)};
}

// Rows of a matrix lie densely. Maps and their groups stay in the order in which they are, which is mostly that of channels-last pixels.
Traits traits_of(const Normalize& op) { return {op.axes.size() > 1 ? Layout::like_largest : Layout::row_major, InF32::all}; }
int64_t own_work(const Normalize&, const Given& given, const TensorTypes&) { return 2 * kWorkOfRead * given.elements(0); }

}  // namespace tamp::ops
