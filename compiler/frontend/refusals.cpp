// A model with a million nodes of one unknown operator would give a million lines, so the list ends at kMaxLines.
#include "compiler/frontend/refusals.h"

#include <fmt/format.h>
#include <onnx/onnx_pb.h>

#include <algorithm>
#include <map>
#include <utility>

#include "compiler/frontend/container.h"
#include "compiler/frontend/local_functions.h"
#include "compiler/frontend/node.h"
#include "compiler/support/text.h"

namespace tamp::frontend {
namespace {

constexpr size_t kMaxLines = 1000;

}  // namespace

void Refusals::add(const std::string& where, const std::string& why, const onnx::NodeProto& node, int64_t position) {
  const std::string domain = is_default_domain(node.domain()) ? "" : node.domain() + ".";
  lines.push_back({position, fmt::format("{}: {}", where, why), {node.name(), domain + node.op_type(), why}});
}

std::vector<Refusals::Line> Refusals::first_lines() const {
  std::vector<Line> ordered = lines;
  std::stable_sort(ordered.begin(), ordered.end(), [](const Line& a, const Line& b) { return a.position < b.position; });
  if (ordered.size() > kMaxLines) ordered.resize(kMaxLines);
  return ordered;
}

std::vector<std::string> Refusals::sorted() const {
  std::vector<std::string> texts;
  std::map<std::pair<std::string, std::string>, std::pair<size_t, int64_t>> kinds;  // by operator and reason: which text, how many nodes
  const std::vector<Line> first = first_lines();
  for (const Line& line : first) {
    const auto [kind, is_new] = kinds.try_emplace({line.data.op, line.data.reason}, texts.size(), 0);
    ++kind->second.second;
    if (is_new || line.data.op.empty()) texts.push_back(line.text);
  }
  for (const auto& [kind, place] : kinds) {
    const int64_t more = place.second - 1;
    if (more > 0 && !kind.first.empty())
      texts[place.first] += fmt::format(" (and {} more {} of {})", more, more == 1 ? "node" : "nodes", printable(kind.first, 60));
  }
  if (lines.size() > first.size()) texts.push_back(fmt::format("... and {} more", lines.size() - first.size()));
  return texts;
}

void Refusals::throw_if_any() const {
  if (lines.empty()) return;
  std::vector<Refusal> data;
  for (Line& line : first_lines()) data.push_back(std::move(line.data));
  throw unsupported(join(sorted(), "\n"), std::move(data));
}

Refusals find_refusals(const std::string& path, const onnx::ModelProto& model, int64_t opset) {
  Refusals refusals;
  const std::string file = file_text(path);
  if (model.ir_version() > kNewestIr) {
    refusals.add(fmt::format("{}: IR version {} is newer than {}, the newest known; export with an older version of onnx", file,
                             model.ir_version(), kNewestIr));
  }
  if (opset > kNewestOpset) {
    refusals.add(fmt::format("{}: opset {} is newer than {}, the newest whose operators are known; export with opset {}", file, opset,
                             kNewestOpset, kNewestOpset));
  }
  for (const auto& sparse : model.graph().sparse_initializer()) {
    refusals.add(
        fmt::format("{}: initializer '{}' is sparse, which is not supported; store it whole", file, printable(sparse.values().name())));
  }
  for (const auto& import : model.opset_import()) {
    if (import.domain() != kMicrosoft || import.version() <= kMicrosoftVersion) continue;
    refusals.add(fmt::format("{}: opset {} of domain {} is newer than {}, the newest whose operators are known", file, import.version(),
                             kMicrosoft, kMicrosoftVersion));
  }
  const LocalFunctions functions(model);
  if (!functions.twice().empty())
    refusals.add(fmt::format("{}: has two functions '{}' of one domain and overload, supported: one", file, functions.twice()));
  for (const auto& function : model.functions()) {
    for (const auto& import : function.opset_import()) {
      if (!is_default_domain(import.domain()) || import.version() <= kNewestOpset) continue;
      refusals.add(fmt::format("{}: function '{}' imports opset {}, which is newer than {}, the newest whose operators are known", file,
                               name_of_function(function), import.version(), kNewestOpset));
    }
  }
  for (int i = 0; i < model.graph().node_size(); ++i) {
    const auto& node = model.graph().node(i);
    if (functions.find(node)) continue;
    const OpChoice choice = choose_op(node.domain(), node.op_type(), opset);
    if (choice.row) continue;
    refusals.add(node_text(file, static_cast<size_t>(i), node, opset), choice.refusal, node, i);
  }
  return refusals;
}

}  // namespace tamp::frontend
