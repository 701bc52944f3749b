// From an ONNX file to an RProgram: the stages of the compiler, which compile.cpp runs in order.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "compiler/frontend/generation.h"
#include "compiler/ir/rprogram.h"
#include "compiler/ops/ops.h"
#include "compiler/schedule/launches.h"
#include "compiler/schedule/schedule.h"
#include "compiler/shape/setting.h"

namespace tamp {

// Measures on a device how long stages of IOS (a scheduling policy, docs/policies.md) take. `source` is the model as it was read.
using MeasureStages = std::function<std::vector<std::vector<double>>(const Graph& source, const std::vector<schedule::StageJob>& jobs)>;

// The options of a compilation. Flags of the command line reach the compiler in this struct only.
struct CompileOptions {
  std::string vdevice = "h200";
  std::string precision;           // empty = the vDevice's default
  bool narrow_activations = true;  // with fp16 and bf16: store activations in 16 bits where possible (passes/narrow_activations.h)
  schedule::Policy policy = schedule::Policy::best;
  schedule::Execution execution = schedule::Execution::persistent;
  std::map<std::string, int64_t> dims;
  std::map<std::string, DimRange> ranges;  // dimensions that are known only at run time; none of them is in `dims`
  std::optional<DimRange> batches;         // --batch 1:8; then `batch` is 0
  // Of one dimension that is known only at run time and has one bucket: adds the buckets for half of it, a quarter, .. that are worth a
  // program of their own by the estimate; not for the stand-in, whose estimates mean little.
  bool chooses_buckets = false;
  std::optional<frontend::GenerationRequest> generation;  // the program makes tokens
  std::map<std::string, ops::Value> frozen;               // inputs that become constants
  int64_t batch = 0;                                      // 0 = as the model says
  std::string records;                                    // of measurements: a file, "none", or empty = those built into tamp
  schedule::IosOptions ios;
  MeasureStages measure;  // for the policies of IOS; empty = times of stages are simulated
  int64_t search_plans = schedule::ScheduleOptions{}.search_plans;
  std::string schedule;       // a file with a schedule to use instead of a policy; empty = none
  std::string schedule_text;  // the schedule's text if it is only a part of that file; empty = the whole file
  std::string dump_dir;       // empty = no dumps
  // Every buffer gets memory of its own, so that the results of all rOperators are still there after a run.
  bool keep_all = false;
  // Keeps memory of their own for all buffers of a program some of whose values are proven to be bounded, so that the proof can be checked.
  bool keep_bounded = false;
  // A schedule made for another batch or vDevice. If given, its decisions replace a policy (schedule/carry_over.h).
  const RProgram* like = nullptr;
};

struct Compiled {
  Graph source;  // as read, before any pass: the reference for --check; of the largest bucket
  RProgram program;
  CompileOptions options;  // with the buckets that were chosen
};

// Error as in read_onnx, schedule::schedule and parse; InternalError if the verifier refuses the result.
Compiled compile(const std::string& model_path, const CompileOptions& options);

// The model as it is compiled; of several buckets, as the largest is.
Graph read_source(const std::string& model_path, const CompileOptions& options);
// The options of a program for one value of each length: first those of `ranges`, then that of `batches`.
CompileOptions at_values(CompileOptions options, const std::vector<int64_t>& values);

// Of options with several buckets: the options of each bucket's program, ascending, and the largest value of each. Else the options alone.
// Error (bad input) if more than one dimension has several, or the options are of one program.
struct Buckets {
  std::vector<CompileOptions> options;
  std::vector<int64_t> largest;
};
Buckets buckets_of(const CompileOptions& options);

// The program of all buckets (RProgram::smaller) from that of each, ascending, as `plan` makes it. Verifies what they share.
RProgram join_buckets(std::vector<RProgram> programs, const std::vector<int64_t>& largest);

// compile() in two steps, for callers that want several rPrograms of one model. `plan` verifies its result as compile() does; it reads no
// files and ignores CompileOptions::records.
struct Prepared {
  Graph source, graph;  // as read; placed
  std::optional<Generation> generation;
  shape::Setting setting;
  ShapedVDevice vdevice;  // as the rKernels see it
  // The graph before its tensors got places, for policies that change the graph; none if `graph` must stay as it is.
  std::optional<Graph> unplaced;
};
Prepared prepare(const std::string& model_path, const CompileOptions& options);
RProgram plan(const Prepared& prepared, const CompileOptions& options, const select::Records* records,
              const std::vector<std::string>* forced = nullptr);

// Replaces `prepared.graph` by the graph that the policy would change it to, for callers that plan several rPrograms with the same
// rOperators.
void settle_graph(Prepared& prepared, const CompileOptions& options, const select::Records* records);

// The Merger (compiler/ir/merge.h) with which policies merge convolutions of `unplaced`, a graph whose tensors have no places yet.
// `unplaced` must outlive the Merger. `place` gives a merged graph's tensors their places; empty: assign_layout does.
Merger merger_of(const Graph& unplaced, std::function<Graph(Graph unplaced)> place = {});

// The records that CompileOptions::records names. Error (bad input) if the file holds no records.
select::Records read_records(const std::string& name);

}  // namespace tamp
