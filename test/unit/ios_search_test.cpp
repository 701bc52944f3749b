// The dynamic programme of IOS: its counts are those of the paper's networks, its answer that of trying everything.
#include "compiler/schedule/ios_search.h"

#include <bit>
#include <functional>
#include <limits>
#include <map>
#include <random>

#include "test/support/catch.h"

using namespace tamp::schedule;

namespace {

using Edges = std::vector<std::pair<size_t, size_t>>;
constexpr IosPruning kAll{0, 0};
constexpr IosLimits kAny{1'000'000'000, 1'000'000'000};

StagePricing each(const std::function<double(const std::vector<Units>&)>& price) {
  return [price](const std::vector<std::vector<Units>>& stages) {
    std::vector<double> us;
    for (const auto& groups : stages) us.push_back(price(groups));
    return us;
  };
}

const StagePricing any_price = each([](const std::vector<Units>& groups) { return static_cast<double>(groups.size()); });

IosCounts counts_of(size_t count, const Edges& edges, const IosPruning& pruning) {
  return search_stages(UnitGraph(count, edges), pruning, any_price, kAny)->counts;
}

void check(const IosCounts& counts, int64_t states, int64_t transitions, int64_t stages) {
  CHECK(counts.states == states);
  CHECK(counts.transitions == transitions);
  CHECK(counts.stages == stages);
}

// The last block of Inception V3: a 1x1; a 1x1 in front of 1x3 and 3x1; a 1x1 and a 3x3 in front of both; a pool and a 1x1; all joined.
Edges inception_e() {
  Edges edges = {{1, 2}, {1, 3}, {4, 5}, {5, 6}, {5, 7}, {8, 9}};
  for (const size_t unit : {0, 2, 3, 6, 7, 9}) edges.emplace_back(unit, 10);
  return edges;
}

// squeeze, two expansions joined, and a convolution on the bypass.
Edges fire() { return {{0, 1}, {0, 2}, {1, 3}, {2, 3}, {3, 5}, {4, 5}}; }

// The first cell of a stage of NasNet-A: two convolutions joined, a third, five pairs of separable convolutions, three pools, all joined.
Edges nasnet_cell() {
  Edges edges = {{0, 2}, {1, 2}};
  size_t next = 4;
  std::vector<size_t> ends = {2, 3};
  for (const size_t from : {3, 3, 2, 2, 3}) {
    edges.emplace_back(from, next);
    edges.emplace_back(next, next + 1);
    ends.push_back(next + 1);
    next += 2;
  }
  for (const size_t from : {3, 2, 2}) {
    edges.emplace_back(from, next);
    ends.push_back(next++);
  }
  for (const size_t end : ends) edges.emplace_back(end, next);
  return edges;
}

// The graphs of RandWire's three larger stages in IOS' repository (ws-32-4-0.75-3, -4 and -5): 32 nodes of Watts and Strogatz' model.
const Edges kRandomThree = {{0, 2},   {0, 13},  {0, 25},  {0, 30},  {1, 8},   {1, 20},  {1, 22},  {2, 3},   {2, 16},  {2, 24},  {2, 30},
                            {3, 6},   {3, 7},   {3, 26},  {4, 12},  {4, 22},  {5, 15},  {5, 21},  {5, 27},  {6, 11},  {6, 21},  {6, 31},
                            {7, 8},   {7, 9},   {7, 15},  {8, 23},  {8, 27},  {9, 10},  {9, 11},  {9, 19},  {10, 12}, {10, 30}, {11, 13},
                            {11, 15}, {11, 17}, {11, 28}, {12, 14}, {12, 26}, {12, 31}, {13, 14}, {13, 16}, {13, 21}, {13, 31}, {14, 16},
                            {14, 28}, {14, 29}, {15, 19}, {15, 22}, {16, 18}, {17, 18}, {17, 19}, {18, 24}, {18, 31}, {20, 21}, {20, 22},
                            {21, 23}, {21, 26}, {22, 31}, {24, 31}, {25, 26}, {26, 31}, {27, 29}, {29, 30}, {29, 31}};
const Edges kRandomFour = {{0, 9},   {0, 11},  {0, 14},  {0, 17},  {0, 31},  {1, 2},   {1, 3},   {1, 31},  {2, 4},   {2, 11},  {2, 12},
                           {2, 14},  {2, 30},  {3, 4},   {3, 25},  {4, 9},   {4, 20},  {4, 29},  {5, 6},   {5, 27},  {6, 7},   {6, 21},
                           {6, 27},  {7, 30},  {7, 31},  {8, 10},  {8, 25},  {9, 10},  {9, 14},  {10, 11}, {10, 16}, {10, 22}, {10, 28},
                           {11, 16}, {11, 24}, {12, 13}, {12, 14}, {12, 15}, {12, 16}, {13, 14}, {13, 22}, {13, 26}, {14, 23}, {15, 29},
                           {16, 21}, {17, 26}, {18, 19}, {18, 20}, {19, 22}, {19, 27}, {20, 22}, {22, 25}, {22, 30}, {23, 27}, {24, 25},
                           {24, 26}, {25, 28}, {26, 28}, {27, 28}, {27, 29}, {28, 29}, {29, 30}, {29, 31}, {30, 31}};
const Edges kRandomFive = {{0, 17},  {0, 20},  {0, 24},  {1, 10},  {1, 22},  {1, 26},  {1, 29},  {2, 19},  {2, 22},  {2, 28},  {3, 6},
                           {3, 7},   {3, 8},   {3, 9},   {4, 5},   {4, 7},   {4, 26},  {5, 6},   {5, 23},  {5, 24},  {6, 8},   {7, 8},
                           {7, 11},  {7, 18},  {7, 23},  {8, 11},  {8, 25},  {9, 11},  {9, 19},  {9, 27},  {9, 29},  {10, 12}, {10, 17},
                           {10, 30}, {11, 14}, {11, 23}, {11, 30}, {12, 13}, {12, 25}, {12, 31}, {13, 16}, {13, 27}, {13, 28}, {14, 24},
                           {15, 16}, {15, 18}, {15, 21}, {16, 17}, {16, 22}, {17, 21}, {18, 24}, {19, 22}, {20, 23}, {20, 28}, {20, 29},
                           {22, 25}, {23, 30}, {24, 26}, {25, 28}, {27, 28}, {27, 29}, {27, 30}, {29, 31}, {30, 31}};

// A stage of RandWire: the nodes, and the sum of those that nothing follows.
Edges randwire(Edges edges) {
  std::vector<bool> is_followed(32, false);
  for (const auto& [from, to] : edges) is_followed[from] = true;
  for (size_t unit = 0; unit < 32; ++unit) {
    if (!is_followed[unit]) edges.emplace_back(unit, 32);
  }
  return edges;
}

// By trying all ways to take units away that nobody needs any more, without any of the search's ideas.
double least_us(const UnitGraph& graph, Units state, const std::map<Units, double>& price, std::map<Units, double>& known) {
  if (state == 0) return 0;
  if (const auto found = known.find(state); found != known.end()) return found->second;
  double least = std::numeric_limits<double>::infinity();
  for (const auto& [ending, us] : price) {
    if ((ending & ~state) != 0) continue;
    bool is_ending = true;
    for (size_t unit = 0; unit < graph.count(); ++unit) {
      if ((ending >> unit & 1) != 0 && (graph.successors(unit) & state & ~ending) != 0) is_ending = false;
    }
    if (is_ending) least = std::min(least, least_us(graph, state & ~ending, price, known) + us);
  }
  return known[state] = least;
}

}  // namespace

