// Which stream a launch of graph execution goes to, what it still has to be told to wait for, and whether it can be the programmatic
// dependent of the launch before it (docs/adr/0012). For launches of a rProgram and for the simulator's idea of those of a plan.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "compiler/ir/rprogram.h"

namespace tamp::schedule {

inline constexpr int32_t kMostStreams = 8;

// The rule: `before`, the last launch of its stream (or -1), is all that it is after.
inline bool can_be_dependent(const std::vector<int32_t>& after, int32_t before) { return after.size() == 1 && after[0] == before; }

class Streams {
 public:
  struct Place {
    int32_t stream = 0;
    bool can_be_dependent = false;
  };

  explicit Streams(size_t launches) : words_((launches + 63) / 64) {}

  // The next launch. Sorts `after` and takes out of it what the others imply. Its stream is one whose last launch it is after; else one
  // where that adds no wait; else a new one.
  Place add(std::vector<int32_t>& after);

 private:
  bool is_before(size_t first, size_t second) const { return (ancestors_[second * words_ + first / 64] >> (first % 64) & 1) != 0; }

  size_t words_;
  std::vector<uint64_t> ancestors_;  // per launch, a bit for each that it is after
  std::vector<size_t> last_;         // per stream
};

// Sets PhaseLaunch::dependent, by the rule above and where the vDevice has such launches.
void mark_dependents(std::vector<PhaseLaunch>& launches, const VDevice& vdevice);

// A sentence for each launch that is marked as a dependent and must not be. It believes nothing that the above said.
std::vector<std::string> verify_dependents(const RProgram& program);

}  // namespace tamp::schedule
