// Operators about the order of elements along a dimension, and those that are made of them.
#include <algorithm>
#include <map>

#include "compiler/frontend/importers.h"
#include "compiler/support/text.h"

namespace tamp::frontend {
namespace {

// The `k` of TopK: an attribute in version 1, an operand from then on.
int64_t wanted_count(NodeImport& n) {
  if (n.version() < 10) {
    const std::optional<int64_t> k = n.find_int("k");
    if (!k) throw n.bad("attribute 'k' is missing");
    return *k;
  }
  const Ints k = n.ints(1, "K");
  if (k.size() != 1) throw n.bad("input 1 (K) has {} values, expected one", k.size());
  return k[0];
}

// Where the largest or smallest element of every line stands; extent 1 along the axis. NaN counts as largest, and as smallest.
TensorId place_of_first(NodeImport& n, TensorId x, int64_t axis, bool largest, bool last_of_equals) {
  const Shape shape = n.shape(x);
  if (shape[static_cast<size_t>(axis)] == 0) throw n.bad("axis {} of {} has no elements", axis, shape_text(shape));
  return n.add_all(TopK{axis, 1, largest, last_of_equals, /*nan_first=*/true}, {x})[1];
}

// -0 equals 0, all NaNs are equal, and NaN comes behind everything.
int compared(double a, double b) {
  if (a != a || b != b) return (a != a) - (b != b);
  return (a > b) - (a < b);
}
int compared(int64_t a, int64_t b) { return (a > b) - (a < b); }
int compared(uint64_t a, uint64_t b) { return (a > b) - (a < b); }

// The result of Unique for the parts of a constant. There are `count` parts; a part is all elements x[o, part, i].
struct Parts {
  std::vector<int64_t> first, inverse, counts;  // first: where each different part first stands; inverse: which of these each part is
};
template <class T>
Parts different_parts(const std::vector<T>& x, int64_t outer, int64_t count, int64_t inner, bool sorted) {
  const auto compare = [&](int64_t a, int64_t b) {
    for (int64_t o = 0; o < outer; ++o) {
      for (int64_t i = 0; i < inner; ++i) {
        const auto at = [&](int64_t part) { return x[static_cast<size_t>((o * count + part) * inner + i)]; };
        if (const int order = compared(at(a), at(b)); order != 0) return order;
      }
    }
    return 0;
  };
  std::vector<int64_t> order = range(0, count);
  std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) { return compare(a, b) < 0; });
  std::vector<int64_t> first_of(static_cast<size_t>(count));  // the first part that equals each part
  Parts parts;
  for (size_t k = 0; k < order.size(); ++k) {
    const bool is_new = k == 0 || compare(order[k - 1], order[k]) != 0;
    if (is_new) parts.first.push_back(order[k]);
    first_of[static_cast<size_t>(order[k])] = parts.first.back();
  }
  if (!sorted) std::sort(parts.first.begin(), parts.first.end());
  std::map<int64_t, int64_t> number;
  for (const int64_t first : parts.first) number.emplace(first, static_cast<int64_t>(number.size()));
  parts.counts.assign(parts.first.size(), 0);
  for (const int64_t first : first_of) {
    parts.inverse.push_back(number.at(first));
    ++parts.counts[static_cast<size_t>(number.at(first))];
  }
  return parts;
}

}  // namespace

// Whether the results are `sorted` changes nothing: they always are.
void import_top_k(NodeImport& n) {
  const bool by_input = n.version() >= 10;
  n.expect_counts(by_input ? 2 : 1, by_input ? 2 : 1, 2);
  const TensorId x = n.in(0);
  n.expect_number({x});
  const int64_t axis = n.axis(n.attr_int("axis", -1), n.rank(x), "attribute 'axis'");
  const bool largest = n.version() < 11 || n.attr_flag("largest", true);
  if (n.version() >= 11) n.attr_flag("sorted", true);
  const std::vector<TensorId> results = n.add_all(TopK{axis, wanted_count(n), largest, /*last_of_equals=*/false, largest}, {x});
  n.result(0, results[0]);
  n.result(1, results[1]);
}

