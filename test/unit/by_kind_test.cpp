// Changes that are kept where the whole graph is estimated to be faster: what an infinite estimate means for them.
#include "compiler/passes/by_kind.h"

#include <limits>

#include "compiler/passes/fuse/cut_patches.h"
#include "compiler/passes/fuse/fuse_regions.h"
#include "compiler/passes/fuse/split_dilated.h"
#include "kernels/chain/pointwise_pair.h"
#include "test/support/catch.h"
#include "test/support/graph_text.h"

namespace tamp::test {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity(), kNoNumber = std::numeric_limits<double>::quiet_NaN();

struct Match {
  int kind;
};
// Renames the graph once, if that may be.
Graph renamed(const GraphEstimator& estimator) {
  const auto matches = [](const Graph& graph) { return graph.name == "changed" ? std::vector<Match>() : std::vector<Match>{{0}}; };
  const auto change = [](Graph graph, const std::vector<Match>&) {
    graph.name = "changed";
    return std::optional(graph);
  };
  return passes::change_by_kind(parse_graph("x = input f32[1]\noutputs(x)"), estimator, 1, matches, change);
}

TEST_CASE("a change gains where its estimate is finite and less by as much as is asked for") {
  struct Row {
    double now_us, other_us;
    bool gains;
  };
  for (const Row& row : {Row{10, 8, true}, Row{10, 9, true}, Row{10, 9.5, false}, Row{10, 11, false}, Row{10, kInfinity, false},
                         Row{kInfinity, 10, true}, Row{kInfinity, kInfinity, false}, Row{10, kNoNumber, false}, Row{kNoNumber, 10, true},
                         Row{kInfinity, kNoNumber, false}, Row{kNoNumber, kNoNumber, false}, Row{10, -kInfinity, false}}) {
    INFO(row.now_us << " to " << row.other_us);
    CHECK(gains(row.now_us, row.other_us, 1) == row.gains);
    const bool is_changed =
        renamed([&](const Graph& graph) { return graph.name == "changed" ? row.other_us : row.now_us; }).name == "changed";
    CHECK(is_changed == row.gains);
  }
}

TEST_CASE("no pass changes a graph of infinite estimate to another one") {
  const auto infinite = [](const Graph&) { return kInfinity; };
  const Graph pair = parse_graph(R"(
    x = input f32[1,64,8,8]
    w = const f32[64,64,1,1]
    v = const f32[64,64,1,1]
    a = Conv(x, w) {kernel=[1,1]} epilogue{act=relu} -> f32[1,64,8,8]
    y = Conv(a, v) {kernel=[1,1]} -> f32[1,64,8,8]
    outputs(y)
  )");
  CHECK(print(passes::fuse_regions(pair, kernels::pointwise_pairs(), infinite)) == print(pair));
  const Graph patches = parse_graph(R"(
    x = input f32[1,3,32,32]
    w = const f32[64,3,16,16]
    y = Conv(x, w) {kernel=[16,16], strides=[16,16]} -> f32[1,64,2,2]
    outputs(y)
  )");
  CHECK(print(passes::cut_patches(patches, infinite, 4)) == print(patches));
  const Graph dilated = parse_graph(R"(
    x = input f32[1,64,16,16]
    w = const f32[64,64,3,3]
    y = Conv(x, w) {kernel=[3,3], pads=[12,12,12,12], dilations=[12,12]} -> f32[1,64,16,16]
    outputs(y)
  )");
  CHECK(print(passes::split_dilated(dilated, infinite)) == print(dilated));
}

TEST_CASE("of regions with a common rOperator the first counts") {
  const Graph graph = parse_graph(R"(
    x = input f32[4]
    a = Elementwise(x) {relu(i0)} -> f32[4]
    b = Elementwise(a) {relu(i0)} -> f32[4]
    c = Elementwise(b) {relu(i0)} -> f32[4]
    d = Elementwise(c) {relu(i0)} -> f32[4]
    outputs(d)
  )");
  const auto pair_at = [](const Graph&, const Uses&, size_t at) {
    return at > 0 ? std::optional(FusionRegion{{}, {at - 1, at}, nullptr}) : std::nullopt;
  };
  const std::vector<FusionRegion> regions = regions_at_each(pair_at)(graph);
  REQUIRE(regions.size() == 2);
  CHECK((regions[0].rops == std::vector<size_t>{0, 1} && regions[1].rops == std::vector<size_t>{2, 3}));
}

}  // namespace
}  // namespace tamp::test
