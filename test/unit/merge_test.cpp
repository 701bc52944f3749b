// IOS-Merge: convolutions on the same input that become one, and the policies that decide it.
#include <fmt/format.h>

#include <algorithm>
#include <random>

#include "compiler/compile.h"
#include "compiler/passes/passes.h"
#include "compiler/passes/place/assign_layout.h"
#include "compiler/passes/place/merge_convolutions.h"
#include "compiler/schedule/dependencies.h"
#include "compiler/schedule/launches.h"
#include "compiler/schedule/plan.h"
#include "compiler/schedule/schedule_file.h"
#include "compiler/schedule/simulate.h"
#include "compiler/support/text.h"
#include "test/support/check_pass.h"
#include "test/support/thrown.h"

using namespace tamp;
using namespace tamp::test;
using Catch::Matchers::Contains;
using schedule::Execution;
using schedule::Policy;

namespace {

// A 1x1 next to a 3x3 on `x`, as in SqueezeNet.
const char* const kFire = R"(
x = input f32[1,6,5,5]
s = const f32[8,6,1,1]
v = const f32[4,8,1,1]
w = const f32[8,8,3,3]
c = const f32[8]
sx = Conv(x, s) {kernel=[1,1]} epilogue{act=relu} -> f32[1,8,5,5]
a = Conv(sx, v) {kernel=[1,1]} epilogue{act=relu} -> f32[1,4,5,5]
b = Conv(sx, w) {kernel=[3,3], pads=[1,1,1,1]} epilogue{bias=c, act=relu} -> f32[1,8,5,5]
ab = Concat(a, b) {axis=1} -> f32[1,12,5,5]
y = MaxPool(ab) {kernel=[3,3]} -> f32[1,12,3,3]
outputs(y)
)";

// Two of `x`, written as "kernel, pads, strides, dilations, epilogue", and their results as outputs.
Graph two(const std::string& first, const std::string& first_shape, const std::string& second, const std::string& second_shape,
          const std::string& v, const std::string& w) {
  return parse_graph("x = input f32[2,3,7,7]\nv = const f32" + v + "\nw = const f32" + w + "\na = Conv(x, v) " + first +
                     "\nb = Conv(x, w) " + second + "\np = MaxPool(a) {kernel=[1,1]} -> f32" + first_shape +
                     "\nq = MaxPool(b) {kernel=[1,1]} -> f32" + second_shape + "\noutputs(p, q)");
}

// Convolutions of all kernels up to 3x3 on one input, some of them with an activation, and what reads them: Concats of some, a pool,
// outputs.
Graph random_branches(unsigned seed) {
  std::mt19937 random(seed);
  const auto pick = [&](int low, int high) { return std::uniform_int_distribution<int>(low, high)(random); };
  const int stride = pick(1, 2), dilation = stride == 1 ? pick(1, 2) : 1, extent = pick(4, 9), out = (extent - 1) / stride + 1;
  std::string text = fmt::format("x = input f32[{},5,{},{}]\n", pick(1, 2), extent, extent), rops;
  const int batch = text[text.find('[') + 1] - '0', count = pick(2, 5);
  std::vector<int> channels;
  for (int i = 0; i < count; ++i) {
    const int ky = 2 * pick(0, 1) + 1, kx = 2 * pick(0, 1) + 1, py = ky / 2 * dilation, px = kx / 2 * dilation;
    channels.push_back(pick(1, 9));
    text += fmt::format("w{} = const f32[{},5,{},{}]\nb{} = const f32[{}]\n", i, channels.back(), ky, kx, i, channels.back());
    std::string epilogue = pick(0, 1) == 0 ? fmt::format("bias=b{}", i) : "";
    if (pick(0, 3) == 0) epilogue += epilogue.empty() ? "act=relu" : ", act=relu";
    rops +=
        fmt::format("c{} = Conv(x, w{}) {{kernel=[{},{}], strides=[{},{}], pads=[{},{},{},{}], dilations=[{},{}]}}{} -> f32[{},{},{},{}]\n",
                    i, i, ky, kx, stride, stride, py, px, py, px, dilation, dilation, epilogue.empty() ? "" : " epilogue{" + epilogue + "}",
                    batch, channels.back(), out, out);
  }
  std::string outputs;
  for (int j = 0; j < pick(1, 3); ++j) {
    std::vector<std::string> parts;
    int sum = 0;
    for (int k = 0; k < pick(1, 4); ++k) {
      const int i = pick(0, count - 1);
      parts.push_back(fmt::format("c{}", i));
      sum += channels[static_cast<size_t>(i)];
    }
    rops += fmt::format("j{} = Concat({}) {{axis=1}} -> f32[{},{},{},{}]\n", j, join(parts, ", "), batch, sum, out, out);
    const bool pooled = pick(0, 1) == 0;
    if (pooled) rops += fmt::format("p{} = MaxPool(j{}) {{kernel=[1,1]}} -> f32[{},{},{},{}]\n", j, j, batch, sum, out, out);
    outputs += fmt::format("{}{}{}", outputs.empty() ? "" : ", ", pooled ? "p" : "j", j);
  }
  for (int i = 0; i < count; ++i) {
    if (pick(0, 3) == 0) outputs += fmt::format(", c{}", i);
  }
  return parse_graph(text + rops + "outputs(" + outputs + ")");
}

