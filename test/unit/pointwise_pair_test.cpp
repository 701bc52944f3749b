// Two pointwise convolutions in one rTask: the reference against values worked out by hand, what is refused, the pass that makes pairs
// (whether that is faster is the estimator's to say), and the device body against the reference over the stand-in.
#include "kernels/chain/pointwise_pair.h"

#include <limits>
#include <set>

#include "compiler/passes/fuse/fuse_regions.h"
#include "compiler/passes/place/assign_layout.h"
#include "compiler/passes/place/narrow_activations.h"
#include "kernels/catalogue.h"
#include "test/kernels/heavy_bench.h"
#include "test/support/case_folder.h"
#include "test/support/check_pass.h"
#include "test/support/onnx_model.h"

namespace tamp::test {
namespace {

using Catch::Matchers::Contains;

const std::string kPair = kernels::pointwise_pairs().title;
int64_t pairs_of(const Graph& graph) { return static_cast<int64_t>(count_rops(graph, kPair)); }
double gained(const Graph& graph, double us) { return 100 - us * static_cast<double>(pairs_of(graph)); }
double faster(const Graph& graph) { return gained(graph, 5); }
double slower(const Graph& graph) { return gained(graph, -5); }
double hardly_faster(const Graph& graph) { return gained(graph, 1); }

Graph paired(const std::string& text, const GraphEstimator& estimator = faster) {
  const Graph source = parse_graph(text);
  Graph made = passes::fuse_regions(source, kernels::pointwise_pairs(), estimator);
  check_pass(source, made);
  return made;
}

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  const size_t at = text.find(from);
  REQUIRE(at != std::string::npos);
  return text.replace(at, from.size(), to);
}

// The end of a residual block, and the begin and the end of the next: the second pair's residual is the first pair's y.
const std::string kBlocks = R"(
  x = input f32[1,16,5,4]
  r = input f32[1,8,5,4]
  s = Elementwise(r) {relu(i0)} -> f32[1,8,5,4]
  c = const f32[8,16,1,1]
  d = const f32[16,8,1,1]
  b = const f32[8]
  e = const f32[16]
  y = Conv(x, c) {kernel=[1,1]} epilogue{bias=b, residual=s} -> f32[1,8,5,4]
  z = Conv(y, d) {kernel=[1,1]} epilogue{bias=e, act=relu} -> f32[1,16,5,4]
  t = Elementwise(z) {sigmoid(i0)} -> f32[1,16,5,4]
  v = Conv(t, c) {kernel=[1,1]} epilogue{bias=b, residual=y} -> f32[1,8,5,4]
  w = Conv(v, d) {kernel=[1,1]} epilogue{act=clip, a=0, b=6} -> f32[1,16,5,4]
  outputs(w)
)";

}  // namespace

TEST_CASE("the last convolution of a block and the first of the next become one rOperator") {
  const Graph made = paired(kBlocks);
  REQUIRE(made.rops.size() == 4);
  const std::optional<FusedView> first = kernels::pointwise_pair_steps(made.rops[1]), last = kernels::pointwise_pair_steps(made.rops[3]);
  REQUIRE((first && last));
  CHECK(first->step(0).epilogue.activation == Activation::none);
  CHECK(first->step(1).epilogue.activation == Activation::relu);
  CHECK(made.rops[1].outputs.size() == 2);
  CHECK(first->output(0) == made.rops[1].outputs[1]);
  CHECK(made.rops[1].inputs.size() == 6);
  CHECK(last->step(1).epilogue.activation == Activation::clip);
  CHECK(made.rops[3].outputs.size() == 1);
  CHECK_FALSE(last->bias(1).valid());
  CHECK(last->residual(0) == made.rops[1].outputs[1]);
  CHECK(print(parse_graph(print(made))) == print(made));
  CHECK(pairs_of(passes::assign_layout(made)) == 2);
}

TEST_CASE("convolutions stay apart where they are another thing") {
  const struct {
    const char* why;
    std::string text;
  } rows[] = {
      {"a residual behind the second", replaced(kBlocks, "epilogue{bias=e, act=relu}", "epilogue{bias=e, residual=x, act=relu}")},
      {"a residual behind the activation", replaced(kBlocks, "residual=s}", "residual=s, act=relu, residual_after_activation=1}")},
      {"y is read by a convolution besides",
       replaced(replaced(kBlocks, "  outputs(w)", "  q = Conv(y, d) {kernel=[1,1]} -> f32[1,16,5,4]\n  outputs(w, q)"), ", residual=y",
                "")},
      {"a residual from outside", replaced(kBlocks, "residual=s}", "residual=r}")},
      {"weights of run time", replaced(kBlocks, "d = const f32[16,8,1,1]", "d = input f32[16,8,1,1]")},
      {"a stride", replaced(replaced(replaced(kBlocks, "z = Conv(y, d) {kernel=[1,1]}", "z = Conv(y, d) {kernel=[1,1], strides=[5,4]}"),
                                     "act=relu} -> f32[1,16,5,4]", "act=relu} -> f32[1,16,1,1]"),
                            "t = Elementwise(z) {sigmoid(i0)} -> f32[1,16,5,4]", "t = Elementwise(z, x) {add(i0, i1)} -> f32[1,16,5,4]")},
  };
  for (const auto& row : rows) {
    INFO(row.why);
    CHECK(std::holds_alternative<Conv>(paired(row.text).rops[1].attrs));
  }
  std::string odd = kBlocks;
  for (size_t at; (at = odd.find("8,")) != std::string::npos;) odd.replace(at, 2, "6,");
  for (size_t at; (at = odd.find("[8]")) != std::string::npos;) odd.replace(at, 3, "[6]");
  CHECK(pairs_of(paired(odd)) == 0);
}

