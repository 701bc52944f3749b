// Tests the verifier. Every plan of every policy, for models and for random graphs, in both executions, must be accepted. Damaged programs
// (mutants.h) that an independent oracle (order_oracle.h) finds harmful must be refused. Prints the tables of docs/verifier.md.
//
//   verify_mutants [MODEL.onnx...] [--nodes N] [--whole] [--random N] [--mutants N] [--seed S] [--vdevice NAME] [--precision P]
//   [--examples]
//
// Models are cut behind their first N nodes (40), since brute force is slow; --whole takes them whole and makes no mutants. Half of the
// mutants are of models and half of random graphs, in equal parts of all programs. The exit code is 1 if a right program is refused or a
// harmful mutant accepted; --examples prints why harmless mutants are refused.
#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <cctype>
#include <cstdio>
#include <ctime>
#include <map>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "codegen/weights.h"
#include "compiler/compile.h"
#include "compiler/frontend/onnx_reader.h"
#include "compiler/passes/passes.h"
#include "compiler/schedule/launches.h"
#include "compiler/schedule/schedule.h"
#include "compiler/support/error.h"
#include "test/bench/mutants.h"
#include "test/bench/order_oracle.h"
#include "test/support/random_graph.h"

using namespace tamp;
using namespace tamp::test;

namespace {

struct Options {
  std::vector<std::string> models;
  size_t nodes = 40;
  bool whole = false, examples = false;
  int64_t random = 0, mutants = 0;
  unsigned seed = 1;
  std::string vdevice = "h200";
  Precision precision = Precision::tf32;
};

struct Tally {
  int64_t refused = 0, accepted = 0, refused_harmless = 0, accepted_harmless = 0;
};

struct Verdicts {
  int64_t programs = 0, refused = 0, without_plan = 0, rtasks = 0;
  std::map<std::string, Tally> lanes, launches;  // by kind of mutant
  std::map<std::string, int64_t> reasons;        // kind: sentence of the verifier about a harmless mutant
  int64_t holes = 0;
};

// The first nodes of a network; its outputs are the tensors that none of these nodes reads.
Graph cut(Graph graph, size_t nodes) {
  if (graph.rops.size() <= nodes) return graph;
  graph.rops.resize(nodes);
  graph.outputs.clear();
  graph.padded.clear();
  const Uses uses = uses_of(graph);
  for (const ROperator& rop : graph.rops) {
    for (const TensorId id : rop.outputs) {
      if (uses.consumers[id.index()].empty()) graph.outputs.push_back(id);
    }
  }
  return remove_dead(std::move(graph));
}

template <class Op>
bool has(const Graph& graph) {
  return std::any_of(graph.rops.begin(), graph.rops.end(), [](const ROperator& rop) { return std::holds_alternative<Op>(rop.attrs); });
}

// Chooses the layout of shared memory as compile.cpp does: boxes of inputs on tensor cores, the room for gangs elsewhere.
ShapedVDevice fitted(const Graph& graph, const VDevice& vdevice, Precision precision) {
  const bool boxes = precision != Precision::fp32 && (!has<Recurrent>(graph) || has<Conv>(graph));
  return boxes ? vdevice.with_inputs() : vdevice.without_inputs();
}

Graph placed(Graph graph, const VDevice& vdevice, Precision precision, bool gangs) {
  const Estimator estimator = [&](const Graph& of, const ROperator& rop) -> std::optional<Estimate> {
    if (!gangs && std::holds_alternative<Recurrent>(rop.attrs)) return std::nullopt;
    return select::estimate(of, rop, vdevice.with_inputs(), precision);
  };
  for (const passes::Pass& pass : passes::pipeline(estimator)) graph = pass.run(std::move(graph));
  return graph;
}

// The verifier's sentences as compile.cpp asks for them. If weights moved, also what codegen checks when it writes their file: whether
// those at one place are equal.
std::vector<std::string> verdict(const RProgram& program, bool weights_moved = false) {
  std::vector<std::string> violations = schedule::verify(program);
  if (violations.empty() && program.launches) violations = schedule::verify_launches(program);
  if (!violations.empty() || !weights_moved) return violations;
  try {
    codegen::gather_weights(program);
  } catch (const InternalError& error) {
    violations.emplace_back(error.what());
  }
  return violations;
}

// A sentence of the verifier without its names and numbers.
std::string pattern(const std::string& sentence) {
  std::string out;
  bool quoted = false;
  for (const char c : sentence) {
    if (c == '\'') quoted = !quoted;
    if (quoted || c == '\'' || c == '-') continue;
    if (std::isdigit(static_cast<unsigned char>(c)) == 0)
      out += c;
    else if (out.empty() || out.back() != 'N')
      out += 'N';
  }
  return out;
}

class Trial {
 public:
  Trial(const Options& options, Verdicts& verdicts) : options_(options), verdicts_(verdicts), random_(options.seed) {}

