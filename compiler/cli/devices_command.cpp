// `tamp devices`: the built-in vDevices.
#include <fmt/format.h>

#include "compiler/cli/command.h"
#include "compiler/cli/print_json.h"
#include "compiler/cli/table.h"
#include "compiler/ir/vdevice.h"
#include "compiler/support/text.h"

namespace tamp::cli {
namespace {

std::vector<std::string> precisions_of(const VDevice& vdevice) {
  std::vector<std::string> names = {"fp32"};
  if (vdevice.tf32) names.emplace_back("tf32");
  if (vdevice.fp16) names.emplace_back("fp16");
  if (vdevice.bf16) names.emplace_back("bf16");
  return names;
}

ExitCode list_devices_as_json() {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const std::string& name : builtin_vdevices()) {
    const VDevice vdevice = read_vdevice(name);
    list.push_back({{"name", vdevice.name},
                    {"description", vdevice.description},
                    {"arch", vdevice.arch},
                    {"veus", vdevice.veus()},
                    {"smem_bytes", vdevice.smem_bytes},
                    {"precisions", precisions_of(vdevice)},
                    {"default_precision", name_of(vdevice.default_precision)}});
  }
  print_json(list);
  return ExitCode::ok;
}

ExitCode list_devices(bool as_json) {
  if (as_json) return list_devices_as_json();
  using Align = Table::Align;
  Table table({{"VDEVICE"},
               {"ARCH"},
               {"VEUS", Align::right},
               {"SMEM/VEU", Align::right},
               {"PRECISIONS"},
               {"DEFAULT"},
               {"DESCRIPTION", Align::left, 200}});
  for (const std::string& name : builtin_vdevices()) {
    const VDevice vdevice = read_vdevice(name);
    table.row({vdevice.name, vdevice.arch, std::to_string(vdevice.veus()), std::to_string(vdevice.smem_bytes),
               join(precisions_of(vdevice), " "), name_of(vdevice.default_precision), vdevice.description});
  }
  fmt::print("{}", table.text());
  return ExitCode::ok;
}

}  // namespace

void add_devices(CLI::App& app, Invocation& invocation) {
  CLI::App* command = add_command(
      app, invocation, "devices", "List the built-in vDevices (GPUs as data)",
      "  tamp devices\n  tamp compile model.onnx -o model/ --vdevice a100\n  tamp compile model.onnx -o model/ --vdevice my_gpu.json");
  auto as_json = std::make_shared<bool>(false);
  command->add_flag("--json", *as_json, "Print JSON");
  command->callback([&invocation, as_json] { invocation.run = [as_json] { return list_devices(*as_json); }; });
}

}  // namespace tamp::cli
