// What every test of a pass asks. Catch2 assertions, so for tests' .cpp files only.
#pragma once

#include <string>
#include <vector>

#include "compiler/ir/fused.h"
#include "compiler/ops/ops.h"
#include "test/support/catch.h"
#include "test/support/graph_text.h"
#include "test/support/placed_run.h"

namespace tamp::test {

inline std::vector<std::string> output_names(const Graph& graph) {
  std::vector<std::string> names;
  for (const TensorId id : graph.outputs) names.push_back(graph.tensor(id).name);
  return names;
}

// What holds after every pass, and that the answers stay.
inline void check_pass(const Graph& before, const Graph& after) {
  const std::vector<ops::Value> inputs = random_inputs(before);
  CHECK_NOTHROW(verify(after));
  CHECK_NOTHROW(ops::verify_shapes(after));
  CHECK(output_names(before) == output_names(after));
  CHECK(print(parse_graph(print(after))) == print(after));
  CHECK(distance(ops::run(before, inputs), run_any(after, inputs)) < 1e-5);
}

// Whether the graph's answers can be compared: finite for random_inputs.
inline bool has_finite_answers(const Graph& graph) {
  const std::vector<ops::Value> answers = ops::run(graph, random_inputs(graph));
  return distance(answers, answers) == 0;
}

// The text with `to` in the place of the first `from`, which it must hold.
inline std::string swapped(std::string text, const std::string& from, const std::string& to) {
  const size_t at = text.find(from);
  REQUIRE(at != std::string::npos);
  return text.replace(at, from.size(), to);
}

inline int count_rops(const Graph& graph, const std::string& op) {
  int found = 0;
  for (const ROperator& rop : graph.rops) found += title_of(rop) == op;
  return found;
}

inline const Tensor& tensor_named(const Graph& graph, const std::string& name) {
  for (const Tensor& tensor : graph.tensors) {
    if (tensor.name == name) return tensor;
  }
  FAIL("no tensor '" + name + "'");
  return graph.tensors[0];
}

}  // namespace tamp::test
