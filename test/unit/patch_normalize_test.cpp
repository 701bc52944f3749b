// Convolutions whose pixels are normalised: where the pattern is found, and patch_normalize against the reference over the stand-in, at
// sizes that fit no tile.
#include "compiler/passes/fuse/fuse_regions.h"
#include "kernels/catalogue.h"
#include "kernels/first/patch_conv.h"
#include "test/kernels/heavy_bench.h"
#include "test/support/arrays.h"
#include "test/support/case_folder.h"
#include "test/support/check_pass.h"

namespace tamp::test {
namespace {

const std::string kTitle = kernels::normalized_patches().title;

struct Row {
  const char* name;
  Shape in;
  int64_t channels;
  std::vector<int64_t> kernel = {4, 4}, strides = {4, 4}, pads_begin = {0, 0}, pads_end = {0, 0};
  size_t operands = 5;  // of image, weights, bias, scale, shift
  bool centered = true;
  Lay out_lay = Lay::rows;
  std::vector<int64_t> order{};  // of the pixels, if it is another one
};

// Pixels of a map whose squares of 2 x 2 lie side by side, and so do the squares of these, as patch merging wants them: down, then right.
std::vector<int64_t> nested_squares(int64_t images, int64_t height, int64_t width, int levels) {
  std::vector<int64_t> order(static_cast<size_t>(images * height * width));
  for (int64_t pixel = 0; pixel < static_cast<int64_t>(order.size()); ++pixel) {
    const int64_t image = pixel / (height * width), h = pixel / width % height, w = pixel % width;
    int64_t place = (image * (height >> levels) + (h >> levels)) * (width >> levels) + (w >> levels);
    for (int level = levels; level-- > 0;) place = place * 4 + (w >> level & 1) * 2 + (h >> level & 1);
    order[static_cast<size_t>(place)] = pixel;
  }
  return order;
}

Case case_of(const Row& row) {
  CaseMaker maker(row.name);
  Shape map = {row.in[0], row.channels, 0, 0};
  for (size_t d = 0; d < 2; ++d) map[d + 2] = (row.in[d + 2] + row.pads_begin[d] + row.pads_end[d] - row.kernel[d]) / row.strides[d] + 1;
  const Shape pixels = {map[0], map[2], map[3], map[1]}, matrix = {map[0] * map[2] * map[3], map[1]};
  const TensorId x = maker.input(row.in, Lay::rows), w = maker.constant({row.channels, row.in[1], row.kernel[0], row.kernel[1]});
  const auto factor = [&](size_t operand) { return operand < row.operands ? maker.constant({row.channels}) : TensorId(); };
  const TensorId bias = factor(2), scale = factor(3), shift = factor(4);
  const bool has_order = !row.order.empty();
  const TensorId order = has_order ? maker.indices({matrix[0]}, row.order) : TensorId();
  const TensorId y = maker.output(has_order ? matrix : pixels, row.out_lay), c = maker.between(map), t = maker.between(pixels),
                 r = has_order ? maker.between(matrix) : t;
  const Conv conv{row.kernel, row.strides, {1, 1}, row.pads_begin, row.pads_end};
  std::vector<ROperator> steps = {{"conv", conv, {.bias = bias, .residual = {}}, {x, w}, {c}, {}},
                                  {"rows", Transpose{{0, 2, 3, 1}}, {}, {c}, {t}, {}}};
  if (has_order) steps.push_back({"matrix", Reshape{matrix}, {}, {t}, {r}, {}});
  const Normalize normalize{{has_order ? 1 : 3}, row.centered, 0.01F};
  steps.push_back({"normalise", normalize, {}, without_last_none({r, scale, shift, order}), {y}, {}});
  return maker.finish_steps(steps, {y});
}

std::vector<Row> rows() {
  return {
      {.name = "one pixel", .in = {1, 3, 4, 4}, .channels = 32},
      {.name = "a stem", .in = {1, 3, 20, 52}, .channels = 96},
      {.name = "columns that copies of 16 bytes do not end at", .in = {2, 3, 13, 27}, .channels = 96},
      {.name = "four channels", .in = {1, 3, 12, 16}, .channels = 4},
      {.name = "channels that are no whole tile", .in = {1, 3, 12, 36}, .channels = 44},
      {.name = "without a bias and factors", .in = {1, 2, 9, 14}, .channels = 16, .operands = 2},
      {.name = "without a shift", .in = {1, 3, 16, 16}, .channels = 64, .operands = 4},
      {.name = "by the mean square", .in = {1, 3, 16, 24}, .channels = 64, .centered = false},
      {.name = "windows that overlap",
       .in = {1, 3, 19, 22},
       .channels = 48,
       .kernel = {7, 7},
       .strides = {2, 2},
       .pads_begin = {3, 3},
       .pads_end = {3, 3}},
      {.name = "channels that end in half a vector of 16 bits", .in = {1, 3, 12, 20}, .channels = 36},
      {.name = "squares of pixels", .in = {1, 3, 24, 40}, .channels = 96, .order = nested_squares(1, 6, 10, 1)},
      {.name = "squares of squares of two images",
       .in = {2, 3, 32, 48},
       .channels = 36,
       .operands = 3,
       .order = nested_squares(2, 8, 12, 2)},
      {.name = "squares of three levels",
       .in = {1, 1, 48, 32},
       .channels = 64,
       .kernel = {2, 2},
       .strides = {2, 2},
       .order = nested_squares(1, 24, 16, 3)},
  };
}

ShapedVDevice device() {
  ShapedVDevice vdevice = read_vdevice("cpu").without_inputs();
  vdevice.sms = 4;
  return vdevice;
}

std::vector<RKernel> bodies_of(const Case& c, Precision precision = Precision::tf32) {
  return kernels::candidates_of(kernels::family("patch_conv"), {c.graph, c.graph.rops[0], device(), precision});
}

const std::string kStem = R"(
  x = input f32[1,3,12,20]
  w = const f32[32,3,4,4]
  b = const f32[32]
  g = const f32[32]
  h = const f32[32]
  v = const f32[32,8]
  c = Conv(x, w) {kernel=[4,4], strides=[4,4]} epilogue{bias=b} -> f32[1,32,3,5]
  t = Transpose(c) {perm=[0,2,3,1]} -> f32[1,3,5,32]
  n = Normalize(t, g, h) {axes=[3], epsilon=0.001} -> f32[1,3,5,32]
  y = MatMul(n, v) -> f32[1,3,5,8]
  outputs(y)
)";

Graph normalized(const std::string& text, double gain_us = 1) {
  const Graph source = parse_graph(text);
  Graph made = passes::fuse_regions(source, kernels::normalized_patches(),
                                    [&](const Graph& graph) { return 100 - gain_us * count_rops(graph, kTitle); });
  check_pass(source, made);
  return made;
}

}  // namespace

