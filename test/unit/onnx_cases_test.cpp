// ONNX's own cases of the operators of transformers, by the frontend and the reference: what is imported means what ONNX says. Bodies on
// the device are compared with the reference elsewhere. TAMP_ONNX_CASES names more folders with cases (model.onnx, test_data_set_0),
// separated by colons; by hand, for newer cases than Debian's.
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <sstream>

#include "compiler/frontend/onnx_reader.h"
#include "compiler/ops/call.h"
#include "compiler/ops/ops.h"
#include "compiler/support/error.h"
#include "test/support/catch.h"

namespace tamp {
namespace {

namespace fs = std::filesystem;

std::vector<ops::Value> tensors(const fs::path& folder, const std::string& kind) {
  std::vector<ops::Value> values;
  for (;;) {
    const fs::path path = folder / "test_data_set_0" / (kind + "_" + std::to_string(values.size()) + ".pb");
    if (!fs::exists(path)) return values;
    values.push_back(frontend::read_tensor_pb(path.string()));
  }
}

// Empty where they agree; rtol 1e-3 and atol 1e-5, for f16 and bf16 1e-2 and 1e-3.
std::string difference(const ops::Value& got, const ops::Value& expected) {
  if (got.dtype != expected.dtype || got.shape != expected.shape) return "has another type or shape";
  const bool is_narrow = got.dtype == DType::f16 || got.dtype == DType::bf16;
  const double relative = is_narrow ? 1e-2 : 1e-3, absolute = is_narrow ? 1e-3 : 1e-5;
  const ops::Numbers<double> a(got), b(expected);
  for (int64_t i = 0; i < element_count(got.shape); ++i) {
    const bool same =
        a[i] == b[i] || (std::isnan(a[i]) && std::isnan(b[i])) || std::fabs(a[i] - b[i]) <= absolute + relative * std::fabs(b[i]);
    if (!same) return "element " + std::to_string(i) + " is " + std::to_string(a[i]) + ", expected " + std::to_string(b[i]);
  }
  return "";
}

std::string problem_of(const fs::path& folder) {
  try {
    const Graph graph = frontend::read_onnx((folder / "model.onnx").string(), {});
    const std::vector<ops::Value> results = ops::run(graph, tensors(folder, "input")), expected = tensors(folder, "output");
    if (results.size() != expected.size()) return "has " + std::to_string(results.size()) + " outputs";
    for (size_t k = 0; k < results.size(); ++k) {
      const std::string found = difference(results[k], expected[k]);
      if (!found.empty()) return "output " + std::to_string(k) + ": " + found;
    }
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

bool begins_with_any(const std::string& name, std::initializer_list<const char*> beginnings) {
  for (const char* beginning : beginnings) {
    if (name.rfind(beginning, 0) == 0) return true;
  }
  return false;
}

}  // namespace

TEST_CASE("ONNX's cases of normalisations and Einsum") {
  size_t cases = 0;
  for (const auto& entry : fs::directory_iterator("/usr/share/libonnx-testdata/data/node")) {
    const std::string name = entry.path().filename().string();
    if (!begins_with_any(name, {"test_layer_normalization", "test_instancenorm", "test_mvn", "test_einsum"})) continue;
    INFO(name);
    CHECK(problem_of(entry.path()) == "");
    ++cases;
  }
  CHECK(cases >= 30);
}

TEST_CASE("the cases that TAMP_ONNX_CASES names") {
  const char* given = std::getenv("TAMP_ONNX_CASES");
  std::istringstream folders(given ? given : "");
  for (std::string folder; std::getline(folders, folder, ':');) {
    INFO(folder);
    CHECK(problem_of(folder) == "");
  }
}

}  // namespace tamp
