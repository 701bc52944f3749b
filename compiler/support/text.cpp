#include "compiler/support/text.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

namespace tamp {

std::string join(const std::vector<std::string>& parts, std::string_view separator) {
  return fmt::format("{}", fmt::join(parts, separator));
}

std::string shape_text(const std::vector<int64_t>& shape) { return fmt::format("[{}]", fmt::join(shape, ",")); }

std::string printable(std::string_view name, size_t limit) {
  std::string out;
  for (size_t i = 0; i < name.size(); ++i) {
    if (out.size() >= limit) return out + "...";
    const auto c = static_cast<unsigned char>(name[i]);
    const bool comment_edge = i + 1 < name.size() && ((c == '*' && name[i + 1] == '/') || (c == '/' && name[i + 1] == '*'));
    const bool trigraph = c == '?' && i + 1 < name.size() && name[i + 1] == '?';
    if (c < 0x20 || c == 0x7f || c == '"' || c == '\\' || comment_edge || trigraph) {
      out += fmt::format("\\x{:02x}", c);
    } else {
      out += static_cast<char>(c);
    }
  }
  return out;
}

std::string bytes_text(int64_t bytes) {
  if (bytes < 1024) return fmt::format("{} B", bytes);
  if (bytes < 1024 * 1024) return fmt::format("{:.1f} KB", static_cast<double>(bytes) / 1024.0);
  return fmt::format("{:.1f} MB", static_cast<double>(bytes) / (1024.0 * 1024.0));
}

std::string identifier(std::string_view name) {
  // Words that a generated symbol may not be: C++ and CUDA keywords, and macros of <cuda_runtime.h>.
  static constexpr std::array kReserved = {
      "alignas",   "alignof",  "and",     "asm",      "auto",     "bool",   "break",    "case",      "catch",    "char",     "class",
      "const",     "continue", "default", "delete",   "do",       "double", "else",     "enum",      "explicit", "export",   "extern",
      "false",     "float",    "for",     "friend",   "goto",     "if",     "inline",   "int",       "long",     "main",     "mutable",
      "namespace", "new",      "not",     "nullptr",  "operator", "or",     "private",  "protected", "public",   "register", "return",
      "rk",        "short",    "signed",  "sizeof",   "static",   "std",    "struct",   "switch",    "template", "this",     "throw",
      "true",      "try",      "typedef", "typeid",   "typename", "union",  "unsigned", "using",     "virtual",  "void",     "volatile",
      "while",     "xor",      "concept", "requires", "tamp"};
  std::string out;
  for (const char c : name) {
    const bool legal = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
    const char next = legal ? c : '_';
    if (next == '_' && !out.empty() && out.back() == '_') continue;  // "__" is reserved
    out += next;
  }
  while (!out.empty() && out.front() == '_') out.erase(out.begin());
  while (!out.empty() && out.back() == '_') out.pop_back();
  if (out.size() > 64) out.resize(64);
  if (out.empty()) return "model";
  const bool digit = out[0] >= '0' && out[0] <= '9';
  const bool reserved = std::find(kReserved.begin(), kReserved.end(), out) != kReserved.end();
  return digit || reserved ? "m_" + out : out;
}

}  // namespace tamp
