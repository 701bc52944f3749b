#include "compiler/support/log.h"

#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>

namespace tamp {

void start_logging(Verbosity verbosity) {
  auto logger = spdlog::get("tamp");
  if (!logger) logger = spdlog::stderr_color_mt("tamp");
  logger->set_pattern("%^%l%$: %v");
  const auto level = verbosity == Verbosity::quiet     ? spdlog::level::err
                     : verbosity == Verbosity::verbose ? spdlog::level::debug
                                                       : spdlog::level::info;
  logger->set_level(level);
  spdlog::set_default_logger(logger);
}

}  // namespace tamp
