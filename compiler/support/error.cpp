#include "compiler/support/error.h"

#include <fmt/format.h>

#include <cstring>

namespace tamp {

void fail_check(const char* file, int line, const char* condition, const std::string& message) {
  const char* slash = std::strrchr(file, '/');
  throw InternalError(fmt::format("{}:{}: {} ({}); this is a bug in tamp", slash ? slash + 1 : file, line, message, condition));
}

}  // namespace tamp
