// A pipe can be read only once, but a model is read several times (its hash is of all its bytes). So the pipe's contents go into a file
// without a name.
#include "compiler/cli/standard_input.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <limits>
#include <string>

#include "compiler/support/error.h"
#include "compiler/support/files.h"

namespace tamp::cli {
namespace {

Error unreadable() { return bad_input("standard input cannot be read: {}", std::strerror(errno)); }

// Writes directly, without a second copy of the data in a std::string: the data may be 2 GB.
void write_all(int file, const char* data, ssize_t size) {
  while (size > 0) {
    const ssize_t wrote = write(file, data, static_cast<size_t>(size));
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote <= 0) throw bad_input("standard input cannot be kept in memory: {}", std::strerror(errno));
    data += wrote;
    size -= wrote;
  }
}

}  // namespace

void keep_standard_input() {
  if (isatty(STDIN_FILENO) != 0) throw bad_input("-: standard input is a terminal, expected a model: tamp compile - < model.onnx");
  if (fcntl(STDIN_FILENO, F_GETFD) < 0) throw unreadable();  // if it is closed, the next file that is opened would take its number
  const FileDescriptor kept(memfd_create("model", MFD_CLOEXEC));
  if (kept.fd < 0) throw bad_input("standard input cannot be kept in memory: {}", std::strerror(errno));
  std::string chunk(1 << 20, '\0');
  // Reads a little more than a model may have: a longer input is then refused by its size, as a file is.
  for (int64_t total = 0; total <= std::numeric_limits<int32_t>::max();) {
    const ssize_t got = read(STDIN_FILENO, chunk.data(), chunk.size());
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) throw unreadable();
    if (got == 0) break;
    write_all(kept.fd, chunk.data(), got);
    total += got;
  }
  if (dup2(kept.fd, STDIN_FILENO) < 0) throw unreadable();
}

}  // namespace tamp::cli
