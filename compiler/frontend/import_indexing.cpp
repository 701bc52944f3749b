// Operators that read or write elements at places that another tensor, the indices, names. All but Scatter become a Gather from x with its
// leading dimensions joined to one. The Gather's indices are computed from the given ones by integer arithmetic, which is folded where the
// indices are constants. Example: GatherND at (1, 2) of x[3,4,5] is Gather of row 1 * 4 + 2 = 6 of x[12,5].
//
// An index out of range is refused here if it is constant. At run time reading takes the nearest element along the dimension, writing
// leaves the update out (docs/reference/models.md); nothing outside of a tensor is ever touched.
#include <algorithm>

#include "compiler/frontend/importers.h"
#include "compiler/support/text.h"

namespace tamp::frontend {
namespace {

TensorId plus(NodeImport& n, TensorId a, TensorId b) {
  if (!a.valid()) return b;
  return n.elementwise(ElementwiseOp::add, {a, b});
}

TensorId times(NodeImport& n, TensorId a, int64_t factor) {
  return factor == 1 && !n.keeps_copies() ? a : n.elementwise(ElementwiseOp::mul, {a, n.constant_i64(factor)});
}

// n.counting(..), but with lengths of run time as a product: at another length the step is another one.
TensorId counted_by(NodeImport& n, int64_t extent, size_t rank, size_t axis, int64_t step) {
  return n.keeps_copies() ? times(n, n.counting(extent, rank, axis), step) : n.counting(extent, rank, axis, step);
}

// Indices as i64; constant ones are checked. `extent` is x's along `axis`.
TensorId checked_indices(NodeImport& n, TensorId indices, int64_t extent, int64_t axis) {
  const DType dtype = n.dtype(indices);
  if (dtype != DType::i64 && dtype != DType::i32) throw n.bad("indices are {}, expected i64", name_of(dtype));
  for (const int64_t index : n.is_constant(indices) ? n.flat_ints(indices) : Ints()) {
    if (index < -extent || index >= extent) throw n.bad("index {} is outside the {} elements of axis {}", index, extent, axis);
  }
  return n.cast(indices, DType::i64);
}

// Indices counted from the beginning: negative ones have `extent` added.
TensorId from_beginning(NodeImport& n, TensorId indices, int64_t extent) {
  const TensorId is_negative = n.elementwise(ElementwiseOp::less, {indices, n.constant_i64(0)});
  return n.elementwise(ElementwiseOp::where, {is_negative, plus(n, indices, n.constant_i64(extent)), indices});
}

// Indices counted from the beginning, those out of range replaced by the nearest valid ones.
TensorId nearest(NodeImport& n, TensorId indices, int64_t extent) {
  const TensorId counted = from_beginning(n, indices, extent);
  return n.elementwise(ElementwiseOp::min, {n.elementwise(ElementwiseOp::max, {counted, n.constant_i64(0)}), n.constant_i64(extent - 1)});
}

// A tensor without elements, of that type and shape.
TensorId empty(NodeImport& n, DType dtype, const Shape& shape) { return n.expand(n.cast(n.constant_f32(0), dtype), shape); }

Shape part_of(const Shape& shape, size_t begin, size_t end) {
  return {shape.begin() + static_cast<std::ptrdiff_t>(begin), shape.begin() + static_cast<std::ptrdiff_t>(end)};
}

Shape joined(Shape a, const Shape& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

// x with its first `count` dimensions as one.
TensorId with_joint_front(NodeImport& n, TensorId x, size_t count) {
  const Shape shape = n.shape(x);
  return n.reshape(x, joined({element_count(part_of(shape, 0, count))}, part_of(shape, count, shape.size())));
}

// Elements between neighbours along each dimension.
Ints steps_of(const Shape& shape) {
  Ints steps(shape.size(), 1);
  for (size_t d = shape.size(); d-- > 1;) steps[d - 1] = steps[d] * shape[d];
  return steps;
}

void expect_elements(NodeImport& n, const Shape& data, TensorId indices) {
  if (element_count(data) == 0 && element_count(n.shape(indices)) > 0)
    throw n.bad("data has shape {}, which has no elements to take", shape_text(data));
}

// Column `j` of the last dimension of indices, which hold a coordinate each.
TensorId column(NodeImport& n, TensorId indices, int64_t j) {
  const Shape shape = n.shape(indices);
  return n.reshape(n.slice_axis(indices, n.rank(indices) - 1, j, 1), part_of(shape, 0, shape.size() - 1));
}

// The last dimension of indices has 1 to `most` coordinates.
size_t coordinates_of(NodeImport& n, TensorId indices, size_t most) {
  const Shape shape = n.shape(indices);
  if (shape.empty() || shape.back() < 1 || shape.back() > static_cast<int64_t>(most)) {
    throw n.bad("indices have shape {}, expected a last dimension of 1 to {}, the dimensions of data that they select from",
                shape_text(shape), most);
  }
  return static_cast<size_t>(shape.back());
}

ScatterKind scatter_kind(NodeImport& n) {
  const std::string reduction = n.version() >= 16 ? n.attr_string("reduction", "none") : "none";
  if (reduction == "none") return ScatterKind::none;
  if (reduction == "add") return ScatterKind::add;
  if (reduction == "mul") return ScatterKind::mul;
  if (reduction == "max" && n.version() >= 18) return ScatterKind::max;
  if (reduction == "min" && n.version() >= 18) return ScatterKind::min;
  throw n.bad("attribute 'reduction' is '{}', expected none, add, mul, or (from opset 18) max or min", printable(reduction));
}

struct Scattering {
  TensorId x, indices, updates;  // as of Scatter
  int64_t axis = 0;
  ScatterKind kind = ScatterKind::none;
};

// With constant indices and plain replacement it is known where each element of the result comes from. So the result is a Gather from x and
// the updates, joined one behind the other. The table has an entry for each element (or, with `rows`, for each row of x, whose indices are
// for whole rows).
bool has_table(NodeImport& n, const Scattering& s, bool rows) {
  constexpr int64_t kFewUpdates = 4;  // looking for them costs less than copying
  const Shape x = n.shape(s.x), updates = n.shape(s.updates);
  const int64_t entries = rows ? x[0] : element_count(x);
  const bool all_constant = n.is_constant(s.x) && n.is_constant(s.updates);
  return s.kind == ScatterKind::none && n.is_constant(s.indices) && !all_constant && updates[static_cast<size_t>(s.axis)] > kFewUpdates &&
         entries * 4 <= kFoldTensorBytes && element_count(x) + element_count(updates) <= kMaxElements;
}

TensorId scattered_by_table(NodeImport& n, const Scattering& s, bool rows) {
  const Shape shape = n.shape(s.x), updates = n.shape(s.updates);
  const auto axis = static_cast<size_t>(s.axis);
  const int64_t count = rows ? shape[0] : element_count(shape), extent = shape[axis];
  const Ints indices = n.flat_ints(s.indices), steps = rows ? Ints{1} : steps_of(shape);
  Ints table = range(0, count);
  for (size_t u = 0; u < indices.size(); ++u) {
    const int64_t index = indices[u] < 0 ? indices[u] + extent : indices[u];
    int64_t at = index * steps[axis], rest = static_cast<int64_t>(u);
    for (size_t d = rows ? 0 : shape.size(); d-- > 0;) {
      if (d != axis) at += rest % updates[d] * steps[d];
      rest /= updates[d];
    }
    table[static_cast<size_t>(at)] = count + static_cast<int64_t>(u);
  }
  n.charge(count * 4);
  const auto flat = [&](TensorId id) { return rows ? id : n.reshape(id, {element_count(n.shape(id))}); };
  const TensorId all = n.add(Concat{0}, {flat(s.x), flat(s.updates)});
  const TensorId places = n.cast(n.constant_i64(table, rows ? Shape{count} : shape), DType::i32);
  return n.add(Gather{0}, {all, places});
}

TensorId scattered(NodeImport& n, const Scattering& s, bool rows) {
  if (has_table(n, s, rows)) return scattered_by_table(n, s, rows);
  return n.add(Scatter{s.axis, s.kind}, {s.x, s.indices, s.updates});
}

}  // namespace

void import_gather_elements(NodeImport& n) {
  n.expect_counts(2, 2);
  const TensorId x = n.in(0);
  const Shape shape = n.shape(x), wanted = n.shape(n.in(1));
  const int64_t axis = n.axis(n.attr_int("axis", 0), n.rank(x), "attribute 'axis'");
  const auto along = static_cast<size_t>(axis);
  bool fits = wanted.size() == shape.size();
  for (size_t d = 0; fits && d < shape.size(); ++d) fits = d == along || wanted[d] <= shape[d];
  if (!fits)
    throw n.bad("indices have shape {}, which does not fit data of shape {} along axis {}", shape_text(wanted), shape_text(shape), axis);
  expect_elements(n, shape, n.in(1));
  const TensorId indices = checked_indices(n, n.in(1), shape[along], axis);
  if (element_count(wanted) == 0) return n.result(0, empty(n, n.dtype(x), wanted));
  if (shape.size() == 1) return n.result(0, n.add(Gather{0}, {x, indices}));
  const Ints steps = steps_of(shape);
  TensorId place;
  for (size_t d = 0; d < shape.size(); ++d) {
    if (d != along && (wanted[d] > 1 || n.keeps_copies())) place = plus(n, place, counted_by(n, wanted[d], shape.size(), d, steps[d]));
  }
  place = plus(n, place, times(n, nearest(n, indices, shape[along]), steps[along]));
  n.result(0, n.add(Gather{0}, {with_joint_front(n, x, shape.size()), place}));
}

void import_gather_nd(NodeImport& n) {
  n.expect_counts(2, 2);
  const TensorId x = n.in(0);
  const Shape shape = n.shape(x), given = n.shape(n.in(1));
  const int64_t batch_dims = n.version() >= 12 ? n.attr_int("batch_dims", 0) : 0;
  const auto least_rank = static_cast<int64_t>(std::min(shape.size(), given.size()));
  if (batch_dims < 0 || batch_dims >= std::max<int64_t>(1, least_rank)) {
    throw n.bad("attribute 'batch_dims' is {}, expected 0 to {} for data of shape {} and indices of shape {}", batch_dims,
                std::max<int64_t>(0, least_rank - 1), shape_text(shape), shape_text(given));
  }
  const auto batch = static_cast<size_t>(batch_dims);
  if (part_of(shape, 0, batch) != part_of(given, 0, batch))
    throw n.bad("data of shape {} and indices of shape {} differ in their first {} dimensions", shape_text(shape), shape_text(given),
                batch);
  const size_t coordinates = coordinates_of(n, n.in(1), shape.size() - batch), selected = batch + coordinates;
  const Shape front = part_of(given, 0, given.size() - 1), result = joined(front, part_of(shape, selected, shape.size()));
  if (element_count(result) == 0) return n.result(0, empty(n, n.dtype(x), result));
  expect_elements(n, shape, n.in(1));
  const Ints steps = steps_of(part_of(shape, 0, selected));
  TensorId place;
  for (size_t d = 0; d < batch; ++d) {
    if (shape[d] > 1 || n.keeps_copies()) place = plus(n, place, counted_by(n, shape[d], front.size(), d, steps[d]));
  }
  for (size_t j = 0; j < coordinates; ++j) {
    const size_t d = batch + j;
    const TensorId indices = checked_indices(n, column(n, n.in(1), static_cast<int64_t>(j)), shape[d], static_cast<int64_t>(d));
    place = plus(n, place, times(n, nearest(n, indices, shape[d]), steps[d]));
  }
  n.result(0, n.add(Gather{0}, {with_joint_front(n, x, selected), place}));
}

// Scatter is the same by its first name.
void import_scatter_elements(NodeImport& n) {
  n.expect_counts(3, 3);
  const TensorId x = n.in(0), updates = n.in(2);
  const int64_t axis = n.axis(n.attr_int("axis", 0), n.rank(x), "attribute 'axis'");
  const ScatterKind kind = scatter_kind(n);
  if (n.shape(n.in(1)) != n.shape(updates))
    throw n.bad("indices have shape {}, updates have {}, expected the same", shape_text(n.shape(n.in(1))), shape_text(n.shape(updates)));
  const TensorId indices = checked_indices(n, n.in(1), n.shape(x)[static_cast<size_t>(axis)], axis);
  n.infer(Scatter{axis, kind}, {x, indices, updates});
  if (element_count(n.shape(x)) == 0 || element_count(n.shape(updates)) == 0) return n.result(0, x);
  n.result(0, scattered(n, {x, indices, updates, axis, kind}, /*rows=*/false));
}

// TensorScatter: writes the update at the place that write_indices names for each batch (at the beginning if there are none), along one
// axis; with mode circular it continues at the beginning of the axis.
void import_tensor_scatter(NodeImport& n) {
  n.expect_counts(2, 3);
  const TensorId x = n.in(0), updates = n.in(1);
  n.expect_same_dtype({x, updates});
  const Shape shape = n.shape(x), given = n.shape(updates);
  const int64_t axis = n.axis(n.attr_int("axis", -2), n.rank(x), "attribute 'axis'");
  const std::string mode = n.attr_string("mode", "linear");
  if (mode != "linear" && mode != "circular") throw n.bad("attribute 'mode' is '{}', expected linear or circular", printable(mode));
  const auto along = static_cast<size_t>(axis);
  if (axis == 0) throw n.bad("attribute 'axis' is 0, which is the batch");
  Shape expected = shape;
  if (given.size() == shape.size()) expected[along] = given[along];
  if (given != expected || given[along] > shape[along])
    throw n.bad("input update has shape {}, past_cache has {}, expected the same but along axis {} and no more there", shape_text(given),
                shape_text(shape), axis);
  if (element_count(given) == 0) return n.result(0, x);
  TensorId place = n.counting(given[along], shape.size(), along);
  if (n.has(2)) {
    const TensorId first = n.in(2);
    if (n.shape(first) != Shape{shape[0]} || (n.dtype(first) != DType::i64 && n.dtype(first) != DType::i32))
      throw n.bad("input write_indices is {}{}, expected i64[{}]", name_of(n.dtype(first)), shape_text(n.shape(first)), shape[0]);
    const int64_t last = shape[along] - given[along];  // in mode circular every place is one of the axis
    for (const int64_t index : mode == "linear" && n.is_constant(first) ? n.flat_ints(first) : Ints()) {
      if (index < 0 || index > last) throw n.bad("input write_indices has {}, expected 0 to {}", index, last);
    }
    Shape across(shape.size(), 1);
    across[0] = shape[0];
    place = plus(n, n.reshape(n.cast(first, DType::i64), across), place);
    // At run time and in mode linear, a negative place is out of range, not counted from the end.
    if (mode == "circular")
      place = n.elementwise(ElementwiseOp::mod, {place, n.constant_i64(shape[along])});
    else
      place = n.elementwise(ElementwiseOp::where,
                            {n.elementwise(ElementwiseOp::less, {place, n.constant_i64(0)}), n.constant_i64(shape[along]), place});
  }
  n.result(0, n.add(Scatter{axis, ScatterKind::none}, {x, place, updates}));
}

namespace {

// The operands indices and updates of ScatterND where only the first `count` entries along a dimension of both are valid, as NonZero leads
// to them (masked_scatter): cut to a common extent, with a mask of what is valid that broadcasts to the front of the indices.
struct Updates {
  TensorId indices, updates, is_valid;  // no is_valid: all are
};

Updates valid_updates(NodeImport& n) {
  const std::optional<Builder::Padded> places = n.padding(n.in(1)), values = n.padding(n.in(2));
  if (n.padding(n.in(0))) throw n.refuse("how many entries data has is known only at run time, supported: a shape that is known");
  if (!places && !values) return {n.in(1), n.in(2), TensorId()};
  const int64_t rank = n.rank(n.in(1));
  if (!places || !values || places->axis != values->axis || places->axis >= rank - 1 || !n.is_same_count(places->count, values->count)) {
    throw n.refuse(
        "how many entries indices or updates have is known only at run time, supported: as many updates as indices, cut to the same count");
  }
  const auto axis = static_cast<size_t>(places->axis);
  const int64_t extent = std::min(n.shape(n.in(1))[axis], n.shape(n.in(2))[axis]);
  const TensorId at = n.counting(extent, static_cast<size_t>(rank - 1), axis);
  return {n.slice_axis(n.in(1), places->axis, 0, extent), n.slice_axis(n.in(2), places->axis, 0, extent),
          n.elementwise(ElementwiseOp::less, {at, places->count})};
}

}  // namespace

// Row numbers in x with its selected dimensions joined to one. A row that is out of range in any of these dimensions gets a number behind
// the last row.
void import_scatter_nd(NodeImport& n) {
  n.expect_counts(3, 3);
  n.expect_same_dtype({n.in(0), n.in(2)});
  const TensorId x = n.in(0);
  const auto [all_indices, updates, is_valid] = valid_updates(n);
  const ScatterKind kind = scatter_kind(n);
  const Shape shape = n.shape(x), given = n.shape(all_indices);
  if (shape.empty()) throw n.bad("data is a scalar, expected at least one dimension");
  const size_t coordinates = coordinates_of(n, all_indices, shape.size());
  const Shape front = part_of(given, 0, given.size() - 1), wanted = joined(front, part_of(shape, coordinates, shape.size()));
  if (n.shape(updates) != wanted) {
    throw n.bad("updates have shape {}, expected {} for data of shape {} and indices of shape {}", shape_text(n.shape(updates)),
                shape_text(wanted), shape_text(shape), shape_text(given));
  }
  if (element_count(shape) == 0 || element_count(wanted) == 0) return n.result(0, x);
  const Shape selected = part_of(shape, 0, coordinates);
  const Ints steps = steps_of(selected);
  const int64_t rows = element_count(selected), width = element_count(shape) / rows, count = element_count(front);
  TensorId place;
  for (size_t d = 0; d < coordinates; ++d) {
    const TensorId indices = checked_indices(n, column(n, all_indices, static_cast<int64_t>(d)), shape[d], static_cast<int64_t>(d));
    if (coordinates == 1) {
      place = indices;
      continue;
    }
    const TensorId counted = from_beginning(n, indices, shape[d]);
    const TensorId is_inside =
        n.elementwise(ElementwiseOp::logical_and, {n.elementwise(ElementwiseOp::greater_equal, {counted, n.constant_i64(0)}),
                                                   n.elementwise(ElementwiseOp::less, {counted, n.constant_i64(shape[d])})});
    place = plus(n, place, n.elementwise(ElementwiseOp::where, {is_inside, times(n, counted, steps[d]), n.constant_i64(rows)}));
  }
  if (is_valid.valid()) place = n.elementwise(ElementwiseOp::where, {is_valid, place, n.constant_i64(rows)});
  // Rows of one dimension stay apart in the others, which may be those of a cache in another order (passes/turn_scatters).
  const Shape row = coordinates == 1 ? part_of(shape, 1, shape.size()) : Shape{width};
  const Shape ones = coordinates == 1 ? Shape(row.size(), 1) : Shape{1};
  const Scattering scattering{n.reshape(x, joined({rows}, row)), n.reshape(place, joined({count}, ones)),
                              n.reshape(updates, joined({count}, row)), 0, kind};
  n.result(0, n.reshape(scattered(n, scattering, /*rows=*/true), shape));
}

// y[t] = x[length - 1 - t] before the end of a sequence, x[t] behind it.
void import_reverse_sequence(NodeImport& n) {
  n.expect_counts(2, 2);
  const TensorId x = n.in(0);
  TensorId lengths = n.in(1);
  const Shape shape = n.shape(x);
  if (shape.size() < 2) throw n.bad("input has shape {}, expected at least two dimensions", shape_text(shape));
  const int64_t time = n.attr_int("time_axis", 0), batch = n.attr_int("batch_axis", 1);
  if (time + batch != 1 || time * batch != 0)
    throw n.bad("attributes 'time_axis' and 'batch_axis' are {} and {}, expected 0 and 1 or 1 and 0", time, batch);
  const auto t = static_cast<size_t>(time), b = static_cast<size_t>(batch);
  if (n.shape(lengths) != Shape{shape[b]} || (n.dtype(lengths) != DType::i64 && n.dtype(lengths) != DType::i32))
    throw n.bad("sequence_lens is {}{}, expected i64[{}]", name_of(n.dtype(lengths)), shape_text(n.shape(lengths)), shape[b]);
  for (const int64_t length : n.is_constant(lengths) ? n.flat_ints(lengths) : Ints()) {
    if (length < 0 || length > shape[t]) throw n.bad("sequence_lens has {}, expected 0 to {}", length, shape[t]);
  }
  if (element_count(shape) == 0) return n.result(0, x);
  Shape across(2, 1);
  across[b] = shape[b];
  lengths = n.reshape(n.cast(lengths, DType::i64), across);
  lengths = n.elementwise(ElementwiseOp::min, {n.elementwise(ElementwiseOp::max, {lengths, n.constant_i64(0)}), n.constant_i64(shape[t])});
  const TensorId at = n.counting(shape[t], 2, t), at_batch = counted_by(n, shape[b], 2, b, time == 0 ? 1 : shape[t]);
  const TensorId is_before_end = n.elementwise(ElementwiseOp::less, {at, lengths});
  const TensorId last = plus(n, lengths, n.constant_i64(-1));
  const TensorId from = n.elementwise(ElementwiseOp::where, {is_before_end, n.elementwise(ElementwiseOp::sub, {last, at}), at});
  const TensorId place = plus(n, at_batch, times(n, from, time == 0 ? shape[1] : 1));
  n.result(0, n.add(Gather{0}, {with_joint_front(n, x, 2), place}));
}

namespace {

// There is room for all entries; those behind the chosen ones are of no meaning.
void compress_at_run_time(NodeImport& n, TensorId x, int64_t axis, int64_t extent) {
  const TensorId condition = n.slice_axis(n.in(1), 0, 0, std::min(extent, n.shape(n.in(1))[0]));
  if (element_count(n.shape(condition)) == 0 || element_count(n.shape(x)) == 0) {
    Shape none = n.shape(x);
    none[static_cast<size_t>(axis)] = 0;
    return n.result(0, empty(n, n.dtype(x), none));
  }
  const std::vector<TensorId> found = n.add_all(NonZero{}, {condition});
  n.padded_result(0, n.add(Gather{axis}, {x, found[0]}), found[1], axis);
}

}  // namespace

// Compress: without an axis, of all elements in row-major order.
void import_compress(NodeImport& n) {
  n.expect_counts(2, 2);
  TensorId x = n.in(0);
  n.expect_bool({n.in(1)});
  if (n.shape(n.in(1)).size() != 1) throw n.bad("input 1 (condition) has shape {}, expected one dimension", shape_text(n.shape(n.in(1))));
  std::optional<int64_t> axis = n.find_int("axis");
  if (axis) axis = n.axis(*axis, n.rank(x), "attribute 'axis'");
  if (!axis) x = n.reshape(x, {element_count(n.shape(x))});
  const int64_t along = axis.value_or(0), extent = n.shape(x)[static_cast<size_t>(along)];
  if (!n.is_constant(n.in(1))) return compress_at_run_time(n, x, along, extent);
  const ops::Value condition = n.value(n.in(1));
  Ints chosen;
  for (int64_t i = 0; i < condition.shape[0]; ++i) {
    if ((*condition.data)[static_cast<size_t>(i)] == std::byte{0}) continue;
    if (i >= extent) throw n.bad("condition chooses element {} of the {} along axis {}", i, extent, along);
    chosen.push_back(i);
  }
  n.result(0, n.add(Gather{along}, {x, n.constant_i64(chosen, {static_cast<int64_t>(chosen.size())})}));
}

namespace {

// There is room for all elements; behind those that are not zero there is -1.
void places_at_run_time(NodeImport& n, TensorId x) {
  const Shape shape = n.shape(x);
  const int64_t rank = n.rank(x), count = element_count(shape);
  if (rank == 0) throw n.refuse("input X is a scalar that is known only at run time, supported: at least one dimension, or a constant");
  if (count == 0) return n.result(0, empty(n, DType::i64, {rank, 0}));
  const std::vector<TensorId> found = n.add_all(NonZero{}, {n.reshape(n.cast(x, DType::boolean), {count})});
  const TensorId is_none = n.elementwise(ElementwiseOp::less, {found[0], n.constant_i64(0)});
  const Ints steps = steps_of(shape);
  std::vector<TensorId> rows;
  for (size_t d = 0; d < shape.size(); ++d) {
    TensorId at = steps[d] == 1 ? found[0] : n.elementwise(ElementwiseOp::div, {found[0], n.constant_i64(steps[d])});
    if (d > 0) at = n.elementwise(ElementwiseOp::mod, {at, n.constant_i64(shape[d])});
    rows.push_back(n.reshape(n.elementwise(ElementwiseOp::where, {is_none, n.constant_i64(-1), at}), {1, count}));
  }
  n.padded_result(0, rows.size() == 1 ? rows[0] : n.add(Concat{0}, rows), found[1], 1);
}

}  // namespace

// The coordinates of all elements that are not zero, a row for each dimension.
void import_non_zero(NodeImport& n) {
  n.expect_counts(1, 1);
  const TensorId x = n.in(0);
  if (!n.is_constant(x)) return places_at_run_time(n, x);
  const ops::Value truths = n.value(n.cast(x, DType::boolean));
  const Ints steps = steps_of(truths.shape);
  std::vector<int64_t> found;
  for (int64_t i = 0; i < element_count(truths.shape); ++i) {
    if ((*truths.data)[static_cast<size_t>(i)] != std::byte{0}) found.push_back(i);
  }
  n.charge(static_cast<int64_t>(found.size() * steps.size() * sizeof(int64_t)));
  Ints coordinates;
  for (size_t d = 0; d < steps.size(); ++d) {
    for (const int64_t i : found) coordinates.push_back(i / steps[d] % truths.shape[d]);
  }
  n.result(0, n.constant_i64(coordinates, {static_cast<int64_t>(steps.size()), static_cast<int64_t>(found.size())}));
}

}  // namespace tamp::frontend
