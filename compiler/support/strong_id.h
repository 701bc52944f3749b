// Strong index types: a TensorId cannot be passed where an ROperatorId is meant. The value is the position in the
// owning vector (Graph::tensors, Graph::rops, ...); a default-constructed id is "none".
#pragma once

#include <compare>
#include <cstdint>
#include <functional>

namespace tamp {

template <class Tag>
struct StrongId {
  int32_t value = -1;

  constexpr StrongId() = default;
  constexpr explicit StrongId(int64_t v) : value(static_cast<int32_t>(v)) {}
  constexpr bool valid() const { return value >= 0; }
  constexpr size_t index() const { return static_cast<size_t>(value); }
  constexpr auto operator<=>(const StrongId&) const = default;
};

}  // namespace tamp

template <class Tag>
struct std::hash<tamp::StrongId<Tag>> {
  size_t operator()(tamp::StrongId<Tag> id) const noexcept { return std::hash<int32_t>{}(id.value); }
};
