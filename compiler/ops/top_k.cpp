// TopK: of every line along one dimension the first elements in sorted order, and their positions in the line. ArgMax and ArgMin are its
// second result with k = 1.
#include <algorithm>
#include <cstring>
#include <numeric>

#include "compiler/ops/operator.h"
#include "compiler/support/text.h"
#include "kernels/shared/order.h"

namespace tamp::ops {
namespace {

struct Chosen {
  Bytes values;
  std::vector<int64_t> places;
};

template <class T>
Chosen choose(const TopK& op, const Call& call) {
  const Value& x = call.input(0);
  const Numbers<T> numbers(x);
  const rk::ElementOrder order{op.largest, op.last_of_equals, op.nan_first};
  const int64_t outer = product(x.shape, 0, op.axis), extent = x.shape[static_cast<size_t>(op.axis)];
  const int64_t inner = product(x.shape, op.axis + 1, static_cast<int64_t>(x.shape.size())), bytes = bytes_of(x.dtype);
  Chosen chosen{Bytes(output_bytes(call)), std::vector<int64_t>(static_cast<size_t>(outer * op.k * inner))};
  std::vector<int64_t> line(static_cast<size_t>(extent));
  for (int64_t l = 0; l < outer * inner; ++l) {
    const int64_t from = l / inner * extent * inner + l % inner, to = l / inner * op.k * inner + l % inner;
    std::iota(line.begin(), line.end(), 0);
    std::partial_sort(line.begin(), line.begin() + op.k, line.end(), [&](int64_t i, int64_t j) {
      return rk::comes_before(numbers[from + i * inner], i, numbers[from + j * inner], j, order);
    });
    for (int64_t i = 0; i < op.k; ++i) {
      const int64_t place = line[static_cast<size_t>(i)], at = to + i * inner;
      chosen.places[static_cast<size_t>(at)] = place;
      std::memcpy(chosen.values.data() + at * bytes, x.data->data() + (from + place * inner) * bytes, static_cast<size_t>(bytes));
    }
  }
  return chosen;
}

}  // namespace

TensorTypes infer(const TopK& op, const Given& given) {
  given.expect(1);
  Shape result = given.shape(0);
  if (op.axis < 0 || op.axis >= given.rank(0))
    throw bad_input("attribute 'axis' is {}, the input has {} dimensions", op.axis, result.size());
  int64_t& extent = result[static_cast<size_t>(op.axis)];
  if (op.k < 0 || op.k > extent)
    throw bad_input("K is {}, axis {} of input {} has {} elements", op.k, op.axis, shape_text(given.shape(0)), extent);
  extent = op.k;
  return {{given.dtype(0), result}, {DType::i64, result}};
}

std::vector<Value> evaluate(const TopK& op, const Call& call) {
  const DType dtype = call.output().dtype;
  Chosen chosen = is_float(dtype) ? choose<double>(op, call) : dtype == DType::u64 ? choose<uint64_t>(op, call) : choose<int64_t>(op, call);
  return {output_of(call, std::move(chosen.values)), value_from(DType::i64, call.output().shape, chosen.places)};
}

Traits traits_of(const TopK&) { return {Layout::row_major, InF32::none}; }

// Sorting takes a logarithm of comparisons an element.
int64_t own_work(const TopK&, const Given& given, const TensorTypes&) { return saturating_product({given.elements(0), 4 * kWorkOfRead}); }

}  // namespace tamp::ops
