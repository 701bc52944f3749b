// What a function that fails says.
#pragma once

#include <functional>
#include <string>

#include "compiler/support/error.h"
#include "test/support/catch.h"

namespace tamp::test {

// The message of the Error that f throws, whose exit code is checked.
inline std::string message_of(const std::function<void()>& f, ExitCode code = ExitCode::bad_input) {
  try {
    f();
  } catch (const Error& error) {
    CHECK(error.code() == code);
    return error.what();
  }
  FAIL("nothing was thrown");
  return "";
}

}  // namespace tamp::test
