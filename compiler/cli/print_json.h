// JSON as commands print it: one object or array, fields in the order in which they were made. Text that is no UTF-8 is replaced.
#pragma once

#include <fmt/format.h>

#include <nlohmann/json.hpp>

namespace tamp::cli {

inline void print_json(const nlohmann::ordered_json& value) {
  fmt::print("{}\n", value.dump(1, ' ', /*ensure_ascii=*/true, nlohmann::ordered_json::error_handler_t::replace));
}

}  // namespace tamp::cli
