#include "compiler/schedule/schedule_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>
#include <vector>

#include "compiler/ir/print.h"
#include "compiler/schedule/choose.h"
#include "compiler/schedule/clocks.h"
#include "compiler/schedule/dependencies.h"
#include "compiler/schedule/guards.h"
#include "compiler/schedule/launches.h"
#include "compiler/schedule/memory_plan.h"
#include "compiler/schedule/plan.h"
#include "compiler/schedule/words.h"
#include "compiler/select/records.h"
#include "compiler/support/error.h"
#include "compiler/support/hash.h"
#include "compiler/support/text.h"

namespace tamp::schedule {
namespace {

using nlohmann::json;

// "3.0.17<5<6>7": rTask 17 of phase 0 of rOperator 3 waits for events 5 and 6 and signals event 7. "-" in the place of the rTask: an
// instruction that only waits and signals. "-{2": the lane enters loop 2; "-}2": it goes back.
std::string instruction_text(const Instruction& i) {
  std::string out = i.rtask.rop.valid() ? fmt::format("{}.{}.{}", i.rtask.rop.value, i.rtask.phase, i.rtask.index) : "-";
  if (i.turn != Turn::none) out += fmt::format("{}{}", i.turn == Turn::enter ? '{' : '}', i.loop);
  for (const EventId id : i.waits) out += fmt::format("<{}", id.value);
  if (i.signal.valid()) out += fmt::format(">{}", i.signal.value);
  return out;
}

std::string quoted(const std::string& text) { return json(text).dump(-1, ' ', /*ensure_ascii=*/true, json::error_handler_t::replace); }

// `key`: [one element of `lines` per line].
std::string lines_of(const std::string& key, const std::vector<std::string>& lines) {
  return fmt::format(" \"{}\": [{}{}{}]", key, lines.empty() ? "" : "\n  ", fmt::format("{}", join(lines, ",\n  ")),
                     lines.empty() ? "" : "\n ");
}

// A line for the merges; nothing if there are none.
std::string merges_line(const std::vector<Merge>& merges) {
  if (merges.empty()) return "";
  std::vector<std::string> lines;
  for (const Merge& merge : merges) {
    std::vector<std::string> names;
    for (const std::string& name : merge) names.push_back(quoted(name));
    lines.push_back("[" + join(names, ", ") + "]");
  }
  return lines_of("merges", lines) + ",\n";
}

struct Reader {
  const std::string& source;
  RProgram& program;

  [[noreturn]] void fail(const std::string& what) const { throw bad_input("{}: {}", printable(source), what); }

  int64_t number(std::string_view& text, const std::string& where, size_t below) const {
    int64_t value = -1;
    const auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (failure != std::errc()) fail(fmt::format("{}: a number is expected at '{}'", where, printable(std::string(text))));
    if (value < 0 || static_cast<size_t>(value) >= below) fail(fmt::format("{}: {} is not below {}", where, value, below));
    text.remove_prefix(static_cast<size_t>(end - text.data()));
    return value;
  }

  void expect(std::string_view& text, char c, const std::string& where) const {
    if (text.empty() || text.front() != c) fail(fmt::format("{}: '{}' is expected at '{}'", where, c, printable(std::string(text))));
    text.remove_prefix(1);
  }

  Instruction instruction(std::string_view text, const std::string& where) const {
    Instruction out;
    if (text.starts_with("-{") || text.starts_with("-}")) {
      out.turn = text[1] == '{' ? Turn::enter : Turn::repeat;
      text.remove_prefix(2);
      out.loop = static_cast<int32_t>(number(text, where, program.graph.loops.size()));
    } else if (text.starts_with('-')) {
      text.remove_prefix(1);
    } else {
      out.rtask.rop = ROperatorId(number(text, where, program.rkernels.size()));
      const auto& phases = program.rkernels[out.rtask.rop.index()].phases;
      expect(text, '.', where);
      out.rtask.phase = static_cast<int32_t>(number(text, where, phases.size()));
      expect(text, '.', where);
      out.rtask.index = number(text, where, static_cast<size_t>(phases[static_cast<size_t>(out.rtask.phase)].rtasks));
    }
    while (text.starts_with('<')) {
      text.remove_prefix(1);
      out.waits.emplace_back(number(text, where, program.events.size()));
    }
    if (text.starts_with('>')) {
      text.remove_prefix(1);
      out.signal = EventId(number(text, where, program.events.size()));
    }
    if (!text.empty()) fail(fmt::format("{}: '{}' is not expected there", where, printable(std::string(text))));
    return out;
  }

