// `tamp devices --measure FILE.json`: makes a vDevice for the GPU at hand. runtime_stub/host/measure_vdevice.cu times edges, bandwidths and
// rates; times that are not measured are those of a similar built-in vDevice.
#pragma once

#include <map>
#include <string>

namespace tamp::cli {

// The output of runtime_stub/host/measure_vdevice.cu.
struct Measurements {
  std::string product;  // "NVIDIA H200"
  std::map<std::string, double> values;
};
// Error (internal) if a value is missing, or is not positive.
Measurements parse_measurements(const std::string& text);

// The text of a vDevice file. Error (unsupported) if the GPU has less shared memory than every built-in vDevice of the GPU's architecture
// or an older one.
std::string vdevice_text(const std::string& name, const Measurements& measured);

// Measures and writes the file. Error (bad input), before any work, if there is no GPU or no nvcc, or if the file exists already or cannot
// be written.
void measure_vdevice(const std::string& file);

}  // namespace tamp::cli
