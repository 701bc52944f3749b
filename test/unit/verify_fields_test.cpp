// Whatever number of a compiled program is changed, somebody notices: the verifier, or the emitter. Or nothing of what is emitted changes,
// or the field is one of those below, with the reason why nobody need notice (docs/verifier.md, "Who proves what").
#include <algorithm>
#include <map>
#include <random>

#include "codegen/codegen.h"
#include "codegen/weights.h"
#include "compiler/frontend/generation.h"
#include "compiler/passes/passes.h"
#include "compiler/passes/place/narrow_activations.h"
#include "compiler/schedule/launches.h"
#include "compiler/schedule/schedule.h"
#include "compiler/schedule/token_boundary.h"
#include "compiler/select/records.h"
#include "test/support/catch.h"
#include "test/support/graph_text.h"
#include "test/support/program_fields.h"
#include "test/support/tiny_programs.h"

using namespace tamp;
using namespace tamp::test;

namespace {

using Execution = schedule::Execution;

struct Believed {
  const char* path;  // a prefix
  const char* why;
};
const Believed kBelieved[] = {
    // What is proved of whatever stands there, so that others may be right, too. verify_mutants asks an oracle.
    {"lanes", "lanes that are accepted are in order"},
    {"events", "so are their events"},
    {"launches", "and launches"},
    {"memory.buffer_offset", "a place that is accepted is nobody else's at the time"},
    {"memory.scratch_offset", "the same"},
    {"memory.exchange_offset", "the same"},
    {"memory.words_offset", "the same"},
    {"memory.words_bytes", "the same"},
    {"weights.offset", "the same"},
    {"memory.arena_bytes", "a larger arena; a smaller one is refused"},
    {"weight_bytes", "a larger file; a smaller one is refused"},
    {"graph.buffers.elements", "a larger buffer; a smaller one is refused"},
    {"vdevice", "another device, for which the program is proved"},
    // For people, and for choices that were made before.
    {"policy", "a name"},
    {"graph.name", "a name"},
    {"graph.loops.name", "a name"},
    {"graph.tensors.name", "a name"},
    {"graph.rops.name", "a name"},
    {"graph.rops.origin", "a name"},
    {"weights.name", "a name"},
    {"precision", "a name, where rKernels are the same in both"},
    {"merges", "for schedule files"},
    {"depth", "for people"},
    {"estimated_us", "for people"},
    {"rkernels.measured", "for people"},
    {"rkernels.phases.cost", "choices and estimates"},
    {"weights_in_l2", "times only"},
    {"veus_by_sm", "times only"},
    // What the program is to do, which is not said a second time.
    {"graph.rops.inputs", "constants that are packed"},
    {"graph.rops.epilogue", "biases that are packed"},
    {"graph.tensors.role", "of constants that nobody reads in place"},
    {"graph.tensors.place", "which elements of a buffer a view is"},
    {"graph.input_types", "types for callers"},
    {"graph.output_types", "types for callers"},
    {"graph.padded", "which output counts which"},
    {"graph.lengths", "what callers may say"},
    {"graph.input_axes", "shapes for callers"},
    {"graph.output_axes", "the same"},
    {"guards", "a guard that is accepted leaves away what no run needs"},
    {"extents.longer", "one that nobody asks for"},
    {"generation.is_there", "one run makes one token, too"},
    {"generation.inputs", "what an input is in the next run, inside of it"},
    {"generation.feeds", "which output is that of another run's input, of its type"},
    {"generation.scores", "for people"},
    {"generation.places", "what callers may ask for"},
    {"generation.stops", "which tokens end a text"},
};

bool is_believed(const std::string& path) {
  return std::any_of(std::begin(kBelieved), std::end(kBelieved), [&](const Believed& b) { return path.starts_with(b.path); });
}

Graph placed(const std::string& text) {
  Graph graph = parse_graph(text);
  for (const passes::Pass& pass : passes::pipeline()) graph = pass.run(std::move(graph));
  return graph;
}

// `wanted`: rKernels with this in their names are taken wherever there are any.
RProgram scheduled(Graph graph, const ShapedVDevice& vdevice, Precision precision, const std::string& wanted,
                   Execution execution = Execution::persistent) {
  if (precision == Precision::fp16) {
    const auto takes = [&](const Graph& narrow, const ROperator& rop) {
      return !select::candidates_in_program(kernels::families(), {narrow, rop, vdevice, precision}).empty();
    };
    graph = passes::narrow_activations(std::move(graph), DType::f16, takes);
  }
  std::vector<std::string> forced;
  for (const ROperator& rop : graph.rops) {
    forced.emplace_back();
    for (const RKernel& rkernel : select::candidates_in_program(kernels::families(), {graph, rop, vdevice, precision})) {
      if (forced.back().empty() && !wanted.empty() && rkernel.name.find(wanted) != std::string::npos)
        forced.back() = select::identity(rkernel);
    }
  }
  schedule::ScheduleOptions options;
  options.precision = precision;
  options.execution = execution;
  options.gangs = execution == Execution::persistent;
  options.forced = &forced;
  return schedule::schedule(graph, vdevice, options);
}

// Boxes, rings, sums of splits, bodies without either, a residual.
const std::string kConvolutions = R"(
  x = input f32[1,256,7,7]
  u = const f32[256,1,3,3]
  v = const f32[64,256,1,1]
  w = const f32[64,256,3,3]
  a = Conv(x, u) {kernel=[3,3], strides=[1,1], pads=[1,1,1,1], dilations=[1,1], group=256} -> f32[1,256,7,7]
  b = Conv(a, v) {kernel=[1,1], strides=[1,1], pads=[0,0,0,0], dilations=[1,1], group=1} -> f32[1,64,7,7]
  c = Conv(a, w) {kernel=[3,3], strides=[1,1], pads=[1,1,1,1], dilations=[1,1], group=1} epilogue{residual=b} -> f32[1,64,7,7]
  y = MaxPool(c) {kernel=[3,3], strides=[2,2], pads=[1,1,1,1]} -> f32[1,64,4,4]
  outputs(y)
)";

