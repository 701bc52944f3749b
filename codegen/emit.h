// The sections of the generated files, one function each, called by emit_cuda.cpp in the order of the output.
#pragma once

#include <string>
#include <vector>

#include "codegen/codegen.h"
#include "codegen/names.h"
#include "codegen/output_folder.h"
#include "codegen/source_writer.h"

namespace tamp::codegen {

struct BodyName {
  const Phase* phase;  // the first one with this body
  std::string name;    // "gemv_row_0"
};

// Facts that several sections need, computed once.
struct Plan {
  const RProgram& program;
  const EmitOptions& options;
  const ProgramFacts& facts;
  std::string space = {};  // of one of several buckets: the namespace in NAME_detail that is its own
  std::vector<RecordName> records = {};
  std::vector<size_t> first_record = {};  // per rOperator: its first phase's row
  std::vector<std::string> event_symbols = {};
  std::vector<BodyName> bodies = {};  // distinct ones, in order of first use
  std::vector<uint16_t> body_of_record = {};
  std::vector<std::vector<int64_t>> blob_of_record = {};  // per record: index into program.weights, or empty
  std::vector<size_t> maps = {};                          // records that have boxes of input values, as in the table of maps
  std::vector<int64_t> map_of_record = {};                // per record: row of the table of maps, or -1
  std::vector<int64_t> blob_of_constant = {};             // per tensor: index into program.weights, or -1
  int64_t work_bytes = 0;                                 // the largest of all phases', rounded up; lies behind the input stages
  bool embeds_weights = false;
  Bytes weights = {};                  // to embed
  uint64_t structure = 0;              // hash of the program's code, without this number and without weights
  bool has_over_inputs = false;        // whether any record has rk::Record::over_inputs
  bool many_registers = false;         // whether any phase has Phase::many_registers, in a single kernel
  bool products_over_inputs = false;   // whether any of those with over_inputs has boxes of its own
  std::vector<int64_t> in_place = {};  // per output: the input whose memory it may take in all programs, or -1
  std::vector<Plan> smaller = {};      // of RProgram::smaller; weights and structure are those of the whole

  bool has_lengths() const { return !program.graph.lengths.empty(); }
  // Where the program's tables and its kernel are: "resnet18_detail", or "bert_detail::up_to_64".
  std::string scope() const { return options.name + "_detail" + (space.empty() ? "" : "::" + space); }

