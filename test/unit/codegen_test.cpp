// What a reader of the generated source relies on: legal and unique symbols whatever the model calls its nodes, exact
// division by multiplication, one copy of each real file, and the same bytes for the same rProgram.
#include <cstdint>

#include "codegen/amalgamate.h"
#include "codegen/emit.h"
#include "codegen/names.h"
#include "codegen/source_writer.h"
#include "codegen/weights.h"
#include "compiler/passes/passes.h"
#include "compiler/schedule/schedule.h"
#include "compiler/support/embedded.h"
#include "kernels/vdevice/numbers.cuh"
#include "test/support/catch.h"
#include "test/support/graph_text.h"

using namespace tamp;

namespace {

uint64_t divide(uint64_t x, const rk::Divisor& by) { return by.multiplier == 0 ? x : ((x * by.multiplier) >> 32) >> by.shift; }

RProgram small_program() {
  Graph graph = test::parse_graph(
      "x = input f32[1,3,9,9]\n"
      "w = const f32[5,3,3,3]\n"
      "c = Conv(x, w) {kernel=[3,3], strides=[1,1], pads=[1,1,1,1], dilations=[1,1], group=1} -> f32[1,5,9,9]\n"
      "y = Elementwise(c) {relu(i0)} -> f32[1,5,9,9]\n"
      "outputs(y)\n");
  for (const passes::Pass& pass : passes::pipeline()) graph = pass.run(std::move(graph));
  return schedule::schedule(std::move(graph), read_vdevice("cpu").without_inputs(), {});
}

}  // namespace

TEST_CASE("division by multiplication is exact below 2^31") {
  for (const int64_t divisor : {1, 2, 3, 5, 6, 7, 9, 49, 56, 112, 127, 128, 641, 12544, 50176, 65535, 65537, 1000003, 2147483647}) {
    const rk::Divisor by = rk::divisor(static_cast<uint32_t>(divisor));
    REQUIRE(by.divisor == divisor);
    for (const int64_t q : {int64_t{0}, int64_t{1}, int64_t{2}, (int64_t{1} << 31) / divisor / 2, (int64_t{1} << 31) / divisor - 1,
                            (int64_t{1} << 31) / divisor}) {
      for (const int64_t r : {int64_t{0}, int64_t{1}, divisor / 2, divisor - 1}) {
        const int64_t x = q * divisor + r;
        if (x < 0 || x >= (int64_t{1} << 31) || r >= divisor) continue;
        CAPTURE(divisor, x);
        REQUIRE(static_cast<int64_t>(divide(static_cast<uint64_t>(x), by)) == x / divisor);
      }
    }
  }
}

TEST_CASE("symbols are legal and unique") {
  codegen::Names names;
  CHECK(names.unique("a.b") == "a_b");
  CHECK(names.unique("a_b") == "a_b_2");
  CHECK(names.unique("1234") == "m_1234");
  CHECK(names.unique("int") == "m_int");
  CHECK(names.unique("") == "model");
  CHECK(names.unique("*/ int main(){}") == "int_main");
}

TEST_CASE("a model's name is kept unless somebody has it already") {
  for (const char* kept : {"resnet18", "m", "conv", "Net", "net", "VGG16", "tiny_yolov3", "exponent"})
    CHECK(codegen::safe_name(kept) == kept);
  for (const char* taken :
       {"string", "cuda_runtime", "test",          "all",   "exp",       "log",    "min",       "index",         "select", "read",
        "free",   "time",         "errno",         "linux", "constexpr", "NULL",   "tamp_api",  "tamp",          "cuInit", "INT_MAX",
        "EOF",    "FILE",         "pthread_mutex", "sem",   "timer",     "float4", "threadIdx", "package_source"}) {
    CAPTURE(taken);
    CHECK(codegen::safe_name(taken) == std::string("m_") + taken);
  }
  CHECK(codegen::safe_name("7 zip") == "m_7_zip");
}

TEST_CASE("a change of any byte of the weights changes their checksum") {
  for (const size_t size : {1, 31, 32, 33, 1000}) {
    Bytes data(size, std::byte{0});
    const uint64_t hash = codegen::hash_of(data);
    for (size_t at = 0; at < size; ++at) {
      for (const int bit : {0, 7}) {
        data[at] = static_cast<std::byte>(1 << bit);
        CHECK(codegen::hash_of(data) != hash);
        data[at] = std::byte{0};
      }
    }
    CHECK(codegen::hash_of(Bytes(size + 1, std::byte{0})) != hash);
  }
  // The upper bits of two words: a chain of multiplications alone lets them cancel.
  Bytes two(64, std::byte{0});
  two[7] = two[39] = std::byte{128};
  CHECK(codegen::hash_of(two) != codegen::hash_of(Bytes(64, std::byte{0})));
}

TEST_CASE("text from a model cannot leave its comment or string") {
  CHECK(codegen::comment("a */ int main(){} /*").find("*/") == std::string::npos);
  CHECK(codegen::comment("ends with \\").find('\\') == codegen::comment("ends with \\").find("\\x5c"));
  CHECK(codegen::comment("two\nlines").find('\n') == std::string::npos);
  CHECK(codegen::c_string("q\" \\ \n ?\?/") == "q\\042 \\134 \\012 \\077\\077/");
  CHECK(codegen::c_string("\xc3\xa9") == "\\303\\251");
}

