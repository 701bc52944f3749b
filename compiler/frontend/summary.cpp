// summarize_onnx and read_tensor_pb: files that are looked at without being compiled. The summary reads no weights and checks no shapes; it
// only reports.
#include <fmt/format.h>
#include <onnx/onnx_pb.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>

#include "compiler/frontend/container.h"
#include "compiler/frontend/declared_types.h"
#include "compiler/frontend/initializers.h"
#include "compiler/frontend/onnx_reader.h"
#include "compiler/frontend/refusals.h"
#include "compiler/support/error.h"
#include "compiler/support/text.h"

namespace tamp::frontend {
namespace {

ModelSummary::Port port_of(const onnx::ValueInfoProto& value) {
  const DeclaredType type = declared_type(value);
  ModelSummary::Port port;
  port.name = value.name();
  const std::optional<DType> dtype = dtype_of_onnx(type.element_type);
  port.type = type.kind != "tensor" ? type.kind : dtype ? name_of(*dtype) : onnx_type_name(type.element_type);
  if (port.type.empty()) port.type = "no type";
  port.shape = type.kind == "tensor" ? dims_text(type) : "";
  port.dims = type.dims;
  return port;
}

void count_parameters(const onnx::GraphProto& graph, ModelSummary& summary) {
  for (const auto& initializer : graph.initializer()) {
    const Shape shape(initializer.dims().begin(), initializer.dims().end());
    const int64_t count = checked_count(shape).value_or(0);
    const std::optional<DType> dtype = dtype_of_onnx(initializer.data_type());
    summary.parameters += std::min(count, kMaxElements);
    summary.parameter_bytes += std::min(count, kMaxElements) * (dtype ? bytes_of(*dtype) : 1);
  }
}

std::vector<std::pair<std::string, int64_t>> histogram_of(const onnx::GraphProto& graph) {
  std::map<std::string, int64_t> counts;
  for (const auto& node : graph.node()) ++counts[is_default_domain(node.domain()) ? node.op_type() : node.domain() + "." + node.op_type()];
  std::vector<std::pair<std::string, int64_t>> histogram(counts.begin(), counts.end());
  std::stable_sort(histogram.begin(), histogram.end(), [](const auto& a, const auto& b) { return a.second > b.second; });
  return histogram;
}

int64_t default_opset(const onnx::ModelProto& model) {
  int64_t opset = model.ir_version() < 3 ? 1 : 0;
  for (const auto& import : model.opset_import()) {
    if (is_default_domain(import.domain())) opset = import.version();
  }
  return opset;
}

// Inputs that are no tensors of a known element type, in the words of read_onnx.
void add_input_refusals(const std::string& path, const onnx::GraphProto& graph, const std::set<std::string>& initialized,
                        Refusals& refusals) {
  for (const auto& input : graph.input()) {
    const DeclaredType type = declared_type(input);
    if (initialized.contains(input.name()) || (type.kind == "tensor" && dtype_of_onnx(type.element_type))) continue;
    refusals.add(fmt::format("{}: input '{}' is {}, supported: tensors of floats, integers, and bool; export the model without it",
                             file_text(path), printable(input.name()), port_of(input).type));
  }
}

std::string missing_file(const std::string& path, const onnx::GraphProto& graph) {
  for (const auto& initializer : graph.initializer()) {
    for (const auto& entry : initializer.external_data()) {
      std::error_code ignored;
      const auto file = std::filesystem::path(path).parent_path() / entry.value();
      if (entry.key() == "location" && !std::filesystem::exists(file, ignored)) return entry.value();
    }
  }
  return "";
}

}  // namespace

ModelSummary summarize_onnx(const std::string& path) {
  onnx::ModelProto model;
  read_container(path, model);
  const onnx::GraphProto& graph = model.graph();
  ModelSummary summary;
  summary.ir_version = model.ir_version();
  for (const auto& import : model.opset_import()) {
    summary.opsets.emplace_back(is_default_domain(import.domain()) ? "ai.onnx" : import.domain(), import.version());
  }
  summary.producer = model.producer_version().empty() ? model.producer_name() : model.producer_name() + " " + model.producer_version();
  std::set<std::string> initialized;
  for (const auto& initializer : graph.initializer()) initialized.insert(initializer.name());
  for (const auto& input : graph.input()) {
    if (!initialized.contains(input.name())) summary.inputs.push_back(port_of(input));
  }
  for (const auto& output : graph.output()) summary.outputs.push_back(port_of(output));
  summary.histogram = histogram_of(graph);
  summary.nodes = graph.node_size();
  count_parameters(graph, summary);

  Refusals refusals = find_refusals(path, model, default_opset(model));
  add_input_refusals(path, graph, initialized, refusals);
  summary.unsupported = refusals.sorted();
  summary.missing_file = missing_file(path, graph);
  return summary;
}

ops::Value read_tensor_pb(const std::string& path) {
  const std::string file = file_text(path);
  std::ifstream stream(path, std::ios::binary);
  if (!stream) throw bad_input("{}: cannot open the file", file);
  onnx::TensorProto tensor;
  if (!tensor.ParseFromIstream(&stream)) throw bad_input("{}: not a tensor file (TensorProto)", file);
  if (tensor.data_location() == onnx::TensorProto::EXTERNAL) throw bad_input("{}: the values are in another file", file);
  return read_tensor(tensor, TensorSource{}, file);
}

}  // namespace tamp::frontend