// A gang.
const std::string kRecurrent = R"(
  x = input f32[5,1,48]
  w = const f32[1024,48]
  r = const f32[1024,256]
  y, h = Recurrent(x, w, r) {batch=1, cell=[kind=LSTM steps=5 hidden=256 x=0 w=1 r=2 y=0 y_h=1]} -> f32[5,1,256], f32[1,256]
  outputs(y, h)
)";

// Splits of a tile in a cluster.
const std::string kRows = R"(
  x = input f32[128,3072]
  w = const f32[3072,256]
  a = Elementwise(x) {relu(i0)} -> f32[128,3072]
  b = MatMul(a, w) -> f32[128,256]
  y = Elementwise(b) {relu(i0)} -> f32[128,256]
  outputs(y)
)";

// Rows of which there may be fewer, dense for the caller.
Graph placed_rows() {
  Graph graph = parse_graph(R"(
    x = input f32[128,64]
    w = const f32[64,64]
    p = Pad(x) {before=[0,0], after=[0,0]} -> f32[128,64]
    b = MatMul(p, w) -> f32[128,64]
    y = Elementwise(b) {relu(i0)} -> f32[128,64]
    outputs(y)
  )");
  graph.lengths = {{"rows", 1, 128}};
  graph.input_axes = graph.output_axes = {{{0, {0}}}};
  auto& pad = std::get<Pad>(graph.rops[0].attrs);
  pad.ends = {{0, {0}}};
  pad.packed = Packed::in;
  for (const passes::Pass& pass : passes::pipeline()) graph = pass.run(std::move(graph));
  return graph;
}

// A loop.
const std::string kLoop = R"(
  x = input f32[64,64]
  go = input bool[]
  w = const f32[64,64]
  c, v = LoopBegin(go, x) {loop=0} -> bool[], f32[64,64]
  p = MatMul(v, w) -> f32[64,64]
  m = Reduce(p) {kind=max, axes=[0,1], keepdims=0} -> f32[]
  n = Elementwise(m) {less(i0, i0)} -> bool[]
  d, y = LoopEnd(c, v, n, p) {loop=0} -> bool[], f32[64,64]
  outputs(y)
)";

