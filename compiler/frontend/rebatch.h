// --batch N for a model that was exported with a fixed batch. Shapes alone do not tell whether the model still computes the same for each
// element of the batch: a Reshape to [-1] takes any batch and mixes its elements, and the importers of Reshape, Gather and Concat guess
// what a written shape means for another batch. So the reference runs the model at two batches, operator by operator, and each tensor must
// have the same values for the same elements of the batch. Results of products with weights are made up, as far as that proves it.
#pragma once

#include <functional>
#include <string>

#include "compiler/ir/graph.h"

namespace tamp::frontend {

// `original` is the model as it was exported, with batch `from`; `wanted` is the model read with batch `to`; `read_at` reads it with any
// other batch. Error (unsupported), beginning with `file`, names the node whose result depends on other elements of the batch, or does not
// grow with the batch.
void require_batch(const std::string& file, const Graph& original, int64_t from, const Graph& wanted, int64_t to,
                   const std::function<Graph(int64_t batch)>& read_at);

}  // namespace tamp::frontend
