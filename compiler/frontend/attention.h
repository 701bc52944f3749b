// Scaled dot product attention, expressed as two products with a Softmax between them. It is shared by the importers of ONNX's Attention
// and of ONNX Runtime's, which differ in how operands lie and in what masks mean.
#pragma once

#include <optional>

#include "compiler/frontend/importers.h"

namespace tamp::frontend {

// Which keys a query looks at. `bias` and `kept` broadcast to [B,N,queries,keys].
struct AttentionMask {
  TensorId bias;  // is added to the scores; may be none
  // Bool; the weight of a key is 0 where `kept` is false. Needed only if all keys of a query may be masked, for which Softmax would give
  // NaN; else none.
  TensorId kept;
};

struct AttentionOptions {
  double scale = 1;                     // rounded to f32 unless scores are f64
  float softcap = 0;                    // 0: none
  TensorId sink{};                      // a score more for each row, whose value is 0; broadcasts to [B,N,queries,1]
  std::optional<DType> softmax_type{};  // none: the type of the scores
};

struct AttentionParts {
  TensorId scores;   // scale * q * k'
  TensorId capped;   // scores between -softcap and softcap
  TensorId biased;   // capped, plus the mask's bias
  TensorId weights;  // softmax of `biased`
  TensorId y;        // weights * v, [B,N,queries,V]
};

// q[B,N,queries,S], k[B,M,keys,S], v[B,M,keys,V]: N / M query heads share a head of keys and values. The mask is of the scores' type.
AttentionParts attend(NodeImport& n, TensorId q, TensorId k, TensorId v, const AttentionOptions& options, const AttentionMask& mask);

// [B,S,heads * size] -> [B,heads,S,size] and back.
TensorId split_heads(NodeImport& n, TensorId x, int64_t heads);
TensorId join_heads(NodeImport& n, TensorId x);

// How many keys the inputs past_key and past_value have, which must go with k and v [B,N,S,D]; 0 without these inputs.
int64_t past_keys(NodeImport& n, size_t key, size_t value, TensorId k, TensorId v);
// The same, and puts them in front of k and v.
int64_t append_past(NodeImport& n, size_t key, size_t value, TensorId& k, TensorId& v);

struct Rotary {
  bool interleaved = false;
  int64_t size = 0;  // how many elements of a head are rotated
};
// x[B,S,N,D] or x[B,N,S,D] by cosines and sines that broadcast to x[.., .., .., size / 2].
TensorId rotated(NodeImport& n, const Rotary& rotary, TensorId x, TensorId cosine, TensorId sine);

// table[ids, :]. An id out of range takes the nearest row if it comes at run time, as in Gather; an id that is known now is refused.
TensorId take_rows(NodeImport& n, TensorId table, TensorId ids, const char* table_name);
TensorId scalar_of(NodeImport& n, float value, DType dtype);
// 0 where `kept` is true, else `otherwise`.
TensorId bias_of(NodeImport& n, TensorId kept, float otherwise, DType dtype);

}  // namespace tamp::frontend
