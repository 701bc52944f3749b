// y = take(x, indices, axis) with indices that are known only at run time, for elements of any type. An index counts from the end if it is
// negative; one outside of x takes the nearest element that there is (docs/reference/models.md), so that no address leaves x. One
// element a thread.
//
// typed_gather_rows: the same where x and the output have rows of contiguous elements behind the axis, in pieces of 16 aligned bytes. A
// thread has kPieces pieces under way; each takes one look at its index.
// Example: y [4096, 768] from words [30522, 768] of fp32 has rows of 192 pieces. Piece 1000 is number 40 of row 5, elements 160 to 163.
#pragma once

#include <type_traits>

#include "kernels/vdevice/cells.cuh"
#include "kernels/vdevice/memory.cuh"

namespace rk {

struct TypedGatherArgs {  // in tables
  TensorRef out, in, indices;
  Nest nest;  // of the output
  int32_t out_strides[kNestRank], in_strides[kNestRank], index_strides[kNestRank];
  int32_t axis_stride;  // of x
  int32_t extent;       // of x along the axis
  uint32_t index_type;
  uint32_t elements, elements_per_rtask;
};

template <class Veu, class Cell>
RK_BODY void typed_gather(const Task<Veu>& caller) {
  const Task<Veu> task = caller;  // a copy in registers, since the caller's task is in a stack frame
  const TypedGatherArgs& args = task.template arguments<TypedGatherArgs>();
  const Cell* const in = reinterpret_cast<const Cell*>(task.address(args.in));
  Cell* const out = reinterpret_cast<Cell*>(task.address(args.out));
  const uint32_t end = min((task.index + 1) * args.elements_per_rtask, args.elements);
#pragma unroll 1
  for (uint32_t element = task.index * args.elements_per_rtask + threadIdx.x; element < end; element += Veu::kComputeThreads) {
    const auto [to, from, at_index] = nest_offsets(args.nest, element, args.out_strides, args.in_strides, args.index_strides).of;
    int64_t index = load_number<int64_t>(task.address(args.indices), at_index, args.index_type);
    if (index < 0) index += args.extent;
    if (index >= args.extent) index = args.extent - 1;
    if (index < 0) index = 0;
    store_cell(out + to, load_cell(in + (from + index * args.axis_stride)));
  }
}

struct TypedGatherRowsArgs {  // in tables
  TensorRef out, in, indices;
  Nest nest;                                                                        // of the output's rows
  int32_t out_strides[kNestRank], in_strides[kNestRank], index_strides[kNestRank];  // of x and the output in pieces
  int32_t axis_stride;                                                              // of x, in pieces
  int32_t extent;                                                                   // of x along the axis
  Divisor row_pieces;
  uint32_t pieces, pieces_per_rtask;
};

// Index: the type of the indices; int64_t also for uint64_t, as typed_gather has it.
template <class Veu, class Index, int kPieces>
RK_BODY void typed_gather_rows(const Task<Veu>& caller) {
  using Cell = std::make_unsigned_t<Index>;
  const Task<Veu> task = caller;  // a copy in registers, since the caller's task is in a stack frame
  const TypedGatherRowsArgs& args = task.template arguments<TypedGatherRowsArgs>();
  const float4* const in = reinterpret_cast<const float4*>(task.address(args.in));
  float4* const out = reinterpret_cast<float4*>(task.address(args.out));
  const Cell* const indices = reinterpret_cast<const Cell*>(task.address(args.indices));
  const uint32_t end = min((task.index + 1) * args.pieces_per_rtask, args.pieces);
#pragma unroll 1
  for (uint32_t first = task.index * args.pieces_per_rtask + threadIdx.x; first < end; first += kPieces * Veu::kComputeThreads) {
    uint32_t row[kPieces];
    int32_t to[kPieces], from[kPieces], at_index[kPieces];
#pragma unroll
    for (int i = 0; i < kPieces; ++i) {  // past the end the last piece is loaded again, and not stored
      uint32_t piece;
      row[i] = divide(min(first + i * Veu::kComputeThreads, end - 1), args.row_pieces, piece);
      to[i] = from[i] = static_cast<int32_t>(piece);
      at_index[i] = 0;
    }
#pragma unroll 1
    for (int d = static_cast<int>(args.nest.rank) - 1; d >= 0; --d) {
      const Divisor extent = args.nest.divisors[d > 0 ? d - 1 : 0];
      const int32_t out_stride = args.out_strides[d], in_stride = args.in_strides[d], index_stride = args.index_strides[d];
#pragma unroll
      for (int i = 0; i < kPieces; ++i) {
        uint32_t at = row[i];
        if (d > 0) row[i] = divide(row[i], extent, at);
        to[i] += static_cast<int32_t>(at) * out_stride;
        from[i] += static_cast<int32_t>(at) * in_stride;
        at_index[i] += static_cast<int32_t>(at) * index_stride;
      }
    }
    Cell bits[kPieces];
#pragma unroll
    for (int i = 0; i < kPieces; ++i) bits[i] = load_cell(indices + at_index[i]);
#pragma unroll
    for (int i = 0; i < kPieces; ++i) {
      int64_t index = static_cast<Index>(bits[i]);
      if (index < 0) index += args.extent;
      index = index >= args.extent ? args.extent - 1 : index;
      from[i] += static_cast<int32_t>(index < 0 ? 0 : index) * args.axis_stride;
    }
    float4 value[kPieces];
#pragma unroll
    for (int i = 0; i < kPieces; ++i) value[i] = load4(reinterpret_cast<const float*>(in + from[i]));
#pragma unroll
    for (int i = 0; i < kPieces; ++i) {
      if (first + i * Veu::kComputeThreads < end) store4(reinterpret_cast<float*>(out + to[i]), value[i]);
    }
  }
}

}  // namespace rk
