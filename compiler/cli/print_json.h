// Prints JSON as all commands do: one object or array, fields in the order in which they were added. Text that is not UTF-8 is replaced.
#pragma once

#include <fmt/format.h>

#include <nlohmann/json.hpp>

namespace tamp::cli {

inline void print_json(const nlohmann::ordered_json& value) {
  fmt::print("{}\n", value.dump(1, ' ', /*ensure_ascii=*/true, nlohmann::ordered_json::error_handler_t::replace));
}

}  // namespace tamp::cli
