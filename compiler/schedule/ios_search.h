// The dynamic programme of IOS (Ding et al., MLSys 2021) by itself: units that need each other, and the partition of them into stages that
// costs least. It knows nothing of rOperators; schedule/ios.cpp is the policy.
//
// The last stage of a set of units is an *ending*: a subset that nothing outside of needs. Its weakly connected components are the groups
// that run beside each other. cost[S] is the least over the endings E of S of cost[S without E] plus the price of E, and cost of nothing is
// 0. The published code also finds only endings whose groups have a single first unit; this takes them as the paper defines them.
//
// Units may be of kinds that can become one (IOS-Merge: convolutions on the same input). Such an ending is a set of them; what it costs
// is the caller's business, as is whether a stage of theirs side by side is cheaper.
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
  // Units that may become one with it, itself among them; nothing of them needs another. Until set, a unit by itself.
  Units kin(size_t unit) const { return kin_[unit]; }
  void set_kin(size_t unit, Units kin) { kin_[unit] = kin; }
  // Weakly connected components, by their first unit.
  std::vector<Units> components(Units units) const;

 private:
  std::vector<Units> successors_, predecessors_, kin_;
};

// Which endings are tried. 0: no limit.
struct IosPruning {
  int group_size = 3;  // r of the paper: units of a group
  int groups = 8;      // s: groups of a stage, or units that become one
};
enum class IosEndings : uint8_t {
  groups,  // all within the pruning; units that become one are among them, as groups of one unit
  merges   // single units, and units that become one
};

struct IosCounts {
  int64_t states = 0;       // sets of units that are left to be partitioned, none of them among these
  int64_t transitions = 0;  // pairs of a state and one of its endings
  int64_t stages = 0;       // different endings, each priced once
};
// A search that would be larger is not made.
struct IosLimits {
  int64_t transitions = 1'000'000;
  int64_t stages = 1'000'000;
};

struct IosResult {
  std::vector<Units> stages;  // first to last
  double us = 0;
  IosCounts counts;
};

// Prices of stages, each of them its groups; asked once, for all different ones, when the search is known to be within the limits. No
// result if it is not.
using StagePricing = std::function<std::vector<double>(const std::vector<std::vector<Units>>& stages)>;
std::optional<IosResult> search_stages(const UnitGraph& graph, const IosPruning& pruning, const StagePricing& prices,
                                       const IosLimits& limits, IosEndings endings = IosEndings::groups);

// Units such that every other one is before or behind them: where IOS cuts a network into blocks. Of a graph of any size; `predecessors`
// per unit, in topological order.
std::vector<size_t> cut_units(const std::vector<std::vector<size_t>>& predecessors);

}  // namespace tamp::schedule
