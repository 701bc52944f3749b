#include "compiler/ir/loops.h"

#include <algorithm>

#include "compiler/support/error.h"

namespace tamp {

bool has_loops(const Graph& graph) {
  const auto is_loop = [](const ROperator& rop) { return is_of_loop(rop.attrs); };
  return !graph.loops.empty() || std::any_of(graph.rops.begin(), graph.rops.end(), is_loop);
}

LoopNests loop_nests(const Graph& graph) {
  LoopNests nests{std::vector<std::vector<int64_t>>(graph.rops.size()), std::vector<std::vector<int64_t>>(graph.tensors.size())};
  for (size_t i = 0; i < graph.rops.size(); ++i) {
    const ROperator& rop = graph.rops[i];
    std::vector<int64_t>& nest = nests.of_rop[i];
    for (const TensorId id : reads_of(rop)) {
      const std::vector<int64_t>& other = nests.of_tensor[id.index()];
      const bool is_deeper = other.size() > nest.size();
      const std::vector<int64_t>&deep = is_deeper ? other : nest, &shallow = is_deeper ? nest : other;
      TAMP_CHECK(std::equal(shallow.begin(), shallow.end(), deep.begin()), "'" + rop.name + "' is in two loops");
      if (is_deeper) nest = other;
    }
    std::vector<int64_t> of_results = nest;
    if (const auto* begin = std::get_if<LoopBegin>(&rop.attrs)) of_results.push_back(begin->loop);
    if (const auto* end = std::get_if<LoopEnd>(&rop.attrs)) {
      TAMP_CHECK(!nest.empty() && nest.back() == end->loop, "'" + rop.name + "' does not end the loop that it is in");
      of_results.pop_back();
    }
    for (const TensorId id : rop.outputs) nests.of_tensor[id.index()] = of_results;
  }
  return nests;
}

bool is_in_loop(const Graph& graph, int32_t inner, int32_t outer) {
  while (inner >= 0 && inner != outer) inner = graph.loops[static_cast<size_t>(inner)].parent;
  return inner == outer;
}

}  // namespace tamp