TEST_CASE("a convolution takes the normalisation of its pixels") {
  const Graph made = normalized(kStem);
  CHECK(count_rops(made, kTitle) == 1);
  CHECK(count_rops(made, "Conv") + count_rops(made, "Normalize") == 0);
  CHECK(count_rops(normalized(swapped(kStem, "Normalize(t, g, h)", "Normalize(t)")), kTitle) == 1);
  CHECK(count_rops(normalized(kStem, 0.1), kTitle) == 0);
  const Graph source = parse_graph(kStem);
  CHECK(print(passes::fuse_regions(source, kernels::normalized_patches(), {})) == print(source));
  const struct {
    const char* why;
    std::string text;
  } others[] = {
      {"an activation", swapped(kStem, "epilogue{bias=b}", "epilogue{bias=b, act=relu}")},
      {"somebody else reads the map", swapped(kStem, "outputs(y)", "outputs(y, c)")},
      {"somebody else reads the rows", swapped(kStem, "outputs(y)", "outputs(y, t)")},
      {"weights of run time", swapped(kStem, "w = const", "w = input")},
      {"a scale of run time", swapped(kStem, "g = const", "g = input")},
      {"pixels in another order", swapped(swapped(swapped(kStem, "perm=[0,2,3,1]} -> f32[1,3,5,32]", "perm=[0,3,2,1]} -> f32[1,5,3,32]"),
                                                  "-> f32[1,3,5,32]", "-> f32[1,5,3,32]"),
                                          "-> f32[1,3,5,8]", "-> f32[1,5,3,8]")},
  };
  for (const auto& other : others) {
    INFO(other.why);
    CHECK(count_rops(normalized(other.text), kTitle) == 0);
  }
}

