// Containment in three steps: the name itself (relative, no '..', no backslash, no NUL), the walk (openat2 beneath the
// model's folder without following any link; where the kernel has no openat2, component by component with O_NOFOLLOW),
// and the open file (regular, one hard link, long enough). The file is checked after it is open, never before.
#include "compiler/frontend/external_data.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <linux/openat2.h>
#include <onnx/onnx_pb.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cstring>
#include <map>
#include <optional>
#include <sstream>
#include <utility>

#include "compiler/support/error.h"
#include "compiler/support/files.h"
#include "compiler/support/text.h"

namespace tamp::frontend {
namespace {

constexpr int kOpenFlags = O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY | O_NOFOLLOW;

struct Reference {
  std::string location;
  int64_t offset = 0;
  std::optional<int64_t> length;
};

int64_t parse_count(const std::string& key, const std::string& text, const std::string& where) {
  int64_t value = -1;
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc() || stop != end || text.empty() || value < 0)
    throw bad_input("{}: external data: {} is '{}', expected a whole number of bytes", where, key, printable(text));
  return value;
}

std::vector<std::string> components_of(const std::string& location, const std::string& where) {
  const auto refuse = [&](const char* why) { return bad_input("{}: external data: location '{}' {}", where, printable(location), why); };
  if (location.empty()) throw refuse("is empty");
  if (location.find('\0') != std::string::npos) throw refuse("holds a NUL byte");
  if (location.find('\\') != std::string::npos) throw refuse("holds a backslash");
  if (location.front() == '/') throw refuse("is absolute; it must lie in the model's folder");
  std::vector<std::string> components;
  std::stringstream stream(location);
  for (std::string part; std::getline(stream, part, '/');) {
    if (part == "..") throw refuse("leaves the model's folder");
    if (!part.empty() && part != ".") components.push_back(part);
  }
  if (components.empty()) throw refuse("names no file");
  return components;
}

Reference parse_reference(const onnx::TensorProto& tensor, const std::string& where) {
  std::map<std::string, std::string> entries;
  for (const auto& entry : tensor.external_data()) {
    const std::string& key = entry.key();
    if (key != "location" && key != "offset" && key != "length" && key != "checksum")
      throw bad_input("{}: external data: unknown key '{}'", where, printable(key));
    if (!entries.emplace(key, entry.value()).second) throw bad_input("{}: external data: key '{}' twice", where, key);
  }
  if (!entries.contains("location")) throw bad_input("{}: external data without a location", where);
  Reference reference;
  reference.location = entries["location"];
  if (entries.contains("offset")) reference.offset = parse_count("offset", entries["offset"], where);
  if (entries.contains("length")) reference.length = parse_count("length", entries["length"], where);
  return reference;
}

// -1 with errno set. ELOOP: a symbolic link on the way.
int open_by_components(int folder, const std::vector<std::string>& components) {
  int at = dup(folder);
  for (size_t i = 0; i + 1 < components.size() && at >= 0; ++i) {
    const int next = openat(at, components[i].c_str(), O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    close(at);
    at = next;
  }
  if (at < 0) return -1;
  const int file = openat(at, components.back().c_str(), kOpenFlags);
  close(at);
  return file;
}

int open_beneath(int folder, const std::vector<std::string>& components) {
  const std::string path = join(components, "/");
  open_how how = {};
  how.flags = kOpenFlags;
  how.resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS;
  const long opened = syscall(SYS_openat2, folder, path.c_str(), &how, sizeof how);
  if (opened >= 0) return static_cast<int>(opened);
  const bool refused_call = errno == ENOSYS || errno == EPERM || errno == E2BIG;  // old kernel, or a sandbox
  return refused_call ? open_by_components(folder, components) : -1;
}

void read_fully(int fd, Bytes& bytes, int64_t offset, const std::string& what) {
  size_t done = 0;
  while (done < bytes.size()) {
    const ssize_t got = pread(fd, bytes.data() + done, bytes.size() - done, offset + static_cast<int64_t>(done));
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) throw bad_input("{}: cannot be read: {}", what, got == 0 ? "it shrank" : std::strerror(errno));
    done += static_cast<size_t>(got);
  }
}

// What a file of the same contents has in common with itself.
struct Identity {
  dev_t device = 0;
  ino_t inode = 0;
  int64_t bytes = 0, seconds = 0, nanoseconds = 0;
  bool operator==(const Identity&) const = default;
};

Identity check_file(int fd, const Reference& reference, int64_t expected_bytes, const std::string& what) {
  struct stat info = {};
  if (fstat(fd, &info) != 0) throw bad_input("{}: {}", what, std::strerror(errno));
  if (!S_ISREG(info.st_mode)) throw bad_input("{}: not a regular file", what);
  if (info.st_nlink != 1) throw bad_input("{}: has {} hard links, expected one", what, info.st_nlink);
  if (reference.offset > info.st_size) throw bad_input("{}: offset {} is beyond its {} bytes", what, reference.offset, info.st_size);
  const int64_t available = info.st_size - reference.offset;  // cannot overflow: both are non-negative
  const int64_t length = reference.length.value_or(available);
  if (length != expected_bytes)
    throw bad_input("{}: {} bytes are given, the tensor's shape and type need {}", what, length, expected_bytes);
  if (length > available)
    throw bad_input("{}: {} bytes from offset {} end beyond its {} bytes", what, length, reference.offset, info.st_size);
  return {info.st_dev, info.st_ino, info.st_size, info.st_mtim.tv_sec, info.st_mtim.tv_nsec};
}

// A range of a file, which is opened for each reading: a model may have more files than a process may have open.
class ExternalRange {
 public:
  ExternalRange(Reference reference, std::string folder, int64_t bytes, std::string where)
      : reference_(std::move(reference)),
        components_(components_of(reference_.location, where)),
        folder_(std::move(folder)),
        bytes_(bytes),
        where_(std::move(where)),
        what_(fmt::format("{}: external data file '{}'", where_, printable(reference_.location))),
        identity_(check_file(opened().fd, reference_, bytes_, what_)) {}

  Bytes read() const {
    const FileDescriptor file = opened();
    if (check_file(file.fd, reference_, bytes_, what_) != identity_) throw bad_input("{}: was changed while the model was read", what_);
    Bytes bytes = zero_bytes(static_cast<size_t>(bytes_));
    read_fully(file.fd, bytes, reference_.offset, what_);
    return bytes;
  }

 private:
  FileDescriptor opened() const {
    const FileDescriptor base(open(folder_.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
    if (base.fd < 0) throw bad_input("{}: cannot open the model's folder: {}", where_, std::strerror(errno));
    const int fd = open_beneath(base.fd, components_);
    if (fd >= 0) return FileDescriptor(fd);
    const int error = errno;
    const bool link = error == ELOOP || error == EXDEV;
    throw bad_input("{}: {}", what_, link ? "a symbolic link is on its path, which is refused" : std::strerror(error));
  }

  Reference reference_;
  std::vector<std::string> components_;
  std::string folder_;
  int64_t bytes_;
  std::string where_, what_;
  Identity identity_;
};

}  // namespace

TensorData read_external_data(const onnx::TensorProto& tensor, const std::string& folder, int64_t expected_bytes, Loading loading,
                              const std::string& where) {
  ExternalRange range(parse_reference(tensor, where), folder, expected_bytes, where);
  if (loading == Loading::none) return {};
  if (loading == Loading::at_once) return std::make_shared<const Bytes>(range.read());
  return TensorData::made_by(static_cast<size_t>(expected_bytes), [range = std::move(range)] { return range.read(); });
}

}  // namespace tamp::frontend
