#include "compiler/schedule/token_boundary.h"

#include <utility>

#include "compiler/schedule/schedule.h"

namespace tamp::schedule {
namespace {

constexpr const char* kName = "next token";

}  // namespace

void add_token_boundary(RProgram& program, Generation generation) {
  program.generation = std::move(generation);
  if (!program.generation->is_step()) return;
  if (!program.events.empty() && program.events.back().name == kName) {
    program.boundary = EventId(static_cast<int64_t>(program.events.size()) - 1);
    return;
  }
  program.boundary = EventId(static_cast<int64_t>(program.events.size()));
  Event boundary{kName, 0};
  for (auto& lane : program.lanes) {
    if (lane.empty()) continue;
    lane.push_back({});
    lane.back().signal = program.boundary;
    ++boundary.count;
  }
  program.events.push_back(std::move(boundary));
  estimate(program);  // as when the schedule is read again
}

}  // namespace tamp::schedule