TEST_CASE("a convolution takes the normalisation of pixels that a table puts into another order") {
  // A matrix of the pixels, as passes/order_rows leaves it.
  const std::string rows =
      swapped(kStem, "n = Normalize(t, g, h) {axes=[3], epsilon=0.001} -> f32[1,3,5,32]", R"(r = Reshape(t) -> f32[15,32]
  table = const i64[15] {14, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13}
  o = Normalize(r, g, h, table) {axes=[1], epsilon=0.001} -> f32[15,32]
  n = Reshape(o) -> f32[1,3,5,32])");
  const Graph made = normalized(rows);
  REQUIRE(count_rops(made, kTitle) == 1);
  CHECK(count_rops(made, "Normalize") == 0);
  CHECK(made.rops[0].inputs.size() == 6);
  const auto left = [&](const std::string& from, const std::string& to) {
    return count_rops(normalized(swapped(rows, from, to)), "Normalize");
  };
  CHECK(left("{14, 0, 1,", "{14, 0, 0,") == 1);  // a pixel twice
  CHECK(left("outputs(y)", "outputs(y, r)") == 1);
  CHECK(left("outputs(y)", "outputs(y, c)") == 1);
  // Rows that are half a pixel each.
  std::string halves = swapped(swapped(rows, "g = const f32[32]", "g = const f32[16]"), "h = const f32[32]", "h = const f32[16]");
  halves = swapped(halves, "Reshape(t) -> f32[15,32]", "Reshape(t) -> f32[30,16]");
  halves = swapped(halves, "i64[15] {14,", "i64[30] {29, 28, 27, 26, 25, 24, 23, 22, 21, 20, 19, 18, 17, 16, 15, 14,");
  CHECK(count_rops(normalized(swapped(halves, "-> f32[15,32]", "-> f32[30,16]")), "Normalize") == 1);
}

TEST_CASE("pixels are normalised where a rTask has all channels, on tensor cores, and where four are one access") {
  const Row usual = {.name = "usual", .in = {1, 3, 16, 24}, .channels = 96};
  CHECK_FALSE(bodies_of(case_of(usual)).empty());
  CHECK(bodies_of(case_of(usual), Precision::fp32).empty());
  CHECK(bodies_of(case_of({.name = "192 channels", .in = {1, 3, 16, 24}, .channels = 192})).empty());
  CHECK(bodies_of(case_of({.name = "result in planes", .in = {1, 3, 16, 24}, .channels = 96, .out_lay = Lay::channels_last})).empty());
  for (const RKernel& body : bodies_of(case_of(usual))) CHECK(body.phases[0].body == "rk::patch_normalize");
  // An order is one of squares, or there is no body.
  const auto in_order = [](const std::vector<int64_t>& order) {
    return !bodies_of(case_of({.name = "an order", .in = {1, 3, 8, 16}, .channels = 32, .order = order})).empty();
  };
  CHECK(in_order({0, 4, 1, 5, 2, 6, 3, 7}));
  CHECK_FALSE(in_order({7, 4, 1, 5, 2, 6, 3, 0}));
  CHECK_FALSE(in_order({0, 1, 2, 3, 4, 5, 7, 6}));
}

TEST_CASE("normalised convolutions of patches agree with the reference") {
  std::vector<Case> cases;
  for (const Row& row : rows()) cases.push_back(case_of(row));
  for (const Case& c : cases) {
    INFO(c.name);
    CHECK_FALSE(bodies_of(c).empty());
  }
  const std::filesystem::path root = std::filesystem::absolute(__FILE__).parent_path().parent_path().parent_path();
  const CaseFolder folder("tamp_patch_normalize");
  std::vector<Case> all = cases;
  for (const Case& c : narrowed(cases, false, true)) all.push_back(c);
  for (const std::string& problem :
       run_heavy_cases(all, {kernels::family("patch_conv")}, {device(), Precision::tf32, 2e-2}, root, folder.path()))
    FAIL_CHECK(problem);
  const CaseFolder bf16("tamp_patch_normalize_bf16");
  std::vector<Case> bfloats;
  for (Case& c : cases) {
    const TensorId y = c.graph.rops[0].outputs[0];
    bfloats.push_back(narrowed(std::move(c), {y}, DType::bf16));
  }
  for (const std::string& problem :
       run_heavy_cases(bfloats, {kernels::family("patch_conv")}, {device(), Precision::bf16, 5e-2}, root, bf16.path()))
    FAIL_CHECK(problem);
}

}  // namespace tamp::test
