#include "compiler/support/parallel.h"

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

namespace tamp {

size_t processor_count() { return std::max(1u, std::thread::hardware_concurrency()); }

void in_parallel(size_t count, size_t jobs, const std::function<void(size_t)>& job) {
  std::atomic<size_t> next = 0;
  std::mutex mutex;
  std::exception_ptr failure;
  const auto work = [&] {
    for (size_t i = next++; i < count; i = next++) {
      try {
        job(i);
      } catch (...) {
        const std::scoped_lock lock(mutex);
        if (!failure) failure = std::current_exception();
      }
    }
  };
  {
    std::vector<std::jthread> threads;
    for (size_t i = 1; i < std::min(count, jobs); ++i) threads.emplace_back(work);
    work();
  }
  if (failure) std::rethrow_exception(failure);
}

namespace {

class MakeInOrder {
 public:
  MakeInOrder(const std::vector<size_t>& costs, size_t most, const std::function<void(size_t)>& make)
      : costs_(costs), most_(most), make_(make), made_(costs.size(), false) {}

  void work() {
    for (std::optional<size_t> i = next(); i; i = next()) {
      guard([&] { make_(*i); });
      const std::scoped_lock lock(mutex_);
      made_[*i] = true;
      changed_.notify_all();
    }
  }

  void take_all(const std::function<void(size_t)>& take) {
    for (size_t i = 0; i < costs_.size() && wait_for(i); ++i) {
      guard([&] { take(i); });
      const std::scoped_lock lock(mutex_);
      open_ -= costs_[i];
      ++taken_;
      changed_.notify_all();
    }
  }

  void throw_failure() const {
    if (failure_) std::rethrow_exception(failure_);
  }

 private:
  std::optional<size_t> next() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return failure_ || next_ == costs_.size() || next_ == taken_ || may_open(); });
    if (failure_ || next_ == costs_.size()) return std::nullopt;
    open_ += costs_[next_];
    return next_++;
  }

  bool may_open() const { return next_ - taken_ < processor_count() + 2 && open_ + costs_[next_] <= most_; }

  bool wait_for(size_t i) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return failure_ || made_[i]; });
    return !failure_;
  }

  void guard(const std::function<void()>& job) {
    try {
      job();
    } catch (...) {
      const std::scoped_lock lock(mutex_);
      if (!failure_) failure_ = std::current_exception();
      changed_.notify_all();
    }
  }

  const std::vector<size_t>& costs_;
  const size_t most_;
  const std::function<void(size_t)>& make_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<bool> made_;
  size_t next_ = 0, taken_ = 0, open_ = 0;  // `open_`: the cost of those in between
  std::exception_ptr failure_;
};

}  // namespace

void make_in_order(const std::vector<size_t>& costs, size_t most, const std::function<void(size_t)>& make,
                   const std::function<void(size_t)>& take) {
  MakeInOrder state(costs, most, make);
  {
    std::vector<std::jthread> threads;
    for (size_t i = 0; i < std::min(costs.size(), processor_count()); ++i) threads.emplace_back([&] { state.work(); });
    state.take_all(take);
  }
  state.throw_failure();
}

}  // namespace tamp
