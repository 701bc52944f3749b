// A loop whose rounds run beside each other.
#pragma once

#include <cstddef>
#include <functional>

namespace tamp {

// The number of processors.
size_t processor_count();

// Calls job(0), .., job(count - 1), at most `jobs` at a time. The first exception is thrown on when all have ended.
void in_parallel(size_t count, size_t jobs, const std::function<void(size_t)>& job);

}  // namespace tamp
