// The rows of `tamp compare`: what an rProgram is like, as numbers that can be set beside those of another one of the same model.
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
  int64_t batch = 0;  // 0: as the model says
  // Why there is none; all below is 0 then.
  std::string failure;

  double simulated_us = 0;
  std::optional<double> measured_us{};
  bool is_wrong = false;  // it was to be measured, and failed or gave another answer than the reference
  double search_s = 0;    // from the placed graph to the proved rProgram
  int64_t launches = 0;   // of kernels, for one inference
  int64_t rtasks = 0;
  // What stands between a rTask and what it waits for. persistent: Waits for events that only this vEU signals, and for others; graph:
  // launches that a launch is after.
  int64_t same_veu_edges = 0, other_veu_edges = 0, kernel_edges = 0;
  double busy_share = 0;  // of the vEUs' time, as simulated, in which they run rTasks
  int64_t arena_bytes = 0;

  double us() const { return measured_us ? *measured_us : simulated_us; }
};

// All but how it was measured and what it was asked for with (batch).
ComparisonRow row_of(const RProgram& program, double search_s);

// For people. Beside each time stands a factor: the time of the first row of the same precision and batch, over it.
std::string comparison_text(const std::vector<ComparisonRow>& rows);
// An array of objects, keys sorted.
std::string comparison_json(const std::vector<ComparisonRow>& rows);
nlohmann::json json_of(const ComparisonRow& row);
// Its time as text: "12.3", "failed", or "-" where there is none.
std::string time_text(const ComparisonRow& row);

// Horizontal bars from a common line; texts may be any.
struct Bar {
  std::string label;
  double value = 0;
  std::string text;  // behind the bar
  std::string colour;
};
std::string bars_svg(const std::string& title, const std::vector<Bar>& bars);
std::string colour_of(const std::string& execution);

// A bar for each row; `title` may be any text.
std::string comparison_svg(const std::string& title, const std::vector<ComparisonRow>& rows);

}  // namespace tamp::cli
