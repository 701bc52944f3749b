// A folder that `tamp compile` wrote, as its NAME.rprogram.json describes it. The file is checked like any other input: it
// may be cut short or edited.
#pragma once

#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "codegen/codegen.h"
#include "compiler/compile.h"
#include "compiler/ir/graph.h"
#include "compiler/ir/tensor.h"

namespace tamp::cli {

struct Port {
  std::string name;
  DType dtype = DType::f32;
  Shape shape;
  int64_t count = -1, count_axis = 0;  // of a padded output: which output says how many entries along which axis are valid
  int64_t in_place = -1;               // of an output: the input whose memory it may take
  LengthAxes axes = {};                // dimensions that each run gives
  int64_t index_limit = 0;             // of an input of integers: what they lie below, as indices of a table; 0 where that is not known
  int64_t bytes() const { return element_count(shape) * bytes_of(dtype); }
};

struct CompiledFolder {
  struct ROperatorLine {
    std::string name, op, rkernel, chosen_by;
    std::vector<std::string> origin;
    DType dtype = DType::f32;  // of the first result, as it is stored
    Shape shape;
    int64_t rtasks = 0, veus = 0, waits = 0;
    double flops = 0, bytes = 0, weight_bytes = 0, estimated_us = 0;
    bool gang = false;
  };
  struct LaneEntry {
    int64_t rop = -1;            // -1: it only waits and signals
    std::vector<int64_t> waits;  // events, as `signal`
    int64_t signal = -1;
    double begin_us = 0, end_us = 0;  // planned
  };
  using Lane = std::vector<LaneEntry>;
  std::filesystem::path folder;
  std::string name, source, vdevice, arch, precision, policy, execution;
  std::optional<codegen::ModelOrigin> origin;
  bool embedded_weights = false;
  double estimated_us = 0;
  int64_t veus = 0, threads = 0, smem_bytes = 0, arena_bytes = 0, weight_bytes = 0, depth = 0, events = 0, waits = 0;
  int64_t launches = 0, dependent_launches = 0, streams = 0;  // graph execution
  std::vector<Port> inputs, outputs;
  std::vector<Length> lengths;  // numbers that each run is given
  std::vector<int64_t> values;  // of a run, which `inputs` and `outputs` have the shapes of; empty: the largest
  struct Bucket {
    std::map<std::string, int64_t> largest;  // of each length
    double estimated_us = 0;
  };
  bool makes_tokens = false;
  std::vector<int64_t> held;    // of a program that makes tokens: inputs that each call gives
  std::vector<Bucket> buckets;  // ascending; one if the program has lengths, none if it has not
  std::vector<ROperatorLine> rops;
  std::vector<Lane> lanes;  // per vEU
};

// The text of NAME.rprogram.json.
std::string rprogram_json_of(const CompiledFolder& compiled);

// What NAME.rprogram.json says, without the folder. Throws nlohmann's exceptions if it is not as tamp writes it, Error (bad input) if its
// parts do not fit together.
CompiledFolder read_rprogram(const nlohmann::json& rprogram);

// Error (bad input) names the folder or the field.
CompiledFolder read_compiled_folder(const std::string& folder);

// The folder for runs with these values of its lengths. Error (bad input) if a value is not allowed.
CompiledFolder at_values(CompiledFolder compiled, const std::vector<int64_t>& values);

// Whether the folder's values are the largest of their bucket.
bool is_largest(const CompiledFolder& compiled);

// The bucket that runs the folder's values: its position among `buckets`.
size_t bucket_of(const CompiledFolder& compiled);

// "f32[1,seq,768]": a dimension that each run gives has its length's name.
std::string port_text(const CompiledFolder& compiled, const Port& port);

// Adds the schedules' facts, EmitOptions::facts.
void add_schedule(const RProgram& program, codegen::EmitOptions& options);

// The record about the model at `path`, which was read as `source`.
codegen::ModelOrigin origin_of(const std::string& path, const Graph& source, const CompileOptions& options);

// Reads the model that the folder was compiled from. The file is `given`, or the one with the recorded name in the folder, beside the
// folder or in the current folder. `frozen`: the values of the inputs that were made constants at that time. Error (bad input) if the file
// is not there or not the same model. The graph is that of the folder's values.
Graph read_model_of(const CompiledFolder& compiled, const std::string& given, const std::map<std::string, ops::Value>& frozen);
// The options that decide what is read.
CompileOptions reading_options(const codegen::ModelOrigin& origin, const std::map<std::string, ops::Value>& frozen);

// Error (bad input) if `folder` is something that writing the model NAME would damage: a file, a folder with another
// compiled model, or one with a CMakeLists.txt that is not tamp's.
void require_own_folder(const std::string& folder, const std::string& name);

}  // namespace tamp::cli
