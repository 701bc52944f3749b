// What a model asks for and tamp does not do: all of it, in the order of the file.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace onnx {
class ModelProto;
}

namespace tamp::frontend {

struct Refusals {
  // Where it belongs in the list: nodes by their index, and inputs and initializers before all nodes.
  std::vector<std::pair<int64_t, std::string>> lines;

  void add(const std::string& line, int64_t node = -1) { lines.emplace_back(node, line); }
  std::vector<std::string> sorted() const;
  void throw_if_any() const;  // Error (unsupported), one line each
};

// Everything that can be refused by name alone: operators, domains, versions, sparse initializers.
Refusals find_refusals(const std::string& path, const onnx::ModelProto& model, int64_t opset);

}  // namespace tamp::frontend
