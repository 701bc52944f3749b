// The graph under construction: adds rOperators, folds those whose operands are all constants, keeps names unique. Where the device
// computes an operator in f32 only, operands of f16 and bf16 (and 8-bit integers of MaxPool) are cast to f32 and the results back.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "compiler/frontend/initializers.h"
#include "compiler/frontend/rebatch.h"
#include "compiler/ir/graph.h"
#include "compiler/ops/ops.h"
#include "compiler/support/unique_names.h"

namespace tamp::frontend {

// Limits on constants that folding makes: a model of a few bytes can ask for terabytes (Expand, ConstantOfShape, Range). The limit on
// folding's time is ops::kFoldTotalWork.
inline constexpr int64_t kFoldTensorBytes = int64_t{64} << 20;
inline constexpr int64_t kFoldTotalBytes = int64_t{512} << 20;

class Builder {
 public:
  Graph graph;
  // Tensors whose number of valid entries along `axis` is known only at run time; the tensor `count` (i64[1]) holds it (padded.h).
  struct Padded {
    TensorId count;
    int64_t axis = 0;
  };
  std::map<TensorId, Padded> padded;
  std::map<TensorId, NarrowType> narrow;  // tensors whose numbers are of a type that is held in another
  ModelWords words;
  // Sequences of tensors, which exist at import alone: a constant that nobody reads stands for one wherever a value has a TensorId.
  std::map<TensorId, std::vector<TensorId>> sequences;
  // Where a sequence's elements lie in one tensor along `axis`, too. Of those that a loop of run time has made, `is_whole`, this counts:
  // the list has as many elements as the loop has iterations at this length.
  struct Stacked {
    TensorId tensor;
    int64_t axis = 0;
    bool is_whole = false;
  };
  std::map<TensorId, Stacked> stacked;
  // What an iteration of a loop of run time has put into sequences that grow from iteration to iteration.
  struct Put {
    TensorId tensor;
    bool is_in_front = false;
  };
  std::map<TensorId, std::vector<Put>> growing;
  std::vector<TensorId> open_loops;  // the conditions of the loops of run time whose bodies are being imported, outermost first
  int64_t loops = 0;                 // of run time, so far
  // Iterations of Loops and Scans that are known at import, by the node's name and in order; kUnknownTrips where only a loop of run time
  // knows. Of a model that is read at several lengths, `open_trips` are those that become loops of run time: their counts depend on one.
  using Trips = std::map<std::string, std::vector<int64_t>>;
  static constexpr int64_t kUnknownTrips = -1;
  Trips trips;
  std::map<std::string, int64_t> open_trips;
  bool keeps_copies = false;      // what moves no element is emitted, too: of a model with lengths of run time it may at another length
  std::vector<ROperator> folded;  // with keeps_copies: what was folded, in order
  bool may_read_padded = false;   // what is emitted now takes each entry by itself; other readers of padded tensors are refused

  // One rOperator to be added. The types of its results follow from attributes and operands (ops::infer). `name` is a wish. If the results
  // can be folded, they become constants and no rOperator is added.
  struct Request {
    OpAttrs attrs;
    std::vector<TensorId> inputs;
    std::string name;    // of the rOperator
    std::string origin;  // the ONNX node
    std::string where;   // the beginning of every message
    bool folds = true;   // false: it stays, since its constants may be others at another length
  };
  TensorId emit(Request request) { return emit_all(std::move(request)).at(0); }
  std::vector<TensorId> emit_all(Request request);
  // The types of the results that emit(request) would make. Error, beginning with request.where, if the operands do not fit.
  std::vector<ops::TensorType> infer(const Request& request) const;

  TensorId add_value(const std::string& name, ops::Value value);
  TensorId add_file_tensor(const std::string& name, FileTensor value);
  // The constant that `name` would be, made once for all nodes that ask for it by the same key. Its bytes are made of `source`'s, which the
  // file holds in fewer bits, and so it is not charged; another constant of the same source is.
  using Key = std::vector<int64_t>;
  TensorId unpacked(const std::string& name, TensorId source, const Key& key, ops::Value value, const std::string& where);
  // x[i] along the first dimension of a constant. Nodes that share weights share their parts.
  TensorId constant_part(TensorId id, int64_t i);
  // Takes the bytes of a new constant off the budget; Error (bad input) if less is left.
  void charge(int64_t bytes, const std::string& where);

  bool is_constant(TensorId id) const { return graph.tensor(id).role == Role::constant; }
  bool has_data(TensorId id) const { return graph.tensor(id).data != nullptr; }
  DType dtype(TensorId id) const { return graph.tensor(id).dtype; }
  ops::Value value(TensorId id) const;

  void reserve_tensor_name(const std::string& name) { tensor_names_.take(name); }
  std::string unique_tensor_name(const std::string& wish) { return tensor_names_.unique(wish, ":"); }

 private:
  using Types = std::vector<ops::TensorType>;
  ops::OperandList operands_of(const Request& request) const;
  bool may_fold(const Request& request, const Types& types) const;
  std::vector<TensorId> fold(Request request, const Types& types);
  std::vector<TensorId> add_results(const std::string& name, const Types& types);
  std::vector<TensorId> emit_in_f32(Request request, DType dtype);
  TensorId cast(const Request& request, TensorId id, DType to);

  UniqueNames tensor_names_, rop_names_;
  std::map<std::pair<TensorId, int64_t>, TensorId> parts_;
  std::map<std::pair<TensorId, Key>, TensorId> unpacked_;
  int64_t folded_bytes_ = 0, folded_work_ = 0;
};

}  // namespace tamp::frontend
