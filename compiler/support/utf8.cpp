#include "compiler/support/utf8.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

namespace tamp {

CodePoint decode_utf8(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  if (byte(0) < 0x80) return {byte(0), 1};
  const size_t bytes = (byte(0) & 0xe0) == 0xc0 ? 2 : (byte(0) & 0xf0) == 0xe0 ? 3 : (byte(0) & 0xf8) == 0xf0 ? 4 : 0;
  if (bytes == 0 || bytes > text.size()) return {};
  char32_t value = byte(0) & (0x7fU >> bytes);
  for (size_t i = 1; i < bytes; ++i) {
    if ((byte(i) & 0xc0) != 0x80) return {};
    value = value << 6 | (byte(i) & 0x3fU);
  }
  constexpr std::array<char32_t, 5> kLeast = {0, 0, 0x80, 0x800, 0x10000};
  if (value < kLeast[bytes] || value > 0x10ffff || (value >= 0xd800 && value <= 0xdfff)) return {};
  return {value, bytes};
}

bool is_control(char32_t c) {
  constexpr std::array<std::pair<char32_t, char32_t>, 11> kRanges = {{
      {0x00, 0x1f},       // C0
      {0x7f, 0x9f},       // DEL and C1
      {0xad, 0xad},       // soft hyphen
      {0x61c, 0x61c},     // Arabic letter mark
      {0x180e, 0x180e},   // Mongolian vowel separator
      {0x200b, 0x200f},   // of no width; left-to-right and right-to-left marks
      {0x2028, 0x202e},   // line and paragraph separators; embeddings and overrides
      {0x2060, 0x206f},   // invisible operators; isolates
      {0xfeff, 0xfeff},   // byte order mark
      {0xfff9, 0xfffb},   // annotations
      {0xe0000, 0xe007f}  // tags
  }};
  return std::any_of(kRanges.begin(), kRanges.end(), [c](const auto& range) { return c >= range.first && c <= range.second; });
}

std::string without_controls(std::string_view text) {
  std::string out;
  while (!text.empty()) {
    const CodePoint point = decode_utf8(text);
    const std::string_view bytes = text.substr(0, std::max<size_t>(point.bytes, 1));
    if (point.bytes > 0 && (point.value == '\n' || !is_control(point.value))) {
      out += bytes;
    } else {
      for (const char byte : bytes) out += fmt::format("\\x{:02x}", static_cast<unsigned char>(byte));
    }
    text.remove_prefix(bytes.size());
  }
  return out;
}

}  // namespace tamp
