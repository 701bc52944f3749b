// The rows of `tamp compare`: properties of an rProgram, as numbers that can be compared with those of another rProgram of the same model.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "compiler/ir/rprogram.h"

namespace tamp::cli {

struct ComparisonRow {
  std::string policy, execution, precision;
  int64_t batch = 0;  // 0: the model's own
  // Why there is no program; everything below is 0 then.
  std::string failure;

  double simulated_us = 0;
  std::optional<double> measured_us{};
  bool is_wrong = false;  // when measured it failed, or gave another answer than the reference
  double search_s = 0;    // from the placed graph to the proved rProgram
  int64_t launches = 0;   // of kernels, for one inference
  int64_t rtasks = 0;
  // How rTasks wait for each other. persistent: Waits for events that only this vEU signals, and Waits for other events. graph: the
  // launches that launches are after.
  int64_t same_veu_edges = 0, other_veu_edges = 0, kernel_edges = 0;
  double busy_share = 0;  // the share of the vEUs' time in which they run rTasks, as simulated
  int64_t arena_bytes = 0;

  bool has_time() const { return failure.empty() && !is_wrong; }
  double us() const { return measured_us ? *measured_us : simulated_us; }
};

// The row of a program, without the measured times and the batch that was asked for.
ComparisonRow row_of(const RProgram& program, double search_s);

// The table for people. Beside each time is a factor: the time of the first row of the same precision and batch, divided by this time.
std::string comparison_text(const std::vector<ComparisonRow>& rows);
// An array of objects, keys sorted.
std::string comparison_json(const std::vector<ComparisonRow>& rows);
nlohmann::json json_of(const ComparisonRow& row);
// The row's time as text: "12.3", "failed", or "-" where there is none.
std::string time_text(const ComparisonRow& row);

// Horizontal bars from a common line; the texts may have any characters.
struct Bar {
  std::string label;
  double value = 0;
  std::string text;  // behind the bar
  std::string colour;
};
std::string bars_svg(const std::string& title, const std::vector<Bar>& bars);
std::string colour_of(const std::string& execution);
Bar bar_of(const std::string& label, const ComparisonRow& row, const std::string& colour);

// A bar for each row; `title` may have any characters.
std::string comparison_svg(const std::string& title, const std::vector<ComparisonRow>& rows);

}  // namespace tamp::cli
