// Host side of recurrent_gang.cuh. Phase p is cell p, its rTask s is share s: hidden units [s * units, (s + 1) * units).
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "compiler/support/error.h"
#include "kernels/args.h"
#include "kernels/family.h"
#include "kernels/loop.h"
#include "kernels/narrow.h"
#include "kernels/recurrent/recurrent_gang_image.h"
#include "kernels/recurrent/recurrent_gang_plan.h"

namespace tamp::kernels {
namespace {

const Recurrent& recurrent_of(const ROperator& rop) { return std::get<Recurrent>(rop.attrs); }

TensorId input_of(const ROperator& rop, int32_t place) { return place < 0 ? TensorId() : rop.inputs[static_cast<size_t>(place)]; }
TensorId output_of(const ROperator& rop, int32_t place) { return place < 0 ? TensorId() : rop.outputs[static_cast<size_t>(place)]; }

std::vector<int64_t> input_sizes_of(const Graph& graph, const ROperator& rop) {
  std::vector<int64_t> sizes;
  for (const RecurrentCell& cell : recurrent_of(rop).cells) {
    sizes.push_back(cell.x_cell >= 0 ? recurrent_of(rop).cells[static_cast<size_t>(cell.x_cell)].hidden
                                     : graph.tensor(input_of(rop, cell.x)).shape[2]);
  }
  return sizes;
}

// --- what is accepted -----------------------------------------------------------------------------------------------------

bool is_plain_i32(Tensor tensor) {
  if (tensor.dtype != DType::i32) return false;
  tensor.dtype = DType::f32;
  return is_plain_f32(tensor);
}

// Places of tensors left out.
bool has_constant_weights(const Graph& graph, const ROperator& rop) {
  const auto constant_or_none = [&](int32_t place) {
    return place < 0 ||
           (graph.tensor(input_of(rop, place)).role == Role::constant && graph.tensor(input_of(rop, place)).dtype == DType::f32);
  };
  for (const RecurrentCell& cell : recurrent_of(rop).cells) {
    for (const int32_t weights : {cell.w, cell.r, cell.bias, cell.peepholes}) {
      if (!constant_or_none(weights)) return false;
    }
    if (cell.r < 0 || (cell.w < 0) != cell.x_is_gates) return false;
  }
  return true;
}

bool is_accepted(const Graph& graph, const ROperator& rop) {
  if (!std::holds_alternative<Recurrent>(rop.attrs) || has_epilogue(rop) || !has_constant_weights(graph, rop)) return false;
  const auto plain_or_none = [&](TensorId id) { return !id.valid() || is_plain_f32(graph.tensor(id)); };
  for (const RecurrentCell& cell : recurrent_of(rop).cells) {
    for (const int32_t in : {cell.x, cell.h0, cell.c0}) {
      if (!plain_or_none(input_of(rop, in))) return false;
    }
    for (const int32_t out : {cell.y, cell.y_h, cell.y_c}) {
      if (!plain_or_none(output_of(rop, out))) return false;
    }
    if (cell.lengths >= 0 && !is_plain_i32(graph.tensor(input_of(rop, cell.lengths)))) return false;
  }
  return true;
}

// --- between a plan and a rKernel --------------------------------------------------------------------------------------------

using Member = int64_t GangShape::*;
constexpr std::pair<const char*, Member> kConfig[] = {
    {"units", &GangShape::units},       {"lane_rows", &GangShape::lane_rows},
    {"split", &GangShape::split},       {"r_registers", &GangShape::r_registers},
    {"r_shared", &GangShape::r_shared}, {"w_shared", &GangShape::w_shared},
    {"batch", &GangShape::batch},       {"weights", &GangShape::weights},
};

void append_config(const GangPlan& plan, RKernel& rkernel) {
  for (size_t c = 0; c < plan.cells.size(); ++c) {
    for (const auto& [name, member] : kConfig) rkernel.config.emplace_back(fmt::format("{} {}", name, c), plan.cells[c].shape.*member);
  }
}

GangPlan plan_of(const Graph& graph, const ROperator& rop, const RKernel& rkernel) {
  const Recurrent& recurrent = recurrent_of(rop);
  const std::vector<int64_t> input_sizes = input_sizes_of(graph, rop);
  GangPlan plan;
  auto number = rkernel.config.begin();
  for (size_t c = 0; c < recurrent.cells.size(); ++c) {
    const RecurrentCell& cell = recurrent.cells[c];
    GangCell gang;
    GangShape& s = gang.shape;
    s.kind = device_kind(cell.kind);
    s.from = input_kind(cell);
    s.input = cell.x_is_gates ? 0 : input_sizes[c];
    s.hidden = cell.hidden;
    for (const auto& row : kConfig) s.*row.second = (number++)->second;
    s.all_rows = recurrent.batch;
    s.alone = s.units == s.hidden;
    s.plain = is_plain(cell);
    gang.shares = ceil_div(s.hidden, s.units);
    plan.cells.push_back(gang);
  }
  place_words(recurrent, plan);
  return plan;
}

// --- arguments -------------------------------------------------------------------------------------------------------------

class Arguments {
 public:
  Arguments(const Graph& graph, const ROperator& rop, const GangPlan& plan, size_t c)
      : graph_(graph), rop_(rop), plan_(plan), cell_(recurrent_of(rop).cells[c]), own_(plan.cells[c]) {}

