// How the stamps are read. A rTask computes from the later of the stamps `started` and `inputs ready`, since bodies with boxes of inputs
// start before their inputs are there. When a body itself waits (for weights, or for boxes on their way), there is no stamp, and the time
// counts as computing. Times are whole nanoseconds since the first stamp; since 1970 they would be too large for a double.
#include "compiler/cli/trace.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <span>

#include "compiler/cli/table.h"
#include "compiler/cli/timeline_files.h"
#include "compiler/support/error.h"
#include "compiler/support/text.h"
#include "kernels/vdevice/numbers.cuh"

namespace tamp::cli {
namespace {

using nlohmann::json;

constexpr size_t kWaiting = rk::kTraceWaiting, kReady = rk::kTraceInputsReady, kStarted = rk::kTraceStarted, kComputed = rk::kTraceComputed,
                 kSignalled = rk::kTraceSignalled, kColumns = rk::kTraceColumns;
constexpr size_t kWaitsOfRow = rk::kWaits;

constexpr size_t kLinesShown = 20;  // of the critical path

struct Task {
  size_t veu = 0;
  int64_t rop = 0, phase = 0, index = 0;
  std::vector<int64_t> waits;
  int64_t signal = -1;
  int64_t ready = 0, begin = 0, computed = 0, signalled = 0;  // ns
  int64_t free = 0;                                           // since when the rTask's vEU had nothing else to do
  const Task* before = nullptr;                               // the rTask before it on its vEU
};

struct Traced {
  const json& rprogram;
  std::vector<Task> tasks;                     // lane by lane
  std::map<int64_t, const Task*> last_signal;  // event -> the rTask that signalled last
};

double us(int64_t ns) { return static_cast<double>(ns) / 1e3; }

const json& rop_of(const Traced& traced, const Task& task) { return traced.rprogram.at("rops").at(static_cast<size_t>(task.rop)); }

// How many rows of the instruction table a lane entry takes: one, and before that row one for every further group of Waits.
size_t rows_of(const json& entry) {
  const size_t waits = entry.at("waits").size();
  return 1 + (std::max(waits, kWaitsOfRow) - 1) / kWaitsOfRow;
}

// The first stamp of all rTasks; checks that the stamps belong to this rProgram.
uint64_t first_stamp(const json& lanes, std::span<const uint64_t> stamps) {
  uint64_t first = 0;
  size_t rows = 0;
  for (const json& lane : lanes) {
    for (const json& entry : lane) {
      if (entry.contains("turn"))
        throw unsupported("a trace of a program with loops of run time, which repeat the rTasks that are stamped");
      rows += rows_of(entry);
      if (rows * kColumns > stamps.size() || entry.at("rop").get<int64_t>() < 0) continue;
      const uint64_t* const row = stamps.data() + (rows - 1) * kColumns;
      if (std::find(row, row + kSignalled, 0u) != row + kSignalled) throw bad_input("the trace lacks the time of a rTask that ran");
      if (first == 0 || row[kWaiting] < first) first = row[kWaiting];
    }
  }
  if (rows * kColumns != stamps.size())
    throw bad_input("the trace has {} stamps, the rProgram has {} rows of {}", stamps.size(), rows, kColumns);
  if (first == 0) throw bad_input("the rProgram has no rTasks, hence no trace");
  return first;
}

Task read_task(const json& entry, size_t veu, const uint64_t* row, uint64_t first) {
  const auto ns = [&](size_t column) { return static_cast<int64_t>(row[column] - first); };
  Task task;
  task.veu = veu;
  entry.at("rop").get_to(task.rop);
  entry.at("phase").get_to(task.phase);
  entry.at("index").get_to(task.index);
  entry.at("waits").get_to(task.waits);
  if (row[kSignalled] != 0) entry.at("signal").get_to(task.signal);
  task.ready = ns(kReady);
  task.begin = std::max(ns(kStarted), task.ready);
  task.computed = ns(kComputed);
  task.signalled = ns(kSignalled);
  return task;
}

Traced read_traced(const json& rprogram, std::span<const uint64_t> stamps) {
  Traced out{rprogram, {}, {}};
  const json& lanes = out.rprogram.at("lanes");
  const uint64_t first = first_stamp(lanes, stamps);
  size_t row = 0;
  for (size_t veu = 0; veu < lanes.size(); ++veu) {
    for (const json& entry : lanes[veu]) {
      row += rows_of(entry);
      if (entry.at("rop").get<int64_t>() >= 0) out.tasks.push_back(read_task(entry, veu, stamps.data() + (row - 1) * kColumns, first));
    }
  }
  for (size_t i = 0; i < out.tasks.size(); ++i) {
    Task& task = out.tasks[i];
    if (i > 0 && out.tasks[i - 1].veu == task.veu) task.before = &out.tasks[i - 1];
    if (task.before != nullptr) task.free = task.before->computed;
    if (task.signal < 0) continue;
    const Task*& last = out.last_signal[task.signal];
    if (last == nullptr || task.signalled > last->signalled) last = &task;
  }
  return out;
}

// The rTask whose signal `task` waited for last, or null.
const Task* producer_of(const Traced& traced, const Task& task) {
  const Task* last = nullptr;
  for (const int64_t event : task.waits) {
    const auto found = traced.last_signal.find(event);
    if (found != traced.last_signal.end() && (last == nullptr || found->second->signalled > last->signalled)) last = found->second;
  }
  return last;
}

// --- how the time of all vEUs divides --------------------------------------------------------------------------------

std::string division_text(const Traced& traced, int64_t span) {
  int64_t computing = 0, starting = 0, signals = 0, producers = 0;  // ns of all vEUs
  for (const Task& task : traced.tasks) {
    computing += task.computed - task.begin;
    // The gap before a rTask is divided from its end backwards: first starting, then the way of the signal; in the rest, producers still
    // compute.
    const Task* const producer = producer_of(traced, task);
    const int64_t gap = std::max<int64_t>(0, task.begin - task.free);
    const int64_t start = producer == nullptr ? gap : std::clamp<int64_t>(task.begin - task.ready, 0, gap);
    const int64_t signal = producer == nullptr ? 0 : std::clamp<int64_t>(task.ready - producer->computed, 0, gap - start);
    starting += start;
    signals += signal;
    producers += gap - start - signal;
  }
  const int64_t all = span * static_cast<int64_t>(traced.rprogram.at("lanes").size());
  Table table({{"TIME OF ALL VEUS"}, right("%"), right("US OF A VEU"), {"WHAT", Table::Align::left, 100}});
  const auto row = [&](const char* name, int64_t ns, const char* what) {
    const double share = static_cast<double>(ns) / static_cast<double>(std::max<int64_t>(1, all));
    table.row({name, fmt::format("{:.1f}", 100 * share), fmt::format("{:.2f}", share * us(span)), what});
  };
  row("computing", computing, "in bodies, waiting for weights and for boxes of inputs included");
  row("waiting: producers", producers, "the inputs are still being computed");
  row("waiting: signals", signals, "the inputs are computed, the signal is on its way");
  row("starting", starting, "the inputs are there, the body has not begun");
  row("idle", all - computing - producers - signals - starting, "the lane is at its end");
  return table.text();
}

// --- the critical path -----------------------------------------------------------------------------------------------

struct PathLine {
  std::string name, rkernel;
  int64_t rtasks = 0, computing = 0, before = 0;  // ns
};

// Goes back from the rTask that ends last, each time to what let the rTask begin: the last signal, or the rTask before it on its vEU. The
// result has one line per phase of a rOperator, those that take longest first.
std::vector<PathLine> critical_path(const Traced& traced, const Task* task) {
  std::map<std::pair<int64_t, int64_t>, PathLine> lines;
  for (size_t steps = 0; task != nullptr && steps < traced.tasks.size(); ++steps) {
    const Task* const producer = producer_of(traced, *task);
    const bool waited = producer != nullptr && (task->before == nullptr || producer->signalled > task->free);
    const Task* const previous = waited ? producer : task->before;
    PathLine& line = lines[{task->rop, task->phase}];
    line.name = slice_name(rop_of(traced, *task), task->phase);
    rop_of(traced, *task).at("rkernel").get_to(line.rkernel);
    line.rtasks += 1;
    line.computing += task->computed - task->begin;
    line.before += task->begin - (previous != nullptr ? previous->computed : 0);
    task = previous;
  }
  std::vector<PathLine> out;
  for (auto& [key, line] : lines) out.push_back(std::move(line));
  std::stable_sort(out.begin(), out.end(),
                   [](const PathLine& a, const PathLine& b) { return a.computing + a.before > b.computing + b.before; });
  return out;
}

std::string path_text(const std::vector<PathLine>& lines) {
  Table table({{"ROPERATOR", Table::Align::left, terminal_limit(40)},
               {"RKERNEL", Table::Align::left, terminal_limit(48)},
               right("RTASKS"),
               right("COMPUTING US"),
               right("BEFORE IT US")});
  PathLine all, rest;
  for (size_t i = 0; i < lines.size(); ++i) {
    for (PathLine* sum : {&all, &rest}) {
      if (sum == &rest && i < kLinesShown) continue;
      sum->rtasks += lines[i].rtasks;
      sum->computing += lines[i].computing;
      sum->before += lines[i].before;
    }
  }
  const auto row = [&](const std::string& name, const std::string& rkernel, const PathLine& line) {
    table.row({name, rkernel, grouped(line.rtasks), fmt::format("{:.2f}", us(line.computing)), fmt::format("{:.2f}", us(line.before))});
  };
  for (size_t i = 0; i < std::min(lines.size(), kLinesShown); ++i) row(printable(lines[i].name), printable(lines[i].rkernel), lines[i]);
  if (lines.size() > kLinesShown) row(fmt::format("{} more", lines.size() - kLinesShown), "", rest);
  return fmt::format("critical path: {} rTasks, {:.1f} us computing, {:.1f} us before and between them\n{}", all.rtasks, us(all.computing),
                     us(all.before), table.text());
}

// --- how long rOperators took ----------------------------------------------------------------------------------------

// One phase of a rOperator.
struct PhaseTime {
  int64_t inputs = -1;             // when the last signal came that one of the phase's rTasks waits for
  int64_t ready = -1;              // if none of them waits: when the first could begin
  bool follows = false;            // the phase needs an earlier phase of the same rOperator
  std::map<size_t, int64_t> busy;  // per vEU

