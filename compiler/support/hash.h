// FNV-1a over 8-byte words: tells whether bytes are the same as before. It is no defence against somebody who makes different bytes with
// the same hash.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>

namespace tamp {

inline constexpr uint64_t kHashSeed = 0xcbf29ce484222325ULL;

// Continues the hash `hash`; the last word is padded with zeros.
inline uint64_t hash_bytes(const void* data, size_t bytes, uint64_t hash = kHashSeed) {
  for (size_t at = 0; at < bytes; at += 8) {
    uint64_t word = 0;
    std::memcpy(&word, static_cast<const char*>(data) + at, std::min<size_t>(8, bytes - at));
    hash = (hash ^ word) * 0x100000001b3ULL;
  }
  return hash;
}

}  // namespace tamp
