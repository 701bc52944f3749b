// Reads the bytes through a descriptor that was checked to be a regular file: a fifo or a device in the place of a model
// must not block. protobuf itself limits messages to 2 GiB and nesting to 100; what it prints about broken bytes is
// kept off stderr, where our one line goes.
#include "compiler/frontend/container.h"

#include <fcntl.h>
#include <google/protobuf/io/zero_copy_stream_impl.h>
#include <google/protobuf/stubs/logging.h>
#include <onnx/onnx_pb.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <limits>
#include <map>

#include "compiler/frontend/wire_scan.h"
#include "compiler/support/error.h"
#include "compiler/support/files.h"
#include "compiler/support/text.h"

namespace tamp::frontend {
std::string file_text(const std::string& path) { return printable(path, 400); }

bool is_default_domain(const std::string& domain) { return domain.empty() || domain == "ai.onnx"; }

void read_container(const std::string& path, onnx::ModelProto& model) {
  const std::string file = file_text(path);
  const FileDescriptor descriptor(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  if (descriptor.fd < 0) throw bad_input("{}: cannot open the file: {}", file, std::strerror(errno));
  struct stat info = {};
  if (fstat(descriptor.fd, &info) != 0) throw bad_input("{}: cannot read the file: {}", file, std::strerror(errno));
  if (!S_ISREG(info.st_mode)) throw bad_input("{}: not a regular file", file);
  if (info.st_size == 0) throw bad_input("{}: not an ONNX model: the file is empty", file);
  if (info.st_size > std::numeric_limits<int32_t>::max())
    throw bad_input("{}: {} is more than the 2 GB of one protobuf file; keep the weights as external data", file, bytes_text(info.st_size));

  const google::protobuf::LogSilencer silence;
  if (has_too_many_objects(descriptor.fd)) throw bad_input("{}: holds more than {} nodes, attributes, and names", file, kMaxObjects);
  if (lseek(descriptor.fd, 0, SEEK_SET) != 0) throw bad_input("{}: cannot read the file: {}", file, std::strerror(errno));
  google::protobuf::io::FileInputStream stream(descriptor.fd);
  if (!model.ParseFromZeroCopyStream(&stream) || stream.GetErrno() != 0)
    throw bad_input("{}: not an ONNX model: the file is damaged, cut short, or something else", file);
  if (!model.has_graph()) throw bad_input("{}: not an ONNX model: it holds no graph", file);
}

int64_t check_versions(const std::string& path, const onnx::ModelProto& model) {
  const std::string file = file_text(path);
  if (!model.has_ir_version() || model.ir_version() < 1) throw bad_input("{}: not an ONNX model: no ir_version", file);
  int64_t opset = 0;
  std::map<std::string, int64_t> seen;
  for (const auto& import : model.opset_import()) {
    const bool is_default = is_default_domain(import.domain());
    const std::string domain = is_default ? "ai.onnx" : import.domain();
    // Tools that join models repeat an import.
    if (const auto [entry, is_new] = seen.emplace(domain, import.version()); !is_new && entry->second != import.version())
      throw bad_input("{}: domain '{}' is imported twice, with opsets {} and {}", file, printable(domain), entry->second, import.version());
    if (import.version() < 1) throw bad_input("{}: opset {} of domain '{}': must be at least 1", file, import.version(), printable(domain));
    if (is_default) opset = import.version();
  }
  if (opset == 0 && model.ir_version() < 3) opset = 1;  // opset_import came with IR 3
  if (opset == 0) throw bad_input("{}: the model imports no opset of the default domain", file);
  return opset;
}

}  // namespace tamp::frontend
