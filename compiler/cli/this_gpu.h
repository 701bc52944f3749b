// Which GPU this machine has, and so what `--vdevice auto`, the default of every command, means.
#pragma once

#include <string>

namespace tamp::cli {

// Whether there is a GPU, as far as the system says without being asked for its name.
bool has_gpu();

// The built-in vDevice of this machine's GPU. Error (bad input) if none fits it; "h200" if the GPU cannot be asked.
std::string vdevice_of_this_gpu();

// What to plan for where nothing is to run: `given` itself; where that is empty or "auto" the vDevice of this machine's GPU, and where
// there is none, h200. The log says which. Error (bad input) on "auto" with a GPU that no vDevice fits.
std::string planned_vdevice(const std::string& given);

// The same where the program is to run here: on the stand-in "cpu", on a GPU its own. Error (bad input) if that has no vDevice.
std::string vdevice_to_run(const std::string& given, bool on_gpu);

}  // namespace tamp::cli
