// What a kernel may rely on when it runs on the stand-in: each device function does what the GPU's does, and a missing
// wait shows. Kernels reach the stand-in through kernels/vdevice, as generated code does.
#include <set>
#include <vector>

#include "kernels/vdevice/interpreter.cuh"
#include "test/standin/launch.h"
#include "test/support/catch.h"

namespace {

using standin::DeviceArray;
using standin::launch;

struct Veu {
  static constexpr int kComputeThreads = 96;
  static constexpr bool kManyRegisters = false;
  static constexpr bool kVotes = false;
  static constexpr int kWordsBytes = 0;
  static constexpr int kWeightStages = 3;
  static constexpr int kWeightStageBytes = 512;
  static constexpr int kBases = 0, kSharedBases = 0;
};

template <class T>
__device__ T* shared() {
  return static_cast<T*>(cuda_on_cpu::shared_memory());
}

// --- threads and memory ----------------------------------------------------------------------------------------------

__global__ void write_indices(uint32_t* out) {
  const uint32_t block = blockIdx.x + gridDim.x * blockIdx.y;
  const uint32_t thread = threadIdx.x + blockDim.x * threadIdx.y;
  __syncwarp();
  out[block * blockDim.x * blockDim.y + thread] = block * 1000 + thread;
}

TEST_CASE("every thread of every vEU sees its own indices") {
  const unsigned grid = GENERATE(1u, 3u, 64u, 70u);
  DeviceArray<uint32_t> out(2 * grid * 32 * 3);
  void* arguments[] = {&out.data};
  REQUIRE(cudaLaunchKernel(write_indices, dim3(grid, 2), dim3(32, 3), arguments) == cudaSuccess);
  for (uint32_t b = 0; b < 2 * grid; ++b) {
    for (uint32_t t = 0; t < 96; ++t) REQUIRE(out[b * 96 + t] == b * 1000 + t);
  }
}

__global__ void inspect_shared(uint32_t* out, int words) {
  uint32_t* const own = shared<uint32_t>();
  if (threadIdx.x == 0) out[blockIdx.x] = reinterpret_cast<uintptr_t>(own) % 1024 == 0 && std::isnan(__uint_as_float(own[words - 1]));
  __syncthreads();
  own[threadIdx.x] = blockIdx.x * 100 + threadIdx.x;
  cuda_on_cpu::yield();  // lets another vEU write to its own
  __syncthreads();
  if (own[blockDim.x - 1 - threadIdx.x] != blockIdx.x * 100 + blockDim.x - 1 - threadIdx.x) out[blockIdx.x] = 2;
}

TEST_CASE("each vEU has shared memory of its own, aligned and poisoned") {
  DeviceArray<uint32_t> out(16);
  const int bytes = GENERATE(2052, 4096, 100 * 1024, 227 * 1024);
  REQUIRE(launch(inspect_shared, 16, 352, bytes, out.data, bytes / 4) == cudaSuccess);
  for (size_t b = 0; b < 16; ++b) CHECK(out[b] == 1);
}

// --- barriers ----------------------------------------------------------------------------------------------------------

// Threads 0..95 sum over each other's values; the last warp never comes to barrier 1.
__global__ void reverse(int* out, bool synchronise) {
  if (threadIdx.x >= 96) return;
  int* const values = shared<int>();
  for (int i = 0; i < 5; ++i) {
    values[threadIdx.x] = static_cast<int>(threadIdx.x) * (i + 1);
    if (synchronise) rk::sync_compute<Veu>();
    out[threadIdx.x] = values[95 - threadIdx.x];
    rk::sync_compute<Veu>();
  }
}

TEST_CASE("a named barrier holds its threads and no others, and one that is missing shows") {
  DeviceArray<int> out(96);
  REQUIRE(launch(reverse, 1, 128, 1024, out.data, true) == cudaSuccess);
  for (size_t t = 0; t < 96; ++t) CHECK(out[t] == static_cast<int>(95 - t) * 5);
  REQUIRE(launch(reverse, 1, 128, 1024, out.data, false) == cudaSuccess);
  bool wrong = false;
  for (size_t t = 0; t < 96; ++t) wrong = wrong || out[t] != static_cast<int>(95 - t) * 5;
  CHECK(wrong);
}

struct RingShared {
  alignas(128) char stages[Veu::kWeightStages][Veu::kWeightStageBytes];
  rk::Barrier full[Veu::kWeightStages], empty[Veu::kWeightStages];
};

// A loader warp copies `chunks` chunks through the ring; the compute warps add them up. With `hasty`, the loader does not
// wait for free stages.
__global__ void stream_weights(const float* weights, float* out, uint32_t chunks, bool hasty) {
  RingShared& ring = *shared<RingShared>();
  if (threadIdx.x == 0) {
    for (int s = 0; s < Veu::kWeightStages; ++s) {
      rk::init(ring.full[s], rk::kCopyLanes);
      rk::init(ring.empty[s], 3);
    }
  }
  rk::sync_all();
  if (rk::warp_id() == 3) {
    if (rk::lane_id() >= rk::kCopyLanes) return;
    for (uint32_t c = 0; c < chunks; ++c) {
      const uint32_t stage = c % Veu::kWeightStages, turn = c / Veu::kWeightStages;
      if (turn > 0 && !hasty) rk::wait(ring.empty[stage], (turn - 1) & 1u);
      rk::copy_weights(ring.stages[stage], weights + c * 128, Veu::kWeightStageBytes, ring.full[stage], 0);
    }
    return;
  }
  rk::WeightPipe<Veu> pipe{&ring.stages[0][0], ring.full, ring.empty, 0};
  float sum = 0;
  for (uint32_t c = 0; c < chunks; ++c) {
    const float* const chunk = reinterpret_cast<const float*>(pipe.acquire());
    sum += chunk[threadIdx.x] * static_cast<float>(c + 1);
    pipe.release();
  }
  out[blockIdx.x * 96 + threadIdx.x] = sum;
}

TEST_CASE("weights stream through a ring of barriers") {
  cuda_on_cpu::set_seed(GENERATE(range(1u, 6u)));
  const uint32_t chunks = GENERATE(1u, 3u, 4u, 31u);
  DeviceArray<float> weights(chunks * 128), out(4 * 96);
  for (size_t i = 0; i < chunks * 128; ++i) weights[i] = static_cast<float>(i % 97);
  REQUIRE(launch(stream_weights, 4, 128, sizeof(RingShared), weights.data, out.data, chunks, false) == cudaSuccess);
  for (size_t b = 0; b < 4; ++b) {
    for (size_t t = 0; t < 96; ++t) {
      float expected = 0;
      for (size_t c = 0; c < chunks; ++c) expected += weights[c * 128 + t] * static_cast<float>(c + 1);
      CHECK(out[b * 96 + t] == expected);
    }
  }
}

__global__ void parities(int* out) {
  rk::Barrier& barrier = *shared<rk::Barrier>();
  if (threadIdx.x == 0) rk::init(barrier, 2);
  __syncthreads();
  if (threadIdx.x != 0) return;
  rk::wait(barrier, 1);  // the phase before the first counts as complete
  out[0] = rk::passed(barrier, 0);
  rk::arrive(barrier);
  out[1] = rk::passed(barrier, 0);
  rk::arrive(barrier);
  out[2] = rk::passed(barrier, 0);
  out[3] = rk::passed(barrier, 1);
  rk::arrive(barrier);
  rk::arrive(barrier);
  out[4] = rk::passed(barrier, 0);
  out[5] = rk::passed(barrier, 1);
}

TEST_CASE("a barrier passes for a parity when the phase of that parity has completed") {
  DeviceArray<int> out(6, 0xff);
  REQUIRE(launch(parities, 1, 32, 64, out.data) == cudaSuccess);
  CHECK(std::vector<int>(out.data, out.data + 6) == std::vector<int>{0, 0, 1, 0, 0, 1});
}

// --- asynchronous copies -------------------------------------------------------------------------------------------------

__global__ void copy_groups(const float4* in, float* out) {
  float* const smem = shared<float>() + threadIdx.x * 16;
  for (int i = 0; i < 16; ++i) smem[i] = 0;
  rk::cp_async16(smem, in + threadIdx.x, true);
  rk::cp_async_commit();
  rk::cp_async16(smem + 4, in + threadIdx.x, true);
  rk::cp_async4(smem + 8, nullptr, false);
  rk::cp_async_commit();
  float* const result = out + threadIdx.x * 6;
  rk::cp_async_wait<2>();
  result[0] = smem[1];
  rk::cp_async_wait<1>();
  result[1] = smem[1];
  result[2] = smem[5];
  result[3] = smem[8];
  rk::cp_async_wait<0>();
  result[4] = smem[5];
  result[5] = smem[8];
}

TEST_CASE("cp.async brings a group's data at the wait for it, not before") {
  DeviceArray<float4> in(64);
  DeviceArray<float> out(64 * 6);
  for (size_t t = 0; t < 64; ++t) in[t] = make_float4(0, static_cast<float>(t), 0, 0);
  REQUIRE(launch(copy_groups, 1, 64, 64 * 64, in.data, out.data) == cudaSuccess);
  for (size_t t = 0; t < 64; ++t) {
    const float* const r = out.data + t * 6;
    CHECK(std::isnan(r[0]));
    CHECK(r[1] == static_cast<float>(t));
    CHECK(std::isnan(r[2]));
    CHECK(std::isnan(r[3]));
    CHECK(r[4] == static_cast<float>(t));
    CHECK(r[5] == 0);
  }
}

// --- between vEUs --------------------------------------------------------------------------------------------------------

// A chain: each vEU adds 1 to what the one before left, `rounds` times around.
__global__ void chain(uint32_t* events, int* data, uint32_t rounds, bool waits) {
  const uint32_t veu = blockIdx.x, before = (veu + gridDim.x - 1) % gridDim.x;
  for (uint32_t round = 0; round < rounds; ++round) {
    const uint32_t wanted = veu == 0 ? round : round + 1;
    if (threadIdx.x == 0 && waits) {
      while (rk::poll_event(events + before * 32) < wanted) {
      }
      rk::acquire_events();
    }
    __syncthreads();
    data[veu * 64 + threadIdx.x] = data[before * 64 + threadIdx.x] + 1;
    __syncthreads();
    if (threadIdx.x != 0) continue;
    rk::signal(events + veu * 32);
  }
}

int run_chain(uint64_t seed, unsigned veus, bool waits) {
  cuda_on_cpu::set_seed(seed);
  DeviceArray<uint32_t> events(veus * 32);
  DeviceArray<int> data(veus * 64);
  REQUIRE(launch(chain, veus, 64, 0, events.data, data.data, 3, waits) == cudaSuccess);
  return data[veus * 64 - 1];
}

TEST_CASE("vEUs hand data on by signal and poll, whatever the seed") {
  const unsigned veus = GENERATE(2u, 5u);
  for (uint64_t seed = 0; seed < 20; ++seed) CHECK(run_chain(seed, veus, true) == static_cast<int>(3 * veus));
}

TEST_CASE("a missing wait between vEUs gives a wrong answer within a few seeds") {
  int wrong = 0;
  for (uint64_t seed = 1; seed <= 5; ++seed) wrong += run_chain(seed, 2, false) != 6;
  CHECK(wrong > 0);
}

// As rk::Epochs of a program without loops in its first run.
struct FirstRun {
  RK_INLINE uint32_t of(uint32_t) const { return 1; }
  RK_INLINE void give_up(const rk::Launch& launch, const rk::Instruction& i, uint32_t event, uint32_t seen, uint32_t wanted) const {
    rk::give_up(launch, i.record, i.index, event, seen, wanted);
  }
};

// vEU e + 1 stores word e and signals event e, twice in a run; that of event `last` works for a while before its second signal. vEU 0
// waits for all events as the interpreter's waiter does, and notes which words it finds. A word is complete when it is 2.
__global__ void wait_for_all(rk::Launch launch, rk::Tables tables, rk::Instruction instruction, uint32_t last, uint32_t* words,
                             uint32_t* found, uint32_t* looked) {
  const uint32_t event = blockIdx.x - 1;
  if (blockIdx.x > 0) {
    float v = 1;
    for (uint32_t i = 0; i < 2; ++i) {
      for (int work = 0; work < (event == last && i == 1 ? 5000 : 0); ++work) v = rk::warp_sum(v) / 32;
      if (threadIdx.x != 0) continue;
      ++words[event];
      rk::signal(rk::event_word(launch, event));
    }
    return;
  }
  if (threadIdx.x != 0) return;
  rk::wait_for_events(launch, tables, instruction, FirstRun{}, [&] { ++*looked; });
  for (int w = 0; w < rk::kWaits; ++w) found[w] = words[w];
}

TEST_CASE("an instruction waits for all signals of all its events, whichever is last") {
  cuda_on_cpu::set_seed(GENERATE(range(1u, 5u)));
  const uint32_t events = GENERATE(1u, 2u, 3u), last = GENERATE(0u, 1u, 2u);
  if (last >= events) return;
  DeviceArray<uint32_t> state((rk::kStateLines + rk::kWaits) * rk::kLineWords), counts(rk::kWaits);
  DeviceArray<uint32_t> words(rk::kWaits), found(rk::kWaits), looked(1);
  DeviceArray<rk::Report> report(1);
  rk::Launch run{};
  run.state = state.data;
  run.report = report.data;
  rk::Instruction instruction{0, rk::kNone16, 0, {rk::kNone16, rk::kNone16, rk::kNone16}, 0};
  for (uint32_t e = 0; e < events; ++e) {
    counts[e] = 2;
    instruction.wait[e] = static_cast<uint16_t>(e);
  }
  const rk::Tables tables{nullptr, nullptr, nullptr, counts.data};
  REQUIRE(launch(wait_for_all, events + 1, 32, 0, run, tables, instruction, last, words.data, found.data, looked.data) == cudaSuccess);
  CHECK(report[0].valid == 0);
  CHECK(looked[0] == 1);
  for (uint32_t e = 0; e < events; ++e) CHECK(found[e] == 2);
}

__global__ void draw_tickets(uint32_t* counter, uint32_t* order) {
  for (int i = 0; i < 8; ++i) {
    const uint32_t ticket = atomicAdd(counter, 1u);
    order[ticket] = blockIdx.x * 64 + threadIdx.x;
    __syncwarp();
  }
}

std::vector<uint32_t> order_of(uint64_t seed) {
  cuda_on_cpu::set_seed(seed);
  DeviceArray<uint32_t> counter(1), order(4 * 64 * 8);
  REQUIRE(launch(draw_tickets, 4, 64, 0, counter.data, order.data) == cudaSuccess);
  return std::vector<uint32_t>(order.data, order.data + order.size);
}

TEST_CASE("the order is the same for the same seed and another for another") {
  std::set<std::vector<uint32_t>> orders;
  for (uint64_t seed = 0; seed < 10; ++seed) {
    orders.insert(order_of(seed));
    orders.insert(order_of(seed));
  }
  CHECK(orders.size() == 10);
}

__global__ void use_atomics(uint32_t* words, float* sum) {
  atomicAdd(&words[0], 3u);
  atomicSub(&words[1], 1u);
  atomicMax(&words[2], threadIdx.x);
  atomicExch(&words[3], 7u);
  atomicAdd(sum, 0.5f);
  if (threadIdx.x % 32 != 0) return;
  while (atomicCAS(&words[4], 0u, 1u) != 0u) {
  }
  const uint32_t seen = words[5];
  cuda_on_cpu::yield();
  words[5] = seen + 1;
  atomicExch(&words[4], 0u);
}

TEST_CASE("atomics are atomic and a spin lock excludes") {
  DeviceArray<uint32_t> words(6);
  DeviceArray<float> sum(1);
  REQUIRE(launch(use_atomics, 3, 128, 0, words.data, sum.data) == cudaSuccess);
  CHECK(words[0] == 3 * 3 * 128);
  CHECK(words[1] == 0u - 3 * 128);
  CHECK(words[2] == 127);
  CHECK(words[3] == 7);
  CHECK(sum[0] == 192.0f);
  CHECK(words[5] == 12);
}

// --- waiting in vain ---------------------------------------------------------------------------------------------------

// vEU 0 waits for an event that nobody signals if `lost`; vEU 1 works for a while, with collectives only, then signals.
__global__ void wait_in_vain(uint32_t* event, uint32_t* gave_up, bool lost, int work) {
  if (blockIdx.x == 1) {
    float v = 1;
    for (int i = 0; i < work; ++i) v = rk::warp_sum(v) / 32;
    if (threadIdx.x == 0 && !lost) rk::signal(event);
    return;
  }
  if (rk::warp_id() == 0) {
    while (rk::lane_id() < 2 && rk::poll(event) == 0) {
      if (!cuda_on_cpu::stuck()) continue;
      atomicAdd(gave_up, 1u);
      break;
    }
  }
  __syncthreads();
}

TEST_CASE("stuck() is true when all that can run polls in vain, and only then") {
  cuda_on_cpu::set_seed(GENERATE(range(1u, 9u)));
  const bool lost = GENERATE(false, true);
  const int work = GENERATE(0, 20000);
  DeviceArray<uint32_t> event(1), gave_up(1);
  REQUIRE(launch(wait_in_vain, 2, 64, 0, event.data, gave_up.data, lost, work) == cudaSuccess);
  CHECK(gave_up[0] == (lost ? 2 : 0));
}

// Lane L of vEU 0 waits for words L and 32; vEU 1 works for a while, then makes the words, `plainly` without telling anybody. With `vote`,
// lanes whose words are there poll on until all lanes' are.
__global__ void wait_for_words(uint32_t* words, uint32_t* gave_up, bool plainly, bool vote) {
  const uint32_t lane = rk::lane_id();
  if (blockIdx.x == 1) {
    float v = 1;
    for (int i = 0; i < 2000; ++i) v = rk::warp_sum(v) / 32;
    uint32_t* const last = words + 32;
    if (plainly)
      words[lane] = 1;
    else
      cuda_on_cpu::publish(words + lane, 1u);
    __syncwarp();
    if (lane == 0 && plainly) *last = 1;
    if (lane == 0 && !plainly) rk::signal(last);
    return;
  }
  for (;;) {
    const bool own = rk::poll(words + lane) != 0, last = rk::poll(words + 32) != 0;
    const bool there = vote ? __all_sync(rk::kFullMask, own && last) != 0 : own && last;
    if (there) return;
    if (!(vote ? __any_sync(rk::kFullMask, cuda_on_cpu::stuck()) != 0 : cuda_on_cpu::stuck())) continue;
    atomicAdd(gave_up, 1u);
    return;
  }
}

TEST_CASE("who sleeps until a word changes wakes when it does") {
  cuda_on_cpu::set_seed(GENERATE(range(1u, 9u)));
  const bool plainly = GENERATE(false, true), vote = GENERATE(false, true);
  DeviceArray<uint32_t> words(33), gave_up(1);
  REQUIRE(launch(wait_for_words, 2, 32, 0, words.data, gave_up.data, plainly, vote) == cudaSuccess);
  CHECK(gave_up[0] == 0);
  for (uint32_t i = 0; i < words.size; ++i) CHECK(words[i] == 1);
}

// vEU 1 makes words; vEU 0 waits for all of them, looking at each many times in a pass, and signals; vEU 2 waits for the signal.
__global__ void look_again(uint32_t* words, int count, uint32_t* event, uint32_t* gave_up) {
  const int first = static_cast<int>(threadIdx.x) % count;
  if (blockIdx.x == 1) {
    if (static_cast<int>(threadIdx.x) < count) cuda_on_cpu::publish(words + threadIdx.x, 1u);
    return;
  }
  bool there = false;
  while (!there && !cuda_on_cpu::stuck()) {
    there = true;
    if (blockIdx.x == 2) there = rk::poll(event) != 0;
    for (int i = 0; i < 20 * count && blockIdx.x == 0; ++i) there = there && rk::poll(words + (first + i / 20) % count) != 0;
  }
  if (!there) atomicAdd(gave_up, 1u);
  __syncthreads();
  if (blockIdx.x == 0 && threadIdx.x == 0) rk::signal(event);
}

TEST_CASE("who looks at a word many times in a pass is not stuck") {
  cuda_on_cpu::set_seed(GENERATE(range(1u, 9u)));
  const int count = GENERATE(1, 3, 32);
  DeviceArray<uint32_t> words(32), event(1), gave_up(1);
  REQUIRE(launch(look_again, 3, 64, 0, words.data, count, event.data, gave_up.data) == cudaSuccess);
  CHECK(gave_up[0] == 0);
}

// Looks that were asked for in the pass before, as in recurrent gangs: a word is seen one pass after it is there.
__global__ void look_ahead(uint32_t* word, uint32_t* gave_up, int work) {
  if (blockIdx.x == 1) {
    float v = 1;
    for (int i = 0; i < work; ++i) v = rk::warp_sum(v) / 32;
    if (threadIdx.x == 0) cuda_on_cpu::publish(word, 1u);
    return;
  }
  uint32_t seen = rk::poll(word);
  for (;;) {
    if (__all_sync(rk::kFullMask, seen != 0)) return;
    seen = rk::poll(word);
    if (__any_sync(rk::kFullMask, cuda_on_cpu::stuck())) break;
  }
  atomicAdd(gave_up, 1u);
}

TEST_CASE("who decides by what the pass before saw is not stuck") {
  cuda_on_cpu::set_seed(GENERATE(range(1u, 33u)));
  const int work = GENERATE(0, 1, 10, 100, 1000);
  DeviceArray<uint32_t> word(1), gave_up(1);
  REQUIRE(launch(look_ahead, 2, 32, 0, word.data, gave_up.data, work) == cudaSuccess);
  CHECK(gave_up[0] == 0);
}

// A waiter warp whose lanes poll and then vote: the collectives must not look like progress.
__global__ void vote_in_vain(uint32_t* event, uint32_t* gave_up) {
  for (;;) {
    const bool there = rk::poll(event) != 0;
    if (__all_sync(rk::kFullMask, there)) return;
    if (__any_sync(rk::kFullMask, cuda_on_cpu::stuck())) break;
  }
  gave_up[blockIdx.x] = 1;
}

TEST_CASE("a warp that polls and votes is found stuck as well") {
  DeviceArray<uint32_t> event(1), gave_up(2);
  REQUIRE(launch(vote_in_vain, 2, 32, 0, event.data, gave_up.data) == cudaSuccess);
  CHECK(gave_up[0] + gave_up[1] == 2);
}

}  // namespace
