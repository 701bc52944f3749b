// Gangs of recurrent cells against the reference: one source file with a program per rKernel, compiled over the stand-in (or,
// TAMP_NVCC="nvcc -arch=sm_90", for a GPU), run, compared. Also checks accesses(): what is written is what is declared, and the
// words published are those declared, each of them.
#pragma once

#include <fmt/format.h>

#include "test/kernels/light_bench.h"
#include "test/kernels/run_program.h"

namespace tamp::test {

struct RecurrentRun {
  ShapedVDevice vdevice;
  Precision precision = Precision::fp32;
  double tolerance = 2e-6;
  bool first_only = false;  // of the candidates
};

struct Gang {
  Trial trial;
  int64_t veus = 0, work_bytes = 0, steps = 0;
};

inline std::string gang_value(const Gang& gang, size_t phase, const ArgValue& value) {
  if (const auto* at = std::get_if<ExchangeArg>(&value.value)) return ref_text(gang.trial.buffers.size(), at->offset * 8);
  const auto* const list = std::get_if<ArgList>(&value.value);
  if (list == nullptr) return value_text(gang.trial, phase, value);
  std::string text = "{";
  for (const ArgValue& v : *list) text += gang_value(gang, phase, v) + ", ";
  return text + "}";
}

inline std::string gang_program(const Gang& gang, size_t number) {
  std::string args, run, which, rtasks;
  const std::vector<Phase>& phases = gang.trial.rkernel.phases;
  for (size_t p = 0; p < phases.size(); ++p) {
    const Phase& phase = phases[p];
    args += fmt::format("__device__ const {} args{}_{} = {{\n", phase.args_type, number, p);
    for (const Arg& a : phase.args) args += fmt::format("  .{} = {},\n", a.name, gang_value(gang, p, a.value));
    args += "};\n";
    std::string templates;
    for (const auto& [name, text] : phase.template_args) templates += ", " + text;
    run += fmt::format("      case {}: {}<driver::Veu{}>(task); break;\n", p, phase.body, templates);
    which += fmt::format("      case {}: return &args{}_{};\n", p, number, p);
    rtasks += fmt::format("      case {}: return {};\n", p, phase.rtasks);
  }
  return fmt::format(
      "// {}: {}\n{}struct Program{} {{\n"
      "  RK_INLINE static void run(uint32_t phase, const rk::Task<driver::Veu>& task) {{\n    switch (phase) {{\n{}    }}\n  }}\n"
      "  RK_INLINE static const void* args(uint32_t phase) {{\n    switch (phase) {{\n{}    }}\n    return nullptr;\n  }}\n"
      "  RK_INLINE static uint32_t rtasks(uint32_t phase) {{\n    switch (phase) {{\n{}    }}\n    return 0;\n  }}\n"
      "  RK_INLINE static int args_bytes() {{ return sizeof(args{}_0); }}\n}};\n",
      gang.trial.source->name, gang.trial.rkernel.name, args, number, run, which, rtasks, number);
}

inline std::string gang_source(const std::vector<Gang>& gangs) {
  std::string programs, rows;
  std::set<std::string> headers;
  for (size_t n = 0; n < gangs.size(); ++n) {
    for (const Phase& phase : gangs[n].trial.rkernel.phases) headers.insert(phase.header);
    programs += gang_program(gangs[n], n);
    rows += fmt::format("      {{\"{}: {}\", driver::launch<Program{}>}},\n", gangs[n].trial.source->name, gangs[n].trial.rkernel.name, n);
  }
  std::string text = "#include \"test/kernels/recurrent_driver.cuh\"\n";
  for (const std::string& header : headers) text += "#include \"" + header + "\"\n";
  return text + programs + "int main(int argc, char** argv) {\n  const std::vector<driver::Case> cases = {\n" + rows +
         "  };\n  return driver::run(cases, argv[1], argc > 2 ? std::atoi(argv[2]) : 0);\n}\n";
}

inline int64_t buffer_count(const Gang& gang) { return static_cast<int64_t>(gang.trial.buffers.size()) + 1; }
inline size_t exchange_size(const Gang& gang) { return static_cast<size_t>(gang.trial.rkernel.exchange_words * 2 + 4); }

inline void write_gangs(const std::vector<Gang>& gangs, const std::filesystem::path& path) {
  WordFile file(path);
  for (const Gang& gang : gangs) {
    const Trial& trial = gang.trial;
    std::set<size_t> inputs;
    for (const TensorId id : trial.source->graph.rops[0].inputs) inputs.insert(trial.buffer_of(id));
    file.word(buffer_count(gang));
    for (size_t b = 0; b < trial.buffers.size(); ++b) {
      file.word(trial.constant[b]);
      file.word(inputs.count(b) > 0);
      file.word(static_cast<int64_t>(trial.buffers[b].size()));
      file.words(trial.buffers[b]);
    }
    file.word(0);
    file.word(0);
    file.word(static_cast<int64_t>(exchange_size(gang)));
    file.words(std::vector<uint32_t>(exchange_size(gang), 0u));
    file.word(gang.veus);
    file.word(gang.work_bytes);
    file.word(gang.steps);
  }
}

// --- checks ---------------------------------------------------------------------------------------------------------------

inline std::string check_outputs(const Gang& gang, const std::vector<std::vector<uint32_t>>& buffers, const RecurrentRun& run,
                                 bool verbose) {
  const Graph& graph = gang.trial.source->graph;
  const auto& values = gang.trial.source->values;
  const std::vector<ops::Value> expected =
      ops::evaluate(graph, graph.rops[0], [&](TensorId id) -> const ops::Value& { return values[id.index()]; });
  std::string problem;
  for (size_t o = 0; o < expected.size(); ++o) {
    const Tensor& out = graph.tensor(graph.rops[0].outputs[o]);
    const float* const want = reinterpret_cast<const float*>(expected[o].data->data());
    double error = 0, norm = 0;
    for_each_element(out, [&](size_t i, size_t at) {
      const float got = std::bit_cast<float>(buffers[out.place.buffer.index()][at]);
      error += (double(got) - want[i]) * (double(got) - want[i]);
      norm += double(want[i]) * want[i];
      const bool same = std::fabs(got - want[i]) <= run.tolerance * (1 + std::fabs(want[i]));
      if (!same && problem.empty()) problem = fmt::format("output {} element {} is {}, expected {}", o, i, got, want[i]);
    });
    if (verbose) fmt::print("{}: output {} relative error {:.2e}\n", gang.trial.source->name, o, std::sqrt(error / std::max(norm, 1e-30)));
  }
  return problem;
}

// Every buffer as it was, but for what is declared.
inline std::string check_writes(const Gang& gang, const std::vector<std::vector<uint32_t>>& buffers) {
  const Trial& trial = gang.trial;
  std::set<std::pair<size_t, int64_t>> declared;
  for (const Accesses& accesses : trial.accesses) {
    for (const Region& region : accesses.writes) {
      for (int64_t i = 0; i < region.run.count * region.run.length; ++i) {
        const int64_t at = region.run.offset + i / region.run.length * region.run.stride + i % region.run.length;
        if (!declared.emplace(trial.buffer_of(region.tensor), at).second) return fmt::format("element {} is declared twice", at);
      }
    }
  }
  for (size_t b = 0; b < trial.buffers.size(); ++b) {
    for (size_t i = 0; i < trial.buffers[b].size(); ++i) {
      const bool written = buffers[b][i] != trial.buffers[b][i];
      const bool is_declared = declared.count({b, static_cast<int64_t>(i)}) > 0;
      if (written != is_declared) return fmt::format("buffer {} element {}: written {}, declared {}", b, i, written, is_declared);
    }
  }
  return "";
}

inline std::string check_words(const Gang& gang, const std::vector<uint32_t>& exchange) {
  std::vector<int> publishers(static_cast<size_t>(gang.trial.rkernel.exchange_words), 0), awaited = publishers;
  const auto count = [](const std::vector<Run>& runs, std::vector<int>& to) {
    for (const Run& run : runs) {
      for (int64_t i = 0; i < run.count * run.length; ++i)
        ++to.at(static_cast<size_t>(run.offset + i / run.length * run.stride + i % run.length));
    }
  };
  for (const Accesses& accesses : gang.trial.accesses) {
    count(accesses.publishes, publishers);
    count(accesses.awaits, awaited);
  }
  for (size_t w = 0; w < publishers.size(); ++w) {
    const uint32_t epoch = exchange[w * 2 + 1];
    if (publishers[w] > 1) return fmt::format("word {} is declared to be published {} times", w, publishers[w]);
    if (epoch != (publishers[w] == 1 ? 3u : 0u)) return fmt::format("word {} has epoch {}, declared {} times", w, epoch, publishers[w]);
    if (awaited[w] > 0 && publishers[w] == 0) return fmt::format("word {} is awaited", w);
  }
  return "";
}

inline void check_gangs(const std::vector<Gang>& gangs, const RecurrentRun& run, const std::filesystem::path& path, bool verbose,
                        std::vector<std::string>& problems) {
  std::ifstream file(path, std::ios::binary);
  for (const Gang& gang : gangs) {
    std::vector<std::vector<uint32_t>> buffers;
    for (const auto& buffer : gang.trial.buffers) buffers.emplace_back(buffer.size());
    buffers.emplace_back(exchange_size(gang));
    for (auto& words : buffers) file.read(reinterpret_cast<char*>(words.data()), static_cast<std::streamsize>(words.size() * 4));
    if (!file) return problems.push_back("results.bin is too short");
    for (const std::string& problem :
         {check_outputs(gang, buffers, run, verbose), check_writes(gang, buffers), check_words(gang, buffers.back())}) {
      if (!problem.empty()) problems.push_back(gang.trial.source->name + ": " + gang.trial.rkernel.name + ": " + problem);
    }
  }
}

// --- all of it --------------------------------------------------------------------------------------------------------------

inline std::vector<Gang> gangs_of(const std::vector<Case>& cases, const kernels::Family& family, const RecurrentRun& run,
                                  std::vector<std::string>& problems) {
  std::vector<Gang> gangs;
  for (const Case& c : cases) {
    std::vector<RKernel> rkernels = kernels::candidates_of(family, {c.graph, c.graph.rops[0], run.vdevice, run.precision});
    if (rkernels.empty()) problems.push_back(c.name + ": no rKernel");
    if (run.first_only && rkernels.size() > 1) rkernels.resize(1);
    for (const RKernel& rkernel : rkernels) {
      Gang gang{make_trial(c, family, rkernel), rkernel.rtasks(), 0, 0};
      for (const Phase& phase : rkernel.phases) gang.work_bytes = std::max(gang.work_bytes, phase.work_bytes);
      for (const RecurrentCell& cell : std::get<Recurrent>(c.graph.rops[0].attrs).cells) gang.steps = std::max(gang.steps, cell.steps);
      gangs.push_back(std::move(gang));
    }
  }
  return gangs;
}

inline std::vector<Gang> write_recurrent(const std::vector<Case>& cases, const kernels::Family& family, const RecurrentRun& run,
                                         const std::filesystem::path& folder, std::vector<std::string>& problems) {
  std::filesystem::create_directories(folder);
  std::vector<Gang> gangs = gangs_of(cases, family, run, problems);
  std::ofstream(folder / "cases.cu") << gang_source(gangs);
  write_gangs(gangs, folder / "cases.bin");
  return gangs;
}

// Problems found, one line each. `root` is the repository, `folder` takes the generated files.
inline std::vector<std::string> run_recurrent(const std::vector<Case>& cases, const kernels::Family& family, const RecurrentRun& run,
                                              const std::filesystem::path& root, const std::filesystem::path& folder) {
  std::vector<std::string> problems;
  const std::vector<Gang> gangs = write_recurrent(cases, family, run, folder, problems);
  const std::string failure = run_program(root, folder, std::getenv("TAMP_NVCC"));
  if (!failure.empty()) return {failure};
  check_gangs(gangs, run, folder / "results.bin", /*verbose=*/false, problems);
  return problems;
}

}  // namespace tamp::test
