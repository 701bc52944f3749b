// What a fuzzer calls with the bytes of a model. They are read as `tamp compile` reads a file, the graph goes through all passes, and where
// it is small the reference runs it. An Error is an answer; every other exception is a finding, and so is
// whatever a sanitizer reports.
#include "test/fuzz/import_fuzz.h"

#include <spdlog/spdlog.h>

#include <filesystem>
#include <fstream>
#include <memory>

#include "compiler/frontend/onnx_reader.h"
#include "compiler/ir/loops.h"
#include "compiler/ops/ops.h"
#include "compiler/passes/passes.h"
#include "compiler/support/error.h"
#include "compiler/support/files.h"

namespace tamp::test {
namespace {

// A file of its own in an empty folder, so that external data is never there. The folder goes when the process ends.
std::string written(const uint8_t* data, size_t size) {
  static const ScratchFolder folder(temporary_parent(), "tamp-fuzz-");
  const std::string path = (folder.path() / "model.onnx").string();
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file.write(reinterpret_cast<const char*>(data), static_cast<std::streamsize>(size));
  return path;
}

constexpr int64_t kMostElements = 1 << 14;  // of all tensors together, so that the reference takes milliseconds
constexpr int64_t kMostWork = 20'000'000;   // as ops::work_of counts

bool is_small(const Graph& graph) {
  int64_t elements = 0, work = 0;
  for (const Tensor& tensor : graph.tensors) {
    const int64_t count = element_count(tensor.shape);
    if (count > kMostElements || (elements += count) > kMostElements) return false;
  }
  for (const ROperator& rop : graph.rops) {
    const int64_t steps = ops::work_of(graph, rop);
    if (steps > kMostWork || (work += steps) > kMostWork) return false;
  }
  return true;
}

// Every byte is 1: small integers, tiny floats, true.
std::vector<ops::Value> inputs_of(const Graph& graph) {
  std::vector<ops::Value> values;
  for (const TensorId id : graph.inputs) {
    const Tensor& tensor = graph.tensor(id);
    const auto bytes = static_cast<size_t>(element_count(tensor.shape) * bytes_of(tensor.dtype));
    values.push_back({tensor.dtype, tensor.shape, std::make_shared<const Bytes>(bytes, Bytes::value_type{1})});
  }
  return values;
}

// A loop may say that it has 2^62 iterations, or end never.
void run_if_small(const Graph& graph) {
  if (is_small(graph) && !has_loops(graph)) ops::run(graph, inputs_of(graph));
}

void import(const std::string& path) {
  Graph graph = frontend::read_onnx(path, {});
  ops::verify_shapes(graph);
  run_if_small(graph);
  for (const passes::Pass& pass : passes::pipeline()) {
    graph = pass.run(std::move(graph));
    verify(graph);
  }
}

}  // namespace

bool try_import(const uint8_t* data, size_t size) {
  const std::string path = written(data, size);
  try {
    frontend::summarize_onnx(path);
  } catch (const Error&) {
  }
  try {
    import(path);
  } catch (const Error&) {
    return false;
  }
  return true;
}

}  // namespace tamp::test

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  spdlog::set_level(spdlog::level::off);
  tamp::test::try_import(data, size);
  return 0;
}
