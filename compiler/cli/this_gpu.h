// Finds out which GPU this machine has. `--vdevice auto`, the default of every command, means this GPU's vDevice.
#pragma once

#include <string>

namespace tamp::cli {

// Whether there is a GPU, as far as the system tells without nvidia-smi.
bool has_gpu();

// The built-in vDevice of this machine's GPU. Error (bad input) if none fits the GPU; "h200" if the GPU's name cannot be found out.
std::string vdevice_of_this_gpu();

// The vDevice to plan for if nothing is to run. That is `given`; if `given` is empty or "auto", the vDevice of this machine's GPU, or h200
// if there is no GPU. The log says which. Error (bad input) on "auto" with a GPU that no vDevice fits.
std::string planned_vdevice(const std::string& given);

// As above, for a program that is to run here: on the stand-in the default is "cpu", on a GPU that GPU's vDevice. Error (bad input) if the
// GPU has none.
std::string vdevice_to_run(const std::string& given, bool on_gpu);

}  // namespace tamp::cli
