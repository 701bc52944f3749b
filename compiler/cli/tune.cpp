// All rOperators of a rProgram are varied at once, since each of them is timed on its own. rOperators of equal signature are varied alike,
// since their times go into one record.
#include "compiler/cli/tune.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "compiler/support/error.h"

namespace tamp::cli {
namespace {

constexpr double kWorst = 2;  // candidates that take longer by the model than this times the best are not tried

// How the rOperators of a rProgram share the vEUs, according to the lanes.
struct Occupancy {
  std::vector<std::set<size_t>> of_rop;   // per rOperator: its vEUs
  std::vector<std::set<size_t>> besides;  // vEUs that run other rOperators at the same time, by the estimate
};

Occupancy occupancy_of(const RProgram& program) {
  const size_t count = program.graph.rops.size();
  Occupancy out{std::vector<std::set<size_t>>(count), std::vector<std::set<size_t>>(count)};
  for (size_t veu = 0; veu < program.lanes.size(); ++veu) {
    for (const Instruction& instruction : program.lanes[veu]) {
      if (instruction.rtask.rop.valid()) out.of_rop[instruction.rtask.rop.index()].insert(veu);
    }
  }
  const schedule::Timeline timeline = schedule::timeline(program);
  std::vector<schedule::Span> spans(count, {timeline.us, 0});  // from the first rTask to the end of the last
  const auto for_each_rtask = [&](const auto& f) {
    for (size_t veu = 0; veu < program.lanes.size(); ++veu) {
      for (size_t i = 0; i < program.lanes[veu].size(); ++i) {
        const ROperatorId rop = program.lanes[veu][i].rtask.rop;
        if (rop.valid()) f(rop.index(), veu, timeline.lanes[veu][i]);
      }
    }
  };
  for_each_rtask([&](size_t rop, size_t, const schedule::Span& span) {
    spans[rop] = {std::min(spans[rop].begin_us, span.begin_us), std::max(spans[rop].end_us, span.end_us)};
  });
  for_each_rtask([&](size_t rop, size_t veu, const schedule::Span& span) {
    for (size_t other = 0; other < count; ++other) {
      if (other != rop && span.begin_us < spans[other].end_us && span.end_us > spans[other].begin_us) out.besides[other].insert(veu);
    }
  });
  return out;
}

select::RecordKey key_of(const RProgram& program, const Occupancy& occupancy, bool weights_in_l2, size_t rop) {
  const RKernel& rkernel = program.rkernels[rop];
  return {.vdevice = program.vdevice.name,
          .precision = name_of(select::precision_of(program.graph, program.graph.rops[rop], program.precision)),
          .execution = "persistent",
          .rop = select::signature(program.graph, program.graph.rops[rop]),
          .family = rkernel.family,
          .rkernel = rkernel.name,
          .config = select::config_text(rkernel),
          .veus = static_cast<int64_t>(occupancy.of_rop[rop].size()),
          .beside = static_cast<int64_t>(occupancy.besides[rop].size()),
          .weights_in_l2 = weights_in_l2};
}

class Tuner {
 public:
  Tuner(const Prepared& prepared, const CompileOptions& compile, const TuneOptions& options, const Measure& measure)
      : prepared_(prepared), compile_(compile), options_(options), measure_(measure) {}

  select::Records tune() {
    for (int round = 1; round <= options_.rounds; ++round) {
      const std::vector<RProgram> programs = variants();
      spdlog::info("round {} of {}: {} variants", round, options_.rounds, programs.size());
      const std::vector<std::optional<RopTimes>> times = measure_(programs);
      TAMP_CHECK(times.size() == programs.size(), "as many times as rPrograms");
      for (size_t i = 0; i < programs.size(); ++i) {
        if (times[i]) note(programs[i], *times[i]);
      }
    }
    return std::move(records_);
  }

 private:
  using Choices = std::vector<std::vector<std::string>>;  // identities per rOperator

  std::vector<RProgram> variants() {
    std::vector<RProgram> programs = {plan(prepared_, compile_, &records_)};
    const Choices choices = alternatives(programs[0]);
    for (size_t j = 1; j < static_cast<size_t>(options_.variants); ++j) {
      std::vector<std::string> forced;
      bool differs = false;
      for (const auto& of_rop : choices) {
        forced.push_back(of_rop.empty() ? "" : of_rop[j < of_rop.size() ? j : 0]);
        differs = differs || j < of_rop.size();
      }
      if (!differs) break;
      programs.push_back(plan(prepared_, compile_, &records_, &forced));
    }
    for (const RProgram& program : programs) {
      for (size_t i = 0; i < program.rkernels.size(); ++i) tried_.emplace(kinds_[i], select::identity(program.rkernels[i]));
    }
    return programs;
  }

  // Per rOperator: the base's rKernel, then those worth a trial, best first. Empty for a rOperator without rTasks.
  Choices alternatives(const RProgram& base) {
    const Occupancy occupancy = occupancy_of(base);
    Choices all(base.rkernels.size());
    kinds_.assign(base.rkernels.size(), "");
    for (size_t i = 0; i < all.size(); ++i) {
      if (base.rkernels[i].phases.empty()) continue;
      const bool alone = occupancy.besides[i].empty();
      kinds_[i] = select::signature(base.graph, base.graph.rops[i]) + (alone ? "" : " beside others");
      const std::string chosen = select::identity(base.rkernels[i]);
      all[i] = {chosen};
      for (std::string& identity : worth_a_trial(base, i, occupancy)) {
        if (identity != chosen && !tried_.contains({kinds_[i], identity})) all[i].push_back(std::move(identity));
      }
    }
    return all;
  }

