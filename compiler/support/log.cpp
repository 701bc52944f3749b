#include "compiler/support/log.h"

#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <stop_token>
#include <utility>

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

FewerLines::FewerLines() : before_(spdlog::get_level()) {
  if (before_ == spdlog::level::info) spdlog::set_level(spdlog::level::warn);
}
FewerLines::~FewerLines() { spdlog::set_level(static_cast<spdlog::level::level_enum>(before_)); }

Progress::Progress(std::string what) {
  if (!spdlog::should_log(spdlog::level::info)) return;
  clock_ = std::jthread([what = std::move(what)](const std::stop_token& ended) {
    std::mutex mutex;
    std::condition_variable_any nobody;
    std::unique_lock lock(mutex);
    nobody.wait_for(lock, ended, std::chrono::seconds(1), [] { return false; });
    if (!ended.stop_requested()) spdlog::info("{} ...", what);
  });
}

}  // namespace tamp
