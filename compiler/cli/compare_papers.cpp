// `tamp compare --paper`: a paper's own networks under the paper's own schedules, in one table with the times that the paper published.
#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <utility>

#include "compiler/cli/comparing.h"
#include "compiler/cli/papers.h"
#include "compiler/cli/process.h"
#include "compiler/cli/table.h"
#include "compiler/support/text.h"

namespace tamp::cli {
namespace {

struct Line {
  std::string schedule, execution;
  std::vector<std::optional<double>> us;  // per network
  std::vector<std::string> texts;         // the same times, for people
  std::vector<ComparisonRow> rows;        // the same times; none for published ones
  std::string source;
};
using Block = std::vector<Line>;

void choose_networks(Paper& paper, const std::vector<std::string>& wanted) {
  if (wanted.empty()) return;
  for (const std::string& name : wanted) {
    if (std::find(paper.networks.begin(), paper.networks.end(), name) != paper.networks.end()) continue;
    throw bad_input("--networks: {} has no network '{}', it has {}", paper.title, printable(name), join(paper.networks, ", "));
  }
  const std::vector<std::string> all = std::exchange(paper.networks, wanted);
  for (Paper::Published& published : paper.published) {
    const auto ms = std::exchange(published.ms, {});
    for (const std::string& name : wanted)
      published.ms.push_back(ms[static_cast<size_t>(std::find(all.begin(), all.end(), name) - all.begin())]);
  }
}

std::vector<std::string> files_of(const Paper& paper, const std::string& folder) {
  std::vector<std::string> files, missing;
  for (const std::string& network : paper.networks) {
    files.push_back((std::filesystem::path(folder) / fmt::format("{}_{}.onnx", paper.name, network)).string());
    std::error_code ignored;
    if (!std::filesystem::exists(files.back(), ignored)) missing.push_back(network);
  }
  if (missing.empty()) return files;
  throw bad_input(
      "{}: {} is not there; this makes {}, from the folder of tamp's sources: python3 examples/paper_models/make.py {} {} --into {}",
      printable(folder), join(missing, ", "), missing.size() == 1 ? "it" : "them", paper.name, join(missing, " "), printable(folder));
}

void add_cell(Line& line, const ComparisonRow& row) {
  line.us.push_back(row.has_time() ? std::optional(row.us()) : std::nullopt);
  line.texts.push_back(time_text(row));
  line.rows.push_back(row);
}

std::vector<Block> published_and(std::vector<Block> blocks, const Paper& paper) {
  blocks.emplace_back();
  for (const Paper::Published& published : paper.published) {
    Line line{published.title, "published", {}, {}, {}, published.source};
    for (const std::optional<double>& ms : published.ms) {
      line.us.push_back(ms ? std::optional(*ms * 1000) : std::nullopt);
      line.texts.push_back(ms ? grouped(std::llround(*ms * 1000)) : "-");
    }
    blocks.back().push_back(std::move(line));
  }
  return blocks;
}

std::optional<double> factor_of(const Block& block, const Line& line, size_t network) {
  const std::optional<double>&first = block.front().us[network], &us = line.us[network];
  return first && us && *us > 0 ? std::optional(*first / *us) : std::nullopt;
}

// Geometric mean of a line's factors; none if a network has no time.
std::optional<double> mean_factor(const Block& block, const Line& line) {
  double sum = 0;
  for (size_t n = 0; n < line.us.size(); ++n) {
    const std::optional<double> factor = factor_of(block, line, n);
    if (!factor) return std::nullopt;
    sum += std::log(*factor);
  }
  return std::exp(sum / static_cast<double>(line.us.size()));
}

std::string table_text(const Paper& paper, const std::vector<Block>& blocks) {
  std::vector<Table::Column> columns = {{"SCHEDULE"}, {"EXECUTION"}};
  for (const std::string& network : paper.networks) columns.push_back(right(network));
  columns.push_back(right("FACTOR"));
  Table table(columns);
  std::vector<std::string> notes;
  for (const Block& block : blocks) {
    for (const Line& line : block) {
      std::vector<std::string> cells = {line.schedule, line.execution};
      cells.insert(cells.end(), line.texts.begin(), line.texts.end());
      const std::optional<double> mean = mean_factor(block, line);
      cells.push_back(mean ? fmt::format("{:.2f}", *mean) : "-");
      table.row(std::move(cells));
      for (size_t n = 0; n < line.rows.size(); ++n) {
        if (!line.rows[n].failure.empty())
          notes.push_back(fmt::format("{}, {}, {}: {}", line.schedule, line.execution, paper.networks[n], line.rows[n].failure));
      }
    }
  }
  std::vector<std::string> sources;
  for (const Paper::Published& published : paper.published) {
    if (std::find(sources.begin(), sources.end(), published.source) == sources.end()) sources.push_back(published.source);
  }
  std::string text = fmt::format(
      "{}\nMicroseconds. FACTOR: geometric mean of how many times faster than the first row of its kind.\n"
      "Published: {}, {}, for {}.\n",
      table.text(), paper.title, join(sources, " and "), paper.published_for);
  for (const std::string& note : notes) text += note + "\n";
  return text;
}

std::string table_json(const Paper& paper, const std::vector<Block>& blocks) {
  nlohmann::json array = nlohmann::json::array();
  for (const Block& block : blocks) {
    for (const Line& line : block) {
      for (size_t n = 0; n < paper.networks.size(); ++n) {
        nlohmann::json object;
        if (!line.rows.empty()) {
          object = json_of(line.rows[n]);
        } else {
          if (!line.us[n]) continue;
          object = {{"published_us", *line.us[n]}, {"source", paper.title + ", " + line.source}, {"published_for", paper.published_for}};
        }
        object["network"] = paper.networks[n];
        object["schedule"] = line.schedule;
        array.push_back(std::move(object));
      }
    }
  }
  return array.dump(1) + "\n";
}

// For each network, how many times faster each row is than the first row of its kind, as the papers draw it.
std::vector<Bar> bars_of(const Paper& paper, const std::vector<Block>& blocks) {
  std::vector<Bar> bars;
  for (size_t n = 0; n < paper.networks.size(); ++n) {
    for (const Block& block : blocks) {
      for (const Line& line : block) {
        const std::optional<double> factor = factor_of(block, line, n);
        if (!factor && line.rows.empty()) continue;
        bars.push_back({fmt::format("{}: {}, {}", paper.networks[n], line.schedule, line.execution), factor.value_or(0),
                        factor ? fmt::format("{:.2f} ({} us)", *factor, line.texts[n]) : "none",
                        line.rows.empty() ? "#9a9a9a" : colour_of(line.execution)});
      }
    }
  }
  return bars;
}

}  // namespace

ExitCode compare_paper(CompareArguments arguments, const std::filesystem::path& folder) {
  Paper paper = paper_of(arguments.paper);
  choose_networks(paper, arguments.networks);
  const std::vector<std::string> files = files_of(paper, arguments.models.empty() ? "paper_models" : arguments.models);
  const bool gpu = measures(arguments.device);
  arguments.options.vdevice = vdevice_to_compare(arguments.options.vdevice, gpu);
  CompileOptions options = compile_options(arguments.options);
  if (!arguments.precisions.empty()) options.precision = arguments.precisions.front();
  const select::Records records = read_records(options.records);
  std::vector<Block> blocks;
  for (const auto& rows : paper.blocks) {
    blocks.emplace_back();
    for (const Paper::Row& row : rows) blocks.back().push_back({row.title, row.execution, {}, {}, {}, {}});
  }
  std::string device_name, vdevice_name, precision;
  std::vector<ComparisonRow> all;
  for (size_t n = 0; n < files.size(); ++n) {
    spdlog::info("{} of {}: {}", n + 1, files.size(), paper.networks[n]);
    PreparedModel model(files[n], options);
    std::vector<Trial> trials;
    for (const auto& rows : paper.blocks) {
      for (const Paper::Row& row : rows) {
        options.policy = schedule::parse_policy(row.policy);
        options.execution = schedule::parse_execution(row.execution);
        trials.push_back(trial_of(model, options, records));
        if (!gpu) trials.back().program.reset();
      }
    }
    const Prepared& prepared = model.of(options.execution);
    vdevice_name = prepared.vdevice.name;
    precision = name_of(prepared.setting.precision);
    if (gpu) {
      std::vector<Trial*> measured;
      for (Trial& trial : trials) measured.push_back(&trial);
      device_name = measure(arguments, files[n], prepared.source, folder / std::to_string(n), measured);
    }
    size_t next = 0;
    for (Block& block : blocks) {
      for (Line& line : block) {
        all.push_back(trials[next].row);
        add_cell(line, trials[next++].row);
      }
    }
  }
  blocks = published_and(std::move(blocks), paper);
  const std::string title = fmt::format("{} on vDevice {}, {}, {}", paper.title, printable(vdevice_name), precision,
                                        gpu ? "measured on " + device_name : "simulated");
  if (!arguments.plot.empty()) write_text(arguments.plot, bars_svg(title + ": times faster than the first", bars_of(paper, blocks)));
  if (arguments.as_json)
    fmt::print("{}", table_json(paper, blocks));
  else
    fmt::print("{}\n\n{}", title, table_text(paper, blocks));
  require_right_answers(all);
  return ExitCode::ok;
}

}  // namespace tamp::cli
