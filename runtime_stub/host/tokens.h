// The host half of a program that makes tokens: NAME_generate. Its text stands in NAME.cu of such programs only.
//
// A context has memory for all inputs and outputs but those that each call gives, made by the first call. An output that becomes an input
// is in the same memory where it may stay in place; else the kernel lets both change places from run to run, and so do the pointers here.
#pragma once

#include <cuda_runtime.h>

#include <algorithm>
#include <atomic>
#include <span>
#include <string>
#include <vector>
#if defined(TAMP_CUDA_ON_CPU)
#include <thread>
#endif

#include "kernels/vdevice/tokens.cuh"
#include "runtime_stub/host/instance.h"
#include "runtime_stub/host/tamp_tokens.h"

namespace tamp_host {

// A pair of ports whose memory changes hands from run to run; `swaps`: it is not the same memory.
struct FedPort {
  int output, input;
  bool swaps;
};

// An input whose values follow from the tokens of a run and their positions. Of several tokens it has an element each, or one, that of the
// first or of the last of them.
struct TokenInput {
  rk::InputAdvance advance;
  bool is_each, is_last;

  int port() const { return static_cast<int>(advance.base) - rk::kFirstPort; }
};

// What the generated file knows.
struct TokenPlan {
  const TokenInput* token_inputs;
  int token_input_count;
  const FedPort* feeds;
  int feed_count;
  int amounts, draw;  // inputs
  int token;          // output
  const int* held;    // inputs that each call gives
  int held_count;
  int64_t words, places;  // places 0: no limit
  const int64_t* stops;
  int stop_count;
  int length;  // which one says how many tokens a run has; -1: none, it has one
};

// All that calls keep.
struct TokenMemory {
  std::vector<void*> inputs, outputs;
  std::vector<void*> owned;  // each once
  rk::TokenRequest* request = nullptr;
  int64_t* prompt = nullptr;  // device memory
  size_t prompt_room = 0, made_room = 0;
  int64_t* made = nullptr;    // host memory
  uint32_t* flags = nullptr;  // host memory: cancel, runs
  cudaEvent_t done = nullptr;
};

inline void drop_tokens(TokenMemory* memory) {
  if (memory == nullptr) return;
  for (void* const owned : memory->owned) cudaFree(owned);
  cudaFree(memory->request);
  cudaFree(memory->prompt);
  if (memory->made != nullptr) cudaFreeHost(memory->made);
  if (memory->flags != nullptr) cudaFreeHost(memory->flags);
  if (memory->done != nullptr) cudaEventDestroy(memory->done);
  delete memory;
}

inline bool is_held(const TokenPlan& plan, int input) {
  return std::find(plan.held, plan.held + plan.held_count, input) != plan.held + plan.held_count;
}

inline tamp_status own_port(Instance& instance, const tamp_port& port, void*& at) {
  TAMP_TRY_CUDA(instance.message, cudaMalloc(&at, port.bytes > 0 ? port.bytes : 16));
  instance.tokens->owned.push_back(at);
  return TAMP_OK;
}

inline tamp_status make_token_memory(Instance& instance, const TokenPlan& plan) {
  if (instance.tokens != nullptr) return TAMP_OK;
  const Model& model = *instance.model;
  instance.tokens = new TokenMemory;
  instance.drop_tokens = drop_tokens;
  TokenMemory& memory = *instance.tokens;
  std::string& message = instance.message;
  memory.inputs.resize(static_cast<size_t>(model.input_count));
  memory.outputs.resize(static_cast<size_t>(model.output_count));
  for (int i = 0; i < model.input_count; ++i) {
    if (is_held(plan, i)) continue;
    const tamp_status owned = own_port(instance, model.inputs[i], memory.inputs[static_cast<size_t>(i)]);
    if (owned != TAMP_OK) return owned;
  }
  for (int f = 0; f < plan.feed_count; ++f) {
    const FedPort& feed = plan.feeds[f];
    if (!feed.swaps) memory.outputs[static_cast<size_t>(feed.output)] = memory.inputs[static_cast<size_t>(feed.input)];
  }
  for (int o = 0; o < model.output_count; ++o) {
    void*& at = memory.outputs[static_cast<size_t>(o)];
    const tamp_status owned = at != nullptr ? TAMP_OK : own_port(instance, model.outputs[o], at);
    if (owned != TAMP_OK) return owned;
  }
  TAMP_TRY_CUDA(message, cudaMalloc(reinterpret_cast<void**>(&memory.request), sizeof(rk::TokenRequest)));
  TAMP_TRY_CUDA(message, cudaHostAlloc(reinterpret_cast<void**>(&memory.flags), 2 * sizeof(uint32_t), cudaHostAllocMapped));
  TAMP_TRY_CUDA(message, cudaEventCreateWithFlags(&memory.done, cudaEventDisableTiming));
  return TAMP_OK;
}

// Room for a prompt and for tokens; both grow.
inline tamp_status make_room(Instance& instance, size_t prompt, size_t made) {
  TokenMemory& memory = *instance.tokens;
  if (prompt > memory.prompt_room) {
    TAMP_TRY_CUDA(instance.message, cudaFree(memory.prompt));
    memory.prompt = nullptr;
    memory.prompt_room = 0;
    TAMP_TRY_CUDA(instance.message, cudaMalloc(reinterpret_cast<void**>(&memory.prompt), prompt * sizeof(int64_t)));
    memory.prompt_room = prompt;
  }
  if (made > memory.made_room) {
    if (memory.made != nullptr) TAMP_TRY_CUDA(instance.message, cudaFreeHost(memory.made));
    memory.made = nullptr;
    memory.made_room = 0;
    TAMP_TRY_CUDA(instance.message, cudaHostAlloc(reinterpret_cast<void**>(&memory.made), made * sizeof(int64_t), cudaHostAllocMapped));
    memory.made_room = made;
  }
  return TAMP_OK;
}

inline tamp_status check_tokens(Instance& instance, const TokenPlan& plan, const tamp_tokens* wanted) {
  const auto refuse = [&](const std::string& why) {
    return fail(instance.message, TAMP_INVALID_ARGUMENT, std::string(instance.model->name) + ": generate: " + why);
  };
  if (wanted == nullptr) return refuse("the options are null");
  if (wanted->prompt == nullptr || wanted->prompt_count < 1) return refuse("the prompt has no token");
  for (int32_t i = 0; i < wanted->prompt_count; ++i) {
    if (wanted->prompt[i] < 0 || wanted->prompt[i] >= plan.words)
      return refuse("token " + std::to_string(i) + " of the prompt is " + std::to_string(wanted->prompt[i]) + ", there are " +
                    std::to_string(plan.words) + " words");
  }
  if (wanted->max_tokens < 1) return refuse("max_tokens is " + std::to_string(wanted->max_tokens) + ", at least 1 is made");
  constexpr int64_t kMostPosition = int64_t{1} << 62;  // so that sums with it are no overflow
  if (wanted->position < 0 || wanted->position > kMostPosition)
    return refuse("the position is " + std::to_string(wanted->position) + ", supported: 0 to " + std::to_string(kMostPosition));
  const int64_t places = wanted->position + wanted->prompt_count + wanted->max_tokens - 1;
  if (plan.places > 0 && places > plan.places)
    return refuse("position, prompt and max_tokens need " + std::to_string(places) + " places, the program has " +
                  std::to_string(plan.places));
  if (!(wanted->temperature >= 0) || !(wanted->temperature <= 3.0e38F)) return refuse("the temperature is negative, infinite or no number");
  if (!(wanted->top_p >= 0 && wanted->top_p <= 1)) return refuse("top_p is not from 0 to 1");
  if (wanted->top_k < 0) return refuse("top_k is negative");
  if (!(wanted->repetition_penalty >= 0) || !(wanted->repetition_penalty <= 3.0e38F)) return refuse("the penalty is negative or no number");
  if (wanted->stops != nullptr && (wanted->stop_count < 0 || wanted->stop_count > static_cast<int32_t>(rk::kMostStops)))
    return refuse(std::to_string(wanted->stop_count) + " tokens end the text, supported: 0 to " + std::to_string(rk::kMostStops));
  for (int h = 0; h < plan.held_count; ++h) {
    if (wanted->inputs == nullptr || wanted->inputs[plan.held[h]] == nullptr)
      return refuse(std::string("input '") + instance.model->inputs[plan.held[h]].name + "' is not given");
  }
  return TAMP_OK;
}

// Appends an integer as an element of the port's type; of floats, 1 is all that is ever asked for.
inline void append_element(std::vector<char>& to, uint32_t type, int64_t value) {
  const auto append = [&](auto bits) {
    const char* const bytes = reinterpret_cast<const char*>(&bits);
    to.insert(to.end(), bytes, bytes + sizeof bits);
  };
  switch (type) {
    case rk::kF32: return append(static_cast<float>(value));
    case rk::kF64: return append(static_cast<double>(value));
    case rk::kF16: return append(static_cast<uint16_t>(0x3c00));
    case rk::kBf16: return append(static_cast<uint16_t>(0x3f80));
    case rk::kI8:
    case rk::kU8:
    case rk::kBool: return append(static_cast<int8_t>(value));
    case rk::kI16:
    case rk::kU16: return append(static_cast<int16_t>(value));
    case rk::kI32:
    case rk::kU32: return append(static_cast<int32_t>(value));
    default: return append(value);
  }
}

// Bytes of an input from byte `begin` on. The others of a mask are zeros.
struct InputBytes {
  std::vector<char> bytes;
  size_t begin;
  bool is_mask;
};

// What an input holds in a run that is given `rows` tokens of the prompt from `first` on.
inline InputBytes bytes_for(const TokenInput& input, const tamp_tokens& wanted, int32_t first, int32_t rows) {
  const rk::AdvanceKind kind = input.advance.kind;
  const int64_t position = wanted.position + first, end = position + rows;
  InputBytes made{{}, 0, kind == rk::kMarkPosition || kind == rk::kMarkToken};
  if (kind == rk::kMarkToken) {  // bools
    const int64_t *const seen = wanted.prompt, *const behind = seen + first + rows;
    made.bytes.resize(static_cast<size_t>(*std::max_element(seen, behind)) + 1);
    for (const int64_t* token = seen; token != behind; ++token) made.bytes[static_cast<size_t>(*token)] = 1;
    return made;
  }
  std::vector<int64_t> values;
  if (kind == rk::kMarkPosition) values.assign(static_cast<size_t>(end), 1);
  for (int32_t row = 0; !made.is_mask && row < (input.is_each ? rows : 1); ++row) {
    const int64_t at = input.is_each || !input.is_last ? position + row : end - 1;
    values.push_back(kind == rk::kAdvanceToken ? wanted.prompt[first + row] : at + input.advance.plus);
  }
  for (const int64_t value : values) append_element(made.bytes, input.advance.type, value);
  made.begin = made.bytes.size() / values.size() * static_cast<size_t>(input.advance.element);
  return made;
}

// The inputs of a text's first run. What a text before it has left in the caches is not for this one.
inline tamp_status begin_text(Instance& instance, const TokenPlan& plan, const tamp_tokens& wanted, cudaStream_t stream) {
  TokenMemory& memory = *instance.tokens;
  std::string& message = instance.message;
  const auto input = [&](int i) { return static_cast<char*>(memory.inputs[static_cast<size_t>(i)]); };
  for (int f = 0; f < plan.feed_count && wanted.position == 0; ++f)
    TAMP_TRY_CUDA(message, cudaMemsetAsync(input(plan.feeds[f].input), 0, instance.model->inputs[plan.feeds[f].input].bytes, stream));
  const float amounts[3] = {wanted.temperature, wanted.top_p, wanted.repetition_penalty > 0 ? wanted.repetition_penalty : 1.0F};
  const int64_t draw[3] = {wanted.top_k, static_cast<int64_t>(wanted.seed), 0};
  TAMP_TRY_CUDA(message, cudaMemcpyAsync(input(plan.amounts), amounts, sizeof amounts, cudaMemcpyHostToDevice, stream));
  TAMP_TRY_CUDA(message, cudaMemcpyAsync(input(plan.draw), draw, sizeof draw, cudaMemcpyHostToDevice, stream));
  return TAMP_OK;
}

// The inputs of a run that is given `rows` tokens of the prompt from `first` on.
inline tamp_status set_inputs(Instance& instance, const TokenPlan& plan, const tamp_tokens& wanted, int32_t first, int32_t rows,
                              cudaStream_t stream) {
  for (int i = 0; i < plan.token_input_count; ++i) {
    const TokenInput& input = plan.token_inputs[i];
    char* const at = static_cast<char*>(instance.tokens->inputs[static_cast<size_t>(input.port())]);
    const InputBytes own = bytes_for(input, wanted, first, rows);
    if (own.is_mask) TAMP_TRY_CUDA(instance.message, cudaMemsetAsync(at, 0, instance.model->inputs[input.port()].bytes, stream));
    TAMP_TRY_CUDA(instance.message, cudaMemcpyAsync(at + own.begin, own.bytes.data(), own.bytes.size(), cudaMemcpyHostToDevice, stream));
  }
  return TAMP_OK;
}

inline std::span<const int64_t> stops_of(const TokenPlan& plan, const tamp_tokens& wanted) {
  if (wanted.stops != nullptr) return {wanted.stops, static_cast<size_t>(wanted.stop_count)};
  return {plan.stops, static_cast<size_t>(plan.stop_count)};
}

// What the kernel is told, and what it counts. It begins with token `first` of the prompt.
inline tamp_status set_request(Instance& instance, const TokenPlan& plan, const tamp_tokens& wanted, int32_t first, cudaStream_t stream) {
  TokenMemory& memory = *instance.tokens;
  std::string& message = instance.message;
  const size_t prompt = static_cast<size_t>(wanted.prompt_count - first), most = static_cast<size_t>(wanted.max_tokens);
  const tamp_status room = make_room(instance, prompt, most);
  if (room != TAMP_OK) return room;
  std::fill_n(memory.made, most, int64_t{-1});
  memory.flags[1] = 0;
  rk::TokenRequest request{};
  request.prompt = memory.prompt;
  request.prompt_count = static_cast<uint32_t>(prompt);
  request.most_tokens = static_cast<uint32_t>(wanted.max_tokens);
  const std::span<const int64_t> stops = stops_of(plan, wanted);
  request.stop_count = static_cast<uint32_t>(stops.size());
  std::copy(stops.begin(), stops.end(), request.stops);
  request.first_position = wanted.position + first;
  uint32_t* flags = nullptr;
  TAMP_TRY_CUDA(message, cudaHostGetDevicePointer(reinterpret_cast<void**>(&request.made), memory.made, 0));
  TAMP_TRY_CUDA(message, cudaHostGetDevicePointer(reinterpret_cast<void**>(&flags), memory.flags, 0));
  request.cancel = flags;
  request.runs = flags + 1;
  TAMP_TRY_CUDA(message, cudaMemcpyAsync(memory.prompt, wanted.prompt + first, prompt * sizeof(int64_t), cudaMemcpyHostToDevice, stream));
  TAMP_TRY_CUDA(message, cudaMemcpyAsync(memory.request, &request, sizeof request, cudaMemcpyHostToDevice, stream));
  uint32_t* const line = instance.state + static_cast<size_t>(rk::kTokenLine) * rk::kLineWords;
  TAMP_TRY_CUDA(message, cudaMemsetAsync(line + rk::kCancelWord, 0, 2 * sizeof(uint32_t), stream));
  // The copies are from this function's memory.
  TAMP_TRY_CUDA(message, cudaStreamSynchronize(stream));
  return TAMP_OK;
}

// Hands on the tokens that have been made. False: the caller has had enough.
inline bool hand_on(const TokenMemory& memory, const tamp_tokens& wanted, int64_t* tokens, int32_t& count) {
  for (; count < wanted.max_tokens; ++count) {
    const int64_t token = __atomic_load_n(memory.made + count, __ATOMIC_ACQUIRE);
    if (token < 0) return true;
    if (tokens != nullptr) tokens[count] = token;
    if (wanted.on_token == nullptr || wanted.on_token(wanted.user, token) == 0) continue;
    ++count;
    return false;
  }
  return true;
}

inline void cancel(Instance* instance) {
  if (instance != nullptr && instance->tokens != nullptr && instance->tokens->flags != nullptr)
    __atomic_store_n(instance->tokens->flags, 1u, __ATOMIC_RELEASE);
}

// Launches, and hands on tokens while the kernel runs.
inline tamp_status run_tokens(Instance& instance, const tamp_tokens& wanted, int64_t* tokens, int32_t& count, cudaStream_t stream) {
  TokenMemory& memory = *instance.tokens;
  bool goes_on = true;
  const auto hand_on_some = [&] {
    if (!goes_on) return;
    goes_on = hand_on(memory, wanted, tokens, count);
    if (!goes_on) cancel(&instance);
  };
  instance.request = memory.request;
#if defined(TAMP_CUDA_ON_CPU)
  std::atomic<bool> is_done = false;
  tamp_status launched = TAMP_OK;
  std::thread device([&] {  // the stand-in's launch returns when the kernel has ended
    launched = run(&instance, memory.inputs.data(), memory.outputs.data(), stream);
    is_done = true;
  });
  while (!is_done) {
    hand_on_some();
    std::this_thread::yield();
  }
  device.join();
  instance.request = nullptr;
  if (launched != TAMP_OK) return launched;
#else
  const tamp_status launched = run(&instance, memory.inputs.data(), memory.outputs.data(), stream);
  instance.request = nullptr;
  if (launched != TAMP_OK) return launched;
  TAMP_TRY_CUDA(instance.message, cudaEventRecord(memory.done, stream));
  for (cudaError_t state = cudaErrorNotReady; state != cudaSuccess;) {
    hand_on_some();
    state = cudaEventQuery(memory.done);
    if (state != cudaErrorNotReady) TAMP_TRY_CUDA(instance.message, state);
  }
#endif
  hand_on_some();
  return status(&instance);
}

// After a launch of so many runs: the outputs of the last one are what the next launch goes on from. The kernel has swapped them once less
// often than there were runs.
inline void swap_feeds(TokenMemory& memory, const TokenPlan& plan, uint32_t runs) {
  for (int f = 0; f < plan.feed_count; ++f) {
    const FedPort& feed = plan.feeds[f];
    if (feed.swaps && runs % 2 != 0)
      std::swap(memory.inputs[static_cast<size_t>(feed.input)], memory.outputs[static_cast<size_t>(feed.output)]);
  }
}

// Checks what a call asks for, and makes all ready but the inputs of its first run.
inline tamp_status begin_call(Instance* instance, const TokenPlan& plan, const tamp_tokens* wanted, cudaStream_t stream) {
  tamp_status good = reported(instance);
  if (good == TAMP_OK) good = check_tokens(*instance, plan, wanted);
  if (good == TAMP_OK) good = make_token_memory(*instance, plan);
  if (good != TAMP_OK) return good;
  TokenMemory& memory = *instance->tokens;
  __atomic_store_n(memory.flags, 0u, __ATOMIC_RELEASE);
  for (int h = 0; h < plan.held_count; ++h)
    memory.inputs[static_cast<size_t>(plan.held[h])] = const_cast<void*>(wanted->inputs[plan.held[h]]);
  return begin_text(*instance, plan, *wanted, stream);
}

// From token `first` of the prompt on.
inline tamp_status make_tokens(Instance& instance, const TokenPlan& plan, const tamp_tokens& wanted, int32_t first, int64_t* tokens,
                               int32_t& count, cudaStream_t stream) {
  tamp_status good = set_inputs(instance, plan, wanted, first, 1, stream);
  if (good == TAMP_OK) good = set_request(instance, plan, wanted, first, stream);
  if (good == TAMP_OK) good = run_tokens(instance, wanted, tokens, count, stream);
  if (good == TAMP_OK) swap_feeds(*instance.tokens, plan, instance.tokens->flags[1]);
  return good;
}

inline tamp_status generate(Instance* instance, const TokenPlan& plan, const tamp_tokens* wanted, int64_t* tokens, int32_t* count,
                            cudaStream_t stream) {
  if (instance == nullptr) return TAMP_INVALID_ARGUMENT;
  int32_t made = 0;
  tamp_status good = begin_call(instance, plan, wanted, stream);
  if (good == TAMP_OK) good = make_tokens(*instance, plan, *wanted, 0, tokens, made, stream);
  if (count != nullptr) *count = made;
  return good;
}

}  // namespace tamp_host
