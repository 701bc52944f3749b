#include "kernels/elementwise/static_chain.h"

#include <fmt/format.h>

#include <algorithm>

#include "kernels/args.h"
#include "kernels/elementwise/numbers.cuh"
#include "kernels/tile/numbers.cuh"

namespace tamp::kernels {
namespace {

constexpr size_t kInputs = rk::kStaticInputs;
using rk::functions::Speed;

bool has_blocks(const Sweep& sweep) { return sweep.loop.size() == 3; }
int64_t block_of(const Sweep& sweep, size_t operand) { return has_blocks(sweep) ? sweep.loop[0].strides[operand] : 0; }
int64_t row_of(const Sweep& sweep, size_t operand) {
  return sweep.loop.size() >= 2 ? sweep.loop[sweep.loop.size() - 2].strides[operand] : 0;
}
int64_t step_of(const Sweep& sweep, size_t operand) { return sweep.loop.back().strides[operand]; }

int64_t row_elements(const Sweep& sweep) { return sweep.loop.back().extent; }
int64_t row_groups(const Sweep& sweep) { return ceil_div(row_elements(sweep), 4); }
bool is_partial(const Sweep& sweep) { return row_elements(sweep) % 4 != 0; }

// Few values of a thread, and functions of a few instructions.
bool is_short(const Sweep& sweep) {
  const int64_t values = static_cast<int64_t>(sweep.chain.inputs.size()) + sweep.chain.temporaries;
  const auto is_wide = [](const ChainStep& step) { return row_of(static_cast<ElementwiseOp>(step.op)).speed == Speed::wide; };
  return values <= 4 && !is_partial(sweep) && std::all_of(sweep.chain.steps.begin(), sweep.chain.steps.end(), is_wide);
}

// Groups that a thread does at a time. Each possible number needs a body of its own, so there are few: 1, 2, and for rTasks of many groups
// as many as bring loads of about 128 bytes under way and leave registers for the chain.
int64_t groups_of_thread(const Sweep& sweep, int64_t groups_per_rtask, const ShapedVDevice& vdevice) {
  constexpr int64_t kManyTurns = 8;
  const int64_t values = static_cast<int64_t>(sweep.chain.inputs.size()) + sweep.chain.temporaries;
  if (is_short(sweep) && groups_per_rtask >= kManyTurns * 2 * vdevice.compute_threads) return values <= 2 ? 8 : 4;
  return groups_per_rtask > vdevice.compute_threads ? 2 : 1;
}

// Whether the last vector of the last row, the lanes behind the row included, lies in the operand's buffer.
bool ends_in_buffer(const Graph& graph, const Sweep& sweep, size_t operand) {
  const TensorId id = sweep.chain.inputs[operand - 1];
  if (!id.valid() || !graph.tensor(id).place.buffer.valid()) return false;
  int64_t end = first_element(graph, id) + sweep.starts[operand] + row_groups(sweep) * 4;
  for (size_t d = 0; d + 1 < sweep.loop.size(); ++d) end += (sweep.loop[d].extent - 1) * sweep.loop[d].strides[operand];
  return end <= graph.buffers[graph.tensor(id).place.buffer.index()].elements;
}

// Whether the lanes behind the operand's rows belong to no tensor, so that nobody writes them while they are read. All tensors of such a
// buffer have the same distance of rows, so columns are compared modulo that distance. Example: rows of 78 channels that begin 80 apart
// leave columns 78 and 79 free. If tensors of 78 and 2 channels are concatenated in the buffer, no column is free.
bool has_free_lanes(const Graph& graph, const Sweep& sweep, size_t operand) {
  const BufferId buffer = graph.tensor(sweep.chain.inputs[operand - 1]).place.buffer;
  const int64_t in_block = row_of(sweep, operand), block = block_of(sweep, operand);
  const int64_t row = in_block != 0 ? in_block : block != 0 ? block : graph.buffers[buffer.index()].elements;
  if (block % row != 0) return false;
  const int64_t start = (first_element(graph, sweep.chain.inputs[operand - 1]) + sweep.starts[operand]) % row;
  const int64_t begin = start + row_elements(sweep), end = start + row_groups(sweep) * 4;
  const auto is_elsewhere = [&](const Tensor& tensor) {
    if (tensor.place.buffer != buffer) return true;
    int64_t first = tensor.place.offset % row, last = first;
    for (size_t d = 0; d < tensor.shape.size(); ++d) {
      if (tensor.shape[d] <= 1 || tensor.place.strides[d] % row == 0) continue;
      if (tensor.place.strides[d] < 0) return false;
      last += (tensor.shape[d] - 1) * tensor.place.strides[d];
    }
    return element_count(tensor.shape) == 0 || last < begin || (first >= end && last < row);
  };
  return end <= row && std::all_of(graph.tensors.begin(), graph.tensors.end(), is_elsewhere);
}

// Whether groups of the operand are loaded as vectors.
bool is_loaded_as_vectors(const Graph& graph, const Sweep& sweep, size_t operand) {
  if (!has_aligned_rows(graph, sweep, operand)) return false;
  return !is_partial(sweep) || (ends_in_buffer(graph, sweep, operand) && has_free_lanes(graph, sweep, operand));
}

// Whether all rows of the sweep, or of a block, read the same groups of the operand: a BatchNorm's factors, a bias; gates of an image.
bool is_near(const Graph& graph, const Sweep& sweep, size_t operand) {
  return sweep.loop.size() >= 2 && row_of(sweep, operand) == 0 && step_of(sweep, operand) == 1 &&
         is_loaded_as_vectors(graph, sweep, operand);
}

// The body for large maps (static_chain_ahead.cuh): its items are pairs of groups.
constexpr int64_t kAheadGroups = 2, kAheadLeastItems = 3;

// Whether items of the operand are aligned vectors of 16 bytes, or of 8 where elements are bytes.
bool has_aligned_items(const Graph& graph, const Sweep& sweep, size_t operand) {
  const TensorId id = operand == 0 ? sweep.out : sweep.chain.inputs[operand - 1];
  const int64_t vector = type_of(graph, sweep, operand) == DType::f32 ? 4 : 8;
  if (step_of(sweep, operand) != 1 || (first_element(graph, id) + sweep.starts[operand]) % vector != 0) return false;
  return std::all_of(sweep.loop.begin(), sweep.loop.end() - 1, [&](const LoopDim& dim) { return dim.strides[operand] % vector == 0; });
}

// Slots of the ring that it copies inputs to; 0 where another body is as good or the only one. Short chains have as much under way in
// other bodies, unless rows lie in blocks.
int64_t slots_ahead(const Graph& graph, const Sweep& sweep, const ShapedVDevice& vdevice, int64_t groups_per_rtask) {
  const int64_t items = groups_per_rtask / (kAheadGroups * vdevice.compute_threads);  // of a thread
  if (items < kAheadLeastItems || row_elements(sweep) % (4 * kAheadGroups) != 0 || !has_aligned_items(graph, sweep, 0)) return 0;
  if (!has_blocks(sweep) && is_short(sweep)) return 0;
  int64_t slot_bytes = 0;
  for (size_t operand = 1; operand <= sweep.chain.inputs.size(); ++operand) {
    if (is_near(graph, sweep, operand)) continue;
    if (!has_aligned_items(graph, sweep, operand)) return 0;
    slot_bytes += 4 * kAheadGroups * vdevice.compute_threads * bytes_of(type_of(graph, sweep, operand));
  }
  if (slot_bytes == 0) return 0;
  for (const int64_t slots : {int64_t{8}, int64_t{4}}) {
    if ((slots == 4 || slots <= items) && slots * slot_bytes <= vdevice.work_beside_inputs()) return slots;
  }
  return 0;
}

// Bit i: input i is loaded element by element.
int64_t scalars_of(const Graph& graph, const Sweep& sweep) {
  int64_t scalars = 0;
  for (size_t i = 0; i < sweep.chain.inputs.size(); ++i) scalars |= int64_t{!is_loaded_as_vectors(graph, sweep, i + 1)} << i;
  return scalars;
}

std::vector<Arg> static_args(const Sweep& sweep, int64_t row_groups, int64_t groups, int64_t groups_per_rtask) {
  const size_t inputs = sweep.chain.inputs.size();
  ArgList places, constants;
  std::vector<int64_t> rows, steps;
  for (size_t i = 0; i < kInputs; ++i) places.push_back(i < inputs ? place_arg(sweep.chain.inputs[i], sweep.starts[i + 1]) : null_arg());
  for (size_t i = 0; i < inputs; ++i) {
    rows.push_back(row_of(sweep, i + 1));
    steps.push_back(step_of(sweep, i + 1));
  }
  for (const float value : sweep.chain.constants) constants.push_back(float_arg(value));
  if (constants.empty()) constants.push_back(float_arg(0));
  return {{"out", place_arg(sweep.out, sweep.starts[0])},
          {"inputs", ArgValue{places}},
          {"out_row", arg(row_of(sweep, 0))},
          {"in_rows", array_arg(rows, kInputs)},
          {"in_steps", array_arg(steps, kInputs)},
          {"row_groups", divisor_arg(row_groups)},
          {"row_elements", arg(row_elements(sweep))},
          {"groups", arg(groups)},
          {"groups_per_rtask", arg(groups_per_rtask)},
          {"constants", ArgValue{constants}}};
}

// Which operands are bytes of type `dtype` in memory, as narrow_operands.
int64_t bytes_of_type(const Graph& graph, const Sweep& sweep, DType dtype) {
  int64_t found = type_of(graph, sweep, 0) == dtype ? int64_t{rk::kNarrowOut} : 0;
  for (size_t i = 0; i < sweep.chain.inputs.size(); ++i) found |= int64_t{type_of(graph, sweep, i + 1) == dtype} << i;
  return found;
}

// Makes the phase one of a body whose operands may be of any type.
void take_bytes(const Graph& graph, const Sweep& sweep, const std::string& name, const std::string& args_type, Phase& phase) {
  set_body(phase, "kernels/elementwise/" + name + ".cuh", "rk::" + name, args_type);
  const auto mask = [](int64_t operands) { return fmt::format("{:#x}u", operands); };
  phase.template_args = {{"Value", value_type(narrow_type(graph, sweep))},
                         {"kNarrow", mask(narrow_operands(graph, sweep))},
                         {"kSigned", mask(bytes_of_type(graph, sweep, DType::whole_i8))},
                         {"kUnsigned", mask(bytes_of_type(graph, sweep, DType::whole_u8))}};
}
std::vector<Arg> lows_of(const Graph& graph, const Sweep& sweep) {
  const auto low = [&](TensorId id) { return float_arg(id.valid() ? static_cast<float>(low_of(graph, id)) : 0); };
  ArgList lows;
  for (size_t i = 0; i < kInputs; ++i) lows.push_back(i < sweep.chain.inputs.size() ? low(sweep.chain.inputs[i]) : float_arg(0));
  return {{"in_lows", ArgValue{lows}}, {"out_low", low(sweep.out)}};
}
std::vector<Arg> blocks_of(const Sweep& sweep) {
  std::vector<int64_t> blocks;
  for (size_t i = 0; i < sweep.chain.inputs.size(); ++i) blocks.push_back(block_of(sweep, i + 1));
  return {{"block_rows", divisor_arg(has_blocks(sweep) ? sweep.loop[1].extent : 1)},
          {"out_block", arg(block_of(sweep, 0))},
          {"in_blocks", array_arg(blocks, kInputs)}};
}

void add_steps(const Sweep& sweep, Phase& phase) {
  for (const ChainStep& step : sweep.chain.steps) phase.template_args.emplace_back("kSteps", step_text(step));
}
int64_t near_inputs(const Graph& graph, const Sweep& sweep) {
  int64_t near = 0;
  for (size_t i = 0; i < sweep.chain.inputs.size(); ++i) near |= int64_t{is_near(graph, sweep, i + 1)} << i;
  return near;
}

// What an element takes where all functions are computed side by side, as flops: two an instruction.
double side_by_side_flops(const Chain& chain) {
  double flops = 14;  // of types, places and accesses
  for (const ChainStep& step : chain.steps) {
    const Speed speed = row_of(static_cast<ElementwiseOp>(step.op)).speed;
    flops += speed == Speed::wide ? 3 : speed == Speed::four ? 20 : 8;
  }
  return flops;
}

Phase ahead_phase(const Graph& graph, const Sweep& sweep, const ShapedVDevice& vdevice, int64_t groups_per_rtask, int64_t slots) {
  const int64_t inputs = static_cast<int64_t>(sweep.chain.inputs.size()), near = near_inputs(graph, sweep);
  const int64_t items = static_groups(sweep) / kAheadGroups, items_per_rtask = groups_per_rtask / kAheadGroups;
  Phase phase = early_phase("", "", "");
  take_bytes(graph, sweep, "static_chain_ahead", "rk::BlockChainArgs", phase);
  phase.template_args.insert(phase.template_args.end(), {{"kInputs", std::to_string(inputs)},
                                                         {"kNear", std::to_string(near)},
                                                         {"kTemporaries", std::to_string(sweep.chain.temporaries)},
                                                         {"kRank", std::to_string(sweep.loop.size())},
                                                         {"kSlots", std::to_string(slots)}});
  add_steps(sweep, phase);
  phase.args = static_args(sweep, row_groups(sweep) / kAheadGroups, items, items_per_rtask);
  add_args(phase, lows_of(graph, sweep));
  add_args(phase, blocks_of(sweep));
  phase.rtasks = ceil_div(items, items_per_rtask);
  const double share = 4 * kAheadGroups * static_cast<double>(items) / static_cast<double>(phase.rtasks);
  int64_t copied = 0;
  for (size_t i = 0; i < sweep.chain.inputs.size(); ++i) copied += (near >> i & 1) == 0 ? bytes_of(type_of(graph, sweep, i + 1)) : 0;
  phase.work_bytes = slots * copied * 4 * kAheadGroups * vdevice.compute_threads;
  phase.cost.activation_bytes = share * static_cast<double>(copied + bytes_of(type_of(graph, sweep, 0)));
  phase.cost.flops = share * side_by_side_flops(sweep.chain);
  phase.cost.efficiency = vdevice.cost("elementwise.ahead_efficiency");
  phase.cost.latency_us = vdevice.cost("elementwise.ahead_us");
  return phase;
}

}  // namespace

int64_t static_share(const Graph& graph, const Sweep& sweep, const ShapedVDevice& vdevice, int64_t groups_per_rtask) {
  const bool ahead = slots_ahead(graph, sweep, vdevice, groups_per_rtask) > 0;
  return ahead ? ceil_div(groups_per_rtask, kAheadGroups) * kAheadGroups : groups_per_rtask;
}

bool is_static(const Graph& graph, const Sweep& sweep) {
  const Chain& chain = sweep.chain;
  if (sweep.loop.empty() || sweep.loop.size() > 3 || (sweep.loop.size() == 1 && is_partial(sweep))) return false;
  if (!has_static_steps(chain) && !has_long_static_steps(chain)) return false;
  if (has_blocks(sweep) && chain.inputs.size() < 2) return false;  // copies, mostly
  for (size_t operand = 0; operand <= chain.inputs.size(); ++operand) {
    if (block_of(sweep, operand) < 0 || row_of(sweep, operand) < 0 || step_of(sweep, operand) < 0) return false;
  }
  return has_aligned_rows(graph, sweep, 0) && loop_elements(sweep.loop) > 0;
}

int64_t static_groups(const Sweep& sweep) { return loop_elements(sweep.loop) / row_elements(sweep) * row_groups(sweep); }

int64_t elements_before(const Sweep& sweep, int64_t group) {
  return group / row_groups(sweep) * row_elements(sweep) + std::min(group % row_groups(sweep) * 4, row_elements(sweep));
}

void append_static_reads(const Graph& graph, const Sweep& sweep, size_t operand, int64_t begin, int64_t end, std::vector<Region>& out) {
  const TensorId id = sweep.chain.inputs[operand - 1];
  Loop loop = sweep.loop;
  if (is_partial(sweep) && is_loaded_as_vectors(graph, sweep, operand)) {
    loop.back().extent = row_groups(sweep) * 4;
    append_runs(loop, operand, id, first_element(graph, id) + sweep.starts[operand], begin * 4, end * 4, out);
  } else {
    append_runs(loop, operand, id, first_element(graph, id) + sweep.starts[operand], elements_before(sweep, begin),
                elements_before(sweep, end), out);
  }
}

Phase static_phase(const Graph& graph, const Sweep& sweep, const ShapedVDevice& vdevice, int64_t groups_per_rtask) {
  if (const int64_t slots = slots_ahead(graph, sweep, vdevice, groups_per_rtask); slots > 0)
    return ahead_phase(graph, sweep, vdevice, groups_per_rtask, slots);
  const int64_t inputs = static_cast<int64_t>(sweep.chain.inputs.size()), scalars = scalars_of(graph, sweep);
  const int64_t groups = static_groups(sweep), at_once = groups_of_thread(sweep, groups_per_rtask, vdevice);
  const int64_t near = near_inputs(graph, sweep);
  const bool is_long = !has_static_steps(sweep.chain);
  Phase phase = early_phase("kernels/elementwise/static_chain.cuh", is_long ? "rk::static_chain_long" : "rk::static_chain",
                            is_long ? "rk::LongChainArgs" : "rk::StaticChainArgs");
  const bool blocks = has_blocks(sweep), bytes = has_bytes(graph, sweep) || blocks;
  if (blocks) {
    take_bytes(graph, sweep, "static_chain_blocks", "rk::BlockChainArgs", phase);
  } else if (bytes) {
    take_bytes(graph, sweep, "static_chain_bytes", "rk::ByteChainArgs", phase);
  } else if (const int64_t narrow = narrow_operands(graph, sweep); narrow != 0) {
    phase.body = is_long ? "rk::static_chain_long_16bit" : "rk::static_chain_16bit";
    phase.template_args = {{"Value", value_type(narrow_type(graph, sweep))}, {"kNarrow", fmt::format("{:#x}u", narrow)}};
  }
  phase.template_args.insert(phase.template_args.end(), {{"kInputs", std::to_string(inputs)},
                                                         {"kScalars", std::to_string(scalars)},
                                                         {"kNear", std::to_string(near)},
                                                         {"kTemporaries", std::to_string(sweep.chain.temporaries)},
                                                         {"kPartial", is_partial(sweep) ? "true" : "false"},
                                                         {"kGroups", std::to_string(at_once)}});
  add_steps(sweep, phase);
  phase.args = static_args(sweep, row_groups(sweep), groups, groups_per_rtask);
  if (bytes) add_args(phase, lows_of(graph, sweep));
  if (blocks) add_args(phase, blocks_of(sweep));
  phase.rtasks = ceil_div(groups, groups_per_rtask);
  const double share = static_cast<double>(groups) / static_cast<double>(phase.rtasks);
  // The load of a scalar brings a sector of 32 bytes, of which neighbouring threads use a part.
  int64_t element_bytes = bytes_of(type_of(graph, sweep, 0));
  for (int64_t i = 0; i < inputs; ++i) {
    if ((near >> i & 1) == 0)
      element_bytes += bytes_of(type_of(graph, sweep, static_cast<size_t>(i) + 1)) * ((scalars >> i & 1) != 0 ? 4 : 1);
  }
  phase.cost.activation_bytes = 4 * share * static_cast<double>(element_bytes);
  // A turn is a trip to L2 by all threads of a rTask; the first is in VDevice::rtask_us.
  const int64_t turns = ceil_div(groups_per_rtask, vdevice.compute_threads * at_once);
  phase.cost.latency_us = vdevice.cost("elementwise.static_turn_us") * static_cast<double>(turns - 1);
  return phase;
}

}  // namespace tamp::kernels
