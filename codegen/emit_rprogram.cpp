// Prints the rProgram: bodies, records, events and the lanes of the vEUs.
#include <fmt/format.h>

#include <algorithm>

#include "codegen/emit.h"
#include "compiler/support/error.h"
#include "compiler/support/text.h"
#include "kernels/vdevice/numbers.cuh"

namespace tamp::codegen {
namespace {

std::string record_symbol(const Plan& plan, const RTask& rtask) {
  const size_t record = plan.first_record[rtask.rop.index()] + static_cast<size_t>(rtask.phase);
  return "r" + plan.records[record].symbol.substr(1);
}

std::string instruction_text(const std::string& record, const std::string& signal, int64_t index, const std::vector<std::string>& waits) {
  std::string text = fmt::format("{{{}, {}, {}, {{", record, signal, index);
  for (size_t i = 0; i < rk::kWaits; ++i) text += fmt::format("{}{}", i == 0 ? "" : ", ", i < waits.size() ? waits[i] : "kNo");
  return text + "}, 0},";
}

}  // namespace

void emit_bodies(SourceWriter& w, const Plan& plan) {
  const VDevice& d = plan.program.vdevice;
  w.section("one vEU");
  w.open("struct Veu");
  w.line("static constexpr int kComputeThreads = {};", d.compute_threads);
  w.line("static constexpr int kWeightStages = {};", d.weight_stages);
  w.line("static constexpr int kWeightStageBytes = {};", d.weight_stage_bytes);
  w.line("static constexpr int kInputStages = {};", d.input_stages);
  w.line("static constexpr int kInputStageBytes = {};", d.input_stage_bytes);
  w.line("static constexpr int kWorkBytes = {};", plan.work_bytes);
  w.line("static constexpr int kBases = {};", 2 + plan.program.graph.inputs.size() + plan.program.graph.outputs.size());
  w.close(";");
  w.line("static_assert(rk::kControlBytes == {}, \"control block\");", kControlBytes);
  w.line("static_assert(rk::kThreadsOf<Veu> == {}, \"threads of a vEU\");", d.threads());
  w.line("static_assert(rk::kSmemBytesOf<Veu> <= {}, \"shared memory of a vEU\");", d.smem_bytes);
  w.blank();
  w.line("// The bodies that this model uses; every rOperator runs one of them on its own arguments.");
  w.open("struct Program");
  w.line("using Veu = {}_detail::Veu;", plan.options.name);
  w.line("static constexpr bool kOverInputs = {};", plan.has_over_inputs);
  w.open("static RK_INLINE void run(uint32_t body, const rk::Task<Veu>& task)");
  w.open("switch (body)");
  for (size_t b = 0; b < plan.bodies.size(); ++b) w.line("case {}: {}(task); break;", b, plan.bodies[b]);
  w.line("default: break;");
  w.close();
  w.close();
  w.close(";");
}

std::string divisor_text(int64_t divisor) {
  const Magic magic = magic_of(divisor);
  return fmt::format("{{{}u, {}u, {}u}}", divisor, magic.multiplier, magic.shift);
}

std::string input_text(const Plan& plan, size_t record) {
  if (plan.map_of_record[record] < 0) return {};
  const InputBoxes& b = *plan.phase(record).boxes;
  return fmt::format(
      "{{.boxes = {}, .boxes_per_split = {}, .boxes_per_chunk = {}, .boxes_per_copy = {}, .box_bytes = {}, .copied_bytes = {}, .map = {}, "
      ".group_channels = {}, "
      ".begin_w = {}, .begin_h = {}, .step_w = {}, .step_h = {}, .tiles = {}, .tiles_w = {}, .tiles_h = {}, .splits = {}, .n_blocks = {}}}",
      b.boxes, b.boxes_per_split, b.boxes_per_chunk, b.boxes_per_copy, b.box_bytes(), b.copied_bytes(), plan.map_of_record[record],
      b.group_channels, b.begin_w, b.begin_h, b.step_w, b.step_h, divisor_text(b.tiles()), divisor_text(b.tiles_w), divisor_text(b.tiles_h),
      divisor_text(b.splits), divisor_text(b.n_blocks));
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
  for (const RecordName& record : plan.records) w.line("r{},", record.symbol.substr(1));
  w.line("kNo = rk::kNone16");
  w.close(";");
  w.blank();
  w.open("__device__ const rk::Record kRecords[] =");
  for (size_t r = 0; r < plan.records.size(); ++r) {
    const RingWeights& ring = plan.phase(r).ring;
    const std::string input = input_text(plan, r);
    w.line(
        "{{.body = {}, .args_bytes = sizeof {}, .chunk_bytes = {}, .chunks_per_rtask = {}, .rtasks_per_block = {}, .blocks = {}, "
        ".over_inputs = {}, .weights_offset = {}, .args = &{}, .input = {}}},",
        plan.body_of_record[r], plan.records[r].symbol, ring.chunk_bytes, ring.chunks_per_rtask,
        std::max<int64_t>(ring.rtasks_per_block, 1), std::max<int64_t>(ring.blocks, 1), is_over_inputs(plan, r) ? 1 : 0,
        ring_offset(plan, r), plan.records[r].symbol, input.empty() ? "{}" : input);
  }
  if (plan.records.empty()) w.line("{{rk::kBodyNothing, 0, 0, 0, 1, 1, 0, 0, nullptr, {{}}}},");
  w.close(";");
  w.open("const char* const kRecordNames[] =");
  for (const RecordName& record : plan.records) w.line("\"{}\",", c_string(record.text));
  if (plan.records.empty()) w.line("\"\"");
  w.close(";");
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
  w.open("const char* const kEventNames[] =");
  for (const Event& event : plan.program.events) w.line("\"{}\",", c_string(event.name));
  if (plan.event_symbols.empty()) w.line("\"\"");
  w.close(";");
}

void emit_lanes(SourceWriter& w, const Plan& plan) {
  w.section("lanes: record, signal, rTask, waits");
  std::vector<size_t> begin = {0};
  size_t count = 0;
  w.open("__device__ const rk::Instruction kInstructions[] =");
  for (size_t veu = 0; veu < plan.program.lanes.size(); ++veu) {
    w.line("// vEU {}", veu);
    for (const Instruction& instruction : plan.program.lanes[veu]) {
      std::vector<std::string> waits;
      for (const EventId event : instruction.waits) waits.push_back(plan.event_symbols[event.index()]);
      // What does not fit one instruction is waited for ahead of it.
      while (waits.size() > rk::kWaits) {
        w.text(instruction_text("kNo", "kNo", 0, {waits.end() - rk::kWaits, waits.end()}));
        waits.resize(waits.size() - rk::kWaits);
        ++count;
      }
      const bool runs = instruction.rtask.rop.valid();
      w.text(instruction_text(runs ? record_symbol(plan, instruction.rtask) : "kNo",
                              instruction.signal.valid() ? plan.event_symbols[instruction.signal.index()] : "kNo",
                              runs ? instruction.rtask.index : 0, waits));
      ++count;
    }
    begin.push_back(count);
  }
  if (count == 0) w.text(instruction_text("kNo", "kNo", 0, {}));
  w.close(";");
  std::vector<std::string> starts;
  for (const size_t at : begin) starts.push_back(fmt::format("{}", at));
  w.line("constexpr int kInstructionCount = {};", count);
  w.line("__device__ const uint32_t kLaneBegin[] = {{{}}};", join(starts, ", "));
}

void emit_kernel(SourceWriter& w, const Plan& plan) {
  w.section("the kernel");
  w.line("__global__ void __launch_bounds__({}, 1) {}_kernel(const __grid_constant__ rk::Launch launch) {{", plan.program.vdevice.threads(),
         plan.options.name);
  w.line("  rk::interpret<Program>(launch, rk::Tables{{kInstructions, kLaneBegin, kRecords, kEventCount}});");
  w.line("}}");
}

}  // namespace tamp::codegen