// Everything that can be one is.
Graph all_merged(const Graph& graph) {
  Graph merged = passes::merge_convolutions(graph, passes::mergeable(graph));
  CHECK(passes::mergeable(merged).empty());
  return merged;
}

void check_merged(const Graph& graph, int convolutions) {
  const Graph merged = all_merged(graph);
  CHECK(count_rops(merged, "Conv") == convolutions);
  check_pass(graph, merged);
  check_pass(graph, passes::assign_layout(merged));
}

Graph through_passes(Graph graph, std::optional<Graph>& unplaced) {
  const std::vector<passes::Pass> pipeline = passes::pipeline();
  for (const passes::Pass& pass : pipeline) {
    if (&pass == &pipeline.back()) unplaced = graph;
    graph = pass.run(std::move(graph));
  }
  return graph;
}

}  // namespace

TEST_CASE("a 1x1 becomes one with the 3x3 next to it, and the Concat of both is gone") {
  const Graph graph = parse_graph(kFire);
  CHECK(passes::mergeable(graph) == std::vector<Merge>{{"a", "b"}});
  const Graph merged = all_merged(graph);
  check_pass(graph, merged);
  CHECK(count_rops(merged, "Conv") == 2);
  CHECK(count_rops(merged, "Concat") == 0);
  const Graph placed = passes::assign_layout(merged);
  check_pass(graph, placed);
  CHECK(placed.rops.size() == 3);  // no copies
  const auto found = std::find_if(placed.rops.begin(), placed.rops.end(), [](const ROperator& rop) { return rop.name == "a+b"; });
  REQUIRE(found != placed.rops.end());
  CHECK(std::get<Conv>(found->attrs).kernel == std::vector<int64_t>{3, 3});
  CHECK(found->origin == std::vector<std::string>{"a", "b", "ab"});
}

TEST_CASE("channels have the order of the Concat, whatever the order of the convolutions") {
  std::string text = kFire;
  const size_t at = text.find("Concat(a, b)");
  text.replace(at, 12, "Concat(b, a)");
  const Graph graph = parse_graph(text);
  const Graph placed = passes::assign_layout(all_merged(graph));
  check_pass(graph, placed);
  CHECK(placed.rops.size() == 3);
}

TEST_CASE("kernels are padded to one that covers them, where the input is the same") {
  // 1x3 and 3x1: 3x3.
  check_merged(two("{kernel=[1,3], pads=[0,1,0,1]} -> f32[2,4,7,7]", "[2,4,7,7]", "{kernel=[3,1], pads=[1,0,1,0]} -> f32[2,2,7,7]",
                   "[2,2,7,7]", "[4,3,1,3]", "[2,3,3,1]"),
               1);
  // Stride 2, where the 1x1 has no pads and the 3x3 has.
  check_merged(two("{kernel=[1,1], strides=[2,2]} -> f32[2,4,4,4]", "[2,4,4,4]",
                   "{kernel=[3,3], strides=[2,2], pads=[1,1,1,1]} -> f32[2,2,4,4]", "[2,2,4,4]", "[4,3,1,1]", "[2,3,3,3]"),
               1);
  // Dilated, with pads of different sizes on both sides.
  check_merged(two("{kernel=[2,2], pads=[0,2,2,0], dilations=[2,2]} -> f32[2,4,7,7]", "[2,4,7,7]",
                   "{kernel=[3,3], pads=[2,2,2,2], dilations=[2,2]} -> f32[2,2,7,7]", "[2,2,7,7]", "[4,3,2,2]", "[2,3,3,3]"),
               1);
}

