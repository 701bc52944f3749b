// Squeeze-and-excite with roundings: which regions there are, in which ways they are joined, and what is read back of them.
#include "kernels/excite/rounded_excitation.h"

#include "compiler/ir/products.h"
#include "compiler/passes/fuse/fuse_regions.h"
#include "test/support/catch.h"
#include "test/support/check_pass.h"
#include "test/support/graph_text.h"

namespace tamp::test {
namespace {

// Means of 8 channels of 4 x 4, 3 hidden values with a silu between two roundings, gates by a sigmoid.
const std::string kExcited = R"(
    x = input f32[2,8,4,4]
    forty = const f32[] {40}
    tenth = const f32[] {0.1}
    third = const f32[] {0.3}
    small = const f32[] {0.01}
    w1 = const f32[3,8,1,1]
    b1 = const f32[3]
    w2 = const f32[8,3,1,1]
    b2 = const f32[8]
    wd = const f32[8,1,3,3]
    h = Elementwise(x, forty) {mul(i0, i1)} -> f32[2,8,4,4]
    p = Elementwise(h) {rounded(i0; -100, 100)} -> f32[2,8,4,4]
    q = Conv(p, wd) {kernel=[3,3], pads=[1,1,1,1], group=8} epilogue{act=rounded, a=-90, b=100} -> f32[2,8,4,4]
    mean = Reduce(q) {kind=mean, axes=[2,3]} -> f32[2,8,1,1]
    m = Elementwise(mean, third) {mul(i0, i1), rounded(s0; -128, 127)} -> f32[2,8,1,1]
    c1 = Conv(m, w1) {kernel=[1,1]} epilogue{bias=b1, act=rounded, a=-100, b=90} -> f32[2,3,1,1]
    h1 = Elementwise(c1, tenth, third) {mul(i0, i1), sigmoid(s0), mul(s0, s1), div(s2, i2), rounded(s3; -8, 120)} -> f32[2,3,1,1]
    c2 = Conv(h1, w2) {kernel=[1,1]} epilogue{bias=b2, act=rounded, a=-128, b=127} -> f32[2,8,1,1]
    g = Elementwise(c2, tenth, small) {mul(i0, i1), sigmoid(s0), div(s1, i2), rounded(s2; 0, 255)} -> f32[2,8,1,1]
    y = Elementwise(g, q, small) {mul(i0, i1), mul(s0, i2), rounded(s1; -128, 127)} -> f32[2,8,4,4]
    outputs(y)
)";

std::vector<FusionRegion> regions(const std::string& text) {
  const Graph graph = parse_graph(text);
  verify(graph);
  return kernels::rounded_excitations().regions(graph);
}
Graph joined(const Graph& graph, FusionRegion region, size_t way) {
  region.join = region.ways.at(way);
  return passes::with_fused(graph, "rounded excitation", {region});
}
const ROperator& last_of(const Graph& graph) {
  for (const ROperator& rop : graph.rops) {
    if (rop.outputs == graph.outputs) return rop;
  }
  FAIL("nothing makes the output");
  throw std::logic_error("nothing makes the output");
}

// Both ways to cut it: by parts, and by sums of tiles of `rows` rows.
constexpr size_t kByParts = 0, kBySums = 1;

}  // namespace

TEST_CASE("an excitation with roundings is two rOperators, cut in two ways") {
  const Graph graph = parse_graph(kExcited);
  const std::vector<FusionRegion> found = regions(kExcited);
  REQUIRE(found.size() == 1);
  CHECK(found[0].rops.size() == 7);
  REQUIRE(found[0].ways.size() == 4);  // by parts; tiles of 4, 2 and 1 rows
  for (size_t way = 0; way < found[0].ways.size(); ++way) {
    const Graph made = joined(graph, found[0], way);
    check_pass(graph, made);
    CHECK(made.rops.size() == graph.rops.size() - 5);
    const auto gates = kernels::rounded_excitation_of(made, last_of(made));
    REQUIRE(gates);
    CHECK(gates->hidden.weights.valid() == (way != kByParts));
    CHECK(gates->hidden.sums.low == -100);
    CHECK(gates->hidden.table.valid());
    CHECK(gates->gate.table.valid());
    CHECK(gates->out.scale == 0.01F);
    CHECK(holds_whole_numbers(made, made.outputs[0]));
    const auto is_first = [&](const ROperator& rop) { return kernels::channel_sums_of(made, rop).has_value(); };
    const auto first = std::find_if(made.rops.begin(), made.rops.end(), is_first);
    REQUIRE(first != made.rops.end());
    const auto sums = kernels::channel_sums_of(made, *first);
    CHECK(sums->sums == gates->sums);
    CHECK(sums->weights.valid() == (way == kByParts));
    CHECK(sums->rows == (way == kByParts ? 4 : way == kBySums ? 4 : way == 2 ? 2 : 1));
  }
}

