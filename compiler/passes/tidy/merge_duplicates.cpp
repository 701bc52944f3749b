#include "compiler/passes/tidy/merge_duplicates.h"

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>

#include "compiler/passes/rewrite.h"

namespace tamp::passes {
namespace {

constexpr size_t kSmallBytes = size_t{64} << 10;  // of a constant whose values are compared, e.g. the numbers of 8192 keys

// For each tensor the one that stands for it: of small constants with the same values, the first; else itself.
std::vector<TensorId> first_of_equal_constants(const Graph& graph) {
  std::map<std::tuple<DType, Shape, Bytes>, TensorId> known;
  std::vector<TensorId> first;
  for (size_t i = 0; i < graph.tensors.size(); ++i) {
    const Tensor& tensor = graph.tensors[i];
    const TensorId id(static_cast<int64_t>(i));
    const bool is_small = tensor.role == Role::constant && tensor.data && tensor.data.size() <= kSmallBytes;
    first.push_back(is_small ? known.emplace(std::tuple(tensor.dtype, tensor.shape, *tensor.data), id).first->second : id);
  }
  return first;
}

bool do_the_same(const Graph& graph, const ROperator& a, const ROperator& b) {
  const auto is_alike = [&](TensorId x, TensorId y) {
    return graph.tensor(x).dtype == graph.tensor(y).dtype && graph.tensor(x).shape == graph.tensor(y).shape;
  };
  const Epilogue &e = a.epilogue, &f = b.epilogue;
  return a.attrs == b.attrs && e.activation == f.activation && e.a == f.a && e.b == f.b && e.sum == f.sum &&
         e.residual_after_activation == f.residual_after_activation && e.bias.valid() == f.bias.valid() &&
         e.residual.valid() == f.residual.valid() &&
         std::equal(a.outputs.begin(), a.outputs.end(), b.outputs.begin(), b.outputs.end(), is_alike);
}

}  // namespace

Graph merge_duplicates(Graph graph) {
  const Uses uses = uses_of(graph);
  const std::vector<TensorId> constants = first_of_equal_constants(graph);
  Replacements replacements(graph);
  std::map<std::vector<TensorId>, std::vector<size_t>> by_operands;  // the rOperators that are kept
  std::vector<bool> dead(graph.rops.size(), false);
  for (size_t i = 0; i < graph.rops.size(); ++i) {
    const ROperator& rop = graph.rops[i];
    std::vector<TensorId> operands;
    for (const std::vector<TensorId>& ids : {rop.inputs, {rop.epilogue.bias, rop.epilogue.residual}}) {
      for (const TensorId id : ids) operands.push_back(id.valid() ? constants[replacements.resolve(id).index()] : id);
    }
    std::vector<size_t>& alike = by_operands[std::move(operands)];
    const auto same = std::find_if(alike.begin(), alike.end(), [&](size_t other) { return do_the_same(graph, graph.rops[other], rop); });
    if (same == alike.end()) {
      alike.push_back(i);
      continue;
    }
    if (std::any_of(rop.outputs.begin(), rop.outputs.end(), [&](TensorId id) { return uses.is_output[id.index()]; })) continue;
    for (size_t o = 0; o < rop.outputs.size(); ++o) replacements.replace(rop.outputs[o], graph.rops[*same].outputs[o]);
    dead[i] = true;
  }
  return remove_dead(erase_rops(replacements.apply(std::move(graph)), dead));
}

}  // namespace tamp::passes
