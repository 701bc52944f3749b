// NAME.h: the C API and a thin C++ class on top of it.
#include <fmt/format.h>

#include <set>

#include "codegen/amalgamate.h"
#include "codegen/emit.h"
#include "compiler/support/text.h"

namespace tamp::codegen {
namespace {

void list_ports(SourceWriter& w, const char* title, const Graph& graph, const std::vector<TensorId>& ports) {
  for (size_t i = 0; i < ports.size(); ++i) {
    const Tensor& tensor = graph.tensor(ports[i]);
    w.line("   {}[{}]  {}  {}", title, i, describe(tensor), comment(tensor.name));
  }
}

void list_axes(SourceWriter& w, const char* title, const Graph& graph, const std::vector<LengthAxes>& axes) {
  for (size_t i = 0; i < axes.size(); ++i) {
    for (const LengthAxis& axis : axes[i])
      w.line("   {}[{}] has {} along dimension {}.", title, i, comment(extent_text(graph, axis.extent)), axis.dim);
  }
}

// For the comment that heads the file.
void describe_lengths(SourceWriter& w, const RProgram& program) {
  const Graph& graph = program.graph;
  w.blank();
  w.line("   Each run is given these numbers; shapes above are those of the largest:");
  for (const Length& length : graph.lengths) w.line("   {}: {}", comment(length.name), values_text(length));
  list_axes(w, "inputs", graph, graph.input_axes);
  list_axes(w, "outputs", graph, graph.output_axes);
  for (const std::string& bucket : bucket_texts(program)) w.line("   A program for {}.", bucket);
}

void declare_lengths(SourceWriter& w, const std::string& name, const Graph& graph) {
  const std::vector<std::string> members = length_members(graph);
  w.line("/* The numbers of a run. Where a pointer to them is NULL, they are the largest. */");
  w.open(fmt::format("typedef struct {}_lengths", name));
  for (size_t i = 0; i < members.size(); ++i) {
    const Length& length = graph.lengths[i];
    w.line("int64_t {}; /* '{}', {} */", members[i], comment(length.name), values_text(length));
  }
  w.close(fmt::format(" {}_lengths;", name));
  w.line("/* Enqueues one inference. Inputs and outputs are dense with the extents that they have at these lengths. */");
  w.line("tamp_status {0}_run_at({0}_context* context, const {0}_lengths* lengths, const void* const* inputs, void* const* outputs,", name);
  w.line("  cudaStream_t stream);");
  w.line(
      "/* Writes the extents of an input or output at these lengths; TAMP_INVALID_ARGUMENT if it is not there or they are out of range. "
      "*/");
  w.line("tamp_status {0}_input_shape(int index, const {0}_lengths* lengths, int64_t* shape);", name);
  w.line("tamp_status {0}_output_shape(int index, const {0}_lengths* lengths, int64_t* shape);", name);
  w.line("const tamp_lengths* {}_lengths_info(void);", name);
}

void emit_class(SourceWriter& w, const std::string& name, bool has_lengths, bool makes_tokens) {
  std::set<std::string> done = {"runtime_stub/host/tamp_api.h", "runtime_stub/host/tamp_lengths.h",
                                "runtime_stub/host/tamp_tokens.h"},  // they are written above
      includes;
  const char* const plain = has_lengths ? "VaryingModelOf" : "ModelOf";
  const char* const base = makes_tokens ? "TokenModelOf" : plain;
  std::vector<std::string> headers;
  if (has_lengths) headers.emplace_back("runtime_stub/host/tamp_varying_model.h");
  if (makes_tokens) headers.emplace_back("runtime_stub/host/tamp_token_model.h");
  if (headers.empty()) headers.emplace_back("runtime_stub/host/tamp_model.h");
  std::string model = amalgamate(headers, done).rest;
  split_system_includes(model, includes);
  w.line("#ifdef __cplusplus");
  for (const std::string& line : includes) w.verbatim(line);
  w.blank();
  w.line("namespace {} {{", name);
  w.blank();
  w.verbatim(model);
  w.open("struct Api");
  w.line("using Context = {}_context;", name);
  for (const char* function : {"create", "run", "run_dlpack", "status", "message", "destroy", "info", "input_index", "output_index"})
    w.line("static constexpr auto {0} = &{1}_{0};", function, name);
  if (has_lengths) {
    w.line("using Lengths = {}_lengths;", name);
    for (const char* function : {"run_at", "input_shape", "output_shape", "lengths_info"})
      w.line("static constexpr auto {0} = &{1}_{0};", function, name);
  }
  if (makes_tokens) {
    for (const char* function : {"generate", "cancel"}) w.line("static constexpr auto {0} = &{1}_{0};", function, name);
  }
  w.close(";");
  w.blank();
  w.line("#if defined(__cpp_lib_span)");
  for (const char* type : {"Input", "Output", "NamedInput", "NamedOutput"}) w.line("using tamp_cpp::{};", type);
  w.line("#endif");
  w.blank();
  if (has_lengths) w.line("using Lengths = {}_lengths;", name);
  w.line("// model.run({{input}}, {{output}}, {}stream), check(), info(): see {} above. Can be moved.", has_lengths ? "lengths, " : "",
         base);
  w.open(fmt::format("class Model : public tamp_cpp::{}<Api{}>", base, makes_tokens ? fmt::format(", tamp_cpp::{}<Api>", plain) : ""));
  w.line("public:");
  w.line("using {0}::{0};", base);
  w.close(";");
  w.blank();
  w.line("}}  // namespace {}", name);
  w.line("#endif");
}

}  // namespace

std::string build_line(const Plan& plan) {
  const std::string& arch = plan.program.vdevice.arch;
  if (!arch.starts_with("sm_"))
    return fmt::format("g++ -std=c++20 -O2 -DTAMP_CUDA_ON_CPU -I <tamp>/runtime_stub/cuda_on_cpu -x c++ main.cpp {}.cu -lboost_context",
                       plan.options.name);
  return fmt::format("nvcc -std=c++20 -O3 -arch={} main.cpp {}.cu", arch, plan.options.name);
}

std::vector<std::string> length_members(const Graph& graph) {
  Names names;
  std::vector<std::string> members;
  for (const Length& length : graph.lengths) members.push_back(names.unique(length.name));
  return members;
}

std::string header_text(const Plan& plan) {
  const std::string& name = plan.options.name;
  const Graph& graph = plan.program.graph;
  const std::string guard = "TAMP_MODEL_H_" + name;  // as the name is spelt: Net.h and net.h may be included together
  SourceWriter w;
  w.line("/* {}: generated by tamp from {}; do not edit.", name, comment(plan.options.source_name));
  w.blank();
  list_ports(w, " inputs", graph, graph.inputs);
  list_ports(w, "outputs", graph, graph.outputs);
  for (const PaddedOutput& padded : graph.padded) {
    w.line("   Of outputs[{}] as many entries along dimension {} are valid as outputs[{}] says; what is behind them is padding.",
           padded.output, padded.axis, padded.count);
  }
  const std::vector<int64_t>& kept = plan.in_place;
  for (size_t i = 0; i < kept.size(); ++i) {
    if (kept[i] >= 0) w.line("   outputs[{}] may be inputs[{}]: then it stays in place, and only what changes is stored.", i, kept[i]);
  }
  if (plan.has_lengths()) describe_lengths(w, plan.program);
  if (plan.program.generation) describe_tokens(w, plan);
  w.blank();
  w.line("   Tensors are dense, row-major device memory, 16-byte aligned. {}_run only enqueues {} on the stream: it may be", name,
         plan.program.launches ? fmt::format("{} kernels", plan.program.launches->size()) : "one kernel");
  w.line("   captured in a CUDA graph. A context does one run at a time; make one context per concurrent stream. Once a run has");
  w.line("   timed out its context is spent.");
  w.blank();
  w.line("   Build {}.cu with CMake (CMakeLists.txt beside it gives a library target), or by hand:", name);
  w.line("     {}", build_line(plan));
  w.blank();
  w.line("   What is copied from tamp is under the Apache License 2.0: see the head of {}.cu. */", name);
  w.line("#ifndef {}", guard);
  w.line("#define {}", guard);
  w.blank();
  std::set<std::string> done;
  w.verbatim(amalgamate({"runtime_stub/host/tamp_api.h"}, done).rest);
  if (plan.has_lengths()) w.verbatim(amalgamate({"runtime_stub/host/tamp_lengths.h"}, done).rest);
  if (plan.program.generation) w.verbatim(amalgamate({"runtime_stub/host/tamp_tokens.h"}, done).rest);
  w.line("#ifdef __cplusplus");
  w.line("extern \"C\" {{");
  w.line("#endif");
  w.blank();
  w.line("typedef struct {0}_context {0}_context;", name);
  w.blank();
  w.line("/* Allocates on the current device, loads the weights, checks that the device can hold the program. options may be NULL. */");
  w.line("tamp_status {0}_create(const tamp_options* options, {0}_context** out);", name);
  w.line("/* Enqueues one inference. inputs and outputs: arrays of device pointers in the order above. */");
  w.line("tamp_status {0}_run({0}_context* context, const void* const* inputs, void* const* outputs, cudaStream_t stream);", name);
  w.line(
      "/* The same with tensors of DLPack, on the context's device, dense and row-major. Inputs stay the caller's, until the run is done. "
      "An");
  w.line("   output that is NULL is made, and is the caller's to give back by its deleter; into others the run writes. */");
  w.line("tamp_status {0}_run_dlpack({0}_context* context, struct DLManagedTensor* const* inputs, struct DLManagedTensor** outputs,", name);
  w.line("  cudaStream_t stream);");
  w.line(
      "/* After the stream was synchronised: TAMP_OK; TAMP_TIMED_OUT if a wait of an earlier run was in vain; TAMP_CUDA if the launch "
      "failed");
  w.line("   or a kernel died, this one or another of the program. */");
  w.line("tamp_status {0}_status({0}_context* context);", name);
  w.line("/* Text of the last failure; context NULL: of the last failed create in this thread. */");
  w.line("const char* {0}_message(const {0}_context* context);", name);
  w.line("void {0}_destroy({0}_context* context);", name);
  w.line("int {}_input_count(void);", name);
  w.line("int {}_output_count(void);", name);
  w.line("const tamp_port* {}_inputs(void);", name);
  w.line("const tamp_port* {}_outputs(void);", name);
  w.line("/* The index of the input or output that has this name in the ONNX model; -1 if none has. */");
  w.line("int {}_input_index(const char* name);", name);
  w.line("int {}_output_index(const char* name);", name);
  w.line("/* What the program is: version, vDevice, precision, inputs and outputs. */");
  w.line("const tamp_info* {}_info(void);", name);
  if (plan.has_lengths()) declare_lengths(w, name, graph);
  if (plan.program.generation) declare_tokens(w, plan);
  w.line("#if defined(TAMP_TRACE) /* a build for looking inside: time stamps of the last run, see the end of {}.cu */", name);
  w.line("const uint64_t* {0}_trace(const {0}_context* context, int* columns, int* instructions);", name);
  w.line("#endif");
  w.blank();
  w.line("#ifdef __cplusplus");
  w.line("}}");
  w.line("#endif");
  w.blank();
  emit_class(w, name, plan.has_lengths(), plan.program.generation.has_value());
  w.blank();
  w.line("#endif");
  return w.str();
}

}  // namespace tamp::codegen
