// From an ONNX file to a Graph. Nothing in a model is trusted: every failure is an Error of one line that names the file, the node and its
// operator, the attribute or tensor, what was found and what is supported.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "compiler/frontend/declared_types.h"
#include "compiler/ir/graph.h"
#include "compiler/ops/ops.h"

namespace tamp::frontend {

using Frozen = std::map<std::string, ops::Value>;
using ExternalData = std::map<std::string, TensorData>;  // by what names it in the model

struct ReadOptions {
  std::map<std::string, int64_t> dims;             // --dim N=8: symbolic dimensions
  bool load_weights = true;                        // false: external data is checked for presence and size but not read (inspect)
  Frozen frozen = {};                              // --freeze X=FILE: inputs that become constants
  int64_t batch = 0;                               // --batch N: the first extent of all inputs that are left; 0 = as the model says
  std::map<std::string, DimRange> ranges = {};     // --dim N=1:512: dimensions that each run gives (lengths.h)
  std::optional<DimRange> batches = {};            // --batch 1:8
  std::map<std::string, int64_t> open_trips = {};  // Builder::open_trips
  // What makes recurrent networks of their steps, for those of as many steps as a length says; without, they are loops of run time.
  std::function<Graph(Graph)> lift = {};
  // Changes what was read; with lengths, at each value that the model is read with, before they are followed.
  std::function<void(Graph&)> extend = {};
  // What other readings of the model know of its external data. Readings that share it have the same TensorData.
  std::shared_ptr<ExternalData> external = nullptr;
  bool keeps_copies = false;  // a Slice of all elements and the like stay, so that graphs of several lengths are alike
};

// The graph as the model words it: unfused, in topological order, shapes static, integer shape arithmetic folded.
// Throws Error: bad input (not an ONNX model, broken graph, lying shapes, unsafe external data) or unsupported (all
// operators, versions and element types that are not supported, listed at once, one a line). With a batch other than the model's own each
// element gets what the model makes of it alone (rebatch.h). With ranges the graph has the shapes of their largest values and is right for
// all of them (lengths.h).
Graph read_onnx(const std::string& path, const ReadOptions& options);

// What `tamp inspect MODEL.onnx` prints; works for models that cannot be compiled.
struct ModelSummary {
  struct Port {
    std::string name, type, shape;                 // shape as text, with symbols
    std::optional<std::vector<DeclaredDim>> dims;  // none: of unknown rank, or no tensor
  };
  int64_t ir_version = 0;
  std::vector<std::pair<std::string, int64_t>> opsets;  // domain, version
  std::string producer;
  std::vector<Port> inputs, outputs;
  std::vector<std::pair<std::string, int64_t>> histogram;  // operator, count; most frequent first
  std::vector<std::string> unsupported;                    // found by names and declared types alone; read_onnx's list is complete
  std::string missing_file;                                // the first file of external data that is not there, or empty
  int64_t nodes = 0, parameters = 0, parameter_bytes = 0;
};
ModelSummary summarize_onnx(const std::string& path);

// For `tamp ops`: every supported operator with the versions whose meaning is known and any limit.
struct SupportedOp {
  std::string domain, name;
  std::vector<int> versions;
  std::string limits;
};
std::vector<SupportedOp> supported_ops();

// A tensor file as ONNX's test data has them (TensorProto, .pb). Error (bad input) names the file.
ops::Value read_tensor_pb(const std::string& path);

}  // namespace tamp::frontend
