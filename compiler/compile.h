// ONNX file -> RProgram: the table of contents of the compiler.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "compiler/ir/rprogram.h"
#include "compiler/ops/ops.h"
#include "compiler/schedule/launches.h"
#include "compiler/schedule/schedule.h"

namespace tamp {

// Times the stages of IOS on a device, in programs of the model that was read as `source`.
using MeasureStages = std::function<std::vector<std::vector<double>>(const Graph& source, const std::vector<schedule::StageJob>& jobs)>;

// The only carrier of flags.
struct CompileOptions {
  std::string vdevice = "h200";
  std::string precision;           // empty = the vDevice's default
  bool narrow_activations = true;  // in fp16 and bf16: they lie in 16 bits where they can (passes/narrow_activations.h)
  schedule::Policy policy = schedule::Policy::best;
  schedule::Execution execution = schedule::Execution::persistent;
  std::map<std::string, int64_t> dims;
  std::map<std::string, ops::Value> frozen;  // inputs that become constants
  int64_t batch = 0;                         // 0 = as the model says
  std::string records;                       // of measurements: a file, "none", or empty = those in this program
  schedule::IosOptions ios;
  MeasureStages measure;  // for the policies of IOS; none: their stages are simulated
  int64_t search_plans = schedule::ScheduleOptions{}.search_plans;
  std::string schedule;       // a file to take instead of a policy; empty = none
  std::string schedule_text;  // the schedule in that file, where it is a part of it; empty: all of it
  std::string dump_dir;       // empty = no dumps
  // Every buffer gets memory of its own, so that all that rOperators made is still there after a run.
  bool keep_all = false;
  // A schedule of another batch or vDevice whose decisions are taken instead of a policy (schedule/carry_over.h).
  const RProgram* like = nullptr;
};

struct Compiled {
  Graph source;  // as read, before any pass: the reference for --check
  RProgram program;
};

// Error as in read_onnx, schedule::schedule and parse; InternalError if the verifier refuses the result.
Compiled compile(const std::string& model_path, const CompileOptions& options);

// The same in two steps, for who wants several rPrograms of one model. `plan` verifies its result, too, and reads neither files
// nor CompileOptions::records.
struct Prepared {
  Graph source, graph;  // as read; placed
  VDevice vdevice;      // as the rKernels see it
  Precision precision = Precision::fp32;
  bool narrow_activations = true;  // CompileOptions'
  // The graph before its tensors got places, for policies that change it; none: `graph` is to stay as it is.
  std::optional<Graph> unplaced;
};
Prepared prepare(const std::string& model_path, const CompileOptions& options);
RProgram plan(const Prepared& prepared, const CompileOptions& options, const select::Records* records,
              const std::vector<std::string>* forced = nullptr);

// Makes `prepared.graph` the one that the policy would make of it, for good: for who plans several rPrograms whose rOperators have to be
// the same.
void settle_graph(Prepared& prepared, const CompileOptions& options, const select::Records* records);

// What a policy may ask about merging convolutions of a graph without places, which outlives it.
Merger merger_of(const Graph& unplaced, std::function<Graph(Graph placed)> narrow = {}, int64_t cell = 4);

// What CompileOptions::records names. Error (bad input) on a file that is not of records.
select::Records read_records(const std::string& name);

}  // namespace tamp
