#include "compiler/schedule/ios_merge.h"

#include <limits>

#include "compiler/schedule/choose.h"
#include "compiler/support/error.h"

namespace tamp::schedule {

MergePrices::MergePrices(const PolicyInput& input, StagePrices& prices)
    : input_(input), prices_(prices), simulator_(input.machine, input.options.execution), class_of_(prices.units().size(), -1) {
  for (size_t unit = 0; unit < prices.units().size(); ++unit) unit_of_[input.graph.rop(prices.units()[unit]).name] = unit;
  const std::vector<Merge>& classes = input.options.merger->classes;
  for (size_t c = 0; c < classes.size(); ++c) {
    for (const std::string& name : classes[c]) {
      if (const auto found = unit_of_.find(name); found != unit_of_.end()) class_of_[found->second] = static_cast<int64_t>(c);
    }
  }
}

Merge MergePrices::names_of(const std::vector<size_t>& units) const {
  Merge names;
  for (const size_t unit : units) names.push_back(input_.graph.rop(prices_.units()[unit]).name);
  return names;
}

double MergePrices::of(const std::vector<size_t>& units) {
  const auto [at, is_new] = known_.try_emplace(units, 0);
  if (is_new) at->second = simulate(units);
  return at->second;
}

double MergePrices::simulate(const std::vector<size_t>& units) {
  const Merge names = names_of(units);
  const Graph graph = input_.options.merger->merged({names});
  const PolicyInput other{graph, input_.machine, input_.producers, input_.is_view, input_.families, input_.options};
  std::set<std::string> there;
  std::vector<std::vector<RKernel>> found;
  std::vector<TensorId> made;
  std::vector<const RKernel*> rkernels;
  std::vector<std::vector<size_t>> needs;
  for (size_t i = 0; i < graph.rops.size(); ++i) {
    const ROperator& rop = graph.rops[i];
    there.insert(rop.name);
    if (unit_of_.contains(rop.name)) continue;
    Unsupported unsupported;
    found.push_back(candidates_of(other, ROperatorId(static_cast<int64_t>(i)), /*alone=*/true, unsupported));
    if (found.back().empty()) return std::numeric_limits<double>::infinity();
    needs.emplace_back();
    for (const TensorId id : reads_of(rop)) {
      for (size_t j = 0; j < made.size(); ++j) {
        if (graph.tensor(id).place.buffer == graph.tensor(made[j]).place.buffer) needs.back().push_back(j);
      }
    }
    made.push_back(rop.outputs[0]);
  }
  UnitStage one_group(1);
  for (size_t i = 0; i < found.size(); ++i) {
    rkernels.push_back(&found[i][select::fastest(found[i], input_.machine)]);
    one_group[0].push_back(i);
  }
  double us = simulator_.run(rkernels, needs, one_group);
  // Copies that are needed no more.
  for (const std::string& name : names) there.insert(name);
  for (const auto& [name, unit] : unit_of_) {
    if (!there.contains(name)) us -= prices_.of({{unit}}).us;
  }
  return us;
}

}  // namespace tamp::schedule
