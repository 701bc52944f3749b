#include "test/kernels/run_program.h"

#include <fmt/format.h>

#include <cstdlib>
#include <fstream>
#include <iterator>
#include <map>

#include "compiler/support/files.h"

namespace tamp::test {
namespace {

namespace fs = std::filesystem;

bool compile(const fs::path& root, const fs::path& folder, const char* nvcc) {
  const std::string files = fmt::format(" -I '{}' '{}/cases.cu' -o '{}/cases'", root.string(), folder.string(), folder.string());
  const std::string stand_in = fmt::format(
      "g++ -std=c++20 -Og -march=native -Wall -Wextra -Wno-unknown-pragmas -x c++ -DTAMP_CUDA_ON_CPU -I '{}/runtime_stub/cuda_on_cpu'{} "
      "-lboost_context",
      root.string(), files);
  return std::system((nvcc != nullptr ? nvcc + std::string(" -std=c++20") + files : stand_in).c_str()) == 0;
}

}  // namespace

std::string run_program(const fs::path& root, const fs::path& folder, const char* nvcc) {
  static const ScratchFolder programs(temporary_parent(), "tamp_programs-");
  static std::map<std::string, fs::path> known;
  std::ifstream file(folder / "cases.cu");
  const std::string source{std::istreambuf_iterator<char>(file), {}};
  const auto [found, is_new] = known.try_emplace(source, programs.path() / std::to_string(known.size()));
  if (is_new) {
    if (!compile(root, folder, nvcc)) {
      known.erase(found);
      return "the generated source does not compile";
    }
    fs::copy_file(folder / "cases", found->second);
  }
  const std::string run = fmt::format("'{}' '{}'", found->second.string(), folder.string());
  return std::system(run.c_str()) == 0 ? "" : "the generated program failed";
}

}  // namespace tamp::test
