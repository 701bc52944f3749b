// A new folder is made beside its place and renamed. Into a folder that exists, files are moved from a scratch folder inside it, because
// the folder may be a mount point, its parent may be read-only, and it may hold a build of the user's.
#include "codegen/output_folder.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <system_error>

#include "compiler/support/error.h"
#include "compiler/support/hash.h"
#include "compiler/support/interrupt.h"
#include "compiler/support/text.h"

namespace tamp::codegen {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

bool is_there(const fs::path& path) {
  std::error_code ignored;
  return fs::symlink_status(path, ignored).type() != fs::file_type::not_found;
}

// Computes hash_bytes over several parts of any length, and counts the bytes.
class Fingerprint {
 public:
  void add(std::string_view text) {
    bytes_ += std::ssize(text);
    if (filled_ == 0) {
      const size_t whole = text.size() / sizeof word_ * sizeof word_;
      hash_ = hash_bytes(text.data(), whole, hash_);
      text.remove_prefix(whole);
    }
    while (!text.empty()) {
      const size_t taken = std::min(text.size(), sizeof word_ - filled_);
      std::memcpy(word_ + filled_, text.data(), taken);
      text.remove_prefix(taken);
      filled_ += taken;
      if (filled_ == sizeof word_) mix();
    }
  }
  std::string text() {
    mix();
    return fingerprint_text(bytes_, hash_);
  }

 private:
  void mix() {
    hash_ = hash_bytes(word_, filled_, hash_);
    filled_ = 0;
  }

  char word_[8] = {};
  size_t filled_ = 0;
  int64_t bytes_ = 0;
  uint64_t hash_ = kHashSeed;
};

// Fingerprint of a regular file; a link is not followed.
std::optional<std::string> fingerprint_of(const fs::path& path) {
  std::error_code ignored;
  if (fs::symlink_status(path, ignored).type() != fs::file_type::regular) return std::nullopt;
  std::ifstream file(path, std::ios::binary);
  Fingerprint print;
  std::string chunk(1 << 20, '\0');
  while (file.read(chunk.data(), static_cast<std::streamsize>(chunk.size())) || file.gcount() > 0)
    print.add({chunk.data(), static_cast<size_t>(file.gcount())});
  return file.bad() ? std::nullopt : std::optional(print.text());
}

// The files that NAME.rprogram.json lists; none if that file is not as tamp writes it.
std::map<std::string, std::string> listed_files(const fs::path& path, const std::string& name) {
  std::ifstream file(path, std::ios::binary);
  const json object = json::parse(file, nullptr, /*allow_exceptions=*/false);
  if (!object.is_object() || object.value("name", json()) != name) return {};
  std::map<std::string, std::string> listed;
  const json files = object.value("files", json::object());
  for (const auto& [file_name, print] : files.items()) {
    if (print.is_string()) listed.emplace(file_name, print.get<std::string>());
  }
  return listed;
}

void check_names(const fs::path& target, const std::string& name, const std::vector<std::string>& files) {
  const std::string folder = printable(target.string()), own = name + std::string(kRprogramSuffix);
  std::error_code failure;
  for (const auto& entry : fs::directory_iterator(target, failure)) {
    const std::string other = entry.path().filename().string();
    if (other.ends_with(kRprogramSuffix) && other != own)
      throw bad_input(fmt::format("{}: holds another compiled model, {}; give an empty folder", folder, printable(other)));
  }
  if (failure) throw bad_input(fmt::format("{}: cannot be read: {}", folder, failure.message()));
  const std::map<std::string, std::string> listed = listed_files(target / own, name);
  for (const std::string& file : files) {
    if (!is_there(target / file)) continue;
    const std::optional<std::string> print = fingerprint_of(target / file);
    const auto found = listed.find(file);
    const bool is_own = file == own ? !listed.empty() : found != listed.end() && found->second == print;
    if (print && is_own) continue;
    throw bad_input(fmt::format("{}: holds a {} that tamp did not write, or that was changed since; move it away or give another folder",
                                folder, printable(file)));
  }
}

// Unchanged files of an earlier compilation that this one does not write: its weights, if they are embedded now.
std::vector<fs::path> left_over(const fs::path& target, const std::vector<OutputFile>& files) {
  std::vector<fs::path> paths;
  for (const OutputFile& manifest : files) {
    if (!manifest.name.ends_with(kRprogramSuffix)) continue;
    const std::string name = manifest.name.substr(0, manifest.name.size() - kRprogramSuffix.size());
    for (const auto& [file, print] : listed_files(target / manifest.name, name)) {
      const bool is_new = std::any_of(files.begin(), files.end(), [&](const OutputFile& other) { return other.name == file; });
      if (!is_new && fs::path(file).filename() == file && fingerprint_of(target / file) == print) paths.push_back(target / file);
    }
  }
  return paths;
}

fs::path target_of(const std::string& folder) {
  fs::path target = fs::absolute(folder).lexically_normal();
  return target.has_filename() ? target : target.parent_path();
}

[[noreturn]] void throw_unmovable(const fs::path& path) {
  throw bad_input(fmt::format("{}: cannot be written: {}", printable(path.string()), std::strerror(errno)));
}

// Swaps `from` with the file at `to`, or moves it if nothing is there. Where the file system cannot do this, it is renamed.
bool move_to(const fs::path& from, const fs::path& to, bool swap) {
  if (renameat2(AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str(), swap ? RENAME_EXCHANGE : RENAME_NOREPLACE) == 0) return true;
  return (errno == EINVAL || errno == ENOSYS) && std::rename(from.c_str(), to.c_str()) == 0;
}

// Moves all files or none: if one cannot be moved, those before it are moved back.
void move_files(const fs::path& from, const fs::path& to, const std::vector<OutputFile>& files) {
  std::vector<std::pair<std::string, bool>> moved;  // whether a file was there before
  for (const OutputFile& file : files) {
    std::error_code ignored;
    const fs::file_type there = fs::symlink_status(to / file.name, ignored).type();
    const bool swap = there == fs::file_type::regular;
    if ((swap || there == fs::file_type::not_found) && move_to(from / file.name, to / file.name, swap)) {
      moved.emplace_back(file.name, swap);
      continue;
    }
    const int error = swap || there == fs::file_type::not_found ? errno : EEXIST;
    for (const auto& [name, swapped] : moved) {
      if (!swapped || is_there(from / name)) move_to(to / name, from / name, swapped);
    }
    errno = error;
    throw_unmovable(to / file.name);
  }
}

void move_folder(const fs::path& from, const fs::path& to) {
  std::vector<fs::path> made;
  for (fs::path at = to.parent_path(); !is_there(at); at = at.parent_path()) made.push_back(at);
  std::error_code failure;
  fs::create_directories(to.parent_path(), failure);
  if (!failure && move_to(from, to, /*swap=*/false)) return;
  const int error = failure ? failure.value() : errno;
  for (const fs::path& folder : made) fs::remove(folder, failure);
  errno = error;
  throw_unmovable(to);
}

}  // namespace