TEST_CASE("what differs in more than its kernel is left alone") {
  const std::string pointwise = "{kernel=[1,1]} -> f32[2,4,7,7]", shape = "[2,4,7,7]", weights = "[4,3,1,1]";
  const auto left_alone = [&](const std::string& other, const std::string& other_shape, const std::string& other_weights) {
    INFO(other);
    check_merged(two(pointwise, shape, other, other_shape, weights, other_weights), 2);
  };
  left_alone("{kernel=[1,1], strides=[2,2]} -> f32[2,4,4,4]", "[2,4,4,4]", weights);                  // strides
  left_alone("{kernel=[3,3]} -> f32[2,4,5,5]", "[2,4,5,5]", "[4,3,3,3]");                             // extents of the result
  left_alone("{kernel=[1,1]} epilogue{act=relu} -> f32[2,4,7,7]", shape, weights);                    // activation
  left_alone("{kernel=[2,2], pads=[1,1,1,1], dilations=[2,2]} -> f32[2,4,7,7]", shape, "[4,3,2,2]");  // dilations
  left_alone("{kernel=[1,1], group=3} -> f32[2,3,7,7]", "[2,3,7,7]", "[3,1,1,1]");                    // groups
  // The 1x1 would have to lie between taps.
  check_merged(two("{kernel=[3,3], pads=[2,2,2,2], dilations=[2,2]} -> f32[2,4,7,7]", shape,
                   "{kernel=[2,2], pads=[1,1,1,1], dilations=[2,2]} -> f32[2,4,7,7]", shape, "[4,3,3,3]", "[4,3,2,2]"),
               2);
}

TEST_CASE("a merged result may be a graph output, be read by several, and be in a Concat with others between") {
  const Graph graph = parse_graph(R"(
x = input f32[1,4,5,5]
v = const f32[3,4,1,1]
w = const f32[4,4,3,3]
u = const f32[2,4,1,1]
a = Conv(x, v) {kernel=[1,1]} -> f32[1,3,5,5]
b = Conv(x, w) {kernel=[3,3], pads=[1,1,1,1]} -> f32[1,4,5,5]
c = Conv(x, u) {kernel=[1,1]} -> f32[1,2,5,5]
m = MaxPool(x) {kernel=[1,1]} -> f32[1,4,5,5]
y = Concat(a, m, b, c) {axis=1} -> f32[1,13,5,5]
z = Concat(b, c) {axis=1} -> f32[1,6,5,5]
r = Reduce(c) {kind=mean, axes=[2,3]} -> f32[1,2,1,1]
outputs(y, b, z, r)
)");
  check_merged(graph, 1);
  for (const Merge& some : {Merge{"a", "b"}, Merge{"c", "b"}, Merge{"a", "c"}}) {
    const Graph merged = passes::merge_convolutions(graph, {some});
    check_pass(graph, merged);
    check_pass(graph, passes::assign_layout(merged));
  }
}

TEST_CASE("two Concats of the same convolutions, one of them an output") {
  std::string text = kFire;
  text.replace(text.find("outputs(y)"), 10, "ba = Concat(a, b) {axis=1} -> f32[1,12,5,5]\noutputs(y, ba, ab)");
  check_merged(parse_graph(text), 2);
}

TEST_CASE("what cannot be merged is refused by name") {
  const Graph graph = parse_graph(kFire);
  const auto refused = [&](const std::vector<Merge>& merges, const std::string& says) {
    CHECK_THROWS_WITH(passes::merge_convolutions(graph, merges), Contains("cannot be one convolution") && Contains(says));
  };
  refused({{"a"}}, "two or more");
  refused({{"a", "nobody"}}, "'nobody'");
  refused({{"a", "a"}}, "'a' is merged twice");
  refused({{"a", "y"}}, "'y' is none that can be merged");
  refused({{"sx", "a"}}, "they differ in input");
}

TEST_CASE("random convolutions on one input keep their answers when all that can be merged is") {
  for (unsigned seed = 0; seed < 150; ++seed) {
    INFO("seed " << seed);
    std::optional<Graph> unplaced;
    const Graph placed = through_passes(random_branches(seed), unplaced);
    check_pass(*unplaced, placed);
    const std::vector<Merge> classes = passes::mergeable(*unplaced);
    const Graph after = passes::merge_convolutions(*unplaced, classes);
    CHECK(after.rops.size() > 0);
    check_pass(*unplaced, after);
    check_pass(*unplaced, passes::assign_layout(after));
  }
}

