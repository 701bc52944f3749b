// Exporters write nodes in order, but ONNX files in the wild do not always; so they are sorted, and only what cannot be
// sorted is refused. All walks are linear in the size of the file: chains of thousands of nodes are normal.
#include "compiler/frontend/graph_order.h"

#include <fmt/format.h>
#include <onnx/onnx_pb.h>

#include <algorithm>
#include <functional>
#include <queue>
#include <string_view>
#include <unordered_map>

#include "compiler/frontend/container.h"
#include "compiler/frontend/node.h"
#include "compiler/support/error.h"
#include "compiler/support/text.h"

namespace tamp::frontend {
namespace {

constexpr int64_t kGiven = -1;  // made by no node: an input or an initializer

class Wiring {
 public:
  Wiring(const std::string& path, const onnx::GraphProto& graph, int64_t opset) : path_(path), graph_(graph), opset_(opset) {}

  std::vector<size_t> order() {
    add_given();
    for (size_t i = 0; i < nodes(); ++i) add_results(i);
    connect();
    std::vector<size_t> sorted = sort();
    if (sorted.size() < nodes()) throw bad_input(fmt::format("{}: the graph has a cycle: {}", file_text(path_), cycle_text()));
    return sorted;
  }

 private:
  size_t nodes() const { return static_cast<size_t>(graph_.node_size()); }
  const onnx::NodeProto& node(size_t i) const { return graph_.node(static_cast<int>(i)); }
  std::string text(size_t i) const { return node_text(path_, i, node(i), opset_); }

  void add_given() {
    for (const auto& input : graph_.input()) {
      if (input.name().empty()) throw bad_input(fmt::format("{}: a graph input has no name", file_text(path_)));
      if (!maker_.emplace(input.name(), kGiven).second) {
        throw bad_input(fmt::format("{}: two graph inputs are named '{}'", file_text(path_), printable(input.name())));
      }
    }
    std::unordered_map<std::string_view, int> initializers;  // may repeat an input, but not each other
    for (const auto& initializer : graph_.initializer()) {
      if (initializer.name().empty()) throw bad_input(fmt::format("{}: an initializer has no name", file_text(path_)));
      if (++initializers[initializer.name()] > 1) {
        throw bad_input(fmt::format("{}: two initializers are named '{}'", file_text(path_), printable(initializer.name())));
      }
      maker_.emplace(initializer.name(), kGiven);
    }
  }

  void add_results(size_t i) {
    for (const std::string& name : node(i).output()) {
      if (name.empty()) continue;
      const auto [found, fresh] = maker_.emplace(name, static_cast<int64_t>(i));
      if (fresh) continue;
      const std::string other = found->second == kGiven ? "a graph input or initializer" : fmt::format("node #{}", found->second);
      throw bad_input(fmt::format("{}: makes '{}', which {} makes too", text(i), printable(name), other));
    }
  }

  void connect() {
    readers_.resize(nodes());
    missing_.assign(nodes(), 0);
    for (size_t i = 0; i < nodes(); ++i) {
      for (const std::string& name : node(i).input()) {
        if (name.empty()) continue;
        const auto found = maker_.find(name);
        if (found == maker_.end()) {
          throw bad_input(fmt::format("{}: reads '{}', which is no input, no initializer, and made by no node", text(i), printable(name)));
        }
        if (found->second == kGiven) continue;
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
      for (const std::string& name : node(at).input()) {
        const auto found = maker_.find(name);
        if (name.empty() || found->second == kGiven || missing_[static_cast<size_t>(found->second)] == 0) continue;
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

  const std::string& path_;
  const onnx::GraphProto& graph_;
  int64_t opset_;
  std::unordered_map<std::string_view, int64_t> maker_;  // name -> node or kGiven
  std::vector<std::vector<size_t>> readers_;             // of each node's results
  std::vector<int64_t> missing_;                         // operands of each node that are not made yet
};

}  // namespace

std::vector<size_t> order_nodes(const std::string& path, const onnx::GraphProto& graph, int64_t opset) {
  return Wiring(path, graph, opset).order();
}

}  // namespace tamp::frontend
