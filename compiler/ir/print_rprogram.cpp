// A rProgram for people: a summary, one line per rOperator, then what every vEU does. rTasks of one phase are put together ("conv1 [3, 135,
// 267]"), "<event" is a Wait and ">event" a signal. Names come from the model: printable() only.
#include <fmt/format.h>

#include <set>

#include "compiler/ir/fused.h"
#include "compiler/ir/rprogram.h"
#include "compiler/support/text.h"

namespace tamp {
namespace {

constexpr size_t kLaneColumns = 600;

// The facts about one rOperator that are collected from the lanes.
struct Row {
  int64_t rtasks = 0, waits = 0;
  std::set<size_t> veus;
  std::set<EventId> events;  // that the rOperator waits for
};

std::string event_name(const RProgram& program, EventId id) { return printable(program.events[id.index()].name, 40); }

std::string event_names(const RProgram& program, const std::set<EventId>& ids) {
  constexpr size_t kNames = 4;
  std::vector<std::string> names;
  for (const EventId id : ids) {
    if (names.size() == kNames) {
      names.push_back(fmt::format("{} more", ids.size() - kNames));
      break;
    }
    names.push_back(event_name(program, id));
  }
  return names.empty() ? "-" : join(names, ", ");
}

std::string summary(const RProgram& program, const std::vector<Row>& rows) {
  int64_t rtasks = 0, waits = 0, instructions = 0;
  for (const Row& row : rows) rtasks += row.rtasks, waits += row.waits;
  for (const auto& lane : program.lanes) instructions += static_cast<int64_t>(lane.size());
  std::string out = fmt::format("rProgram of '{}' for vDevice '{}': policy {}, precision {}\n", printable(program.graph.name),
                                program.vdevice.name, program.policy, name_of(program.precision));
  out += fmt::format("{} rOperators ({} in the longest chain), {} rTasks on {} vEUs, {} instructions, {} events, {} Waits\n", rows.size(),
                     program.depth, rtasks, program.lanes.size(), instructions, program.events.size(), waits);
  out += fmt::format("arena {}, weights {}, estimated {:.1f} us\n", bytes_text(program.memory.arena_bytes),
                     bytes_text(program.weight_bytes), program.estimated_us);
  return out;
}

std::vector<Row> rows_of(const RProgram& program) {
  std::vector<Row> rows(program.graph.rops.size());
  for (size_t veu = 0; veu < program.lanes.size(); ++veu) {
    for (const Instruction& i : program.lanes[veu]) {
      if (!i.rtask.rop.valid()) continue;
      Row& row = rows[i.rtask.rop.index()];
      ++row.rtasks;
      row.waits += static_cast<int64_t>(i.waits.size());
      row.veus.insert(veu);
      row.events.insert(i.waits.begin(), i.waits.end());
    }
  }
  return rows;
}

std::string lane_text(const RProgram& program, const std::vector<Instruction>& lane) {
  std::string out;
  RTask before;
  for (size_t p = 0; p < lane.size(); ++p) {
    if (out.size() > kLaneColumns) return out + fmt::format(" ... {} more", lane.size() - p);
    const Instruction& i = lane[p];
    const bool continues = !out.empty() && i.waits.empty() && i.rtask.rop.valid() && i.rtask.rop == before.rop &&
                           i.rtask.phase == before.phase && out.back() == ']';
    for (const EventId id : i.waits) out += fmt::format(" <{}", event_name(program, id));
    if (continues) {
      out.pop_back();
      out += fmt::format(",{}]", i.rtask.index);
    } else if (i.rtask.rop.valid()) {
      const std::string phase = program.rkernels[i.rtask.rop.index()].phases.size() > 1 ? fmt::format(".{}", i.rtask.phase) : "";
      out += fmt::format(" {}{}[{}]", printable(program.graph.rop(i.rtask.rop).name, 40), phase, i.rtask.index);
    }
    if (i.signal.valid()) out += fmt::format(" >{}", event_name(program, i.signal));
    if (i.turn != Turn::none) {
      const std::string name = printable(program.graph.loops[static_cast<size_t>(i.loop)].name, 40);
      out += i.turn == Turn::enter ? fmt::format(" {} {{", name) : " }";
    }
    before = i.rtask;
  }
  return out;
}

}  // namespace

size_t bucket_length(const RProgram& program) {
  const std::vector<Length>& lengths = program.graph.lengths;
  for (size_t i = 0; i < lengths.size() && !program.smaller.empty(); ++i) {
    if (bucket_largest(program.smaller[0], lengths[i].name) != lengths[i].largest) return i;
  }
  return 0;
}

int64_t bucket_largest(const RProgram& bucket, const std::string& name) {
  return bucket.graph.lengths.at(static_cast<size_t>(length_named(bucket.graph, name))).largest;
}

std::string print(const RProgram& program) {
  const std::vector<Row> rows = rows_of(program);
  std::string out = summary(program, rows);
  out +=
      fmt::format("\n{:<32} {:<10} {:<40} {:>7} {:>5} {:>6}  {}\n", "rOperator", "kind", "rKernel", "rTasks", "vEUs", "Waits", "waits for");
  for (size_t i = 0; i < rows.size(); ++i) {
    const ROperator& rop = program.graph.rops[i];
    const RKernel& rkernel = program.rkernels[i];
    out += fmt::format("{:<32} {:<10} {:<40} {:>7} {:>5} {:>6}  {}\n", printable(rop.name, 32), title_of(rop),
                       rkernel.phases.empty() ? "(view)" : rkernel.name, rows[i].rtasks, rows[i].veus.size(), rows[i].waits,
                       event_names(program, rows[i].events));
  }
  out += "\n";
  for (size_t veu = 0; veu < program.lanes.size(); ++veu) {
    out += fmt::format("vEU {}:{}\n", veu, program.lanes[veu].empty() ? " (idle)" : lane_text(program, program.lanes[veu]));
  }
  return out;
}

}  // namespace tamp