  std::vector<Arg> list() const {
    const RecurrentCell& cell = cell_;
    const TensorId x = in(cell.x), y = out(cell.y), y_h = out(cell.y_h), y_c = out(cell.y_c), h0 = in(cell.h0), c0 = in(cell.c0);
    const TensorId lengths = in(cell.lengths);
    const int64_t direction = cell.reverse ? -1 : 1;
    return {
        {"image", arg_of(PackedArg{0})},
        {"x", cell.x_cell >= 0 ? words(source(cell.x_cell).own_words) : sequence(x)},
        {"own", own_.publishes ? words(own_.own_words) : null_arg()},
        {"last_c", own_.publishes_c ? words(own_.c_words) : null_arg()},
        {"y", sequence(y)},
        {"y_h", tensor(y_h)},
        {"y_c", tensor(y_c)},
        {"lengths", tensor(lengths)},
        {"h0", cell.h0_cell >= 0 ? words(last_words(cell.h0_cell)) : tensor(h0)},
        {"c0", cell.c0_cell >= 0 ? words(source(cell.c0_cell).c_words) : tensor(c0)},
        {"h0_is_words", arg(int64_t{cell.h0_cell >= 0})},
        {"c0_is_words", arg(int64_t{cell.c0_cell >= 0})},
        {"publishes", arg(int64_t{own_.publishes})},
        {"share_floats", arg(own_.shape.image_floats())},
        {"steps", cell.end ? ArgValue{ExtentArg{{*cell.end}}} : arg(cell.steps)},
        {"x_t", arg(direction * stride(x, 0))},
        {"x_b", arg(stride(x, 1))},
        {"x_k", arg(stride(x, 2))},
        {"y_t", arg(direction * stride(y, 0))},
        {"y_b", arg(stride(y, 1))},
        {"y_k", arg(stride(y, 2))},
        {"y_h_b", arg(stride(y_h, 0))},
        {"y_h_k", arg(stride(y_h, 1))},
        {"y_c_b", arg(stride(y_c, 0))},
        {"y_c_k", arg(stride(y_c, 1))},
        {"h0_b", arg(cell.h0_cell >= 0 ? source(cell.h0_cell).word_row : stride(h0, 0))},
        {"h0_k", arg(cell.h0_cell >= 0 ? 1 : stride(h0, 1))},
        {"c0_b", arg(cell.c0_cell >= 0 ? source(cell.c0_cell).word_row : stride(c0, 0))},
        {"c0_k", arg(cell.c0_cell >= 0 ? 1 : stride(c0, 1))},
        {"lengths_b", arg(stride(lengths, 0))},
        {"reverse", arg(int64_t{cell.reverse})},
        {"has_peepholes", arg(int64_t{cell.peepholes >= 0})},
        {"input_forget", arg(int64_t{cell.input_forget})},
        {"clip", float_arg(cell.clip)},
        {"functions", functions()},
    };
  }

 private:
  TensorId in(int32_t place) const { return input_of(rop_, place); }
  TensorId out(int32_t place) const { return output_of(rop_, place); }
  int64_t stride(TensorId id, size_t dim) const { return id.valid() ? graph_.tensor(id).place.strides[dim] : 0; }
  const GangCell& source(int32_t cell) const { return plan_.cells[static_cast<size_t>(cell)]; }

  template <class T>
  static ArgValue arg_of(const T& value) {
    return ArgValue{value};
  }
  static ArgValue words(int64_t at) { return arg_of(ExchangeArg{at}); }
  ArgValue tensor(TensorId id) const { return tensor_arg(id); }
  // [T, ...], walked backwards if the cell runs backwards.
  ArgValue sequence(TensorId id) const {
    if (!id.valid()) return null_arg();
    return arg(TensorArg{id, cell_.reverse ? (cell_.steps - 1) * stride(id, 0) : 0});
  }
  int64_t last_words(int32_t cell) const {
    const Recurrent& recurrent = recurrent_of(rop_);
    return source(cell).own_words + (recurrent.cells[static_cast<size_t>(cell)].steps - 1) * source(cell).word_step;
  }
  ArgValue functions() const {
    ArgList list;
    for (const CellFunction& f : cell_.functions) {
      list.push_back(struct_arg({{"kind", arg(static_cast<int64_t>(f.kind))}, {"a", float_arg(f.a)}, {"b", float_arg(f.b)}}));
    }
    return ArgValue{list};
  }

