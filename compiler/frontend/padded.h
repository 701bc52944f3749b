// Tensors whose size is known only at run time, such as NonZero's result. They have the largest size possible; another tensor says at run
// time how many entries along one dimension are valid. The entries behind these hold -1, or what operators have made of -1.
#pragma once

#include <optional>

#include "compiler/frontend/builder.h"
#include "compiler/frontend/node.h"

namespace tamp::frontend {

// How the first result of `node` is padded if an operand is. Only operators that make each entry of the result from one entry of the
// operand are allowed; others would take the padding for entries, and are an Error (unsupported). `is_onnx`: the operator is of the default
// domain.
std::optional<Builder::Padded> padding_after(const Builder& builder, const Node& node, const std::vector<TensorId>& inputs, bool is_onnx,
                                             const std::string& where);

// Whether the operator's importer looks at padding itself; padding_after knows nothing of its result then.
bool handles_padding(const Node& node, bool is_onnx);

// The rOperator that makes the tensor, or null.
const ROperator* maker_of(const Graph& graph, TensorId id);

// A count of padded tensors, and the most that it can be.
struct Counted {
  TensorId count;
  int64_t most = 0;
};

// The count that a tensor of one integer holds, if it does: what Shape says of a padded tensor, cut out and reshaped on the way.
std::optional<Counted> count_in(const Builder& builder, TensorId id);

// Whether one of them is the other, or the other but for a constant that bounds it.
bool is_same_count(const Graph& graph, TensorId a, TensorId b);

}  // namespace tamp::frontend
