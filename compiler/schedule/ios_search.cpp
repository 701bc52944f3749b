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

// The endings of one state. Connected ones are found by search, the others are disjoint unions of connected ones. (Two disjoint endings
// have no edge between them: an edge's successor belongs to every ending that has its predecessor, so both ends would be in the same
// ending.)
class Endings {
 public:
  // Looks at no more than `most` endings to find the connected ones; is_complete() says whether these were all.
  Endings(const UnitGraph& graph, const IosPruning& pruning, Units state, int64_t most) : graph_(graph), state_(state), left_(most) {
    most_units_ = pruning.group_size > 0 ? pruning.group_size : static_cast<int>(kMostUnits);
    most_groups_ = pruning.groups > 0 ? pruning.groups : static_cast<int>(kMostUnits);
    grow(0, graph.count(), 0);
  }

  bool is_complete() const { return left_ > 0; }

  // Calls f(ending) for every ending until f returns false.
  bool for_each(const auto& f) const { return unite(0, 0, 0, f); }

 private:
  // Adds units in falling order, each when all of its successors in the state are in the ending already, so every ending is met once.
  void grow(Units ending, size_t below, int size) {
    if (ending != 0 && graph_.components(ending).size() == 1) connected_.push_back(ending);
    if (size == most_units_ || --left_ <= 0) return;
    for (Units rest = state_ & (below == kMostUnits ? ~Units{0} : bit(below) - 1); rest != 0 && left_ > 0;) {
      const size_t unit = kMostUnits - 1 - static_cast<size_t>(std::countl_zero(rest));
      rest &= ~bit(unit);
      if ((graph_.successors(unit) & state_ & ~ending) == 0) grow(ending | bit(unit), unit, size + 1);
    }
  }

  bool unite(Units ending, size_t from, int groups, const auto& f) const {
    if (ending != 0 && !f(ending)) return false;
    if (groups == most_groups_) return true;
    for (size_t i = from; i < connected_.size(); ++i) {
      if ((connected_[i] & ending) == 0 && !unite(ending | connected_[i], i + 1, groups + 1, f)) return false;
    }
    return true;
  }

  const UnitGraph& graph_;
  Units state_;
  int64_t left_;
  int most_units_ = 0, most_groups_ = 0;
  std::vector<Units> connected_;
};

// The endings of one state that are a single unit, or units that become one.
class MergeEndings {
 public:
  MergeEndings(const UnitGraph& graph, const IosPruning& pruning, Units state) : graph_(graph) {
    most_ = pruning.groups > 0 ? pruning.groups : static_cast<int>(kMostUnits);
    for (Units rest = state; rest != 0; rest &= rest - 1) {
      if ((graph.successors(first_of(rest)) & state) == 0) last_ |= bit(first_of(rest));
    }
  }

  // Calls f(ending) for every ending until f returns false.
  bool for_each(const auto& f) const {
    for (Units rest = last_; rest != 0; rest &= rest - 1) {
      const size_t unit = first_of(rest);
      // Each set is met once: at its first unit.
      if (!f(bit(unit)) || !extend(bit(unit), graph_.kin(unit) & rest & (rest - 1), 1, f)) return false;
    }
    return true;
  }

 private:
  bool extend(Units ending, Units more, int size, const auto& f) const {
    if (size == most_) return true;
    for (; more != 0; more &= more - 1) {
      const Units larger = ending | bit(first_of(more));
      if (!f(larger) || !extend(larger, more & (more - 1), size + 1, f)) return false;
    }
    return true;
  }

  const UnitGraph& graph_;
  int most_ = 0;
  Units last_ = 0;  // units that no other unit of the state needs
};

// First all states and the transitions between them, then the prices of all stages, then the least cost of each state.
class Search {
 public:
  Search(const UnitGraph& graph, const IosPruning& pruning, const IosLimits& limits, IosEndings endings)
      : graph_(graph), pruning_(pruning), limits_(limits), endings_(endings) {}

  std::optional<IosResult> run(const StagePricing& prices) {
    number_of(graph_.all());
    number_of(0);
    for (size_t state = 0; state < states_.size(); ++state) {
      if (!collect(state)) return std::nullopt;
    }
    std::vector<std::vector<Units>> stages;
    for (const Units stage : stages_) stages.push_back(graph_.components(stage));
    return cheapest(prices(stages));
  }

