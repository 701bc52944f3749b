// What takes the time of a rProgram: its critical path, and the shares that kinds of rOperators and layers of the model have in it. Times
// may be planned or measured.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "compiler/cli/compiled_folder.h"

namespace tamp::cli {

// Some rOperators together. A share is one of all: of the critical path, or of what all vEUs compute.
struct TimeShare {
  std::string name;
  std::vector<size_t> rops;
  double critical_us = 0, critical_share = 0;
  double busy_us = 0, busy_share = 0;  // of all vEUs
  double flops = 0;
};

void add(TimeShare& sum, const TimeShare& part);  // all but the name

struct TimeShares {
  std::vector<std::pair<size_t, size_t>> path;  // vEU and position in its lane, first to last; entries that only wait and signal included
  double launch_us = 0;                         // before the first rTask
  double critical_us = 0;                       // from the begin of the first rTask to the end of the last
  double computing_us = 0;                      // of that, in rTasks; between them signals are on their way and rTasks start
  int64_t rtasks = 0;                           // on the path
  std::vector<TimeShare> kinds, layers;         // the largest first; each rOperator is in one of each
};

// A layer is what names have in common: /encoder/layer.3 of /encoder/layer.3/output/dense/MatMul. Names are cut where that gives at
// least five layers and none that takes more than half of the time, if they can be.
TimeShares time_shares(const std::vector<CompiledFolder::ROperatorLine>& rops, const std::vector<CompiledFolder::Lane>& lanes);

nlohmann::ordered_json json_of(const TimeShares& shares);

}  // namespace tamp::cli
