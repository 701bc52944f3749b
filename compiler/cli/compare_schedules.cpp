// `tamp compare MODEL --schedules`: schedules that were made for one batch or vDevice, run on the others (IOS' specialised schedules).
#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <tuple>
#include <utility>

#include "compiler/cli/comparing.h"
#include "compiler/cli/process.h"
#include "compiler/cli/table.h"
#include "compiler/cli/this_gpu.h"
#include "compiler/schedule/carry_over.h"
#include "compiler/schedule/schedule_file.h"
#include "compiler/support/text.h"

namespace tamp::cli {
namespace {

struct Saved {
  std::string file;
  schedule::ScheduleHead head;
  std::string vdevice;  // as `tamp compile --vdevice` takes it
  RProgram program;
  std::string model;  // hash of the graph without a policy's changes
};

struct Column {
  int64_t batch = 0;
  std::string vdevice;
  bool operator==(const Column&) const = default;
};

struct Cell {
  Trial trial;
  bool is_own = false;  // the schedule was made for this
  schedule::Carried carried;
};

// The prepared forms of one model, each made when it is first asked for.
class Models {
 public:
  Models(std::string file, CompileOptions options) : file_(std::move(file)), options_(std::move(options)) {}
  PreparedModel& of(const Column& column, const std::string& precision) {
    CompileOptions options = options_;
    options.batch = column.batch;
    options.vdevice = column.vdevice;
    options.precision = precision;
    return models_.try_emplace(std::tuple(column.batch, column.vdevice, precision), file_, std::move(options)).first->second;
  }

 private:
  std::string file_;
  CompileOptions options_;
  std::map<std::tuple<int64_t, std::string, std::string>, PreparedModel> models_;
};

std::string graph_hash(const Prepared& prepared) {
  return schedule::key_of(prepared.graph, prepared.vdevice, prepared.setting.precision, 0).model;
}

// The vDevice that a schedule was made for, by the name that the user or tamp gives it.
std::string vdevice_of(const Saved& saved, const std::vector<std::string>& given) {
  for (const std::string& name : given) {
    if (read_vdevice(name).name == saved.head.key.vdevice) return name;
  }
  try {
    read_vdevice(saved.head.key.vdevice);
  } catch (const Error& unknown) {
    throw bad_input("{}: it was made for a vDevice that neither tamp nor --vdevices has: {}", printable(saved.file), unknown.what());
  }
  return saved.head.key.vdevice;
}

Saved load(const std::string& file, const std::vector<std::string>& vdevices, Models& models, const select::Records& records) {
  Saved saved;
  saved.file = file;
  saved.head = schedule::read_schedule_head(read_text(file), file);
  saved.vdevice = vdevice_of(saved, vdevices);
  PreparedModel& model = models.of({saved.head.key.batch, saved.vdevice}, saved.head.key.precision);
  const Prepared& prepared = model.of(saved.head.execution);
  CompileOptions options = model.options();
  options.execution = saved.head.execution;
  options.schedule = file;
  saved.program = plan(prepared, options, &records);  // refuses a schedule of another model
  saved.model = graph_hash(prepared);
  return saved;
}

template <class T>
void add_new(std::vector<T>& values, const T& value) {
  if (std::find(values.begin(), values.end(), value) == values.end()) values.push_back(value);
}

std::vector<Column> columns_of(const CompareArguments& arguments, const std::vector<Saved>& schedules, const std::string& gpu_vdevice) {
  std::vector<int64_t> batches = arguments.batches;
  std::vector<std::string> vdevices = arguments.vdevices;
  if (!arguments.options.vdevice.empty()) vdevices = {arguments.options.vdevice};
  for (const std::string& name : vdevices) {
    if (gpu_vdevice.empty() || read_vdevice(name).name == read_vdevice(gpu_vdevice).name) continue;
    throw bad_input("vDevice '{}': this GPU is '{}', times of others can only be simulated: --device none", printable(name),
                    printable(gpu_vdevice));
  }
  if (vdevices.empty() && !gpu_vdevice.empty()) vdevices = {gpu_vdevice};
  const bool all_batches = batches.empty(), all_vdevices = vdevices.empty();
  for (const Saved& saved : schedules) {
    if (all_batches) add_new(batches, saved.head.key.batch);
    if (all_vdevices) add_new(vdevices, saved.vdevice);
  }
  std::vector<Column> columns;
  for (const std::string& vdevice : vdevices) {
    for (const int64_t batch : batches) add_new(columns, {batch, vdevice});
  }
  return columns;
}

Cell cell_of(const Saved& saved, const Column& column, Models& models, const select::Records& records) {
  PreparedModel& model = models.of(column, saved.head.key.precision);
  const Prepared& prepared = model.of(saved.head.execution);
  Cell cell;
  cell.is_own = prepared.vdevice.name == saved.head.key.vdevice && graph_hash(prepared) == saved.model;
  if (cell.is_own) {
    cell.trial = {row_of(saved.program, 0), saved.program};
    cell.trial.row.batch = column.batch;
  } else {
    CompileOptions options = model.options();
    options.execution = saved.head.execution;
    options.like = &saved.program;
    cell.trial = trial_of(model, options, records);
  }
  if (cell.trial.program) cell.carried = schedule::carried(saved.program, *cell.trial.program);
  return cell;
}

std::string batch_text(int64_t batch) { return batch == 0 ? "batch as is" : fmt::format("batch {}", batch); }

struct Specialised {
  std::vector<Saved> schedules;
  std::vector<Column> columns;
  std::vector<std::vector<Cell>> cells;  // per schedule, per column

