#include "test/kernels/light_bench.h"

#include <fmt/format.h>

#include <bit>

#include "test/kernels/run_program.h"

namespace tamp::test {

bool Sample::has(const RKernel& rkernel, size_t index) {
  static const bool all = std::getenv("TAMP_ALL_TRIALS") != nullptr;
  constexpr size_t kShare = 3;
  std::string bodies;
  for (const Phase& phase : rkernel.phases) {
    bodies += phase.body;
    for (const auto& [name, value] : phase.template_args) bodies += "," + value;
  }
  return (tried_[bodies] += 1) <= 2 || index % kShare == case_ % std::min(kShare, candidates_) || all;
}

namespace {

std::vector<uint32_t> as_words(const Bytes& bytes) {
  std::vector<uint32_t> words((bytes.size() + 3) / 4 + 4, 0x7fc0beefu);
  std::memcpy(words.data(), bytes.data(), bytes.size());
  return words;
}

}  // namespace

Trial make_trial(const Case& c, const kernels::Family& family, const RKernel& rkernel) {
  constexpr uint32_t kUntouched = 0x7fc0dead, kUntouchedNarrow = 0x7fed;  // NaN
  Trial trial{&c, &family, rkernel, {}, {}, {}, {}};
  for (const Buffer& buffer : c.graph.buffers) {
    trial.narrow.push_back(kernels::is_narrow(buffer.dtype));
    trial.buffers.emplace_back(static_cast<size_t>(buffer.elements), trial.narrow.back() ? kUntouchedNarrow : kUntouched);
  }
  trial.constant.assign(trial.buffers.size(), false);
  for (size_t t = 0; t < c.graph.tensors.size(); ++t) {
    const Tensor& tensor = c.graph.tensors[t];
    if (c.values[t].data == nullptr || !tensor.place.buffer.valid()) continue;
    std::vector<uint32_t>& words = trial.buffers[tensor.place.buffer.index()];
    const bool is_number = tensor.dtype == DType::i64;  // of two words, which accesses() calls one element
    if (tensor.role == Role::constant || is_number) trial.constant[tensor.place.buffer.index()] = true;
    if (is_number) {
      std::memcpy(words.data(), c.values[t].data->data(), sizeof(int64_t));
      continue;
    }
    const auto* const values = reinterpret_cast<const float*>(c.values[t].data->data());
    for_each_element(tensor, [&](size_t i, size_t at) { words[at] = word_of(values[i], tensor.dtype); });
  }
  trial.buffers.emplace_back(static_cast<size_t>(rkernel.scratch_elements + 4), kUntouched);
  trial.constant.push_back(false);
  for (size_t p = 0; p < rkernel.phases.size(); ++p) {
    trial.buffers.push_back(as_words(family.pack(c.graph, c.graph.rops[0], rkernel, static_cast<int>(p))));
    trial.constant.push_back(true);
    for (int64_t t = 0; t < rkernel.phases[p].rtasks; ++t) {
      trial.accesses.emplace_back();
      family.accesses(c.graph, c.graph.rops[0], rkernel, static_cast<int>(p), t, trial.accesses.back());
    }
  }
  trial.narrow.resize(trial.buffers.size(), false);
  return trial;
}

std::string ref_text(size_t base, int64_t bytes) { return fmt::format("{{{}u, 0u, {}}}", base, bytes); }

std::string divisor_text(int64_t d) { return fmt::format("rk::divisor({})", std::max<int64_t>(d, 1)); }

namespace {

std::string float_text(double v) {
  if (std::isinf(v)) return v < 0 ? "-INFINITY" : "INFINITY";
  return fmt::format("{:a}f", v);
}

}  // namespace

std::string value_text(const Trial& trial, size_t phase, const ArgValue& value) {
  const auto tensor = [&](const TensorArg& a) {
    const Tensor& of = trial.source->graph.tensor(a.tensor);
    return ref_text(trial.buffer_of(a.tensor), (of.place.offset + a.extra) * (kernels::is_narrow(of.dtype) ? 2 : 4));
  };
  return std::visit(overloaded{
                        [&](int64_t v) { return std::to_string(v); },
                        [&](double v) { return float_text(v); },
                        tensor,
                        [&](const ScratchArg& a) { return ref_text(trial.scratch(), a.offset * 4); },
                        [](const ExchangeArg&) { return std::string("{rk::kNullBase, 0u, 0}"); },  // no gangs here
                        [&](const WordsArg& a) {                                                   // and no words
                          return a.else_null ? std::string("{rk::kNullBase, 0u, 0}") : tensor({a.tensor});
                        },
                        [&](const PackedArg& a) { return ref_text(trial.scratch() + 1 + phase, a.offset_bytes); },
                        [&](const DivisorArg& a) { return divisor_text(a.divisor); },
                        [&](const ExtentArg& a) { return std::to_string(largest_value(trial.source->graph, a)); },
                        [&](const NoTensorArg&) { return std::string("{rk::kNullBase, 0u, 0}"); },
                        [&](const ArgList& list) {
                          std::string text = "{";
                          for (const ArgValue& v : list) text += value_text(trial, phase, v) + ", ";
                          return text + "}";
                        },
                    },
                    value.value);
}

namespace {

std::string kernel_text(const Trial& trial, size_t number, size_t p) {
  const Phase& phase = trial.rkernel.phases[p];
  std::string args, templates;
  for (const Arg& a : phase.args) args += fmt::format("      .{} = {},\n", a.name, value_text(trial, p, a.value));
  for (const auto& [name, text] : phase.template_args) templates += fmt::format(", {}", text);
  return fmt::format(
      "// {}: {}\n__global__ void k{}_{}(const driver::Param param) {{\n  const {} args = {{\n{}  }};\n  "
      "{}<driver::Veu{}>(driver::task_of(param, args));\n}}\n",
      trial.source->name, trial.rkernel.name, number, p, phase.args_type, args, phase.body, templates);
}

std::string source_text(const std::vector<Trial>& trials) {
  std::set<std::string> headers;
  std::string kernels, rows;
  for (size_t n = 0; n < trials.size(); ++n) {
    std::string cases;
    for (size_t p = 0; p < trials[n].rkernel.phases.size(); ++p) {
      headers.insert(trials[n].rkernel.phases[p].header);
      kernels += kernel_text(trials[n], n, p);
      cases += fmt::format("  if (phase == {}) driver::launch(k{}_{}, param, work_bytes);\n", p, n, p);
    }
    kernels += fmt::format("void launch{}(int phase, driver::Param param, size_t work_bytes) {{\n{}}}\n", n, cases);
    rows += fmt::format("      {{launch{}}},\n", n);
  }
  std::string text = "#include \"test/kernels/light_driver.cuh\"\n";
  for (const std::string& header : headers) text += "#include \"" + header + "\"\n";
  return text + kernels + "int main(int, char** argv) {\n  const std::vector<driver::Case> cases = {\n" + rows +
         "  };\n  return driver::run(cases, argv[1]);\n}\n";
}

}  // namespace

void write_data(const std::vector<Trial>& trials, const std::filesystem::path& path) {
  WordFile file(path);
  for (const Trial& trial : trials) {
    file.word(static_cast<int64_t>(trial.buffers.size()));
    for (size_t b = 0; b < trial.buffers.size(); ++b) {
      file.word((trial.constant[b] ? 1 : 0) + (trial.narrow[b] ? 2 : 0));
      file.word(static_cast<int64_t>(trial.buffers[b].size()));
      file.words(trial.buffers[b]);
    }
    file.word(static_cast<int64_t>(trial.rkernel.phases.size()));
    size_t number = 0;
    for (const Phase& phase : trial.rkernel.phases) {
      file.word(phase.rtasks);
      file.word(phase.work_bytes);
      for (int64_t t = 0; t < phase.rtasks; ++t, ++number) {
        file.word(static_cast<int64_t>(trial.accesses[number].reads.size()));
        for (const Region& region : trial.accesses[number].reads) {
          for (const int64_t w : {static_cast<int64_t>(trial.buffer_of(region.tensor)), region.run.offset, region.run.count,
                                  region.run.stride, region.run.length})
            file.word(w);
        }
      }
    }
  }
}

std::vector<ops::Value> expected_of(const Trial& trial) {
  const Graph graph = widened(trial.source->graph);
  return ops::evaluate(graph, graph.rops[0], [&](TensorId id) -> const ops::Value& { return trial.source->values[id.index()]; });
}

namespace {

std::string check_values(const Trial& trial, const Results& results) {
  const Graph& graph = trial.source->graph;
  const std::vector<ops::Value> expected = expected_of(trial);
  std::string problem;
  for (size_t o = 0; o < expected.size(); ++o) {
    const Tensor& out = graph.tensor(graph.rops[0].outputs[o]);
    const std::vector<uint32_t>& words = results.words[out.place.buffer.index()];
    const float* want = reinterpret_cast<const float*>(expected[o].data->data());
    const float relative = 1e-4F + rounding_of(out.dtype);
    for_each_element(out, [&](size_t i, size_t at) {
      const float got = float_of_word(words[at], out.dtype);
      const bool same =
          std::isnan(want[i]) ? std::isnan(got) : got == want[i] || std::fabs(got - want[i]) <= 1e-5F + relative * std::fabs(want[i]);
      if (!same && problem.empty()) problem = fmt::format("output {} element {} is {}, expected {}", o, i, got, want[i]);
    });
  }
  return problem;
}

}  // namespace

std::string check_writes(const Trial& trial, const Results& results) {
  std::map<std::pair<size_t, int64_t>, int32_t> declared;
  for (size_t n = 0; n < trial.accesses.size(); ++n) {
    for (const Region& region : trial.accesses[n].writes) {
      for (int64_t i = 0; i < region.run.count; ++i) {
        for (int64_t j = 0; j < region.run.length; ++j) {
          const int64_t at = region.run.offset + i * region.run.stride + j;
          if (!declared.emplace(std::pair{trial.buffer_of(region.tensor), at}, static_cast<int32_t>(n)).second) {
            return fmt::format("element {} is declared twice", at);
          }
        }
      }
    }
  }
  for (size_t b = 0; b < results.owner.size(); ++b) {
    for (size_t i = 0; i < results.owner[b].size(); ++i) {
      const auto found = declared.find({b, static_cast<int64_t>(i)});
      const int32_t want = found == declared.end() ? -1 : found->second;
      if (results.owner[b][i] != want)
        return fmt::format("buffer {} element {} was written by rTask {}, declared by {}", b, i, results.owner[b][i], want);
    }
  }
  return "";
}

namespace {

std::vector<std::string> check_results(const std::vector<Trial>& trials, const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::vector<std::string> problems;
  for (const Trial& trial : trials) {
    Results results;
    for (const auto& buffer : trial.buffers) {
      results.words.emplace_back(buffer.size());
      results.owner.emplace_back(buffer.size());
      file.read(reinterpret_cast<char*>(results.words.back().data()), static_cast<std::streamsize>(buffer.size() * 4));
      file.read(reinterpret_cast<char*>(results.owner.back().data()), static_cast<std::streamsize>(buffer.size() * 4));
    }
    if (!file) return {"results.bin is too short"};
    for (const std::string& problem : {check_values(trial, results), check_writes(trial, results)}) {
      if (!problem.empty()) problems.push_back(trial.source->name + ": " + trial.rkernel.name + ": " + problem);
    }
  }
  return problems;
}

}  // namespace

ShapedVDevice small_vdevice() {
  ShapedVDevice vdevice;
  vdevice.name = "small";
  vdevice.sms = 3;
  vdevice.smem_bytes = 64 * 1024;
  vdevice.weight_stages = 2;
  vdevice.weight_stage_bytes = 16;  // too little: the light bench has no ring of weights
  vdevice.l2_gb_per_s = 1000;
  return vdevice;
}

namespace {

std::vector<Trial> trials_of(const std::vector<Case>& cases, const std::vector<kernels::Family>& families,
                             std::vector<std::string>& problems) {
  std::vector<Trial> trials;
  const ShapedVDevice vdevice = small_vdevice();
  Sample sample;
  for (const Case& c : cases) {
    const size_t before = trials.size();
    for (const kernels::Family& family : families) {
      if (!c.only.empty() && c.only != family.name) continue;
      const Precision precision = has_narrow(c.graph) ? Precision::fp16 : Precision::fp32;
      const std::vector<RKernel> candidates = kernels::candidates_of(family, {c.graph, c.graph.rops[0], vdevice, precision});
      sample.next_case(candidates.size());
      for (size_t i = 0; i < candidates.size(); ++i) {
        if (sample.has(candidates[i], i)) trials.push_back(make_trial(c, family, candidates[i]));
      }
    }
    if (trials.size() == before) problems.push_back(c.name + ": no rKernel");
  }
  return trials;
}

}  // namespace

std::vector<std::string> run_cases(const std::vector<Case>& cases, const std::vector<kernels::Family>& families,
                                   const std::filesystem::path& root, const std::filesystem::path& folder) {
  std::filesystem::create_directories(folder);
  std::vector<std::string> problems;
  const std::vector<Trial> trials = trials_of(cases, families, problems);
  std::ofstream(folder / "cases.cu") << source_text(trials);
  write_data(trials, folder / "cases.bin");
  const std::string failure = run_program(root, folder, nullptr);
  if (!failure.empty()) return {failure};
  for (const std::string& problem : check_results(trials, folder / "results.bin")) problems.push_back(problem);
  return problems;
}

void expect_no_problems(const std::vector<Case>& cases, const std::vector<kernels::Family>& families, const std::string& name) {
  const std::filesystem::path root = std::filesystem::absolute(__FILE__).parent_path().parent_path().parent_path();
  const CaseFolder folder("tamp_light_" + name);
  CHECK(join(run_cases(cases, families, root, folder.path()), "\n") == "");
}

}  // namespace tamp::test
