// A loop whose rounds run beside each other.
#pragma once

#include <cstddef>
#include <functional>
#include <vector>

namespace tamp {

// The number of processors.
size_t processor_count();

// Calls job(0), .., job(count - 1), at most `jobs` at a time. The first exception is thrown on when all have ended.
void in_parallel(size_t count, size_t jobs, const std::function<void(size_t)>& job);

// Calls make(i) for each i from 0 on, several at a time, and take(i) on this thread, in order. Few more are made than processors work at:
// what is not taken yet costs at most `most` together, unless one alone costs more. costs[i] is what make(i) needs, in memory say. An
// exception of either is thrown on.
void make_in_order(const std::vector<size_t>& costs, size_t most, const std::function<void(size_t)>& make,
                   const std::function<void(size_t)>& take);

}  // namespace tamp
