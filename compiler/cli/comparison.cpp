#include "compiler/cli/comparison.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "compiler/cli/table.h"
#include "compiler/schedule/schedule.h"
#include "compiler/support/text.h"

namespace tamp::cli {
namespace {

void count_edges(const RProgram& program, ComparisonRow& row) {
  if (program.launches) {
    for (const PhaseLaunch& launch : *program.launches) row.kernel_edges += static_cast<int64_t>(launch.after.size());
    return;
  }
  std::vector<std::set<size_t>> signalled_on(program.events.size());
  for (size_t veu = 0; veu < program.lanes.size(); ++veu) {
    for (const Instruction& i : program.lanes[veu]) {
      if (i.signal.valid()) signalled_on[i.signal.index()].insert(veu);
    }
  }
  for (size_t veu = 0; veu < program.lanes.size(); ++veu) {
    for (const Instruction& i : program.lanes[veu]) {
      for (const EventId id : i.waits) ++(signalled_on[id.index()] == std::set<size_t>{veu} ? row.same_veu_edges : row.other_veu_edges);
    }
  }
}

double busy_share(const RProgram& program) {
  const schedule::Timeline timeline = schedule::timeline(program);
  double busy_us = 0;
  for (size_t veu = 0; veu < program.lanes.size(); ++veu) {
    for (size_t i = 0; i < program.lanes[veu].size(); ++i) {
      if (program.lanes[veu][i].rtask.rop.valid()) busy_us += timeline.lanes[veu][i].end_us - timeline.lanes[veu][i].begin_us;
    }
  }
  const double all_us = timeline.us * static_cast<double>(program.lanes.size());
  return all_us > 0 ? busy_us / all_us : 0;
}

std::string batch_cell(int64_t batch) { return batch == 0 ? "as is" : std::to_string(batch); }

std::string edges_text(const ComparisonRow& row) {
  if (row.execution == "graph") return fmt::format("{} kernel", row.kernel_edges);
  return fmt::format("{} vEU, {} other", row.same_veu_edges, row.other_veu_edges);
}

const ComparisonRow* first_like(const std::vector<ComparisonRow>& rows, const ComparisonRow& row) {
  const auto found = std::find_if(rows.begin(), rows.end(), [&](const ComparisonRow& other) {
    return other.has_time() && other.precision == row.precision && other.batch == row.batch;
  });
  return found == rows.end() ? nullptr : &*found;
}

std::string escaped(const std::string& text) {
  std::string out;
  for (const char c : printable(text)) {
    if (c == '&')
      out += "&amp;";
    else if (c == '<')
      out += "&lt;";
    else if (c == '>')
      out += "&gt;";
    else
      out += c;
  }
  return out;
}

}  // namespace

ComparisonRow row_of(const RProgram& program, double search_s) {
  ComparisonRow row{.policy = program.policy,
                    .execution = program.launches ? "graph" : "persistent",
                    .precision = name_of(program.precision),
                    .failure = {},
                    .simulated_us = program.estimated_us,
                    .search_s = search_s,
                    .launches = program.launches ? static_cast<int64_t>(program.launches->size()) : 1,
                    .busy_share = busy_share(program),
                    .arena_bytes = program.memory.arena_bytes};
  for (const RKernel& rkernel : program.rkernels) row.rtasks += rkernel.rtasks();
  count_edges(program, row);
  return row;
}

std::string comparison_text(const std::vector<ComparisonRow>& rows) {
  const bool measured = std::any_of(rows.begin(), rows.end(), [](const ComparisonRow& row) { return row.measured_us.has_value(); });
  std::vector<Table::Column> columns = {{"POLICY"}, {"EXECUTION"}, {"PRECISION"}, right("BATCH")};
  if (measured) columns.push_back(right("MEASURED US"));
  for (const char* title : {"SIMULATED US", "FACTOR", "SEARCH S", "LAUNCHES", "RTASKS", "EDGES", "BUSY", "ARENA"})
    columns.push_back(right(title));
  Table table(columns);
  for (const ComparisonRow& row : rows) {
    std::vector<std::string> cells = {row.policy, row.execution, row.precision, batch_cell(row.batch)};
    if (!row.failure.empty()) {
      cells.resize(columns.size(), "-");
      table.row(cells);
      continue;
    }
    if (measured) cells.push_back(row.measured_us ? fmt::format("{:.1f}", *row.measured_us) : row.is_wrong ? "failed" : "-");
    const ComparisonRow* first = first_like(rows, row);
    const bool comparable = first != nullptr && !row.is_wrong && row.us() > 0;
    for (std::string& cell :
         std::vector<std::string>{fmt::format("{:.1f}", row.simulated_us), comparable ? fmt::format("{:.2f}", first->us() / row.us()) : "-",
                                  fmt::format("{:.2f}", row.search_s), grouped(row.launches), grouped(row.rtasks), edges_text(row),
                                  fmt::format("{:.0f} %", 100 * row.busy_share), bytes_text(row.arena_bytes)})
      cells.push_back(std::move(cell));
    table.row(cells);
  }
  std::string text = table.text();
  for (const ComparisonRow& row : rows) {
    if (!row.failure.empty()) text += fmt::format("{}, {}, {}: {}\n", row.policy, row.execution, row.precision, row.failure);
  }
  return text;
}

nlohmann::json json_of(const ComparisonRow& row) {
  nlohmann::json object = {{"policy", row.policy}, {"execution", row.execution}, {"precision", row.precision}};
  if (row.batch != 0) object["batch"] = row.batch;
  if (!row.failure.empty()) {
    object["failure"] = row.failure;
    return object;
  }
  object.update({{"simulated_us", row.simulated_us},
                 {"search_s", row.search_s},
                 {"launches", row.launches},
                 {"rtasks", row.rtasks},
                 {"same_veu_edges", row.same_veu_edges},
                 {"other_veu_edges", row.other_veu_edges},
                 {"kernel_edges", row.kernel_edges},
                 {"busy_share", row.busy_share},
                 {"arena_bytes", row.arena_bytes}});
  if (row.measured_us) object["measured_us"] = *row.measured_us;
  if (row.is_wrong) object["failure"] = "the run failed, or its answer differs from the reference";
  return object;
}

std::string comparison_json(const std::vector<ComparisonRow>& rows) {
  nlohmann::json array = nlohmann::json::array();
  for (const ComparisonRow& row : rows) array.push_back(json_of(row));
  return array.dump(1) + "\n";
}

std::string time_text(const ComparisonRow& row) {
  if (row.is_wrong) return "failed";
  return row.failure.empty() ? fmt::format("{:.1f}", row.us()) : "-";
}

std::string colour_of(const std::string& execution) { return execution == "graph" ? "#c98a3c" : "#3c7dc9"; }

Bar bar_of(const std::string& label, const ComparisonRow& row, const std::string& colour) {
  if (!row.has_time()) return {label, 0, "none", colour};
  return {label, row.us(), fmt::format("{:.1f} us{}", row.us(), row.measured_us ? "" : " (simulated)"), colour};
}

std::string bars_svg(const std::string& title, const std::vector<Bar>& bars) {
  constexpr int kLeft = 260, kWidth = 520, kRow = 22, kTop = 44;
  double longest = 0;
  for (const Bar& bar : bars) longest = std::max(longest, bar.value);
  const int height = kTop + kRow * static_cast<int>(bars.size()) + 12;
  std::string svg = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0}\" height=\"{1}\" viewBox=\"0 0 {0} {1}\" font-family=\"sans-serif\" "
      "font-size=\"12\">\n<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n<text x=\"12\" y=\"24\" font-size=\"15\">{2}</text>\n",
      kLeft + kWidth + 110, height, escaped(title));
  for (size_t i = 0; i < bars.size(); ++i) {
    const Bar& bar = bars[i];
    const int y = kTop + kRow * static_cast<int>(i);
    const double width = longest > 0 ? bar.value / longest * kWidth : 0;
    svg += fmt::format("<text x=\"{}\" y=\"{}\" text-anchor=\"end\">{}</text>\n", kLeft - 8, y + 14, escaped(bar.label));
    svg += fmt::format("<rect x=\"{}\" y=\"{}\" width=\"{:.1f}\" height=\"{}\" fill=\"{}\"/>\n", kLeft, y, width, kRow - 6, bar.colour);
    svg += fmt::format("<text x=\"{:.1f}\" y=\"{}\">{}</text>\n", kLeft + width + 6, y + 14, escaped(bar.text));
  }
  return svg + "</svg>\n";
}

std::string comparison_svg(const std::string& title, const std::vector<ComparisonRow>& rows) {
  std::vector<Bar> bars;
  for (const ComparisonRow& row : rows) {
    const std::string batch = row.batch == 0 ? "" : fmt::format(", batch {}", row.batch);
    bars.push_back(bar_of(fmt::format("{}, {}, {}{}", row.policy, row.execution, row.precision, batch), row, colour_of(row.execution)));
  }
  return bars_svg(title, bars);
}

}  // namespace tamp::cli
