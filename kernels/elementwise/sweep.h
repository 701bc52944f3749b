// An elementwise rOperator as passes over memory, one per phase: most have one; a Reshape whose input and output cannot be walked
// together goes through row-major scratch.
#pragma once

#include <vector>

#include "compiler/ir/graph.h"
#include "compiler/ir/rkernel.h"
#include "kernels/loop.h"
#include "kernels/tile/chain.h"

namespace tamp::kernels {

// One phase. The loop's operand 0 is the output, operand 1 + i the chain's input i. A none id is the scratch buffer.
struct Sweep {
  Loop loop;
  Chain chain;
  TensorId out;
  std::vector<int64_t> starts;  // per operand: elements from the tensor's first element
};

// Empty if the elementwise family does not do the rOperator.
std::vector<Sweep> sweeps_of(const Graph& graph, const ROperator& rop);

// Groups of four elements lie in one row of the innermost dimension.
bool is_grouped(const Sweep& sweep);

// Every group is an aligned vector of the operand.
bool is_vector(const Graph& graph, const Sweep& sweep, size_t operand);

// Elements of a row are neighbours, and every row begins at a multiple of four.
bool has_aligned_rows(const Graph& graph, const Sweep& sweep, size_t operand);

// Elements from the start of the buffer to the tensor's first element; 0 of the scratch.
int64_t first_element(const Graph& graph, TensorId id);

// The type that an operand (0: the output, 1 + i: input i) has in memory; f32 for the scratch.
DType type_of(const Graph& graph, const Sweep& sweep, size_t operand);

// Which operands are 16 bits in memory (kNarrow of the bodies), and their type (Value of the bodies). All these operands have one type
// unless is_of_two_types.
int64_t narrow_operands(const Graph& graph, const Sweep& sweep);
DType narrow_type(const Graph& graph, const Sweep& sweep);
bool is_of_two_types(const Graph& graph, const Sweep& sweep);
// Whether operands are whole numbers in bytes.
bool has_bytes(const Graph& graph, const Sweep& sweep);

// rk::TensorRef of element `start` of the tensor or the scratch.
ArgValue place_arg(TensorId id, int64_t start);

}  // namespace tamp::kernels
