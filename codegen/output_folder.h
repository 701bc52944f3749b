// The folder that a compilation writes to. Files in it that are not tamp's own are never touched, and files are written whole or not at
// all.
//
// NAME.rprogram.json lists what was written with a fingerprint of each file; a file is tamp's own if it is listed and unchanged.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace tamp::codegen {

struct OutputFile {
  std::string name;
  std::string_view begin, rest;  // the file holds both, one behind the other
};

// Of a file's contents.
std::string fingerprint(const OutputFile& file);

inline constexpr std::string_view kRprogramSuffix = ".rprogram.json";

// Error (bad input) if files of these names could not be written into `folder`, or would replace what is not tamp's own; or if
// another compiled model than NAME is there. Changes nothing.
void check_folder(const std::string& folder, const std::string& name, const std::vector<std::string>& files);

// The fate of files of an earlier compilation that are not among `files`.
enum class Others { go, stay };
void write_folder(const std::string& folder, const std::vector<OutputFile>& files, Others others = Others::go);

}  // namespace tamp::codegen
