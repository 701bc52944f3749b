// Exporters write nodes in order, but ONNX files in the wild do not always; so nodes are sorted, and only a graph that cannot be sorted is
// refused. All walks are linear in the size of the file: chains of thousands of nodes are normal.
#include "compiler/frontend/graph_order.h"

#include <fmt/format.h>
#include <onnx/onnx_pb.h>

#include <algorithm>
#include <functional>
#include <queue>
#include <string_view>
#include <unordered_map>
#include <unordered_set>

#include "compiler/frontend/node.h"
#include "compiler/support/error.h"
#include "compiler/support/text.h"

namespace tamp::frontend {
namespace {

constexpr int64_t kGiven = -1;  // made by no node: an input or an initializer

// What a node reads, and what its bodies read from outside of them. (Protobuf bounds how deep bodies nest.)
void add_operands(const onnx::NodeProto& node, std::vector<std::string_view>& names);

void add_outer_names(const onnx::GraphProto& body, std::vector<std::string_view>& names) {
  std::unordered_set<std::string_view> own;
  for (const auto& input : body.input()) own.insert(input.name());
  for (const auto& initializer : body.initializer()) own.insert(initializer.name());
  for (const auto& node : body.node()) own.insert(node.output().begin(), node.output().end());
  std::vector<std::string_view> read;
  for (const auto& node : body.node()) add_operands(node, read);
  for (const auto& output : body.output()) read.push_back(output.name());
  for (const std::string_view name : read) {
    if (!own.contains(name)) names.push_back(name);
  }
}

void add_operands(const onnx::NodeProto& node, std::vector<std::string_view>& names) {
  for (const std::string& name : node.input()) {
    if (!name.empty()) names.push_back(name);
  }
  for (const auto& attribute : node.attribute()) {
    if (attribute.has_g()) add_outer_names(attribute.g(), names);
  }
}

class Wiring {
 public:
  Wiring(const std::string& where, const onnx::GraphProto& graph, int64_t opset, bool is_body)
      : where_(where), graph_(graph), opset_(opset), is_body_(is_body) {}

  std::vector<size_t> order() {
    add_given();
    for (size_t i = 0; i < nodes(); ++i) add_results(i);
    connect();
    std::vector<size_t> sorted = sort();
    if (sorted.size() < nodes()) throw bad_input("{}: the graph has a cycle: {}", where_, cycle_text());
    return sorted;
  }

 private:
  size_t nodes() const { return static_cast<size_t>(graph_.node_size()); }
  const onnx::NodeProto& node(size_t i) const { return graph_.node(static_cast<int>(i)); }
  std::vector<std::string_view> operands(size_t i) const {
    std::vector<std::string_view> names;
    add_operands(node(i), names);
    return names;
  }
  std::string text(size_t i) const { return node_text(where_, i, node(i), opset_); }

  void add_given() {
    for (const auto& input : graph_.input()) {
      if (input.name().empty()) throw bad_input("{}: a graph input has no name", where_);
      if (!maker_.emplace(input.name(), kGiven).second)
        throw bad_input("{}: two graph inputs are named '{}'", where_, printable(input.name()));
    }
    std::unordered_map<std::string_view, int> initializers;  // may repeat an input, but not each other
    for (const auto& initializer : graph_.initializer()) {
      if (initializer.name().empty()) throw bad_input("{}: an initializer has no name", where_);
      if (++initializers[initializer.name()] > 1)
        throw bad_input("{}: two initializers are named '{}'", where_, printable(initializer.name()));
      maker_.emplace(initializer.name(), kGiven);
    }
  }

  void add_results(size_t i) {
    for (const std::string& name : node(i).output()) {
      if (name.empty()) continue;
      const auto [found, fresh] = maker_.emplace(name, static_cast<int64_t>(i));
      if (fresh) continue;
      const std::string other = found->second == kGiven ? "a graph input or initializer" : fmt::format("node #{}", found->second);
      throw bad_input("{}: makes '{}', which {} makes too", text(i), printable(name), other);
    }
  }

  void connect() {
    readers_.resize(nodes());
    missing_.assign(nodes(), 0);
    for (size_t i = 0; i < nodes(); ++i) {
      for (const std::string_view name : operands(i)) {
        const auto found = maker_.find(name);
        if (found == maker_.end() && !is_body_)
          throw bad_input("{}: reads '{}', which is no input, no initializer, and made by no node", text(i), printable(name));
        if (found == maker_.end() || found->second == kGiven) continue;
        readers_[static_cast<size_t>(found->second)].push_back(i);
        ++missing_[i];
      }
    }
  }

  // The smallest ready position first, so that a sorted file keeps its order.
  std::vector<size_t> sort() {
    std::priority_queue<size_t, std::vector<size_t>, std::greater<>> ready;
    for (size_t i = 0; i < nodes(); ++i) {
      if (missing_[i] == 0) ready.push(i);
    }
    std::vector<size_t> sorted;
    while (!ready.empty()) {
      const size_t i = ready.top();
      ready.pop();
      sorted.push_back(i);
      for (const size_t reader : readers_[i]) {
        if (--missing_[reader] == 0) ready.push(reader);
      }
    }
    return sorted;
  }

  // After sort(): from a node that is still waiting, back along makers that wait too, until one comes again.
  std::string cycle_text() const {
    size_t at = 0;
    while (missing_[at] == 0) ++at;
    std::vector<size_t> path;
    std::vector<bool> seen(nodes(), false);
    while (!seen[at]) {
      seen[at] = true;
      path.push_back(at);
      for (const std::string_view name : operands(at)) {
        const auto found = maker_.find(name);
        if (found == maker_.end() || found->second == kGiven || missing_[static_cast<size_t>(found->second)] == 0) continue;
        at = static_cast<size_t>(found->second);
        break;
      }
    }
    path.erase(path.begin(), std::find(path.begin(), path.end(), at));
    std::reverse(path.begin(), path.end());
    std::vector<std::string> parts;
    for (size_t k = 0; k < path.size() && k < 8; ++k)
      parts.push_back(fmt::format("node #{} '{}'", path[k], printable(node(path[k]).name(), 40)));
    if (path.size() > 8) parts.push_back("...");
    parts.push_back(parts.front());
    return join(parts, " -> ");
  }

  const std::string& where_;
  const onnx::GraphProto& graph_;
  int64_t opset_;
  bool is_body_;
  std::unordered_map<std::string_view, int64_t> maker_;  // name -> node or kGiven
  std::vector<std::vector<size_t>> readers_;             // of each node's results
  std::vector<int64_t> missing_;                         // operands of each node that are not made yet
};

}  // namespace

std::vector<size_t> order_nodes(const std::string& where, const onnx::GraphProto& graph, int64_t opset, bool is_body) {
  return Wiring(where, graph, opset, is_body).order();
}

}  // namespace tamp::frontend
