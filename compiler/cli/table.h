// Text tables for people: columns as wide as their widest cell, two blanks between them, numbers to the right.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace tamp::cli {

class Table {
 public:
  enum class Align { left, right };
  struct Column {
    std::string title;
    Align align = Align::left;
    size_t limit = 60;  // longer cells are cut with "..."
  };

  explicit Table(std::vector<Column> columns) : columns_(std::move(columns)) {}
  void row(std::vector<std::string> cells);
  std::string text() const;  // every line ends in \n, no line in a blank

 private:
  std::vector<Column> columns_;
  std::vector<std::vector<std::string>> rows_;
};

// A column of numbers, say, which all end at the same place.
inline Table::Column right(std::string title) { return {std::move(title), Table::Align::right}; }

// `limit` if the output is a terminal, where people read; no limit in a file or pipe, where tools look for whole names.
size_t terminal_limit(size_t limit);

// 12345678 -> "12,345,678"
std::string grouped(int64_t number);

// 1.23e9 -> "1.23 G"
std::string scaled(double number);

double median(std::vector<double> values);  // at least one

}  // namespace tamp::cli