TEST_CASE("the depthwise convolution in front is part of the first rOperator") {
  const Graph graph = parse_graph(kExcited);
  for (const size_t way : {kByParts, kBySums}) {
    const Graph cut = joined(graph, regions(kExcited)[0], way);
    std::vector<FusionRegion> found = kernels::summed_depthwise().regions(cut);
    REQUIRE(found.size() == 1);
    CHECK(found[0].ways.size() == (way == kByParts ? 0 : 3));
    if (way == kBySums) found[0].join = found[0].ways[1];  // tiles of two rows instead of four
    const Graph made = passes::with_fused(cut, "depthwise convolution with sums", found);
    check_pass(graph, made);
    CHECK(made.rops.size() == cut.rops.size() - 1);
    REQUIRE(kernels::rounded_excitation_of(made, last_of(made)));
    const TensorId sums = kernels::rounded_excitation_of(made, last_of(made))->sums;
    CHECK(made.tensor(sums).shape == (way == kByParts ? Shape{2, 4, 1} : Shape{2, 8, 2}));
    const auto is_first = [&](const ROperator& rop) { return kernels::channel_sums_of(made, rop).has_value(); };
    const auto first = std::find_if(made.rops.begin(), made.rops.end(), is_first);
    REQUIRE(first != made.rops.end());
    CHECK(kernels::channel_sums_of(made, *first)->conv);
  }
}

TEST_CASE("of several ways to join a region the one is taken that is estimated fastest") {
  const Graph graph = parse_graph(kExcited);
  const auto shorter = [](const Graph& of) { return static_cast<double>(of.rops.size()); };
  // Tiles of `rows` rows take least time; 0: parts do.
  const auto like = [](int64_t rows) {
    return [rows](const Graph& of, const ROperator& rop) -> std::optional<Estimate> {
      const auto sums = kernels::channel_sums_of(of, rop);
      if (!sums) return Estimate{1};
      return Estimate{sums->weights.valid() ? (rows == 0 ? 1.0 : 9.0) : 2.0 + std::abs(static_cast<double>(sums->rows - rows))};
    };
  };
  for (const int64_t rows : {0, 1, 2, 4}) {
    const Graph made = passes::fuse_regions(graph, kernels::rounded_excitations(), shorter, like(rows));
    const auto gates = kernels::rounded_excitation_of(made, last_of(made));
    REQUIRE(gates);
    CHECK(gates->hidden.weights.valid() == (rows != 0));
    if (rows != 0) CHECK(made.tensor(gates->sums).shape[2] == 4 / rows);
  }
  const Estimator none = [](const Graph&, const ROperator&) { return std::optional<Estimate>(); };
  CHECK(print(passes::fuse_regions(graph, kernels::rounded_excitations(), shorter, none)) == print(graph));
}

TEST_CASE("an excitation needs no tables where nothing follows the roundings") {
  std::string text = swapped(kExcited, "w2 = const f32[8,3,1,1]", "w2 = const f32[8,3,1,1]\n none = const f32[] {1}");
  text = swapped(text, "Conv(h1, w2)", "Conv(c1, w2)");
  const size_t begin = text.find("    h1 = "), end = text.find("    c2 = ");
  text.erase(begin, end - begin);
  const std::vector<FusionRegion> found = regions(text);
  REQUIRE(found.size() == 1);
  const Graph graph = parse_graph(text);
  for (const size_t way : {kByParts, kBySums}) {
    const Graph made = joined(graph, found[0], way);
    check_pass(graph, made);
    REQUIRE(kernels::rounded_excitation_of(made, last_of(made)));
    CHECK_FALSE(kernels::rounded_excitation_of(made, last_of(made))->hidden.table.valid());
  }
}

TEST_CASE("no excitation where a step is not rounded, or somebody else reads it") {
  REQUIRE(regions(kExcited).size() == 1);
  CHECK(regions(swapped(kExcited, "rounded(s0; -128, 127)} -> f32[2,8,1,1]", "neg(s0)} -> f32[2,8,1,1]")).empty());  // the mean
  CHECK(regions(swapped(kExcited, "bias=b1, act=rounded, a=-100, b=90", "bias=b1, act=relu")).empty());
  CHECK(regions(swapped(kExcited, "a=-100, b=90", "a=-300, b=90")).empty());  // 391 numbers are no table
  CHECK(regions(swapped(kExcited, "outputs(y)", "outputs(y, g)")).empty());
  CHECK(regions(swapped(kExcited, "outputs(y)", "outputs(y, mean)")).empty());
  CHECK(regions(swapped(kExcited, "kind=mean", "kind=sum")).empty());
  CHECK(regions(swapped(kExcited, "w1 = const f32[3,8,1,1]", "w1 = input f32[3,8,1,1]")).empty());
  CHECK(regions(swapped(kExcited, "mul(i0, i1), mul(s0, i2), rounded(s1; -128, 127)", "add(i0, i1), mul(s0, i2), rounded(s1; -128, 127)"))
            .empty());
  CHECK(regions(swapped(kExcited, "mul(i0, i1), mul(s0, i2), rounded(s1; -128, 127)", "mul(i0, i1), mul(s0, i1), rounded(s1; -128, 127)"))
            .empty());
}

}  // namespace tamp::test
