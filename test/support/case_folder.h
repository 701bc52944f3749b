// Where a test of bodies puts what it generates: a fresh folder that goes afterwards; or, with TAMP_KEEP=FOLDER, the folder
// FOLDER/NAME, to look at.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <optional>
#include <string>

#include "compiler/support/files.h"

namespace tamp::test {

class CaseFolder {
 public:
  explicit CaseFolder(const std::string& name) {
    if (const char* const kept = std::getenv("TAMP_KEEP"))
      path_ = std::filesystem::path(kept) / name;
    else
      path_ = scratch_.emplace(temporary_parent(), name + "-").path();
  }
  const std::filesystem::path& path() const { return path_; }

 private:
  std::optional<ScratchFolder> scratch_;
  std::filesystem::path path_;
};

}  // namespace tamp::test
