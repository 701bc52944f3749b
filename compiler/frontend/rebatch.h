// --batch N for a model that was exported with a fixed batch: the graph of the model with another batch. Each element of the batch gets the
// results that the exported model has for it alone. The batch is followed from the inputs through each rOperator by rules, one for each
// kind of operator, that say where it lies in the results; an rOperator that no rule shows to keep its elements apart is refused
// (docs/adr/0047-batch-by-symbols.md).
#pragma once

#include <map>
#include <string>
#include <vector>

#include "compiler/ir/graph.h"

namespace tamp::frontend {

// Facts that a model states and its graph does not.
struct ModelWords {
  // Where each dimension of a Reshape's operand is in its result, by the rOperator's name; -1: not said. An Unsqueeze says which 1 of
  // [1,1,6] the batch of [1,6] becomes.
  std::map<std::string, std::vector<int64_t>> kept_dims;
  std::map<std::string, std::string> operators;  // ONNX's names for them, by the names of the nodes
};

// `graph`, of which the first extent of each input that has one is `from`, with `to` in its place. Error (unsupported), beginning with
// `file`, names the first node that is not known to compute each element of the batch by itself, or an output that has no batch.
Graph with_batch(const std::string& file, const Graph& graph, int64_t from, int64_t to, const ModelWords& words);

}  // namespace tamp::frontend
