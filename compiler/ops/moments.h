// Moments of rows as Moments gives them.
#pragma once

#include <cstdint>
#include <vector>

#include "compiler/ir/graph.h"

namespace tamp::ops {

// Appends mean and squares of the kMomentColumns values value(0), value(1), ..
template <class Value>
void append_moments(const Value& value, std::vector<double>& moments) {
  double mean = 0, squares = 0;
  for (int64_t i = 0; i < kMomentColumns; ++i) mean += value(i) / kMomentColumns;
  for (int64_t i = 0; i < kMomentColumns; ++i) squares += (value(i) - mean) * (value(i) - mean);
  moments.push_back(mean);
  moments.push_back(squares);
}

// Of the rows of a result that lies one row after the other.
std::vector<double> moments_of_rows(const std::vector<double>& y);

int64_t rows_of(const Shape& shape);
Shape moments_of(const Shape& shape);

// Error unless rows of `shape` are whole groups of kMomentColumns.
void check_columns(const char* operand, const Shape& shape);

}  // namespace tamp::ops
