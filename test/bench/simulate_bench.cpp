// Measures how many plans per second the simulator can price, and prints its times for the policies: simulate_bench MODEL.onnx...
// [--vdevice NAME] [--policy P] [--execution E] [-v]
//
// Use a release build: cmake --build --preset release --target simulate_bench. A search over plans needs 2,000 per second of squeezenet1_0
// and 20 of nasnet_a_cifar.
#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <ctime>
#include <string>
#include <vector>

#include "compiler/compile.h"
#include "compiler/schedule/dependencies.h"
#include "compiler/schedule/plan.h"
#include "compiler/schedule/simulate.h"

using namespace tamp;

namespace {

// Processor time of this program, so that other load does not count.
double seconds_now() { return static_cast<double>(std::clock()) / CLOCKS_PER_SEC; }

void bench(const std::string& path, const std::string& only, const CompileOptions& options) {
  const Prepared prepared = prepare(path, options);
  const select::Records records = read_records(options.records);
  const schedule::Dependencies found = schedule::find_dependencies(prepared.graph);
  const select::Machine machine = select::machine_for(prepared.graph, prepared.vdevice, prepared.setting.precision);
  schedule::ScheduleOptions scheduling;
  scheduling.precision = prepared.setting.precision;
  scheduling.records = &records;
  scheduling.execution = options.execution;
  const Merger merger = merger_of(*prepared.unplaced);
  scheduling.merger = &merger;
  const schedule::PolicyInput input{prepared.graph, machine, found.producers, found.is_view, kernels::families(), scheduling};
  for (const schedule::Policy policy : schedule::policies()) {
    if (!only.empty() && only != schedule::name_of(policy)) continue;
    const double before = seconds_now();
    const schedule::Planned found_plan = schedule::planned(policy, input);
    const schedule::Plan& plan = found_plan.plan;
    const double planned = seconds_now();
    schedule::Simulator simulator(machine);
    const double us = simulator.run(plan), graph_us = simulator.run(plan, schedule::Execution::graph);
    int64_t runs = 0;
    const double begin = seconds_now();
    const schedule::Draft draft = schedule::draft_of(plan);
    while (seconds_now() < begin + 0.5) simulator.run(draft), ++runs;
    fmt::print("{} {}: {} rTasks, persistent {:.1f} us, graph {:.1f} us, planned in {:.0f} ms, {:.0f} plans a second\n", path,
               schedule::name_of(policy), plan.order.size(), us, graph_us, (planned - before) * 1e3,
               static_cast<double>(runs) / (seconds_now() - begin));
  }
}

}  // namespace

int main(int argc, char** argv) {
  spdlog::set_level(spdlog::level::warn);
  CompileOptions options;
  std::vector<std::string> models;
  std::string only;  // policy
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    if (word == "--vdevice" && i + 1 < argc)
      options.vdevice = argv[++i];
    else if (word == "--policy" && i + 1 < argc)
      only = argv[++i];
    else if (word == "--execution" && i + 1 < argc)
      options.execution = schedule::parse_execution(argv[++i]);
    else if (word == "-v")
      spdlog::set_level(spdlog::level::info);
    else
      models.push_back(word);
  }
  try {
    for (const std::string& model : models) bench(model, only, options);
  } catch (const std::exception& error) {
    fmt::print(stderr, "simulate_bench: {}\n", error.what());
    return 1;
  }
}
