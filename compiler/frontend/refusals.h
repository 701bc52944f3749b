// What a model asks for and tamp does not do: all of it, in the order of the file.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "compiler/frontend/op_table.h"
#include "compiler/support/error.h"

namespace onnx {
class GraphProto;
class ModelProto;
class NodeProto;
}  // namespace onnx

namespace tamp::frontend {

// Thrown where something cannot be imported because of what is on the list already.
struct AlreadyRefused {};

struct Refusals {
  // Where it belongs in the list: nodes by their index, and inputs and initializers before all nodes.
  std::vector<std::pair<int64_t, std::string>> lines;

  void add(const std::string& line, int64_t node = -1) { lines.emplace_back(node, line); }
  // Takes `action`'s refusal into the list.
  template <class F>
  void collect(int64_t node, F&& action) {
    try {
      action();
    } catch (const AlreadyRefused&) {
    } catch (const Error& error) {
      if (error.code() != ExitCode::unsupported) throw;
      add(error.what(), node);
    }
  }
  std::vector<std::string> sorted() const;
  void throw_if_any() const;  // Error (unsupported), one line each
};

// Everything that can be refused by name alone: operators, domains, versions, sparse initializers. What the bodies of nodes and of the
// model's functions hold is found when they are imported.
Refusals find_refusals(const std::string& path, const onnx::ModelProto& model, int64_t opset);

}  // namespace tamp::frontend
