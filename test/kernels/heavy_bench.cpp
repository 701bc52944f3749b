#include "test/kernels/heavy_bench.h"

#include <fmt/format.h>

#include <bit>

#include "test/kernels/run_program.h"

namespace tamp::test {
namespace {

std::string body_text(const Phase& phase) {
  std::string text = phase.body + "<Veu";
  for (const auto& [name, value] : phase.template_args) text += ", " + value;
  return text + ">";
}

// The end of driver::PhaseRow: rk::InputCopy, the buffer, tamp_host::BoxMap.
std::string boxes_text(const Trial& trial, const Phase& phase) {
  if (!phase.boxes) return "{}, 0, {}";
  const InputBoxes& b = *phase.boxes;
  const auto list = [](const std::array<int64_t, 4>& a) { return fmt::format("{{{}, {}, {}, {}}}", a[0], a[1], a[2], a[3]); };
  return fmt::format("{{{}, {}, {}, {}, {}, {}, {}, 0, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}}}, {}, {{{}, {}, {}, {}, {}, {}, {}}}",
                     b.boxes, b.boxes_per_split, b.boxes_per_chunk, b.boxes_per_copy, b.box_bytes(), b.copied_bytes(),
                     std::countr_zero(static_cast<uint64_t>(b.channels())), b.group_channels, b.begin_w, b.begin_h, b.step_w, b.step_h,
                     divisor_text(b.tiles()), divisor_text(b.tiles_w), divisor_text(b.tiles_h), divisor_text(b.splits),
                     divisor_text(b.n_blocks), trial.buffer_of(b.tensor), trial.source->graph.tensor(b.tensor).place.offset * b.value_bytes,
                     list(b.extents), list(b.strides), b.box_w, b.box_h, b.boxes_per_copy, b.value_bytes);
}

std::string phase_row(const Trial& trial, const std::vector<std::string>& bodies, size_t number, size_t p) {
  const Phase& phase = trial.rkernel.phases[p];
  const auto body = std::find(bodies.begin(), bodies.end(), body_text(phase)) - bodies.begin();
  const int64_t rtasks_per_block = std::max<int64_t>(1, phase.ring.rtasks_per_block);
  return fmt::format("{{{}, &args{}_{}, sizeof args{}_{}, {}, {}, {}, {}, {}, {}, {}, {}}}, ", body, number, p, number, p, phase.rtasks,
                     phase.work_bytes, phase.ring.chunk_bytes, phase.ring.chunks_per_rtask, rtasks_per_block, phase.ring.blocks,
                     trial.scratch() + 1 + p, boxes_text(trial, phase));
}

std::string heavy_source(const std::vector<Trial>& trials, const ShapedVDevice& vdevice) {
  std::vector<std::string> bodies;
  std::set<std::string> headers;
  std::string args, rows, cases;
  for (size_t n = 0; n < trials.size(); ++n) {
    rows += fmt::format("      {{\"{}: {}\", {{", trials[n].source->name, trials[n].rkernel.name);
    for (size_t p = 0; p < trials[n].rkernel.phases.size(); ++p) {
      const Phase& phase = trials[n].rkernel.phases[p];
      headers.insert(phase.header);
      if (std::find(bodies.begin(), bodies.end(), body_text(phase)) == bodies.end()) bodies.push_back(body_text(phase));
      args += fmt::format("static const {} args{}_{} = {{\n", phase.args_type, n, p);
      for (const Arg& a : phase.args) args += fmt::format("  .{} = {},\n", a.name, value_text(trials[n], p, a.value));
      args += "};\n";
      rows += phase_row(trials[n], bodies, n, p);
    }
    rows += "}},\n";
  }
  for (size_t b = 0; b < bodies.size(); ++b) cases += fmt::format("      case {}: rk::{}(task); break;\n", b, bodies[b].substr(4));
  std::string text = "#include \"test/kernels/heavy_driver.cuh\"\n";
  for (const std::string& header : headers) text += "#include \"" + header + "\"\n";
  text += fmt::format(
      "struct Veu {{ static constexpr bool kManyRegisters = false; static constexpr bool kVotes = false, kProductsOverInputs = "
      "false; static constexpr int kWordsBytes = 0; static constexpr int "
      "kComputeThreads = 256, kWeightStages = {}, "
      "kWeightStageBytes = {}, kInputStages = {}, "
      "kInputStageBytes = {}, kBases = driver::kBases, kSharedBases = kBases; }};\n",
      vdevice.weight_stages, vdevice.weight_stage_bytes, vdevice.input_stages, std::max<int64_t>(vdevice.input_stage_bytes, 1024));
  text +=
      "struct Program {\n  using Veu = ::Veu;\n  RK_INLINE static void run(uint32_t body, const rk::Task<Veu>& task) {\n    switch (body) "
      "{\n" +
      cases + "    }\n  }\n};\n";
  return text + args + "int main(int argc, char** argv) {\n  const std::vector<driver::CaseRow> cases = {\n" + rows +
         "  };\n  return driver::run<Program>(cases, argv[1], argc > 2 ? argv[2] : nullptr);\n}\n";
}

std::string check_close(const Trial& trial, const Results& results, double tolerance) {
  const Graph& graph = trial.source->graph;
  const std::vector<ops::Value> expected = expected_of(trial);
  std::string problem;
  for (size_t o = 0; o < expected.size(); ++o) {
    const Tensor& out = graph.tensor(graph.rops[0].outputs[o]);
    const std::vector<uint32_t>& words = results.words[out.place.buffer.index()];
    const float* want = reinterpret_cast<const float*>(expected[o].data->data());
    for_each_element(out, [&](size_t i, size_t at) {
      const float got = float_of_word(words[at], out.dtype);
      const double allowed = tolerance + (tolerance + rounding_of(out.dtype)) * std::fabs(want[i]);
      const bool same = std::isnan(want[i]) ? std::isnan(got) : got == want[i] || std::fabs(got - want[i]) <= allowed;
      if (!same && problem.empty()) problem = fmt::format("output {} element {} is {}, expected {}", o, i, got, want[i]);
    });
  }
  return problem;
}

std::vector<Trial> heavy_trials(const std::vector<Case>& cases, const std::vector<kernels::Family>& families, const HeavyRun& run,
                                std::vector<std::string>& problems) {
  std::vector<Trial> trials;
  Sample sample;
  for (const Case& c : cases) {
    const size_t before = trials.size();
    for (const kernels::Family& family : families) {
      if (!c.only.empty() && c.only != family.name) continue;
      const std::vector<RKernel> candidates = kernels::candidates_of(family, {c.graph, c.graph.rops[0], run.vdevice, run.precision});
      sample.next_case(candidates.size());
      for (size_t i = 0; i < candidates.size(); ++i) {
        if (sample.has(candidates[i], i)) trials.push_back(make_trial(c, family, candidates[i]));
      }
    }
    if (trials.size() == before) problems.push_back(c.name + ": no rKernel");
  }
  return trials;
}

// Writes cases.cu and cases.bin to `folder`.
std::vector<Trial> write_cases(const std::vector<Case>& cases, const std::vector<kernels::Family>& families, const HeavyRun& run,
                               const std::filesystem::path& folder, std::vector<std::string>& problems) {
  std::filesystem::create_directories(folder);
  std::vector<Trial> trials = heavy_trials(cases, families, run, problems);
  std::ofstream(folder / "cases.cu") << heavy_source(trials, run.vdevice);
  write_data(trials, folder / "cases.bin");
  return trials;
}

void check_heavy_results(const std::vector<Trial>& trials, const HeavyRun& run, const std::filesystem::path& path,
                         std::vector<std::string>& problems) {
  std::ifstream file(path, std::ios::binary);
  for (const Trial& trial : trials) {
    Results results;
    for (const auto& buffer : trial.buffers) {
      results.words.emplace_back(buffer.size());
      results.owner.emplace_back(buffer.size());
      file.read(reinterpret_cast<char*>(results.words.back().data()), static_cast<std::streamsize>(buffer.size() * 4));
      file.read(reinterpret_cast<char*>(results.owner.back().data()), static_cast<std::streamsize>(buffer.size() * 4));
    }
    if (!file) return problems.push_back("results.bin is too short");
    for (const std::string& problem : {check_close(trial, results, run.tolerance), check_writes(trial, results)}) {
      if (!problem.empty()) problems.push_back(trial.source->name + ": " + trial.rkernel.name + ": " + problem);
    }
  }
}

}  // namespace

std::vector<std::string> run_heavy_cases(const std::vector<Case>& cases, const std::vector<kernels::Family>& families, const HeavyRun& run,
                                         const std::filesystem::path& root, const std::filesystem::path& folder) {
  std::vector<std::string> problems;
  const std::vector<Trial> trials = write_cases(cases, families, run, folder, problems);
  const std::string failure = run_program(root, folder, std::getenv("TAMP_NVCC"));
  if (!failure.empty()) return {failure};
  check_heavy_results(trials, run, folder / "results.bin", problems);
  return problems;
}

}  // namespace tamp::test
