// Activations that rKernels apply on the way out.
#pragma once

#include <cstdint>
#include <span>

namespace tamp {

// The activation that a rKernel applies to its accumulator before storing: y = act(acc + bias + residual), or act(acc + bias) + residual if
// the activation comes first. Only Conv, MatMul and Pool-like rOperators have such an activation.
enum class Activation : uint8_t { none, relu, clip, sigmoid, tanh, hard_sigmoid, hard_swish, leaky_relu, silu, gelu, gelu_tanh, rounded };
std::span<const char* const> names_of(Activation);

// An activation and its attributes (clip, rounded: min and max; leaky_relu: slope; hard_sigmoid: alpha, beta).
struct ActivationCall {
  Activation kind = Activation::none;
  float a = 0, b = 0;
  bool operator==(const ActivationCall&) const = default;

  static void fields(auto& call, auto&& f) {
    f("act", call.kind, Activation::none);
    f("a", call.a, 0.0F);
    f("b", call.b, 0.0F);
  }
};

}  // namespace tamp
