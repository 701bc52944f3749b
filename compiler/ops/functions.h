// The scalar functions of Elementwise and of activations, in double. All of them pass NaN on, as numpy does.
#pragma once

#include <cmath>
#include <numbers>

namespace tamp::ops {

// numpy's maximum and minimum: NaN wins (std::max and fmax lose it).
inline double max_of(double x, double y) { return std::isnan(x) || x > y ? x : y; }
inline double min_of(double x, double y) { return std::isnan(x) || x < y ? x : y; }

inline double relu(double x) { return x < 0 ? 0.0 : x; }
inline double leaky_relu(double x, double slope) { return x < 0 ? slope * x : x; }
inline double elu(double x, double a) { return x < 0 ? a * std::expm1(x) : x; }
inline double clip(double x, double low, double high) { return min_of(max_of(x, low), high); }  // low > high gives high
inline double sigmoid(double x) { return 1.0 / (1.0 + std::exp(-x)); }
inline double hard_sigmoid(double x, double alpha, double beta) { return clip(alpha * x + beta, 0.0, 1.0); }
inline double hard_swish(double x) { return x * hard_sigmoid(x, 1.0 / 6.0, 0.5); }
inline double silu(double x) { return x * sigmoid(x); }
inline double softplus(double x) { return std::log1p(std::exp(-std::fabs(x))) + max_of(x, 0.0); }  // exp(x) would overflow
inline double gelu(double x) { return 0.5 * x * (1.0 + std::erf(x / std::numbers::sqrt2)); }
inline double gelu_tanh(double x) {
  const double scale = std::numbers::sqrt2 * std::numbers::inv_sqrtpi;  // sqrt(2 / pi)
  return 0.5 * x * (1.0 + std::tanh(scale * (x + 0.044715 * x * x * x)));
}
inline double sign_of(double x) { return std::isnan(x) ? x : static_cast<double>((x > 0) - (x < 0)); }

// Remainder with the sign of the divisor, as Python's %.
inline double floor_mod(double x, double y) {
  const double rest = std::fmod(x, y);
  return rest != 0 && (rest < 0) != (y < 0) ? rest + y : rest;
}

}  // namespace tamp::ops
