#include "compiler/schedule/simulate.h"

#include <algorithm>
#include <functional>
#include <queue>
#include <utility>

#include "compiler/schedule/clocks.h"
#include "compiler/schedule/streams.h"
#include "compiler/schedule/timetable.h"
#include "compiler/schedule/words.h"
#include "compiler/support/error.h"

namespace tamp::schedule {
namespace {

constexpr int kPasses = 2;       // with more passes the times of ten networks change by less than half a percent (docs/adr/0011)
constexpr size_t kTicks = 4096;  // a run is cut into so many parts for counting busy vEUs

}  // namespace

Simulator::Simulator(const select::Machine& machine) : machine_(machine), words_us_(edges_of(machine.vdevice).words_us) {}

void Simulator::Signals::add(double us, int32_t veu) {
  ++count;
  if (veu == latest_veu) {
    latest_us = std::max(latest_us, us);
  } else if (latest_veu < 0 || us > latest_us) {
    if (latest_veu >= 0) other_us = latest_us;
    latest_us = us, latest_veu = veu;
  } else {
    other_us = std::max(other_us, us);
  }
}

double Simulator::Signals::seen_us(int32_t veu, const ShapedVDevice& d, std::optional<double> words_us) const {
  if (latest_veu < 0) return 0;
  if (words_us) return latest_us + *words_us;
  // Signals of one event are added one after another; signals of many vEUs come behind many stores.
  const double share = std::min(1.0, static_cast<double>(count) / static_cast<double>(d.veus()));
  const double edge_us = d.edge_us - d.edge_spread_us * (1 - share);
  if (veu != latest_veu) return latest_us + edge_us;
  return std::max(latest_us + d.same_veu_us, other_us > 0 ? other_us + edge_us : 0.0);
}

void Simulator::take_steps(const std::vector<const RKernel*>& rkernels) {
  steps_.clear();
  first_step_.clear();
  first_span_.clear();
  const int64_t veus = machine_.vdevice.veus();
  size_t spans = 0;
  for (size_t i = 0; i < rkernels.size(); ++i) {
    first_step_.push_back(steps_.size());
    for (const Phase& phase : rkernels[i]->phases) {
      const int64_t beside = rkernels[i]->gang ? rkernels[i]->rtasks() : phase.rtasks;
      first_span_.push_back(spans);
      spans += static_cast<size_t>(phase.rtasks);
      steps_.push_back({&phase, static_cast<int32_t>(i), rkernels[i]->gang, std::clamp<int64_t>(beside, 1, veus), {}});
    }
  }
  spans_.assign(spans, Span{});
  items_.clear();
  boundaries_.clear();
  gang_items_.assign(rkernels.size(), {});
}

// Fills waits_: per step, the numbers of the steps that it waits for. A gang is represented by its first step.
void Simulator::collect_waits(const Draft& draft) {
  waits_.clear();
  step_waits_begin_.clear();
  for (size_t s = 0; s < steps_.size(); ++s) {
    step_waits_begin_.push_back(static_cast<int32_t>(waits_.size()));
    const auto rop = static_cast<size_t>(steps_[s].rop);
    size_t before = s;
    while (before > first_step_[rop] && steps_[before - 1].phase->rtasks == 0) --before;
    if (before > first_step_[rop] && !steps_[s].gang) {
      waits_.push_back({static_cast<int32_t>(before - 1), false});
      continue;
    }
    for (const ROperatorId producer : draft.waits[rop]) {
      const auto& phases = draft.rkernels[producer.index()]->phases;
      size_t last = phases.size();
      while (last > 0 && phases[last - 1].rtasks == 0) --last;
      if (last == 0) continue;
      const bool gang = draft.rkernels[producer.index()]->gang;
      const size_t step = first_step_[producer.index()] + (gang ? 0 : last - 1);
      waits_.push_back({static_cast<int32_t>(step), may_be_in_words(*steps_[step].phase, *steps_[s].phase)});
    }
  }
  step_waits_begin_.push_back(static_cast<int32_t>(waits_.size()));
}

void Simulator::take_lanes(const Draft& draft) {
  collect_waits(draft);
  events_ = steps_.size();
  boundaries_ = draft.boundaries;
  items_.reserve(draft.order.size());
  for (const Placed& placed : draft.order) {
    const size_t s = step_of(placed.rtask.rop, placed.rtask.phase);
    const size_t signal = steps_[s].gang ? first_step_[placed.rtask.rop.index()] : s;
    if (steps_[s].gang) gang_items_[placed.rtask.rop.index()].push_back(items_.size());
    items_.push_back({static_cast<int32_t>(placed.veu.index()), static_cast<int32_t>(s), step_waits_begin_[s], step_waits_begin_[s + 1],
                      static_cast<int32_t>(signal), static_cast<int64_t>(first_span_[s]) + placed.rtask.index});
  }
}

void Simulator::take_lanes(const RProgram& program) {
  const Clocks clocks(program);
  TAMP_CHECK(clocks.is_complete(), "simulation of a rProgram that cannot end");
  waits_.clear();
  events_ = program.events.size();
  // Per event: the phase whose rTasks signal it; null where there are several.
  constexpr const Phase* kSeveral = nullptr;
  std::vector<std::optional<const Phase*>> signaller(events_);
  const auto phase_of = [&](const Instruction& instruction) {
    const RTask& t = instruction.rtask;
    return t.rop.valid() ? steps_[step_of(t.rop, t.phase)].phase : kSeveral;
  };
  for (const auto& lane : program.lanes) {
    for (const Instruction& instruction : lane) {
      if (!instruction.signal.valid()) continue;
      std::optional<const Phase*>& known = signaller[instruction.signal.index()];
      known = known && *known != phase_of(instruction) ? kSeveral : phase_of(instruction);
    }
  }
  for (const At at : clocks.order()) {
    const Instruction& instruction = program.lanes[static_cast<size_t>(at.veu)][static_cast<size_t>(at.position)];
    Item item;
    item.veu = at.veu;
    item.waits_begin = static_cast<int32_t>(waits_.size());
    for (const EventId id : instruction.waits) {
      const Phase* const maker = signaller[id.index()].value_or(kSeveral);
      const Phase* const reader = phase_of(instruction);
      waits_.push_back({static_cast<int32_t>(id.index()), maker != nullptr && reader != nullptr && may_be_in_words(*maker, *reader)});
    }
    item.waits_end = static_cast<int32_t>(waits_.size());
    if (instruction.signal.valid()) item.signal = static_cast<int32_t>(instruction.signal.index());
    if (instruction.rtask.rop.valid()) {
      const size_t s = step_of(instruction.rtask.rop, instruction.rtask.phase);
      item.step = static_cast<int32_t>(s);
      item.span = static_cast<int64_t>(first_span_[s]) + instruction.rtask.index;
      if (steps_[s].gang) gang_items_[instruction.rtask.rop.index()].push_back(items_.size());
    }
    items_.push_back(item);
  }
}

void Simulator::take_kernels(const RProgram& program) {
  kernels_.clear();
  for (const PhaseLaunch& launch : *program.launches)
    kernels_.push_back({static_cast<int32_t>(step_of(launch.rop, launch.phase)), launch.after, launch.dependent});
}

// As launches_of makes them, but without the dependencies of memory that is used again, which a plan does not know of.
void Simulator::take_kernels(const Draft& draft) {
  collect_waits(draft);
  kernels_.clear();
  std::vector<int32_t> kernel_of(steps_.size(), -1);
  std::vector<std::pair<int32_t, int32_t>> place(draft.rkernels.size(), {0, 0});  // stage, group
  for (size_t i = 0; i < draft.stages.size(); ++i) {
    for (size_t g = 0; g < draft.stages[i].size(); ++g) {
      for (const ROperatorId id : draft.stages[i][g]) place[id.index()] = {static_cast<int32_t>(i), static_cast<int32_t>(g)};
    }
  }
  std::vector<int32_t> this_stage, stage_before;
  int32_t stage = 0;
  for (const Placed& placed : draft.order) {
    const size_t s = step_of(placed.rtask.rop, placed.rtask.phase);
    if (kernel_of[s] >= 0) continue;
    const auto n = static_cast<int32_t>(kernels_.size());
    kernel_of[s] = n;
    Kernel kernel{static_cast<int32_t>(s), {}, false};
    for (int32_t w = step_waits_begin_[s]; w < step_waits_begin_[s + 1]; ++w)
      kernel.after.push_back(kernel_of[static_cast<size_t>(waits_[static_cast<size_t>(w)].event)]);
    if (!draft.stages.empty()) {
      const auto [my_stage, my_group] = place[placed.rtask.rop.index()];
      if (my_stage != stage) stage_before = std::exchange(this_stage, {}), stage = my_stage;
      kernel.after.insert(kernel.after.end(), stage_before.begin(), stage_before.end());
      for (const int32_t other : this_stage) {
        const auto rop = static_cast<size_t>(steps_[static_cast<size_t>(kernels_[static_cast<size_t>(other)].step)].rop);
        if (place[rop].second == my_group) kernel.after.push_back(other);
      }
      this_stage.push_back(n);
    }
    kernels_.push_back(std::move(kernel));
  }
  if (!machine_.vdevice.dependent_kernel_edge_us) return;
  Streams streams(kernels_.size());
  for (Kernel& kernel : kernels_) kernel.dependent = streams.add(kernel.after).can_be_dependent;
}

double Simulator::run(const Draft& draft, Execution execution) {
  take_steps(draft.rkernels);
  if (execution == Execution::graph)
    take_kernels(draft);
  else
    take_lanes(draft);
  return passes(execution == Execution::graph);
}

double Simulator::run(const RProgram& program) {
  std::vector<const RKernel*> rkernels;
  for (const RKernel& rkernel : program.rkernels) rkernels.push_back(&rkernel);
  take_steps(rkernels);
  if (program.launches)
    take_kernels(program);
  else
    take_lanes(program);
  return passes(program.launches.has_value());
}

double Simulator::passes(bool by_kernels) {
  for (int pass = 0; pass < kPasses; ++pass) {
    if (pass > 0) count_active();
    for (Step& step : steps_) {
      if (step.phase->rtasks > 0) step.cost = select::cost_of(*step.phase, machine_, step.active);
    }
    end_us_ = 0;
    veus_.assign(static_cast<size_t>(machine_.vdevice.veus()), {});
    if (by_kernels)
      pass_kernels();
    else
      pass_lanes();
  }
  for (Span& span : spans_) span.begin_us += machine_.vdevice.launch_us, span.end_us += machine_.vdevice.launch_us;
  return end_us_ + machine_.vdevice.launch_us;
}

double Simulator::ready_us(const Item& item) const {
  double us = 0;
  for (int32_t w = item.waits_begin; w < item.waits_end; ++w) {
    const Wait& wait = waits_[static_cast<size_t>(w)];
    const std::optional<double> words_us = wait.in_words ? std::optional(words_us_) : std::nullopt;
    us = std::max(us, signals_[static_cast<size_t>(wait.event)].seen_us(item.veu, machine_.vdevice, words_us));
  }
  return us;
}

// When the first rTask of a gang is met, every rTask of the gang is the next one on its vEU.
double Simulator::begin_of_gang(size_t item) const {
  double us = 0;
  for (const size_t member : gang_items_[static_cast<size_t>(steps_[static_cast<size_t>(items_[item].step)].rop)])
    us = std::max({us, ready_us(items_[member]), veus_[static_cast<size_t>(items_[member].veu)].free_us});
  return us;
}

void Simulator::pass_lanes() {
  const ShapedVDevice& d = machine_.vdevice;
  signals_.assign(events_, {});
  gang_begin_us_.assign(gang_items_.size(), -1);
  newest_step_.assign(veus_.size(), -1);
  Signals part, boundary;
  size_t next_boundary = 0;
  for (size_t n = 0; n < items_.size(); ++n) {
    const Item& item = items_[n];
    if (next_boundary < boundaries_.size() && boundaries_[next_boundary] == n) {
      boundary = std::exchange(part, {});
      ++next_boundary;
    }
    select::VEUTime& veu = veus_[static_cast<size_t>(item.veu)];
    // The last rTask of a phase on a vEU signals. What comes next on that vEU waits until the stores before the signal are seen, but for
    // rTasks with words, which another warp signals for.
    const int32_t before = std::exchange(newest_step_[static_cast<size_t>(item.veu)], item.step);
    const bool signals_apart = before >= 0 && !steps_[static_cast<size_t>(before)].phase->may_publish.empty();
    if (before >= 0 && before != item.step && !signals_apart) veu.free_us += d.signal_us;
    double ready = ready_us(item);
    if (next_boundary > 0) ready = std::max(ready, boundary.seen_us(item.veu, d, /*words_us=*/std::nullopt));
    if (item.step >= 0) {
      const Step& step = steps_[static_cast<size_t>(item.step)];
      if (step.gang) {
        double& begin_us = gang_begin_us_[static_cast<size_t>(step.rop)];
        if (begin_us < 0) begin_us = std::max(begin_of_gang(n), ready);
        ready = begin_us;
      }
      veu = select::after(veu, step.cost, ready);
      spans_[static_cast<size_t>(item.span)] = {veu.began_us, veu.free_us};
    } else {
      veu.free_us = std::max(veu.free_us, ready);
    }
    end_us_ = std::max(end_us_, veu.free_us);
    if (item.signal >= 0) signals_[static_cast<size_t>(item.signal)].add(veu.free_us, item.veu);
    if (!boundaries_.empty()) part.add(veu.free_us, item.veu);
    veu.free_us += d.same_veu_us;
  }
}

// Of the kernels whose predecessors have been placed, the one that can begin first is next. Its blocks go to the vEUs that are free first.
void Simulator::pass_kernels() {
  const ShapedVDevice& d = machine_.vdevice;
  std::vector<std::vector<int32_t>> before(kernels_.size());  // kernels that are after this one
  std::vector<size_t> missing(kernels_.size());
  std::vector<double> ready(kernels_.size(), 0);
  using Ready = std::pair<double, size_t>;
  std::priority_queue<Ready, std::vector<Ready>, std::greater<>> next;
  for (size_t n = 0; n < kernels_.size(); ++n) {
    for (const int32_t m : kernels_[n].after) before[static_cast<size_t>(m)].push_back(static_cast<int32_t>(n));
    missing[n] = kernels_[n].after.size();
    if (missing[n] == 0) next.emplace(0.0, n);
  }
  std::priority_queue<Ready, std::vector<Ready>, std::greater<>> idle;
  for (size_t veu = 0; veu < veus_.size(); ++veu) idle.emplace(0.0, veu);
  while (!next.empty()) {
    const auto [ready_us, n] = next.top();
    next.pop();
    const auto s = static_cast<size_t>(kernels_[n].step);
    const double factor = steps_[s].phase->cost.kernel_factor;
    double end_us = ready_us;
    for (size_t index = 0; index < static_cast<size_t>(steps_[s].phase->rtasks); ++index) {
      const auto [free_us, veu] = idle.top();
      idle.pop();
      const double begin_us = std::max(free_us, ready_us);
      // The loader of these blocks cannot fetch anything before the kernel begins.
      const double us = select::after({begin_us, begin_us, begin_us}, steps_[s].cost, begin_us).free_us - begin_us;
      const double done_us = begin_us + us * factor;
      spans_[first_span_[s] + index] = {begin_us, done_us};
      end_us = std::max(end_us, done_us);
      idle.emplace(done_us + d.same_veu_us, veu);
    }
    end_us_ = std::max(end_us_, end_us);
    for (const int32_t m : before[n]) {
      const double edge_us =
          kernels_[static_cast<size_t>(m)].dependent ? d.dependent_kernel_edge_us.value_or(d.kernel_edge_us) : d.kernel_edge_us;
      ready[static_cast<size_t>(m)] = std::max(ready[static_cast<size_t>(m)], end_us + edge_us);
      if (--missing[static_cast<size_t>(m)] == 0) next.emplace(ready[static_cast<size_t>(m)], static_cast<size_t>(m));
    }
  }
}

// Sets Step::active: the mean number of busy vEUs from the begin of the step's first rTask to the end of its last one.
void Simulator::count_active() {
  if (end_us_ <= 0) return;
  const double per_us = static_cast<double>(kTicks) / end_us_;
  const auto tick = [&](double us) { return std::min(kTicks, static_cast<size_t>(us * per_us)); };
  busy_.assign(kTicks + 2, 0);
  for (const Span& span : spans_) {
    busy_[tick(span.begin_us) + 1] += 1;
    busy_[tick(span.end_us) + 1] -= 1;
  }
  for (size_t t = 1; t < busy_.size(); ++t) busy_[t] += busy_[t - 1];  // busy in tick t-1
  for (size_t t = 1; t < busy_.size(); ++t) busy_[t] += busy_[t - 1];  // and in all ticks before tick t
  for (size_t s = 0; s < steps_.size(); ++s) {
    const auto rtasks = static_cast<size_t>(steps_[s].phase->rtasks);
    if (rtasks == 0) continue;
    double begin_us = end_us_, last_us = 0;
    for (size_t i = first_span_[s]; i < first_span_[s] + rtasks; ++i) {
      begin_us = std::min(begin_us, spans_[i].begin_us);
      last_us = std::max(last_us, spans_[i].end_us);
    }
    const size_t begin = tick(begin_us), end = tick(last_us);
    if (end <= begin) continue;  // too short to be counted: keeps its value
    const double mean = (busy_[end] - busy_[begin]) / static_cast<double>(end - begin);
    steps_[s].active = std::clamp<int64_t>(static_cast<int64_t>(mean + 0.5), 1, machine_.vdevice.veus());
  }
}

Timeline timeline(const RProgram& program) {
  const ShapedVDevice vdevice = program.vdevice.for_estimates();
  Simulator simulator(select::machine_for(program.graph, vdevice, program.precision));
  Timeline result;
  result.us = simulator.run(program);
  for (const auto& lane : program.lanes) {
    std::vector<Span>& spans = result.lanes.emplace_back();
    for (const Instruction& instruction : lane) {
      const double before_us = spans.empty() ? program.vdevice.launch_us : spans.back().end_us;
      spans.push_back(instruction.rtask.rop.valid() ? simulator.span_of(instruction.rtask) : Span{before_us, before_us});
    }
  }
  return result;
}

// Whether an rOperator is squeeze-and-excite, with the depthwise convolution in front of it: small maps like those of convolutions.
bool is_excitation(const ROperator& rop) {
  return std::holds_alternative<ChannelSqueeze>(rop.attrs) || std::holds_alternative<ChannelExcite>(rop.attrs);
}

Simulator::Shares Simulator::shares(const Graph& graph) const {
  constexpr double kNearlyAll = 0.9;
  Shares us;
  double all_us = 0;
  for (size_t s = 0; s < steps_.size(); ++s) {
    const Phase& phase = *steps_[s].phase;
    const std::span<const Span> spans(spans_.data() + first_span_[s], static_cast<size_t>(phase.rtasks));
    if (spans.empty()) continue;
    const double begin_us = std::ranges::min(spans, {}, &Span::begin_us).begin_us,
                 end_us = std::ranges::max(spans, {}, &Span::end_us).end_us;
    all_us += end_us - begin_us;
    if (static_cast<double>(phase.rtasks) >= kNearlyAll * static_cast<double>(machine_.vdevice.veus())) us.full += end_us - begin_us;
    if (phase.boxes || is_excitation(graph.rops[static_cast<size_t>(steps_[s].rop)])) us.maps += end_us - begin_us;
  }
  return all_us > 0 ? Shares{us.full / all_us, us.maps / all_us} : Shares{};
}

// Whether neighbouring vEUs are to be put on neighbouring SMs was measured (docs/log/2026-11-23.md, "Which vEU a block is"). It pays in
// networks that are convolutions nearly all the time, fill the GPU for a part of it, and are not bound by their weights. Others are faster
// as the blocks come, which spreads few rTasks over all of the GPU.
namespace {

// Weights that do not stay in L2 leave it before anything else does: each is read once an inference, and what they would drive out (code,
// activations, tables) is read by many SMs at the moment at which all wait. Few weights stay, but more where the program waits for device
// memory itself. On an H200 (docs/adr/0036) resnet50 takes 222 us in tf32 with 0.15 and 227 with 0.4, and alexnet, which copies 1.9 MB of
// weights a microsecond, 66.5 and 64.7 in fp16.
double weights_in_l2(const RProgram& program, double us) {
  constexpr double kManyBytes = 1e6;  // of a microsecond
  double copied = 0;
  for (const RKernel& rkernel : program.rkernels) {
    for (const Phase& phase : rkernel.phases)
      copied += static_cast<double>(phase.ring.chunk_bytes * phase.ring.chunks_per_rtask * phase.ring.blocks);
  }
  return copied > kManyBytes * us ? kManyWeightsInL2 : kFewWeightsInL2;
}

}  // namespace

void estimate(RProgram& program) {
  constexpr double kLeastFull = 0.1, kLeastMaps = 0.8, kMostWeightBytes = 3e5;  // bytes: of a microsecond
  Simulator simulator(select::machine_for(program.graph, program.vdevice, program.precision));
  const double us = simulator.run(program);  // by the costs that choose
  const Simulator::Shares shares = simulator.shares(program.graph);
  program.veus_by_sm = !program.launches && program.vdevice.cluster_veus == 1 && shares.full >= kLeastFull && shares.maps >= kLeastMaps &&
                       static_cast<double>(program.weight_bytes) < kMostWeightBytes * us;
  program.weights_in_l2 = weights_in_l2(program, us);
  program.estimated_us = simulate(program);
}

double simulate(const RProgram& program) {
  const ShapedVDevice vdevice = program.vdevice.for_estimates();
  return Simulator(select::machine_for(program.graph, vdevice, program.precision)).run(program);
}

}  // namespace tamp::schedule
