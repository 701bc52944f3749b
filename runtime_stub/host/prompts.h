// NAME_generate of a program that has other buckets besides that of one token: they fill the caches with the prompt, and the kernel that
// repeats its run begins with the tokens that are left. Its text stands in NAME.cu of such programs only.
//
// Example: buckets of 1, 16 and 64, and a prompt of 100 tokens: a run of 64, one of 35, and the text begins with the last token.
//
// Other lengths, of inputs that each call gives, have the same values in all of these.
#pragma once

#include "runtime_stub/host/lengths.h"
#include "runtime_stub/host/tokens.h"

namespace tamp_host {

// How many of `left` tokens the next run is given before the text begins; 0: it begins. One token more costs the kernel that repeats its
// run no more than a launch of its own would.
inline int32_t tokens_of_run(const tamp_lengths& info, const TokenPlan& plan, int32_t left) {
  if (plan.length < 0) return 0;
  const int64_t largest = info.buckets[info.bucket_count - 1];
  return left > 2 ? static_cast<int32_t>(std::min<int64_t>(largest, left - 1)) : 0;
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

inline tamp_status generate(Varying* context, const TokenPlan& plan, const tamp_tokens* wanted, int64_t* tokens, int32_t* count,
                            cudaStream_t stream) {
  if (count != nullptr) *count = 0;
  tamp_status good = choose(context, nullptr);  // memory is made for the largest
  if (good != TAMP_OK) return good;
  good = generate(&step_of(*context), plan, wanted, tokens, count, stream,
                  [&](const tamp_tokens& all, int32_t& first) { return run_prompt(*context, plan, all, first, stream); });
  if (good != TAMP_OK) return fail(context->message, good, step_of(*context).message);
  return reported(*context);
}

inline void cancel(Varying* context) {
  if (context != nullptr) cancel(&step_of(*context));
}

}  // namespace tamp_host
