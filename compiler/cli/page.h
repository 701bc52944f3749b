// One page of HTML that draws a rProgram: lanes over time, the arena, the graph, a table (compiler/cli/page/). The page needs no network
// and no other file.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "compiler/cli/timeline_files.h"

namespace tamp::cli {

// `rprogram` is NAME.rprogram.json. Throws nlohmann's exceptions if it is not as tamp writes it, Error (bad input) if its parts do not fit
// together. `measured`: the spans of a trace; empty: none.
std::string page_html(const nlohmann::json& rprogram, const std::vector<std::vector<MeasuredSpan>>& measured);

}  // namespace tamp::cli
