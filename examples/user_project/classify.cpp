// Calls a compiled model through its C++ API: create once, run many times on a stream, every error a std::runtime_error.
// Classifies two made-up images and prints the ten scores of each, one image a line.
#include <cuda_runtime.h>

#include <cstdio>
#include <exception>
#include <stdexcept>
#include <string>
#include <vector>

#include "mnist_mlp.h"

namespace {

void check(cudaError_t error) {
  if (error != cudaSuccess) throw std::runtime_error(std::string("CUDA: ") + cudaGetErrorString(error));
}

// Device memory with an owner.
class DeviceFloats {
 public:
  explicit DeviceFloats(size_t bytes) : bytes_(bytes) { check(cudaMalloc(&memory_, bytes)); }
  ~DeviceFloats() { cudaFree(memory_); }
  DeviceFloats(const DeviceFloats&) = delete;
  DeviceFloats& operator=(const DeviceFloats&) = delete;
  void* get() { return memory_; }
  void upload(const std::vector<float>& from) { check(cudaMemcpy(memory_, from.data(), bytes_, cudaMemcpyHostToDevice)); }
  std::vector<float> download() {
    std::vector<float> to(bytes_ / sizeof(float));
    check(cudaMemcpy(to.data(), memory_, bytes_, cudaMemcpyDeviceToHost));
    return to;
  }

 private:
  void* memory_ = nullptr;
  size_t bytes_;
};

// A pattern instead of a photograph: pixel p of image i.
std::vector<float> image(int i, size_t pixels) {
  std::vector<float> values(pixels);
  for (size_t p = 0; p < pixels; ++p) values[p] = static_cast<float>((p * 7 + static_cast<size_t>(i) * 13) % 29) / 29.0f;
  return values;
}

void classify() {
  mnist_mlp::Model model;  // weights: mnist_mlp.weights in the generated folder; see tamp_options for other places
  const tamp_port& in = mnist_mlp_inputs()[0];
  const tamp_port& out = mnist_mlp_outputs()[0];
  DeviceFloats input(in.bytes), scores(out.bytes);
  cudaStream_t stream = nullptr;
  check(cudaStreamCreate(&stream));
  for (int i = 0; i < 2; ++i) {
    input.upload(image(i, in.bytes / sizeof(float)));
    const void* inputs[] = {input.get()};
    void* outputs[] = {scores.get()};
    model.run(inputs, outputs, stream);
    check(cudaStreamSynchronize(stream));
    model.check();
    for (const float score : scores.download()) std::printf("%.6f ", static_cast<double>(score));
    std::printf("\n");
  }
  check(cudaStreamDestroy(stream));
}

}  // namespace

int main() {
  try {
    classify();
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "error: %s\n", error.what());
    return 1;
  }
}
