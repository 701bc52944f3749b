// Graphs from text: the inverse of compiler/ir/print.cpp, so that a test of a pass is ten lines.
#pragma once

#include <string>

#include "compiler/ir/graph.h"

namespace tamp::test {

// The graph that `text` words; throws std::runtime_error that names the line if it is not of the form that print() writes.
// Spaces and indentation are free. A constant without values gets pseudo-random ones that depend on its name only: floats in
// [-1, 1), integers 0 or 1.
Graph parse_graph(const std::string& text);

}  // namespace tamp::test
