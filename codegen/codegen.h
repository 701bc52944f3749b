// RProgram -> files. Same rProgram, same bytes. Everything is written to a temporary folder beside `folder` first and renamed
// at the end, so that a failure leaves nothing half-written.
#pragma once

#include <map>
#include <optional>
#include <string>

#include "compiler/ir/rprogram.h"

namespace tamp::codegen {

// What tells that a model is the one that a folder was compiled from. Not where it lies: the same model gives the same bytes anywhere.
struct ModelOrigin {
  uint64_t content = 0;  // a hash
  std::map<std::string, int64_t> dims;
};

struct EmitOptions {
  std::string name;         // legal identifier; NAME.cu, NAME.h, ...
  std::string source_name;  // model file name without folder, for the banner
  bool embed_weights = false;
  std::optional<ModelOrigin> origin = {};  // where files were read
};

// Writes NAME.cu, NAME.h, NAME.weights (unless embedded), CMakeLists.txt, NAME.rprogram.json into `folder`.
void emit(const RProgram& program, const EmitOptions& options, const std::string& folder);

// The text of NAME.cu alone (tests, golden files).
std::string cuda_source(const RProgram& program, const EmitOptions& options);

}  // namespace tamp::codegen
