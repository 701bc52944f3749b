#include "compiler/ir/large_bytes.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdint>
#include <mutex>
#include <utility>
#include <vector>

namespace tamp {
namespace {

constexpr size_t kLarge = size_t{4} << 20, kMostWaiting = size_t{2} << 30;

// Ascending by age. Odd: a global object, since memory belongs to the process.
class Waiting {
 public:
  // Empty, and of enough capacity or of none.
  Bytes take(size_t count) {
    const std::scoped_lock lock(mutex_);
    const auto found =
        std::find_if(bytes_.begin(), bytes_.end(), [&](const Bytes& b) { return b.capacity() >= count && b.capacity() / 2 < count; });
    if (found == bytes_.end()) return {};
    Bytes bytes = std::move(*found);
    bytes_.erase(found);
    waiting_ -= bytes.capacity();
    bytes.clear();
    return bytes;
  }

  void add(Bytes bytes) {
    if (bytes.capacity() < kLarge || bytes.capacity() > kMostWaiting) return;
    std::vector<Bytes> gone;  // freed without the mutex
    const std::scoped_lock lock(mutex_);
    waiting_ += bytes.capacity();
    bytes_.push_back(std::move(bytes));
    for (; waiting_ > kMostWaiting; bytes_.erase(bytes_.begin())) {
      waiting_ -= bytes_.front().capacity();
      gone.push_back(std::move(bytes_.front()));
    }
  }

 private:
  std::mutex mutex_;
  std::vector<Bytes> bytes_;
  size_t waiting_ = 0;
};

Waiting& waiting() {
  static Waiting* const all = new Waiting;
  return *all;
}

void use_huge_pages(const Bytes& bytes) {
  constexpr uintptr_t kHugePage = uintptr_t{2} << 20;
  const auto first = reinterpret_cast<uintptr_t>(bytes.data());
  const uintptr_t begin = (first + kHugePage - 1) / kHugePage * kHugePage, end = (first + bytes.capacity()) / kHugePage * kHugePage;
  if (begin < end) madvise(reinterpret_cast<void*>(begin), end - begin, MADV_HUGEPAGE);
}

}  // namespace

Bytes zero_bytes(size_t count) {
  if (count < kLarge) return Bytes(count);
  Bytes bytes = waiting().take(count);
  if (bytes.capacity() == 0) {
    bytes.reserve(count);
    use_huge_pages(bytes);  // before any page is there
  }
  bytes.resize(count);
  return bytes;
}

std::shared_ptr<const Bytes> hold_large(Bytes bytes) {
  return {new Bytes(std::move(bytes)), [](Bytes* owned) {
            const std::unique_ptr<Bytes> gone(owned);
            waiting().add(std::move(*owned));
          }};
}

}  // namespace tamp
