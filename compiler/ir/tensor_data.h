// The bytes of a constant. Those of a large model do not fit into memory, let alone as floats of 32 bits. So the bytes of a large tensor
// are made where somebody reads them, from a file or from other constants, and made again where they were forgotten in between.
#pragma once

#include <compare>
#include <concepts>
#include <cstddef>
#include <functional>
#include <memory>
#include <vector>

namespace tamp {

using Bytes = std::vector<std::byte>;

// So many zeros. What is large lies in huge pages where the system has them: the kernel takes long for millions of small ones.
Bytes zero_bytes(size_t count);

// A handle: copies share the bytes, and compare equal; other data with equal bytes do not. Any thread may read.
class TensorData {
 public:
  // Gives the same bytes each time.
  using Make = std::function<Bytes()>;

  TensorData() = default;
  TensorData(std::nullptr_t) {}
  template <std::convertible_to<std::shared_ptr<const Bytes>> Pointer>
  TensorData(Pointer bytes) : TensorData(std::shared_ptr<const Bytes>(std::move(bytes)), 0, nullptr) {}
  // Of `size` bytes, which are made when they are read; few are made at once, and stay.
  static TensorData made_by(size_t size, Make make);

  explicit operator bool() const { return state_ != nullptr; }
  auto operator<=>(const TensorData&) const = default;

  size_t size() const;
  // Null for bytes that are made.
  const Bytes* in_memory() const;
  // There as long as the result is held.
  std::shared_ptr<const Bytes> hold() const;
  // There until they are forgotten, or for ever if they are not made.
  const Bytes& operator*() const;
  const Bytes* operator->() const { return &**this; }
  // Frees bytes that can be made again. No thread may read them meanwhile, unless it holds them.
  void forget() const;

  // Lives as long as the data, for caches.
  std::weak_ptr<const void> life() const { return state_; }

 private:
  struct State;
  TensorData(std::shared_ptr<const Bytes> bytes, size_t size, Make make);
  std::shared_ptr<State> state_;
};

}  // namespace tamp
