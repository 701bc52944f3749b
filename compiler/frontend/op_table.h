// The list of supported operators. A new operator needs a row here and an importer, nothing else.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace tamp::frontend {

class NodeImport;

struct OpRow {
  std::string name;           // in `domain`
  std::vector<int> versions;  // every since_version up to kNewestOpset, ascending
  std::function<void(NodeImport&)> import;
  std::string limits;       // for people; empty = whole
  std::string domain = "";  // the default domain is ""
  bool takes_sequences = false;
};

// Operators of ONNX Runtime, which its own tools write into models.
inline constexpr const char* kMicrosoft = "com.microsoft";
inline constexpr int64_t kMicrosoftVersion = 1;  // the only one there is

const std::vector<OpRow>& op_table();  // sorted by domain and name

// The definition of an operator that a model of `opset` (of the default domain) means. If the operator is unknown, or newer than the opset,
// there is no row and `refusal` says why.
struct OpChoice {
  const OpRow* row = nullptr;
  int version = 0;
  std::string refusal;
};
OpChoice choose_op(std::string_view domain, std::string_view op_type, int64_t opset);

}  // namespace tamp::frontend
