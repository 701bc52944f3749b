// What the stand-in does with kernels and host calls that are wrong: every one ends with an error, and the next launch
// works.
#include <cstring>

#include "kernels/vdevice/mma.cuh"
#include "kernels/vdevice/task.cuh"
#include "test/standin/launch.h"
#include "test/support/catch.h"

namespace {

using standin::DeviceArray;
using standin::launch;

__global__ void set_one(int* out) {
  __syncthreads();
  if (threadIdx.x == 0) atomicAdd(out, 1);
}

bool next_launch_works() {
  DeviceArray<int> out(1);
  return launch(set_one, 4, 64, 0, out.data) == cudaSuccess && out[0] == 4;
}

char* shared() { return static_cast<char*>(cuda_on_cpu::shared_memory()); }
rk::Barrier& barrier_at(int byte) { return *reinterpret_cast<rk::Barrier*>(shared() + byte); }

__global__ void wait_for_nobody() {
  if (threadIdx.x == 0) rk::init(barrier_at(64), 2);
  __syncthreads();
  if (threadIdx.x == 5) rk::arrive(barrier_at(64));
  if (threadIdx.x >= 32) rk::wait(barrier_at(64), 0);
}
__global__ void leave_warp_out_of_barrier() {
  if (threadIdx.x < 32) cuda_on_cpu::named_barrier(1, 64);
}
__global__ void leave_lane_out_of_syncwarp() {
  if (threadIdx.x != 3) __syncwarp();
}
__global__ void spin_for_ever(uint32_t* event) {
  while (rk::poll(event) == 0) {
  }
}
__global__ void spin_on_barrier() {
  if (threadIdx.x == 0) rk::init(barrier_at(0), 1);
  __syncthreads();
  while (!rk::passed(barrier_at(0), 0)) {
  }
}
__global__ void trap_in_one_thread() {
  if (blockIdx.x == 1 && threadIdx.x == 7) __trap();
  __syncthreads();
}
__global__ void mix_collectives() {
  if (threadIdx.x % 2 == 0)
    __syncwarp();
  else
    rk::warp_sum(1.0f);
}
__global__ void use_raw_barrier() { rk::wait(barrier_at(8), 0); }
__global__ void copy_past_the_end(const float* in) { rk::cp_async16(shared() + 1024, in, true); }
__global__ void copy_unaligned(const float* in) { rk::cp_async16(shared() + 4, in, true); }
__global__ void load_past_the_end() {
  uint32_t r[4];
  rk::ldmatrix4(r, shared(), 1020);
}
__global__ void disagree_on_barrier() { cuda_on_cpu::named_barrier(1, threadIdx.x < 32 ? 64 : 32); }
__global__ void write_below_shared() {
  if (threadIdx.x == 0) shared()[-1] = 0;
}
__global__ void write_above_shared(int bytes) {
  if (threadIdx.x == 0) shared()[bytes] = 0;
}
// Thread 0 waits for phase 0, which passes twice before it wakes.
__global__ void sleep_through_a_phase() {
  if (threadIdx.x == 0) rk::init(barrier_at(0), 1);
  __syncthreads();
  if (threadIdx.x < 32) rk::wait(barrier_at(0), 0);
  if (threadIdx.x != 32) return;
  for (int i = 0; i < 200; ++i) cuda_on_cpu::yield();
  rk::arrive(barrier_at(0));
  rk::arrive(barrier_at(0));
}

TEST_CASE("a kernel that cannot end or breaks a rule fails its launch, and the next one works") {
  DeviceArray<uint32_t> event(4);
  DeviceArray<float> in(4);
  cudaGetLastError();
  SECTION("a barrier that lacks arrivals") { CHECK(launch(wait_for_nobody, 2, 64, 1024) == cudaErrorLaunchFailure); }
  SECTION("a named barrier that lacks a warp") { CHECK(launch(leave_warp_out_of_barrier, 2, 64, 0) == cudaErrorLaunchFailure); }
  SECTION("a collective that lacks a lane") { CHECK(launch(leave_lane_out_of_syncwarp, 1, 32, 0) == cudaErrorLaunchFailure); }
  SECTION("a poll that ignores stuck()") { CHECK(launch(spin_for_ever, 4, 64, 0, event.data) == cudaErrorLaunchFailure); }
  SECTION("a spin on a barrier") { CHECK(launch(spin_on_barrier, 1, 64, 64) == cudaErrorLaunchFailure); }
  SECTION("a trap") { CHECK(launch(trap_in_one_thread, 2, 64, 0) == cudaErrorLaunchFailure); }
  SECTION("lanes in different collectives") { CHECK(launch(mix_collectives, 1, 32, 0) == cudaErrorLaunchFailure); }
  SECTION("a barrier without init") { CHECK(launch(use_raw_barrier, 1, 32, 64) == cudaErrorLaunchFailure); }
  SECTION("a copy outside shared memory") { CHECK(launch(copy_past_the_end, 1, 32, 1024, in.data) == cudaErrorLaunchFailure); }
  SECTION("a copy that is not aligned") { CHECK(launch(copy_unaligned, 1, 32, 1024, in.data) == cudaErrorLaunchFailure); }
  SECTION("a matrix load outside shared memory") { CHECK(launch(load_past_the_end, 1, 32, 1024) == cudaErrorLaunchFailure); }
  SECTION("two sizes of one named barrier") { CHECK(launch(disagree_on_barrier, 1, 64, 0) == cudaErrorLaunchFailure); }
  SECTION("a store below shared memory") { CHECK(launch(write_below_shared, 1, 32, 1024) == cudaErrorLaunchFailure); }
  SECTION("a store above shared memory") { CHECK(launch(write_above_shared, 1, 32, 1000, 1000) == cudaErrorLaunchFailure); }
  SECTION("a phase that passes twice during a wait") { CHECK(launch(sleep_through_a_phase, 1, 64, 64) == cudaErrorLaunchFailure); }
  CHECK(cudaGetLastError() == cudaErrorLaunchFailure);
  CHECK(cudaPeekAtLastError() == cudaSuccess);
  CHECK(next_launch_works());
}

TEST_CASE("a launch that does not fit the device is refused") {
  DeviceArray<int> out(1);
  void* arguments[] = {&out.data};
  const dim3 grid(4), block(352);
  CHECK(cudaLaunchKernel(set_one, grid, dim3(1025), arguments) == cudaErrorInvalidConfiguration);
  CHECK(cudaLaunchKernel(set_one, dim3(0), block, arguments) == cudaErrorInvalidConfiguration);
  CHECK(cudaLaunchKernel(set_one, grid, block, arguments, 228 * 1024) == cudaErrorInvalidValue);
  CHECK(cudaFuncSetAttribute(set_one, cudaFuncAttributeMaxDynamicSharedMemorySize, 228 * 1024) == cudaErrorInvalidValue);
  CHECK(cudaFuncSetAttribute(set_one, cudaFuncAttributeMaxDynamicSharedMemorySize, 0) == cudaSuccess);
  CHECK(cudaLaunchKernel(set_one, grid, block, arguments, 4) == cudaErrorInvalidValue);
  cuda_on_cpu::set_multiprocessors(1);
  int sms = 0, veus = 0;
  CHECK(cudaDeviceGetAttribute(&sms, cudaDevAttrMultiProcessorCount, 0) == cudaSuccess);
  CHECK(sms == 1);
  CHECK(cudaFuncSetAttribute(set_one, cudaFuncAttributeMaxDynamicSharedMemorySize, 100 * 1024) == cudaSuccess);
  CHECK(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&veus, set_one, 352, 100 * 1024) == cudaSuccess);
  CHECK(veus == 2);
  CHECK(cudaLaunchCooperativeKernel(set_one, dim3(2), block, arguments, 100 * 1024) == cudaSuccess);
  CHECK(cudaLaunchCooperativeKernel(set_one, dim3(3), block, arguments, 100 * 1024) == cudaErrorCooperativeLaunchTooLarge);
  CHECK(cudaLaunchKernel(set_one, dim3(3), block, arguments, 100 * 1024) == cudaSuccess);
  cuda_on_cpu::set_multiprocessors(cuda_on_cpu::kDefaultMultiprocessors);
  CHECK(out[0] == 5);
}

