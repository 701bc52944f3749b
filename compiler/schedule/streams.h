// For a launch of graph execution: its stream, which launches it must still wait for explicitly, and whether it can be the programmatic
// dependent of the launch before it (docs/adr/0012). Used for a rProgram's launches and for those that the simulator makes up for a plan.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "compiler/ir/rprogram.h"

namespace tamp::schedule {

inline constexpr int32_t kMostStreams = 8;

// The rule: a launch can be a dependent if it is after one launch only, and that is `before`, the last launch of its stream (-1: none).
inline bool can_be_dependent(const std::vector<int32_t>& after, int32_t before) { return after.size() == 1 && after[0] == before; }

class Streams {
 public:
  struct Place {
    int32_t stream = 0;
    bool can_be_dependent = false;
  };

  explicit Streams(size_t launches) : words_((launches + 63) / 64) {}

  // Adds the next launch. Sorts `after` and removes launches that its others imply. The stream is one whose last launch is in `after`; else
  // one where the order of the stream adds no wait; else a new one.
  Place add(std::vector<int32_t>& after);

 private:
  bool is_before(size_t first, size_t second) const { return (ancestors_[second * words_ + first / 64] >> (first % 64) & 1) != 0; }

  size_t words_;
  std::vector<uint64_t> ancestors_;  // per launch, a bit for each launch that it is after
  std::vector<size_t> last_;         // per stream: its last launch
};

// Sets PhaseLaunch::dependent where the rule above allows it and the vDevice has such launches.
void mark_dependents(std::vector<PhaseLaunch>& launches, const ShapedVDevice& vdevice);

// A sentence for each launch that is marked as a dependent and must not be. It computes everything anew and uses no result of the code
// above.
std::vector<std::string> verify_dependents(const RProgram& program);

}  // namespace tamp::schedule
