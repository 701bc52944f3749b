// What the two papers behind tamp compare: networks, schedules by the names that the papers give them, and the times that they published.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace tamp::cli {

struct Paper {
  std::string name, title;
  std::vector<std::string> networks;  // as examples/paper_models/make.py names them
  struct Row {
    std::string title, policy, execution;
  };
  // In blocks, each of which is compared with its first row.
  std::vector<std::vector<Row>> blocks;
  struct Published {
    std::string title, source;
    std::vector<std::optional<double>> ms;  // per network
  };
  std::vector<Published> published;  // compared with its first row
  std::string published_for;         // whatever the source
};

std::vector<std::string> paper_names();
// Without rows whose policy this tamp does not have. Error (bad input) lists the names.
Paper paper_of(const std::string& name);

}  // namespace tamp::cli
