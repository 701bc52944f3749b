#include "compiler/cli/toolchain.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <spdlog/spdlog.h>

#include <cstdlib>
#include <cstring>
#include <sstream>

#include "compiler/cli/ports.h"
#include "compiler/cli/process.h"
#include "compiler/cli/this_gpu.h"
#include "compiler/support/embedded.h"
#include "compiler/support/error.h"
#include "compiler/support/log.h"
#include "compiler/support/nearest.h"
#include "compiler/support/text.h"

namespace tamp::cli {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kStandInFolder = "runtime_stub/cuda_on_cpu/";

// Exit codes of the runner (runtime_stub/host/runner.cpp) that are not tamp's fault.
constexpr int kRepeatsDiffer = 4;
constexpr int kInvalidArgument = 11;
constexpr int kDeviceTooSmall = 14;
constexpr int kOutOfMemory = 16;

// On the stand-in one CPU thread does everything, so a wait may take as long as all the rest.
constexpr std::string_view kStandInWaitBudget = "3600";

std::string find_nvcc() {
  if (const std::string found = find_program("nvcc"); !found.empty()) return found;
  std::error_code ignored;
  for (const char* variable : {"CUDA_HOME", "CUDA_PATH"}) {
    const char* const folder = std::getenv(variable);
    if (folder != nullptr && fs::exists(fs::path(folder) / "bin/nvcc", ignored)) return fs::path(folder) / "bin/nvcc";
  }
  return fs::exists("/usr/local/cuda/bin/nvcc", ignored) ? "/usr/local/cuda/bin/nvcc" : "";
}

std::vector<std::string> nvcc_arguments(const CompiledFolder& model, const RunOptions& options) {
  const std::string nvcc = find_nvcc();
  if (nvcc.empty()) throw bad_input("nvcc is not found (PATH, CUDA_HOME, /usr/local/cuda); install the CUDA Toolkit or use --device cpu");
  std::vector<std::string> arguments = {nvcc, "-std=c++20", "-O3", "-arch=" + model.arch, "-o", "runner"};
  if (options.arena || options.stages || options.tokens.check) {
    arguments.push_back("main.cu");
  } else {
    arguments.insert(arguments.end(), {"main.cpp", model.name + ".cu"});
  }
  if (options.trace) arguments.push_back("-DTAMP_TRACE");
  return arguments;
}

// The optimiser level that is fastest in all on the stand-in. For squeezenet1_0 (0.7 GFLOP) the build takes 5.8 s with -Og and 8.0 s with
// -O1, the run 8.6 and 6.3 s. -O2 makes a network's build 3 to 5 s longer and that run 0.7 s shorter.
const char* level_for(const CompiledFolder& model, const RunOptions& options) {
  constexpr double kSomeFlops = 2.5e8, kMuchFlops = 3.5e9;
  double flops = 0;
  for (const CompiledFolder::ROperatorLine& rop : model.rops) flops += rop.flops;
  flops *= static_cast<double>(options.repeat) * static_cast<double>(options.instances);
  if (!options.tokens.prompt.empty()) flops *= static_cast<double>(options.tokens.most);
  return flops < kSomeFlops ? "-Og" : flops < kMuchFlops ? "-O1" : "-O2";
}

std::vector<std::string> gxx_arguments(const char* level, const std::vector<std::string>& more) {
  if (find_program("g++").empty()) throw bad_input("g++ is not found in PATH; --device cpu needs g++ 11 or newer and libboost-context-dev");
  std::vector<std::string> arguments = {"g++", "-std=c++20", level, "-march=native", "-Wno-unknown-pragmas", "-DTAMP_CUDA_ON_CPU",
                                        "-I",  "cuda_on_cpu"};
  arguments.insert(arguments.end(), more.begin(), more.end());
  return arguments;
}

// Builds one translation unit, so that the standard library's headers are read once. With `races` every load and store of the .cu calls a
// function in cpu_races.h instead of the sanitizer's own, which are not linked. Then the level is at most -O1: with a call for every
// access, -O2 makes the run a tenth faster and the build a third slower, and for small networks the build is most of the time.
std::vector<std::vector<std::string>> gxx_commands(const CompiledFolder& model, const RunOptions& options) {
  const std::string source = model.name + ".cu";
  if (!options.races)
    return {gxx_arguments(level_for(model, options), {"-o", "runner", "-x", "c++", "main.cu", "-x", "none", "-lboost_context"})};
  const std::string_view usual = level_for(model, options);
  const char* const level = usual == "-Og" ? "-Og" : "-O1";
  return {gxx_arguments(level,
                        {"-fsanitize=thread", "--param", "tsan-instrument-func-entry-exit=0", "-c", "-o", "model.o", "-x", "c++", source}),
          gxx_arguments(level, {"-DTAMP_RACES", "-o", "runner", "main.cpp", "model.o", "-lboost_context"})};
}

void write_sources(const CompiledFolder& model, Device device, const fs::path& work, const RunOptions& options) {
  write_text(work / "runner.cpp", embedded_file("runtime_stub/host/runner.cpp"));
  if (options.stages) write_text(work / "runtime_stub/host/stages.h", embedded_file("runtime_stub/host/stages.h"));
  if (options.tokens.check) write_text(work / "runtime_stub/host/token_steps.h", embedded_file("runtime_stub/host/token_steps.h"));
  const std::string lengths =
      std::string(model.lengths.empty() ? "" : "#define TAMP_LENGTHS\n") + (model.makes_tokens ? "#define TAMP_TOKENS\n" : "");
  // main.cpp has these macros because nvcc hands its arguments to a shell, which would take the quotes of a -D option away.
  write_text(work / "main.cpp",
             fmt::format("{1}#define TAMP_MODEL_HEADER \"{0}.h\"\n#define TAMP_MODEL {0}\n#include \"runner.cpp\"\n", model.name, lengths));
  // The arena is a member of the context, whose type only the generated source has. The same holds for launches and lanes.
  const std::string stages =
      model.execution == "graph" ? "#define TAMP_STAGES\n#define TAMP_STAGES_OF_LAUNCHES\n" : "#define TAMP_STAGES\n";
  write_text(work / "main.cu", fmt::format("{1}#define TAMP_MODEL_HEADER \"{0}.h\"\n#define TAMP_MODEL {0}\n#include \"{0}.cu\"\n"
                                           "#include \"runner.cpp\"\n",
                                           model.name,
                                           lengths + (options.arena ? "#define TAMP_ARENA\n" : "") + (options.stages ? stages : "") +
                                               (options.tokens.check ? "#define TAMP_TOKEN_STEPS\n" : "")));
  for (const char* suffix : {".cu", ".h"}) write_text(work / (model.name + suffix), read_text(model.folder / (model.name + suffix)));
  if (device == Device::cuda) return;
  for (const EmbeddedFile& file : embedded_files()) {
    if (file.path.starts_with(kStandInFolder)) write_text(work / "cuda_on_cpu" / file.path.substr(kStandInFolder.size()), file.text);
  }
}

std::string last_line(const std::string& text) {
  std::string last;
  std::stringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    if (!line.empty()) last = line;
  }
  return last;
}