  const Graph& graph_;
  const ROperator& rop_;
  const GangPlan& plan_;
  const RecurrentCell& cell_;
  const GangCell& own_;
};

std::vector<std::pair<std::string, std::string>> template_args_of(const GangShape& s) {
  const auto text = [](int64_t v) { return std::to_string(v); };
  return {
      {"KIND", text(s.kind)},         {"FROM", text(s.from)},         {"INPUT", text(s.input)},       {"HIDDEN", text(s.hidden)},
      {"UNITS", text(s.units)},       {"ROWS", text(s.lane_rows)},    {"SPLIT", text(s.split)},       {"R_REGISTERS", text(s.r_registers)},
      {"R_SHARED", text(s.r_shared)}, {"W_SHARED", text(s.w_shared)}, {"ALL_ROWS", text(s.all_rows)}, {"BATCH", text(s.batch)},
      {"ALONE", text(s.alone)},       {"PLAIN", text(s.plain)},       {"WEIGHTS", text(s.weights)}};
}

// For the report: how much of the weights has no place on chip.
std::string streamed_text(const GangPlan& plan) {
  int64_t streamed = 0, all = 0;
  for (const GangCell& cell : plan.cells) {
    const GangShape& s = cell.shape;
    streamed += cell.shares * s.chunk_floats() * (s.stream_h() + s.stream_x());
    all += cell.shares * s.chunk_floats() * (s.chunks_h() + s.chunks_x());
  }
  return streamed == 0 ? "" : fmt::format(", {} % of the weights read in each step", (100 * streamed + all - 1) / all);
}

RKernel rkernel_of(const Request& request, const GangPlan& plan) {
  RKernel rkernel;
  rkernel.gang = true;
  rkernel.exchange_words = plan.exchange_words;
  append_config(plan, rkernel);
  for (size_t c = 0; c < plan.cells.size(); ++c) {
    const GangCell& cell = plan.cells[c];
    Phase phase = body_phase("kernels/recurrent/recurrent_gang.cuh", "rk::recurrent_gang", "rk::GangArgs");
    phase.template_args = template_args_of(cell.shape);
    phase.args = Arguments(request.graph, request.rop, plan, c).list();
    phase.rtasks = cell.shares;
    phase.work_bytes = cell.work_bytes;
    phase.cost.latency_us = cell.end_us;  // all of it: weights, arithmetic and waiting overlap
    rkernel.phases.push_back(std::move(phase));
  }
  const GangShape& first = plan.cells[0].shape;
  const char* const kinds[] = {"", ", fp16 weights", ", bf16 weights"};
  rkernel.name =
      fmt::format("recurrent_gang<{} {}, {} units a share, {} shares{}{}>", plan.cells.size(),
                  name_of(recurrent_of(request.rop).cells[0].kind), first.units, plan.shares, kinds[first.weights], streamed_text(plan));
  return rkernel;
}

// rk::GangWeights of a precision.
int64_t weights_of(Precision precision) {
  return precision == Precision::fp16 ? rk::kHalves : precision == Precision::bf16 ? rk::kBfloats : rk::kFloats;
}

// The weights' type that the precision asks for, if the values of the weights allow it.
int64_t weights_of(const Request& request) {
  if (request.precision != Precision::fp16) return weights_of(request.precision);
  for (const RecurrentCell& cell : recurrent_of(request.rop).cells) {
    for (const int32_t place : {cell.w, cell.r}) {
      if (place < 0) continue;
      const Tensor& tensor = request.graph.tensor(input_of(request.rop, place));
      if (!halves_hold(tensor.data)) return rk::kFloats;
    }
  }
  return weights_of(request.precision);
}

std::vector<RKernel> list_candidates(const Request& request) {
  if (!is_accepted(request.graph, request.rop)) return {};
  const std::vector<int64_t> input_sizes = input_sizes_of(request.graph, request.rop);
  std::vector<RKernel> rkernels;
  const int64_t weights = weights_of(request);
  int64_t shares_before = 0;
  // With fewer vEUs some are left for rOperators that run beside this one.
  for (int64_t veus = request.vdevice.veus(); veus > 0; veus /= 2) {
    const std::optional<GangPlan> plan = plan_gang(recurrent_of(request.rop), input_sizes, request.vdevice, weights, veus);
    if (!plan) break;
    if (plan->shares != shares_before) rkernels.push_back(rkernel_of(request, *plan));
    shares_before = plan->shares;
  }
  return rkernels;
}

// --- accesses ----------------------------------------------------------------------------------------------------------------

// Units [begin, end) of the last dimension, all of the others.
void append_units(const Graph& graph, TensorId id, int64_t begin, int64_t end, std::vector<Region>& regions) {
  if (!id.valid()) return;
  std::vector<int64_t> low(graph.tensor(id).shape.size(), 0), high = graph.tensor(id).shape;
  low.back() = begin;
  high.back() = end;
  append_box(graph, id, low, high, regions);
}

// Units [begin, end) of all rows of `steps` steps.
Run words_of(const GangCell& cell, int64_t batch, int64_t first_step, int64_t steps, int64_t begin, int64_t end) {
  return Run{cell.own_words + first_step * cell.word_step + begin, steps * batch, cell.word_row, end - begin};
}

void append_words(const GangPlan& plan, const Recurrent& recurrent, size_t c, int64_t begin, int64_t end, Accesses& out) {
  const RecurrentCell& cell = recurrent.cells[c];
  const GangCell& own = plan.cells[c];
  const int64_t batch = recurrent.batch;
  const auto last_c = [&](const GangCell& of) { return Run{of.c_words + begin, batch, of.word_row, end - begin}; };
  const auto source = [&](int32_t other) -> const GangCell& { return plan.cells[static_cast<size_t>(other)]; };
  if (own.publishes) out.publishes.push_back(words_of(own, batch, 0, cell.steps, begin, end));
  if (own.publishes_c) out.publishes.push_back(last_c(own));
  if (!own.shape.alone && cell.steps > 1) out.awaits.push_back(words_of(own, batch, 0, cell.steps - 1, 0, cell.hidden));
  if (cell.x_cell >= 0) out.awaits.push_back(words_of(source(cell.x_cell), batch, 0, cell.steps, 0, source(cell.x_cell).shape.hidden));
  if (cell.h0_cell >= 0) {
    const int64_t last_step = recurrent.cells[static_cast<size_t>(cell.h0_cell)].steps - 1;
    out.awaits.push_back(words_of(source(cell.h0_cell), batch, last_step, 1, 0, cell.hidden));
  }
  if (cell.c0_cell >= 0) out.awaits.push_back(last_c(source(cell.c0_cell)));
}

void accesses(const Graph& graph, const ROperator& rop, const RKernel& rkernel, int phase, int64_t index, Accesses& out) {
  const Recurrent& recurrent = recurrent_of(rop);
  const GangPlan plan = plan_of(graph, rop, rkernel);
  const auto c = static_cast<size_t>(phase);
  const RecurrentCell& cell = recurrent.cells[c];
  const int64_t units = plan.cells[c].shape.units, hidden = cell.hidden;
  const int64_t begin = index * units, end = std::min(begin + units, hidden);
  if (cell.x_is_gates) {
    for (int64_t gate = 0; gate < gates_of(cell.kind); ++gate) {
      append_units(graph, input_of(rop, cell.x), gate * hidden + begin, gate * hidden + end, out.reads);
    }
  } else if (cell.x >= 0) {
    append_whole(graph, input_of(rop, cell.x), out.reads);
  }
  for (const int32_t whole : {cell.h0, cell.lengths}) {
    if (whole >= 0) append_whole(graph, input_of(rop, whole), out.reads);
  }
  append_units(graph, input_of(rop, cell.c0), begin, end, out.reads);
  for (const int32_t result : {cell.y, cell.y_h, cell.y_c}) append_units(graph, output_of(rop, result), begin, end, out.writes);
  append_words(plan, recurrent, c, begin, end, out);
}

Bytes pack(const Graph& graph, const ROperator& rop, const RKernel& rkernel, int phase) {
  const auto c = static_cast<size_t>(phase);
  const RecurrentCell& cell = recurrent_of(rop).cells[c];
  const auto data = [&](int32_t place) { return place < 0 ? nullptr : f32_data(graph.tensor(input_of(rop, place))); };
  return gang_image(plan_of(graph, rop, rkernel).cells[c], {data(cell.w), data(cell.r), data(cell.bias), data(cell.peepholes)});
}

// --- before tensors have places ------------------------------------------------------------------------------------------------

// All cells as one gang on the whole vDevice. Weights are as narrow as the precision says, whether or not their values allow it.
std::optional<Estimate> estimate_unplaced(const Request& request) {
  if (!std::holds_alternative<Recurrent>(request.rop.attrs) || !has_constant_weights(request.graph, request.rop)) return std::nullopt;
  const std::vector<int64_t> input_sizes = input_sizes_of(request.graph, request.rop);
  const std::optional<GangPlan> plan =
      plan_gang(recurrent_of(request.rop), input_sizes, request.vdevice, weights_of(request.precision), request.vdevice.veus());
  return plan ? std::optional(Estimate{plan->us}) : std::nullopt;
}

}  // namespace

Family recurrent_gang() { return {"recurrent_gang", list_candidates, pack, accesses, estimate_unplaced}; }

}  // namespace tamp::kernels
