// Symbols of the generated code: legal forms of the ONNX names, with a suffix only on a clash.
#pragma once

#include <string>
#include <vector>

#include "compiler/ir/rprogram.h"
#include "compiler/support/unique_names.h"

namespace tamp::codegen {

// Hands out legal identifiers, each once.
class Names {
 public:
  std::string unique(const std::string& wanted);

 private:
  UniqueNames names_;
};

// One row of the record table: a phase of a rOperator.
struct RecordName {
  ROperatorId rop;
  int32_t phase = 0;
  std::string symbol;  // of the arguments: "args_conv1", "args_conv1_phase1"
  std::string number;  // the row: "r_conv1"
  std::string text;    // for messages: the rOperator's own name, escaped
};

// In rOperator order, phases within.
std::vector<RecordName> name_records(const RProgram& program);

// The inside of a C string literal: printable ASCII stays, everything else becomes octal escapes.
std::string c_string(const std::string& text);
// Text that may stand in a // comment.
std::string comment(const std::string& text);

}  // namespace tamp::codegen
