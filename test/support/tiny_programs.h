// Small placed graphs and make-believe rKernel families for tests of the scheduler and the verifier: real shapes, real
// regions, no device code.
#pragma once

#include <string>
#include <vector>

#include "compiler/ir/rprogram.h"
#include "compiler/select/select.h"

namespace tamp::test {

// Attention of one token, whose query, key and value are products of a row.
inline const std::string kTinyStep = R"(
  x = input f32[1,1,64]
  pk = input f32[1,40,64]
  pv = input f32[1,40,64]
  w = const f32[64,64]
  q = MatMul(x, w) -> f32[1,1,64]
  k = MatMul(x, w) {alpha=2} -> f32[1,1,64]
  v = MatMul(x, w) {alpha=3} -> f32[1,1,64]
  y = Fused(q, k, v, pk, pv) {title="attention of a step", steps=[s0 = Concat(i3, i1) {axis=1} -> f32[1,41,64]; s1 = Concat(i4, i2) {axis=1} -> f32[1,41,64]; s2 = Attention(i0, s0, s1) {scale=0.125} -> f32[1,1,64]; outputs(s2)]} -> f32[1,1,64]
  z = MatMul(y, w) -> f32[1,1,64]
  outputs(z)
)";

// A vDevice of few vEUs and round costs: 1 TFLOP/s, 1 GB/s and 1 us a rTask per vEU, 1 us an edge, nothing on the same vEU.
ShapedVDevice tiny_vdevice(int64_t veus);

// Builds a graph whose tensors are placed row-major in buffers of their own. Every rOperator is an Elementwise (family
// "tiles": each rTask writes a piece of the flat output and reads all of its inputs), or a MatMul (family "split": partial
// sums in scratch, then their sum).
class GraphBuilder {
 public:
  TensorId input(const std::string& name, Shape shape);
  TensorId constant(const std::string& name, Shape shape);
  TensorId tiles(const std::string& name, const std::vector<TensorId>& inputs, Shape shape);
  TensorId split(const std::string& name, const std::vector<TensorId>& inputs, Shape shape);
  // All parts in one buffer, the last dimension of each a slice of it.
  TensorId concat_last(const std::string& name, const std::vector<TensorId>& parts);
  void output(TensorId id);
  Graph take() { return std::move(graph_); }

 private:
  TensorId make(const std::string& name, OpAttrs attrs, const std::vector<TensorId>& inputs, Shape shape);
  void place(TensorId id, Buffer buffer);
  Graph graph_;
};

// "tiles" with 1, 2, 3, 4 and 6 rTasks of `flops_in_all` flops together, "split" with 2 and 3 parts of the sum.
const select::Families& tiny_families();

// The chains, diamonds, concats, ... that tests share.
struct NamedGraph {
  std::string name;
  Graph graph;
};
std::vector<NamedGraph> tiny_graphs();

}  // namespace tamp::test
