// `tamp devices --measure FILE.json`: a vDevice for the GPU at hand. runtime_stub/host/measure_vdevice.cu times edges, bandwidths and
// rates; what it does not time is that of a built-in vDevice that is like it.
#pragma once

#include <map>
#include <string>

namespace tamp::cli {

// What that program printed.
struct Measurements {
  std::string product;  // "NVIDIA H200"
  std::map<std::string, double> values;
};
// Error (internal) if something is missing, or is not positive.
Measurements parse_measurements(const std::string& text);

// The text of a vDevice file. Error (unsupported) if the GPU has less shared memory than every built-in vDevice of its architecture or an
// older one.
std::string vdevice_text(const std::string& name, const Measurements& measured);

// Measures and writes. Error (bad input), before any work, if there is no GPU or no nvcc, or the file is there already or cannot be
// written.
void measure_vdevice(const std::string& file);

}  // namespace tamp::cli
