// Prints the host half: the tables for runtime_stub/host/program.h, and the C functions of NAME.h.
#include <fmt/format.h>

#include <algorithm>

#include "codegen/emit.h"
#include "compiler/support/error.h"
#include "compiler/support/text.h"
#include "compiler/support/version.h"

namespace tamp::codegen {
namespace {

// kInputs and kInputShape0, kInputShape1, ...
void emit_port_tables(SourceWriter& w, const std::string& kind, const Graph& graph, const std::vector<TensorId>& ports) {
  for (size_t i = 0; i < ports.size(); ++i) {
    const Shape& shape = graph.tensor(ports[i]).shape;
    w.line("const int64_t k{}Shape{}[] = {{{}}};", kind, i, shape.empty() ? "0" : fmt::format("{}", fmt::join(shape, ", ")));
  }
  w.open(fmt::format("const tamp_port k{}s[] =", kind));
  for (size_t i = 0; i < ports.size(); ++i) {
    const Tensor& tensor = graph.tensor(ports[i]);
    w.line("{{\"{}\", \"{}\", {}, k{}Shape{}, {}}},", c_string(tensor.name), name_of(tensor.dtype), tensor.shape.size(), kind, i,
           element_count(tensor.shape) * bytes_of(tensor.dtype));
  }
  if (ports.empty()) w.text(R"({"", "", 0, nullptr, 0})");
  w.close(";");
}

// The first extent if all inputs have the same, or 0.
int64_t batch_of(const Graph& graph) {
  int64_t batch = -1;
  for (const TensorId input : graph.inputs) {
    const Shape& shape = graph.tensor(input).shape;
    const int64_t extent = shape.empty() ? 0 : shape[0];
    batch = batch == -1 || batch == extent ? extent : 0;
  }
  return std::max<int64_t>(batch, 0);
}

void emit_info(SourceWriter& w, const Plan& plan) {
  const RProgram& p = plan.program;
  w.open("const tamp_info kInfo =");
  w.line("/*tamp=*/\"{}\", \"{}\", /*vdevice=*/\"{}\", /*precision=*/\"{}\", /*batch=*/{}, /*structure=*/0x{:016x}ull,",
         c_string(std::string(version())), plan.options.name, c_string(p.vdevice.name), name_of(p.precision), batch_of(p.graph),
         plan.structure);
  w.line("{}, {}, kInputs, kOutputs", p.graph.inputs.size(), p.graph.outputs.size());
  w.close(";");
}

// A tamp_host::BoxMap for every record that has boxes of input values.
void emit_maps(SourceWriter& w, const Plan& plan) {
  const Graph& graph = plan.program.graph;
  w.open("const tamp_host::BoxMap kMaps[] =");
  for (const size_t record : plan.maps) {
    const InputBoxes& b = *plan.phase(record).boxes;
    const Tensor& tensor = graph.tensor(b.tensor);
    const int64_t offset = plan.program.memory.buffer_offset[tensor.place.buffer.index()];
    TAMP_CHECK(
        graph.buffers[tensor.place.buffer.index()].kind == BufferKind::arena && offset >= 0 && b.value_bytes == bytes_of(tensor.dtype),
        "boxes of '" + tensor.name + "'");
    w.line("{{{}, {{{}}}, {{{}}}, {}, {}, {}, {}}},  // {}", offset + tensor.place.offset * b.value_bytes, fmt::join(b.extents, ", "),
           fmt::join(b.strides, ", "), b.box_w, b.box_h, b.boxes_per_copy, b.value_bytes, comment(plan.records[record].text));
  }
  if (plan.maps.empty()) w.text("{}");
  w.close(";");
}

// The weights as the device needs them, 8 words a line.
void emit_embedded_weights(SourceWriter& w, const Plan& plan) {
  w.line("alignas(256) const uint64_t kEmbeddedWeights[] = {{");
  std::string line;
  for (size_t at = 0; at < plan.weights.size(); at += 8) {
    uint64_t word = 0;
    for (size_t i = 0; i < 8 && at + i < plan.weights.size(); ++i) word |= static_cast<uint64_t>(plan.weights[at + i]) << (8 * i);
    line += fmt::format("0x{:x},", word);
    if (line.size() < 100) continue;
    w.text(line);
    line.clear();
  }
  w.text(line + "0");
  w.line("}};");
}

}  // namespace

namespace {

// The vEUs up to the last one that has something to do: a small network leaves the other SMs free, and begins sooner.
size_t veus_to_launch(const RProgram& program) {
  size_t veus = program.lanes.size();
  while (veus > 1 && program.lanes[veus - 1].empty()) --veus;
  const auto members = static_cast<size_t>(program.vdevice.cluster_veus);  // whole clusters
  return (veus + members - 1) / members * members;
}

// kRecordNames and kEventNames, for messages, and what the kernel's code and the compiler must agree on.
void emit_kernel_facts(SourceWriter& w, const Plan& plan) {
  w.line("static_assert(rk::kControlBytes == {}, \"control block\");", kControlBytes);
  w.line("static_assert(rk::kThreadsOf<Veu> == {}, \"threads of a vEU\");", plan.threads());
  w.line("static_assert(rk::kSmemBytesOf<Veu> <= {}, \"shared memory of a vEU\");", plan.program.vdevice.smem_bytes);
  w.open("const char* const kRecordNames[] =");
  for (const RecordName& record : plan.records) w.line("\"{}\",", c_string(record.text));
  if (plan.records.empty()) w.line("\"\"");
  w.close(";");
  w.open("const char* const kEventNames[] =");
  for (const Event& event : plan.program.events) w.line("\"{}\",", c_string(event.name));
  if (plan.program.events.empty()) w.line("\"\"");
  w.close(";");
}

}  // namespace

int compute_capability(const ShapedVDevice& vdevice) { return vdevice.arch.starts_with("sm_") ? std::stoi(vdevice.arch.substr(3)) : 0; }

namespace {

// Tables and model() of one program.
void emit_model(SourceWriter& w, const Plan& plan) {
  const std::string& name = plan.options.name;
  const Graph& graph = plan.program.graph;
  const std::vector<Loop>& loops = graph.loops;
  if (plan.program.launches)
    emit_phase_kernels(w, plan);
  else
    emit_kernel_facts(w, plan);
  emit_maps(w, plan);
  if (plan.embeds_weights) emit_embedded_weights(w, plan);
  w.blank();
  w.line("#if !defined(TAMP_WEIGHTS_FOLDER)  // the generated CMakeLists.txt defines it, with a slash at the end");
  w.line("#define TAMP_WEIGHTS_FOLDER tamp_host::folder_of(__FILE__)");
  w.line("#endif");
  w.open("inline const tamp_host::Model& model()");
  w.open("static const tamp_host::Model instance =");
  w.line("\"{}\", kInputs, {}, kOutputs, {}, kInPlace,", name, graph.inputs.size(), graph.outputs.size());
  w.line("/*arena_bytes=*/{}, /*weight_bytes=*/{}, /*weights_in_l2=*/{:.2f}F, kInfo.structure,", plan.program.memory.arena_bytes,
         plan.program.weight_bytes, plan.program.weights_in_l2);
  w.line("\"{}.weights\", TAMP_WEIGHTS_FOLDER, {},", name, plan.embeds_weights ? "kEmbeddedWeights" : "nullptr");
  if (plan.program.launches) {
    w.line("tamp_host::prepare_phases, tamp_host::start_phases, &kPhases,");
    w.line(
        "/*veus=*/0, /*threads=*/0, /*smem_bytes=*/0, /*events=*/0, /*instructions=*/0, /*veus_by_sm=*/false, /*compute_capability=*/{},",
        compute_capability(plan.program.vdevice));
    w.line("kMaps, {}, /*event_names=*/nullptr, /*record_names=*/nullptr", plan.maps.size());
  } else {
    w.line("tamp_host::prepare_kernel<{0}_kernel>, tamp_host::start_kernel<{0}_kernel>, /*phases=*/nullptr,", name);
    w.line(
        "/*veus=*/{}, rk::kThreadsOf<Veu>, rk::kSmemBytesOf<Veu>, kEvents{}, kInstructionCount, /*veus_by_sm=*/{}, "
        "/*compute_capability=*/{},",
        veus_to_launch(plan.program), loops.empty() ? "" : fmt::format(" + {}", loops.size()), plan.program.veus_by_sm,
        compute_capability(plan.program.vdevice));
    w.line("kMaps, {}, kEventNames, kRecordNames", plan.maps.size());
  }
  w.close(";");
  w.line("return instance;");
  w.close();
}

// What runtime_stub/host/lengths.h calls an axis: which port, dimension and length, and the extent's numbers.
void emit_axes(SourceWriter& w, const std::string& kind, const Graph& graph, const std::vector<LengthAxes>& axes) {
  w.open(fmt::format("const tamp_axis k{}Axes[] =", kind));
  size_t count = 0;
  for (size_t port = 0; port < axes.size(); ++port) {
    for (const LengthAxis& axis : factors_of(graph, axes[port])) {
      const Extent& e = axis.extent;
      w.line("{{{}, {}, {}, {}, {}, {}}},", port, axis.dim, e.length, e.times, e.plus, e.over);
      ++count;
    }
  }
  if (count == 0) w.line("{{}}");
  w.close(";");
  w.line("constexpr int k{}AxisCount = {};", kind, count);
}

// The extents that a program's kernel is told.
void emit_extent_table(SourceWriter& w, const RProgram& program, const Graph& whole) {
  const auto text = [&](const Extent& e) {
    const int64_t length = e.length < 0 ? e.length : length_named(whole, program.graph.lengths.at(static_cast<size_t>(e.length)).name);
    return fmt::format("{{{}, {}, {}, {}}}", length, e.times, e.plus, e.over);
  };
  std::vector<std::string> extents, products;
  for (const Extent& e : program.extents) extents.push_back(text(e));
  for (const auto& [left, right] : program.graph.products) products.push_back(fmt::format("{{{}, {}}}", text(left), text(right)));
  w.line("const tamp_host::Extent kExtents[] = {{{}}};", extents.empty() ? "{}" : join(extents, ", "));
  w.line("const tamp_host::ExtentProduct kProducts[] = {{{}}};", products.empty() ? "{}" : join(products, ", "));
}

void emit_lengths(SourceWriter& w, const Plan& plan) {
  const Graph& graph = plan.program.graph;
  w.blank();
  w.open("const tamp_length kLengths[] =");
  for (const Length& length : graph.lengths)
    w.line("{{\"{}\", {}, {}, {}}},", c_string(length.name), length.smallest, length.largest, length.step);
  w.close(";");
  emit_axes(w, "Input", graph, graph.input_axes);
  emit_axes(w, "Output", graph, graph.output_axes);
  std::vector<std::string> largest, buckets;
  const size_t length = bucket_length(plan.program);
  const auto add = [&](const Plan& bucket) {
    const std::string space = bucket.space.empty() ? "" : bucket.space + "::";
    largest.push_back(std::to_string(bucket_largest(bucket.program, graph.lengths[length].name)));
    buckets.push_back(fmt::format("{{&{0}model(), {0}kExtents, {1}, {0}kProducts}}", space, bucket.program.extents.size()));
  };
  for (const Plan& smaller : plan.smaller) add(smaller);
  add(plan);
  w.line("const int64_t kBuckets[] = {{{}}};  // the largest value of each program", join(largest, ", "));
  w.line(
      "const tamp_lengths kLengthsInfo = {{{}, kInputAxisCount, kOutputAxisCount, kLengths, kInputAxes, kOutputAxes, {}, {}, kBuckets}};",
      graph.lengths.size(), buckets.size(), length);
  w.open("inline const tamp_host::Buckets& buckets()");
  w.open("static const tamp_host::Bucket programs[] =");
  for (const std::string& bucket : buckets) w.line("{},", bucket);
  w.close(";");
  w.line("static const tamp_host::Buckets instance = {{&kLengthsInfo, programs}};");
  w.line("return instance;");
  w.close();
}

// The functions of NAME.h that only programs with lengths have.
void emit_length_functions(SourceWriter& w, const Plan& plan) {
  const std::string& name = plan.options.name;
  std::vector<std::string> values;
  for (const std::string& member : length_members(plan.program.graph)) values.push_back("lengths->" + member);
  const std::string begin = fmt::format("const int64_t values[] = {{{}}};", join(values, ", "));
  w.open(fmt::format(
      "tamp_status {0}_run_at({0}_context* context, const {0}_lengths* lengths, const void* const* inputs, void* const* outputs, "
      "cudaStream_t stream)",
      name));
  w.line("if (lengths == nullptr) return detail_of_{0}::run(context, inputs, outputs, stream);", name);
  w.text(begin);
  w.line("return detail_of_{0}::run_at(context, values, inputs, outputs, stream);", name);
  w.close();
  for (const char* kind : {"Input", "Output"}) {
    const bool is_input = kind[0] == 'I';
    w.open(fmt::format("tamp_status {0}_{1}_shape(int index, const {0}_lengths* lengths, int64_t* shape)", name,
                       is_input ? "input" : "output"));
    const std::string call = fmt::format(
        "return detail_of_{0}::shape_at({0}_detail::kLengthsInfo, {0}_detail::k{1}s, {2}, {0}_detail::k{1}Axes, "
        "{0}_detail::k{1}AxisCount, index, ",
        name, kind, (is_input ? plan.program.graph.inputs : plan.program.graph.outputs).size());
    w.line("if (lengths == nullptr) {}nullptr, shape);", call);
    w.text(begin);
    w.line("{}values, shape);", call);
    w.close();
  }
  w.line("const tamp_lengths* {0}_lengths_info(void) {{ return &{0}_detail::kLengthsInfo; }}", name);
}

}  // namespace

void emit_host(SourceWriter& w, const Plan& plan) {
  const std::string& name = plan.options.name;
  const Graph& graph = plan.program.graph;
  const bool has_lengths = plan.has_lengths();
  w.section("host");
  emit_port_tables(w, "Input", graph, graph.inputs);
  emit_port_tables(w, "Output", graph, graph.outputs);
  w.line("constexpr int kInPlace[] = {{{}}};  // for each output the input whose memory it may take, or -1",
         graph.outputs.empty() ? "-1" : fmt::format("{}", fmt::join(plan.in_place, ", ")));
  emit_info(w, plan);
  for (const Plan& smaller : plan.smaller) {
    w.line("namespace {} {{", smaller.space);
    emit_model(w, smaller);
    emit_extent_table(w, smaller.program, graph);
    w.line("}}  // namespace {}", smaller.space);
  }
  if (!plan.space.empty()) w.line("namespace {} {{", plan.space);
  emit_model(w, plan);
  if (has_lengths) emit_extent_table(w, plan.program, graph);
  if (!plan.space.empty()) w.line("}}  // namespace {}", plan.space);
  if (has_lengths) emit_lengths(w, plan);
  if (plan.program.generation) emit_token_plan(w, plan);
  w.blank();
  w.line("}}  // namespace {}_detail", name);
  w.blank();
  w.line("namespace detail_of_{0} = {0}_detail::tamp_host;", name);
  const char* const context = has_lengths ? "Varying" : "Instance";
  w.line("struct {0}_context : detail_of_{0}::{1} {{}};", name, context);
  w.blank();
  w.open("extern \"C\"");
  w.open(fmt::format("tamp_status {0}_create(const tamp_options* options, {0}_context** out)", name));
  w.line("detail_of_{0}::{1}* instance = nullptr;", name, context);
  w.line("const tamp_status status = detail_of_{0}::create({0}_detail::{1}(), options, out == nullptr ? nullptr : &instance);", name,
         has_lengths ? "buckets" : "model");
  w.line("if (out != nullptr) *out = static_cast<{}_context*>(instance);", name);
  w.line("return status;");
  w.close();
  w.line(
      "tamp_status {0}_run({0}_context* context, const void* const* inputs, void* const* outputs, cudaStream_t stream) {{ return "
      "detail_of_{0}::run(context, inputs, outputs, stream); }}",
      name);
  w.line(
      "tamp_status {0}_run_dlpack({0}_context* context, DLManagedTensor* const* inputs, DLManagedTensor** outputs, cudaStream_t stream) {{ "
      "return detail_of_{0}::run_tensors(context, inputs, outputs, stream); }}",
      name);
  w.line("tamp_status {0}_status({0}_context* context) {{ return detail_of_{0}::status(context); }}", name);
  w.line("const char* {0}_message(const {0}_context* context) {{ return detail_of_{0}::message(context); }}", name);
  w.line("void {0}_destroy({0}_context* context) {{ detail_of_{0}::destroy(context); }}", name);
  w.line("int {}_input_count(void) {{ return {}; }}", name, graph.inputs.size());
  w.line("int {}_output_count(void) {{ return {}; }}", name, graph.outputs.size());
  w.line("const tamp_port* {0}_inputs(void) {{ return {0}_detail::kInputs; }}", name);
  w.line("const tamp_port* {0}_outputs(void) {{ return {0}_detail::kOutputs; }}", name);
  w.line("int {0}_input_index(const char* name) {{ return detail_of_{0}::index_of({0}_detail::kInputs, {1}, name); }}", name,
         graph.inputs.size());
  w.line("int {0}_output_index(const char* name) {{ return detail_of_{0}::index_of({0}_detail::kOutputs, {1}, name); }}", name,
         graph.outputs.size());
  w.line("const tamp_info* {0}_info(void) {{ return &{0}_detail::kInfo; }}", name);
  if (has_lengths) emit_length_functions(w, plan);
  if (plan.program.generation) emit_token_functions(w, plan);
  w.line("#if defined(TAMP_TRACE)");
  w.line("// Device memory: rk::kTraceColumns stamps per instruction of the last run, in table order.");
  w.line("const uint64_t* {0}_trace(const {0}_context* context, int* columns, int* instructions) {{", name);
  w.line("  *columns = {}_detail::rk::kTraceColumns;", name);
  const char* const instance = has_lengths ? "context->last->instance" : "context";
  w.line("  *instructions = {}->model->instructions;", instance);
  w.line("  return {}->trace;", instance);
  w.line("}}");
  w.line("#endif");
  w.close("  // extern \"C\"");
}

}  // namespace tamp::codegen
