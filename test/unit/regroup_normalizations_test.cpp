// Group normalisation through a flattened map becomes a normalisation of the map's groups, and the map stays in its order.
#include "compiler/passes/recognise/regroup_normalizations.h"

#include "compiler/passes/place/assign_layout.h"
#include "compiler/passes/recognise/recognise_normalizations.h"
#include "test/support/check_pass.h"

namespace tamp::test {
namespace {

// A map of 6 channels in `groups` groups, as exporters write it; `behind` makes y of u.
std::string flattened(int groups, const std::string& behind) {
  const std::string flat = "f32[2," + std::to_string(groups) + "," + std::to_string(6 / groups * 20) + "]";
  const std::string factors = " = const f32[" + std::to_string(groups) + ",1]\n";
  return "x = input f32[2,6,5,4]\ngs" + factors + "gb" + factors + "s = const f32[6,1,1]\nb = const f32[6,1,1]\nk = const f32[1,6,1,1]\n" +
         "r = Reshape(x) -> " + flat + "\nn = Normalize(r, gs, gb) {axes=[2], epsilon=0.001} -> " + flat +
         "\nu = Reshape(n) -> f32[2,6,5,4]\n" + behind;
}
const char* const kScaleAndShift =
    "m = Elementwise(u, s) {mul(i0, i1)} -> f32[2,6,5,4]\ny = Elementwise(b, m) {add(i0, i1)} -> f32[2,6,5,4]\noutputs(y)\n";

Graph regrouped(const Graph& source) {
  Graph made = passes::regroup_normalizations(source);
  check_pass(source, made);
  return made;
}
Graph regrouped(const std::string& text) { return regrouped(parse_graph(text)); }

const ROperator& normalize_of(const Graph& graph) {
  for (const ROperator& rop : graph.rops) {
    if (std::holds_alternative<Normalize>(rop.attrs)) return rop;
  }
  throw std::runtime_error("no Normalize");
}

}  // namespace

TEST_CASE("groups of a flattened map are groups of its channels, with scale and shift of each channel") {
  const Graph made = regrouped(flattened(3, kScaleAndShift));
  CHECK(made.rops.size() == 3);
  const ROperator& normalize = normalize_of(made);
  CHECK(std::get<Normalize>(normalize.attrs).axes == std::vector<int64_t>{2, 3, 4});
  CHECK(std::get<Normalize>(normalize.attrs).epsilon == 0.001F);
  CHECK(made.tensor(normalize.inputs[0]).shape == Shape{2, 3, 2, 5, 4});
  CHECK(made.tensor(normalize.inputs[1]).shape == Shape{3, 2, 1, 1});
  CHECK(passes::regroup_normalizations(made).rops.size() == 3);
}

TEST_CASE("one group, and groups of one channel, need no views") {
  for (const int groups : {1, 6}) {
    const Graph made = regrouped(flattened(groups, kScaleAndShift));
    CHECK(made.rops.size() == 1);
    const auto& axes = std::get<Normalize>(made.rops[0].attrs).axes;
    CHECK(axes == (groups == 1 ? std::vector<int64_t>{1, 2, 3} : std::vector<int64_t>{2, 3}));
  }
}

TEST_CASE("what is no factor of channels, or has another reader, stays behind the normalisation") {
  const Graph shifted = regrouped(flattened(3, "y = Elementwise(u, k) {add(i0, i1)} -> f32[2,6,5,4]\noutputs(y)\n"));
  CHECK(count_rops(shifted, "Elementwise") == 0);
  const Graph read = regrouped(flattened(3, "y = Elementwise(u, s) {mul(i0, i1)} -> f32[2,6,5,4]\noutputs(y, u)\n"));
  CHECK(count_rops(read, "Elementwise") == 1);
  const Graph residual = regrouped(flattened(3, "y = Elementwise(u, x) {mul(i0, i1)} -> f32[2,6,5,4]\noutputs(y)\n"));
  CHECK(count_rops(residual, "Elementwise") == 1);
  const Graph subtracted = regrouped(flattened(3, "y = Elementwise(s, u) {sub(i0, i1)} -> f32[2,6,5,4]\noutputs(y)\n"));
  CHECK(count_rops(subtracted, "Elementwise") == 1);
}

TEST_CASE("other Reshapes around a normalisation are left alone") {
  const auto same = [](const std::string& text) {
    const Graph source = remove_dead(parse_graph(text));
    CHECK(print(passes::regroup_normalizations(source)) == print(source));
  };
  // Groups over images; another shape behind it; rows of which only a part is normalised; factors of elements; a flattened map that is
  // read.
  same(
      "x = input f32[2,6,5,4]\nr = Reshape(x) -> f32[1,4,60]\nn = Normalize(r) {axes=[2], epsilon=0.001} -> f32[1,4,60]\n"
      "y = Reshape(n) -> f32[2,6,5,4]\noutputs(y)\n");
  same(
      "x = input f32[2,6,5,4]\nr = Reshape(x) -> f32[2,3,40]\nn = Normalize(r) {axes=[2], epsilon=0.001} -> f32[2,3,40]\n"
      "y = Reshape(n) -> f32[2,6,20]\noutputs(y)\n");
  same(
      "x = input f32[2,6,5,4]\nr = Reshape(x) -> f32[2,6,2,10]\nn = Normalize(r) {axes=[3], epsilon=0.001} -> f32[2,6,2,10]\n"
      "y = Reshape(n) -> f32[2,6,5,4]\noutputs(y)\n");
  same(
      "x = input f32[2,6,5,4]\ns = const f32[40]\nr = Reshape(x) -> f32[2,3,40]\n"
      "n = Normalize(r, s) {axes=[2], epsilon=0.001} -> f32[2,3,40]\ny = Reshape(n) -> f32[2,6,5,4]\noutputs(y)\n");
  same(flattened(3, "y = Elementwise(u, s) {mul(i0, i1)} -> f32[2,6,5,4]\noutputs(y, n)\n"));
}

TEST_CASE("a map between convolutions stays channels-last through its group normalisation") {
  const std::string text = R"(
    i = input f32[2,8,5,4]
    w = const f32[6,8,1,1]
    v = const f32[8,6,1,1]
    s = const f32[6,1,1]
    b = const f32[6,1,1]
    one = const f32[3,1] {1, 1, 1}
    x = Conv(i, w) {kernel=[1,1]} -> f32[2,6,5,4]
    r = Reshape(x) -> f32[2,3,40]
    n = Normalize(r, one) {axes=[2], epsilon=0.001} -> f32[2,3,40]
    u = Reshape(n) -> f32[2,6,5,4]
    m = Elementwise(u, s) {mul(i0, i1)} -> f32[2,6,5,4]
    a = Elementwise(m, b) {add(i0, i1)} -> f32[2,6,5,4]
    y = Conv(a, v) {kernel=[1,1]} -> f32[2,8,5,4]
    outputs(y)
  )";
  const Graph source = parse_graph(text), made = regrouped(source), placed = passes::assign_layout(made);
  check_pass(source, placed);
  CHECK(placed.rops.size() == 3);  // no copies
  const Tensor& groups = placed.tensor(normalize_of(placed).outputs[0]);
  CHECK(groups.place.strides == std::vector<int64_t>{120, 2, 1, 24, 6});
  // As the exporter wrote it, the first convolution would write in the order of the flattened groups.
  CHECK(passes::assign_layout(source).tensor(source.rops[0].outputs[0]).place.strides == std::vector<int64_t>{120, 20, 4, 1});
}

}  // namespace tamp::test
