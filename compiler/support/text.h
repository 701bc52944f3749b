// Small text helpers: joining, quoting of names that come from untrusted models, sizes for people.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tamp {

std::string join(const std::vector<std::string>& parts, std::string_view separator);

// "[1,3,224,224]"
std::string shape_text(const std::vector<int64_t>& shape);

// A model's name made safe for one line of output: control bytes, quotes, backslashes and comment ends are escaped,
// and anything longer than `limit` bytes is cut with "...".
std::string printable(std::string_view name, size_t limit = 120);

// "1.5 MB"
std::string bytes_text(int64_t bytes);

// A legal C++ identifier made of `name`: other bytes become '_', a leading digit or a keyword gets a prefix.
std::string identifier(std::string_view name);

// Printing helper for std::visit: overloaded{lambdas...}.
template <class... F>
struct overloaded : F... {
  using F::operator()...;
};
template <class... F>
overloaded(F...) -> overloaded<F...>;

}  // namespace tamp
