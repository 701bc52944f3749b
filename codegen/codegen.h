// RProgram -> files. Same rProgram, same bytes. Everything is written to a scratch folder first and renamed at the end, so that a
// failure leaves nothing half-written.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "compiler/ir/rprogram.h"

namespace tamp::codegen {

// What tells that a model is the one that a folder was compiled from. Not where it lies: the same model gives the same bytes anywhere.
struct ModelOrigin {
  uint64_t content = 0;  // a hash
  std::map<std::string, int64_t> dims;
  std::vector<std::string> frozen = {};  // inputs that were made constants
  int64_t batch = 0;                     // that was asked for, or 0
  bool narrow_activations = true;        // CompileOptions'
};

// The name of the generated files and symbols of a model that the user calls `wanted`: a legal identifier, after "m_" where the files or
// symbols would clash with a keyword, a name or header of the system or of CUDA, or a target of CMake. resnet18 stays resnet18, string
// becomes m_string.
std::string safe_name(const std::string& wanted);

// When an instruction is expected to begin and to end, in microseconds from the start of the launch.
struct PlannedSpan {
  double begin_us = 0, end_us = 0;
};

struct EmitOptions {
  std::string name;         // as safe_name() gives it; NAME.cu, NAME.h, ...
  std::string source_name;  // model file name without folder, for the banner
  bool embed_weights = false;
  std::optional<ModelOrigin> origin = {};  // where files were read
  std::string invocation = {};             // the options that the user gave, for the banner
  // For people and tools, since codegen neither simulates nor looks for dependencies; empty: not said. As RProgram::lanes, and per
  // rOperator those that write what it reads, ascending.
  std::vector<std::vector<PlannedSpan>> planned = {};
  std::vector<std::vector<ROperatorId>> producers = {};
  // For who makes the same program of other weights: a schedule as the file of one has it, and what each rOperator does.
  std::string schedule = {};
  std::vector<std::string> signatures = {};
};

// Error (bad input) if emit() could not write into `folder`, or would replace what tamp did not write there. To be asked before any
// work; changes nothing.
void check_output(const std::string& folder, const EmitOptions& options);

// Writes NAME.cu, NAME.h, NAME.weights (unless embedded), CMakeLists.txt, NAME.rprogram.json into `folder`, after check_output.
void emit(const RProgram& program, const EmitOptions& options, const std::string& folder);

// A weights file for programs of one structure (Plan::structure).
struct PackedWeights {
  uint64_t structure = 0, hash = 0;
  Bytes header, data;
};
PackedWeights pack_weights(const RProgram& program, const EmitOptions& options);

// What the header of a weights file says; none if it is none.
std::optional<uint64_t> structure_of_weights(const std::string& path);

// Into a folder that check_output accepts, instead of its NAME.weights; NAME.rprogram.json says it then, and `options.origin`.
void replace_weights(const PackedWeights& weights, const EmitOptions& options, const std::string& folder);

// The names of those files and their bytes; writes nothing.
std::vector<std::pair<std::string, int64_t>> emitted_files(const RProgram& program, const EmitOptions& options);

// Lanes of rTasks of `program`, which need not be its own, for its interpreter to run instead (runtime_stub/host/stages.h): words of 4
// bytes, a multiple of 4 of them: how many they are, how many events, the word of the first row, 0; the first row of each vEU and of none;
// signals of each event in an epoch; rows, rk::Instruction.
std::vector<uint32_t> lane_table(const RProgram& program, const std::vector<std::vector<Instruction>>& lanes,
                                 const std::vector<Event>& events);

// The text of NAME.cu alone (tests, golden files).
std::string cuda_source(const RProgram& program, const EmitOptions& options);

// The text of NAME.rprogram.json where nothing is written ("files" is empty).
std::string rprogram_text(const RProgram& program, const EmitOptions& options);

}  // namespace tamp::codegen
