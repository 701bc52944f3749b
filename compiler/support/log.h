// The one place that sets spdlog up. Levels: info = one line a stage, debug = one line a decision. All of it goes to
// stderr, so that a command's stdout is its result alone.
#pragma once

#include <string>
#include <thread>

namespace tamp {

enum class Verbosity { quiet, normal, verbose };

void start_logging(Verbosity verbosity);

// As long as it lives, there are no info lines: of a stage that is run many times, as a policy of a program with loops. Debug lines stay.
class FewerLines {
 public:
  FewerLines();
  ~FewerLines();
  FewerLines(const FewerLines&) = delete;
  FewerLines& operator=(const FewerLines&) = delete;

 private:
  int before_;
};

// A step that may take long: after its first second an info line says what is being done, "reads resnet50.onnx ...".
class Progress {
 public:
  explicit Progress(std::string what);

 private:
  std::jthread clock_;  // ends with this
};

}  // namespace tamp
