#include "compiler/support/files.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <system_error>

#include "compiler/support/error.h"
#include "compiler/support/interrupt.h"
#include "compiler/support/text.h"

namespace tamp {

FileDescriptor::~FileDescriptor() {
  if (fd >= 0) close(fd);
}

namespace fs = std::filesystem;

fs::path make_scratch_folder(const fs::path& parent, std::string_view prefix) {
  std::string name = (fs::absolute(parent) / fmt::format("{}XXXXXX", prefix)).string();
  const Uninterrupted whole;
  if (mkdtemp(name.data()) == nullptr) throw bad_input("{}: cannot be made: {}", printable(name), std::strerror(errno));
  remove_on_signal(name);
  return name;
}

void remove_scratch_folder(const fs::path& folder) {
  const Uninterrupted whole;
  std::error_code ignored;
  fs::remove_all(folder, ignored);
  keep_on_signal(folder);
}

void forget_scratch_folder(const fs::path& folder) {
  const Uninterrupted whole;
  keep_on_signal(folder);
}

fs::path temporary_parent() {
  std::error_code failure;
  const fs::path parent = fs::temp_directory_path(failure);
  return failure ? fs::path("/tmp") : parent;
}

fs::path nearest_existing(const fs::path& path) {
  std::error_code ignored;
  fs::path at = fs::absolute(path).lexically_normal();
  while (at.has_relative_path() && fs::symlink_status(at, ignored).type() == fs::file_type::not_found) at = at.parent_path();
  return at;
}

std::string why_not_writable(const fs::path& path) {
  const fs::path at = nearest_existing(path);
  std::error_code failure;
  if (!fs::is_directory(at, failure)) return fmt::format("{} is not a folder", printable(at.string()));
  if (faccessat(AT_FDCWD, at.c_str(), W_OK | X_OK, AT_EACCESS) == 0) return "";
  return fmt::format("{}: {}", printable(at.string()), std::strerror(errno));
}

void replace_file(const fs::path& path, std::string_view text) { replace_file(path, std::vector{text}); }

void replace_file(const fs::path& path, const std::vector<std::string_view>& parts) {
  std::error_code failure;
  const fs::path target = fs::weakly_canonical(fs::absolute(path), failure);  // what a link names
  if (!failure) fs::create_directories(target.parent_path(), failure);
  if (failure) throw bad_input("{}: cannot be written: {}", printable(path.string()), failure.message());
  const ScratchFolder scratch(target.parent_path(), ".tamp-");
  const Uninterrupted whole;
  std::ofstream file(scratch.path() / "file", std::ios::binary);
  for (const std::string_view text : parts) file.write(text.data(), static_cast<std::streamsize>(text.size()));
  file.close();
  if (!file) throw bad_input("{}: writing failed (disk full?)", printable(path.string()));
  fs::rename(scratch.path() / "file", target, failure);
  if (failure) throw bad_input("{}: cannot be written: {}", printable(path.string()), failure.message());
}

}  // namespace tamp
