// Chooses the rKernel of every rOperator by measurement, in the network that the rOperator runs in: decides which rPrograms of a model to
// measure, and what follows from their times. The caller measures them (tune_command.cpp), so that a test can make up times.
#pragma once

#include <functional>
#include <optional>
#include <vector>

#include "compiler/compile.h"

namespace tamp::cli {

struct TuneOptions {
  int rounds = 2;
  int variants = 6;  // rPrograms of a round
};

// Times of one rProgram: microseconds per rOperator (see rop_times in trace.h; -1: not measured), as medians of `runs` runs.
struct RopTimes {
  std::vector<double> us;
  int64_t runs = 1;
};
// One entry per rProgram; none where the program does not count (it failed, or its answer was wrong).
using Measure = std::function<std::vector<std::optional<RopTimes>>(const std::vector<RProgram>& programs)>;

// In a round, the first rProgram is what the policy chooses with all that is known. Variant j has for each rOperator the j-th best, by the
// corrected model, of the rOperator's candidates that were not measured yet. In the first round nothing is known.
select::Records tune(const Prepared& prepared, const CompileOptions& compile, const TuneOptions& options, const Measure& measure);

// Microseconds of whole runs; none where the program does not count.
using MeasureWhole = std::function<std::vector<std::optional<double>>(const std::vector<RProgram>& programs)>;

// The records that are kept in the end. Times of rOperators need not add up to the time of a network, so whole networks are timed: with the
// rKernels that the model alone chooses; with the new choice for one kind of rOperators (a signature) at a time; with the new choice for
// those kinds that became faster; and with all new choices.
struct Settled {
  RProgram untuned, tuned;
  std::optional<double> untuned_us, tuned_us;
  select::Records records;  // that lead to `tuned`
  bool tuned_is_faster = false;
};
// Error (check failed) if no program gave the right answer.
Settled settle(const Prepared& prepared, const CompileOptions& compile, const select::Records& records, const MeasureWhole& measure);

}  // namespace tamp::cli
