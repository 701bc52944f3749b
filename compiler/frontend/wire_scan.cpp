// Walks tags and lengths with the schema's help (which fields are messages), skipping over everything else.
#include "compiler/frontend/wire_scan.h"

#include <google/protobuf/descriptor.h>
#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/io/zero_copy_stream_impl.h>
#include <google/protobuf/wire_format_lite.h>
#include <onnx/onnx_pb.h>

namespace tamp::frontend {
namespace {

namespace pb = google::protobuf;
using pb::internal::WireFormatLite;

class Scan {
 public:
  explicit Scan(pb::io::CodedInputStream& stream) : stream_(stream) {}

  // False: stop, at the limit or at broken bytes.
  bool message(const pb::Descriptor& type, int depth) {
    while (const uint32_t tag = stream_.ReadTag()) {
      const bool nested = WireFormatLite::GetTagWireType(tag) == WireFormatLite::WIRETYPE_LENGTH_DELIMITED;
      if (nested ? !length_delimited(type, tag, depth) : !WireFormatLite::SkipField(&stream_, tag)) return false;
    }
    return true;
  }
  bool too_many() const { return objects_ > kMaxObjects; }

 private:
  bool length_delimited(const pb::Descriptor& type, uint32_t tag, int depth) {
    uint32_t length = 0;
    if (!stream_.ReadVarint32(&length) || length > static_cast<uint32_t>(INT32_MAX)) return false;
    const pb::FieldDescriptor* field = type.FindFieldByNumber(WireFormatLite::GetTagFieldNumber(tag));
    const bool is_message = field && field->type() == pb::FieldDescriptor::TYPE_MESSAGE;
    const bool is_numbers = field && field->is_packable();
    if (!is_numbers && ++objects_ > kMaxObjects) return false;
    if (!is_message || depth >= kMaxDepth) return stream_.Skip(static_cast<int>(length));
    const auto outer = stream_.PushLimit(static_cast<int>(length));
    const bool whole = message(*field->message_type(), depth + 1);
    stream_.PopLimit(outer);
    return whole;
  }

  static constexpr int kMaxDepth = 100;  // the parser's own
  pb::io::CodedInputStream& stream_;
  int objects_ = 0;
};

}  // namespace

bool has_too_many_objects(int descriptor) {
  pb::io::FileInputStream file(descriptor);
  pb::io::CodedInputStream stream(&file);
  Scan scan(stream);
  scan.message(*onnx::ModelProto::descriptor(), 0);
  return scan.too_many();
}

}  // namespace tamp::frontend
