#include "compiler/cli/table.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <limits>

#include "compiler/support/error.h"

namespace tamp::cli {

void Table::row(std::vector<std::string> cells) {
  TAMP_CHECK(cells.size() == columns_.size(), "a table row has the wrong number of cells");
  for (size_t i = 0; i < cells.size(); ++i) {
    if (cells[i].size() > columns_[i].limit) cells[i] = cells[i].substr(0, columns_[i].limit - 3) + "...";
  }
  rows_.push_back(std::move(cells));
}

std::string Table::text() const {
  std::vector<size_t> widths;
  for (const Column& column : columns_) widths.push_back(column.title.size());
  for (const auto& row : rows_) {
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  std::string out;
  const auto add_line = [&](const auto& cell_of) {
    std::string line;
    for (size_t i = 0; i < columns_.size(); ++i) {
      if (i > 0) line += "  ";
      line +=
          columns_[i].align == Align::right ? fmt::format("{:>{}}", cell_of(i), widths[i]) : fmt::format("{:<{}}", cell_of(i), widths[i]);
    }
    line.erase(line.find_last_not_of(' ') + 1);
    out += line + "\n";
  };
  add_line([&](size_t i) { return columns_[i].title; });
  for (const auto& row : rows_) {
    add_line([&](size_t i) { return row[i]; });
  }
  return out;
}

size_t terminal_limit(size_t limit) { return isatty(STDOUT_FILENO) != 0 ? limit : std::numeric_limits<size_t>::max(); }

std::string grouped(int64_t number) {
  std::string digits = std::to_string(number);
  const size_t first = digits[0] == '-' ? 1 : 0;
  for (size_t i = digits.size(); i > first + 3;) digits.insert(i -= 3, ",");
  return digits;
}

std::string scaled(double number) {
  if (number >= 1e12) return fmt::format("{:.2f} T", number / 1e12);
  if (number >= 1e9) return fmt::format("{:.2f} G", number / 1e9);
  if (number >= 1e6) return fmt::format("{:.2f} M", number / 1e6);
  if (number >= 1e3) return fmt::format("{:.2f} k", number / 1e3);
  return fmt::format("{:.0f}", number);
}

double median(std::vector<double> values) {
  TAMP_CHECK(!values.empty(), "the median of nothing");
  std::sort(values.begin(), values.end());
  return (values[(values.size() - 1) / 2] + values[values.size() / 2]) / 2;
}

}  // namespace tamp::cli
