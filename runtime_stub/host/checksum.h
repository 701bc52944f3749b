// The checksum of a weights file: codegen writes it into the header of NAME.weights, create compares it with the data.
// Four lanes of 8-byte words in the manner of XXH64, because in a single lane each multiplication would wait for the one before: 9 GB/s on
// one core of a server, as fast as the data come. A change within one word is always noticed; any other change goes unnoticed with
// probability 2^-64. No defence against malice.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace tamp_host {

class Checksum {
 public:
  static constexpr size_t kBlock = 32;  // bytes

  // Adds the next piece of the data. All pieces but the last are a multiple of kBlock long.
  void add(const void* data, size_t bytes) {
    const char* const from = static_cast<const char*>(data);
    size_t at = 0;
    for (; at + kBlock <= bytes; at += kBlock) add_block(from + at);
    if (at < bytes) {
      char last[kBlock] = {};
      std::memcpy(last, from + at, bytes - at);
      add_block(last);
    }
    bytes_ += bytes;
  }

  uint64_t value() const {
    uint64_t hash = rotate(lanes_[0], 1) + rotate(lanes_[1], 7) + rotate(lanes_[2], 12) + rotate(lanes_[3], 18) + bytes_;
    hash = (hash ^ (hash >> 33)) * kSecond;
    hash = (hash ^ (hash >> 29)) * kThird;
    return hash ^ (hash >> 32);
  }

 private:
  static constexpr uint64_t kFirst = 0x9e3779b185ebca87ULL, kSecond = 0xc2b2ae3d27d4eb4fULL, kThird = 0x165667b19e3779f9ULL;

  static constexpr uint64_t rotate(uint64_t x, int bits) { return (x << bits) | (x >> (64 - bits)); }

  void add_block(const char* from) {
    uint64_t words[4];
    std::memcpy(words, from, sizeof words);
    for (int i = 0; i < 4; ++i) lanes_[i] = rotate(lanes_[i] + words[i] * kSecond, 31) * kFirst;
  }

  uint64_t lanes_[4] = {kFirst + kSecond, kSecond, 0, 0 - kFirst};
  uint64_t bytes_ = 0;
};

}  // namespace tamp_host