std::string fingerprint_text(int64_t bytes, uint64_t hash) { return fmt::format("{}-{:016x}", bytes, hash); }

OutputFile output_file(std::string name, std::string_view text) {
  Fingerprint print;
  print.add(text);
  return {std::move(name), print.text(), static_cast<int64_t>(text.size())};
}

void check_folder(const std::string& folder, const std::string& name, const std::vector<std::string>& files) {
  const fs::path target = target_of(folder);
  if (is_there(target) && !fs::is_directory(target)) throw bad_input(fmt::format("{}: exists and is not a folder", printable(folder)));
  if (const std::string why = why_not_writable(target); !why.empty())
    throw bad_input(fmt::format("{}: cannot be written: {}", printable(folder), why));
  if (is_there(target)) check_names(target, name, files);
}

OutputFolder::OutputFolder(const std::string& folder) : target_(target_of(folder)), is_new_(!is_there(target_)) {
  scratch_.emplace(is_new_ ? nearest_existing(target_) : target_, is_new_ ? target_.filename().string() + ".tamp-" : ".tamp-");
  staging_ = scratch_->path() / "files";  // gets the usual permissions; the scratch folder is readable by the user alone
  std::error_code failure;
  if (!fs::create_directory(staging_, failure))
    throw bad_input(fmt::format("{}: cannot be made: {}", printable(staging_.string()), failure.message()));
}

const OutputFile& OutputFolder::write(const std::string& name, std::string_view text) {
  NewFile file(staging_ / name, staging_ / name);
  file.append(text);
  file.close();
  return files_.emplace_back(output_file(name, text));
}

const OutputFile& OutputFolder::write(const std::string& name, const std::function<void(NewFile&)>& write) {
  const fs::path path = staging_ / name;
  NewFile file(path, path);
  write(file);
  file.close();
  const std::optional<std::string> print = fingerprint_of(path);
  if (!print) throw bad_input(fmt::format("{}: cannot be read", printable(path.string())));
  return files_.emplace_back(OutputFile{name, *print, static_cast<int64_t>(fs::file_size(path))});
}

void OutputFolder::finish(Others others) {
  const std::vector<fs::path> left = is_new_ || others == Others::stay ? std::vector<fs::path>() : left_over(target_, files_);
  const Uninterrupted whole;
  is_new_ ? move_folder(staging_, target_) : move_files(staging_, target_, files_);
  std::error_code ignored;
  for (const fs::path& path : left) fs::remove(path, ignored);
}

}  // namespace tamp::codegen
