// Chooses the rKernel of every rOperator by measurement, in the network that it runs in: what rPrograms of a model to measure, and
// what follows from their times. How they are measured is the caller's business (tune_command.cpp), so that a test can make up times.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "compiler/compile.h"

namespace tamp::cli {

struct TuneOptions {
  int rounds = 2;
  int variants = 6;  // rPrograms of a round
};

// Of one rProgram: microseconds per rOperator (see trace.h, rop_times; -1: not measured), the medians of `runs` runs.
struct RopTimes {
  std::vector<double> us;
  int64_t runs = 1;
};
// One entry per rProgram, none where it does not count (it failed, its answer was wrong).
using Measure = std::function<std::vector<std::optional<RopTimes>>(const std::vector<RProgram>& programs)>;

// The first of a round is what the policy chooses with all that is known; variant j has for each rOperator the j-th best, by the
// corrected model, of its candidates that nobody has measured yet. In the first round nothing is known.
select::Records tune(const Prepared& prepared, const CompileOptions& compile, const TuneOptions& options, const Measure& measure);

// Microseconds of whole runs, none where it does not count.
using MeasureWhole = std::function<std::vector<std::optional<double>>(const std::vector<RProgram>& programs)>;

// What is kept in the end. Times of rOperators need not add up to those of networks, so the whole is timed: what the model alone
// chooses, that with the new choice for one kind of rOperators (a signature) at a time, with those that made it faster, and with all.
struct Settled {
  RProgram untuned, tuned;
  std::optional<double> untuned_us, tuned_us;
  select::Records records;  // that `tuned` comes from
  bool tuned_is_faster = false;
};
// Error (check failed) if nothing gave the right answer.
Settled settle(const Prepared& prepared, const CompileOptions& compile, const select::Records& records, const MeasureWhole& measure);

// Under which key the time of a rOperator of this rProgram goes.
select::RecordKey record_key(const RProgram& program, size_t rop);

}  // namespace tamp::cli
