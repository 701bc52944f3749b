// --dim seq=1:512 and --batch 1:8: the graph of a model whose dimensions are known only at run time (docs/adr/0049-lengths.md). It has the
// shapes of the largest lengths. Each length is followed from the inputs through each rOperator by rules, one for each kind of operator:
// they say where it ends the results' dimensions, and put in front of work along such a dimension a mask of what lies behind its end. An
// rOperator that no rule shows to be right for every length is refused.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "compiler/ir/graph.h"

namespace tamp::frontend {

using Folded = std::map<TensorId, ROperator>;  // a constant, and what the importers folded to it

// The model read with these values of the lengths, in their order. What the importers folded may depend on them.
struct Probe {
  std::vector<int64_t> values;
  Graph graph;
  Folded folded;
};

// `read` was read with the largest values, and its graph has `lengths` and `input_axes`. The probes show which constants and attributes
// depend on the lengths, and how: each length has at least three values in them, and each probe changes one, or all. The caller's tensors
// of the result are dense, with the true extents of each run. Error (unsupported), beginning with `file`, names the first node that is in
// the way.
Graph with_lengths(const std::string& file, Probe read, std::vector<Probe> probes);

}  // namespace tamp::frontend
