// `tamp devices`: the built-in vDevices.
#include <fmt/format.h>

#include "compiler/cli/command.h"
#include "compiler/cli/measure_vdevice.h"
#include "compiler/cli/print_json.h"
#include "compiler/cli/table.h"
#include "compiler/cli/this_gpu.h"
#include "compiler/cli/toolchain.h"
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
                    {"veus", vdevice.sms * vdevice.veus_per_sm},
                    {"smem_bytes", vdevice.smem_bytes},
                    {"precisions", precisions_of(vdevice)},
                    {"default_precision", name_of(vdevice.default_precision)}});
  }
  print_json(list);
  return ExitCode::ok;
}

// Output for tools that build and run models themselves, as runtime_stub/python does.
ExitCode show_this_machine(const std::string& name) {
  const Device device = choose_device(name);
  std::string vdevice = "cpu", problem;
  try {
    if (device == Device::cuda) vdevice = vdevice_of_this_gpu();
  } catch (const Error& unknown) {
    vdevice.clear();
    problem = unknown.what();
  }
  print_json({{"device", device == Device::cuda ? "cuda" : "cpu"},
              {"compiler", find_compiler(device)},
              {"vdevice", vdevice},
              {"problem", problem},
              {"has_gpu", has_gpu()},
              {"nvcc", find_compiler(Device::cuda)}});
  return ExitCode::ok;
}

ExitCode list_devices(bool as_json) {
  if (as_json) return list_devices_as_json();
  using Align = Table::Align;
  Table table({{"VDEVICE"}, {"ARCH"}, right("VEUS"), right("SMEM/VEU"), {"PRECISIONS"}, {"DEFAULT"}, {"DESCRIPTION", Align::left, 200}});
  for (const std::string& name : builtin_vdevices()) {
    const VDevice vdevice = read_vdevice(name);
    table.row({vdevice.name, vdevice.arch, std::to_string(vdevice.sms * vdevice.veus_per_sm), std::to_string(vdevice.smem_bytes),
               join(precisions_of(vdevice), " "), name_of(vdevice.default_precision), vdevice.description});
  }
  fmt::print("{}", table.text());
  return ExitCode::ok;
}

}  // namespace

void add_devices(CLI::App& app, Invocation& invocation) {
  CLI::App* command = add_command(
      app, invocation, "devices", "List the built-in vDevices (GPUs as data)",
      "  tamp devices\n  tamp compile model.onnx -o model/ --vdevice a100\n  tamp compile model.onnx -o model/ --vdevice my_gpu.json\n"
      "  tamp devices --measure my_gpu.json        (needs the GPU and nvcc)");
  auto as_json = std::make_shared<bool>(false);
  command->add_flag("--json", *as_json, "Print JSON");
  auto device = std::make_shared<std::string>();
  CLI::Option* here = add_value(*command, "--here", "[cuda|cpu]", *device,
                                "Print as JSON what this machine runs models on: its device, the compiler for it and its vDevice; "
                                "with cuda or cpu for that device")
                          ->expected(0, 1);
  auto measured = std::make_shared<std::string>();
  add_value(*command, "--measure", "FILE.json", *measured,
            "Measure this machine's GPU with nvcc, and write a vDevice file for it; what is not measured is that of a vDevice like it "
            "(docs/vdevices.md)");
  command->callback([&invocation, as_json, device, here, measured] {
    invocation.run = [as_json, device, is_here = here->count() > 0, measured] {
      if (!measured->empty()) {
        measure_vdevice(*measured);
        return ExitCode::ok;
      }
      return is_here ? show_this_machine(*device) : list_devices(*as_json);
    };
  });
}

}  // namespace tamp::cli
