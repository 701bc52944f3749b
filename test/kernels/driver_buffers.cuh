// Buffers of the drivers of this folder: in the files, and when compared, one word for each element; on the device as bodies see them.
#pragma once

#include <cstdio>
#include <cstdlib>
#include <vector>

#include "kernels/vdevice/task.cuh"

namespace driver {

inline void check(cudaError_t error) {
  if (error == cudaSuccess) return;
  std::fprintf(stderr, "%s\n", cudaGetErrorString(error));
  std::exit(1);
}

struct Buffer {
  bool constant;
  bool narrow;  // elements of 16 bits: the lower halves of the words
  std::vector<uint32_t> words;
  std::vector<int32_t> owner;  // rTask that wrote the element, -1 none, -2 several
  uint32_t* device;

  // A NaN in each type that an element may be of.
  uint32_t poison() const { return narrow ? 0x7fedu : 0x7fc0deadu; }
};

inline void upload(const Buffer& b, const std::vector<uint32_t>& words) {
  if (!b.narrow) return check(cudaMemcpy(b.device, words.data(), words.size() * 4, cudaMemcpyHostToDevice));
  const std::vector<uint16_t> halves(words.begin(), words.end());
  check(cudaMemcpy(b.device, halves.data(), halves.size() * 2, cudaMemcpyHostToDevice));
}

inline std::vector<uint32_t> download(const Buffer& b) {
  std::vector<uint32_t> words(b.words.size());
  if (!b.narrow) {
    check(cudaMemcpy(words.data(), b.device, words.size() * 4, cudaMemcpyDeviceToHost));
    return words;
  }
  std::vector<uint16_t> halves(words.size());
  check(cudaMemcpy(halves.data(), b.device, halves.size() * 2, cudaMemcpyDeviceToHost));
  words.assign(halves.begin(), halves.end());
  return words;
}

}  // namespace driver
