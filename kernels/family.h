// A family turns rOperators into rKernels: it lists the legal candidates, packs their weights, and states the memory that each rTask
// touches. kernels/<folder>/<family>.cuh holds the device code, kernels/<folder>/<family>.cpp the functions of this interface.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "compiler/ir/estimator.h"
#include "compiler/ir/graph.h"
#include "compiler/ir/rkernel.h"
#include "compiler/ir/shaped_vdevice.h"
#include "compiler/support/error.h"

namespace tamp::kernels {

struct Request {
  const Graph& graph;
  const ROperator& rop;
  const ShapedVDevice& vdevice;
  Precision precision;
};

// How a family takes rOperators that compute in f32 while some of their operands or results are 16 bits in memory (Buffer::narrowed).
enum class Narrowed : uint8_t {
  computes,  // those that its `candidates` accept, as of other rOperators
  moves,     // only moves elements from one place to another of the same type, which may be any type
  refuses,   // takes no such rOperators, since it would compute in the type that it finds
};

struct Family {
  const char* name;
  // All rKernels, without RKernel::family, of this family that can run the rOperator on the vDevice (empty = not this family's business).
  // Tensors are placed: strides are final, buffer addresses are not.
  std::vector<RKernel> (*candidates)(const Request& request);
  // The packed constant data of one phase (ring blocks first, at offset 0; then whatever PackedArg refers to). Empty = none.
  Bytes (*pack)(const Graph& graph, const ROperator& rop, const RKernel& rkernel, int phase);
  // The reads and writes of rTask `index` of `phase`, packed data left out.
  void (*accesses)(const Graph& graph, const ROperator& rop, const RKernel& rkernel, int phase, int64_t index, Accesses& out);
  // For passes, before tensors have places and constants their final values: the time of the family's fastest rKernel, on the vDevice as
  // the rKernels will see it. No time if the family will have no rKernel for the rOperator, or none that is worth making the rOperator for;
  // a time is a promise that there will be an rKernel. Null: no pass decides by the time of this family's rOperators.
  std::optional<Estimate> (*estimate)(const Request& request) = nullptr;
  Narrowed narrowed = Narrowed::computes;
  bool takes_sums = false;   // epilogues with a ScaledSum
  bool takes_bytes = false;  // operands and results of DType::whole_i8 and whole_u8
};

// Whether an operand or a result of the placed rOperator lies in 16 bits although it computes in f32 (Buffer::narrowed).
bool touches_narrowed(const Graph& graph, const ROperator& rop);

// `candidates` of the family, which are its own by RKernel::family; none if Family::narrowed says that the family does not take the
// rOperator.
std::vector<RKernel> candidates_of(const Family& family, const Request& request);

// A rKernel for as many rTasks as vEUs and, if that has more than a few, one for a quarter of them: the others are free meanwhile.
std::vector<RKernel> for_all_and_a_quarter(const ShapedVDevice& vdevice, const std::function<RKernel(int64_t rtasks)>& rkernel_of);

// What a family has found of a rOperator for which it has offered a rKernel. InternalError if that is nothing.
template <class Found>
Found known(std::optional<Found> found, const std::string& family, const ROperator& rop) {
  TAMP_CHECK(found.has_value(), family + " of '" + rop.name + "'");
  return *std::move(found);
}

// For a family that packs nothing.
inline Bytes no_pack(const Graph&, const ROperator&, const RKernel&, int) { return {}; }

}  // namespace tamp::kernels
