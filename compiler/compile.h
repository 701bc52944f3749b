// ONNX file -> RProgram: the table of contents of the compiler.
#pragma once

#include <map>
#include <string>

#include "compiler/ir/rprogram.h"
#include "compiler/schedule/launches.h"
#include "compiler/schedule/schedule.h"

namespace tamp {

// The only carrier of flags.
struct CompileOptions {
  std::string vdevice = "h200";
  std::string precision;  // empty = the vDevice's default
  schedule::Policy policy = schedule::Policy::wavefront;
  schedule::Execution execution = schedule::Execution::persistent;
  std::map<std::string, int64_t> dims;
  std::string dump_dir;  // empty = no dumps
};

struct Compiled {
  Graph source;  // as read, before any pass: the reference for --check
  RProgram program;
};

// Error as in read_onnx, schedule::schedule and parse; InternalError if the verifier refuses the result.
Compiled compile(const std::string& model_path, const CompileOptions& options);

}  // namespace tamp
