#pragma once

#include "compiler/ir/graph.h"

namespace tamp::passes {

// d = Elementwise(x, sqrt2) {div(i0, i1)}    =>  y = Elementwise(x) {gelu(i0)}
// e = Elementwise(d) {erf(i0)}
// p = Elementwise(e, one) {add(i0, i1)}
// m = Elementwise(x, p) {mul(i0, i1)}
// y = Elementwise(m, half) {mul(i0, i1)}
//
// The product x * p * 0.5 in any order; the same with tanh(sqrt(2/pi) * (x + 0.044715 * x^3)), however the cubic is written, becomes
// gelu_tanh; x * hard_sigmoid(x) with slope 1/6 and offset 1/2 becomes hard_swish. Exporters spell these out where the opset has no
// operator for them. Needs: every function a rOperator of its own, intermediates read once.
Graph recognise_activations(Graph graph);

}  // namespace tamp::passes
