// Lists the files that a model is made of, for build systems.
#pragma once

#include <string>
#include <vector>

namespace tamp::frontend {

// The files of external data that the model names, each once, in order of their names and below the model's folder as `path` gives it.
// Error as in read_onnx if the model cannot be parsed; whether the files are there and safe to read is asked by read_onnx.
std::vector<std::string> external_files(const std::string& path);

}  // namespace tamp::frontend
