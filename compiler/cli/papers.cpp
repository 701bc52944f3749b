#include "compiler/cli/papers.h"

#include <algorithm>
#include <utility>

#include "compiler/schedule/schedule.h"
#include "compiler/support/error.h"
#include "compiler/support/nearest.h"
#include "compiler/support/text.h"

namespace tamp::cli {
namespace {

constexpr std::optional<double> kNone = std::nullopt;

// Ma et al., "Rammer: Enabling Holistic Deep Learning Compiler Optimizations with rTasks", OSDI 2020. The paper's Rammer launches one
// kernel per wave.
Paper rammer() {
  return {"rammer",
          "Rammer, OSDI 2020",
          {"resnext", "nasnet", "alexnet", "deepspeech2", "lstm", "seq2seq"},
          {{{"RammerBase", "sequential", "graph"},
            {"fastest rKernels only", "wavefront-fastest", "persistent"},
            {"one launch a wave", "wavefront-launches", "persistent"},
            {"full", "wavefront", "persistent"}}},
          {{"RammerBase", "figure 11", {10.940, 2.974, 0.961, 7.885, 29.714, 9.274}},
           {"fastest rKernels only", "figure 17", {6.09, kNone, kNone, kNone, 5.38, kNone}},
           {"Rammer", "figure 11", {4.629, 1.737, 0.958, 4.691, 4.726, 3.661}}},
          "one V100 (PCIe, 16 GB), fp32, batch 1"};
}

// Ding et al., "IOS: Inter-Operator Scheduler for CNN Acceleration", MLSys 2021; the times are those of its repository's README, section
// 4.2.
Paper ios() {
  const std::vector<std::pair<std::string, std::string>> schedules = {
      {"Sequential", "sequential"}, {"Greedy", "greedy"}, {"IOS-Merge", "ios-merge"}, {"IOS-Parallel", "ios-parallel"}, {"IOS-Both", "ios"},
      {"wavefront", "wavefront"},   {"list", "list"}};
  Paper paper{"ios",
              "IOS, MLSys 2021",
              {"inception_v3", "randwire", "nasnet", "squeezenet"},
              {},
              {{"Sequential", "section 4.2", {6.51, 8.49, 22.95, 0.86}},
               {"Greedy", "section 4.2", {4.62, 6.27, 16.78, 0.98}},
               {"IOS-Merge", "section 4.2", {5.39, 8.54, 22.94, 0.74}},
               {"IOS-Parallel", "section 4.2", {4.11, 6.02, 16.04, 0.82}},
               {"IOS-Both", "section 4.2", {4.03, 6.02, 16.04, 0.73}}},
              "one V100 (SXM2), cuDNN 7.6.5, fp32, batch 1, by the README of the authors' repository"};
  for (const char* execution : {"graph", "persistent"}) {
    paper.blocks.emplace_back();
    for (const auto& [title, policy] : schedules) paper.blocks.back().push_back({title, policy, execution});
  }
  return paper;
}

}  // namespace

std::vector<std::string> paper_names() { return {"rammer", "ios"}; }

Paper paper_of(const std::string& name) {
  if (name != "rammer" && name != "ios")
    throw bad_input("paper '{}' is not known, supported: {}{}", printable(name), join(paper_names(), ", "),
                    did_you_mean(name, paper_names()));
  Paper paper = name == "rammer" ? rammer() : ios();
  const std::vector<std::string> known = schedule::policy_names();
  for (auto& block : paper.blocks)
    std::erase_if(block, [&](const Paper::Row& row) { return std::find(known.begin(), known.end(), row.policy) == known.end(); });
  return paper;
}

}  // namespace tamp::cli