TEST_CASE("a launch may have the attribute of a programmatic dependent, and no other") {
  DeviceArray<int> out(1);
  cudaLaunchAttribute attribute{};
  attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attribute.val.programmaticStreamSerializationAllowed = 1;
  const cudaLaunchConfig_t config = {dim3(2), dim3(32), 0, nullptr, &attribute, 1};
  CHECK(cudaLaunchKernelEx(&config, set_one, out.data) == cudaSuccess);
  CHECK(out[0] == 2);
  attribute.id = static_cast<cudaLaunchAttributeID>(2);  // cooperative
  CHECK(cudaLaunchKernelEx(&config, set_one, out.data) == cudaErrorNotSupported);
  const cudaLaunchConfig_t empty = {dim3(0), dim3(32), 0, nullptr, nullptr, 0};
  CHECK(cudaLaunchKernelEx(&empty, set_one, out.data) == cudaErrorInvalidConfiguration);
  cudaFuncAttributes attributes{};
  int version = 0;
  CHECK(cudaFuncGetAttributes(&attributes, set_one) == cudaSuccess);
  CHECK(attributes.ptxVersion >= 90);
  CHECK(cudaDriverGetVersion(&version) == cudaSuccess);
  CHECK(version == CUDART_VERSION);
  CHECK(cudaGetLastError() == cudaErrorInvalidConfiguration);
}