TEST_CASE("states, transitions and stages of the paper's largest blocks are the known ones") {
  check(counts_of(11, inception_e(), kAll), 181, 5040, 1011);
  check(counts_of(11, inception_e(), {3, 8}), 181, 4631, 790);
  check(counts_of(6, fire(), kAll), 13, 60, 37);
  check(counts_of(6, fire(), {3, 8}), 13, 51, 29);
  check(counts_of(18, nasnet_cell(), kAll), 2201, 335331, 40601);
  check(counts_of(18, nasnet_cell(), {3, 8}), 2201, 234533, 12963);
}

TEST_CASE("so are those of RandWire's stages") {
  check(counts_of(33, randwire(kRandomThree), kAll), 4277, 2980514, 1278715);
  check(counts_of(33, randwire(kRandomThree), {3, 8}), 4277, 542195, 66155);
  check(counts_of(33, randwire(kRandomFour), {3, 8}), 5421, 843754, 86747);
  check(counts_of(33, randwire(kRandomFive), {3, 8}), 4800, 590777, 99069);
}

TEST_CASE("units that become one are stages, as many as the pruning allows, and whatever is last") {
  UnitGraph graph(5, {{0, 1}, {0, 2}, {0, 3}, {3, 4}});
  for (const size_t unit : {1, 2, 3}) graph.set_kin(unit, 0b01110);
  const auto price = each([](const std::vector<Units>& groups) {
    for (const Units group : groups) CHECK(std::has_single_bit(group));
    return 1.0;
  });
  const auto all = search_stages(graph, {3, 0}, price, kAny, IosEndings::merges);
  REQUIRE(all.has_value());
  CHECK(all->us == 3);
  CHECK(all->stages == std::vector<Units>{0b00001, 0b01110, 0b10000});
  CHECK(all->counts.stages == 5 + 3 + 1);
  const auto pairs = search_stages(graph, {3, 2}, price, kAny, IosEndings::merges);
  REQUIRE(pairs.has_value());
  CHECK(pairs->us == 4);
  CHECK(pairs->counts.stages == 5 + 3);
  // None that are no kin.
  const auto none = search_stages(UnitGraph(3, {}), {3, 8}, price, kAny, IosEndings::merges);
  CHECK(none->us == 3);
  CHECK(none->counts.stages == 3);
}

