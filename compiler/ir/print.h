// Parts of the text forms (compiler/ir/graph.h: print) that others need too.
#pragma once

#include <string>

#include "compiler/ir/graph.h"
#include "compiler/ir/ops.h"

namespace tamp {

// " {kernel=[3,3], pads=[1,1,1,1]}" with the attributes that are not at their default; empty where all are.
std::string attributes_text(const OpAttrs& attrs);

// "s0 = MatMul(i0, i1) epilogue{act=relu} -> f32[4,8]; s1 = MatMul(s0, i2) -> f32[4,16]; outputs(s1)": i0, i1, .. are the operands.
std::string steps_text(const Fused& fused);

// print(graph) without the graph's name and the values of constants, which may change when the same network is trained again.
std::string structure_text(const Graph& graph);

}  // namespace tamp
