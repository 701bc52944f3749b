// Graph execution: a kernel for each distinct body and the list of launches (runtime_stub/host/phases.h).
#include <fmt/format.h>

#include <algorithm>

#include "codegen/emit.h"
#include "compiler/support/error.h"
#include "compiler/support/text.h"

namespace tamp::codegen {
namespace {

int64_t divide_up(int64_t a, int64_t b) { return (a + b - 1) / b; }

// Shared memory that one body's launches need. A block needs no more stages than its rTasks can have under way: where these have one chunk,
// that is one stage, although a vDevice has two at least.
struct BodyVeu {
  int64_t weight_stages = 1, weight_stage_bytes = 0;
  int64_t input_stages = 0, input_stage_bytes = 0;
  int64_t work_bytes = 0;
  std::string args_type;
};

void widen(BodyVeu& veu, const Phase& phase, const ShapedVDevice& device) {
  const int64_t rtasks = phase.rtasks > device.veus() ? 2 : 1;  // weights and boxes of a block's next rTask are fetched early
  if (phase.ring.chunks_per_rtask > 0) {
    veu.weight_stages = std::max(veu.weight_stages, std::min(device.weight_stages, phase.ring.chunks_per_rtask * rtasks));
    veu.weight_stage_bytes = device.weight_stage_bytes;
  }
  if (phase.boxes) {
    const InputBoxes& b = *phase.boxes;
    veu.input_stages = std::max(veu.input_stages, std::min(device.input_stages, divide_up(b.boxes_per_split, b.boxes_per_chunk) * rtasks));
    veu.input_stage_bytes = std::max(veu.input_stage_bytes, divide_up(b.boxes_per_chunk * b.box_bytes(), 1024) * 1024);
  }
  veu.work_bytes = std::max(veu.work_bytes, divide_up(phase.work_bytes, 128) * 128);
  TAMP_CHECK(veu.args_type.empty() || veu.args_type == phase.args_type, "one body with two types of arguments");
  veu.args_type = phase.args_type;
}

std::vector<BodyVeu> veus_of_bodies(const Plan& plan) {
  std::vector<BodyVeu> veus(plan.bodies.size());
  for (size_t r = 0; r < plan.records.size(); ++r) widen(veus[plan.body_of_record[r]], plan.phase(r), plan.program.vdevice);
  return veus;
}

// Per step: the number of its event if another stream waits for the step, else -1. Event 0 is the start of the run.
std::vector<int64_t> events_of_steps(const std::vector<PhaseLaunch>& launches, int64_t& count) {
  std::vector<bool> awaited(launches.size(), false);
  for (const PhaseLaunch& launch : launches) {
    for (const int32_t m : launch.after) {
      if (launches[static_cast<size_t>(m)].stream != launch.stream) awaited[static_cast<size_t>(m)] = true;
    }
  }
  std::vector<int64_t> events;
  count = 1;
  for (const bool is_awaited : awaited) events.push_back(is_awaited ? count++ : -1);
  return events;
}

}  // namespace

void emit_phase_bodies(SourceWriter& w, const Plan& plan) {
  w.section("bodies: each is a kernel; the functions are templates of rk, further below, and found there because the task is of rk");
  const std::vector<BodyVeu> veus = veus_of_bodies(plan);
  for (size_t b = 0; b < plan.bodies.size(); ++b) {
    const BodyVeu& veu = veus[b];
    w.open(fmt::format("struct {}", plan.bodies[b].name));
    w.open("struct Veu");
    w.line("static constexpr int kComputeThreads = {};", plan.program.vdevice.compute_threads);
    w.line("static constexpr bool kManyRegisters = false;");
    w.line("static constexpr bool kVotes = false;");
    w.line("static constexpr int kCluster = 1;");
    w.line("static constexpr bool kProductsOverInputs = false;");
    w.line("static constexpr int kWordsBytes = 0;");
    w.line("static constexpr int kWeightStages = {}, kWeightStageBytes = {};", veu.weight_stages, veu.weight_stage_bytes);
    w.line("static constexpr int kInputStages = {}, kInputStageBytes = {};", veu.input_stages, veu.input_stage_bytes);
    w.line("static constexpr int kWorkBytes = {};", veu.work_bytes);
    emit_bases(w, plan, veu.weight_stages + veu.input_stages);
    w.close(";");
    w.line("using Args = {};", veu.args_type);
    emit_body(w, plan.bodies[b], "static void run");
    w.close(";");
  }
}

void open_call(SourceWriter& w, const Plan& plan, size_t record) {
  const Phase& phase = plan.phase(record);
  const std::string input = input_text(plan, record);
  w.open(fmt::format("const rk::PhaseCall<{}> {} = {{.rtasks = {}, {}{}.args = {{", phase.args_type, plan.records[record].symbol,
                     phase.rtasks, ring_text(plan, record), input.empty() ? "" : input + ", "));
}

void emit_phase_steps(SourceWriter& w, const Plan& plan) {
  w.section("launches: kernel, call, rTasks, stream, waits, signal, is programmatic dependent");
  const std::vector<PhaseLaunch>& launches = *plan.program.launches;
  int64_t event_count = 0;
  const std::vector<int64_t> events = events_of_steps(launches, event_count);
  std::vector<int64_t> waits;
  int32_t streams = 1;
  w.open("const tamp_host::PhaseStep kSteps[] =");
  for (size_t n = 0; n < launches.size(); ++n) {
    const PhaseLaunch& launch = launches[n];
    const size_t record = plan.first_record[launch.rop.index()] + static_cast<size_t>(launch.phase);
    const size_t first_wait = waits.size();
    for (const int32_t m : launch.after) {
      if (launches[static_cast<size_t>(m)].stream != launch.stream) waits.push_back(events[static_cast<size_t>(m)]);
    }
    if (launch.after.empty() && launch.stream != 0) waits.push_back(0);
    streams = std::max(streams, launch.stream + 1);
    w.line("{{{}, &{}, {}, {}, {}, {}, {}, {}}},", plan.body_of_record[record], plan.records[record].symbol, plan.phase(record).rtasks,
           launch.stream, first_wait, waits.size() - first_wait, events[n], launch.dependent);
  }
  if (launches.empty()) w.line("{{}}");
  w.close(";");
  waits.push_back(0);  // C++ has no empty arrays
  w.line("const int kStepWaits[] = {{{}}};", fmt::join(waits, ", "));
  w.line("constexpr int kStepCount = {}, kStepEvents = {}, kSideStreams = {};", launches.size(), event_count, streams - 1);
}

void emit_phase_kernels(SourceWriter& w, const Plan& plan) {
  w.line("static_assert(rk::kControlBytes == {}, \"control block\");", kControlBytes);
  w.open("const tamp_host::PhaseKernel kPhaseKernels[] =");
  for (const BodyName& body : plan.bodies) w.line("tamp_host::phase_kernel_of<{}>(),", body.name);
  if (plan.bodies.empty()) w.line("{{}}");
  w.close(";");
  w.line("const tamp_host::Phases kPhases = {{kPhaseKernels, {}, kSteps, kStepCount, kStepWaits, kStepEvents, kSideStreams}};",
         plan.bodies.size());
}

}  // namespace tamp::codegen
