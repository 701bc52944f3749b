#include "compiler/frontend/external_files.h"

#include <onnx/onnx_pb.h>

#include <filesystem>
#include <set>

#include "compiler/frontend/container.h"

namespace tamp::frontend {
namespace {

void collect(const onnx::TensorProto& tensor, std::set<std::string>& locations) {
  if (tensor.data_location() != onnx::TensorProto::EXTERNAL) return;
  for (const auto& entry : tensor.external_data()) {
    if (entry.key() == "location") locations.insert(entry.value());
  }
}

void collect(const onnx::GraphProto& graph, std::set<std::string>& locations);

// Branches and loop bodies are graphs of their own.
void collect_nodes(const auto& nodes, std::set<std::string>& locations) {
  for (const auto& node : nodes) {
    for (const auto& attribute : node.attribute()) {
      if (attribute.has_t()) collect(attribute.t(), locations);
      for (const auto& tensor : attribute.tensors()) collect(tensor, locations);
      if (attribute.has_g()) collect(attribute.g(), locations);
      for (const auto& body : attribute.graphs()) collect(body, locations);
    }
  }
}

void collect(const onnx::GraphProto& graph, std::set<std::string>& locations) {
  for (const auto& tensor : graph.initializer()) collect(tensor, locations);
  collect_nodes(graph.node(), locations);
}

}  // namespace

std::vector<std::string> external_files(const std::string& path) {
  onnx::ModelProto model;
  read_container(path, model);
  std::set<std::string> locations;
  collect(model.graph(), locations);
  for (const auto& function : model.functions()) collect_nodes(function.node(), locations);
  std::vector<std::string> files;
  for (const std::string& location : locations) files.push_back((std::filesystem::path(path).parent_path() / location).string());
  return files;
}

}  // namespace tamp::frontend
