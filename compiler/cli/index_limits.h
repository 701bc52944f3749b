// Which integers an input may hold, where its readers say it: ids of a vocabulary, places in a table.
#pragma once

#include <cstdint>
#include <vector>

#include "compiler/ir/graph.h"

namespace tamp::cli {

// For each of the graph's inputs the limit below which its integers must lie: the least extent of the tables that they are indices of.
// An id that reads a table of 30,522 rows and one of 512 gives 512. 0 where the input is no index, or where it is computed with on its way
// to an index, so that no limit is sure.
std::vector<int64_t> index_limits(const Graph& graph);

}  // namespace tamp::cli
