// Types and shapes that a model declares. Those of inputs are needed; those of outputs and value_info are claims, which are checked. Also
// the binding of symbolic dimensions to numbers.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "compiler/ir/tensor.h"

namespace onnx {
class ValueInfoProto;
}

namespace tamp::frontend {

// One dimension: a number, or a symbol. An anonymous dimension k of tensor x has the symbol "x.k".
struct DeclaredDim {
  int64_t extent = -1;
  std::string symbol;
};

struct DeclaredType {
  std::string kind;                              // "tensor", "sequence", ..., "" = no type at all
  int element_type = 0;                          // ONNX's number
  std::optional<std::vector<DeclaredDim>> dims;  // none: of unknown rank
};

DeclaredType declared_type(const onnx::ValueInfoProto& value);

// "[N,3,224,224]", "unknown rank".
std::string dims_text(const DeclaredType& type);

class DimBinding {
 public:
  DimBinding(std::string file, std::map<std::string, int64_t> dims) : file_(std::move(file)), dims_(std::move(dims)) {}

  // Gives the symbols of a declared type the extents of a value. Error (bad input), beginning with `where`, if they do not fit.
  void bind_to(const DeclaredType& type, const Shape& shape, const std::string& where);
  // Gives a symbol a value by another option than --dim, which `why` names: "--batch 8". Error (bad input) if the symbol has another value
  // already.
  void bind_symbol(const std::string& symbol, int64_t extent, const std::string& why);

  // Notes the symbols of an input; none if one of them is not bound. Error (bad input): no rank, negative extent.
  std::optional<Shape> bind(const DeclaredType& type, const std::string& where);
  // Error (bad input) if a name was given that is no symbol.
  void check_names() const;
  // A message that lists all symbols without a value and says how to give them one; empty if there are none.
  std::string unbound() const;

 private:
  std::string file_;
  std::map<std::string, int64_t> dims_;
  std::set<std::string> by_other_options_;  // of dims_, those that --dim did not give
  std::vector<std::string> symbols_;        // in the order of the inputs
  std::set<std::string> seen_;
};

}  // namespace tamp::frontend
