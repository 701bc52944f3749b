// FNV-1a over 8-byte words: tells whether bytes are the same as before. It is no defence against somebody who makes different bytes with
// the same hash.
#pragma once

#include <cstdint>
#include <cstring>

namespace tamp {

inline constexpr uint64_t kHashSeed = 0xcbf29ce484222325ULL;

// Continues the hash `hash`; the last word is padded with zeros.
inline uint64_t hash_bytes(const void* data, size_t bytes, uint64_t hash = kHashSeed) {
  constexpr uint64_t kPrime = 0x100000001b3ULL;
  const char* const from = static_cast<const char*>(data);
  const size_t whole = bytes / 8 * 8;
  uint64_t word = 0;
  for (size_t at = 0; at < whole; at += 8) {
    std::memcpy(&word, from + at, 8);
    hash = (hash ^ word) * kPrime;
  }
  if (whole == bytes) return hash;
  word = 0;
  std::memcpy(&word, from + whole, bytes - whole);
  return (hash ^ word) * kPrime;
}

}  // namespace tamp
