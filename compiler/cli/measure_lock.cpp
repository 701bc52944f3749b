#include "compiler/cli/measure_lock.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <spdlog/spdlog.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <string>
#include <vector>

#include "compiler/support/error.h"
#include "compiler/support/files.h"

namespace tamp::cli {
namespace {

namespace fs = std::filesystem;

std::vector<fs::path> places() {
  std::vector<fs::path> folders;
  const auto variable = [](const char* name) { return std::getenv(name) == nullptr ? std::string() : std::getenv(name); };
  if (const fs::path runtime = variable("XDG_RUNTIME_DIR"); runtime.is_absolute()) folders.push_back(runtime);
  folders.push_back(temporary_parent() / fmt::format("tamp-{}", geteuid()));
  if (const fs::path home = variable("HOME"); home.is_absolute()) folders.push_back(home / ".cache" / "tamp");
  return folders;
}

// Opens `folder`, and makes it if it is not there. Returns a descriptor, or -1 if the folder is another user's or others can write to it.
int open_own(const fs::path& folder) {
  std::error_code ignored;
  fs::create_directories(folder.parent_path(), ignored);
  mkdir(folder.c_str(), 0700);
  const int opened = open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  struct stat info = {};
  if (opened < 0 || (fstat(opened, &info) == 0 && info.st_uid == geteuid() && (info.st_mode & (S_IWGRP | S_IWOTH)) == 0)) return opened;
  close(opened);
  return -1;
}

}  // namespace

MeasureLock::MeasureLock() {
  std::string tried;
  for (const fs::path& place : places()) {
    tried += (tried.empty() ? "" : ", ") + place.string();
    const int folder = open_own(place);
    if (folder < 0) continue;
    file_ = openat(folder, "tamp-measure.lock", O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
    close(folder);
    if (file_ >= 0) break;
  }
  if (file_ < 0) throw bad_input("no folder for a lock is this user's alone: {}; set XDG_RUNTIME_DIR to one that is", tried);
  if (flock(file_, LOCK_EX | LOCK_NB) == 0) return;
  spdlog::info("waits for another 'tamp tune' of yours to measure");
  while (flock(file_, LOCK_EX) != 0) TAMP_CHECK(errno == EINTR, "flock failed");
}

MeasureLock::~MeasureLock() { close(file_); }

}  // namespace tamp::cli
