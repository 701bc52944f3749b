// The graph that passes rewrite: a flat vector of rOperators in topological order over a vector of tensors.
// Ids are indices. A pass takes a Graph by value and returns one.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "compiler/ir/length.h"
#include "compiler/ir/ops.h"
#include "compiler/ir/tensor.h"

namespace tamp {

using ROperatorId = StrongId<struct ROperatorTag>;

// What follows an epilogue's activation in quantised networks: y * scale + residual * residual_scale, and that rounded to whole numbers
// between low and high. So the sum of two quantised tensors is quantised in the product that makes one of them.
struct ScaledSum {
  float scale = 1, residual_scale = 0;  // no residual: nothing is added
  bool rounds = false;
  float low = 0, high = 0;
  bool operator==(const ScaledSum&) const = default;
};

// See ops.h, Activation. `bias` is a constant of extent M along the channel (Conv: dim 1, MatMul: last dim) or none.
// `residual` has the output's shape or none.
struct Epilogue {
  TensorId bias;
  TensorId residual;
  Activation activation = Activation::none;
  float a = 0, b = 0;  // the activation's attributes (clip, rounded: min and max; leaky_relu: slope; hard_sigmoid: alpha, beta)
  bool residual_after_activation = false;
  std::optional<ScaledSum> sum{};  // takes the residual behind the activation, instead of adding it
};

struct ROperator {
  std::string name;  // unique in the graph; the (first) ONNX node's name, or "op#index" made from its index
  OpAttrs attrs;
  Epilogue epilogue;
  std::vector<TensorId> inputs;  // may hold none ids where an operand is optional
  std::vector<TensorId> outputs;
  std::vector<std::string> origin;  // names of the ONNX nodes that it came from, first to last
  // In a placed graph: the loop of Graph::loops that it runs in, or -1, and whether it makes a value of the next iteration, when all else
  // of the loop is done.
  int32_t loop = -1;
  bool ends_iteration = false;
};

// A loop of a placed graph, where LoopBegin and LoopEnd are copies to the same memory (docs/adr/0050).
struct Loop {
  std::string name;
  TensorId condition;   // looked at before each iteration
  int32_t parent = -1;  // the loop that it runs in
};

// A graph output whose size is known only at run time. The tensor has the largest size possible; another output, `count` (i64[1]), says at
// run time how many entries along `axis` are valid, and the entries behind these are padding. `output` and `count` are positions in
// Graph::outputs.
struct PaddedOutput {
  int64_t output = 0, count = 0;
  int64_t axis = 0;
};

struct Graph {
  std::string name;
  std::vector<Tensor> tensors;
  std::vector<ROperator> rops;
  std::vector<TensorId> inputs, outputs;  // in the model's order; an output may be an input or a constant
  // Types of inputs and outputs for callers, where passes/widen_halves made f32 of 16 bits in between; else empty.
  std::vector<DType> input_types, output_types;
  bool has_quantised_weights = false;  // some constants were integers of few bits in the model, so that it is worth looking for steps
  std::vector<PaddedOutput> padded;    // few, mostly none
  // Numbers of run time, and where they end the ports' dimensions: an entry for each port, or no entries if there are no lengths.
  std::vector<Length> lengths;
  ExtentProducts products;  // extents of two lengths
  std::vector<LengthAxes> input_axes, output_axes;
  std::vector<Buffer> buffers;  // filled by passes/assign_layout
  std::vector<Loop> loops;      // the same

  Tensor& tensor(TensorId id) { return tensors[id.index()]; }
  const Tensor& tensor(TensorId id) const { return tensors[id.index()]; }
  ROperator& rop(ROperatorId id) { return rops[id.index()]; }
  const ROperator& rop(ROperatorId id) const { return rops[id.index()]; }
};

int64_t length_named(const Graph& graph, const std::string& name);  // the length of that name, or -1
int64_t largest_of(const Graph& graph, const Extent& extent);

TensorId add_tensor(Graph& graph, Tensor tensor);
TensorId add_constant(Graph& graph, std::string name, DType dtype, Shape shape, Bytes data);
TensorId add_f32_constant(Graph& graph, std::string name, Shape shape, const std::vector<float>& values);

// Operand `i`, or none behind the last one. Optional operands are read by this: lists of operands end at the last that is there.
inline TensorId operand(const ROperator& rop, size_t i) { return i < rop.inputs.size() ? rop.inputs[i] : TensorId(); }
inline bool is_f32_constant(const Graph& graph, TensorId id) {
  return id.valid() && graph.tensor(id).role == Role::constant && graph.tensor(id).dtype == DType::f32;
}
// The values of an f32 constant, or null for none.
inline const float* f32_data_or_null(const Graph& graph, TensorId id) { return id.valid() ? f32_data(graph.tensor(id)) : nullptr; }
// Operands without the none ids at their end.
std::vector<TensorId> without_last_none(std::vector<TensorId> ids);

inline bool has_epilogue(const ROperator& rop) {
  return rop.epilogue.bias.valid() || rop.epilogue.residual.valid() || rop.epilogue.activation != Activation::none;
}

// All tensors that a rOperator reads: its inputs and those of its epilogue, none ids left out.
std::vector<TensorId> reads_of(const ROperator& rop);

// Per tensor: the rOperator that makes it (or none), and the rOperators that read it, epilogues' reads included. A rOperator that reads a
// tensor twice is listed twice, so one consumer is one read. Graph outputs are no consumers.
struct Uses {
  std::vector<ROperatorId> producer;
  std::vector<std::vector<ROperatorId>> consumers;
  std::vector<bool> is_output;

  // The rOperator that reads the tensor, if that is read once and is no graph output. Else none.
  ROperatorId only_reader(TensorId id) const {
    return consumers[id.index()].size() == 1 && !is_output[id.index()] ? consumers[id.index()][0] : ROperatorId();
  }
  // The rOperator that makes the tensor for one reader alone. Else none.
  ROperatorId maker_for_one(TensorId id) const { return only_reader(id).valid() ? producer[id.index()] : ROperatorId(); }
  // Takes in tensors that were added behind the others: nobody makes or reads them yet.
  void grow(size_t tensors) {
    producer.resize(tensors);
    consumers.resize(tensors);
    is_output.resize(tensors, false);
  }
};
Uses uses_of(const Graph& graph);

// Drops rOperators whose results nobody needs and tensors that nobody names; keeps the order. Inputs stay.
Graph remove_dead(Graph graph);

// Drops results of recurrent rOperators that nothing but links of their cells reads: they need not be stored. Drops what is dead then.
Graph drop_unread_results(Graph graph);

// Frees the bytes of constants that can be made again. No thread may read them meanwhile.
void forget_data(const Graph& graph);

// Frees bytes of constants behind the last of some rOperators that read them.
class ConstantReads {
 public:
  void expect(const Graph& graph, const ROperator& rop);
  void end(const Graph& graph, const ROperator& rop);

 private:
  std::map<TensorData, int64_t> left_;
};
size_t constant_bytes(const Graph& graph, const ROperator& rop);  // of all constants that it reads

// Puts rops back into topological order (stable). TAMP_CHECK on a cycle.
Graph sort_topologically(Graph graph);

// TAMP_CHECK of everything that must hold of a graph at any stage: ids in range, topological order, one producer per
// tensor, data present and of the right size for constants, shapes non-negative.
void verify(const Graph& graph);

// Text form; test/support/graph_text.h reads it back. One line a tensor or rOperator.
std::string print(const Graph& graph);

}  // namespace tamp
