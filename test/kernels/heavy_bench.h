// Runs every rKernel that families with ring weights offer for a list of cases: one source file with one body per
// instance and a table of arguments, compiled over the stand-in (or with nvcc), run, and compared with the reference.
// Cases, values and the checks of accesses() are light_bench.h's.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "test/kernels/light_bench.h"

namespace tamp::test {

struct HeavyRun {
  ShapedVDevice vdevice;
  Precision precision = Precision::fp32;
  double tolerance = 1e-5;  // of the sum of the absolute values of a dot product, about: of sqrt(k)
};

// Problems found, one line each. `root` is the repository, `folder` takes the generated files.
std::vector<std::string> run_heavy_cases(const std::vector<Case>& cases, const std::vector<kernels::Family>& families, const HeavyRun& run,
                                         const std::filesystem::path& root, const std::filesystem::path& folder);

}  // namespace tamp::test
