#include "compiler/cli/measure_stages.h"

#include <spdlog/spdlog.h>

#include <fstream>
#include <memory>
#include <optional>
#include <utility>

#include "codegen/codegen.h"
#include "compiler/cli/process.h"
#include "compiler/cli/workshop.h"
#include "compiler/schedule/stage_lanes.h"
#include "compiler/support/error.h"
#include "compiler/support/text.h"

namespace tamp::cli {
namespace {

namespace fs = std::filesystem;

constexpr int kCopies = 8;  // of a stage's lanes, after the first

// A stage as launches of the program; empty if the stage has none.
std::string launches_text(const RProgram& program, const schedule::Stage& stage) {
  std::vector<std::string> groups;
  for (const schedule::Group& group : stage) {
    std::vector<std::string> launches;
    for (const ROperatorId rop : group) {
      for (size_t n = 0; n < program.launches->size(); ++n) {
        if ((*program.launches)[n].rop == rop) launches.push_back(std::to_string(n));
      }
    }
    if (!launches.empty()) groups.push_back(join(launches, " "));
  }
  return join(groups, "|");
}

// Writes the stages that have something to run. Returns for each stage whether it has.
std::vector<bool> write_stages(const schedule::StageJob& job, const fs::path& path) {
  std::ofstream file(path, std::ios::binary);
  const auto add_lanes = [&](const RProgram& program) {
    const std::vector<uint32_t> table = codegen::lane_table(job.program, program.lanes, program.events);
    file.write(reinterpret_cast<const char*>(table.data()), static_cast<std::streamsize>(table.size() * sizeof table[0]));
  };
  std::optional<schedule::StageLanes> lanes;
  if (!job.program.launches) lanes.emplace(job.program);
  std::vector<bool> runs;
  for (const schedule::Stage& stage : job.stages) {
    int64_t rtasks = 0;
    for (const schedule::Group& group : stage) {
      for (const ROperatorId rop : group) rtasks += job.program.rkernels[rop.index()].rtasks();
    }
    runs.push_back(rtasks > 0);
    if (rtasks == 0) continue;
    if (!lanes) {
      file << launches_text(job.program, stage) << "\n";
      continue;
    }
    add_lanes(lanes->of(stage));
    add_lanes(lanes->of(stage, 1 + kCopies));
  }
  file.close();
  TAMP_CHECK(!file.fail(), path.string() + " cannot be written");
  return runs;
}

// Times of single stages. In the persistent kernel kCopies copies of a stage's lanes were timed together.
std::vector<double> all_times(const schedule::StageJob& job, const std::vector<bool>& runs, const std::vector<double>& measured_us) {
  std::vector<double> us;
  size_t next = 0;
  for (const bool ran : runs) {
    if (ran && next == measured_us.size()) break;
    us.push_back(!ran ? 0 : measured_us[next++] / (job.program.launches ? 1 : kCopies));
  }
  TAMP_CHECK(us.size() == job.stages.size() && next == measured_us.size(), "not all stages were timed");
  return us;
}

// Where a model's stages are measured. It begins to compute the reference, for which it needs its own copy of the graph.
struct Place {
  Place(const MeasureOptions& options, Graph of)
      : source(std::move(of)), workshop({options.model, options.device, options.jobs, options.seed}, source, folder.path()) {}
  Graph source;
  TemporaryFolder folder;
  Workshop workshop;
};

std::vector<std::vector<double>> times_of(Workshop& workshop, const std::vector<schedule::StageJob>& jobs) {
  std::vector<RProgram> programs;
  size_t stages = 0;
  for (const schedule::StageJob& job : jobs) {
    programs.push_back(job.program);
    stages += job.stages.size();
  }
  spdlog::info("measures {} stages in {} programs", stages, jobs.size());
  RunOptions running{.stages = true};
  const std::vector<Workshop::Built> built = workshop.build(programs, running);
  std::vector<std::vector<double>> us;
  for (size_t i = 0; i < jobs.size(); ++i) {
    running.stage_file = built[i].work / "stages";
    const std::vector<bool> runs = write_stages(jobs[i], running.stage_file);
    const std::optional<RunResult> result = workshop.run(built[i], running);
    if (!result) throw InternalError("--measure: a program with the stages failed, or its answer is wrong; the warning says which");
    us.push_back(all_times(jobs[i], runs, result->stage_microseconds));
    fs::remove_all(built[i].work);
  }
  return us;
}

void require_stages(const CompileOptions& options) {
  if (!options.schedule.empty()) throw bad_input("--measure prices stages, and a --schedule has its own: give one of them");
  if (schedule::prices_stages(options.policy)) return;
  throw bad_input("--measure is for the policies ios, ios-merge and ios-parallel, found '{}'", schedule::name_of(options.policy));
}

}  // namespace

MeasureStages measure_stages(const MeasureOptions& options) {
  auto place = std::make_shared<std::unique_ptr<Place>>();
  return [place, options](const Graph& source, const std::vector<schedule::StageJob>& jobs) {
    if (!*place) *place = std::make_unique<Place>(options, source);
    try {
      return times_of((*place)->workshop, jobs);
    } catch (const InternalError&) {
      (*place)->folder.keep();  // the folder's logs say what happened
      throw;
    }
  };
}

void set_measure(const ModelArguments& arguments, const MeasureOptions& measuring, CompileOptions& options) {
  if (!arguments.measure) return;
  require_stages(options);
  if (!options.ranges.empty() || options.batches)
    throw bad_input("--measure needs fixed sizes, not lengths of run time (--dim NAME=A:B, --batch A:B)");
  if (measuring.device == Device::cuda && options.vdevice == "cpu")
    throw bad_input("vDevice 'cpu' is the stand-in's; --measure on a GPU needs the vDevice of the GPU");
  if (measuring.device == Device::cpu) spdlog::warn("--measure on the stand-in: its times say nothing about a GPU");
  options.measure = measure_stages(measuring);
}

}  // namespace tamp::cli
