// Makes the tokens of NAME_generate once more by single runs, NAME_run, from the host: for `tamp run --prompt .. --check`. Included by
// runner.cpp, in a build that includes the generated source.
#pragma once

namespace steps {

namespace own = TAMP_JOIN(TAMP_MODEL, detail);

// The text so far. What changes from run to run is made on the host; the rest stays on the device.
struct Stepper {
  const Job& job;
  Instance& instance;
  std::vector<int64_t> text = job.prompt;
  const own::tamp_host::TokenPlan& plan = own::kTokenPlan;

  void copy(int input, size_t begin, const void* from, size_t bytes) {
    char* const at = static_cast<char*>(instance.inputs[static_cast<size_t>(input)]);
    CHECK_CUDA(cudaMemcpy(at + begin, from, bytes, cudaMemcpyHostToDevice));
  }
  void clear(int input) { CHECK_CUDA(cudaMemset(instance.inputs[static_cast<size_t>(input)], 0, MODEL(inputs)()[input].bytes)); }
  void begin() {
    for (int i = 0; i < MODEL(input_count)(); ++i) {
      if (!own::tamp_host::is_held(plan, i)) clear(i);
    }
    const float amounts[3] = {static_cast<float>(job.temperature), static_cast<float>(job.top_p),
                              job.repetition_penalty > 0 ? static_cast<float>(job.repetition_penalty) : 1.0F};
    const int64_t draw[3] = {job.top_k, static_cast<int64_t>(job.seed), 0};
    copy(plan.amounts, 0, amounts, sizeof amounts);
    copy(plan.draw, 0, draw, sizeof draw);
  }
  // A run that is given `rows` tokens of the text from `first` on. Returns the token that is drawn.
  int64_t run(int32_t first, int32_t rows) {
    tamp_tokens given{};
    given.prompt = text.data();
    for (int i = 0; i < plan.token_input_count; ++i) {
      const own::tamp_host::InputBytes bytes = own::tamp_host::bytes_for(plan.token_inputs[i], given, first, rows);
      if (bytes.is_mask) clear(plan.token_inputs[i].port());
      copy(plan.token_inputs[i].port(), bytes.begin, bytes.bytes.data(), bytes.bytes.size());
    }
    if (plan.length >= 0) instance.lengths.at(static_cast<size_t>(plan.length)) = rows;
    start(instance);
    const std::vector<std::vector<char>> outputs = finish(instance);
    for (int f = 0; f < plan.feed_count; ++f) {
      const std::vector<char>& from = outputs[static_cast<size_t>(plan.feeds[f].output)];
      copy(plan.feeds[f].input, 0, from.data(), from.size());
    }
    int64_t drawn = 0;
    std::memcpy(&drawn, outputs.at(static_cast<size_t>(plan.token)).data(), sizeof drawn);
    return drawn;
  }
  // The prompt, or its beginning, in the parts that NAME_generate makes of it. Returns how many tokens that are.
  int32_t run_prompt(int64_t& drawn) {
    int32_t first = 0;
#if defined(TAMP_LENGTHS)
    const tamp_lengths& info = *MODEL(lengths_info)();
    for (int32_t i = static_cast<int32_t>(instance.lengths.size()); i < info.length_count; ++i)
      instance.lengths.push_back(info.lengths[i].largest);
    const auto rows_of_next = [&] { return own::tamp_host::tokens_of_run(info, plan, static_cast<int32_t>(text.size()) - first); };
    for (int32_t rows = rows_of_next(); rows > 0; rows = rows_of_next()) {
      drawn = run(first, rows);
      first += rows;
    }
#endif
    (void)drawn;
    return first;
  }
};

inline std::vector<int64_t> tokens_of(const Job& job, Instance& instance) {
  Stepper stepper{job, instance};
  stepper.begin();
  std::vector<int64_t> made;
  int64_t drawn = 0;
  for (int32_t first = stepper.run_prompt(drawn);;) {
    if (first < static_cast<int32_t>(stepper.text.size())) drawn = stepper.run(first++, 1);
    if (first < static_cast<int32_t>(stepper.text.size())) continue;
    made.push_back(drawn);
    stepper.text.push_back(drawn);
    const int64_t* const stops = stepper.plan.stops;
    const bool stops_here = std::find(stops, stops + stepper.plan.stop_count, drawn) != stops + stepper.plan.stop_count;
    if (stops_here || static_cast<int>(made.size()) == job.max_tokens) return made;
  }
}

}  // namespace steps
