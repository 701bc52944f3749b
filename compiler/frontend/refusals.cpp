// A model with a million nodes of one unknown operator needs no million lines: the list ends at kMaxLines.
#include "compiler/frontend/refusals.h"

#include <fmt/format.h>
#include <onnx/onnx_pb.h>

#include <algorithm>
#include <set>

#include "compiler/frontend/container.h"
#include "compiler/frontend/node.h"
#include "compiler/frontend/op_table.h"
#include "compiler/support/error.h"
#include "compiler/support/text.h"

namespace tamp::frontend {
namespace {

constexpr size_t kMaxLines = 1000;

}  // namespace

std::vector<std::string> Refusals::sorted() const {
  auto ordered = lines;
  std::stable_sort(ordered.begin(), ordered.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  std::vector<std::string> texts;
  for (const auto& [position, line] : ordered) {
    if (texts.size() < kMaxLines) texts.push_back(line);
  }
  if (ordered.size() > kMaxLines) texts.push_back(fmt::format("... and {} more", ordered.size() - kMaxLines));
  return texts;
}

void Refusals::throw_if_any() const {
  if (!lines.empty()) throw unsupported(join(sorted(), "\n"));
}

Refusals find_refusals(const std::string& path, const onnx::ModelProto& model, int64_t opset) {
  Refusals refusals;
  for (const auto& sparse : model.graph().sparse_initializer()) {
    refusals.add(fmt::format("{}: initializer '{}' is sparse, which is not supported", file_text(path), printable(sparse.values().name())));
  }
  std::set<std::pair<std::string, std::string>> functions;
  for (const auto& function : model.functions()) functions.emplace(function.domain(), function.name());
  for (int i = 0; i < model.graph().node_size(); ++i) {
    const auto& node = model.graph().node(i);
    const bool local = functions.contains({node.domain(), node.op_type()});
    const OpChoice choice = choose_op(node.domain(), node.op_type(), opset);
    if (choice.row && !local) continue;
    const std::string why = local ? "local functions of a model are not supported" : choice.refusal;
    refusals.add(fmt::format("{}: {}", node_text(path, static_cast<size_t>(i), node, opset), why), i);
  }
  return refusals;
}

}  // namespace tamp::frontend
