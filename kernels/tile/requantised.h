// A product whose results are rounded to whole numbers, and become other whole numbers right behind (compiler/passes/whole_chain.h):
//   a = rounded(product)                      the product's epilogue
//   b = rounded(scale * a + row; low, high)   where it has a row
//   y = table[b - table_low]                  where it has a table; of a, where it has no row
// staged_conv makes all of that where the sums are (StagedByteResults of staged_bytes.cuh); depthwise convolutions take a table alone.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "compiler/ir/fused.h"
#include "compiler/ir/fusion.h"
#include "compiler/ir/graph.h"
#include "compiler/ir/products.h"

namespace tamp::passes {
struct WholeChain;
}

namespace tamp::kernels {

struct Requantised {
  ROperator product;  // as if its results were the last ones
  TensorId row;       // of one value for each channel; none: there is no second rounding
  float scale = 1, low = 0, high = 0;
  TensorId table;  // none: there is no table
  int64_t table_low = 0;
  WholeRange results{};
};
// None if the rOperator is another.
std::optional<Requantised> requantised_of(const Graph& graph, const ROperator& rop);

// The numbers that an epilogue which rounds may leave, if these are few enough for a table.
std::optional<WholeRange> rounded_range(const Epilogue& epilogue);

// How a Fused looks up in a table: the step before it makes whole numbers, `at` an index, and the next step gathers.
struct Lookup {
  TensorId table;
  int64_t low = 0;  // the number that the table begins with
};
std::optional<Lookup> lookup_at(const Graph& graph, const FusedView& view, size_t at);
// Appends both steps; the second makes `to`.
void append_lookup(Graph& graph, const std::string& name, TensorId from, TensorId to, const passes::WholeChain& made,
                   std::vector<ROperator>& steps);

FusionPattern requantised_products();

}  // namespace tamp::kernels
