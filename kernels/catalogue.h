// The list of all rKernel families. A family turns rOperators into rKernels: it lists the legal candidates, packs their
// weights, and states what memory each rTask touches. kernels/<folder>/<family>.cuh holds the device code,
// kernels/<folder>/<family>.cpp these functions, kernels/catalogue.cpp the one list.
#pragma once

#include <vector>

#include "compiler/ir/graph.h"
#include "compiler/ir/rkernel.h"
#include "compiler/ir/vdevice.h"

namespace tamp::kernels {

struct Request {
  const Graph& graph;
  const ROperator& rop;
  const VDevice& vdevice;
  Precision precision;
};

struct Family {
  const char* name;
  // All rKernels of this family that can run the rOperator on the vDevice (empty = not this family's business).
  // Tensors are placed: strides are final, buffer addresses are not.
  std::vector<RKernel> (*candidates)(const Request& request);
  // The packed constant data of one phase (ring blocks first, at offset 0; then whatever PackedArg refers to). Empty = none.
  Bytes (*pack)(const Graph& graph, const ROperator& rop, const RKernel& rkernel, int phase);
  // What rTask `index` of `phase` reads and writes, packed data left out.
  void (*accesses)(const Graph& graph, const ROperator& rop, const RKernel& rkernel, int phase, int64_t index, Accesses& out);
};

const std::vector<Family>& families();
const Family& family(const std::string& name);  // TAMP_CHECK if absent

// Candidates of all families, in catalogue order.
std::vector<RKernel> candidates(const Request& request);

// Microseconds of all cells as one gang on the whole vDevice, infinite where no gang fits. `input_sizes`: I of each cell, whose
// weights are taken to be constants. For passes: tensors need no place.
double recurrent_gang_us(const Recurrent& recurrent, const std::vector<int64_t>& input_sizes, const VDevice& vdevice, Precision precision);

// Whether the Conv, which has a prologue, has a rKernel and gains by it, on the vDevice as the rKernels will see it (with_inputs). For
// passes: tensors need no place. True is a promise, as passes/assign_layout puts its input where boxes can be cut from
// (lies_for_boxes).
bool takes_prologue(const Graph& graph, const ROperator& conv, const VDevice& vdevice, Precision precision);

}  // namespace tamp::kernels
