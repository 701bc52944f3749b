// `tamp ops`: lists the operators that the frontend accepts.
#include <fmt/format.h>

#include <algorithm>
#include <tuple>

#include "compiler/cli/command.h"
#include "compiler/cli/print_json.h"
#include "compiler/cli/table.h"
#include "compiler/frontend/onnx_reader.h"
#include "compiler/support/nearest.h"
#include "compiler/support/text.h"

namespace tamp::cli {
namespace {

// The versions as "1,6,7,8,13": those that changed the operator's meaning.
std::string versions_text(const std::vector<int>& versions) {
  std::vector<std::string> parts;
  for (const int version : versions) parts.push_back(std::to_string(version));
  return join(parts, ",");
}

// Keeps the operators of that name, with or without its domain ("Gelu", "com.microsoft.Gelu"); all of them if `name` is empty.
void keep_named(std::vector<frontend::SupportedOp>& ops, const std::string& name) {
  if (name.empty()) return;
  std::vector<std::string> names;
  for (const auto& op : ops) names.push_back(op.name);
  std::erase_if(ops, [&](const auto& op) { return op.name != name && op.domain + "." + op.name != name; });
  if (ops.empty()) throw unsupported("operator '{}' is not supported{}", printable(name), did_you_mean(name, names));
}

ExitCode list_ops(const std::string& name, bool as_json) {
  std::vector<frontend::SupportedOp> ops = frontend::supported_ops();
  keep_named(ops, name);
  std::sort(ops.begin(), ops.end(), [](const auto& a, const auto& b) { return std::tie(a.domain, a.name) < std::tie(b.domain, b.name); });
  if (as_json) {
    nlohmann::ordered_json list = nlohmann::ordered_json::array();
    for (const auto& op : ops) list.push_back({{"domain", op.domain}, {"name", op.name}, {"versions", op.versions}, {"limits", op.limits}});
    print_json(list);
    return ExitCode::ok;
  }
  Table table({{"OPERATOR"}, {"VERSIONS"}, {"LIMITS", Table::Align::left, 400}});
  for (const auto& op : ops)
    table.row({op.domain == "ai.onnx" ? op.name : op.domain + "." + op.name, versions_text(op.versions), op.limits});
  fmt::print("{}{} {}\n", table.text(), ops.size(), ops.size() == 1 ? "operator" : "operators");
  return ExitCode::ok;
}

}  // namespace

void add_ops(CLI::App& app, Invocation& invocation) {
  CLI::App* command =
      add_command(app, invocation, "ops", "List the supported ONNX operators", "  tamp ops\n  tamp ops MatMul\n  tamp ops --json");
  auto name = std::make_shared<std::string>();
  add_value(*command, "operator", "OPERATOR", *name, "Only this one; exit code 2 if it is not supported");
  auto as_json = std::make_shared<bool>(false);
  command->add_flag("--json", *as_json, "Print JSON: domain, name, versions that changed its meaning, limits");
  command->callback([&invocation, name, as_json] { invocation.run = [name, as_json] { return list_ops(*name, *as_json); }; });
}

}  // namespace tamp::cli
