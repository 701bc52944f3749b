// Orders the sections of NAME.cu, and writes all files.
#include <fmt/format.h>

#include <filesystem>
#include <set>

#include "codegen/amalgamate.h"
#include "codegen/emit.h"
#include "codegen/output_folder.h"
#include "codegen/weights.h"
#include "compiler/support/embedded.h"
#include "compiler/support/error.h"
#include "compiler/support/text.h"

namespace tamp::codegen {
namespace {

constexpr int64_t kMostEmbeddedBytes = int64_t{64} << 20;  // as text the weights are about 2.5 times as long

// What all programs need, the headers of the bodies in use, then what is around them: the interpreter or the kernel around one body, and
// what copies boxes and connects the vEUs of clusters where there are any.
std::vector<std::string> device_roots(const Plan& plan) {
  std::vector<std::string> roots = {"kernels/vdevice/control.cuh"};
  std::set<std::string> seen;
  bool has_boxes = false, has_clusters = false, has_extents = false;
  const auto add = [&](const Plan& part) {
    for (size_t r = 0; r < part.records.size(); ++r) {
      const std::string& header = part.phase(r).header;
      if (seen.insert(header).second) roots.push_back(header);
    }
    const ShapedVDevice& d = part.program.vdevice;
    has_boxes |= part.program.launches ? !part.maps.empty() : d.input_stages > 0;
    has_extents |= !part.program.extents.empty();
    has_clusters |= !part.program.launches && d.cluster_veus > 1;
  };
  for (const Plan& smaller : plan.smaller) add(smaller);
  add(plan);
  if (has_boxes) roots.emplace_back("kernels/vdevice/boxes.cuh");
  if (has_clusters) roots.emplace_back("kernels/vdevice/cluster.cuh");
  if (has_extents) roots.emplace_back("kernels/vdevice/extents.cuh");
  roots.emplace_back(plan.program.launches ? "kernels/vdevice/phase.cuh" : "kernels/vdevice/interpreter.cuh");
  if (plan.program.generation) roots.emplace_back("kernels/vdevice/tokens.cuh");
  return roots;
}

const char* host_root(const Plan& plan) { return plan.program.launches ? "runtime_stub/host/phases.h" : "runtime_stub/host/instance.h"; }

// A message instead of many: nvcc's default is C++17 up to CUDA 13. And instead of a kernel that dies: on an older architecture, nvcc's
// default among them, the bodies would compile to traps.
void emit_compiler_checks(SourceWriter& w, const Plan& plan) {
  w.blank();
  w.line("#if __cplusplus <= 201703L");
  w.line("#error \"{}.cu is C++20: give the compiler -std=c++20\"", plan.options.name);
  w.line("#endif");
  const int capability = compute_capability(plan.program.vdevice);
  if (capability == 0) return;
  w.line("#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < {}", capability * 10);
  w.line("#error \"{} was compiled by tamp for {}: give nvcc -arch={} (or compile the model for another vDevice)\"", plan.options.name,
         plan.program.vdevice.arch, plan.program.vdevice.arch);
  w.line("#endif");
}

void emit_vocabulary(SourceWriter& w, const std::string& device, const std::string& host) {
  w.section("vocabulary: declarations of the library that the tables need");
  w.line("namespace rk {{");
  w.verbatim(device);
  w.line("}}  // namespace rk");
  if (host.empty()) return;
  w.line("namespace tamp_host {{");
  w.verbatim(host);
  w.line("}}  // namespace tamp_host");
}

// Several programs have a namespace each.
void emit_tables(SourceWriter& w, const Plan& plan, SourceLines& lines) {
  if (!plan.space.empty()) w.line("namespace {} {{", plan.space);
  emit_places(w, plan);
  emit_arguments(w, plan, lines);
  if (plan.program.launches) {
    emit_phase_steps(w, plan);
    emit_phase_bodies(w, plan);
  } else {
    emit_records(w, plan);
    emit_events(w, plan);
    emit_extents(w, plan);
    emit_advances(w, plan);
    emit_lanes(w, plan, lines);
    emit_bodies(w, plan);
    emit_kernel(w, plan);
  }
  if (!plan.space.empty()) w.line("}}  // namespace {}", plan.space);
}

// g++ -Wextra asks for every field of a struct that names some.
void emit_program(SourceWriter& w, const Plan& plan, SourceLines& lines) {
  w.blank();
  w.line("#if defined(__GNUC__)");
  w.line("#pragma GCC diagnostic push");
  w.line("#pragma GCC diagnostic ignored \"-Wmissing-field-initializers\"  // a field without a value has the default one");
  w.line("#endif");
  for (size_t b = 0; b < plan.smaller.size(); ++b) {
    w.section(fmt::format("program: {}", bucket_texts(plan.program)[b]));
    emit_tables(w, plan.smaller[b], lines.smaller.emplace_back());
  }
  if (!plan.smaller.empty()) w.section(fmt::format("program: {}", bucket_texts(plan.program).back()));
  emit_tables(w, plan, lines);
  w.blank();
  w.line("#if defined(__GNUC__)");
  w.line("#pragma GCC diagnostic pop");
  w.line("#endif");
}

// Everything after the head.
void emit_code(SourceWriter& w, const Plan& plan, SourceLines& lines) {
  std::set<std::string> done, includes;
  std::vector<std::string> host_roots = {host_root(plan), "runtime_stub/host/dlpack.h"};
  if (plan.has_lengths()) host_roots.emplace_back("runtime_stub/host/lengths.h");
  if (plan.program.generation) host_roots.emplace_back(plan.has_lengths() ? "runtime_stub/host/prompts.h" : "runtime_stub/host/tokens.h");
  Library device = amalgamate(device_roots(plan), done), host = amalgamate(host_roots, done);
  split_system_includes(device.rest, includes);
  split_system_includes(host.rest, includes);
  emit_compiler_checks(w, plan);
  w.line("#include \"{}.h\"", plan.options.name);
  w.blank();
  for (const std::string& line : includes) w.verbatim(line);
  w.blank();
  w.line("// Everything has the model's own namespace, so that programs of several models, also of other versions of tamp, link together.");
  w.line("namespace {}_detail {{", plan.options.name);
  emit_vocabulary(w, device.for_tables, host.for_tables);
  emit_program(w, plan, lines);
  w.section("device code, as it stands in tamp's kernels/");
  w.verbatim(device.rest);
  w.section("host runtime, as it stands in tamp's runtime_stub/host/");
  w.verbatim(host.rest);
  emit_host(w, plan);
  lines.sections = w.sections();
}

void move_down(SourceLines& lines, int64_t by) {
  for (int64_t& line : lines.arguments) line += by;
  for (int64_t& line : lines.lane) line += by;
  for (SourceWriter::Section& section : lines.sections) section.line += by;
  for (SourceLines& smaller : lines.smaller) move_down(smaller, by);
}

void require_embeddable(const RProgram& program, const EmitOptions& options) {
  if (!options.embed_weights || program.weight_bytes <= kMostEmbeddedBytes) return;
  throw unsupported(
      fmt::format("--embed-weights: the weights are {}, supported: up to {}; leave the option out to get {}.weights beside the source",
                  bytes_text(program.weight_bytes), bytes_text(kMostEmbeddedBytes), options.name));
}

FileSizes sizes_of(const std::vector<OutputFile>& files) {
  FileSizes sizes;
  for (const OutputFile& file : files) sizes.emplace_back(file.name, file.bytes);
  return sizes;
}

// What is small, but for NAME.rprogram.json, which lists the others.
std::vector<std::pair<std::string, std::string>> texts_of(const Plan& plan, std::string source) {
  const std::string& name = plan.options.name;
  return {{name + ".cu", std::move(source)}, {name + ".h", header_text(plan)}, {"CMakeLists.txt", cmake_text(plan)}};
}

std::string weights_name(const EmitOptions& options) { return options.name + ".weights"; }

}  // namespace

// The head says in which lines things are, so the rest is written first. The head's own length depends on how many things it lists.
Source source_of(const Plan& plan) {
  Source source;
  SourceWriter code;
  emit_code(code, plan, source.lines);
  SourceWriter trial, head;
  emit_head(trial, plan, source.lines);
  move_down(source.lines, trial.next_line() - 1);
  emit_head(head, plan, source.lines);
  TAMP_CHECK(head.next_line() == trial.next_line(), "the head's length depends on what it says");
  source.text = head.str() + code.str();
  return source;
}

// A hash of all that is compiled, and of tamp's version, since the code that packs weights belongs to the code that reads them. The head is
// left out: it has the model's file name and the estimate.
uint64_t structure_of(const Plan& plan) {
  TAMP_CHECK(plan.structure == 0 && !plan.embeds_weights, "the structure is asked for twice");
  SourceWriter code;
  SourceLines lines;
  emit_code(code, plan, lines);
  return hash_of(std::string_view(code.str()));
}

std::string cuda_source(const RProgram& program, const EmitOptions& options) { return source_of(make_plan(program, options)).text; }

OwnParts own_parts(const RProgram& program, const EmitOptions& options) {
  Plan plan = make_plan(program, options);
  plan.structure = 0;
  SourceWriter code;
  SourceLines lines;
  emit_program(code, plan, lines);
  return {code.str(), hash_of_weights(program)};
}

std::string rprogram_text(const RProgram& program, const EmitOptions& options) {
  const Plan plan = make_plan(program, options);
  return rprogram_json(plan, hash_of_weights(program), source_of(plan).lines, {});
}

std::vector<std::string> file_names(const EmitOptions& options) {
  std::vector<std::string> files = {"CMakeLists.txt"};
  for (const char* suffix : {".cu", ".h", ".rprogram.json"}) files.push_back(options.name + suffix);
  if (!options.embed_weights) files.push_back(weights_name(options));
  return files;
}

void check_output(const std::string& folder, const EmitOptions& options) { check_folder(folder, options.name, file_names(options)); }

FileSizes emit(const RProgram& program, const EmitOptions& options, const std::string& folder) {
  require_embeddable(program, options);
  check_output(folder, options);
  const Plan plan = make_plan(program, options);
  Source source = source_of(plan);
  OutputFolder out(folder);
  for (const auto& [name, text] : texts_of(plan, std::move(source.text))) out.write(name, text);
  uint64_t hash = plan.embeds_weights ? hash_of(plan.weights) : 0;
  if (!plan.embeds_weights) out.write(weights_name(options), [&](NewFile& file) { hash = write_weights(program, plan.structure, file); });
  out.write(options.name + std::string(kRprogramSuffix), rprogram_json(plan, hash, source.lines, out.files()));
  out.finish();
  return sizes_of(out.files());
}

FileSizes emitted_files(const RProgram& program, const EmitOptions& options) {
  require_embeddable(program, options);
  const Plan plan = make_plan(program, options);
  Source source = source_of(plan);
  std::vector<OutputFile> files;
  for (const auto& [name, text] : texts_of(plan, std::move(source.text))) files.push_back(output_file(name, text));
  if (!plan.embeds_weights) {
    const int64_t bytes = static_cast<int64_t>(kWeightsHeaderBytes) + program.weight_bytes;
    files.push_back({weights_name(options), fingerprint_text(bytes, 0), bytes});  // as long as the right one
  }
  files.push_back(output_file(options.name + std::string(kRprogramSuffix), rprogram_json(plan, 0, source.lines, files)));
  return sizes_of(files);
}

uint64_t structure_of(const RProgram& program, const EmitOptions& options) { return make_plan(program, options).structure; }

void replace_weights(const RProgram& program, uint64_t structure, const EmitOptions& options, const std::string& folder) {
  check_output(folder, options);
  OutputFolder out(folder);
  uint64_t hash = 0;
  const OutputFile weights = out.write(weights_name(options), [&](NewFile& file) { hash = write_weights(program, structure, file); });
  const std::string manifest = options.name + std::string(kRprogramSuffix);
  out.write(manifest, json_with_weights((std::filesystem::path(folder) / manifest).string(), hash, options, weights));
  out.finish(Others::stay);
}

}  // namespace tamp::codegen
