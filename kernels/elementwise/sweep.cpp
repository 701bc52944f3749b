#include "kernels/elementwise/sweep.h"

#include <algorithm>
#include <optional>

#include "kernels/args.h"
#include "kernels/elementwise/numbers.cuh"
#include "kernels/window.h"

namespace tamp::kernels {
namespace {

constexpr int64_t kScratch = -1;

Loop loop_of(const Shape& shape, const std::vector<std::vector<int64_t>>& operand_strides) {
  Loop loop;
  for (size_t d = 0; d < shape.size(); ++d) {
    LoopDim dim{shape[d], {}};
    for (const std::vector<int64_t>& s : operand_strides) dim.strides.push_back(s[d]);
    loop.push_back(dim);
  }
  return normalised(loop);
}

std::vector<Sweep> chain_sweep(const Graph& graph, const ROperator& rop, const Elementwise& attrs) {
  const std::optional<Chain> chain = make_chain(graph, rop.inputs, attrs.steps);
  if (!chain) return {};
  const Tensor& out = graph.tensor(rop.outputs[0]);
  std::vector<std::vector<int64_t>> operand_strides = {out.place.strides};
  for (const TensorId id : chain->inputs) operand_strides.push_back(broadcast_strides(graph.tensor(id), out.shape));
  return {Sweep{loop_of(out.shape, operand_strides), *chain, rop.outputs[0], std::vector<int64_t>(operand_strides.size(), 0)}};
}

std::vector<Sweep> copy_sweep(const Graph& graph, const ROperator& rop, const std::vector<int64_t>& in_strides, int64_t start) {
  const Tensor& out = graph.tensor(rop.outputs[0]);
  return {Sweep{loop_of(out.shape, {out.place.strides, in_strides}), copy_chain(rop.inputs[0]), rop.outputs[0], {0, start}}};
}

std::vector<Sweep> transpose_sweep(const Graph& graph, const ROperator& rop, const Transpose& attrs) {
  const Tensor& in = graph.tensor(rop.inputs[0]);
  std::vector<int64_t> in_strides;
  for (const int64_t d : attrs.perm) in_strides.push_back(in.place.strides[static_cast<size_t>(d)]);
  return copy_sweep(graph, rop, in_strides, 0);
}

std::vector<Sweep> slice_sweep(const Graph& graph, const ROperator& rop, const Slice& attrs) {
  const Tensor& in = graph.tensor(rop.inputs[0]);
  std::vector<int64_t> in_strides;
  int64_t start = 0;
  for (size_t d = 0; d < in.shape.size(); ++d) {
    in_strides.push_back(in.place.strides[d] * attrs.steps[d]);
    start += in.place.strides[d] * attrs.starts[d];
  }
  return copy_sweep(graph, rop, in_strides, start);
}

// Walks two shapes of equal element count together, from the last dimension: the nest of both, or nullopt if a dimension of
// one straddles a boundary of the other ([2,3] and [3,2]).
std::optional<Loop> common_loop(const Shape& out, const std::vector<int64_t>& out_strides, const Shape& in,
                                const std::vector<int64_t>& in_strides) {
  if (element_count(out) == 0) return Loop{LoopDim{0, {0, 0}}};
  Loop loop;
  size_t i = out.size(), j = in.size();
  int64_t left_out = 1, left_in = 1, out_stride = 0, in_stride = 0;
  for (;;) {
    while (left_out == 1 && i > 0) {
      left_out = out[--i];
      out_stride = out_strides[i];
    }
    while (left_in == 1 && j > 0) {
      left_in = in[--j];
      in_stride = in_strides[j];
    }
    if (left_out == 1 || left_in == 1) break;
    const int64_t extent = std::min(left_out, left_in);
    if (left_out % extent != 0 || left_in % extent != 0) return std::nullopt;
    loop.insert(loop.begin(), LoopDim{extent, {out_stride, in_stride}});
    left_out /= extent;
    left_in /= extent;
    out_stride *= extent;
    in_stride *= extent;
  }
  return loop;
}

std::vector<Sweep> reshape_sweeps(const Graph& graph, const ROperator& rop) {
  const TensorId in_id = rop.inputs[0], out_id = rop.outputs[0];
  const Tensor& in = graph.tensor(in_id);
  const Tensor& out = graph.tensor(out_id);
  if (const std::optional<Loop> loop = common_loop(out.shape, out.place.strides, in.shape, in.place.strides)) {
    return {Sweep{normalised(*loop), copy_chain(in_id), out_id, {0, 0}}};
  }
  return {Sweep{loop_of(in.shape, {row_major_strides(in.shape), in.place.strides}), copy_chain(in_id), TensorId(kScratch), {0, 0}},
          Sweep{loop_of(out.shape, {out.place.strides, row_major_strides(out.shape)}), copy_chain(TensorId(kScratch)), out_id, {0, 0}}};
}

}  // namespace

std::vector<Sweep> sweeps_of(const Graph& graph, const ROperator& rop) {
  if (const auto* chain = std::get_if<Elementwise>(&rop.attrs)) return chain_sweep(graph, rop, *chain);
  if (const auto* transpose = std::get_if<Transpose>(&rop.attrs)) return transpose_sweep(graph, rop, *transpose);
  if (const auto* slice = std::get_if<Slice>(&rop.attrs)) return slice_sweep(graph, rop, *slice);
  if (std::holds_alternative<Reshape>(rop.attrs)) return reshape_sweeps(graph, rop);
  if (const auto* pool = std::get_if<Pool>(&rop.attrs); pool && is_copy(*pool))
    return copy_sweep(graph, rop, graph.tensor(rop.inputs[0]).place.strides, 0);
  return {};
}

int64_t first_element(const Graph& graph, TensorId id) { return id.valid() ? graph.tensor(id).place.offset : 0; }

bool is_grouped(const Sweep& sweep) {
  if (sweep.loop.empty()) return true;
  return sweep.loop.size() == 1 || sweep.loop.back().extent % 4 == 0;
}

bool is_vector(const Graph& graph, const Sweep& sweep, size_t operand) {
  return is_grouped(sweep) && has_aligned_rows(graph, sweep, operand);
}

bool has_aligned_rows(const Graph& graph, const Sweep& sweep, size_t operand) {
  if (sweep.loop.empty() || sweep.loop.back().strides[operand] != 1) return false;
  const TensorId id = operand == 0 ? sweep.out : sweep.chain.inputs[operand - 1];
  if ((first_element(graph, id) + sweep.starts[operand]) % 4 != 0) return false;
  return std::all_of(sweep.loop.begin(), sweep.loop.end() - 1, [&](const LoopDim& dim) { return dim.strides[operand] % 4 == 0; });
}

DType type_of(const Graph& graph, const Sweep& sweep, size_t operand) {
  const TensorId id = operand == 0 ? sweep.out : sweep.chain.inputs[operand - 1];
  return id.valid() ? graph.tensor(id).dtype : DType::f32;
}

int64_t narrow_operands(const Graph& graph, const Sweep& sweep) {
  int64_t narrow = is_narrow(type_of(graph, sweep, 0)) ? int64_t{rk::kNarrowOut} : 0;
  for (size_t i = 0; i < sweep.chain.inputs.size(); ++i) narrow |= int64_t{is_narrow(type_of(graph, sweep, i + 1))} << i;
  return narrow;
}

bool has_bytes(const Graph& graph, const Sweep& sweep) {
  bool any = false;
  for (size_t operand = 0; operand <= sweep.chain.inputs.size(); ++operand) any |= is_whole_byte(type_of(graph, sweep, operand));
  return any;
}

DType narrow_type(const Graph& graph, const Sweep& sweep) {
  for (size_t operand = 0; operand <= sweep.chain.inputs.size(); ++operand) {
    if (is_narrow(type_of(graph, sweep, operand))) return type_of(graph, sweep, operand);
  }
  return DType::f32;
}

bool is_of_two_types(const Graph& graph, const Sweep& sweep) {
  for (size_t operand = 0; operand <= sweep.chain.inputs.size(); ++operand) {
    const DType type = type_of(graph, sweep, operand);
    if (is_narrow(type) && type != narrow_type(graph, sweep)) return true;
  }
  return false;
}

ArgValue place_arg(TensorId id, int64_t start) {
  if (!id.valid()) return ArgValue{ScratchArg{start}};
  return arg(TensorArg{id, start});
}

}  // namespace tamp::kernels
