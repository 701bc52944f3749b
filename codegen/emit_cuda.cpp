// The table of contents of NAME.cu, and the writing of all files.
#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <set>
#include <system_error>

#include "codegen/amalgamate.h"
#include "codegen/emit.h"
#include "codegen/weights.h"
#include "compiler/support/embedded.h"
#include "compiler/support/error.h"
#include "compiler/support/text.h"

namespace tamp::codegen {
namespace fs = std::filesystem;
namespace {

constexpr int64_t kMostEmbeddedBytes = int64_t{64} << 20;  // as text it is about 2.5 times that

// The headers of the bodies in use, then the interpreter or the kernel around one body, and the host half.
std::vector<std::string> source_roots(const Plan& plan) {
  std::vector<std::string> roots;
  std::set<std::string> seen;
  for (size_t r = 0; r < plan.records.size(); ++r) {
    const std::string& header = plan.phase(r).header;
    if (seen.insert(header).second) roots.push_back(header);
  }
  roots.emplace_back(plan.program.launches ? "kernels/vdevice/phase.cuh" : "kernels/vdevice/interpreter.cuh");
  roots.emplace_back(plan.program.launches ? "runtime_stub/host/phases.h" : "runtime_stub/host/instance.h");
  return roots;
}

// <...> includes must stand outside the model's namespace: takes them out of `text`, each once.
std::string split_system_includes(std::string& text) {
  std::set<std::string> includes;
  std::string rest;
  size_t at = 0;
  while (at < text.size()) {
    const size_t end = std::min(text.find('\n', at), text.size() - 1) + 1;
    const std::string line = text.substr(at, end - at);
    if (line.starts_with("#include <"))
      includes.insert(line);
    else
      rest += line;
    at = end;
  }
  text = std::move(rest);
  std::string head;
  for (const std::string& line : includes) head += line;
  return head;
}

// For an older architecture, nvcc's default among them, the bodies would be traps: a kernel that dies instead of a message.
void emit_architecture_check(SourceWriter& w, const Plan& plan) {
  const int capability = compute_capability(plan.program.vdevice);
  if (capability == 0) return;
  w.blank();
  w.line("#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < {}", capability * 10);
  w.line("#error \"{} was compiled by tamp for {}: give nvcc -arch={} (or compile the model for another vDevice)\"", plan.options.name,
         plan.program.vdevice.arch, plan.program.vdevice.arch);
  w.line("#endif");
}

void emit_persistent(SourceWriter& w, const Plan& plan) {
  emit_bodies(w, plan);
  emit_arguments(w, plan);
  emit_records(w, plan);
  emit_events(w, plan);
  emit_lanes(w, plan);
  emit_kernel(w, plan);
}

void emit_phases(SourceWriter& w, const Plan& plan) {
  emit_phase_bodies(w, plan);
  emit_arguments(w, plan);
  emit_phase_steps(w, plan);
}

std::string source_text(const Plan& plan) {
  const std::string& name = plan.options.name;
  SourceWriter w;
  emit_banner(w, plan);
  emit_architecture_check(w, plan);
  w.line("#include \"{}.h\"", name);
  w.blank();
  std::string device_code = amalgamate(source_roots(plan));
  w.verbatim(split_system_includes(device_code));
  w.blank();
  w.line("// Everything has the model's own namespace, so that programs of several models, also of other versions of tamp, link together.");
  w.line("namespace {}_detail {{", name);
  w.section("device code and host runtime, as they stand in tamp's kernels/ and runtime_stub/");
  w.verbatim(device_code);
  if (plan.program.launches)
    emit_phases(w, plan);
  else
    emit_persistent(w, plan);
  emit_host(w, plan);
  return w.str();
}

void write_file(const fs::path& path, std::string_view text, std::string_view more = {}) {
  std::FILE* const file = std::fopen(path.c_str(), "wb");
  if (file == nullptr) throw bad_input(fmt::format("{}: cannot be written", printable(path.string())));
  const bool good =
      std::fwrite(text.data(), 1, text.size(), file) == text.size() && std::fwrite(more.data(), 1, more.size(), file) == more.size();
  if (std::fclose(file) != 0 || !good) throw bad_input(fmt::format("{}: writing failed (disk full?)", printable(path.string())));
}

std::string_view view(const Bytes& bytes) { return {reinterpret_cast<const char*>(bytes.data()), bytes.size()}; }

// A folder beside the target that is removed unless it is taken.
class Staging {
 public:
  explicit Staging(const fs::path& target) : path_(target.string() + fmt::format(".tamp-{}", ::getpid())) {
    std::error_code error;
    fs::create_directories(path_, error);
    if (error) throw bad_input(fmt::format("{}: cannot be made: {}", printable(path_.string()), error.message()));
  }
  ~Staging() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  Staging(const Staging&) = delete;
  Staging& operator=(const Staging&) = delete;
  const fs::path& path() const { return path_; }
  // Into an existing folder only the files are moved: it may hold a build of the user's.
  void move_to(const fs::path& target) {
    std::error_code error;
    if (!fs::exists(target)) {
      fs::rename(path_, target, error);
    } else {
      for (const auto& entry : fs::directory_iterator(path_)) {
        if (!error) fs::rename(entry.path(), target / entry.path().filename(), error);
      }
    }
    if (error) throw bad_input(fmt::format("{}: cannot be written: {}", printable(target.string()), error.message()));
  }

