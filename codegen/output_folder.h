// The folder that a compilation writes to. Files in it that are not tamp's own are never touched, and files are written whole or not at
// all.
//
// NAME.rprogram.json lists what was written with a fingerprint of each file; a file is tamp's own if it is listed and unchanged.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "compiler/support/files.h"

namespace tamp::codegen {

struct OutputFile {
  std::string name, print;  // a fingerprint of the contents
  int64_t bytes = 0;
};

std::string fingerprint_text(int64_t bytes, uint64_t hash);
// A file with this text.
OutputFile output_file(std::string name, std::string_view text);

inline constexpr std::string_view kRprogramSuffix = ".rprogram.json";

// Error (bad input) if files of these names could not be written into `folder`, or would replace what is not tamp's own; or if
// another compiled model than NAME is there. Changes nothing.
void check_folder(const std::string& folder, const std::string& name, const std::vector<std::string>& files);

// The fate of files of an earlier compilation that are not among `files`.
enum class Others { go, stay };

// Files on their way into a folder, which gets all of them, or none if this object goes before.
class OutputFolder {
 public:
  explicit OutputFolder(const std::string& folder);
  const OutputFile& write(const std::string& name, std::string_view text);
  const OutputFile& write(const std::string& name, const std::function<void(NewFile&)>& write);
  const std::vector<OutputFile>& files() const { return files_; }
  void finish(Others others = Others::go);

 private:
  std::filesystem::path target_, staging_;
  bool is_new_;
  std::optional<ScratchFolder> scratch_;
  std::vector<OutputFile> files_;
};

}  // namespace tamp::codegen