  void lanes(const json& lines) const {
    if (lines.size() != program.lanes.size())
      fail(fmt::format("{} lanes for the {} vEUs of '{}'", lines.size(), program.lanes.size(), printable(program.vdevice.name)));
    for (size_t veu = 0; veu < lines.size(); ++veu) {
      const auto line = lines[veu].get<std::string>();
      std::string_view rest = line;
      while (!rest.empty()) {
        const size_t end = std::min(rest.find(' '), rest.size());
        const std::string where = fmt::format("lane {} instruction {}", veu, program.lanes[veu].size());
        if (end > 0) program.lanes[veu].push_back(instruction(rest.substr(0, end), where));
        rest.remove_prefix(std::min(end + 1, rest.size()));
      }
      for (const Instruction& i : program.lanes[veu]) {
        if (i.signal.valid()) ++program.events[i.signal.index()].count;
      }
    }
  }

  // If the policy merged convolutions, makes the merged graph, for which the schedule is.
  void merge(const std::string& text, const Merger* merger) const {
    try {
      const json file = json::parse(text);
      if (file.is_object() && file.contains("merges")) file.at("merges").get_to(program.merges);
    } catch (const json::exception& error) {
      fail(fmt::format("not a schedule: {}", printable(error.what())));
    }
    if (program.merges.empty()) return;
    if (!merger) fail("it merges convolutions of a graph that is not to be changed");
    try {
      program.graph = merger->merged(program.merges);
    } catch (const Error& refused) {
      fail(refused.what());
    }
  }

