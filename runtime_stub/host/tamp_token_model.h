// The C++ class of a program that makes tokens, on top of that of other programs (tamp_model.h, tamp_varying_model.h).
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <functional>
#include <stdexcept>
#include <vector>

#include "runtime_stub/host/tamp_model.h"
#include "runtime_stub/host/tamp_tokens.h"

namespace tamp_cpp {

template <class Api, class Base>
class TokenModelOf : public Base {
 public:
  using Base::Base;

  // The tokens that follow the prompt: generate({1, 42}, {.max_tokens = 100, .temperature = 0.8f}). Of the options prompt, on_token and
  // user are set here. `on_token` gets each token as it is made, and ends the text if it returns true.
  std::vector<int64_t> generate(const std::vector<int64_t>& prompt, tamp_tokens options, const std::function<bool(int64_t)>& on_token = {},
                                cudaStream_t stream = nullptr) {
    if (this->get() == nullptr) throw std::runtime_error("this Model was moved from");
    options.prompt = prompt.data();
    options.prompt_count = static_cast<int32_t>(prompt.size());
    options.on_token = on_token ? call : nullptr;
    options.user = const_cast<std::function<bool(int64_t)>*>(&on_token);
    std::vector<int64_t> tokens(options.max_tokens > 0 ? static_cast<std::size_t>(options.max_tokens) : 0);
    int32_t count = 0;
    if (Api::generate(this->get(), &options, tokens.data(), &count, stream) != TAMP_OK) throw std::runtime_error(Api::message(this->get()));
    tokens.resize(static_cast<std::size_t>(count));
    return tokens;
  }
  void cancel() { Api::cancel(this->get()); }

 private:
  static int call(void* user, int64_t token) { return (*static_cast<const std::function<bool(int64_t)>*>(user))(token) ? 1 : 0; }
};

}  // namespace tamp_cpp
