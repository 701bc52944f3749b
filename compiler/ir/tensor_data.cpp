#include "compiler/ir/tensor_data.h"

#include <atomic>
#include <mutex>
#include <utility>

#include "compiler/ir/large_bytes.h"
#include "compiler/support/error.h"

namespace tamp {

struct TensorData::State {
  size_t size = 0;
  Make make;  // or none
  std::mutex mutex;
  std::weak_ptr<const Bytes> held;
  std::shared_ptr<const Bytes> kept;
  std::atomic<const Bytes*> ready = nullptr;  // `kept`, for those who look without the mutex
};

TensorData::TensorData(std::shared_ptr<const Bytes> bytes, size_t size, Make make) {
  if (!bytes && !make) return;
  state_ = std::make_shared<State>();
  state_->size = bytes ? bytes->size() : size;
  state_->make = std::move(make);
  state_->ready = bytes.get();
  state_->kept = std::move(bytes);
}

TensorData TensorData::made_by(size_t size, Make make) {
  constexpr size_t kLarge = size_t{1} << 20;  // smaller ones are read by many passes, and together they are few
  return size < kLarge ? TensorData(std::make_shared<const Bytes>(make())) : TensorData(nullptr, size, std::move(make));
}

size_t TensorData::size() const { return state_->size; }

const Bytes* TensorData::in_memory() const { return state_ && !state_->make ? state_->kept.get() : nullptr; }

std::shared_ptr<const Bytes> TensorData::hold() const {
  const std::scoped_lock lock(state_->mutex);
  if (state_->kept) return state_->kept;
  std::shared_ptr<const Bytes> bytes = state_->held.lock();
  if (bytes) return bytes;
  bytes = hold_large(state_->make());
  TAMP_CHECK(bytes->size() == state_->size, "bytes of another size than they were said to have");
  state_->held = bytes;
  return bytes;
}

const Bytes& TensorData::operator*() const {
  if (const Bytes* const ready = state_->ready.load(std::memory_order_acquire)) return *ready;
  std::shared_ptr<const Bytes> bytes = hold();
  const std::scoped_lock lock(state_->mutex);
  if (!state_->kept) {
    state_->ready.store(bytes.get(), std::memory_order_release);
    state_->kept = std::move(bytes);
  }
  return *state_->kept;
}

void TensorData::forget() const {
  if (!state_ || !state_->make) return;
  const std::scoped_lock lock(state_->mutex);
  state_->ready.store(nullptr, std::memory_order_release);
  state_->kept.reset();
}

}  // namespace tamp