TEST_CASE("y may be an output of the graph") {
  const Graph made = paired(replaced(kBlocks, "outputs(w)", "outputs(w, v)"));
  CHECK(pairs_of(made) == 2);
  CHECK(made.rops[3].outputs.size() == 2);
}

TEST_CASE("convolutions stay as they are where all pairs together are not clearly faster") {
  const auto never = [](const Graph&) { return std::numeric_limits<double>::infinity(); };  // nothing computes either graph
  for (const GraphEstimator& estimator : {GraphEstimator(slower), GraphEstimator(hardly_faster), GraphEstimator(never), GraphEstimator()})
    CHECK(print(paired(kBlocks, estimator)) == print(parse_graph(kBlocks)));
  // Of two kinds, pairs that store y and pairs that do not, the one that gains.
  const auto only_kept = [](const Graph& graph) {
    double us = 100;
    for (const ROperator& rop : graph.rops) {
      if (kernels::pointwise_pair_steps(rop)) us += rop.outputs.size() == 2 ? -5 : 5;
    }
    return us;
  };
  CHECK(pairs_of(paired(kBlocks, only_kept)) == 1);
}

namespace {

struct Sizes {
  Shape x;
  int64_t y, z;
  bool keeps = true, has_residual = true, has_bias = true;
  ActivationCall first{}, second{Activation::relu};
};

Case pair_case(const std::string& name, const Sizes& e, Lay lay = Lay::channels_last) {
  CaseMaker maker(name);
  const Shape y = {e.x[0], e.y, e.x[2], e.x[3]}, z = {e.x[0], e.z, e.x[2], e.x[3]};
  const TensorId x = maker.input(e.x, lay);
  maker.set_range(-0.3F, 0.3F);
  const TensorId fw = maker.constant({e.y, e.x[1], 1, 1}), w = maker.constant({e.z, e.y, 1, 1});
  const TensorId fb = e.has_bias ? maker.constant({e.y}) : TensorId(), b = e.has_bias ? maker.constant({e.z}) : TensorId();
  const TensorId residual = e.has_residual ? maker.input(y, lay) : TensorId();
  const TensorId out = maker.output(z, lay), mid = e.keeps ? maker.output(y, lay) : maker.between(y);
  const Conv pointwise{{1, 1}, {1, 1}, {1, 1}, {0, 0}, {0, 0}};
  const ROperator first{"first", pointwise, {fb, residual, e.first.kind, e.first.a, e.first.b}, {x, fw}, {mid}, {}},
      second{"second", pointwise, {b, {}, e.second.kind, e.second.a, e.second.b}, {mid, w}, {out}, {}};
  std::vector<TensorId> results = {out};
  if (e.keeps) results.push_back(mid);
  return maker.finish_steps({first, second}, results);
}
TensorId residual_of(const Case& c) { return kernels::pointwise_pair_steps(c.graph.rops[0])->residual(0); }

std::vector<Case> pair_cases() {
  return {
      pair_case("one pixel, few channels", {{1, 8, 1, 1}, 4, 4}),
      pair_case("an odd map, units that are not whole", {{1, 20, 7, 5}, 12, 44, true, true, true, {}, {Activation::hard_swish}}),
      pair_case("two images, no bias", {{2, 72, 5, 5}, 40, 120, true, false, false, {Activation::relu}, {Activation::silu}}),
      pair_case("y is not stored", {{1, 120, 9, 4}, 40, 240, false, true, true, {Activation::clip, -0.5F, 0.5F}, {}}),
      pair_case("other activations", {{1, 48, 6, 3}, 24, 72, true, true, true, {Activation::hard_swish}, {Activation::sigmoid}}),
      pair_case("as many channels of y as there can be", {{1, 32, 5, 3}, 256, 64}),
      pair_case("several chunks of inputs and of weights", {{1, 960, 7, 2}, 80, 200}),
      pair_case("a part of wider pixels", {{1, 40, 7, 3}, 16, 48}, Lay::slice),
  };
}

ShapedVDevice device(int64_t sms) {
  ShapedVDevice vdevice = read_vdevice("h200").with_inputs();
  vdevice.sms = sms;  // small cases have several blocks
  return vdevice;
}

void expect_no_problems(const std::vector<Case>& cases, const HeavyRun& run, const std::string& name) {
  const std::filesystem::path root = std::filesystem::absolute(__FILE__).parent_path().parent_path().parent_path();
  const CaseFolder folder("tamp_pointwise_pair_" + name);
  for (const std::string& problem : run_heavy_cases(cases, {kernels::family("pointwise_pair")}, run, root, folder.path()))
    FAIL_CHECK(problem);
}

std::vector<RKernel> rkernels_of(const Case& c, const ShapedVDevice& vdevice, Precision precision) {
  return kernels::candidates_of(kernels::family("pointwise_pair"), {c.graph, c.graph.rops[0], vdevice, precision});
}

Case narrow_case(Case c, DType to, bool z) {
  const ROperator rop = c.graph.rops[0];
  std::vector<TensorId> ids = {rop.inputs[0]};
  if (residual_of(c).valid()) ids.push_back(residual_of(c));
  if (rop.outputs.size() > 1) ids.push_back(rop.outputs[1]);
  if (z) ids.push_back(rop.outputs[0]);
  return narrowed(std::move(c), ids, to);
}
std::vector<Case> narrow_cases(DType to, bool z) {
  std::vector<Case> made;
  for (const Case& c : pair_cases()) {
    if (c.graph.tensor(c.graph.rops[0].inputs[0]).place.offset % 8 == 0) made.push_back(narrow_case(c, to, z));
  }
  return made;
}

}  // namespace