// A step that makes tokens, with a state that is swapped.
RProgram scheduled_tokens(const ShapedVDevice& vdevice) {
  Graph graph = parse_graph(R"(
    ids = input i64[1]
    state_in = input f32[1,64]
    table = const f32[6,64]
    w = const f32[64,6]
    row = Gather(table, ids) {axis=0} -> f32[1,64]
    state_out = Elementwise(row, state_in) {add(i0, i1)} -> f32[1,64]
    logits = MatMul(state_out, w) -> f32[1,6]
    outputs(state_out, logits)
  )");
  Generation generation = frontend::add_generation(graph, {});
  for (const passes::Pass& pass : passes::pipeline()) graph = pass.run(std::move(graph));
  RProgram program = scheduled(std::move(graph), vdevice, Precision::fp32, "");
  schedule::add_token_boundary(program, std::move(generation));
  return program;
}

std::vector<std::pair<std::string, RProgram>> programs() {
  const VDevice h200 = read_vdevice("h200");
  ShapedVDevice clusters = h200.with_clusters();
  clusters.wide_products = clusters.even_stages = true;
  std::vector<std::pair<std::string, RProgram>> all;
  all.emplace_back("convolutions", scheduled(placed(kConvolutions), h200.with_inputs(), Precision::tf32, "split"));
  all.emplace_back("convolutions, graph", scheduled(placed(kConvolutions), h200.with_inputs(), Precision::tf32, "split", Execution::graph));
  all.emplace_back("step", scheduled(placed(kTinyStep), h200.with_inputs(), Precision::fp16, ""));
  all.emplace_back("recurrent", scheduled(placed(kRecurrent), h200.without_inputs(), Precision::fp32, ""));
  all.emplace_back("loop", scheduled(placed(kLoop), h200.with_inputs(), Precision::fp16, ""));
  all.emplace_back("lengths", scheduled(placed_rows(), h200.with_inputs(), Precision::tf32, ""));
  all.emplace_back("tokens", scheduled_tokens(h200.without_inputs()));
  all.emplace_back("rows", scheduled(placed(kRows), clusters, Precision::fp16, "cluster"));
  return all;
}

std::vector<std::string> verdict(const RProgram& program) {
  std::vector<std::string> violations = schedule::verify(program);
  if (violations.empty() && program.launches) violations = schedule::verify_launches(program);
  return violations;
}

struct Emitted {
  std::string source;
  Bytes weights;
  bool operator==(const Emitted&) const = default;
};
Emitted emitted(const RProgram& program) {
  return {codegen::cuda_source(program, {.name = "net", .source_name = "net.onnx"}), codegen::gather_weights(program)};
}

}  // namespace

TEST_CASE("the programs have all that a program can have") {
  bool boxes = false, words = false, gang = false, cluster = false, splits = false, launches = false;
  for (const auto& [name, program] : programs()) {
    INFO(name);
    CHECK(verdict(program) == std::vector<std::string>{});
    launches |= program.launches.has_value();
    for (const RKernel& rkernel : program.rkernels) {
      gang |= rkernel.exchange_words > 0;
      for (const Phase& phase : rkernel.phases) {
        boxes |= phase.boxes.has_value(), words |= phase.words != 0, cluster |= phase.cluster > 1;
        splits |= phase.boxes && phase.boxes->splits > 1;
      }
    }
  }
  CHECK(boxes);
  CHECK(words);
  CHECK(gang);
  CHECK(cluster);
  CHECK(splits);
  CHECK(launches);
}

TEST_CASE("a changed field is noticed, or changes nothing, or is known to be believed") {
  std::mt19937 random(1);
  constexpr int kOfAPath = 8;  // changes
  for (auto& [name, program] : programs()) {
    const Emitted right = emitted(program);
    std::vector<Field> fields = FieldsOf(program).take();
    std::map<std::string, std::vector<const Field*>> by_path;
    for (const Field& field : fields) by_path[field.path].push_back(&field);
    for (const auto& [path, same] : by_path) {
      for (int n = 0; n < kOfAPath; ++n) {
        const unsigned how = random() % 8;
        const auto undo = same[random() % same.size()]->change(how);
        if (!undo) continue;
        const std::vector<std::string> violations = verdict(program);
        if (violations.empty() && !is_believed(path)) {
          bool differs = false;
          try {
            differs = emitted(program) != right;
          } catch (const std::exception&) {  // the emitter noticed
          }
          if (differs) FAIL_CHECK(name << ": " << path << " changed in way " << how << ", which nobody noticed");
        }
        undo();
      }
    }
    CHECK(verdict(program) == std::vector<std::string>{});
    CHECK(emitted(program) == right);
  }
}
