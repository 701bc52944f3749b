// Failures. `Error` is what a user can cause and mend: it carries the exit code of the command line (docs: exit codes)
// and a one-line message in lower case that says what, where, expected, found. `TAMP_CHECK` is for what only a bug in
// tamp can cause.
#pragma once

#include <fmt/core.h>

#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace tamp {

enum class ExitCode : int { ok = 0, bad_input = 1, unsupported = 2, internal = 3, check_failed = 4 };

// One thing that is not supported, as data for tools: the node's name and operator as in the file (both empty if the refusal is not about a
// node), and the reason, which does not repeat them.
struct Refusal {
  std::string node, op, reason;
};

class Error : public std::runtime_error {
 public:
  Error(ExitCode code, const std::string& message, std::vector<Refusal> refusals = {})
      : std::runtime_error(message), code_(code), refusals_(std::move(refusals)) {}
  ExitCode code() const { return code_; }
  const std::vector<Refusal>& refusals() const { return refusals_; }  // none: the message is all

 private:
  ExitCode code_;
  std::vector<Refusal> refusals_;
};

inline Error bad_input(const std::string& message) { return Error(ExitCode::bad_input, message); }
inline Error unsupported(const std::string& message, std::vector<Refusal> refusals = {}) {
  return Error(ExitCode::unsupported, message, std::move(refusals));
}
// The same with a format and its arguments.
template <class First, class... Rest>
Error bad_input(fmt::format_string<First, Rest...> message, First&& first, Rest&&... rest) {
  return bad_input(fmt::format(message, std::forward<First>(first), std::forward<Rest>(rest)...));
}
template <class First, class... Rest>
Error unsupported(fmt::format_string<First, Rest...> message, First&& first, Rest&&... rest) {
  return unsupported(fmt::format(message, std::forward<First>(first), std::forward<Rest>(rest)...));
}

// Thrown by TAMP_CHECK; the command line prints it with "this is a bug in tamp" and exits with 3.
class InternalError : public std::logic_error {
  using std::logic_error::logic_error;
};

[[noreturn]] void fail_check(const char* file, int line, const char* condition, const std::string& message);

}  // namespace tamp

#define TAMP_CHECK(cond, message)                                          \
  do {                                                                     \
    if (!(cond)) ::tamp::fail_check(__FILE__, __LINE__, #cond, (message)); \
  } while (false)