TEST_CASE("pairs of pointwise convolutions agree with the reference in tf32") {
  expect_no_problems(pair_cases(), {device(9), Precision::tf32, 1e-2}, "tf32");
}

TEST_CASE("pairs of pointwise convolutions agree with the reference in 16 bits") {
  std::vector<Case> cases;
  for (const Case& c : narrow_cases(DType::f16, true)) {
    if (!rkernels_of(c, device(9), Precision::fp16).empty()) cases.push_back(c);
  }
  REQUIRE(cases.size() >= 5);
  expect_no_problems(cases, {device(9), Precision::fp16, 1e-2}, "fp16");
  expect_no_problems({narrow_case(pair_cases()[3], DType::bf16, false)}, {device(9), Precision::bf16, 1e-1}, "bf16");
  const Case wide = pair_cases()[4];  // only x has 16 bits, or only y and the residual
  const ROperator& rop = wide.graph.rops[0];
  expect_no_problems({narrowed(wide, {rop.inputs[0]}, DType::f16), narrowed(wide, {residual_of(wide), rop.outputs[1]}, DType::f16)},
                     {device(9), Precision::fp16, 1e-2}, "mixed");
}

TEST_CASE("pairs of pointwise convolutions have blocks of channels that fill the vEUs") {
  const Case c = pair_case("blocks", {{1, 240, 14, 14}, 80, 200});
  std::set<int64_t> rtasks;
  for (const RKernel& rkernel : rkernels_of(c, read_vdevice("h200").with_inputs(), Precision::tf32)) {
    CHECK(rkernel.phases.size() == 1);
    CHECK(rkernel.phases[0].ring.rtasks_per_block * rkernel.phases[0].ring.blocks == rkernel.phases[0].rtasks);
    CHECK(rkernel.phases[0].work_bytes <= read_vdevice("h200").with_inputs().work_bytes());
    rtasks.insert(rkernel.phases[0].rtasks);
  }
  CHECK(rtasks.contains(25));   // tiles of 8 pixels
  CHECK(rtasks.contains(125));  // five blocks of 40 channels
  CHECK(*rtasks.rbegin() <= 132);
}

TEST_CASE("there is no body for pairs that do not fit") {
  const ShapedVDevice h200 = read_vdevice("h200").with_inputs();
  const auto count = [&](const Case& c, Precision precision = Precision::tf32) { return rkernels_of(c, h200, precision).size(); };
  const Case usual = pair_case("usual", {{1, 64, 7, 7}, 40, 80});
  CHECK(count(usual) > 0);
  CHECK(count(usual, Precision::fp32) == 0);
  CHECK(rkernels_of(usual, read_vdevice("a100").with_inputs(), Precision::tf32).empty());  // no boxes
  CHECK(count(pair_case("more tiles than vEUs", {{1, 64, 64, 64}, 40, 80})) == 0);
  CHECK(count(pair_case("more channels of y than warps", {{1, 64, 7, 7}, 260, 80})) == 0);
  CHECK(count(pair_case("rows of pixels", {{1, 64, 7, 7}, 40, 80}, Lay::rows)) == 0);
  CHECK(count(pair_case("reversed", {{1, 64, 7, 7}, 40, 80}, Lay::reversed)) == 0);
  CHECK(count(narrowed(usual, {usual.graph.rops[0].outputs[1]}, DType::f16), Precision::fp16) == 0);  // y has not the residual's type
  CHECK(count(narrow_case(usual, DType::f16, true), Precision::tf32) == 0);
}

}  // namespace tamp::test
