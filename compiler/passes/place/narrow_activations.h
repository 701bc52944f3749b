#pragma once

#include <functional>
#include <vector>

#include "compiler/ir/graph.h"

namespace tamp::passes {

// Whether some body takes the rOperator with its operands and results as they lie.
using Takes = std::function<bool(const Graph& placed, const ROperator& rop)>;

//   buf3 = buffer f32[192] arena                         buf3 = buffer f16[192] arena narrowed
//   a = Conv(x, w) -> f32[1,8,4,4] @ buf3+0 ..      =>   a = Conv(x, w) -> f16[1,8,4,4] @ buf3+0 ..
//   y = Pool(a) -> f32[1,8,2,2] @ buf4+0 ..              y = Pool(a) -> f32[1,8,2,2] @ buf4+0 ..      (nobody reads y in 16 bits)
//
// Lets activations of a placed graph lie in `to`, f16 or bf16, wherever all rOperators that write or read the buffer have bodies for 16
// bits. Arithmetic stays in f32: bodies widen their loads and round their stores. Constants of the model keep their
// type. All f32 buffers are narrowed at first; where a rOperator has no body for that, its results are widened again, or its
// operands, or both, until all rOperators have bodies. If less than half of all elements would stay narrow, none is narrowed: bodies of
// both kinds are more code than the SMs' instruction caches hold. `may`: by buffer, whether it may be narrow at all; empty: all may.
//
// Inputs and outputs that callers give or get in 16 bits (Graph::input_types, passes/widen_halves.h) get that type here. Where it is `to`
// and the rOperators that touch the port have bodies for it, they read and write the port itself; else the port is cast, from or to f32.
Graph narrow_activations(Graph graph, DType to, const Takes& takes, const std::vector<bool>& may = {});

//   buf3 = buffer f16[192] arena narrowed
//   a = Conv(x, w) epilogue{act=rounded, a=0, b=255} -> f16[1,8,4,4] @ buf3+0 ..
//   y = Conv(a, v) -> f16[1,8,2,2] @ buf4+0 ..
// =>
//   buf3 = buffer whole_u8[192] arena narrowed
//   a = Conv(x, w) epilogue{act=rounded, a=0, b=255} -> whole_u8[1,8,4,4] @ buf3+0 ..
//   y = Conv(a, v) -> f16[1,8,2,2] @ buf4+0 ..
//
// Lets activations of the placed graph that are whole numbers, 256 different ones at most, lie in bytes, wherever all rOperators that write
// or read the buffer have bodies for that (docs/adr/0056). Numbers from 0 to 255 are whole_u8, numbers from -128 to 127 are whole_i8,
// and others, as -5 to 250, whole_u8 that begins at the least of them (Buffer::low).
Graph whole_numbers_in_bytes(Graph graph, const Takes& takes);

}  // namespace tamp::passes