  const Phase& phase(size_t record) const;
  int64_t threads() const;  // of a vEU
  size_t record_of(const RTask& rtask) const { return first_record[rtask.rop.index()] + static_cast<size_t>(rtask.phase); }
};
Plan make_plan(const RProgram& program, const EmitOptions& options);
bool is_over_inputs(const Plan& plan, size_t record);  // rk::Record::over_inputs

// Instructions as rows of the table. A row has room for rk::kWaits Waits; an instruction with more gets extra rows ahead for the rest.
using LaneRow = Instruction;
std::vector<LaneRow> lane_rows(const std::vector<Instruction>& lane);

// In which lines of NAME.cu things are; lines count from 1.
struct SourceLines {
  std::vector<int64_t> arguments;  // per record
  std::vector<int64_t> lane;       // per vEU: the first row of its lane, one line per row; none in graph execution
  std::vector<SourceWriter::Section> sections;
  std::vector<SourceLines> smaller;  // of Plan::smaller
};

struct Source {
  std::string text;
  SourceLines lines;
};
Source source_of(const Plan& plan);
uint64_t structure_of(const Plan& plan);

void emit_head(SourceWriter& w, const Plan& plan, const SourceLines& lines);  // for people: contents, the network, the arena
void emit_places(SourceWriter& w, const Plan& plan);                          // the places that addresses are written with
void emit_arguments(SourceWriter& w, const Plan& plan, SourceLines& lines);   // one Args object per record
void emit_records(SourceWriter& w, const Plan& plan);
void emit_bases(SourceWriter& w, const Plan& plan, int64_t stages);                  // members of a Veu
void emit_body(SourceWriter& w, const BodyName& body, const std::string& function);  // a function of that name
void emit_bodies(SourceWriter& w, const Plan& plan);                                 // Veu, the bodies
void emit_events(SourceWriter& w, const Plan& plan);
void emit_extents(SourceWriter& w, const Plan& plan);  // in programs with lengths of run time
bool depends_on_lengths(const Plan& plan, size_t record);
// Whether the kernel follows a run by the next: in programs that make tokens, but for those that fill caches with a prompt.
inline bool repeats(const RProgram& program) { return program.generation && program.generation->is_step(); }
void emit_advances(SourceWriter& w, const Plan& plan);       // in programs that repeat their run: what changes from run to run
void emit_token_members(SourceWriter& w, const Plan& plan);  // members of a Veu
std::vector<int64_t> held_inputs(const RProgram& program);   // inputs that nothing but the caller changes
// Error (not supported) if a port that changes places with another is not among so many bases, which are those that can.
void require_swaps(const Plan& plan, int64_t shared_bases);
void emit_token_plan(SourceWriter& w, const Plan& plan);  // for the host
void emit_token_functions(SourceWriter& w, const Plan& plan);
void describe_tokens(SourceWriter& w, const Plan& plan);  // in the comment that heads NAME.h
void declare_tokens(SourceWriter& w, const Plan& plan);
const Guard* guard_of(const Plan& plan, size_t record);  // or null
void emit_lanes(SourceWriter& w, const Plan& plan, SourceLines& lines);
void emit_kernel(SourceWriter& w, const Plan& plan);         // with the switch
void emit_phase_bodies(SourceWriter& w, const Plan& plan);   // graph execution: a kernel for each body
void emit_phase_steps(SourceWriter& w, const Plan& plan);    // graph execution: the list of launches
void emit_phase_kernels(SourceWriter& w, const Plan& plan);  // graph execution: what the library makes of the bodies
void emit_host(SourceWriter& w, const Plan& plan);

// How to compile the generated file without CMake.
std::string build_line(const Plan& plan);
std::string header_text(const Plan& plan);
// For callers: plain extents. A dimension with a product of two has an axis for each.
LengthAxes factors_of(const Graph& graph, const LengthAxes& axes);
std::string extent_text(const Graph& graph, const Extent& extent);  // "2 * seq", "(seq + 1) / 2"
// Members of the struct NAME_lengths: legal forms of the lengths' names.
std::vector<std::string> length_members(const Graph& graph);
std::string cmake_text(const Plan& plan);
// The text of NAME.rprogram.json; it lists `files`.
std::string rprogram_json(const Plan& plan, uint64_t weights_hash, const SourceLines& lines, const std::vector<OutputFile>& files);
// The text of the file `path`, changed for other weights: `file`.
std::string json_with_weights(const std::string& path, uint64_t weights_hash, const EmitOptions& options, const OutputFile& file);

// The number in the arch: 90 of "sm_90"; 0 for the stand-in's vDevice.
int compute_capability(const ShapedVDevice& vdevice);

// The initialiser of the rk::InputCopy of a record that has boxes; empty if it has none.
std::string input_text(const Plan& plan, size_t record);
int64_t ring_offset(const Plan& plan, size_t record);  // byte where the record's ring of weights begins
// ".chunk_bytes = 4096, ..., ": the fields of a record or call before its arguments, but those with their default.
std::string ring_text(const Plan& plan, size_t record);
// Writes the beginning of the rk::PhaseCall of a record, up to the fields of its arguments.
void open_call(SourceWriter& w, const Plan& plan, size_t record);

// "f32[1,3,224,224]"
std::string describe(const Tensor& tensor);
// "conv1: Conv + relu  f32[1,3,224,224], f32[64,3,7,7] -> f32[1,64,112,112]"
std::string headline(const Graph& graph, const ROperator& rop);

// A part of the arena; parts are listed by offset.
struct ArenaPart {
  int64_t offset = 0, bytes = 0;
  std::string what;                  // "scratch", "exchange", "words" (of a buffer), "second copy of all words", or empty: a buffer
  std::vector<std::string> tensors;  // of a buffer or its words, by the model's names
  std::vector<ROperatorId> made_by, needed_by;  // ascending
};
std::vector<ArenaPart> arena_parts(const RProgram& program);
}  // namespace tamp::codegen
