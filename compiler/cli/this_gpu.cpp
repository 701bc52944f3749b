#include "compiler/cli/this_gpu.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <filesystem>

#include "compiler/cli/process.h"
#include "compiler/ir/vdevice.h"
#include "compiler/support/error.h"
#include "compiler/support/text.h"

namespace tamp::cli {
namespace {

// Used where there is no GPU to plan for.
constexpr const char* kUsual = "h200";

bool is_auto(const std::string& given) { return given.empty() || given == "auto"; }

// The product's name from nvidia-smi; empty if nvidia-smi gives none.
std::string gpu_name() {
  if (find_program("nvidia-smi").empty()) return {};
  const TemporaryFolder folder;
  const ProcessResult asked = run_process({"nvidia-smi", "--query-gpu=name", "--format=csv,noheader", "--id=0"}, folder.path() / "gpu");
  return asked.ok() ? asked.output.substr(0, asked.output.find('\n')) : "";
}

Error no_vdevice(const std::string& gpu) {
  return bad_input("this machine's GPU, {}, has no built-in vDevice; give --vdevice NAME or FILE.json; built in: {}", printable(gpu),
                   join(builtin_vdevices(), ", "));
}

// Error before a model is read if the name is not known, or the file is no vDevice.
const std::string& known_vdevice(const std::string& given) {
  read_vdevice(given);
  return given;
}

}  // namespace

bool has_gpu() {
  std::error_code ignored;
  for (int i = 0; i < 16; ++i) {
    if (std::filesystem::exists(fmt::format("/dev/nvidia{}", i), ignored)) return true;
  }
  return std::filesystem::exists("/dev/dxg", ignored);  // WSL
}

std::string vdevice_of_this_gpu() {
  const std::string gpu = gpu_name();
  if (gpu.empty()) return kUsual;
  const std::string vdevice = vdevice_of_gpu(gpu);
  if (vdevice.empty()) throw no_vdevice(gpu);
  return vdevice;
}

std::string planned_vdevice(const std::string& given) {
  if (!is_auto(given)) return known_vdevice(given);
  const std::string gpu = gpu_name();
  const std::string vdevice = gpu.empty() ? "" : vdevice_of_gpu(gpu);
  if (!gpu.empty() && vdevice.empty() && !given.empty()) throw no_vdevice(gpu);
  const std::string here = vdevice.empty() ? kUsual : vdevice;
  const std::string found = !vdevice.empty() ? fmt::format("this machine's GPU is {}", printable(gpu))
                            : !gpu.empty()   ? fmt::format("this machine's GPU, {}, has no built-in vDevice", printable(gpu))
                            : has_gpu()      ? "a GPU here that nvidia-smi does not name"
                                             : "no GPU here";
  spdlog::info("{}: planning for {} (--vdevice names another)", found, here);
  return here;
}

std::string vdevice_to_run(const std::string& given, bool on_gpu) {
  if (!is_auto(given)) return known_vdevice(given);
  return on_gpu ? vdevice_of_this_gpu() : "cpu";
}

}  // namespace tamp::cli
