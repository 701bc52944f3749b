// The verifier over what every policy makes of random graphs, with the rKernels that there are: all accepted, in both executions.
#include <algorithm>

#include "compiler/passes/passes.h"
#include "compiler/schedule/launches.h"
#include "compiler/schedule/schedule.h"
#include "test/support/catch.h"
#include "test/support/random_graph.h"

using namespace tamp;
using namespace tamp::test;

TEST_CASE("the verifier accepts what every policy makes of random graphs") {
  for (unsigned seed = 0; seed < 16; ++seed) {
    Graph graph = random_graph(1000 + seed, 4 + static_cast<int>(seed));
    for (const passes::Pass& pass : passes::pipeline()) graph = pass.run(std::move(graph));
    const ShapedVDevice vdevice = read_vdevice("cpu").without_inputs();
    for (const schedule::Policy policy : schedule::policies()) {
      for (const auto execution : {schedule::Execution::persistent, schedule::Execution::graph}) {
        INFO("seed " << seed << " " << schedule::name_of(policy) << (execution == schedule::Execution::graph ? " graph" : ""));
        schedule::ScheduleOptions options;
        options.policy = policy;
        options.execution = execution;
        options.search_plans = 20;
        const RProgram program = schedule::schedule(graph, vdevice, options);
        CHECK(schedule::verify(program) == std::vector<std::string>{});
        if (program.launches) CHECK(schedule::verify_launches(program) == std::vector<std::string>{});
      }
    }
  }
}
