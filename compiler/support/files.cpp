#include "compiler/support/files.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <system_error>
#include <utility>

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

NewFile::NewFile(const fs::path& path, const fs::path& name) : name_(printable(name.string())) {
  const Uninterrupted whole;
  file_ = std::make_unique<FileDescriptor>(open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666));
  if (file_->fd < 0) throw bad_input("{}: cannot be written: {}", name_, std::strerror(errno));
}

void NewFile::append(std::string_view text) {
  overwrite(text, bytes_);
  bytes_ += static_cast<int64_t>(text.size());
}

void NewFile::overwrite(std::string_view text, int64_t at) {
  while (!text.empty()) {
    const ssize_t written = pwrite(file_->fd, text.data(), text.size(), at);
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) throw bad_input("{}: writing failed: {}", name_, std::strerror(errno));
    text.remove_prefix(static_cast<size_t>(written));
    at += written;
  }
}

void NewFile::close() {
  if (::close(std::exchange(file_->fd, -1)) != 0) throw bad_input("{}: writing failed: {}", name_, std::strerror(errno));
}

void replace_file(const fs::path& path, std::string_view text) {
  replace_file(path, [&](NewFile& file) { file.append(text); });
}

void replace_file(const fs::path& path, const std::function<void(NewFile&)>& write) {
  std::error_code failure;
  const fs::path target = fs::weakly_canonical(fs::absolute(path), failure);  // what a link names
  if (!failure) fs::create_directories(target.parent_path(), failure);
  if (failure) throw bad_input("{}: cannot be written: {}", printable(path.string()), failure.message());
  const ScratchFolder scratch(target.parent_path(), ".tamp-");
  NewFile file(scratch.path() / "file", path);
  write(file);
  file.close();
  const Uninterrupted whole;
  fs::rename(scratch.path() / "file", target, failure);
  if (failure) throw bad_input("{}: cannot be written: {}", printable(path.string()), failure.message());
}

}  // namespace tamp
