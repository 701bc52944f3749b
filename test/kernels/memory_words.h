// Buffers of the drivers: a word for every element, of which memory holds `width` bytes, 4 or (activations of 16 bits) 2.
#pragma once

#include <cstdint>
#include <cstring>
#include <vector>

namespace driver {

// Not a number, as a float and as either type of 16 bits.
inline uint32_t poison(int64_t width) { return width == 2 ? 0x7fdeu : 0x7fc0dead; }

inline std::vector<char> memory_of(const std::vector<uint32_t>& words, int64_t width) {
  std::vector<char> memory(words.size() * static_cast<size_t>(width));
  for (size_t i = 0; i < words.size(); ++i)
    std::memcpy(memory.data() + i * static_cast<size_t>(width), &words[i], static_cast<size_t>(width));
  return memory;
}

inline std::vector<uint32_t> words_of(const std::vector<char>& memory, int64_t width) {
  std::vector<uint32_t> words(memory.size() / static_cast<size_t>(width));
  for (size_t i = 0; i < words.size(); ++i)
    std::memcpy(&words[i], memory.data() + i * static_cast<size_t>(width), static_cast<size_t>(width));
  return words;
}

}  // namespace driver
