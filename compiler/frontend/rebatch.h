// --batch N for a model that was exported with a fixed batch. Shapes alone do not tell whether it still computes the same for each
// element of the batch: a Reshape to [-1] takes any batch, and mixes it;
// and the importers of Reshape, Gather and Concat guess what a written shape means for another batch. So the reference runs the model at
// two batches, op by op, and each tensor must be the same for the same elements.
#pragma once

#include <functional>
#include <string>

#include "compiler/ir/graph.h"

namespace tamp::frontend {

// `original` is the model as it was exported, with batch `from`; `wanted` is the same read with batch `to`; `read_at` reads another one.
// Error (unsupported), beginning with `file`, names the node whose result depends on other elements of the batch, or does not follow it.
void require_batch(const std::string& file, const Graph& original, int64_t from, const Graph& wanted, int64_t to,
                   const std::function<Graph(int64_t batch)>& read_at);

}  // namespace tamp::frontend
