// Common parts of the three forms of `tamp compare`. The forms compare policies (compare_command.cpp), schedules made for several batches
// and vDevices (compare_schedules.cpp), and the networks of the papers (compare_papers.cpp).
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "compiler/cli/command.h"
#include "compiler/cli/comparison.h"
#include "compiler/compile.h"

namespace tamp::cli {

struct CompareArguments {
  std::string model, device, plot, paper, models;
  ModelArguments options;
  std::vector<std::string> policies, executions, precisions;  // empty: all; all; that of the options
  std::vector<int64_t> batches;                               // empty: that of the options
  std::vector<std::string> schedules, vdevices;               // files; names, or files
  std::vector<std::string> networks;                          // of a paper
  bool as_json = false;
  int jobs = 0;
  uint64_t seed = 1;
};

ExitCode compare_schedules(CompareArguments arguments, const std::filesystem::path& folder);
ExitCode compare_paper(CompareArguments arguments, const std::filesystem::path& folder);

// Whether there is a device to measure on; if not, says so. Error (bad input) on --device cpu.
bool measures(const std::string& device);

// The vDevice that the user means by `given`.
std::string vdevice_to_compare(const std::string& given, bool measuring);

// The model after the passes for one execution; the executions differ in recurrent layers. Each form is made when it is first asked for.
class PreparedModel {
 public:
  PreparedModel(std::string model, CompileOptions options) : model_(std::move(model)), options_(std::move(options)) {}
  const Prepared& of(schedule::Execution execution);
  const CompileOptions& options() const { return options_; }

 private:
  std::string model_;
  CompileOptions options_;
  std::map<schedule::Execution, Prepared> prepared_;
};

// One rProgram of a comparison, and its row in the table.
struct Trial {
  ComparisonRow row;
  std::optional<RProgram> program;  // none: it was refused, and the row says why
};
// Makes the program by the policy (or schedule) of `options`. If the policy refuses, the row says so; other errors are thrown on.
Trial trial_of(PreparedModel& model, CompileOptions options, const select::Records& records);

// Builds and times the trials that have a program, and checks their answers; afterwards the programs are gone. All trials are of one graph
// and batch. Returns the device's name.
std::string measure(const CompareArguments& arguments, const std::string& model, const Graph& source, const std::filesystem::path& folder,
                    const std::vector<Trial*>& trials);

// Error (check failed) if a program failed, or gave another answer than the reference.
void require_right_answers(const std::vector<ComparisonRow>& rows);

}  // namespace tamp::cli
