// What the two papers behind tamp compare: networks, schedules under the papers' names, and the published times.
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
  // Rows in blocks. Within a block, each row is compared with the first one.
  std::vector<std::vector<Row>> blocks;
  struct Published {
    std::string title, source;
    std::vector<std::optional<double>> ms;  // per network
  };
  std::vector<Published> published;  // compared with the first of them
  std::string published_for;         // whatever the source
};

std::vector<std::string> paper_names();
// Rows whose policy this tamp does not have are left out. Error (bad input) lists the names.
Paper paper_of(const std::string& name);

}  // namespace tamp::cli
