// The functions that every operator has, in compiler/ops/OPERATOR.cpp. If one is missing, tamp does not link.
//
//   infer        the types of the results, or an Error that names operands in ONNX's words ("X has shape [2], expected ...")
//   evaluate     the reference; one value for each result, of the types that the graph says. infer has accepted the operands.
//   traits_of    see Traits
//   own_work     how long evaluate takes (see work_of) beyond reading each operand and writing each element of the result once
#pragma once

#include "compiler/ops/call.h"

namespace tamp::ops {

// The operands of `infer` with the checks that many operators need.
class Given {
 public:
  explicit Given(const OperandList& operands) : operands_(operands) {}

  size_t count() const { return operands_.size(); }
  bool has(size_t i) const { return i < operands_.size() && operands_[i].has_value(); }
  const TensorType& type(size_t i) const { return operands_[i]->type; }
  const Shape& shape(size_t i) const { return operands_[i]->type.shape; }
  DType dtype(size_t i) const { return operands_[i]->type.dtype; }
  int64_t rank(size_t i) const { return static_cast<int64_t>(shape(i).size()); }
  int64_t elements(size_t i) const { return has(i) ? element_count(shape(i)) : 0; }
  int64_t elements() const;  // of all together
  const OperandList& all() const { return operands_; }

  // Error unless there are at least `least` operands, none of the first `least` left out, and at most `most`.
  void expect(size_t least, size_t most) const;
  void expect(size_t exactly) const { expect(exactly, exactly); }
  // Error if operand `i` is there and has another shape.
  void expect_shape(size_t i, const char* name, const Shape& shape) const;
  // One entry for each dimension of the first operand (or `rank` of them).
  void expect_entries(const std::vector<int64_t>& list, const char* attribute, size_t rank) const;

 private:
  const OperandList& operands_;
};

using TensorTypes = std::vector<TensorType>;

// The results' types that the device has no body for (is_f32_only).
enum class InF32 : uint8_t { none, halves, all };

// What passes ask of an operator (ops.h).
struct Traits {
  Layout layout;
  InF32 in_f32;
  bool is_identity = false;
};

#define TAMP_DECLARE(Op)                                       \
  TensorTypes infer(const Op& op, const Given& given);         \
  std::vector<Value> evaluate(const Op& op, const Call& call); \
  Traits traits_of(const Op& op);                              \
  int64_t own_work(const Op& op, const Given& given, const TensorTypes& results);
TAMP_OPERATORS(TAMP_DECLARE)
TAMP_LOOP_MARKS(TAMP_DECLARE)  // loop.cpp
TAMP_DECLARE(Fused)            // fused.cpp: asks the steps
#undef TAMP_DECLARE

// Work of reading an element in a window or in the loop of a reduction, which costs more than walking over it once.
inline constexpr int64_t kWorkOfRead = 8;
int64_t saturating_sum(int64_t a, int64_t b);
int64_t saturating_product(std::initializer_list<int64_t> factors);

bool broadcasts_to(const Shape& from, const Shape& to);  // one way

}  // namespace tamp::ops