TEST_CASE("the policies of IOS are accepted on them, never estimated slower for merging, and the same when read again") {
  int merged = 0;
  for (unsigned seed = 0; seed < 40; ++seed) {
    std::optional<Graph> unplaced;
    const Graph placed = through_passes(random_branches(seed), unplaced);
    const Merger merger = merger_of(*unplaced);
    const ShapedVDevice vdevice = read_vdevice("h200").without_inputs();
    const select::Machine machine = select::machine_for(placed, vdevice, Precision::fp32);
    const schedule::Dependencies found = schedule::find_dependencies(placed);
    for (const auto execution : {Execution::persistent, Execution::graph}) {
      for (const Policy policy : {Policy::ios, Policy::ios_merge}) {
        INFO("seed " << seed << " " << schedule::name_of(policy) << (execution == Execution::graph ? " graph" : ""));
        schedule::ScheduleOptions options;
        options.policy = policy;
        options.execution = execution;
        const schedule::PolicyInput input{placed, machine, found.producers, found.is_view, kernels::families(), options};
        const double unmerged_us = schedule::Simulator(machine).run(schedule::plan_of(policy, input), execution);
        options.merger = &merger;
        const RProgram program = schedule::schedule(placed, vdevice, options);
        CHECK(schedule::verify(program) == std::vector<std::string>{});
        if (program.launches) CHECK(schedule::verify_launches(program) == std::vector<std::string>{});
        if (program.merges.empty()) continue;
        ++merged;
        const schedule::PolicyInput with_merger{placed, machine, found.producers, found.is_view, kernels::families(), options};
        const schedule::Planned planned = schedule::planned(policy, with_merger);
        CHECK(schedule::Simulator(machine).run(planned.plan, execution) < unmerged_us);
        const std::string text = schedule::schedule_text(program, 0);
        const RProgram again = schedule::read_schedule(text, "s.json", placed, vdevice, options, 0);
        CHECK(print(again) == print(program));
        CHECK(schedule::schedule_text(again, 0) == text);
        options.merger = nullptr;
        CHECK_THROWS_WITH(schedule::read_schedule(text, "s.json", placed, vdevice, options, 0), Contains("s.json: it merges convolutions"));
      }
    }
  }
  CHECK(merged > 10);
}

TEST_CASE("kernels that follow each other are merged, since that is one edge less") {
  std::optional<Graph> unplaced;
  const Graph placed = through_passes(parse_graph(kFire), unplaced);
  const Merger merger = merger_of(*unplaced);
  schedule::ScheduleOptions options;
  options.policy = Policy::ios_merge;
  options.execution = Execution::graph;
  options.merger = &merger;
  const RProgram program = schedule::schedule(placed, read_vdevice("h200").without_inputs(), options);
  CHECK(program.merges == std::vector<Merge>{{"a", "b"}});
  CHECK(program.graph.rops.size() == 3);
  // A schedule of convolutions that this model does not have.
  std::string text = schedule::schedule_text(program, 0);
  text.replace(text.find("[\"a\", \"b\"]"), 10, "[\"a\", \"e\"]");
  CHECK_THROWS_WITH(schedule::read_schedule(text, "s.json", placed, program.vdevice, options, 0),
                    Contains("s.json: 'a', 'e' cannot be one convolution: the model has no rOperator 'e'"));
}

TEST_CASE("with a meter, convolutions are merged or not as it says") {
  std::optional<Graph> unplaced;
  const Graph placed = through_passes(parse_graph(kFire), unplaced);
  const Merger merger = merger_of(*unplaced);
  for (const double merged_us : {1.0, 1000.0}) {
    for (const auto execution : {Execution::persistent, Execution::graph}) {
      const schedule::StageMeter meter = [&](const std::vector<schedule::StageJob>& jobs) {
        std::vector<std::vector<double>> us;
        for (const schedule::StageJob& job : jobs) {
          CHECK(schedule::verify(job.program) == std::vector<std::string>{});
          us.emplace_back();
          const bool is_merged = job.program.graph.rops.size() < placed.rops.size();
          for (const schedule::Stage& stage : job.stages)
            us.back().push_back(is_merged ? merged_us : 10.0 * static_cast<double>(stage.size()));
        }
        return us;
      };
      schedule::ScheduleOptions options;
      options.policy = Policy::ios_merge;
      options.execution = execution;
      options.merger = &merger;
      options.meter = &meter;
      const RProgram program = schedule::schedule(placed, read_vdevice("h200").without_inputs(), options);
      CHECK(program.merges.size() == (merged_us < 10 ? 1 : 0));
    }
  }
}

TEST_CASE("--ios chooses between the policies of IOS and is for no other") {
  CHECK(schedule::ios_policy(Policy::ios, "merge") == Policy::ios_merge);
  CHECK(schedule::ios_policy(Policy::ios, "parallel") == Policy::ios_parallel);
  CHECK(schedule::ios_policy(Policy::ios, "both") == Policy::ios);
  CHECK_THROWS_WITH(schedule::ios_policy(Policy::ios, "none"), Contains("--ios 'none'") && Contains("merge, parallel, both"));
  CHECK_THROWS_WITH(schedule::ios_policy(Policy::list, "merge"), Contains("for policy ios, found 'list'"));
}
