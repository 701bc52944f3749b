// NAME_generate of a program that has other buckets besides that of one token: they fill the caches with the prompt, and the last of these
// runs draws the first token. The kernel that repeats its run begins with that, or with a token of the prompt that is left alone. Its text
// stands in NAME.cu of such programs only.
//
// Example: buckets of 1, 16 and 64, and a prompt of 100 tokens: runs of 64 and 36, and the text goes on behind the token that the second
// one has drawn.
//
// Other lengths, of inputs that each call gives, have the same values in all of these.
#pragma once

#include "runtime_stub/host/lengths.h"
#include "runtime_stub/host/tokens.h"

namespace tamp_host {

// How many of `left` tokens of a prompt the next run is given; 0: what is left is for the kernel that repeats its run.
inline int32_t tokens_of_run(const tamp_lengths& info, const TokenPlan& plan, int32_t left) {
  if (plan.length < 0) return 0;
  const int64_t largest = info.buckets[info.bucket_count - 1];
  return left > 1 ? static_cast<int32_t>(std::min<int64_t>(largest, left)) : 0;
}

inline Instance& step_of(const Varying& context) { return *context.programs[0].instance; }

// The lengths of a run of so many tokens.
inline std::vector<int64_t> lengths_of_run(const tamp_lengths& info, const TokenPlan& plan, const tamp_tokens& wanted, int32_t rows) {
  std::vector<int64_t> values;
  for (int32_t i = 0; i < info.length_count; ++i) {
    const int64_t given = wanted.lengths != nullptr ? wanted.lengths[i] : info.lengths[i].largest;
    values.push_back(i == plan.length ? rows : given);
  }
  return values;
}

inline tamp_status run_prompt(Varying& context, const TokenPlan& plan, const tamp_tokens& wanted, int32_t& first, cudaStream_t stream) {
  Instance& step = step_of(context);
  TokenMemory& memory = *step.tokens;
  const tamp_lengths& info = *context.info;
  tamp_status good = TAMP_OK;
  while (const int32_t rows = tokens_of_run(info, plan, wanted.prompt_count - first)) {
    good = set_inputs(step, plan, wanted, first, rows, stream);
    if (good != TAMP_OK) return good;
    good = run_at(&context, lengths_of_run(info, plan, wanted, rows).data(), memory.inputs.data(), memory.outputs.data(), stream);
    if (good != TAMP_OK) return fail(step.message, good, context.message);
    swap_feeds(memory, plan, 1);
    first += rows;
  }
  good = choose(&context, lengths_of_run(info, plan, wanted, 1).data());
  return good == TAMP_OK ? good : fail(step.message, good, context.message);
}

// The token that the prompt's last run has drawn.
inline tamp_status read_token(Varying& context, const TokenPlan& plan, int64_t& token, cudaStream_t stream) {
  Instance& step = step_of(context);
  const void* const from = step.tokens->outputs[static_cast<size_t>(plan.token)];
  TAMP_TRY_CUDA(step.message, cudaMemcpyAsync(&token, from, sizeof token, cudaMemcpyDeviceToHost, stream));
  TAMP_TRY_CUDA(step.message, cudaStreamSynchronize(stream));
  const tamp_status good = reported(context);
  return good == TAMP_OK ? good : fail(step.message, good, context.message);
}

inline tamp_status make_text(Varying& context, const TokenPlan& plan, const tamp_tokens& wanted, int64_t* tokens, int32_t& made,
                             cudaStream_t stream) {
  Instance& step = step_of(context);
  int32_t first = 0, more = 0;
  tamp_status good = run_prompt(context, plan, wanted, first, stream);
  if (good == TAMP_OK && first < wanted.prompt_count) return make_tokens(step, plan, wanted, first, tokens, made, stream);
  std::vector<int64_t> text(wanted.prompt, wanted.prompt + first);
  if (good == TAMP_OK) good = read_token(context, plan, text.emplace_back(), stream);
  if (good != TAMP_OK) return good;
  const int64_t token = text.back();
  const std::span<const int64_t> stops = stops_of(plan, wanted);
  if (tokens != nullptr) *tokens = token;
  made = 1;
  if (wanted.on_token != nullptr && wanted.on_token(wanted.user, token) != 0) return TAMP_OK;
  const bool is_cancelled = __atomic_load_n(step.tokens->flags, __ATOMIC_ACQUIRE) != 0;
  if (wanted.max_tokens == 1 || is_cancelled || std::find(stops.begin(), stops.end(), token) != stops.end()) return TAMP_OK;
  tamp_tokens rest = wanted;
  rest.prompt = text.data();
  ++rest.prompt_count;
  --rest.max_tokens;
  good = make_tokens(step, plan, rest, first, tokens == nullptr ? nullptr : tokens + 1, more, stream);
  made += more;
  return good;
}

inline tamp_status generate(Varying* context, const TokenPlan& plan, const tamp_tokens* wanted, int64_t* tokens, int32_t* count,
                            cudaStream_t stream) {
  int32_t made = 0;
  if (count != nullptr) *count = 0;
  tamp_status good = choose(context, nullptr);  // memory is made for the largest
  if (good != TAMP_OK) return good;
  good = begin_call(&step_of(*context), plan, wanted, stream);
  if (good == TAMP_OK) good = make_text(*context, plan, *wanted, tokens, made, stream);
  if (count != nullptr) *count = made;
  if (good != TAMP_OK) return fail(context->message, good, step_of(*context).message);
  return reported(*context);
}

inline void cancel(Varying* context) {
  if (context != nullptr) cancel(&step_of(*context));
}

}  // namespace tamp_host