[[noreturn]] void throw_run_failure(const ProcessResult& result, const fs::path& log) {
  const std::string message = printable(last_line(result.errors), 400);
  if (result.exit_code == kRepeatsDiffer) throw Error(ExitCode::check_failed, message);
  if (result.exit_code == kDeviceTooSmall || result.exit_code == kOutOfMemory || result.exit_code == kInvalidArgument)
    throw bad_input(message);
  if (result.exit_code > 128)
    throw InternalError(fmt::format("the model's program was ended by signal {}; log: {}.err", result.exit_code - 128, log.string()));
  throw InternalError(fmt::format("the model's program failed: {}; log: {}.err", message, log.string()));
}

RunResult parse_result(const std::string& text) {
  RunResult result;
  std::stringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with("device ")) result.device = printable(line.substr(7));
    if (line.starts_with("run ")) result.microseconds.push_back(std::strtod(line.c_str() + 4, nullptr));
    if (line.starts_with("token ")) result.tokens.push_back(std::strtoll(line.c_str() + 6, nullptr, 10));
    if (line.starts_with("stage ")) result.stage_microseconds.push_back(std::strtod(line.c_str() + 6, nullptr));
    if (line.starts_with("train ")) result.train_microseconds.push_back(std::strtod(line.c_str() + 6, nullptr));
  }
  return result;
}

template <class T>
std::vector<T> read_rows(const fs::path& path) {
  const std::string bytes = read_text(path);
  std::vector<T> rows(bytes.size() / sizeof(T));
  if (!rows.empty()) std::memcpy(rows.data(), bytes.data(), rows.size() * sizeof(T));
  return rows;
}

}  // namespace

std::string find_compiler(Device device) { return device == Device::cuda ? find_nvcc() : find_program("g++"); }

bool can_use_gpu() { return has_gpu() && !find_nvcc().empty(); }

Device choose_device(const std::string& name) {
  if (name == "cpu") return Device::cpu;
  if (name == "cuda") {
    if (!has_gpu()) throw bad_input("--device cuda: this machine has no NVIDIA GPU (no /dev/nvidia0); --device cpu runs on the stand-in");
    return Device::cuda;
  }
  if (!name.empty())
    throw bad_input("--device '{}' is not known; known: cuda, cpu{}", printable(name),
                    name == "gpu" ? "; did you mean 'cuda'?" : did_you_mean(name, {"cuda", "cpu"}));
  if (can_use_gpu()) return Device::cuda;
  spdlog::info("{}: runs on the CPU with the stand-in for CUDA", has_gpu() ? "a GPU, but no nvcc" : "no GPU");
  return Device::cpu;
}

