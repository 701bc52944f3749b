// Makes the tokens of NAME_generate once more by single runs, NAME_run, from the host: for `tamp run --prompt .. --check`. Included by
// runner.cpp, in a build that includes the generated source.
#pragma once

namespace steps {

namespace own = TAMP_JOIN(TAMP_MODEL, detail);

// Host copies of what changes; the rest stays on the device.
struct Stepper {
  const Job& job;
  Instance& instance;
  const own::tamp_host::TokenPlan& plan = own::kTokenPlan;

  void set(int input, int64_t element, uint32_t type, int64_t value) {
    std::vector<char> bytes;
    own::tamp_host::append_element(bytes, type, value);
    char* const at = static_cast<char*>(instance.inputs[static_cast<size_t>(input)]) + static_cast<size_t>(element) * bytes.size();
    CHECK_CUDA(cudaMemcpy(at, bytes.data(), bytes.size(), cudaMemcpyHostToDevice));
  }
  // The inputs of the run that is given `token` at `position`.
  void advance(int64_t token, int64_t position) {
    for (int a = 0; a < plan.advance_count; ++a) {
      const own::rk::InputAdvance& advance = plan.advances[a];
      const int input = static_cast<int>(advance.base) - own::rk::kFirstPort;
      switch (advance.kind) {
        case own::rk::kAdvanceToken: set(input, advance.element, advance.type, token); break;
        case own::rk::kAdvancePosition: set(input, advance.element, advance.type, position + advance.plus); break;
        case own::rk::kMarkPosition: set(input, advance.element + position, advance.type, 1); break;
        default: set(input, advance.element + token, advance.type, 1); break;
      }
    }
  }
  void begin() {
    for (int i = 0; i < MODEL(input_count)(); ++i) {
      if (!own::tamp_host::is_held(plan, i)) CHECK_CUDA(cudaMemset(instance.inputs[static_cast<size_t>(i)], 0, MODEL(inputs)()[i].bytes));
    }
    const float amounts[3] = {static_cast<float>(job.temperature), static_cast<float>(job.top_p),
                              job.repetition_penalty > 0 ? static_cast<float>(job.repetition_penalty) : 1.0F};
    const int64_t draw[3] = {job.top_k, static_cast<int64_t>(job.seed), 0};
    CHECK_CUDA(cudaMemcpy(instance.inputs[static_cast<size_t>(plan.amounts)], amounts, sizeof amounts, cudaMemcpyHostToDevice));
    CHECK_CUDA(cudaMemcpy(instance.inputs[static_cast<size_t>(plan.draw)], draw, sizeof draw, cudaMemcpyHostToDevice));
  }
  // Returns the token that is drawn.
  int64_t run(int64_t token, int64_t position) {
    advance(token, position);
    start(instance);
    const std::vector<std::vector<char>> outputs = finish(instance);
    for (int f = 0; f < plan.feed_count; ++f) {
      const std::vector<char>& from = outputs[static_cast<size_t>(plan.feeds[f].output)];
      CHECK_CUDA(cudaMemcpy(instance.inputs[static_cast<size_t>(plan.feeds[f].input)], from.data(), from.size(), cudaMemcpyHostToDevice));
    }
    int64_t drawn = 0;
    std::memcpy(&drawn, outputs.at(static_cast<size_t>(plan.token)).data(), sizeof drawn);
    return drawn;
  }
};

inline std::vector<int64_t> tokens_of(const Job& job, Instance& instance) {
  Stepper stepper{job, instance};
  stepper.begin();
  std::vector<int64_t> made;
  int64_t position = 0, drawn = 0;
  for (const int64_t token : job.prompt) drawn = stepper.run(token, position++);
  for (;;) {
    made.push_back(drawn);
    const int64_t* const stops = stepper.plan.stops;
    const bool stops_here = std::find(stops, stops + stepper.plan.stop_count, drawn) != stops + stepper.plan.stop_count;
    if (stops_here || static_cast<int>(made.size()) == job.max_tokens) return made;
    drawn = stepper.run(drawn, position++);
  }
}

}  // namespace steps
