// The list of all that a model asks for and tamp does not support, in the order of the file.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "compiler/frontend/op_table.h"
#include "compiler/support/error.h"

namespace onnx {
class GraphProto;
class ModelProto;
class NodeProto;
}  // namespace onnx

namespace tamp::frontend {

// Thrown where something cannot be imported because of a refusal that is on the list already.
struct AlreadyRefused {};

struct Refusals {
  struct Line {
    int64_t position = -1;  // in the list: nodes by their index in the model's graph, and inputs and initializers before all nodes
    std::string text;
    Refusal data;
  };
  std::vector<Line> lines;

  void add(const std::string& text) { lines.push_back({-1, text, {"", "", text}}); }
  void add(const std::string& where, const std::string& why, const onnx::NodeProto& node, int64_t position);  // `where`: its node_text
  // Runs `action` and adds its refusal, if it throws one, to the list. The second form is for refusals about a node, whose messages begin
  // with `where`.
  void collect(auto&& action) {
    if (const std::optional<std::string> text = refusal_of(action)) add(*text);
  }
  void collect(const std::string& where, const onnx::NodeProto& node, int64_t position, auto&& action) {
    if (const std::optional<std::string> text = refusal_of(action))
      add(where, text->starts_with(where + ": ") ? text->substr(where.size() + 2) : *text, node, position);
  }
  std::vector<std::string> sorted() const;  // a line each; nodes of one operator that are refused for the same reason share one
  void throw_if_any() const;                // Error (unsupported), with these lines

 private:
  static std::optional<std::string> refusal_of(auto& action) {
    try {
      action();
    } catch (const AlreadyRefused&) {
    } catch (const Error& error) {
      if (error.code() != ExitCode::unsupported) throw;
      return error.what();
    }
    return std::nullopt;
  }
  std::vector<Line> first_lines() const;
};

// Everything that can be refused by name alone: operators, domains, versions, sparse initializers. What the bodies of nodes and of the
// model's functions hold is found when they are imported.
Refusals find_refusals(const std::string& path, const onnx::ModelProto& model, int64_t opset);

}  // namespace tamp::frontend
