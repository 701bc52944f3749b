// How a family says which rOperators it can do together. compiler/passes/fuse_regions finds them and makes Fuseds of them (ops.h), where
// the whole graph is estimated to gain by that.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "compiler/ir/graph.h"

namespace tamp {

// A region as its Fused has it.
struct RegionSteps {
  std::vector<ROperator> steps;         // in topological order, on tensors of the graph
  std::vector<TensorId> results;        // the steps' results that others read
  std::vector<TensorId> operands = {};  // the first operands, in order; the others follow as they are read
  std::vector<ROperator> around = {};   // rOperators, views mostly, that operands or results need beside the Fused
};

// rOperators that can be the steps of one Fused.
struct FusionRegion {
  std::vector<int64_t> kind;  // regions of one kind are equal for the estimates: all are fused, or none
  std::vector<size_t> rops;   // the rOperators that the Fused takes the place of; it stands where the first of these is
  // The steps as the body wants them; may add tensors to the graph, whose rOperators keep their numbers. A family rewrites here what it
  // would else have to know in two forms, as weights that lie the other way round.
  std::function<RegionSteps(Graph& graph)> join;
  // Where there are several ways to join, all of them: the one is taken whose rOperators the families estimate fastest, those around the
  // Fused, too. Regions of one kind have the same ways. Example: the rows of a tile whose pixels are added up.
  std::vector<std::function<RegionSteps(Graph& graph)>> ways = {};
};

// When the pipeline asks for regions (passes/passes.cpp says what has been done before).
enum class FusionTime : uint8_t { rows, products, maps };

struct FusionPattern {
  std::string title;  // of the Fused, for people
  FusionTime when = FusionTime::rows;
  bool needs_estimate = false;  // each Fused must be one that the family estimates before tensors have places
  // The least gain of fusing: estimates know neither the cost of a further body in the program nor their own error.
  double least_us_of_kind = 0, least_us_of_region = 0, least_us_of_all = 0;
  // All regions that the family's body takes, in the order of the graph. No rOperator is in two of them.
  std::function<std::vector<FusionRegion>(const Graph& graph)> regions;
};

// `regions` of a pattern that is found from one of its rOperators, `at`. Of two regions with a common rOperator the first counts.
std::function<std::vector<FusionRegion>(const Graph&)> regions_at_each(
    std::function<std::optional<FusionRegion>(const Graph& graph, const Uses& uses, size_t at)> region_at);

}  // namespace tamp