TEST_CASE("device memory is aligned, poisoned and bounded") {
  const size_t bytes = GENERATE(1u, 255u, 256u, 4097u, 1000000u);
  unsigned char* memory = nullptr;
  REQUIRE(cudaMalloc(&memory, bytes) == cudaSuccess);
  CHECK(reinterpret_cast<uintptr_t>(memory) % 256 == 0);
  CHECK(memory[bytes - 1] == 0xff);
  CHECK(cudaMemset(memory, 0, bytes + 1) == cudaErrorInvalidValue);
  CHECK(cudaMemset(memory, 7, bytes) == cudaSuccess);
  unsigned char host[2] = {};
  CHECK(cudaMemcpy(host, memory + bytes - 1, 1, cudaMemcpyDeviceToHost) == cudaSuccess);
  CHECK(host[0] == 7);
  CHECK(cudaMemcpy(memory + bytes - 1, host, 2, cudaMemcpyHostToDevice) == cudaErrorInvalidValue);
  CHECK(cudaFree(memory) == cudaSuccess);
  CHECK(cudaFree(memory) == cudaErrorInvalidValue);
}

TEST_CASE("cudaFree tells of stores beyond the end") {
  char* memory = nullptr;
  REQUIRE(cudaMalloc(&memory, 100) == cudaSuccess);
  memory[100] = 1;
  CHECK(cudaFree(memory) == cudaErrorIllegalAddress);
}

TEST_CASE("more memory than there is is refused") {
  char* memory = nullptr;
  CHECK(cudaMalloc(&memory, size_t{1} << 50) == cudaErrorMemoryAllocation);
  CHECK(memory == nullptr);
}

TEST_CASE("events measure time and mapped host memory has one address") {
  cudaEvent_t from = nullptr, to = nullptr;
  cudaStream_t stream = nullptr;
  REQUIRE(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking) == cudaSuccess);
  REQUIRE(cudaEventCreate(&from) == cudaSuccess);
  REQUIRE(cudaEventCreate(&to) == cudaSuccess);
  cudaEventRecord(from, stream);
  int *host = nullptr, *device = nullptr;
  REQUIRE(cudaHostAlloc(&host, 4, cudaHostAllocMapped) == cudaSuccess);
  REQUIRE(cudaHostGetDevicePointer(&device, host, 0) == cudaSuccess);
  *host = 0;
  CHECK(launch(set_one, 3, 32, 0, device) == cudaSuccess);
  cudaEventRecord(to, stream);
  float milliseconds = -1;
  CHECK(cudaEventElapsedTime(&milliseconds, from, to) == cudaSuccess);
  CHECK(milliseconds > 0);
  CHECK(*host == 3);
  CHECK(cudaFreeHost(host) == cudaSuccess);
  CHECK(cudaEventDestroy(from) == cudaSuccess);
  CHECK(cudaEventDestroy(to) == cudaSuccess);
  CHECK(cudaStreamDestroy(stream) == cudaSuccess);
}

}  // namespace