TEST_CASE("amalgamation holds each file once, dependencies first") {
  std::set<std::string> done;
  const auto [for_tables, text] = codegen::amalgamate({"kernels/vdevice/interpreter.cuh", "kernels/vdevice/epilogue.cuh"}, done);
  CHECK(text.find(">>> kernels/vdevice/platform.cuh") < text.find(">>> kernels/vdevice/task.cuh"));
  CHECK(text.find(">>> kernels/vdevice/task.cuh") == text.rfind(">>> kernels/vdevice/task.cuh"));
  CHECK(text.find("#include \"") == std::string::npos);
  CHECK(text.find("#pragma once") == std::string::npos);
  // What tables need stands apart, with its comment, and nowhere else.
  CHECK(for_tables.find("// One phase of one rOperator.\nstruct Record {\n") != std::string::npos);
  CHECK(for_tables.find("struct Divisor {") < for_tables.find("constexpr Divisor divisor(uint32_t number) {"));
  CHECK(for_tables.find("struct Slot") == std::string::npos);
  CHECK(for_tables.find("in tables") == std::string::npos);
  for (const char* moved : {"struct Record {", "struct EpilogueArgs {", "in tables"}) CHECK(text.find(moved) == std::string::npos);
}

TEST_CASE("the arguments of every body are for tables") {
  std::set<std::string> done;
  for (const EmbeddedFile& file : embedded_files()) {
    if (!file.path.ends_with(".cuh")) continue;
    const std::string rest = codegen::amalgamate({std::string(file.path)}, done).rest;
    CAPTURE(file.path);
    CHECK(rest.find("Args {\n") == std::string::npos);  // the struct's first line lacks the comment "in tables"
  }
}

TEST_CASE("the writer owns indentation") {
  codegen::SourceWriter w;
  w.open("struct A");
  w.line("int {};", "x");
  w.close(";");
  CHECK(w.str() == "struct A {\n  int x;\n};\n");
}

TEST_CASE("the same rProgram gives the same bytes") {
  const codegen::EmitOptions options{"model", "model.onnx", false};
  const std::string first = codegen::cuda_source(small_program(), options);
  CHECK(first == codegen::cuda_source(small_program(), options));
  CHECK(first.find(" from model.onnx; do not edit") != std::string::npos);
  CHECK(first.find("/home") == std::string::npos);
}

TEST_CASE("vEUs without rTasks behind the last that has some are not launched") {
  RProgram program = small_program();
  REQUIRE(!program.lanes[0].empty());
  while (program.lanes.back().empty()) program.lanes.pop_back();
  const size_t used = program.lanes.size();
  const auto veus_of = [](const RProgram& of) {
    const std::string source = codegen::cuda_source(of, {"model", "model.onnx", false});
    const size_t at = source.find("/*veus=*/");
    REQUIRE(at != std::string::npos);
    return std::stoul(source.substr(at + std::string("/*veus=*/").size()));
  };
  CHECK(veus_of(program) == used);
  program.lanes.resize(used + 3);
  CHECK(veus_of(program) == used);
}

TEST_CASE("the weights file begins with its identity") {
  const RProgram program = small_program();
  const Bytes data = codegen::gather_weights(program);
  REQUIRE(static_cast<int64_t>(data.size()) == program.weight_bytes);
  Bytes other = data;
  other[0] ^= std::byte{1};
  CHECK(codegen::hash_of(data) != codegen::hash_of(other));
  CHECK(codegen::hash_of_weights(program) == codegen::hash_of(data));
  const auto header = [&](uint64_t structure) { return codegen::weights_header(program.weight_bytes, codegen::hash_of(data), structure); };
  CHECK(header(1).size() == 32);
  CHECK(header(1) != header(2));
}

TEST_CASE("the structure of a program is that of its code: not of its weights, its head, or what the head is made of") {
  const auto structure = [](const RProgram& program, const std::string& source_name, bool embeds) {
    return codegen::structure_of(program, {.name = "model", .source_name = source_name, .embed_weights = embeds});
  };
  const RProgram program = small_program();
  const uint64_t first = structure(program, "model.onnx", false);
  CHECK(structure(program, "model.onnx", false) == first);
  CHECK(structure(program, "other.onnx", true) == first);
  RProgram trained = small_program();
  for (Tensor& tensor : trained.graph.tensors) {
    if (!tensor.data) continue;
    Bytes other = *tensor.data;
    for (std::byte& byte : other) byte ^= std::byte{1};
    tensor.data = std::make_shared<const Bytes>(std::move(other));
  }
  trained.estimated_us += 1;
  CHECK(codegen::gather_weights(trained) != codegen::gather_weights(program));
  CHECK(structure(trained, "model.onnx", false) == first);
  RProgram larger = small_program();
  larger.memory.arena_bytes += 256;
  CHECK(structure(larger, "model.onnx", false) != first);
}

TEST_CASE("embedding weights that are too large is refused by name") {
  RProgram program = small_program();
  program.weight_bytes = int64_t{65} << 20;
  CHECK_THROWS_WITH(codegen::emit(program, {"model", "model.onnx", true}, "never_made"), Catch::Contains("--embed-weights"));
}
