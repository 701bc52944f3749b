#include "compiler/schedule/streams.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "compiler/support/error.h"
#include "compiler/support/text.h"

namespace tamp::schedule {

Streams::Place Streams::add(std::vector<int32_t>& after) {
  const size_t n = words_ == 0 ? 0 : ancestors_.size() / words_;
  TAMP_CHECK(n < words_ * 64, "more launches than there were to be");
  ancestors_.resize((n + 1) * words_, 0);
  uint64_t* const mine = ancestors_.data() + n * words_;
  std::sort(after.rbegin(), after.rend());
  std::vector<int32_t> needed;
  for (const int32_t m : after) {
    const auto other = static_cast<size_t>(m);
    TAMP_CHECK(m >= 0 && other < n, "a launch comes before what it needs");
    if (is_before(other, n)) continue;
    needed.push_back(m);
    mine[other / 64] |= uint64_t{1} << (other % 64);
    const uint64_t* const its = ancestors_.data() + other * words_;
    for (size_t w = 0; w < words_; ++w) mine[w] |= its[w];
  }
  std::reverse(needed.begin(), needed.end());
  after = std::move(needed);

  const auto follows = [&](size_t tail) { return std::find(after.begin(), after.end(), static_cast<int32_t>(tail)) != after.end(); };
  auto chosen = std::find_if(last_.begin(), last_.end(), follows);
  if (chosen == last_.end()) chosen = std::find_if(last_.begin(), last_.end(), [&](size_t tail) { return is_before(tail, n); });
  if (chosen == last_.end() && static_cast<int32_t>(last_.size()) < kMostStreams) chosen = last_.insert(last_.end(), n);
  if (chosen == last_.end()) chosen = std::min_element(last_.begin(), last_.end());
  const int32_t before = *chosen == n ? -1 : static_cast<int32_t>(*chosen);
  *chosen = n;
  return {static_cast<int32_t>(chosen - last_.begin()), can_be_dependent(after, before)};
}

void mark_dependents(std::vector<PhaseLaunch>& launches, const ShapedVDevice& vdevice) {
  std::vector<int32_t> last(static_cast<size_t>(kMostStreams), -1);
  for (size_t n = 0; n < launches.size(); ++n) {
    PhaseLaunch& launch = launches[n];
    int32_t& before = last[static_cast<size_t>(launch.stream)];
    launch.dependent = vdevice.dependent_kernel_edge_us.has_value() && can_be_dependent(launch.after, before);
    before = static_cast<int32_t>(n);
  }
}

std::vector<std::string> verify_dependents(const RProgram& program) {
  std::vector<std::string> wrong;
  std::map<int32_t, int32_t> last;  // per stream: its last launch
  for (size_t n = 0; n < program.launches->size(); ++n) {
    const PhaseLaunch& launch = (*program.launches)[n];
    const auto refuse = [&](const std::string& why) {
      wrong.push_back(fmt::format("launch {} ('{}') is a programmatic dependent, but {}", n,
                                  printable(program.graph.rops[launch.rop.index()].name), why));
    };
    const auto before = last.find(launch.stream);
    if (launch.dependent) {
      if (!program.vdevice.dependent_kernel_edge_us)
        refuse(fmt::format("the vDevice '{}' has no such launches", printable(program.vdevice.name)));
      else if (before == last.end())
        refuse("it is the first in its stream");
      else if (launch.after.size() != 1)
        refuse(fmt::format("it is after {} launches, not one", launch.after.size()));
      else if (launch.after[0] != before->second)
        refuse(fmt::format("it is after launch {}, and launch {} is the one before it in its stream", launch.after[0], before->second));
    }
    last[launch.stream] = static_cast<int32_t>(n);
  }
  return wrong;
}

}  // namespace tamp::schedule
