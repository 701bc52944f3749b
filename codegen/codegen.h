// Writes an rProgram as files. The same rProgram always gives the same bytes. All files are written to a scratch folder first and renamed
// at the end, so that a failure leaves nothing half-written.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "compiler/ir/rprogram.h"
#include "compiler/support/files.h"

namespace tamp::codegen {

// Identifies the model that a folder was compiled from, without the model's path: the same model gives the same bytes anywhere.
struct ModelOrigin {
  uint64_t content = 0;  // a hash
  std::map<std::string, int64_t> dims;
  std::map<std::string, DimRange> ranges = {};  // dimensions that each run gives, and of --batch
  std::optional<DimRange> batches = {};
  std::vector<std::string> frozen = {};  // inputs that were made constants
  int64_t batch = 0;                     // the batch that was asked for, or 0
  bool narrow_activations = true;        // CompileOptions'
  std::string generation = {};           // of a program that makes tokens: what the user said of it, as JSON
};

// The name of the generated files and symbols of a model that the user calls `wanted`: a legal identifier. It gets "m_" in front where the
// files or symbols would clash with a keyword, a name or header of the system or of CUDA, or a target of CMake. resnet18 stays resnet18,
// string becomes m_string.
std::string safe_name(const std::string& wanted);

// When an instruction is expected to begin and to end, in microseconds from the start of the launch.
struct PlannedSpan {
  double begin_us = 0, end_us = 0;
};

// For people and tools; the caller computes these, since codegen neither simulates nor looks for dependencies.
struct ProgramFacts {
  std::vector<std::vector<PlannedSpan>> planned = {};    // in the form of RProgram::lanes
  std::vector<std::vector<ROperatorId>> producers = {};  // per rOperator those that write what it reads, ascending
  // To make the same program with other weights later: the schedule as a schedule file has it, and what each rOperator does.
  std::string schedule = {};
  std::vector<std::string> signatures = {};
};

struct EmitOptions {
  std::string name;         // as safe_name() gives it; NAME.cu, NAME.h, ...
  std::string source_name;  // model file name without folder, for the banner
  bool embed_weights = false;
  std::optional<ModelOrigin> origin = {};  // where the model's files were read
  std::string invocation = {};             // the options that the user gave, for the banner
  std::vector<ProgramFacts> facts = {};    // of the program, then of RProgram::smaller; empty: not written
};

// "seq up to 64, estimated 12.3 us": each bucket's largest value and time, ascending; empty where there is one program.
std::vector<std::string> bucket_texts(const RProgram& program);

// The names of the files that emit() writes, which the program decides nothing about.
std::vector<std::string> file_names(const EmitOptions& options);

// Error (bad input) if emit() could not write into `folder`, or would replace what tamp did not write there. Call it before any work; it
// changes nothing.
void check_output(const std::string& folder, const EmitOptions& options);

using FileSizes = std::vector<std::pair<std::string, int64_t>>;  // name, bytes

// Writes NAME.cu, NAME.h, NAME.weights (unless embedded), CMakeLists.txt, NAME.rprogram.json into `folder`, after check_output.
FileSizes emit(const RProgram& program, const EmitOptions& options, const std::string& folder);

// Plan::structure: programs of one structure may load the same weights files.
uint64_t structure_of(const RProgram& program, const EmitOptions& options);

// Writes a weights file, header and data, and returns the data's hash.
uint64_t write_weights(const RProgram& program, uint64_t structure, NewFile& file);

// The structure in the header of a weights file; none if it is no weights file.
std::optional<uint64_t> structure_of_weights(const std::string& path);

// Replaces NAME.weights of a folder that check_output accepts, and updates NAME.rprogram.json with the new weights and `options.origin`.
void replace_weights(const RProgram& program, uint64_t structure, const EmitOptions& options, const std::string& folder);

// The files that emit() would write; writes nothing.
FileSizes emitted_files(const RProgram& program, const EmitOptions& options);

// Lanes of rTasks of `program`, not necessarily the program's own, as a table that its interpreter runs in their place
// (runtime_stub/host/stages.h). The table is words of 4 bytes. A header of 4: number of words, number of events, the word where the rows
// begin, 0. Then the number of each vEU's first row, and of the row behind the last; then per event its signals in an epoch; zeros up to a
// multiple of 4 words; then the rows, 4 words each (rk::Instruction). For example, two vEUs with two rows and one, and one event: header
// 20, 1, 8, 0; rows 0, 2, 3; one count; then 3 rows of 4 words from word 8 on.
std::vector<uint32_t> lane_table(const RProgram& program, const std::vector<std::vector<Instruction>>& lanes,
                                 const std::vector<Event>& events);

// The text of NAME.cu alone (tests, golden files).
std::string cuda_source(const RProgram& program, const EmitOptions& options);

// What changes only with the program and the code that prints it: the text of NAME.cu without its head, the code that it copies from
// kernels/ and runtime_stub/, and the structure, which is a hash of these; and the hash of the weights.
struct OwnParts {
  std::string source;
  uint64_t weights_hash = 0;
};
OwnParts own_parts(const RProgram& program, const EmitOptions& options);

// The text of NAME.rprogram.json when no files were written ("files" is empty).
std::string rprogram_text(const RProgram& program, const EmitOptions& options);

}  // namespace tamp::codegen
