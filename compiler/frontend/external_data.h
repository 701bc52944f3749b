// Tensor data in files of their own beside the model. A model names those files, so every name is treated as an attack until the file is
// proved to lie inside the model's folder.
#pragma once

#include <string>

#include "compiler/ir/tensor.h"

namespace onnx {
class TensorProto;
}

namespace tamp::frontend {

// The `expected_bytes` of `tensor`, whose data_location is EXTERNAL, from a file in `folder`. The file, its kind and its length are checked
// at once. With `when_asked` large data are read by those who ask for them, if the file is still the same then. Every Error begins with
// `where`.
enum class Loading { none, when_asked, at_once };
TensorData read_external_data(const onnx::TensorProto& tensor, const std::string& folder, int64_t expected_bytes, Loading loading,
                              const std::string& where);

}  // namespace tamp::frontend
