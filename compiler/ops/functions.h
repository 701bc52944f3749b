// The scalar functions of activations, cells and reductions, in double: those of kernels/shared/functions.h, and two more.
#pragma once

#include "kernels/shared/functions.h"

namespace tamp::ops {

using rk::functions::clip;
using rk::functions::gelu;
using rk::functions::gelu_tanh;
using rk::functions::hard_sigmoid;
using rk::functions::hard_swish;
using rk::functions::max_of;
using rk::functions::min_of;
using rk::functions::rounded;
using rk::functions::sigmoid;
using rk::functions::softplus;

inline double relu(double x) { return rk::functions::of_relu<double>(x, 0, 0); }
inline double leaky_relu(double x, double slope) { return rk::functions::of_leaky_relu<double>(x, slope, 0); }
inline double elu(double x, double a) { return rk::functions::of_elu<double>(x, a, 0); }
inline double silu(double x) { return x * sigmoid(x); }

}  // namespace tamp::ops