 private:
  fs::path path_;
};

}  // namespace

void emit_banner(SourceWriter& w, const Plan& plan) {
  const RProgram& p = plan.program;
  int64_t rtasks = 0;
  for (const RKernel& rkernel : p.rkernels) rtasks += rkernel.rtasks();
  w.line("// {}: generated by tamp from {}; do not edit.", plan.options.name, comment(plan.options.source_name));
  w.line("//");
  w.line("// vDevice {} ({}), {} vEUs of {} threads; precision {}, policy {}.", comment(p.vdevice.name), p.vdevice.arch, p.lanes.size(),
         p.vdevice.threads(), name_of(p.precision), p.policy);
  w.line("// {} rOperators, {} rTasks, {} events; weights {}, arena {}; estimated {:.1f} us.", p.graph.rops.size(), rtasks, p.events.size(),
         bytes_text(p.weight_bytes), bytes_text(p.memory.arena_bytes), p.estimated_us);
  if (p.launches) {
    w.line("// Graph execution: an inference is {} kernel launches, one per phase of a rOperator; {}.h is its API.", p.launches->size(),
           plan.options.name);
  } else {
    w.line("// The whole network is one kernel, {}_kernel, launched once per inference; {}.h is its API.", plan.options.name,
           plan.options.name);
  }
  w.line("// {}", build_line(plan));
}

std::string cuda_source(const RProgram& program, const EmitOptions& options) { return source_text(make_plan(program, options)); }

void emit(const RProgram& program, const EmitOptions& options, const std::string& folder) {
  if (options.embed_weights && program.weight_bytes > kMostEmbeddedBytes) {
    throw unsupported(
        fmt::format("--embed-weights: the weights are {}, supported: up to {}; leave the option out to get {}.weights beside the source",
                    bytes_text(program.weight_bytes), bytes_text(kMostEmbeddedBytes), options.name));
  }
  const Plan plan = make_plan(program, options);
  fs::path target = fs::path(folder).lexically_normal();
  if (!target.has_filename()) target = target.parent_path();
  if (fs::exists(target) && !fs::is_directory(target)) throw bad_input(fmt::format("{}: exists and is not a folder", printable(folder)));
  Staging staging(target);
  write_file(staging.path() / (options.name + ".cu"), source_text(plan));
  write_file(staging.path() / (options.name + ".h"), header_text(plan));
  write_file(staging.path() / (options.name + ".rprogram.json"), rprogram_json(plan));
  write_file(staging.path() / "CMakeLists.txt", cmake_text(plan));
  if (!options.embed_weights)
    write_file(staging.path() / (options.name + ".weights"), view(weights_header(plan.weights, plan.weights_hash)), view(plan.weights));
  staging.move_to(target);
}

}  // namespace tamp::codegen
