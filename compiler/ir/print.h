// Parts of the text forms (compiler/ir/graph.h: print) that others need too.
#pragma once

#include <string>

#include "compiler/ir/ops.h"

namespace tamp {

// " {kernel=[3,3], pads=[1,1,1,1]}" with what is not at its default; empty where all is.
std::string attributes_text(const OpAttrs& attrs);

}  // namespace tamp
