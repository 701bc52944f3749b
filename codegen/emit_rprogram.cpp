// Prints the rProgram: bodies, records, events and the lanes of the vEUs.
#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <functional>
#include <map>
#include <numeric>

#include "codegen/emit.h"
#include "compiler/ir/length_rules.h"
#include "compiler/support/error.h"
#include "compiler/support/text.h"
#include "kernels/vdevice/numbers.cuh"

namespace tamp::codegen {
namespace {

// One row of the instruction table.
struct Row {
  std::string record, signal;      // empty: none
  int64_t index = 0;               // of the rTask, if there is a record
  std::vector<std::string> waits;  // at most rk::kWaits
  std::string end;                 // what depends on lengths of run time; empty: nothing
  std::string turn = {};           // "enter(0, 12": the loop, and how many rows there are between the two turns
};

// "kEnd_conv1" of record "r_conv1".
std::string end_name(const Plan& plan, size_t record) { return "kEnd" + plan.records[record].number.substr(1); }

// The rows from one turn of a loop to the other.
int64_t rows_between(const std::vector<LaneRow>& lane, int32_t loop) {
  const auto turn = [&](Turn which) {
    const auto is = [&](const LaneRow& row) { return row.turn == which && row.loop == loop; };
    return std::find_if(lane.begin(), lane.end(), is) - lane.begin();
  };
  return turn(Turn::repeat) - turn(Turn::enter);
}

// Per event the loop that signals it, or -1.
std::vector<int32_t> loops_of_events(const RProgram& program) {
  std::vector<int32_t> loops(program.events.size(), -1);
  for (const auto& lane : program.lanes) {
    int32_t loop = -1;
    for (const Instruction& i : lane) {
      if (i.signal.valid()) loops[i.signal.index()] = loop;
      if (i.turn != Turn::none) loop = i.turn == Turn::enter ? i.loop : program.graph.loops[static_cast<size_t>(i.loop)].parent;
    }
  }
  return loops;
}

std::vector<Row> rows_of_lane(const Plan& plan, const std::vector<Instruction>& lane) {
  std::vector<Row> rows;
  const std::vector<LaneRow> all = lane_rows(lane);
  for (const LaneRow& row : all) {
    Row text{{}, {}, row.rtask.index, {}, {}};
    if (row.turn != Turn::none)
      text.turn = fmt::format("{}({}, {}", row.turn == Turn::enter ? "enter" : "repeat", row.loop, rows_between(all, row.loop));
    if (row.rtask.rop.valid()) {
      text.record = plan.records[plan.record_of(row.rtask)].number;
      if (depends_on_lengths(plan, plan.record_of(row.rtask))) text.end = end_name(plan, plan.record_of(row.rtask));
    }
    if (row.signal.valid()) text.signal = plan.event_symbols[row.signal.index()];
    for (const EventId event : row.waits) text.waits.push_back(plan.event_symbols[event.index()]);
    rows.push_back(std::move(text));
  }
  return rows;
}

// "run(r_conv1, n + 132, e_conv1, e_pool1)", or "pass(e_end, e_pool1)" where there is nothing to run. Several lanes share a macro with
// parameter `n`; each lane passes a number that is added to its rTasks' numbers.
std::string row_text(const Row& row) {
  const std::string number = row.index == 0 ? "n" : fmt::format("n + {}", row.index);
  std::string text = row.record.empty() ? "pass(" : fmt::format("run({}, {}, ", row.record, number);
  text = row.turn.empty() ? text + (row.signal.empty() ? "kNo" : row.signal) : row.turn;
  for (const std::string& wait : row.waits) text += ", " + wait;
  return row.end.empty() ? text + ")," : fmt::format("ending({}), {}),", text, row.end);
}

// Lanes that run the same rTasks but for the rTasks' numbers, and in which all numbers differ by the same amount.
struct LaneShape {
  std::vector<Row> rows;  // of the first vEU of this shape
  int64_t first_index = 0;
  int64_t line = 0;
};

int64_t first_index_of(const std::vector<Row>& rows) {
  for (const Row& row : rows) {
    if (!row.record.empty()) return row.index;
  }
  return 0;
}

// A text that is equal for lanes of one shape: rTasks' numbers count from the lane's first.
std::string shape_key(const std::vector<Row>& rows) {
  const int64_t first = first_index_of(rows);
  std::string key;
  for (const Row& row : rows) {
    key += fmt::format("{}{};{};{}", row.turn, row.record, row.signal, row.record.empty() ? 0 : row.index - first);
    for (const std::string& wait : row.waits) key += ";" + wait;
    key += "\n";
  }
  return key;
}

// A shape is written as a macro, since it stands for several elements of the table.
void emit_lane_shape(SourceWriter& w, LaneShape& shape, size_t number) {
  w.line("#define LANE_{}(n) \\", number);
  shape.line = w.next_line();
  for (size_t i = 0; i < shape.rows.size(); ++i) w.line("  {}{}", row_text(shape.rows[i]), i + 1 < shape.rows.size() ? " \\" : "");
}

// The table itself: vEUs that follow each other and have the same shape share lines.
void emit_lane_table(SourceWriter& w, const std::vector<LaneShape>& shapes, const std::vector<size_t>& shape_of_lane,
                     const std::vector<int64_t>& n_of_lane) {
  constexpr size_t kOfALine = 8;
  bool is_empty = true;
  w.open("__device__ const rk::Instruction kInstructions[] =");
  for (size_t veu = 0; veu < shape_of_lane.size();) {
    const size_t shape = shape_of_lane[veu];
    const bool nothing = shapes[shape].rows.empty();
    size_t end = veu;
    std::string text;
    for (; end < shape_of_lane.size() && shape_of_lane[end] == shape && (nothing || end - veu < kOfALine); ++end) {
      if (!nothing) text += fmt::format("LANE_{}({}) ", shape, n_of_lane[end]);
    }
    const std::string who = end - veu == 1 ? fmt::format("vEU {}", veu) : fmt::format("vEU {} to {}", veu, end - 1);
    w.line("{}{}// {}{}", text, nothing ? "" : " ", who, nothing ? ": nothing" : "");
    is_empty = is_empty && nothing;
    veu = end;
  }
  if (is_empty) w.line("pass(kNo),");  // C++ has no empty arrays
  w.close(";");
}

// "{34, 1}, {98, 0}": 34 vEUs with a row each, then 98 with none.
std::string lane_rows_text(const std::vector<size_t>& rows_of_lanes) {
  std::vector<std::string> parts;
  for (auto from = rows_of_lanes.begin(); from != rows_of_lanes.end();) {
    const auto to = std::find_if(from, rows_of_lanes.end(), [&](size_t rows) { return rows != *from; });
    parts.push_back(fmt::format("{{{}, {}}}", to - from, *from));
    from = to;
  }
  return join(parts, ", ");
}

// Phase::words: the names of its bits, and one number for those that have none.
std::string words_text(const Phase& phase) {
  std::vector<std::string> names;
  uint32_t others = phase.words;
  for (const auto* uses : {&phase.may_await, &phase.may_publish}) {
    for (const WordsUse& use : *uses) {
      if (use.name.empty() || (others >> use.bit & 1U) == 0) continue;
      names.push_back(use.name);
      others &= ~(1U << use.bit);
    }
  }
  if (others != 0 || names.empty()) names.insert(names.begin(), std::to_string(others));
  return join(names, " | ");
}

}  // namespace

void emit_bases(SourceWriter& w, const Plan& plan, int64_t stages) {
  // As do loops: two barriers and three words in all, and a word each.
  if (const auto loops = static_cast<int64_t>(plan.program.graph.loops.size()); loops > 0) {
    w.line("static constexpr int kLoops = {};", loops);
    stages += 2 + (loops + 1) / 4;
  }
  if (repeats(plan.program)) {
    emit_token_members(w, plan);
    stages += 2;  // two barriers and a word
  }
  // The control block has room for the rest of them; rk::interpret asserts it. Each stage has two barriers of 8 bytes, as long as a base.
  const int64_t first_extent = rk::kFirstPort + static_cast<int64_t>(plan.program.graph.inputs.size() + plan.program.graph.outputs.size());
  const int64_t bases = first_extent + static_cast<int64_t>(plan.program.extents.size());
  if (!plan.program.extents.empty()) {
    w.line("static constexpr int kExtents = {}, kFirstExtent = {};", plan.program.extents.size(), first_extent);
    w.line("static RK_INLINE const rk::PatchRange* patch_ranges() {{ return kPatchRanges; }}");
    w.line("static RK_INLINE const rk::Patch* patches() {{ return kPatches; }}");
  }
  const int64_t shared = std::min(bases, 160 - 2 * stages);
  if (repeats(plan.program)) require_swaps(plan, shared);
  w.line("static constexpr int kBases = {}, kSharedBases = {};", bases, shared);
}

void emit_body(SourceWriter& w, const BodyName& body, const std::string& function) {
  constexpr size_t kMostColumns = 120;
  std::vector<std::string> lines = {body.phase->body.substr(std::string_view("rk::").size()) + "<Veu"};
  for (const auto& [name, value] : body.phase->template_args) {
    const std::string argument = fmt::format("/*{}=*/{}", name, name == "WORDS" ? words_text(*body.phase) : value);
    lines.back() += ",";
    if (lines.back().size() + argument.size() < kMostColumns)
      lines.back() += " " + argument;
    else
      lines.push_back("    " + argument);
  }
  lines.back() += ">(task);";
  w.line("template <class Task>");
  w.open(fmt::format("RK_INLINE {}(const Task& task)", function));
  for (const std::string& line : lines) w.text(line);
  w.close();
}

void emit_bodies(SourceWriter& w, const Plan& plan) {
  const ShapedVDevice& d = plan.program.vdevice;
  w.section("one vEU, and the bodies that it runs; each rOperator runs one of them on its own arguments");
  w.open("struct Veu");
  w.line("static constexpr int kComputeThreads = {};", d.compute_threads);
  w.line("static constexpr bool kManyRegisters = {};", plan.many_registers);
  w.line("static constexpr bool kVotes = {};", d.voting_waits);
  w.line("static constexpr int kCluster = {};", d.cluster_veus);
  w.line("static constexpr bool kProductsOverInputs = {};", plan.products_over_inputs);
  w.line("static constexpr int kWordsBytes = {};", plan.program.memory.words_bytes);
  w.line("static constexpr int kWeightStages = {};", d.weight_stages);
  w.line("static constexpr int kWeightStageBytes = {};", d.weight_stage_bytes);
  w.line("static constexpr int kInputStages = {};", d.input_stages);
  w.line("static constexpr int kInputStageBytes = {};", d.input_stage_bytes);
  w.line("static constexpr int kWorkBytes = {};", plan.work_bytes);
  emit_bases(w, plan, d.weight_stages + d.input_stages);
  w.close(";");
  w.blank();
  w.line("// They are templates of rk, further below, and found there because the task is of rk.");
  // The model's own namespace must not be found in a body's place.
  const auto is_hidden = [&](const BodyName& body) { return body.phase->body == "rk::" + plan.options.name; };
  if (std::any_of(plan.bodies.begin(), plan.bodies.end(), is_hidden)) {
    w.line("template <class...>");
    w.line("void {}();", plan.options.name);
  }
  for (const BodyName& body : plan.bodies) emit_body(w, body, "void " + body.name);
}

std::string ring_text(const Plan& plan, size_t record) {
  const Phase& phase = plan.phase(record);
  const RingWeights& ring = phase.ring;
  const bool is_persistent = !plan.program.launches;
  std::string text;
  const auto add = [&](const char* field, int64_t value, int64_t usual) {
    if (value != usual) text += fmt::format(".{} = {}, ", field, value);
  };
  add("chunk_bytes", ring.chunk_bytes, 0);
  add("chunks_per_rtask", ring.chunks_per_rtask, 0);
  add("rtasks_per_block", std::max<int64_t>(ring.rtasks_per_block, 1), 1);
  add("blocks", std::max<int64_t>(ring.blocks, 1), 1);
  add("awaits_inputs", is_persistent && phase.awaits_inputs ? 1 : 0, 0);
  add("over_inputs", is_over_inputs(plan, record) ? 1 : 0, 0);
  add("weights_offset", ring_offset(plan, record), 0);
  return text;
}

std::string input_text(const Plan& plan, size_t record) {
  if (plan.map_of_record[record] < 0) return {};
  const InputBoxes& b = *plan.phase(record).boxes;
  return fmt::format(
      ".input = {{.boxes = {}, .boxes_per_split = {}, .boxes_per_chunk = {}, .boxes_per_copy = {}, .box_bytes = {}, .copied_bytes = {}, "
      ".channels_log2 = {}, .map = {}, .group_channels = {}, .begin_w = {}, .begin_h = {}, .step_w = {}, .step_h = {}, "
      ".tiles = rk::divisor({}), .tiles_w = rk::divisor({}), .tiles_h = rk::divisor({}), .splits = rk::divisor({}), "
      ".n_blocks = rk::divisor({})}}",
      b.boxes, b.boxes_per_split, b.boxes_per_chunk, b.boxes_per_copy, b.box_bytes(), b.copied_bytes(),
      std::countr_zero(static_cast<uint64_t>(b.channels())), plan.map_of_record[record], b.group_channels, b.begin_w, b.begin_h, b.step_w,
      b.step_h, b.tiles(), b.tiles_w, b.tiles_h, b.splits, b.n_blocks);
}

int64_t ring_offset(const Plan& plan, size_t record) {
  if (plan.phase(record).ring.chunks_per_rtask == 0) return 0;
  const auto& blobs = plan.blob_of_record[record];
  TAMP_CHECK(blobs.size() == 1, "ring weights of '" + plan.records[record].text + "'");
  return plan.program.weights[static_cast<size_t>(blobs[0])].offset;
}

void emit_records(SourceWriter& w, const Plan& plan) {
  w.section("records: one row per phase of a rOperator");
  w.open("enum RecordIndex : uint16_t");
  for (const RecordName& record : plan.records) w.line("{},", record.number);
  w.line("kNo = rk::kNone16");
  w.close(";");
  w.open("enum BodyIndex : uint16_t");
  for (const BodyName& body : plan.bodies) w.line("b_{},", body.name);
  w.close(";");
  w.blank();
  w.open("__device__ const rk::Record kRecords[] =");
  for (size_t r = 0; r < plan.records.size(); ++r) {
    const std::string& args = plan.records[r].symbol;
    const std::string input = input_text(plan, r);
    w.line("{{.body = b_{}, .args_bytes = sizeof {}, {}.args = &{}{}", plan.bodies[plan.body_of_record[r]].name, args, ring_text(plan, r),
           args, input.empty() ? "}," : ",");
    if (!input.empty()) w.line(" {}}},", input);
  }
  if (plan.records.empty()) w.line("{{.body = rk::kBodyNothing}},");
  w.close(";");
}

LengthAxes factors_of(const Graph& graph, const LengthAxes& axes) {
  LengthAxes factors;
  for (const auto& [dim, e] : axes) {
    if (e.length >= 0) {
      factors.push_back({dim, e});
      continue;
    }
    const auto& [left, right] = graph.products[static_cast<size_t>(-1 - e.length)];
    LengthAxes own = factors_of(graph, {{dim, left}, {dim, right}});
    const auto whole = std::find_if(own.begin(), own.end(), [&](const LengthAxis& axis) { return is_exact(axis.extent, graph.lengths); });
    TAMP_CHECK(e.plus == 0 && e.over == 1 && (e.times == 1 || whole != own.end()), "a port's extent that is no product");
    if (e.times != 1) whole->extent.times *= e.times, whole->extent.plus *= e.times;
    factors.insert(factors.end(), own.begin(), own.end());
  }
  return factors;
}

std::string extent_text(const Graph& graph, const Extent& e) {
  std::string text;
  if (e.length >= 0) {
    text = graph.lengths[static_cast<size_t>(e.length)].name;
  } else {
    const auto& [left, right] = graph.products[static_cast<size_t>(-1 - e.length)];
    text = fmt::format("({}) * ({})", extent_text(graph, left), extent_text(graph, right));
  }
  if (e.times != 1) text = fmt::format("{} * {}", e.times, text);
  if (e.plus != 0) text += fmt::format(" {} {}", e.plus < 0 ? '-' : '+', std::abs(e.plus));
  return e.over == 1 ? text : fmt::format("({}) / {}", text, e.over);
}

namespace {

// Calls f(what offsetof names of a body's arguments, arg) for each number of run time.
void for_each_extent(const std::string& path, const ArgValue& value, const std::function<void(const std::string&, const ExtentArg&)>& f) {
  if (const auto* arg = std::get_if<ExtentArg>(&value.value)) return f(path, *arg);
  const auto* list = std::get_if<ArgList>(&value.value);
  for (size_t i = 0; list != nullptr && i < list->size(); ++i)
    for_each_extent(value.names.empty() ? fmt::format("{}[{}]", path, i) : fmt::format("{}.{}", path, value.names[i]), (*list)[i], f);
}

}  // namespace

const Guard* guard_of(const Plan& plan, size_t record) {
  const RProgram& program = plan.program;
  if (program.guards.empty()) return nullptr;
  const std::optional<Guard>& guard = program.guards[plan.records[record].rop.index()][static_cast<size_t>(plan.records[record].phase)];
  return guard ? &*guard : nullptr;
}

bool depends_on_lengths(const Plan& plan, size_t record) {
  bool has_patches = false;
  for (const Arg& arg : plan.phase(record).args)
    for_each_extent(arg.name, arg.value, [&](const std::string&, const ExtentArg&) { has_patches = true; });
  return has_patches || guard_of(plan, record) != nullptr;
}

void emit_extents(SourceWriter& w, const Plan& plan) {
  const RProgram& program = plan.program;
  if (program.extents.empty()) return;
  const auto number_of = [&](const Extent& extent) {
    return std::find(program.extents.begin(), program.extents.end(), extent) - program.extents.begin();
  };
  w.section("extents: what each run says, and what depends on it");
  for (size_t e = 0; e < program.extents.size(); ++e) w.line("// {}: {}", e, comment(extent_text(program.graph, program.extents[e])));
  w.blank();
  std::vector<std::string> ranges;
  std::vector<size_t> counts;
  w.open("__device__ const rk::Patch kPatches[] =");
  for (size_t r = 0; r < plan.records.size(); ++r) {
    const size_t first = std::accumulate(counts.begin(), counts.end(), size_t{0});
    counts.push_back(0);
    for (const Arg& arg : plan.phase(r).args) {
      for_each_extent(arg.name, arg.value, [&](const std::string& path, const ExtentArg& number) {
        TAMP_CHECK(!number.extents.empty() && number.extents.size() <= 2, "a number of more than two extents");
        w.line("{{offsetof({}, {}), {}, {}, {}}},  // {}", plan.phase(r).args_type, path, number_of(number.extents[0]),
               number.extents.size() > 1 ? std::to_string(number_of(number.extents[1])) : "rk::kNone16", number.factor,
               plan.records[r].number);
        ++counts.back();
      });
    }
    ranges.push_back(fmt::format("{{{}, {}}},  // {}", first, counts.back(), plan.records[r].number));
  }
  w.close(";");
  w.open("__device__ const rk::PatchRange kPatchRanges[] =");
  for (const std::string& line : ranges) w.text(line);
  w.close(";");
  w.line(
      "// Of a record: where the results of each rTask begin, counted along the dimension that ends; the extent, and whether there are "
      "patches.");
  w.open("struct End");
  w.line("const uint16_t* begins;");
  w.line("uint32_t code;");
  w.close(";");
  w.line("constexpr rk::Instruction ending(rk::Instruction instruction, const End& end) {{");
  w.line("  if (end.begins != nullptr) instruction.detail = end.begins[instruction.index];");
  w.line("  instruction.index |= end.code << rk::kIndexBits;");
  w.line("  return instruction;");
  w.line("}}");
  for (size_t r = 0; r < plan.records.size(); ++r) {
    if (!depends_on_lengths(plan, r)) continue;
    const Guard* const guard = guard_of(plan, r);
    const std::string name = end_name(plan, r), patches = counts[r] > 0 ? " | rk::kHasPatches" : "";
    if (guard == nullptr) {
      w.line("constexpr End {} = {{nullptr, 0{}}};", name, patches);
      continue;
    }
    constexpr size_t kOfALine = 24;
    const auto extent = number_of(guard->extent) + 1;
    TAMP_CHECK(extent < 16 && guard->begins.size() < size_t{1} << 27, "more extents than an instruction can name");
    w.open(fmt::format("constexpr uint16_t kBegins{}[] =", name.substr(4)));
    for (size_t t = 0; t < guard->begins.size(); t += kOfALine) {
      const auto from = guard->begins.begin() + static_cast<std::ptrdiff_t>(t);
      w.line("{},", fmt::join(from, from + static_cast<std::ptrdiff_t>(std::min(kOfALine, guard->begins.size() - t)), ", "));
    }
    w.close(";");
    w.line("constexpr End {} = {{kBegins{}, {}{}}};", name, name.substr(4), extent, patches);
  }
}

void emit_events(SourceWriter& w, const Plan& plan) {
  w.section("events: signals that make up one epoch");
  w.open("enum EventIndex : uint16_t");
  for (const std::string& symbol : plan.event_symbols) w.line("{},", symbol);
  w.line("kEvents");
  w.close(";");
  w.open("__device__ const uint32_t kEventCount[] =");
  for (size_t e = 0; e < plan.event_symbols.size(); ++e) w.line("{},  // {}", plan.program.events[e].count, plan.event_symbols[e]);
  if (plan.event_symbols.empty()) w.line("0");
  w.close(";");
  const Graph& graph = plan.program.graph;
  if (graph.loops.empty()) return;
  w.line("// Per event 1 plus the loop whose iterations are its epochs, or 0; per loop the byte of the arena where its condition is.");
  w.open("__device__ const uint16_t kEventLoop[] =");
  const std::vector<int32_t> loops = loops_of_events(plan.program);
  for (size_t e = 0; e < plan.event_symbols.size(); ++e) w.line("{},  // {}", loops[e] + 1, plan.event_symbols[e]);
  w.close(";");
  w.open("__device__ const uint64_t kConditions[] =");
  for (const Loop& loop : graph.loops) {
    const Placement& place = graph.tensor(loop.condition).place;
    w.line("{},  // {}", plan.program.memory.buffer_offset[place.buffer.index()] + place.offset, comment(loop.name));
  }
  w.close(";");
}

void emit_lanes(SourceWriter& w, const Plan& plan, SourceLines& lines) {
  w.section("lanes: what each vEU runs, row by row");
  w.line(
      "// run(record, rTask, signal, waits...): wait for all of these events, run the rTask, then signal; pass: the same with no rTask.");
  w.line(
      "constexpr rk::Instruction run(uint16_t record, uint32_t index, uint16_t signal, uint16_t a = kNo, uint16_t b = kNo, uint16_t c = "
      "kNo) {{");
  w.line("  return {{record, signal, index, {{a, b, c}}, 0}};");
  w.line("}}");
  w.line("constexpr rk::Instruction pass(uint16_t signal, uint16_t a = kNo, uint16_t b = kNo, uint16_t c = kNo) {{");
  w.line("  return run(kNo, 0, signal, a, b, c);");
  w.line("}}");
  static_assert(rk::kWaits == 3, "run() and pass() take three waits");
  if (!plan.program.graph.loops.empty()) {
    w.line("// enter, repeat(loop, rows in between, wait): where the lane enters a loop, and where it goes back if the condition holds.");
    for (const char* turn : {"enter", "repeat"}) {
      w.line("constexpr rk::Instruction {}(int loop, uint32_t rows, uint16_t a = kNo, uint16_t b = kNo, uint16_t c = kNo) {{", turn);
      w.line("  return {{kNo, kNo, rows, {{a, b, c}}, static_cast<uint16_t>(2 * loop + {})}};", turn[0] == 'e' ? 1 : 2);
      w.line("}}");
    }
  }
  w.blank();
  w.line("// A lane is written once for all vEUs whose lanes differ in the rTasks' numbers alone, by the same n in every row.");
  std::vector<LaneShape> shapes;
  std::map<std::string, size_t> known;
  std::vector<size_t> shape_of_lane, rows_of_lanes;
  std::vector<int64_t> n_of_lane;
  for (const auto& lane : plan.program.lanes) {
    std::vector<Row> rows = rows_of_lane(plan, lane);
    rows_of_lanes.push_back(rows.size());
    const int64_t first = first_index_of(rows);
    const auto [at, added] = known.emplace(shape_key(rows), shapes.size());
    shape_of_lane.push_back(at->second);
    if (added) {
      shapes.push_back({std::move(rows), first, w.next_line()});
      if (!shapes.back().rows.empty()) emit_lane_shape(w, shapes.back(), at->second);
    }
    n_of_lane.push_back(first - shapes[at->second].first_index);
    lines.lane.push_back(shapes[at->second].line);
  }
  w.blank();
  emit_lane_table(w, shapes, shape_of_lane, n_of_lane);
  for (size_t s = 0; s < shapes.size(); ++s) {
    if (!shapes[s].rows.empty()) w.line("#undef LANE_{}", s);
  }
  w.line("constexpr int kInstructionCount = {};", std::accumulate(rows_of_lanes.begin(), rows_of_lanes.end(), size_t{0}));
  w.line("__device__ const rk::LaneBegin<{}> kLaneBegin{{{{{}}}}};  // vEUs, rows of each", rows_of_lanes.size(),
         lane_rows_text(rows_of_lanes));
}

void emit_kernel(SourceWriter& w, const Plan& plan) {
  w.section("the kernel");
  w.open("struct Program");
  w.line("using Veu = {}::Veu;", plan.scope());
  w.line("static constexpr bool kOverInputs = {};", plan.has_over_inputs);
  w.line("template <class Task>");
  w.open("static RK_INLINE void run(uint32_t body, const Task& task)");
  w.open("switch (body)");
  for (const BodyName& body : plan.bodies) w.line("case b_{0}: {0}(task); break;", body.name);
  w.line("default: break;");
  w.close();
  w.close();
  w.close(";");
  w.blank();
  const int64_t cluster = plan.program.vdevice.cluster_veus;
  w.line("__global__ void {}__launch_bounds__({}, 1) {}_kernel(const __grid_constant__ rk::LaunchOf<Veu::kBases> launch) {{",
         cluster > 1 ? fmt::format("__cluster_dims__({}, 1, 1) ", cluster) : "", plan.threads(), plan.options.name);
  w.line("  rk::interpret<Program>(launch, rk::Tables{{kInstructions, kLaneBegin.row, kRecords, kEventCount{}}});",
         plan.program.graph.loops.empty() ? "" : ", kEventLoop, kConditions, kEvents");
  w.line("}}");
}

}  // namespace tamp::codegen
