#include "compiler/cli/measure_vdevice.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <sstream>

#include "compiler/cli/command.h"
#include "compiler/cli/process.h"
#include "compiler/cli/this_gpu.h"
#include "compiler/cli/toolchain.h"
#include "compiler/ir/vdevice.h"
#include "compiler/support/embedded.h"
#include "compiler/support/error.h"
#include "compiler/support/files.h"
#include "compiler/support/log.h"
#include "compiler/support/text.h"

namespace tamp::cli {
namespace {

namespace fs = std::filesystem;
using nlohmann::ordered_json;

constexpr const char* kProgram = "runtime_stub/host/measure_vdevice.cu";
constexpr const char* kNeeded[] = {"capability",     "sms",          "smem_bytes",  "l2_bytes",      "clock_ghz",   "edge_us",
                                   "kernel_edge_us", "lone_edge_us", "l2_gb_per_s", "dram_gb_per_s", "fp32_tflops", "fp16_tflops"};

// The number in the arch: 90 of "sm_90a"; 0 of the stand-in.
int capability_of(const VDevice& vdevice) { return vdevice.arch.starts_with("sm_") ? std::atoi(vdevice.arch.c_str() + 3) : 0; }

// The built-in vDevice from which the layout of shared memory, the architecture and the unmeasured times are taken: the one of the same
// product, or else the newest one that is not newer than the GPU and needs no more shared memory.
VDevice model_of(const Measurements& measured) {
  if (const std::string own = vdevice_of_gpu(measured.product); !own.empty()) return read_vdevice(own);
  const int capability = static_cast<int>(measured.values.at("capability"));
  VDevice best;
  for (const std::string& name : builtin_vdevices()) {
    const VDevice vdevice = read_vdevice(name);
    const int theirs = capability_of(vdevice);
    if (theirs == 0 || theirs > capability || static_cast<double>(vdevice.smem_bytes) > measured.values.at("smem_bytes")) continue;
    if (best.name.empty() || theirs > capability_of(best)) best = vdevice;
  }
  if (!best.name.empty()) return best;
  throw unsupported(
      "{}: compute capability {}.{} with {} of shared memory a block; the least that tamp has a vDevice for is sm_75 "
      "with 64 KB",
      printable(measured.product), capability / 10, capability % 10, bytes_text(static_cast<int64_t>(measured.values.at("smem_bytes"))));
}

double three_digits(double value) {
  const double unit = std::pow(10, std::floor(std::log10(value)) - 2);
  return std::stod(fmt::format("{:.6g}", std::round(value / unit) * unit));
}

void require_measurable(const std::string& file) {
  if (!file.ends_with(".json")) throw bad_input("--measure {}: expected the name of a file that ends in .json", printable(file));
  std::error_code ignored;
  if (fs::exists(file, ignored)) throw bad_input("--measure {}: is there already; move it away or give another name", printable(file));
  require_writable("--measure " + printable(file), folder_of(file));
  if (!has_gpu()) throw bad_input("--measure: this machine has no NVIDIA GPU (no /dev/nvidia0) to measure");
  if (find_compiler(Device::cuda).empty())
    throw bad_input("--measure: nvcc is not found (PATH, CUDA_HOME, /usr/local/cuda); install the CUDA Toolkit");
}

std::string output_of(const std::vector<std::string>& arguments, TemporaryFolder& work, const char* log) {
  const ProcessResult done = run_process(arguments, work.path() / log, work.path());
  if (done.ok()) return done.output;
  work.keep();
  throw InternalError(fmt::format("--measure: {} failed (exit code {}): {}; log: {}.err", arguments[0], done.exit_code,
                                  printable(done.errors, 400), (work.path() / log).string()));
}

// A GPU that the model does not describe may have its SMs in other groups. A cluster of four lies within one of eight groups, which have an
// even number of SMs each, so two of each group may be in none.
void limit_clusters(ordered_json& out, const VDevice& model, int64_t sms) {
  const int64_t at_least = (sms - 2 * 8) / 4 * 4;
  out["sms_in_clusters"] = std::min(model.sms_in_clusters, std::max<int64_t>(at_least, 0));
  if (at_least <= 0) out["input_stages_in_clusters"] = 0;
}

}  // namespace

Measurements parse_measurements(const std::string& text) {
  Measurements out;
  std::stringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    const size_t blank = line.find(' ');
    if (blank == std::string::npos) continue;
    if (line.starts_with("product "))
      out.product = line.substr(blank + 1);
    else
      out.values[line.substr(0, blank)] = std::strtod(line.c_str() + blank + 1, nullptr);
  }
  for (const char* key : kNeeded) {
    const auto at = out.values.find(key);
    if (at == out.values.end() || !(at->second > 0) || !std::isfinite(at->second))
      throw InternalError(fmt::format("{} measured no '{}'", kProgram, key));
  }
  return out;
}

std::string vdevice_text(const std::string& name, const Measurements& measured) {
  const VDevice model = model_of(measured);
  const auto& found = measured.values;
  const int capability = static_cast<int>(found.at("capability"));
  ordered_json out = {{"name", name}, {"like", model.name}};
  out["description"] = fmt::format("{}; edges, bandwidths and rates measured by tamp devices --measure, the rest is the {}'s",
                                   printable(measured.product), model.name);
  if (capability != capability_of(model)) out["arch"] = fmt::format("sm_{}", capability);  // else it is the model's, which may end in "a"
  for (const char* key : {"sms", "l2_bytes"}) out[key] = static_cast<int64_t>(found.at(key));
  if (vdevice_of_gpu(measured.product).empty() && model.sms_in_clusters > 0)
    limit_clusters(out, model, static_cast<int64_t>(found.at("sms")));
  for (const char* key :
       {"edge_us", "kernel_edge_us", "clock_ghz", "l2_gb_per_s", "dram_gb_per_s", "fp32_tflops", "fp16_tflops", "tf32_tflops"}) {
    if (found.contains(key)) out[key] = three_digits(found.at(key));
  }
  out["edge_spread_us"] = three_digits(std::max(1e-3, found.at("edge_us") - found.at("lone_edge_us")));
  const std::string text = out.dump(2) + "\n";
  parse_vdevice(text, name + ".json");  // must be readable by those who will compile for it
  return text;
}

void measure_vdevice(const std::string& file) {
  require_measurable(file);
  TemporaryFolder work;
  write_text(work.path() / "measure.cu", embedded_file(kProgram));
  spdlog::info("builds with nvcc for this machine's GPU");
  output_of({find_compiler(Device::cuda), "-std=c++20", "-O3", "-arch=native", "-o", "measure", "measure.cu"}, work, "build");
  const Progress progress("measures");
  const Measurements measured = parse_measurements(output_of({(work.path() / "measure").string()}, work, "measure"));
  replace_file(file, vdevice_text(fs::path(file).stem().string(), measured));
  spdlog::info("wrote {}: {}; compile for it with --vdevice {}", printable(file), printable(measured.product), printable(file));
}

}  // namespace tamp::cli
