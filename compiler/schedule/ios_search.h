// The dynamic programme of IOS (Ding et al., MLSys 2021) by itself: given units that need each other, it finds the partition into stages
// that costs least. It knows nothing of rOperators; the policy is in schedule/ios.cpp.
//
// The last stage of a set of units is an *ending*: a subset of which no unit outside the subset needs anything. The weakly connected
// components of an ending are the groups that run beside each other. cost[S] is the least, over the endings E of S, of cost[S without E]
// plus the price of E; the empty set costs 0. The published code finds only endings whose groups have a single first unit; this code finds
// all endings, as the paper defines them.
//
// Units may be of kinds that can become one (IOS-Merge: convolutions on the same input). An ending may then be a set of such units. The
// caller gives its price, and decides whether these units side by side are cheaper.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <utility>
#include <vector>

namespace tamp::schedule {

inline constexpr size_t kMostUnits = 64;

// A set of units: bit i is unit i.
using Units = uint64_t;

// Units in topological order.
class UnitGraph {
 public:
  // `edges` (from, to), from before to; at most kMostUnits.
  UnitGraph(size_t count, const std::vector<std::pair<size_t, size_t>>& edges);
  size_t count() const { return successors_.size(); }
  Units all() const { return count() == kMostUnits ? ~Units{0} : (Units{1} << count()) - 1; }
  Units successors(size_t unit) const { return successors_[unit]; }
  Units predecessors(size_t unit) const { return predecessors_[unit]; }
  // Units that may become one with `unit`, itself among them; none of these units needs another. Until set, a unit is alone.
  Units kin(size_t unit) const { return kin_[unit]; }
  void set_kin(size_t unit, Units kin) { kin_[unit] = kin; }
  // Weakly connected components, by their first unit.
  std::vector<Units> components(Units units) const;

 private:
  std::vector<Units> successors_, predecessors_, kin_;
};

// Which endings are tried. 0 means no limit.
struct IosPruning {
  int group_size = 3;  // r of the paper: units of a group
  int groups = 8;      // s: groups of a stage, or units that become one
};
enum class IosEndings : uint8_t {
  groups,  // all within the pruning; also units that become one, as a group of one unit
  merges   // single units, and units that become one
};

struct IosCounts {
  int64_t states = 0;       // sets of units still to be partitioned, the empty set among them
  int64_t transitions = 0;  // pairs of a state and one of its endings
  int64_t stages = 0;       // different endings, each priced once
};
// A search that would exceed these limits is not made.
struct IosLimits {
  int64_t transitions = 1'000'000;
  int64_t stages = 1'000'000;
};

struct IosResult {
  std::vector<Units> stages;  // first to last
  double us = 0;
  IosCounts counts;
};

// Prices of stages, each given as its groups. It is called once, for all different stages, when the search is known to be within the
// limits. search_stages has no result if the search would exceed the limits.
using StagePricing = std::function<std::vector<double>(const std::vector<std::vector<Units>>& stages)>;
std::optional<IosResult> search_stages(const UnitGraph& graph, const IosPruning& pruning, const StagePricing& prices,
                                       const IosLimits& limits, IosEndings endings = IosEndings::groups);

// The units that every other unit is before or behind: IOS cuts a network into blocks there. The graph may have any size; `predecessors` is
// per unit, in topological order.
std::vector<size_t> cut_units(const std::vector<std::vector<size_t>>& predecessors);

}  // namespace tamp::schedule
