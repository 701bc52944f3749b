// Operators that make values out of nothing: Constant, ConstantOfShape, Range.
#include <algorithm>
#include <array>
#include <cmath>

#include "compiler/frontend/importers.h"
#include "compiler/support/text.h"

namespace tamp::frontend {
namespace {

FileTensor value_of_attribute(NodeImport& n, const Attribute& attribute) {
  const auto count = [](const auto& list) { return Shape{static_cast<int64_t>(list.size())}; };
  if (attribute.name == "value") {
    if (const auto* value = std::get_if<FileTensor>(&attribute.value)) return *value;
    throw n.wrong_kind(attribute, "tensor");
  }
  if (attribute.name == "value_float") return {ops::raw_value<float>(DType::f32, {}, {*n.find_float("value_float")})};
  if (attribute.name == "value_int") return {ops::raw_value<int64_t>(DType::i64, {}, {*n.find_int("value_int")})};
  if (attribute.name == "value_ints") {
    const Ints list = *n.find_ints("value_ints");
    return {ops::raw_value<int64_t>(DType::i64, count(list), list)};
  }
  if (attribute.name == "value_floats") {
    if (const auto* list = std::get_if<std::vector<float>>(&attribute.value))
      return {ops::raw_value<float>(DType::f32, count(*list), *list)};
    throw n.wrong_kind(attribute, "floats");
  }
  throw n.refuse("attribute '{}' is not supported", attribute.name);
}

// max(ceil((limit - start) / delta), 0), or none if it is beyond any budget.
std::optional<int64_t> range_count(double start, double limit, double delta) {
  const double count = std::ceil((limit - start) / delta);
  if (std::isnan(count) || count > static_cast<double>(kMaxElements)) return std::nullopt;
  return std::max<int64_t>(static_cast<int64_t>(std::max(count, 0.0)), 0);
}

std::optional<int64_t> range_count(int64_t start, int64_t limit, int64_t delta) {
  const __int128 span = static_cast<__int128>(limit) - start, step = delta;
  if ((span > 0) != (step > 0) || span == 0) return 0;
  const __int128 count = (span + step + (step > 0 ? -1 : 1)) / step;
  if (count > kMaxElements) return std::nullopt;
  return static_cast<int64_t>(count);
}

template <class T>
ops::Value values_of_range(NodeImport& n, DType dtype, T start, T limit, T delta) {
  if (delta == 0) throw n.bad("delta is 0");
  const std::optional<int64_t> count = range_count(start, limit, delta);
  if (!count) throw n.bad("range from {} to {} by {} has no length that can be folded", start, limit, delta);
  n.charge(*count * static_cast<int64_t>(sizeof(T)));
  std::vector<T> numbers;
  for (int64_t i = 0; i < *count; ++i) {
    if constexpr (std::is_integral_v<T>) {  // unsigned, because i * delta may overflow T on the way
      numbers.push_back(static_cast<T>(static_cast<uint64_t>(start) + static_cast<uint64_t>(i) * static_cast<uint64_t>(delta)));
    } else {
      numbers.push_back(start + static_cast<T>(i) * delta);
    }
  }
  return ops::raw_value<T>(dtype, {*count}, numbers);
}

}  // namespace

void import_constant(NodeImport& n) {
  static constexpr std::array kForms = {"value",      "value_float",  "value_floats",  "value_int",
                                        "value_ints", "value_string", "value_strings", "sparse_value"};
  n.expect_counts(0, 0);
  std::vector<const Attribute*> given;
  for (const char* form : kForms) {
    const bool only_value = n.version() < 11, known = n.version() >= 12 || std::strcmp(form, "sparse_value") == 0;
    if (std::strcmp(form, "value") != 0 && (only_value || !known)) continue;
    if (const Attribute* attribute = n.find(form)) given.push_back(attribute);
  }
  if (given.size() != 1) throw n.bad("has {} value attributes, expected one", given.size());
  n.result(0, n.file_tensor(value_of_attribute(n, *given[0])));
}

// A large tensor is not folded: repeating one number costs the device nothing.
void import_constant_of_shape(NodeImport& n) {
  n.expect_counts(1, 1);
  const Shape shape = n.ints(0, "shape");
  for (const int64_t extent : shape) {
    if (extent < 0) throw n.bad("shape {} has a negative extent", shape_text(shape));
  }
  TensorId one;
  NarrowType narrow = NarrowType::none;
  if (const Attribute* attribute = n.find("value")) {
    const auto* value = std::get_if<FileTensor>(&attribute->value);
    if (!value) throw n.wrong_kind(*attribute, "tensor");
    if (element_count(value->shape) != 1) throw n.bad("attribute 'value' has shape {}, expected one element", shape_text(value->shape));
    one = n.reshape(n.constant(*value), {});
    narrow = value->narrow;
  } else {
    one = n.constant_f32(0);
  }
  n.result(0, n.of_narrow(n.expand(one, shape), narrow));
}

void import_range(NodeImport& n) {
  n.expect_counts(3, 3);
  if (n.version() >= 27) n.ignore("stash_type");  // how f16 and bf16 are computed; here in f64
  n.expect_number({n.in(0), n.in(1), n.in(2)});
  const DType dtype = n.dtype(n.in(0));
  if (is_float(dtype)) {
    const double start = n.number(0, "start"), limit = n.number(1, "limit"), delta = n.number(2, "delta");
    return n.result(0, n.cast(n.constant(values_of_range<double>(n, DType::f64, start, limit, delta)), dtype));
  }
  if (dtype != DType::i16 && dtype != DType::i32 && dtype != DType::i64)
    throw n.refuse("operands are {}, supported: floats and signed integers", name_of(dtype));
  Ints numbers;
  for (const size_t i : {size_t{0}, size_t{1}, size_t{2}}) {
    n.number(i, i == 0 ? "start" : i == 1 ? "limit" : "delta");  // known, and one element
    numbers.push_back(n.flat_ints(n.cast(n.in(i), DType::i64))[0]);
  }
  n.result(0, n.cast(n.constant(values_of_range<int64_t>(n, DType::i64, numbers[0], numbers[1], numbers[2])), dtype));
}

}  // namespace tamp::frontend
