// Files and folders: scratch ones, open ones, and whether a place can be written to.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

namespace tamp {

// A fresh folder PARENT/PREFIXxxxxxx, as an absolute path, with a name that nobody can guess and for this user alone. If a signal ends the
// program, the folder is removed with everything in it, unless it was removed or forgotten before. Error (bad input) if it cannot be made.
std::filesystem::path make_scratch_folder(const std::filesystem::path& parent, std::string_view prefix);
void remove_scratch_folder(const std::filesystem::path& folder);
void forget_scratch_folder(const std::filesystem::path& folder);

// A scratch folder that is removed when this object goes.
class ScratchFolder {
 public:
  ScratchFolder(const std::filesystem::path& parent, std::string_view prefix) : path_(make_scratch_folder(parent, prefix)) {}
  ~ScratchFolder() { remove_scratch_folder(path_); }
  ScratchFolder(const ScratchFolder&) = delete;
  ScratchFolder& operator=(const ScratchFolder&) = delete;
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

// An open file, closed with this; `fd` is -1 if it could not be opened.
struct FileDescriptor {
  int fd = -1;
  explicit FileDescriptor(int opened) : fd(opened) {}
  ~FileDescriptor();
  FileDescriptor(const FileDescriptor&) = delete;
  FileDescriptor& operator=(const FileDescriptor&) = delete;
};

// The system's folder for temporary files.
std::filesystem::path temporary_parent();

// `path` itself if it exists, else the nearest folder above it that does.
std::filesystem::path nearest_existing(const std::filesystem::path& path);

// Why a folder `path` could not be made or written into; empty if it could. Changes nothing.
std::string why_not_writable(const std::filesystem::path& path);

// A file that is being written, and was not there before. Every Error (bad input) begins with `name`.
class NewFile {
 public:
  NewFile(const std::filesystem::path& path, const std::filesystem::path& name);
  void append(std::string_view text);
  void overwrite(std::string_view text, int64_t at);  // what was appended
  void close();                                       // some errors show only here

 private:
  std::string name_;
  std::unique_ptr<FileDescriptor> file_;
  int64_t bytes_ = 0;
};

// Writes a file whole or not at all; what stood there stays until then. Error (bad input) names the file.
void replace_file(const std::filesystem::path& path, std::string_view text);
void replace_file(const std::filesystem::path& path, const std::function<void(NewFile&)>& write);

}  // namespace tamp
