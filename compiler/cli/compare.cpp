#include "compiler/cli/compare.h"

#include <cmath>
#include <limits>

#include "compiler/cli/ports.h"
#include "compiler/support/error.h"
#include "compiler/support/text.h"

namespace tamp::cli {
namespace {

bool same(double a, double b) { return a == b || (std::isnan(a) && std::isnan(b)); }

// Of integers of 64 bits, whose differences a double may not see.
double whole_distance(const ops::Value& a, const ops::Value& b, int64_t i) {
  const bool is_unsigned = a.dtype == DType::u64;
  const auto wide = [&](const ops::Value& value) {
    const int64_t whole = whole_at(value, i);
    return is_unsigned ? static_cast<__int128>(static_cast<uint64_t>(whole)) : static_cast<__int128>(whole);
  };
  return std::abs(static_cast<double>(wide(a) - wide(b)));
}

}  // namespace

double distance_at(const ops::Value& a, const ops::Value& b, int64_t i) {
  if (!is_float(a.dtype)) return whole_distance(a, b, i);
  const double x = number_at(a, i), y = number_at(b, i);
  if (same(x, y)) return 0;
  const double d = std::abs(x - y);
  return std::isfinite(d) ? d : std::numeric_limits<double>::infinity();
}

Difference difference(const ops::Value& got, const ops::Value& expected) {
  TAMP_CHECK(got.shape == expected.shape && got.dtype == expected.dtype, "the reference gives an output of another type or shape");
  Difference out;
  double squares = 0, norm = 0, largest = 0;
  for (int64_t i = 0; i < element_count(got.shape); ++i) {
    const double a = number_at(got, i), b = number_at(expected, i), d = distance_at(got, expected, i);
    if (std::isfinite(b)) norm += b * b;
    squares += d * d;
    if (d > largest) {
      largest = d;
      out.worst = i;
      out.got = a;
      out.expected = b;
    }
  }
  out.relative_l2 = norm > 0 ? std::sqrt(squares / norm) : std::sqrt(squares);
  return out;
}

double tolerance(Precision precision, DType dtype) {
  if (!is_float(dtype)) return 0;
  switch (precision) {
    case Precision::fp32: return 1e-4;
    case Precision::tf32:
    case Precision::fp16: return dtype == DType::bf16 ? 4e-2 : 5e-3;  // a model of bf16, which the reference rounds step by step
    case Precision::bf16: return 4e-2;                                // three bits less than the others
  }
  TAMP_CHECK(false, "precision out of range");
}

std::string index_text(int64_t i, const Shape& shape) {
  std::vector<int64_t> index(shape.size());
  for (size_t d = shape.size(); d-- > 0;) {
    index[d] = i % shape[d];
    i /= shape[d];
  }
  return shape_text(index);
}

}  // namespace tamp::cli