  // Sorted by their times on the vEUs that the base gave the rOperator.
  std::vector<std::string> worth_a_trial(const RProgram& base, size_t rop, const Occupancy& occupancy) const {
    const select::Machine machine = select::machine_for(base.graph, base.vdevice, base.precision);
    const int64_t all = machine.vdevice.veus();
    const bool alone = occupancy.besides[rop].empty();
    const int64_t share = alone ? all : static_cast<int64_t>(occupancy.of_rop[rop].size());
    const int64_t active = alone ? 1 : std::min(all, share + static_cast<int64_t>(occupancy.besides[rop].size()));
    std::vector<RKernel> candidates = kernels::candidates({base.graph, base.graph.rops[rop], base.vdevice, base.precision});
    records_.correct(candidates, base.graph, base.graph.rops[rop], machine, alone);
    std::vector<std::pair<double, std::string>> timed;
    for (const RKernel& rkernel : candidates) timed.emplace_back(completion_us(rkernel, machine, share, active), select::identity(rkernel));
    std::sort(timed.begin(), timed.end());
    std::vector<std::string> worth;
    for (auto& [us, identity] : timed) {
      if (us <= kWorst * timed[0].first && (worth.empty() || worth.back() != identity)) worth.push_back(std::move(identity));
    }
    return worth;
  }

  void note(const RProgram& program, const RopTimes& times) {
    const Occupancy occupancy = occupancy_of(program);
    const bool in_l2 = select::machine_for(program.graph, program.vdevice, program.precision).weights_in_l2;
    for (size_t i = 0; i < program.rkernels.size(); ++i) {
      if (times.us.at(i) > 0) records_.add(key_of(program, occupancy, in_l2, i), {times.us[i], times.runs});
    }
  }

  const Prepared& prepared_;
  const CompileOptions& compile_;
  const TuneOptions& options_;
  const Measure& measure_;
  select::Records records_;
  std::vector<std::string> kinds_;                       // per rOperator: equal for those that share a record
  std::set<std::pair<std::string, std::string>> tried_;  // kind, identity
};

// Kinds of rOperators (signatures) whose rKernel changed; first those for which the records promise most.
std::vector<std::string> changed_kinds(const RProgram& untuned, const RProgram& tuned, const select::Records& records) {
  std::map<std::string, double> gains;
  for (size_t i = 0; i < tuned.rkernels.size(); ++i) {
    const std::string before = select::identity(untuned.rkernels[i]), after = select::identity(tuned.rkernels[i]);
    if (before == after) continue;
    const std::string kind = select::signature(tuned.graph, tuned.graph.rops[i]);
    const std::optional<double> before_us = records.mean_us(kind, before), after_us = records.mean_us(kind, after);
    gains[kind] += before_us && after_us ? *before_us - *after_us : 0;
  }
  std::vector<std::pair<double, std::string>> order;
  for (const auto& [kind, gain] : gains) order.emplace_back(-gain, kind);
  std::sort(order.begin(), order.end());
  std::vector<std::string> kinds;
  for (auto& [gain, kind] : order) kinds.push_back(std::move(kind));
  return kinds;
}

}  // namespace

select::Records tune(const Prepared& prepared, const CompileOptions& compile, const TuneOptions& options, const Measure& measure) {
  return Tuner(prepared, compile, options, measure).tune();
}

Settled settle(const Prepared& prepared, const CompileOptions& compile, const select::Records& records, const MeasureWhole& measure) {
  constexpr size_t kMostKinds = 8;  // limits the time to measure
  constexpr double kNoise = 0.999;
  Settled settled;
  settled.untuned = plan(prepared, compile, nullptr);
  settled.tuned = plan(prepared, compile, &records);
  settled.records = records;
  const std::vector<std::string> kinds = changed_kinds(settled.untuned, settled.tuned, records);

  std::set<std::string> good;
  if (kinds.size() > 1) {
    std::vector<RProgram> programs = {settled.untuned};
    for (size_t i = 0; i < std::min(kinds.size(), kMostKinds); ++i) {
      const select::Records one = records.only({kinds[i]});
      programs.push_back(plan(prepared, compile, &one));
    }
    const std::vector<std::optional<double>> us = measure(programs);
    for (size_t i = 1; i < us.size(); ++i) {
      if (us[i] && (!us[0] || *us[i] < kNoise * *us[0])) good.insert(kinds[i - 1]);
    }
  }
  const select::Records of_good = records.only(good);
  std::vector<RProgram> programs = {settled.untuned, settled.tuned};
  if (!good.empty()) programs.push_back(plan(prepared, compile, &of_good));
  const std::vector<std::optional<double>> us = measure(programs);
  settled.untuned_us = us[0];
  settled.tuned_us = us[1];
  if (us.size() > 2 && us[2] && (!us[1] || *us[2] < *us[1])) {
    settled.tuned_us = us[2];
    settled.tuned = std::move(programs[2]);
    settled.records = of_good;
  }
  if (!us[0] && !settled.tuned_us) throw Error(ExitCode::check_failed, "no rProgram gave the right answer");
  settled.tuned_is_faster = settled.tuned_us && (!us[0] || kinds.empty() || *settled.tuned_us < *us[0]);
  return settled;
}

}  // namespace tamp::cli
