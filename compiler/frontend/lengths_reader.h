// Reads a model whose dimensions are known only at run time: as it is at the largest lengths, and at some others, which show what of the
// graph depends on them (lengths.h).
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "compiler/frontend/builder.h"
#include "compiler/frontend/lengths.h"
#include "compiler/frontend/onnx_reader.h"

namespace tamp::frontend {

// A model that was read once, without ranges. Its graph has `lengths` and `input_axes`.
struct ReadModel {
  Graph graph;
  Folded folded;
  Builder::Trips trips;
  int64_t own_batch = 0;  // with --batch: the number in the model that it replaces, or 0 where that is a symbol
};
// The last length is that of the batch if `has_batches`.
using ReadAt =
    std::function<ReadModel(const std::string& path, const ReadOptions& options, const std::vector<Length>& lengths, bool has_batches)>;

// Errors: those of `read_at`, with the lengths at which they come, and those of with_lengths.
Graph read_with_lengths(const std::string& path, const ReadOptions& options, const ReadAt& read_at);

}  // namespace tamp::frontend
