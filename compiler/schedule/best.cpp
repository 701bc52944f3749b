// The policy `best`: of policies that plan in a second or two the one whose plan the simulator says is the fastest; the log says which, and
// what it says of the others. What is not faster than the wavefront policy's by more than the simulator can tell is not taken.
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

// That `list` may place here, in all plans together: one to three seconds of one core. With a quarter of them it has a third of its gain on
// inception_v3, with these nine tenths.
constexpr int64_t kMostRTasks = 4'000'000;

}  // namespace

Plan best(const PolicyInput& input) {
  Simulator simulator(input.machine);
  const Execution execution = input.options.execution;
  Plan of_wavefront = wavefront(input);
  of_wavefront.chosen = name_of(Policy::wavefront);
  const double wavefront_us = simulator.run(of_wavefront, execution);
  PolicyInput limited = input;
  limited.options.search_plans = std::min(input.options.search_plans, kMostRTasks / (1 + static_cast<int64_t>(of_wavefront.order.size())));
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
  spdlog::info("best: {}; estimated us: {}", least.chosen, join(said, ", "));
  return least;
}

}  // namespace tamp::schedule
