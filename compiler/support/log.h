// The one place that sets spdlog up. Levels: info = one line a stage, debug = one line a decision. All of it goes to
// stderr, so that a command's stdout is its result alone.
#pragma once

namespace tamp {

enum class Verbosity { quiet, normal, verbose };

void start_logging(Verbosity verbosity);

}  // namespace tamp
