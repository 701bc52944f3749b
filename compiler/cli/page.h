// One page of HTML that draws a rProgram: lanes over time, the arena, the graph, a table (compiler/cli/page/). It needs no network and no
// other file.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "compiler/cli/timeline_files.h"

namespace tamp::cli {

// `rprogram` is NAME.rprogram.json; nlohmann's exceptions where it is not what tamp writes, Error (bad input) where its parts do not fit
// together. `measured`: of a trace; empty: none.
std::string page_html(const nlohmann::json& rprogram, const std::vector<std::vector<MeasuredSpan>>& measured);

}  // namespace tamp::cli
