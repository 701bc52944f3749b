// libFuzzer's own changes to bytes seldom leave a message; with this it changes models (mutate_model.h), and bytes now and then.
#include <cstddef>
#include <cstdint>
#include <random>
#include <string>

#include "test/fuzz/mutate_model.h"

extern "C" size_t LLVMFuzzerMutate(uint8_t* data, size_t size, size_t max_size);

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t max_size, unsigned seed) {
  std::mt19937 random(seed);
  onnx::ModelProto model;
  std::string bytes;
  if (random() % 64 == 0 || !model.ParseFromArray(data, static_cast<int>(size))) return LLVMFuzzerMutate(data, size, max_size);
  tamp::test::mutate(model, random);
  if (!model.SerializeToString(&bytes) || bytes.empty() || bytes.size() > max_size) return LLVMFuzzerMutate(data, size, max_size);
  bytes.copy(reinterpret_cast<char*>(data), bytes.size());
  return bytes.size();
}