  // Plans a graph as it was read, by all policies and in both executions.
  void plan(const std::string& name, const Graph& graph, const VDevice& vdevice, Precision precision, int64_t mutants) {
    for (const auto execution : {schedule::Execution::persistent, schedule::Execution::graph}) {
      const bool persistent = execution == schedule::Execution::persistent;
      const Graph ready = placed(graph, vdevice, precision, /*gangs=*/persistent);
      const ShapedVDevice fit = fitted(ready, vdevice, precision);
      for (const schedule::Policy policy : schedule::policies()) {
        const std::string what = fmt::format("{} {} {}", name, schedule::name_of(policy), persistent ? "persistent" : "graph");
        schedule::ScheduleOptions scheduling;
        scheduling.policy = policy;
        scheduling.precision = precision;
        scheduling.execution = execution;
        scheduling.gangs = persistent;
        scheduling.search_plans = 50;
        try {
          judge(what, schedule::schedule(ready, fit, scheduling), mutants);
        } catch (const Error& refused) {
          ++verdicts_.without_plan;
          fmt::print(stderr, "{}: no plan: {}\n", what, refused.what());
        }
      }
    }
  }

 private:
  void judge(const std::string& what, const RProgram& right, int64_t mutants) {
    ++verdicts_.programs;
    for (const RKernel& rkernel : right.rkernels) verdicts_.rtasks += rkernel.rtasks();
    const std::vector<std::string> violations = verdict(right);
    if (!violations.empty()) {
      ++verdicts_.refused;
      fmt::print("{}: refused: {}\n", what, violations[0]);
      return;
    }
    if (mutants == 0) return;
    const std::clock_t begin = std::clock();
    const OrderOracle oracle(right, kernels::families());
    if (const auto harm = oracle.harm(right)) {
      ++verdicts_.holes;
      fmt::print("{}: accepted, and {}\n", what, *harm);
      return;
    }
    RProgram mutant = right;
    for (int64_t n = 0; n < mutants; ++n) {
      damage(what, oracle, mutant);
      mend(mutant, right);
    }
    spdlog::info("{}: {} rTasks, {} pairs, {:.0f} ms", what, oracle.rtasks(), oracle.pairs(),
                 1e3 * static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC);
  }

  void damage(const std::string& what, const OrderOracle& oracle, RProgram& mutant) {
    const std::vector<MutantKind>& kinds = mutant.launches ? launch_mutants() : lane_mutants();
    const MutantKind* kind = nullptr;
    for (int tries = 0; kind == nullptr; ++tries) {
      if (tries == 100) return;
      const MutantKind& candidate = kinds[random_() % kinds.size()];
      if (candidate.damage(mutant, random_)) kind = &candidate;
    }
    const auto harm = oracle.harm(mutant);
    const bool weights_moved = std::string(kind->name).starts_with("weights");
    const std::vector<std::string> violations = verdict(mutant, weights_moved);
    Tally& tally = (mutant.launches ? verdicts_.launches : verdicts_.lanes)[kind->name];
    ++(harm ? violations.empty() ? tally.accepted : tally.refused : violations.empty() ? tally.accepted_harmless : tally.refused_harmless);
    if (harm && violations.empty()) {
      ++verdicts_.holes;
      fmt::print("{}: {}: accepted, but {}\n", what, kind->name, *harm);
    }
    if (!harm && !violations.empty()) ++verdicts_.reasons[fmt::format("{}: {}", kind->name, pattern(violations[0]))];
  }