  bool several_vdevices() const {
    return std::any_of(columns.begin(), columns.end(), [&](const Column& c) { return c.vdevice != schedules.front().vdevice; }) ||
           std::any_of(schedules.begin(), schedules.end(), [&](const Saved& s) { return s.vdevice != schedules.front().vdevice; });
  }
  std::string named(int64_t batch, const std::string& vdevice) const {
    return batch_text(batch) + (several_vdevices() ? ", " + file_name(vdevice) : "");
  }
  std::string column(size_t c) const { return named(columns[c].batch, columns[c].vdevice); }
  bool is_fastest(size_t s, size_t c) const {
    const auto us = [&](size_t schedule) -> double {
      const ComparisonRow& row = cells[schedule][c].trial.row;
      return row.has_time() ? row.us() : std::numeric_limits<double>::infinity();
    };
    for (size_t other = 0; other < schedules.size(); ++other) {
      if (us(other) < us(s)) return false;
    }
    return us(s) < std::numeric_limits<double>::infinity();
  }
};

std::string carried_text(const schedule::Carried& carried) {
  const int64_t all = carried.same + carried.family + carried.other + carried.unknown;
  std::string text = fmt::format("{} of {} rOperators have the schedule's rKernel", carried.same, all);
  if (carried.family > 0) text += fmt::format(", {} another of its family", carried.family);
  if (carried.other > 0) text += fmt::format(", {} one of another family", carried.other);
  if (carried.unknown > 0) text += fmt::format(", {} are not in the schedule", carried.unknown);
  return text;
}

std::string specialised_text(const Specialised& all) {
  std::vector<Table::Column> columns = {{"SCHEDULE"}, {"POLICY"}, {"EXECUTION"}, {"PRECISION"}, {"MADE FOR"}};
  for (size_t c = 0; c < all.columns.size(); ++c) columns.push_back(right(all.column(c)));
  Table table(columns);
  std::string notes;
  for (size_t s = 0; s < all.schedules.size(); ++s) {
    const Saved& saved = all.schedules[s];
    std::vector<std::string> cells = {file_name(saved.file), saved.head.policy, all.cells[s].front().trial.row.execution,
                                      saved.head.key.precision, all.named(saved.head.key.batch, saved.vdevice)};
    for (size_t c = 0; c < all.columns.size(); ++c) {
      const Cell& cell = all.cells[s][c];
      cells.push_back(time_text(cell.trial.row) + (all.is_fastest(s, c) ? " *" : "  "));
      if (!cell.trial.row.failure.empty())
        notes += fmt::format("{}, {}: {}\n", file_name(saved.file), all.column(c), cell.trial.row.failure);
      else if (!cell.is_own)
        notes += fmt::format("{}, {}: {}\n", file_name(saved.file), all.column(c), carried_text(cell.carried));
    }
    table.row(std::move(cells));
  }
  return fmt::format("{}\nMicroseconds; * the fastest of its column.\n{}", table.text(), notes);
}

std::string specialised_json(const Specialised& all) {
  nlohmann::json array = nlohmann::json::array();
  for (size_t s = 0; s < all.schedules.size(); ++s) {
    for (size_t c = 0; c < all.columns.size(); ++c) {
      const Cell& cell = all.cells[s][c];
      nlohmann::json object = json_of(cell.trial.row);
      object.update({{"schedule", all.schedules[s].file},
                     {"made_for_batch", all.schedules[s].head.key.batch},
                     {"made_for_vdevice", all.schedules[s].head.key.vdevice},
                     {"vdevice", all.columns[c].vdevice},
                     {"is_own", cell.is_own},
                     {"rkernels_same", cell.carried.same},
                     {"rkernels_of_same_family", cell.carried.family},
                     {"rkernels_of_other_family", cell.carried.other},
                     {"rops_not_in_schedule", cell.carried.unknown}});
      array.push_back(std::move(object));
    }
  }
  return array.dump(1) + "\n";
}

// Bars column by column, as the table is read: which schedule is the fastest in each column.
std::vector<Bar> bars_of(const Specialised& all) {
  std::vector<Bar> bars;
  for (size_t c = 0; c < all.columns.size(); ++c) {
    for (size_t s = 0; s < all.schedules.size(); ++s) {
      const Cell& cell = all.cells[s][c];
      bars.push_back(bar_of(fmt::format("{}: {}", all.column(c), file_name(all.schedules[s].file)), cell.trial.row,
                            cell.is_own ? "#2f9e57" : colour_of(cell.trial.row.execution)));
    }
  }
  return bars;
}

}  // namespace

ExitCode compare_schedules(CompareArguments arguments, const std::filesystem::path& folder) {
  const bool gpu = measures(arguments.device);
  // If the user names no vDevice, a schedule runs on the one that it was made for.
  std::string& vdevice = arguments.options.vdevice;
  if (!vdevice.empty()) vdevice = vdevice_to_compare(vdevice, gpu);
  for (std::string& name : arguments.vdevices) name = vdevice_to_compare(name, gpu);
  const CompileOptions options = compile_options(arguments.options);
  const select::Records records = read_records(options.records);
  Models models(arguments.model, options);
  std::vector<std::string> vdevices = arguments.vdevices;
  if (!arguments.options.vdevice.empty()) vdevices.push_back(arguments.options.vdevice);
  Specialised all;
  for (const std::string& file : arguments.schedules) all.schedules.push_back(load(file, vdevices, models, records));
  all.columns = columns_of(arguments, all.schedules, gpu ? vdevice_of_this_gpu() : "");
  std::vector<ComparisonRow> rows;
  for (const Saved& saved : all.schedules) {
    all.cells.emplace_back();
    for (const Column& column : all.columns) {
      all.cells.back().push_back(cell_of(saved, column, models, records));
      if (!gpu) all.cells.back().back().trial.program.reset();
    }
  }
  std::string device_name;
  for (size_t c = 0; gpu && c < all.columns.size(); ++c) {
    std::vector<Trial*> trials;
    for (auto& cells : all.cells) trials.push_back(&cells[c].trial);
    const schedule::ScheduleHead& head = all.schedules.front().head;
    const Graph& source = models.of(all.columns[c], head.key.precision).of(head.execution).source;
    device_name = measure(arguments, arguments.model, source, folder / std::to_string(c), trials);
  }
  for (const auto& cells : all.cells) {
    for (const Cell& cell : cells) rows.push_back(cell.trial.row);
  }
  const std::string where = all.several_vdevices() ? "" : fmt::format(" on vDevice {}", printable(file_name(all.columns.front().vdevice)));
  const std::string title = fmt::format("{}{}, {}", model_name(arguments.model), where, gpu ? "measured on " + device_name : "simulated");
  if (!arguments.plot.empty()) write_text(arguments.plot, bars_svg(title, bars_of(all)));
  if (arguments.as_json)
    fmt::print("{}", specialised_json(all));
  else
    fmt::print("{}\n\n{}", title, specialised_text(all));
  require_right_answers(rows);
  return ExitCode::ok;
}

}  // namespace tamp::cli
