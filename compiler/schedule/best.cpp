// The policy `best`: tries the policies that plan in a second or two and takes the plan that the simulator says is the fastest. The log
// names the policy that made it and the simulated times of the others. A plan that is not faster than the wavefront policy's by more than
// the simulator's error is not taken.
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

// How many rTasks `list` may place here, in all of its plans together: one to three seconds of one core. With a quarter of this number
// `list` gains a third as much on inception_v3, with this number nine tenths.
constexpr int64_t kMostRTasks = 4'000'000;
// And how many rOperators: each takes as long as some rTasks, since all vEUs are compared for it.
constexpr int64_t kMostROperators = 1'500'000;

}  // namespace

Plan best(const PolicyInput& input) {
  Simulator simulator(input.machine);
  const Execution execution = input.options.execution;
  Plan of_wavefront = wavefront(input);
  of_wavefront.chosen = name_of(Policy::wavefront);
  const double wavefront_us = simulator.run(of_wavefront, execution);
  PolicyInput limited = input;
  const int64_t rtasks = static_cast<int64_t>(of_wavefront.order.size()), rops = std::ranges::count(input.is_view, false);
  limited.options.search_plans = std::min({input.options.search_plans, kMostRTasks / (1 + rtasks), kMostROperators / (1 + rops)});
  Plan least = of_wavefront;
  double least_us = wavefront_us * worth_of(execution);
  std::vector<std::string> said = {fmt::format("wavefront {:.1f}", wavefront_us)};
  for (const Policy policy : {Policy::greedy, Policy::sequential, Policy::list}) {
    Plan plan = policy == Policy::list ? list_from(limited, std::move(of_wavefront)) : plan_of(policy, limited);
    const double us = simulator.run(plan, execution);
    said.push_back(fmt::format("{} {:.1f}", name_of(policy), us));
    if (us >= least_us) continue;
    least = std::move(plan), least_us = us, least.chosen = name_of(policy);
  }
  spdlog::info("best: {}; us by the costs that choose: {}", least.chosen, join(said, ", "));
  return least;
}

}  // namespace tamp::schedule