  int64_t begin() const { return inputs >= 0 ? inputs : std::max<int64_t>(0, ready); }
  int64_t longest() const {
    int64_t most = 0;
    for (const auto& [veu, ns] : busy) most = std::max(most, ns);
    return most;
  }
};

using Phases = std::map<std::pair<int64_t, int64_t>, PhaseTime>;  // (rOperator, phase)

Phases phases_of(const Traced& traced) {
  Phases phases;
  for (const Task& task : traced.tasks) {
    PhaseTime& phase = phases[{task.rop, task.phase}];
    const Task* const producer = producer_of(traced, task);
    if (producer != nullptr) phase.inputs = std::max(phase.inputs, producer->signalled);
    if (phase.ready < 0 || task.ready < phase.ready) phase.ready = task.ready;
    phase.follows = phase.follows || (producer != nullptr && producer->rop == task.rop) ||
                    (producer == nullptr && task.before != nullptr && task.before->rop == task.rop && task.before->phase != task.phase);
  }
  for (const Task& task : traced.tasks) {
    PhaseTime& phase = phases[{task.rop, task.phase}];
    const int64_t end = std::max(task.computed, task.signalled);  // a rTask that signals nothing has `signalled` before the first stamp
    phase.busy[task.veu] += std::max<int64_t>(0, end - std::max(phase.begin(), task.free));
  }
  return phases;
}

// A rOperator's phases follow each other, so their times add up; phases of a gang run side by side.
std::vector<double> rop_times_of_run(const Traced& traced) {
  std::vector<double> times(traced.rprogram.at("rops").size(), -1);
  for (const auto& [place, phase] : phases_of(traced)) {
    double& time = times.at(static_cast<size_t>(place.first));
    const double longest = us(phase.longest());
    time = phase.follows && time >= 0 ? time + longest : std::max(time, longest);
  }
  return times;
}

// --- for a trace viewer ----------------------------------------------------------------------------------------------

std::string events_text(const Traced& traced) {
  TraceEvents events(traced.rprogram.at("name"), traced.rprogram.at("lanes").size());
  for (const Task& task : traced.tasks)
    events.add(task.veu, rop_of(traced, task), task.phase, task.index, us(task.begin), us(task.computed - task.begin),
               us(task.begin - task.free));
  return std::move(events).text();
}

}  // namespace

TraceReport trace_report(std::string_view rprogram_json, const std::vector<uint64_t>& stamps) {
  try {
    const json rprogram = json::parse(rprogram_json);
    const Traced traced = read_traced(rprogram, stamps);
    const auto last =
        std::max_element(traced.tasks.begin(), traced.tasks.end(), [](const Task& a, const Task& b) { return a.computed < b.computed; });
    const std::string text = fmt::format("trace   {:.1f} us, {} rTasks on {} vEUs\n\n{}\n{}", us(last->computed),
                                         grouped(static_cast<int64_t>(traced.tasks.size())), traced.rprogram.at("lanes").size(),
                                         division_text(traced, last->computed), path_text(critical_path(traced, &*last)));
    return {text, events_text(traced)};
  } catch (const json::exception& wrong) {
    throw bad_input("the rProgram's JSON is not what tamp writes: {}", wrong.what());
  }
}

std::vector<double> rop_times(std::string_view rprogram_json, const std::vector<uint64_t>& stamps) {
  try {
    const json rprogram = json::parse(rprogram_json);
    size_t rows = 0;
    for (const json& lane : rprogram.at("lanes")) {
      for (const json& entry : lane) rows += rows_of(entry);
    }
    const size_t per_run = rows * kColumns;
    if (per_run == 0 || stamps.empty() || stamps.size() % per_run != 0) throw bad_input("the trace is not of runs of the rProgram");
    std::vector<std::vector<double>> runs;
    for (size_t at = 0; at < stamps.size(); at += per_run) {
      runs.push_back(rop_times_of_run(read_traced(rprogram, std::span(stamps).subspan(at, per_run))));
    }
    std::vector<double> medians;
    for (size_t rop = 0; rop < runs[0].size(); ++rop) {
      std::vector<double> times;
      for (const auto& run : runs) times.push_back(run[rop]);
      medians.push_back(median(std::move(times)));
    }
    return medians;
  } catch (const json::exception& wrong) {
    throw bad_input("the rProgram's JSON is not what tamp writes: {}", wrong.what());
  }
}

}  // namespace tamp::cli
