// Scaled dot product attention in operators that there are: two products with a Softmax between them. What ONNX's Attention and ONNX
// Runtime's have in common; they differ in how operands lie and in what masks mean.
#pragma once

#include <optional>

#include "compiler/frontend/importers.h"

namespace tamp::frontend {

// Which keys a query looks at. Both broadcast to [B,N,queries,keys].
struct AttentionMask {
  TensorId bias;  // is added to the scores; may be none
  // Bool; weights are 0 where it is false. Only where all keys of a query may be masked, of which Softmax would make NaN; else none.
  TensorId kept;
};

struct AttentionOptions {
  double scale = 1;                     // of scores that are no f64 rounded to f32
  float softcap = 0;                    // 0: none
  std::optional<DType> softmax_type{};  // none: that of the scores
};

struct AttentionParts {
  TensorId scores;   // scale * q * k'
  TensorId capped;   // scores between -softcap and softcap
  TensorId biased;   // and what the mask adds
  TensorId weights;  // softmax of that
  TensorId y;        // weights * v, [B,N,queries,V]
};

// q[B,N,queries,S], k[B,M,keys,S], v[B,M,keys,V]: N / M query heads share a head of keys and values. The mask is of the scores' type.
AttentionParts attend(NodeImport& n, TensorId q, TensorId k, TensorId v, const AttentionOptions& options, const AttentionMask& mask);

// [B,S,heads * size] -> [B,heads,S,size] and back.
TensorId split_heads(NodeImport& n, TensorId x, int64_t heads);
TensorId join_heads(NodeImport& n, TensorId x);

struct Rotary {
  bool interleaved = false;
  int64_t size = 0;  // how many elements of a head are rotated
};
// x[B,S,N,D] or x[B,N,S,D] by cosines and sines that broadcast to x[.., .., .., size / 2].
TensorId rotated(NodeImport& n, const Rotary& rotary, TensorId x, TensorId cosine, TensorId sine);

// table[ids, :]. A wild id of run time takes the nearest row that there is, as Gather does; one that is known now is refused.
TensorId take_rows(NodeImport& n, TensorId table, TensorId ids, const char* table_name);
TensorId scalar_of(NodeImport& n, float value, DType dtype);
// 0 where `kept` is true, else `otherwise`.
TensorId bias_of(NodeImport& n, TensorId kept, float otherwise, DType dtype);

}  // namespace tamp::frontend
