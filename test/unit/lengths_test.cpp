// Programs with lengths of run time, and of several buckets: what they share, and what the generated files say of them.
#include <algorithm>
#include <nlohmann/json.hpp>

#include "codegen/codegen.h"
#include "compiler/compile.h"
#include "compiler/passes/passes.h"
#include "compiler/schedule/buckets.h"
#include "compiler/schedule/schedule.h"
#include "test/support/catch.h"
#include "test/support/graph_text.h"

using namespace tamp;
using Catch::Matchers::Contains;

namespace {

// A product of "seq" rows.
RProgram program_of(int64_t smallest, int64_t seq) {
  const std::string steps = std::to_string(seq);
  Graph graph = test::parse_graph("x = input f32[" + steps +
                                  ",64]\n"
                                  "w = const f32[64,64]\n"
                                  "a = MatMul(x, w) -> f32[" +
                                  steps +
                                  ",64]\n"
                                  "y = Elementwise(a) {tanh(i0)} -> f32[" +
                                  steps +
                                  ",64]\n"
                                  "outputs(y)\n");
  graph.lengths = {{"seq", smallest, seq}};
  graph.input_axes = graph.output_axes = {{{0, {0}}}};
  for (const passes::Pass& pass : passes::pipeline()) graph = pass.run(std::move(graph));
  RProgram program = schedule::schedule(std::move(graph), read_vdevice("cpu").without_inputs(), {});
  program.extents = {{0}};
  return program;
}

// As if the program's vEUs told each other words behind all else, and had scratch.
RProgram with_kept(RProgram program, int64_t scratch_elements) {
  program.rkernels[0].exchange_words = 4;
  program.rkernels[0].scratch_elements = scratch_elements;
  program.memory.scratch_offset[0] = 0;
  program.memory.exchange_offset[0] = scratch_elements * 4;
  program.memory.arena_bytes = scratch_elements * 4 + 256;
  return program;
}

RProgram with_buckets() {
  RProgram program = with_kept(program_of(5, 64), 640);
  program.smaller = {with_kept(program_of(1, 4), 64)};
  program.graph.lengths[0].smallest = 1;
  return program;
}

std::string message_of(const CompileOptions& options) {
  try {
    buckets_of(options);
    return "";
  } catch (const Error& error) {
    return error.what();
  }
}

}  // namespace

TEST_CASE("buckets share arena and weights, but not what is kept from run to run") {
  RProgram program = with_buckets();
  schedule::share_memory(program);
  RProgram& smaller = program.smaller[0];
  CHECK(schedule::verify_apart(program).empty());
  CHECK(program.memory.arena_bytes == 640 * 4 + 512);
  CHECK(smaller.memory.arena_bytes == program.memory.arena_bytes);
  CHECK(smaller.memory.scratch_offset[0] == 0);
  CHECK(program.memory.exchange_offset[0] == 640 * 4);
  CHECK(smaller.memory.exchange_offset[0] == 640 * 4 + 256);
  CHECK(smaller.weight_bytes == program.weight_bytes);
  SECTION("a word where another program computes") {
    smaller.memory.exchange_offset[0] = 0;
    CHECK(schedule::verify_apart(program).size() == 1);
  }
  SECTION("the same words") {
    smaller.memory.exchange_offset[0] = program.memory.exchange_offset[0];
    CHECK(schedule::verify_apart(program).size() == 2);
  }
}

TEST_CASE("equal weights of buckets are one") {
  RProgram alone = program_of(5, 64), program = alone;
  program.smaller = {program_of(1, 60)};
  REQUIRE(alone.rkernels[0].name == program.smaller[0].rkernels[0].name);
  schedule::share_memory(program);
  CHECK(program.weight_bytes == alone.weight_bytes);
  CHECK(program.smaller[0].weights[0].offset == program.weights[0].offset);
}

TEST_CASE("buckets are one source with an API for all of them") {
  RProgram program = with_buckets();
  schedule::share_memory(program);
  const codegen::EmitOptions options{"model", "model.onnx", false};
  const std::string source = codegen::cuda_source(program, options);
  CHECK(source == codegen::cuda_source(program, options));
  for (const char* text :
       {"// A program for seq up to 4, estimated ", "// A program for seq up to 64, estimated ", "namespace up_to_4 {",
        "using Veu = model_detail::up_to_64::Veu;", "const int64_t kBuckets[] = {4, 64};",
        "{&up_to_4::model(), up_to_4::kExtents, 1, up_to_4::kProducts},", "const tamp_length kLengths[] = {\n  {\"seq\", 1, 64, 1},",
        "tamp_status model_run_at(model_context* context, const model_lengths* lengths,"}) {
    CAPTURE(text);
    CHECK(source.find(text) != std::string::npos);
  }
  const auto count = [&](const std::string& text) {
    size_t found = 0;
    for (size_t at = source.find(text); at != std::string::npos; at = source.find(text, at + 1)) ++found;
    return found;
  };
  CHECK(count("\n__global__ void ") == 2);
  CHECK(count(">>> kernels/vdevice/interpreter.cuh") == 1);
  const auto json = nlohmann::json::parse(codegen::rprogram_text(program, options));
  CHECK(json.at("lengths") == nlohmann::json::parse(R"([{"name": "seq", "smallest": 1, "largest": 64}])"));
  CHECK(json.at("inputs")[0].at("axes") == nlohmann::json::parse(R"([{"dim": 0, "length": 0, "times": 1, "plus": 0, "over": 1}])"));
  CHECK(json.at("smaller").size() == 1);
  CHECK(json.at("smaller")[0].at("inputs")[0].at("shape") == nlohmann::json::parse("[4, 64]"));
}

TEST_CASE("a program without lengths says nothing of them") {
  RProgram program = program_of(1, 4);
  program.graph.lengths.clear();
  program.graph.input_axes.clear();
  program.graph.output_axes.clear();
  program.extents.clear();
  const std::string source = codegen::cuda_source(program, {"model", "model.onnx", false});
  CHECK(source.find("lengths.h") == std::string::npos);
  CHECK(source.find("run_at") == std::string::npos);
}

TEST_CASE("one dimension may have buckets, each a program for the values above those before") {
  CompileOptions options;
  options.ranges["seq"] = {1, {1, 16, 64}};
  options.ranges["rows"] = {2, {8}};
  const Buckets buckets = buckets_of(options);
  CHECK(buckets.largest == std::vector<int64_t>{1, 16, 64});
  REQUIRE(buckets.options.size() == 3);
  CHECK(buckets.options[0].dims.at("seq") == 1);
  CHECK(!buckets.options[0].ranges.contains("seq"));
  CHECK(buckets.options[1].ranges.at("seq") == DimRange{2, {16}});
  CHECK(buckets.options[2].ranges.at("seq") == DimRange{17, {64}});
  CHECK(buckets.options[2].ranges.at("rows") == DimRange{2, {8}});
  options.batches = {1, {2, 4}};
  CHECK_THAT(message_of(options), Contains("--dim seq and --batch have several buckets each"));
  options.ranges.erase("seq");
  CHECK(buckets_of(options).options[0].batches == DimRange{1, {2}});
  options.schedule = "file";
  CHECK_THAT(message_of(options), Contains("a schedule is of one"));
}
