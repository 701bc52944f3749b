// The policy `best`: of policies that plan in about a second the one whose plan the simulator says is the fastest; the log says which, and
// what it says of the others.
#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "compiler/schedule/plan.h"
#include "compiler/schedule/simulate.h"
#include "compiler/support/text.h"

namespace tamp::schedule {

namespace {

constexpr int64_t kMostRTasks = 1'000'000;  // that `list` may place here, in all plans together: about a second

}  // namespace

Plan best(const PolicyInput& input) {
  Simulator simulator(input.machine);
  Plan least, of_wavefront;
  double least_us = 0;
  std::string chosen;
  std::vector<std::string> said;
  // The first of equals: `list` has wavefront's plan among its own.
  PolicyInput limited = input;
  for (const Policy policy : {Policy::wavefront, Policy::greedy, Policy::sequential, Policy::list}) {
    Plan plan = policy == Policy::list ? list_from(limited, std::move(of_wavefront)) : plan_of(policy, limited);
    if (policy == Policy::wavefront) {
      of_wavefront = plan;
      limited.options.search_plans = std::min(input.options.search_plans, kMostRTasks / (1 + static_cast<int64_t>(plan.order.size())));
    }
    const double us = simulator.run(plan, input.options.execution);
    said.push_back(fmt::format("{} {:.1f}", name_of(policy), us));
    if (!chosen.empty() && us >= least_us) continue;
    least = std::move(plan), least_us = us, chosen = name_of(policy);
  }
  spdlog::info("best: {}; estimated us: {}", chosen, join(said, ", "));
  return least;
}

}  // namespace tamp::schedule
