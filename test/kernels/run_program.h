// Compiles the generated program of a test of bodies, and runs it.
#pragma once

#include <filesystem>
#include <string>

namespace tamp::test {

// Runs `folder`/cases.cu, compiled over the stand-in or by this nvcc with its options ("nvcc -arch=sm_90"). `root` is the repository. What
// failed, or "". A source that this process has compiled already is not compiled again: cases that differ in their values only have one.
std::string run_program(const std::filesystem::path& root, const std::filesystem::path& folder, const char* nvcc);

}  // namespace tamp::test