  // Must come before anything that asks for clocks: a program that cannot end has none.
  void require_end() const {
    const Clocks clocks(program);
    if (clocks.is_complete()) return;
    for (size_t n = 0; n < clocks.count(); ++n) {
      const At at = clocks.at(n);
      if (clocks.runs(at)) continue;
      const Instruction& i = program.lanes[static_cast<size_t>(at.veu)][static_cast<size_t>(at.position)];
      std::vector<std::string> events;
      for (const EventId id : i.waits) events.push_back("'" + printable(program.events[id.index()].name) + "'");
      const std::string rtask =
          i.rtask.rop.valid() ? fmt::format("'{}' rTask {}", printable(program.graph.rop(i.rtask.rop).name), i.rtask.index) : "an entry";
      fail(fmt::format("{} (lane {} instruction {}) waits for ever{}", rtask, at.veu, at.position,
                       events.empty() ? ", as what is before it does" : ", for " + join(events, ", ")));
    }
  }
};

std::string described(const ScheduleKey& key) {
  return fmt::format("model {}, vDevice '{}', precision {}, batch {}", printable(key.model), printable(key.vdevice),
                     printable(key.precision), key.batch == 0 ? "of the model" : std::to_string(key.batch));
}

}  // namespace

ScheduleKey key_of(const Graph& graph, const ShapedVDevice& vdevice, Precision precision, int64_t batch) {
  const std::string text = structure_text(graph);
  return {fmt::format("{:016x}", hash_bytes(text.data(), text.size())), vdevice.name, name_of(precision), batch};
}

ScheduleHead read_schedule_head(const std::string& text, const std::string& source_name) {
  try {
    const json file = json::parse(text);
    return {{file.at("model"), file.at("vdevice"), file.at("precision"), file.at("batch")},
            parse_execution(file.at("execution")),
            file.at("policy")};
  } catch (const json::exception& error) {
    throw bad_input("{}: not a schedule: {}", printable(source_name), printable(error.what()));
  }
}

std::string schedule_text(const RProgram& program, int64_t batch) {
  const ScheduleKey key = key_of(program.graph, program.vdevice, program.precision, batch);
  std::vector<std::string> events, lanes, launches, rkernels;
  for (const Event& event : program.events) events.push_back(quoted(event.name));
  for (const auto& lane : program.lanes) {
    std::vector<std::string> texts;
    for (const Instruction& i : lane) texts.push_back(instruction_text(i));
    lanes.push_back(quoted(join(texts, " ")));
  }
  if (program.launches) {
    for (const PhaseLaunch& launch : *program.launches) {
      json after = json::array();
      for (const int32_t n : launch.after) after.push_back(n);
      launches.push_back(fmt::format("{{\"after\": {}, \"phase\": {}, \"rop\": {}, \"stream\": {}}}", after.dump(), launch.phase,
                                     launch.rop.value, launch.stream));
    }
  }
  for (size_t i = 0; i < program.rkernels.size(); ++i) {
    const RKernel& rkernel = program.rkernels[i];
    rkernels.push_back(fmt::format("{{\"rkernel\": {}, \"rop\": {}}}", quoted(rkernel.phases.empty() ? "" : select::identity(rkernel)),
                                   quoted(program.graph.rops[i].name)));
  }
  const std::vector<std::string> fields = {fmt::format(" \"batch\": {}", key.batch),
                                           lines_of("events", events),
                                           fmt::format(" \"execution\": \"{}\"", program.launches ? "graph" : "persistent"),
                                           lines_of("lanes", lanes),
                                           lines_of("launches", launches),
                                           fmt::format("{} \"model\": {}", merges_line(program.merges), quoted(key.model)),
                                           fmt::format(" \"policy\": {}", quoted(program.policy)),
                                           fmt::format(" \"precision\": {}", quoted(key.precision)),
                                           lines_of("rkernels", rkernels),
                                           fmt::format(" \"vdevice\": {}", quoted(key.vdevice))};
  return "{\n" + join(fields, ",\n") + "\n}\n";
}

// True also for a schedule that another policy chose from this one: "best (sequential)".
bool made_by(const std::string& text, Policy policy) {
  return text == name_of(policy) || text.ends_with(fmt::format(" ({})", name_of(policy)));
}

RProgram read_schedule(const std::string& text, const std::string& source_name, Graph graph, const ShapedVDevice& vdevice,
                       const ScheduleOptions& options, int64_t batch, const select::Families& families) {
  RProgram program;
  program.vdevice = vdevice;
  program.precision = options.precision;
  program.graph = std::move(graph);
  const Reader reader{source_name, program};
  reader.merge(text, options.merger);
  const Dependencies dependencies = find_dependencies(program.graph);
  program.depth = depth_of(dependencies);
  const select::Machine machine = select::machine_for(program.graph, program.vdevice, options.precision);
  const PolicyInput input{program.graph, machine, dependencies.producers, dependencies.is_view, families, options};
  try {
    const json file = json::parse(text);
    const ScheduleKey wanted = key_of(program.graph, program.vdevice, options.precision, batch);
    const ScheduleKey found{file.at("model"), file.at("vdevice"), file.at("precision"), file.at("batch")};
    if (found != wanted) reader.fail(fmt::format("a schedule for {}; this is {}", described(found), described(wanted)));
    const std::string execution = options.execution == Execution::graph ? "graph" : "persistent";
    if (file.at("execution") != execution)
      reader.fail(
          fmt::format("a schedule for {} execution, asked for is {}", printable(file.at("execution").get<std::string>()), execution));
    program.policy = file.at("policy");
    // The same costs as the policy that made the schedule had, so that the estimate is the same.
    const std::vector<bool> alone =
        made_by(program.policy, Policy::sequential) ? std::vector<bool>(program.graph.rops.size(), true) : alone_of(input);
    const json& rkernels = file.at("rkernels");
    if (rkernels.size() != program.graph.rops.size())
      reader.fail(fmt::format("rKernels of {} rOperators, the model has {}", rkernels.size(), program.graph.rops.size()));
    Unsupported unsupported;
    for (size_t i = 0; i < rkernels.size(); ++i) {
      const auto identity = rkernels[i].at("rkernel").get<std::string>();
      program.rkernels.emplace_back();
      if (dependencies.is_view[i] && identity.empty()) continue;
      bool is_there = false;
      for (RKernel& candidate : candidates_of(input, ROperatorId(static_cast<int64_t>(i)), alone[i], unsupported)) {
        if (is_there || select::identity(candidate) != identity) continue;
        program.rkernels.back() = std::move(candidate);
        is_there = true;
      }
      if (!is_there) reader.fail(fmt::format("'{}' has no rKernel '{}'", printable(program.graph.rops[i].name), printable(identity)));
    }
    for (const json& event : file.at("events")) program.events.push_back({event.get<std::string>(), 0});
    program.lanes.resize(static_cast<size_t>(program.vdevice.veus()));
    reader.lanes(file.at("lanes"));
    if (options.execution == Execution::graph) {
      program.launches.emplace();
      const json& launches = file.at("launches");
      for (const json& launch : launches) {
        const std::string where = fmt::format("launch {}", program.launches->size());
        const auto rop = launch.at("rop").get<int64_t>();
        if (rop < 0 || static_cast<size_t>(rop) >= program.rkernels.size()) reader.fail(where + ": no such rOperator");
        const auto phase = launch.at("phase").get<int32_t>();
        if (phase < 0 || static_cast<size_t>(phase) >= program.rkernels[static_cast<size_t>(rop)].phases.size())
          reader.fail(where + ": no such phase");
        const auto after = launch.at("after").get<std::vector<int32_t>>();
        for (const int32_t n : after) {
          if (n < 0 || static_cast<size_t>(n) >= program.launches->size()) reader.fail(where + ": is after one that is not before it");
        }
        const auto stream = launch.at("stream").get<int32_t>();
        if (stream < 0 || stream >= kMostStreams) reader.fail(fmt::format("{}: stream {}, there are {}", where, stream, kMostStreams));
        program.launches->push_back({ROperatorId(rop), phase, after, stream, false});
      }
      mark_dependents(*program.launches, program.vdevice);
    }
  } catch (const json::exception& error) {
    reader.fail(fmt::format("not a schedule: {}", printable(error.what())));
  }
  reader.require_end();
  if (!program.launches) choose_words(program);
  set_guards(program, families);
  plan_memory(program, options.share_memory);
  list_weights({&program}, families);
  std::vector<std::string> violations = verify(program, 8, families);
  if (violations.empty() && program.launches) violations = verify_launches(program, 8, families);
  if (!violations.empty()) reader.fail("the verifier refuses it: " + join(violations, "; "));
  estimate(program);
  return program;
}

}  // namespace tamp::schedule