fs::path build_runner(const CompiledFolder& model, Device device, const fs::path& work, const RunOptions& options) {
  TAMP_CHECK(device == Device::cuda || !options.trace, "the stand-in has no clock");
  TAMP_CHECK(device == Device::cpu || !options.races, "only the stand-in sees every access");
  using Commands = std::vector<std::vector<std::string>>;
  const Commands commands = device == Device::cuda ? Commands{nvcc_arguments(model, options)} : gxx_commands(model, options);
  write_sources(model, device, work, options);
  spdlog::info("builds with {}", device == Device::cuda ? "nvcc for " + model.arch : "g++ and the stand-in");
  for (const std::vector<std::string>& arguments : commands) {
    const ProcessResult built = run_process(arguments, work / "build", work);
    if (built.ok()) continue;
    spdlog::debug("{}\n{}{}", join(arguments, " "), built.output, built.errors);
    throw InternalError(fmt::format("{} failed on the generated source of '{}' (exit code {}); log: {}", arguments[0], model.name,
                                    built.exit_code, (work / "build.err").string()));
  }
  return work / "runner";
}

RunResult run_model(const CompiledFolder& model, Device device, const fs::path& runner, const fs::path& work,
                    const std::vector<ops::Value>& inputs, const RunOptions& options) {
  std::vector<std::string> arguments = {runner.string(), "--repeat", std::to_string(options.repeat), "--instances",
                                        std::to_string(options.instances)};
  const auto add = [&](const char* flag, std::string value) { arguments.insert(arguments.end(), {flag, std::move(value)}); };
  if (options.graph) arguments.push_back("--graph");
  if (options.trace) add("--trace", "trace.raw");
  if (options.trace && options.trace_all) arguments.push_back("--trace-all");
  if (options.races) add("--races", "races.raw");
  if (options.arena) add("--arena", "arena.raw");
  for (const auto& [begin, end] : options.kept) add("--kept", fmt::format("{}:{}", begin, end));
  if (!options.stage_file.empty()) add("--stages", fs::absolute(options.stage_file).string());
  if (options.train > 0) add("--train", std::to_string(options.train));
  if (!model.embedded_weights) add("--weights", fs::absolute(model.folder / (model.name + ".weights")).string());
  const Progress progress(fmt::format("runs {} on {}", model.name, device == Device::cuda ? "the GPU" : "the stand-in"));
  if (device == Device::cpu) add("--wait-budget", std::string(kStandInWaitBudget));
  if (device == Device::cpu) add("--multiprocessors", std::to_string(model.veus));
  if (!model.values.empty()) add("--lengths", fmt::format("{}", fmt::join(model.values, ",")));
  if (const TokenOptions& tokens = options.tokens; !tokens.prompt.empty()) {
    add("--prompt", fmt::format("{}", fmt::join(tokens.prompt, ",")));
    add("--max-tokens", std::to_string(tokens.most));
    add("--top-k", std::to_string(tokens.top_k));
    add("--temperature", fmt::format("{}", tokens.temperature));
    add("--top-p", fmt::format("{}", tokens.top_p));
    add("--repetition-penalty", fmt::format("{}", tokens.repetition_penalty));
    add("--seed", std::to_string(tokens.seed));
  }
  for (size_t i = 0; i < inputs.size(); ++i) {
    add("--input", fmt::format("input{}.raw", i));
    write_raw(work / arguments.back(), inputs[i]);
  }
  for (size_t i = 0; i < model.outputs.size(); ++i) add("--output", fmt::format("output{}.raw", i));

  spdlog::info("runs {} time{}", options.repeat, options.repeat == 1 ? "" : "s");
  const ProcessResult ran = run_process(arguments, work / "run", work);
  if (!ran.ok()) throw_run_failure(ran, work / "run");
  RunResult result = parse_result(ran.output);
  if (!options.tokens.prompt.empty()) return result;
  for (size_t i = 0; i < model.outputs.size(); ++i)
    result.outputs.push_back(read_raw(work / fmt::format("output{}.raw", i), model.outputs[i]));
  if (options.trace) result.stamps = read_rows<uint64_t>(work / "trace.raw");
  if (options.arena) result.arena = read_rows<std::byte>(work / "arena.raw");
  if (options.races) result.accesses = read_rows<AccessRow>(work / "races.raw");
  return result;
}

}  // namespace tamp::cli
