// What a chain of elementwise steps makes of whole numbers. Of at most 256 of them any steps with numbers are a table, however long they
// are. QDQ networks have such chains behind products: a bias with a rounding of its own, an activation between two quantisations, another
// scale in front of a Concat.
#pragma once

#include <optional>
#include <vector>

#include "compiler/ir/graph.h"
#include "compiler/ir/products.h"

namespace tamp::passes {

// y = table[rounded(scale * x + row[channel]; low, high) - table_low], or, with no row, table[x - table_low]
// Example: 3 * x + row, rounded to 0..255, gelu of 0.1 times that, and rounded once more. The table has the results of 0 to 255.
struct WholeChain {
  std::vector<float> row;  // empty: nothing is added, and nothing rounded, in front of the table
  float scale = 1, low = 0, high = 0;
  int64_t table_low = 0;
  std::vector<float> table;  // empty: what is rounded in front of it is the result
};

// Nothing unless the chain has the one operand x, which holds whole numbers in `range`, and besides numbers and, along dimension `axis`
// of the result, rows of constants; unless rows are only added, in front of a rounding; and unless the end is rounded.
std::optional<WholeChain> whole_chain_of(const Graph& graph, const ROperator& chain, TensorId x, WholeRange range, size_t axis);

}  // namespace tamp::passes
