#include "compiler/support/unique_names.h"

#include <fmt/format.h>

namespace tamp {

std::string UniqueNames::unique(const std::string& wish, const std::string& separator) {
  std::string name = wish;
  if (taken_.insert(name).second) return name;
  int64_t& next = next_.try_emplace(wish, 2).first->second;
  do name = fmt::format("{}{}{}", wish, separator, next++);
  while (!taken_.insert(name).second);
  return name;
}

}  // namespace tamp
