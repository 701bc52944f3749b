// test/golden/*.txt: `#` comments, a line `RUN: pass pass ...`, graph text, a line `EXPECT:`, and what print() says after the passes.
// The answers must stay as well. TAMP_UPDATE_GOLDEN=1 rewrites the last part.
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "compiler/ops/ops.h"
#include "compiler/passes/passes.h"
#include "test/support/catch.h"
#include "test/support/graph_text.h"
#include "test/support/placed_run.h"

using namespace tamp;
namespace fs = std::filesystem;

namespace {

struct Golden {
  std::string head, graph, expected;  // head: comments and the RUN line
  std::vector<std::string> passes;
};

Golden read_golden(const fs::path& path) {
  Golden golden;
  std::ifstream file(path);
  bool in_expected = false;
  for (std::string line; std::getline(file, line);) {
    if (line == "EXPECT:") {
      in_expected = true;
    } else if (in_expected) {
      golden.expected += line + "\n";
    } else if (line.starts_with("#") || line.starts_with("RUN:")) {
      golden.head += line + "\n";
      if (line.starts_with("#")) continue;
      std::istringstream names(line.substr(4));
      for (std::string name; names >> name;) golden.passes.push_back(name);
    } else {
      golden.graph += line + "\n";
    }
  }
  return golden;
}

Graph run_pass(const std::string& name, Graph graph) {
  for (const passes::Pass& pass : passes::pipeline()) {
    if (pass.name == name || name == "all") graph = pass.run(std::move(graph));
    if (pass.name == name) return graph;
  }
  REQUIRE(name == "all");
  return graph;
}

}  // namespace

TEST_CASE("passes rewrite the golden graphs as written down") {
  const fs::path folder = fs::path(__FILE__).parent_path().parent_path() / "golden";
  int count = 0;
  for (const auto& entry : fs::directory_iterator(folder)) {
    if (entry.path().extension() != ".txt" || entry.path().stem() == "replay") continue;  // replay_test.cpp
    ++count;
    INFO(entry.path().filename().string());
    const Golden golden = read_golden(entry.path());
    REQUIRE_FALSE(golden.passes.empty());
    const Graph source = test::parse_graph(golden.graph);
    CHECK_NOTHROW(verify(source));
    Graph graph = source;
    for (const std::string& name : golden.passes) graph = run_pass(name, std::move(graph));
    CHECK_NOTHROW(verify(graph));
    CHECK_NOTHROW(ops::verify_shapes(graph));
    const std::vector<ops::Value> inputs = test::random_inputs(source);
    CHECK(test::distance(ops::run(source, inputs), test::run_any(graph, inputs)) < 1e-5);
    const std::string found = print(graph);
    if (std::getenv("TAMP_UPDATE_GOLDEN")) {
      std::ofstream(entry.path()) << golden.head << golden.graph << "EXPECT:\n" << found;
    } else {
      CHECK(found == golden.expected);
    }
  }
  CHECK(count >= 8);
}
