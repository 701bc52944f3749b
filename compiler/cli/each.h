// `tamp run --check --each`: finds the rOperator that is wrong. Each is judged alone: the reference computes from the inputs that the
// device itself read.
#pragma once

#include <string>
#include <vector>

#include "compiler/ir/rprogram.h"
#include "compiler/ops/ops.h"

namespace tamp::cli {

struct EachReport {
  int64_t checked = 0;  // rOperators
  // Those that could not be checked, each with the reason; none is known that cannot.
  std::vector<std::string> skipped;
  // The first wrong rOperator, in the order of the graph: its name, its ONNX nodes, its rKernel, and the worst element. Empty: none is
  // wrong.
  std::string departure;
};

// `arena` is the device's memory after a run of a program in which no two buffers share any (CompileOptions::keep_all).
EachReport check_each(const RProgram& program, const std::vector<ops::Value>& inputs, const std::vector<ops::Value>& outputs,
                      const Bytes& arena);

}  // namespace tamp::cli
