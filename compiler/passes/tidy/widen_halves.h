// Makes a model of f16 or bf16 one of f32 whose inputs and outputs alone have 16 bits. A model that was exported in half precision rounds
// after every operator; this one keeps f32 between them, as tamp's bodies do in registers, and narrow_activations decides what lies in 16
// bits. So such a model gets the same rOperators, fusions and rKernels as the same model in f32:
//   x = input f16[1,8]                                    x = input f32[1,8]   (Graph::input_types: f16)
//   w = const f16[8,8]                                    w = const f32[8,8]
//   a = Elementwise(x) {cast(i0)} -> f32[1,8]      =>     a = Elementwise(x) {cast(i0)} -> f32[1,8]
//   b = MatMul(a, v) -> f32[1,8]                          b = MatMul(a, v) -> f32[1,8]
//   y = Elementwise(b) {cast(i0)} -> f16[1,8]             y = Elementwise(b) {cast(i0)} -> f32[1,8]
//   outputs(y)                                            outputs(y)           (Graph::output_types: f16)
// A cast from f32 to f32 is an identity, which the next pass removes. An output that is a constant keeps its type.
#pragma once

#include "compiler/ir/graph.h"

namespace tamp::passes {

Graph widen_halves(Graph graph);

}  // namespace tamp::passes
