// Child processes and temporary folders. Arguments go to the child as they are: no shell ever sees them.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "compiler/support/error.h"

namespace tamp::cli {

struct ProcessResult {
  int exit_code = 0;   // 128 + number if a signal ended it
  std::string output;  // stdout
  std::string errors;  // stderr
  bool ok() const { return exit_code == 0; }
};

// Runs `arguments[0]` (looked up in PATH) in `folder` (empty: this process's folder) and waits. stdout and stderr are also left as LOG.out
// and LOG.err. InternalError if the program cannot be started.
ProcessResult run_process(const std::vector<std::string>& arguments, const std::filesystem::path& log,
                          const std::filesystem::path& folder = {});

// Full path of a program in PATH, or empty.
std::string find_program(const std::string& name);

// A fresh folder that is removed with everything in it, unless keep() was called.
class TemporaryFolder {
 public:
  TemporaryFolder();
  ~TemporaryFolder();
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  const std::filesystem::path& path() const { return path_; }
  void keep() { kept_ = true; }

 private:
  std::filesystem::path path_;
  bool kept_ = false;
};

// What `work` returns for a fresh folder. The folder stays where InternalError is thrown, since its logs say what happened.
auto in_temporary_folder(const auto& work) {
  TemporaryFolder folder;
  try {
    return work(folder.path());
  } catch (const InternalError&) {
    folder.keep();
    throw;
  }
}

std::string read_text(const std::filesystem::path& path);                   // Error (bad input) if unreadable
void write_text(const std::filesystem::path& path, std::string_view text);  // Error as above; makes parent folders

}  // namespace tamp::cli
