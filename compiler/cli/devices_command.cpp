// `tamp devices`: the built-in vDevices.
#include <fmt/format.h>

#include "compiler/cli/command.h"
#include "compiler/cli/table.h"
#include "compiler/ir/vdevice.h"

namespace tamp::cli {
namespace {

// 16 bits: weights and products.
std::string precisions_of(const VDevice& vdevice) {
  std::string names = "fp32";
  if (vdevice.tf32) names += " tf32";
  if (vdevice.fp16) names += " fp16";
  if (vdevice.bf16) names += " bf16";
  return names;
}

ExitCode list_devices() {
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
    table.row({vdevice.name, vdevice.arch, std::to_string(vdevice.veus()), std::to_string(vdevice.smem_bytes), precisions_of(vdevice),
               name_of(vdevice.default_precision), vdevice.description});
  }
  fmt::print("{}", table.text());
  return ExitCode::ok;
}

}  // namespace

void add_devices(CLI::App& app, Invocation& invocation) {
  CLI::App* command = add_command(
      app, invocation, "devices", "List the built-in vDevices (GPUs as data)",
      "  tamp devices\n  tamp compile model.onnx -o model/ --vdevice a100\n  tamp compile model.onnx -o model/ --vdevice my_gpu.json");
  command->callback([&invocation] { invocation.run = list_devices; });
}

}  // namespace tamp::cli
