// What a model asks for and tamp does not do: all of it, in the order of the file.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace onnx {
class ModelProto;
}

namespace tamp::frontend {

struct Refusals {
  std::vector<std::pair<size_t, std::string>> lines;  // position in the file, message

  void add(const std::string& line, size_t position = 0) { lines.emplace_back(position, line); }
  std::vector<std::string> sorted() const;
  void throw_if_any() const;  // Error (unsupported), one line each
};

// Everything that can be refused by name alone: operators, domains, versions, sparse initializers.
Refusals find_refusals(const std::string& path, const onnx::ModelProto& model, int64_t opset);

}  // namespace tamp::frontend