 private:
  struct State {
    Units units = 0;
    size_t begin = 0, end = 0;  // transitions_
    double us = 0;
    Units last = 0;
  };
  struct Transition {
    uint32_t before = 0, stage = 0;
  };

  size_t number_of(Units units) {
    const auto [at, is_new] = number_of_state_.try_emplace(units, states_.size());
    if (is_new) states_.push_back({units});
    return at->second;
  }

  bool collect(size_t state) {
    const Units units = states_[state].units;
    states_[state].begin = transitions_.size();
    const auto take = [&](Units ending) {
      const auto [stage, is_new] = number_of_stage_.try_emplace(ending, stages_.size());
      if (is_new) stages_.push_back(ending);
      transitions_.push_back({static_cast<uint32_t>(number_of(units & ~ending)), static_cast<uint32_t>(stage->second)});
      return static_cast<int64_t>(transitions_.size()) <= limits_.transitions && static_cast<int64_t>(stages_.size()) <= limits_.stages;
    };
    bool complete = true;
    if (endings_ == IosEndings::merges) {
      complete = MergeEndings(graph_, pruning_, units).for_each(take);
    } else {
      const Endings endings(graph_, pruning_, units, limits_.transitions);
      complete = endings.is_complete() && endings.for_each(take);
    }
    states_[state].end = transitions_.size();
    return complete;
  }

  IosResult cheapest(const std::vector<double>& prices) {
    // Smaller states first: what remains of a state without an ending has fewer units than the state.
    std::vector<size_t> order(states_.size());
    for (size_t i = 0; i < order.size(); ++i) order[i] = i;
    std::sort(order.begin(), order.end(),
              [&](size_t a, size_t b) { return std::popcount(states_[a].units) < std::popcount(states_[b].units); });
    for (const size_t i : order) {
      State& state = states_[i];
      if (state.units == 0) continue;
      state.us = std::numeric_limits<double>::infinity();
      for (size_t t = state.begin; t < state.end; ++t) {
        const double us = states_[transitions_[t].before].us + prices[transitions_[t].stage];
        if (us < state.us) state.us = us, state.last = stages_[transitions_[t].stage];
      }
      TAMP_CHECK(state.last != 0, "a state without endings");
    }
    IosResult result;
    result.us = states_[0].us;
    for (Units left = graph_.all(); left != 0; left &= ~result.stages.back())
      result.stages.push_back(states_[number_of_state_.at(left)].last);
    std::reverse(result.stages.begin(), result.stages.end());
    result.counts = {static_cast<int64_t>(states_.size()), static_cast<int64_t>(transitions_.size()), static_cast<int64_t>(stages_.size())};
    return result;
  }

  const UnitGraph& graph_;
  const IosPruning& pruning_;
  const IosLimits& limits_;
  IosEndings endings_;
  std::vector<State> states_;  // the first is the set of all units
  std::vector<Transition> transitions_;
  std::vector<Units> stages_;
  std::unordered_map<Units, size_t> number_of_state_, number_of_stage_;
};

}  // namespace

UnitGraph::UnitGraph(size_t count, const std::vector<std::pair<size_t, size_t>>& edges) : successors_(count, 0), predecessors_(count, 0) {
  TAMP_CHECK(count <= kMostUnits, "too many units for one search");
  for (const auto& [from, to] : edges) {
    TAMP_CHECK(from < to && to < count, "units are not in topological order");
    successors_[from] |= bit(to);
    predecessors_[to] |= bit(from);
  }
  for (size_t unit = 0; unit < count; ++unit) kin_.push_back(bit(unit));
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

std::optional<IosResult> search_stages(const UnitGraph& graph, const IosPruning& pruning, const StagePricing& prices,
                                       const IosLimits& limits, IosEndings endings) {
  return Search(graph, pruning, limits, endings).run(prices);
}

// In topological order, unit v is a cut if all units before it are its ancestors and all units behind it are its descendants. That is so if
// no edge passes over v, every unit before v has a successor not behind v, and every unit behind v has a predecessor not before v.
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
    // `reach` <= v: no edge passes over v, so no unit before v is needed by a unit behind v.
    if (reach <= v && leaves == 0 && roots_behind[v + 1] == 0) cuts.push_back(v);
    reach = std::max(reach, farthest[v]);
    leaves += farthest[v] == 0 ? 1 : 0;
  }
  return cuts;
}

}  // namespace tamp::schedule
