// `--measure`: the stages of IOS are timed on the device that the model is for, instead of simulated.
#pragma once

#include <cstdint>
#include <string>

#include "compiler/cli/command.h"
#include "compiler/cli/toolchain.h"
#include "compiler/compile.h"

namespace tamp::cli {

struct MeasureOptions {
  std::string model;  // the ONNX file
  Device device = Device::cuda;
  int jobs = 0;  // builds at a time; 0: as many as there are processors
  uint64_t seed = 1;
};

// For CompileOptions::measure. Throws InternalError if a program cannot be built or gives a wrong answer; what was built is then kept.
MeasureStages measure_stages(const MeasureOptions& options);

// For commands that have the option: sets CompileOptions::measure if the user gave it. Error (bad input) if the policy prices no stages, or
// the vDevice is not the device's.
void set_measure(const ModelArguments& arguments, const MeasureOptions& measuring, CompileOptions& options);

}  // namespace tamp::cli
