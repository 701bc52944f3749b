// Functions that a model defines itself (ModelProto.functions). A call of such a function is read as a node with a body: the function's,
// with the call's attributes filled in where the body refers to them.
#pragma once

#include <map>
#include <string>
#include <tuple>

#include "compiler/frontend/node.h"

namespace onnx {
class FunctionProto;
class ModelProto;
}  // namespace onnx

namespace tamp::frontend {

class LocalFunctions {
 public:
  explicit LocalFunctions(const onnx::ModelProto& model);  // which must outlive this object

  const onnx::FunctionProto* find(const onnx::NodeProto& node) const;  // null: it calls none of the model's own
  // The name of a function that is defined twice, with the same domain, name and overload. Empty = none is.
  const std::string& twice() const { return twice_; }

 private:
  using Key = std::tuple<std::string, std::string, std::string>;  // domain, name, overload
  std::map<Key, const onnx::FunctionProto*> functions_;
  std::string twice_;
};

// "com.example.Silu"
std::string name_of_function(const onnx::FunctionProto& function);

// The call as a Node with one attribute, "body". Its inputs are those that the call does not leave out. `opset`: of the model, which
// holds where the function imports none.
Node read_call(const onnx::FunctionProto& function, const onnx::NodeProto& call, size_t index, int64_t opset, const std::string& where);

}  // namespace tamp::frontend
