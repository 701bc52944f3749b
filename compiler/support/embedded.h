// Real files of the repository (device code, host runtime, stand-in, vDevices) that the tamp program carries inside it, so
// that it works from any place. Filled at build time by cmake/embed.cmake.
#pragma once

#include <string_view>
#include <vector>

namespace tamp {

struct EmbeddedFile {
  std::string_view path;  // relative to the repository: "kernels/vdevice/task.cuh"
  std::string_view text;
};
const std::vector<EmbeddedFile>& embedded_files();      // sorted by path
std::string_view embedded_file(std::string_view path);  // TAMP_CHECK if absent

}  // namespace tamp