TEST_CASE("the stages partition the units in an order in which they can run, at the least cost there is") {
  std::mt19937 random(5);
  for (int trial = 0; trial < 30; ++trial) {
    const size_t count = 2 + random() % 7;
    Edges edges;
    for (size_t to = 1; to < count; ++to) {
      for (size_t from = 0; from < to; ++from) {
        if (random() % 3 == 0) edges.emplace_back(from, to);
      }
    }
    const UnitGraph graph(count, edges);
    std::map<Units, double> price;
    for (Units ending = 1; ending <= graph.all(); ++ending) price[ending] = 1 + static_cast<double>(random() % 1000) / 100;
    const auto found = search_stages(graph, kAll, each([&](const std::vector<Units>& groups) {
                                       Units ending = 0;
                                       for (const Units group : groups) {
                                         CHECK(graph.components(group).size() == 1);
                                         ending |= group;
                                       }
                                       CHECK(graph.components(ending).size() == groups.size());
                                       return price.at(ending);
                                     }),
                                     kAny);
    REQUIRE(found.has_value());
    std::map<Units, double> known;
    CHECK(found->us == Approx(least_us(graph, graph.all(), price, known)));
    Units done = 0;
    double us = 0;
    for (const Units stage : found->stages) {
      CHECK((stage & done) == 0);
      done |= stage;
      us += price.at(stage);
      for (size_t unit = 0; unit < count; ++unit) {
        if ((stage >> unit & 1) != 0) CHECK((graph.predecessors(unit) & ~done) == 0);
      }
    }
    CHECK(done == graph.all());
    CHECK(us == Approx(found->us));
  }
}

TEST_CASE("pruning keeps groups small and few") {
  Edges edges;
  for (size_t unit = 0; unit + 1 < 12; ++unit) {
    if (unit % 4 != 3) edges.emplace_back(unit, unit + 1);  // three chains of four
  }
  search_stages(UnitGraph(12, edges), {2, 2}, each([](const std::vector<Units>& groups) {
                  CHECK(groups.size() <= 2);
                  for (const Units group : groups) CHECK(std::popcount(group) <= 2);
                  return 1.0;
                }),
                kAny);
}

TEST_CASE("a search that would take too long is given up") {
  CHECK_FALSE(search_stages(UnitGraph(40, {}), kAll, any_price, {.transitions = 1000}).has_value());
  CHECK(search_stages(UnitGraph(64, {}), {1, 1}, any_price, {.transitions = 10}).has_value() == false);
  CHECK_FALSE(search_stages(UnitGraph(10, {}), kAll, any_price, {.stages = 100}).has_value());
}

TEST_CASE("a network is cut where everything is before or behind a unit") {
  // 0 -> {1, 2} -> 3 -> 4 -> {5, 6 -> 7} -> 8
  CHECK(cut_units({{}, {0}, {0}, {1, 2}, {3}, {4}, {4}, {6}, {5, 7}}) == std::vector<size_t>{0, 3, 4, 8});
  CHECK(cut_units({{}, {}, {0, 1}}) == std::vector<size_t>{2});      // two inputs
  CHECK(cut_units({{}, {0}, {0}}) == std::vector<size_t>{0});        // two outputs
  CHECK(cut_units({{}, {0}, {0, 1}}) == std::vector<size_t>{0, 2});  // an edge over 1
}
