// An Attention of few queries whose keys and values are a Concat of those before the step and the step's own becomes a Fused of Concats and
// Attention: a body reads both parts where they lie, instead of a copy of all. Rotary position embedding of Q and of the step's keys
// becomes part of it:
//   k = Concat(past, rotated) {axis=2}  // 1,12,127,64 and 1,12,1,64
//   v = Concat(past_v, own_v) {axis=2}                                =>   y = Fused(q, own_k, own_v, past, past_v, cos, sin)
//   y = Attention(rotated_q, k, v)
// where rotated = own_k * cos + concat(-own_k[..,32:], own_k[..,:32]) * sin, rotated_q alike. Views between Concat and Attention stay.
// Where somebody else needs the Concat or the rotated keys too (a decoder returns them), they are made as before, beside the attention.
//
// A cache of constant size, into which a Scatter puts the step's row at a place of run time, is such a past, too, with a mask of the keys
// before a length of run time, or without a mask (compiler/ir/cache_numbers.h). The Fused has steps for the mask, the index and two
// Scatters, and reads the cache as it was; the Scatter stays beside it:
//   k = Scatter(cache, place, rotated) {axis=2}  // 1,12,1024,64 and 1,12,1,64
//   v = Scatter(cache_v, place, own_v) {axis=2}                      =>   y = Fused(q, own_k, own_v, length, cache, cache_v, place, cos,
//   sin, b = where(less(keys, length), 0, -inf)                                          keys, zero, masked) y = Attention(rotated_q, k, v,
//   b)
// Needs: the caller gives place and length, so that the body has them before anything is computed.
#pragma once

#include "compiler/ir/estimator.h"
#include "compiler/ir/graph.h"

namespace tamp::passes {

Graph step_attention(Graph graph, const Estimator& estimator);

}  // namespace tamp::passes
