// UTF-8, and the characters in it that a terminal or an editor obeys instead of showing them.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace tamp {

struct CodePoint {
  char32_t value = 0;
  size_t bytes = 0;  // 0: the bytes here are not UTF-8
};
// The first of `text`, which is not empty. Overlong forms, surrogates and numbers beyond Unicode are not UTF-8.
CodePoint decode_utf8(std::string_view text);

// Controls, and characters that are invisible or change the order of others.
bool is_control(char32_t c);

// A whole message in which all controls except ends of lines are written as "\x1b" is, and bytes that are not UTF-8 likewise.
std::string without_controls(std::string_view text);

}  // namespace tamp
