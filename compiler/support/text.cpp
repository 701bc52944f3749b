#include "compiler/support/text.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "compiler/support/utf8.h"

namespace tamp {

std::string join(const std::vector<std::string>& parts, std::string_view separator) {
  return fmt::format("{}", fmt::join(parts, separator));
}

std::string shape_text(const std::vector<int64_t>& shape) { return fmt::format("[{}]", fmt::join(shape, ",")); }

std::string printable(std::string_view name, size_t limit) {
  std::string out;
  for (size_t i = 0; i < name.size();) {
    if (out.size() >= limit) return out + "...";
    const char c = name[i], next = i + 1 < name.size() ? name[i + 1] : '\0';
    const bool comment_edge = (c == '*' && next == '/') || (c == '/' && next == '*');
    const bool trigraph = c == '?' && next == '?';
    const CodePoint point = decode_utf8(name.substr(i));
    const bool plain = point.bytes > 0 && !is_control(point.value) && c != '"' && c != '\\' && !comment_edge && !trigraph;
    const std::string_view bytes = name.substr(i, std::max<size_t>(point.bytes, 1));
    if (plain) out += bytes;
    for (const char byte : plain ? std::string_view() : bytes) out += fmt::format("\\x{:02x}", static_cast<unsigned char>(byte));
    i += bytes.size();
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
