// The graph under construction: adds rOperators, folds those whose operands are all constants, keeps names unique. Where the device
// computes an operator in f32 only, f16 and bf16 (and 8-bit integers of MaxPool) are cast there and back.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "compiler/ir/graph.h"
#include "compiler/ops/ops.h"

namespace tamp::frontend {

// A model of some bytes can ask for terabytes of constants (Expand, ConstantOfShape, Range). What folding may take is ops::kFoldTotalWork.
inline constexpr int64_t kFoldTensorBytes = int64_t{64} << 20;
inline constexpr int64_t kFoldTotalBytes = int64_t{512} << 20;

class UniqueNames {
 public:
  void take(const std::string& name) { taken_.insert(name); }
  std::string unique(const std::string& wish, const std::string& separator);

 private:
  std::unordered_set<std::string> taken_;
  std::unordered_map<std::string, int64_t> next_;  // so that a million equal wishes are not a quadratic search
};

class Builder {
 public:
  Graph graph;
  // Tensors of which only so many entries along `axis` are valid as `count` (i64[1]) says at run time (padded.h).
  struct Padded {
    TensorId count;
    int64_t axis = 0;
  };
  std::map<TensorId, Padded> padded;
  // --batch: the first extent of the inputs as the model has it, and as it is to be; both 0 where the model keeps its own.
  struct Batch {
    int64_t own = 0, wanted = 0;
    std::shared_ptr<const std::map<std::string, Shape>> shapes;  // of tensors with the model's own batch, by name
  };
  Batch batch;
  bool may_read_padded = false;  // what is emitted now takes each entry by itself; anything else that reads such a tensor is refused

  // One rOperator; what it makes follows from attributes and operands (ops::infer). `name` is a wish. Results that are folded become
  // constants and add no rOperator.
  struct Request {
    OpAttrs attrs;
    std::vector<TensorId> inputs;
    std::string name;    // of the rOperator
    std::string origin;  // the ONNX node
    std::string where;   // the beginning of every message
  };
  TensorId emit(Request request) { return emit_all(std::move(request)).at(0); }
  std::vector<TensorId> emit_all(Request request);
  // What it would make. Error with request.where in front if the operands do not fit.
  std::vector<ops::TensorType> infer(const Request& request) const;

  TensorId add_value(const std::string& name, ops::Value value);
  // x[i] along the first dimension of a constant. Nodes that share weights share their parts.
  TensorId constant_part(TensorId id, int64_t i);
  // Takes the bytes of a new constant off the budget; Error (bad input) if there is not so much left.
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
  int64_t folded_bytes_ = 0, folded_work_ = 0;
};

}  // namespace tamp::frontend