  const Options& options_;
  Verdicts& verdicts_;
  std::mt19937 random_;
};

void print_table(const char* title, const std::vector<MutantKind>& kinds, const std::map<std::string, Tally>& tallies) {
  if (tallies.empty()) return;
  fmt::print("\n| {} | harmful, refused | harmful, accepted | harmless, refused | harmless, accepted |\n|---|---|---|---|---|\n", title);
  Tally all;
  const auto line = [](const std::string& name, const Tally& t) {
    fmt::print("| {} | {} | {} | {} | {} |\n", name, t.refused, t.accepted, t.refused_harmless, t.accepted_harmless);
  };
  for (const MutantKind& kind : kinds) {
    const auto found = tallies.find(kind.name);
    if (found == tallies.end()) continue;
    const Tally& t = found->second;
    line(kind.name, t);
    all.refused += t.refused, all.accepted += t.accepted, all.refused_harmless += t.refused_harmless,
        all.accepted_harmless += t.accepted_harmless;
  }
  line("all", all);
}

std::string file_name(const std::string& path) { return path.substr(path.find_last_of('/') + 1); }

int run(const Options& options) {
  Verdicts verdicts;
  Trial trial(options, verdicts);
  const int64_t each_graph = 2 * static_cast<int64_t>(schedule::policies().size());  // programs
  const bool both = !options.models.empty() && !options.whole && options.random > 0;
  const int64_t share = both ? options.mutants / 2 : options.mutants;
  const auto part = [&](int64_t graphs) { return graphs == 0 ? 0 : (share + graphs * each_graph - 1) / (graphs * each_graph); };
  const int64_t of_model = options.whole ? 0 : part(static_cast<int64_t>(options.models.size()));
  const VDevice vdevice = read_vdevice(options.vdevice);
  for (const std::string& model : options.models) {
    const Graph graph = frontend::read_onnx(model, {});
    trial.plan(file_name(model), options.whole ? graph : cut(graph, options.nodes), vdevice, options.precision, of_model);
    std::fflush(stdout);
  }
  for (int64_t n = 0; n < options.random; ++n) {
    const unsigned seed = options.seed * 1000 + static_cast<unsigned>(n);
    const VDevice device = n % 2 == 0 ? read_vdevice("cpu") : vdevice;
    const Precision precision = n % 2 == 0 ? Precision::fp32 : options.precision;
    trial.plan(fmt::format("random {}", seed), random_graph(seed, 4 + static_cast<int>(n % 24)), device, precision, part(options.random));
  }
  fmt::print("{} models, {} random graphs: {} programs of {} rTasks accepted, {} refused; {} have no plan\n", options.models.size(),
             options.random, verdicts.programs - verdicts.refused, verdicts.rtasks, verdicts.refused, verdicts.without_plan);
  print_table("persistent execution", lane_mutants(), verdicts.lanes);
  print_table("graph execution", launch_mutants(), verdicts.launches);
  if (options.examples) {
    fmt::print("\nwhy harmless ones were refused:\n");
    for (const auto& [reason, count] : verdicts.reasons) fmt::print("{:6}  {}\n", count, reason);
  }
  return verdicts.refused == 0 && verdicts.holes == 0 ? 0 : 1;
}

Precision parse_precision(const std::string& name) {
  for (const Precision p : {Precision::fp32, Precision::tf32, Precision::fp16, Precision::bf16}) {
    if (name == name_of(p)) return p;
  }
  throw bad_input("precision " + name + " is not known");
}

}  // namespace

int main(int argc, char** argv) {
  spdlog::set_level(spdlog::level::warn);
  Options options;
  try {
    for (int i = 1; i < argc; ++i) {
      const std::string word = argv[i];
      const auto value = [&] {
        if (i + 1 == argc) throw bad_input(word + " wants a value");
        return std::string(argv[++i]);
      };
      if (word == "--nodes")
        options.nodes = std::stoul(value());
      else if (word == "--whole")
        options.whole = true;
      else if (word == "--random")
        options.random = std::stoll(value());
      else if (word == "--mutants")
        options.mutants = std::stoll(value());
      else if (word == "--seed")
        options.seed = static_cast<unsigned>(std::stoul(value()));
      else if (word == "--vdevice")
        options.vdevice = value();
      else if (word == "--precision")
        options.precision = parse_precision(value());
      else if (word == "--examples")
        options.examples = true;
      else if (word == "-v")
        spdlog::set_level(spdlog::level::info);
      else
        options.models.push_back(word);
    }
    return run(options);
  } catch (const std::exception& error) {
    fmt::print(stderr, "verify_mutants: {}\n", error.what());
    return 1;
  }
}
