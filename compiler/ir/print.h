// Parts of the text forms (compiler/ir/graph.h: print) that others need too.
#pragma once

#include <string>

#include "compiler/ir/graph.h"
#include "compiler/ir/ops.h"

namespace tamp {

// " {kernel=[3,3], pads=[1,1,1,1]}" with what is not at its default; empty where all is.
std::string attributes_text(const OpAttrs& attrs);

// print(graph) without the graph's name and the values of constants, which may change when the same network is trained again.
std::string structure_text(const Graph& graph);

}  // namespace tamp
