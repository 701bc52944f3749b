// Moments as MomentMatMul and MomentConv give them.
#pragma once

#include <cstdint>
#include <vector>

#include "compiler/ir/ops.h"

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

}  // namespace tamp::ops
