#include "compiler/schedule/ios_search.h"

#include <algorithm>
#include <bit>
#include <limits>
#include <unordered_map>

#include "compiler/support/error.h"

namespace tamp::schedule {
namespace {

size_t first_of(Units units) { return static_cast<size_t>(std::countr_zero(units)); }
Units bit(size_t unit) { return Units{1} << unit; }

// Endings of one state: connected ones by search, the others as disjoint unions of these. (Two disjoint endings have no edge between
// them: who has one end of it has the other, too.)
class Endings {
 public:
  // Looks at no more than `most` endings to find the connected ones; is_complete() says whether that was enough.
  Endings(const UnitGraph& graph, const IosPruning& pruning, Units state, int64_t most) : graph_(graph), state_(state), left_(most) {
    most_units_ = pruning.group_size > 0 ? pruning.group_size : static_cast<int>(kMostUnits);
    most_groups_ = pruning.groups > 0 ? pruning.groups : static_cast<int>(kMostUnits);
    grow(0, graph.count(), 0);
  }

  bool is_complete() const { return left_ > 0; }

  // f(ending, groups); false ends it.
  template <class F>
  bool for_each(const F& f) const {
    std::vector<Units> groups;
    return unite(0, 0, groups, f);
  }

 private:
  // Adds units in falling order, each with all its successors of the state there already, so every ending is met once.
  void grow(Units ending, size_t below, int size) {
    if (ending != 0 && graph_.components(ending).size() == 1) connected_.push_back(ending);
    if (size == most_units_ || --left_ <= 0) return;
    for (Units rest = state_ & (below == kMostUnits ? ~Units{0} : bit(below) - 1); rest != 0 && left_ > 0;) {
      const size_t unit = kMostUnits - 1 - static_cast<size_t>(std::countl_zero(rest));
      rest &= ~bit(unit);
      if ((graph_.successors(unit) & state_ & ~ending) == 0) grow(ending | bit(unit), unit, size + 1);
    }
  }

  template <class F>
  bool unite(Units ending, size_t from, std::vector<Units>& groups, const F& f) const {
    if (ending != 0 && !f(ending, groups)) return false;
    if (static_cast<int>(groups.size()) == most_groups_) return true;
    for (size_t i = from; i < connected_.size(); ++i) {
      if ((connected_[i] & ending) != 0) continue;
      groups.push_back(connected_[i]);
      const bool go_on = unite(ending | connected_[i], i + 1, groups, f);
      groups.pop_back();
      if (!go_on) return false;
    }
    return true;
  }

  const UnitGraph& graph_;
  Units state_;
  int64_t left_;
  int most_units_ = 0, most_groups_ = 0;
  std::vector<Units> connected_;
};

class Search {
 public:
  Search(const UnitGraph& graph, const IosPruning& pruning, const StagePrice& price, int64_t most)
      : graph_(graph), pruning_(pruning), price_(price), most_(most) {}

  std::optional<IosResult> run() {
    best_.emplace(0, Best{});
    if (!cost_of(graph_.all())) return std::nullopt;
    IosResult result;
    result.us = best_.at(graph_.all()).us;
    for (Units state = graph_.all(); state != 0; state &= ~result.stages.back()) result.stages.push_back(best_.at(state).last);
    std::reverse(result.stages.begin(), result.stages.end());
    result.counts = {static_cast<int64_t>(best_.size()), transitions_, static_cast<int64_t>(prices_.size())};
    return result;
  }

 private:
  struct Best {
    double us = 0;
    Units last = 0;
  };

  std::optional<double> cost_of(Units state) {
    if (const auto known = best_.find(state); known != best_.end()) return known->second.us;
    Best best{std::numeric_limits<double>::infinity(), 0};
    const Endings endings(graph_, pruning_, state, most_);
    if (!endings.is_complete()) return std::nullopt;
    const bool complete = endings.for_each([&](Units ending, const std::vector<Units>& groups) {
      if (++transitions_ > most_) return false;
      const std::optional<double> before = cost_of(state & ~ending);
      if (!before) return false;
      const double us = *before + price_of(ending, groups);
      if (us < best.us) best = {us, ending};
      return true;
    });
    if (!complete) return std::nullopt;
    TAMP_CHECK(best.last != 0, "a state without endings");
    best_.emplace(state, best);
    return best.us;
  }

  double price_of(Units ending, const std::vector<Units>& groups) {
    const auto [at, is_new] = prices_.try_emplace(ending, 0);
    if (is_new) at->second = price_(groups);
    return at->second;
  }

  const UnitGraph& graph_;
  const IosPruning& pruning_;
  const StagePrice& price_;
  int64_t most_, transitions_ = 0;
  std::unordered_map<Units, Best> best_;
  std::unordered_map<Units, double> prices_;
};

}  // namespace

UnitGraph::UnitGraph(size_t count, const std::vector<std::pair<size_t, size_t>>& edges) : successors_(count, 0), predecessors_(count, 0) {
  TAMP_CHECK(count <= kMostUnits, "too many units for one search");
  for (const auto& [from, to] : edges) {
    TAMP_CHECK(from < to && to < count, "units are not in topological order");
    successors_[from] |= bit(to);
    predecessors_[to] |= bit(from);
  }
}

std::vector<Units> UnitGraph::components(Units units) const {
  std::vector<Units> found;
  while (units != 0) {
    Units component = bit(first_of(units));
    for (Units border = component; border != 0;) {
      const size_t unit = first_of(border);
      border &= border - 1;
      const Units more = (successors_[unit] | predecessors_[unit]) & units & ~component;
      component |= more;
      border |= more;
    }
    found.push_back(component);
    units &= ~component;
  }
  return found;
}

std::optional<IosResult> search_stages(const UnitGraph& graph, const IosPruning& pruning, const StagePrice& price,
                                       int64_t most_transitions) {
  return Search(graph, pruning, price, most_transitions).run();
}

// In topological order unit v is a cut if all before it are its ancestors and all behind it its descendants: if no edge passes over it,
// every unit before it has a successor up to it, and every one behind it a predecessor from it on.
std::vector<size_t> cut_units(const std::vector<std::vector<size_t>>& predecessors) {
  const size_t count = predecessors.size();
  std::vector<size_t> farthest(count, 0);  // successor; 0: none
  for (size_t v = 0; v < count; ++v) {
    for (const size_t p : predecessors[v]) farthest[p] = std::max(farthest[p], v);
  }
  std::vector<size_t> cuts;
  std::vector<size_t> roots_behind(count + 1, 0);  // units from here on without a predecessor
  for (size_t v = count; v-- > 0;) roots_behind[v] = roots_behind[v + 1] + (predecessors[v].empty() ? 1 : 0);
  size_t reach = 0;   // the farthest successor of all units so far
  size_t leaves = 0;  // units so far without a successor
  for (size_t v = 0; v < count; ++v) {
    // `reach` <= v: no edge passes over v, so what is before it can only be needed up to v.
    if (reach <= v && leaves == 0 && roots_behind[v + 1] == 0) cuts.push_back(v);
    reach = std::max(reach, farthest[v]);
    leaves += farthest[v] == 0 ? 1 : 0;
  }
  return cuts;
}

}  // namespace tamp::schedule
