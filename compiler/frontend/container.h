// Reads a model's file into a ModelProto, and checks its versions before the graph is looked at. ModelProto is only forward-declared here,
// so that onnx.pb.h stays in the .cpp files of this folder.
#pragma once

#include <cstdint>
#include <string>

namespace onnx {
class ModelProto;
}

namespace tamp::frontend {

// The newest opset of the default domain and the newest IR version whose meaning the importers know.
inline constexpr int64_t kNewestOpset = 28;
inline constexpr int64_t kNewestIr = 14;

// Parses `path` into `model`. Error (bad input): no regular file, too large for protobuf, not an ONNX model.
void read_container(const std::string& path, onnx::ModelProto& model);

// Checks IR version and opset imports; returns the opset of the default domain.
int64_t check_versions(const std::string& path, const onnx::ModelProto& model);

// The path as it stands at the beginning of every message.
std::string file_text(const std::string& path);

// "" and "ai.onnx" are two spellings of the default domain.
bool is_default_domain(const std::string& domain);

}  // namespace tamp::frontend
