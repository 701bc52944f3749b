#include "compiler/schedule/loop_plan.h"

#include <algorithm>
#include <map>
#include <utility>

#include "compiler/support/log.h"

namespace tamp::schedule {
namespace {

class LoopPlanner {
 public:
  LoopPlanner(Policy policy, const PolicyInput& input)
      : policy_(policy), input_(input), rops_(input.graph.rops), last_end_(input.graph.loops.size(), 0) {
    plan_.rkernels.resize(rops_.size());
    plan_.waits.resize(rops_.size());
    for (size_t i = 0; i < rops_.size(); ++i) {
      if (rops_[i].ends_iteration) last_end_[static_cast<size_t>(rops_[i].loop)] = i;
    }
  }

  Plan run() {
    std::vector<size_t> all(rops_.size());
    for (size_t i = 0; i < all.size(); ++i) all[i] = i;
    plan_region(-1, all);
    return std::move(plan_);
  }

 private:
  // `members`: the rOperators in the loop, those of loops in it, too. A loop in it comes where its last rOperator is: all that the loop
  // reads is made by rOperators in front of that.
  void plan_region(int32_t loop, const std::vector<size_t>& members) {
    std::vector<size_t> stretch, ends;
    std::map<int32_t, std::vector<size_t>> inner;
    for (const size_t i : members) {
      const int32_t child = child_of(loop, rops_[i].loop);
      if (child < 0) {
        (rops_[i].ends_iteration && loop >= 0 ? ends : stretch).push_back(i);
        continue;
      }
      inner[child].push_back(i);
      if (i != last_end_[static_cast<size_t>(child)]) continue;
      plan_stretch(std::exchange(stretch, {}));
      mark(LoopMark::Kind::enter, child);
      plan_region(child, inner[child]);
      mark(LoopMark::Kind::repeat, child);
    }
    plan_stretch(stretch);
    if (loop < 0) return;
    mark(LoopMark::Kind::ends, loop);
    plan_stretch(ends);
  }

  // The loop directly in `outer` that is `loop` or around it; -1 if `loop` is `outer`.
  int32_t child_of(int32_t outer, int32_t loop) const {
    int32_t child = -1;
    for (; loop != outer; loop = input_.graph.loops[static_cast<size_t>(loop)].parent) child = loop;
    return child;
  }

  void mark(LoopMark::Kind kind, int32_t loop) { plan_.marks.push_back({plan_.order.size(), kind, loop}); }

  void plan_stretch(const std::vector<size_t>& members) {
    std::vector<bool> is_view(rops_.size(), true);
    std::vector<std::vector<ROperatorId>> producers(rops_.size());
    for (const size_t i : members) is_view[i] = input_.is_view[i];
    for (const size_t i : members) {
      std::copy_if(input_.producers[i].begin(), input_.producers[i].end(), std::back_inserter(producers[i]),
                   [&](ROperatorId producer) { return !is_view[producer.index()]; });
    }
    if (std::find(is_view.begin(), is_view.end(), false) == is_view.end()) return;
    const PolicyInput stretch{input_.graph, input_.machine, producers, is_view, input_.families, input_.options};
    Plan plan = plan_of(policy_, stretch);
    for (const size_t i : members) {
      plan_.rkernels[i] = std::move(plan.rkernels[i]);
      plan_.waits[i] = std::move(plan.waits[i]);
    }
    const size_t begin = plan_.order.size();
    for (const size_t at : plan.boundaries) {
      if (at > 0 && at < plan.order.size()) plan_.boundaries.push_back(begin + at);
    }
    plan_.order.insert(plan_.order.end(), plan.order.begin(), plan.order.end());
    if (plan.chosen) plan_.chosen = plan.chosen;
  }

  Policy policy_;
  const PolicyInput& input_;
  const std::vector<ROperator>& rops_;
  std::vector<size_t> last_end_;  // per loop: the last rOperator that ends an iteration
  Plan plan_;
};

}  // namespace

Plan plan_with_loops(Policy policy, const PolicyInput& input) {
  const FewerLines of_each_stretch;
  return LoopPlanner(policy, input).run();
}

}  // namespace tamp::schedule
