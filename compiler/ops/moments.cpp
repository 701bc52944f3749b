#include "compiler/ops/moments.h"

#include <algorithm>
#include <string>

#include "compiler/support/error.h"
#include "compiler/support/text.h"

namespace tamp::ops {

std::vector<double> moments_of_rows(const std::vector<double>& y) {
  std::vector<double> moments;
  for (size_t part = 0; part < y.size(); part += kMomentColumns)
    append_moments([&](int64_t i) { return y[part + static_cast<size_t>(i)]; }, moments);
  return moments;
}

int64_t rows_of(const Shape& shape) { return element_count(shape) / std::max<int64_t>(1, shape.back()); }
Shape moments_of(const Shape& shape) { return {rows_of(shape), shape.back() / kMomentColumns, 2}; }

void check_columns(const char* operand, const Shape& shape) {
  if (shape.back() % kMomentColumns != 0 || shape.back() == 0)
    throw bad_input(std::string(operand) + " has shape " + shape_text(shape) + ", expected rows of a multiple of " +
                    std::to_string(kMomentColumns));
}

}  // namespace tamp::ops
