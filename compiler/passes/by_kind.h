// Greedy search by estimate: all matches of a kind are changed, or none, whichever makes the whole graph faster.
#pragma once

#include <algorithm>
#include <concepts>
#include <optional>
#include <set>
#include <utility>

#include "compiler/ir/estimator.h"
#include "compiler/ir/graph.h"

namespace tamp::passes {

// Takes the first kind that was not tried, changes all its matches, and keeps that if the graph gains least_gain_us(matches) at least;
// until all kinds of the matches at that time have been tried. A match has a member `kind`, which can be ordered. matches_of(graph): all
// matches, in the order of the graph. changed(graph, matches): the graph with these changed, or none if that cannot be.
template <class LeastGain, class MatchesOf, class Changed>
requires std::invocable<LeastGain, decltype(std::declval<MatchesOf>()(std::declval<Graph>()))> Graph change_by_kind(
    Graph graph, const GraphEstimator& estimator, const LeastGain& least_gain_us, const MatchesOf& matches_of, const Changed& changed) {
  using Kind = std::remove_cvref_t<decltype(matches_of(graph).front().kind)>;
  std::optional<double> now_us;
  std::set<Kind> tried;
  for (;;) {
    auto matches = matches_of(graph);
    const auto next = std::find_if(matches.begin(), matches.end(), [&](const auto& match) { return !tried.contains(match.kind); });
    if (next == matches.end()) return graph;
    const Kind kind = next->kind;
    tried.insert(kind);
    std::erase_if(matches, [&](const auto& match) { return match.kind != kind; });
    std::optional<Graph> other = changed(graph, matches);
    if (!other) continue;
    if (!now_us) now_us = estimator(graph);
    const double us = estimator(*other);
    if (!gains(*now_us, us, least_gain_us(matches))) continue;
    now_us = us;
    graph = *std::move(other);
  }
}
// With the same gain for every kind.
template <class MatchesOf, class Changed>
Graph change_by_kind(Graph graph, const GraphEstimator& estimator, double least_gain_us, const MatchesOf& matches_of,
                     const Changed& changed) {
  return change_by_kind(
      std::move(graph), estimator, [&](const auto&) { return least_gain_us; }, matches_of, changed);
}

}  // namespace tamp::passes