void import_arg_extreme(NodeImport& n, bool largest) {
  n.expect_counts(1, 1);
  const TensorId x = n.in(0);
  n.expect_number({x});
  const int64_t axis = n.axis(n.attr_int("axis", 0), n.rank(x), "attribute 'axis'");
  const bool keepdims = n.attr_flag("keepdims", true);
  const bool last = n.version() >= 12 && n.attr_flag("select_last_index", false);
  const TensorId place = place_of_first(n, x, axis, largest, last);
  Shape shape = n.shape(place);
  if (!keepdims) shape.erase(shape.begin() + axis);
  n.result(0, n.reshape(place, shape));
}

// One where the first of the largest elements stands, else zero. Before version 13 over all dimensions from `axis` on.
void import_hardmax(NodeImport& n) {
  n.expect_counts(1, 1);
  TensorId x = n.float_in(0);
  const Shape shape = n.shape(x);
  const bool joint = n.version() < 13;
  int64_t axis = n.axis(n.attr_int("axis", joint ? 1 : -1), n.rank(x), "attribute 'axis'");
  if (element_count(shape) == 0) return n.result(0, x);
  if (joint) {
    Shape flat = {1, 1};
    for (size_t d = 0; d < shape.size(); ++d) flat[d < static_cast<size_t>(axis) ? 0 : 1] *= shape[d];
    x = n.reshape(x, flat);
    axis = 1;
  }
  const TensorId place = place_of_first(n, x, axis, /*largest=*/true, /*last_of_equals=*/false);
  const auto along = static_cast<size_t>(axis);
  const TensorId is_there = n.elementwise(ElementwiseOp::equal, {place, n.counting(n.shape(x)[along], n.shape(x).size(), along)});
  n.result(0, n.reshape(n.cast(is_there, n.dtype(x)), shape));
}

void import_cumulate(NodeImport& n, bool product) {
  n.expect_counts(2, 2);
  const TensorId x = n.in(0);
  n.expect_number({x});
  const Ints axis = n.ints(1, "axis");
  if (axis.size() != 1) throw n.bad("input 1 (axis) has {} values, expected one", axis.size());
  Cumulate cumulate{n.axis(axis[0], n.rank(x)), product, n.attr_flag("exclusive", false), n.attr_flag("reverse", false)};
  n.result(0, n.add(cumulate, {x}));
}

// The number of different parts is known for constants only.
void import_unique(NodeImport& n) {
  n.expect_counts(1, 1, 4);
  TensorId x = n.in(0);
  if (!n.is_constant(x))
    throw n.refuse("the results' shapes depend on the values of input X, which are known only at run time, supported: a constant");
  const bool sorted = n.attr_flag("sorted", true);
  std::optional<int64_t> axis = n.find_int("axis");
  if (axis) axis = n.axis(*axis, n.rank(x), "attribute 'axis'");
  if (!axis) x = n.reshape(x, {element_count(n.shape(x))});
  const auto along = static_cast<size_t>(axis.value_or(0));
  const Shape shape = n.shape(x);
  int64_t outer = 1, inner = 1;
  for (size_t d = 0; d < shape.size(); ++d) (d < along ? outer : inner) *= d == along ? 1 : shape[d];
  const auto parts_as = [&]<class T>(T, DType dtype) {
    return different_parts(ops::raw_numbers<T>(n.value(n.cast(x, dtype))), outer, shape[along], inner, sorted);
  };
  const DType dtype = n.dtype(x);
  const Parts parts = is_float(dtype)       ? parts_as(double{}, DType::f64)
                      : dtype == DType::u64 ? parts_as(uint64_t{}, DType::u64)
                                            : parts_as(int64_t{}, DType::i64);
  const auto list = [&](const Ints& values) { return n.constant_i64(values, {static_cast<int64_t>(values.size())}); };
  const TensorId first = list(parts.first);
  n.result(0, n.add(Gather{static_cast<int64_t>(along)}, {x, first}));
  if (n.wants(1)) n.result(1, first);
  if (n.wants(2)) n.result(2, list(parts.inverse));
  if (n.wants(3)) n.result(3, list(parts.counts));
}

}  // namespace tamp::frontend
