// Tensors of the largest size that they can have, of which only so many entries along one dimension are valid as another tensor says at run
// time; behind these they hold -1, or what was made of it.
#pragma once

#include <optional>

#include "compiler/frontend/builder.h"
#include "compiler/frontend/node.h"

namespace tamp::frontend {

// What the first result of `node` has of that, if an operand has it: only operators that make each entry of the result of one entry of the
// operand. Error (unsupported) if it is another one: it would take the padding for entries. `is_onnx`: of the default domain.
std::optional<Builder::Padded> padding_after(const Builder& builder, const Node& node, const std::vector<TensorId>& inputs, bool is_onnx,
                                             const std::string& where);

}  // namespace tamp::frontend
