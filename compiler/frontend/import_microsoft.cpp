// Operators of the domain com.microsoft, which ONNX Runtime's optimiser writes into models of transformers: each joins several ONNX
// operators.
#include "compiler/frontend/attention.h"
#include "compiler/frontend/import_normalize.h"
#include "compiler/support/text.h"

namespace tamp::frontend {

void import_ms_gelu(NodeImport& n) {
  n.expect_counts(1, 1);
  n.expect_float({n.in(0)});
  n.result(0, n.elementwise(ElementwiseOp::gelu, {n.in(0)}));
}

// Gelu of a sum: BiasGelu, whose bias must be there, and FastGelu, which is the approximation by tanh.
void import_bias_gelu(NodeImport& n, ElementwiseOp gelu) {
  n.expect_counts(gelu == ElementwiseOp::gelu ? 2 : 1, 2);
  TensorId x = n.float_in(0);
  if (n.has(1)) {
    n.expect_float({x, n.in(1)});
    const Shape bias = n.shape(n.in(1));
    if (bias.size() != 1 || n.rank(x) < 1 || bias[0] != n.shape(x).back())
      throw n.bad("the bias has shape {}, expected one number for each of the last dimension of {}", shape_text(bias),
                  shape_text(n.shape(x)));
    x = n.elementwise(ElementwiseOp::add, {x, n.in(1)});
  }
  n.result(0, n.elementwise(gelu, {x}));
}

// x * sigmoid(alpha * x)
void import_quick_gelu(NodeImport& n) {
  n.expect_counts(1, 1);
  const TensorId x = n.float_in(0);
  const TensorId scaled = n.elementwise(ElementwiseOp::mul, {x, scalar_of(n, n.attr_float("alpha", 1.702F), n.dtype(x))});
  n.result(0, n.elementwise(ElementwiseOp::mul, {x, n.elementwise(ElementwiseOp::sigmoid, {scaled})}));
}

void import_fused_matmul(NodeImport& n) {
  n.expect_counts(2, 2);
  n.expect_float({n.in(0), n.in(1)});
  for (const char* name : {"transBatchA", "transBatchB"}) {
    if (n.attr_flag(name, false)) throw n.refuse("attribute '{}' is 1, supported: 0", name);
  }
  const MatMul matmul{n.attr_flag("transA", false), n.attr_flag("transB", false), n.attr_float("alpha", 1), 1};
  n.result(0, n.add(matmul, {n.in(0), n.in(1), TensorId()}));
}

// The sum of two activations (and a bias), normalised over its last dimension; the sum itself is the last output.
void import_skip_layer_normalization(NodeImport& n, bool centered) {
  const size_t bias_at = centered ? 4 : 3;
  n.expect_counts(3, bias_at + 1, 4);
  refuse_outputs(n, {1, 2});
  const TensorId x = n.in(0), skip = n.in(1), beta = centered ? n.optional_in(3) : TensorId();
  n.expect_float({x, skip, n.in(2)});
  if (n.broadcast(n.shape(x), n.shape(skip)) != n.shape(x))
    throw n.bad("input skip has shape {}, which does not broadcast to the input's {}", shape_text(n.shape(skip)), shape_text(n.shape(x)));
  TensorId sum = n.elementwise(ElementwiseOp::add, {x, skip});
  if (n.has(bias_at)) sum = n.elementwise(ElementwiseOp::add, {sum, n.in(bias_at)});
  const LayerNorm norm{n.axis(-1, n.rank(x)), n.attr_float("epsilon", 1e-12F), centered};
  if (n.shape(sum) != n.shape(x)) throw n.bad("input bias makes {} of the input's {}", shape_text(n.shape(sum)), shape_text(n.shape(x)));
  n.result(0, layer_norm(n, norm, sum, n.in(2), beta));
  n.result(3, sum);
}

// The sum of the embeddings of words, positions and segments, normalised. The second output counts the ones of each row of the mask.
void import_embed_layer_normalization(NodeImport& n) {
  enum Input : size_t { kIds, kSegments, kWords, kPositions, kSegmentTable, kGamma, kBeta, kMask, kPositionIds };
  n.expect_counts(7, 9, 3);
  n.attr_int("mask_index_type", 0);  // says what other tools use the second output for; its values are the same
  const TensorId ids = n.in(kIds);
  const Shape shape = n.shape(ids);
  if (shape.size() != 2) throw n.bad("input input_ids has shape {}, expected [batch,length]", shape_text(shape));
  TensorId sum = take_rows(n, n.in(kWords), ids, "word_embedding");
  TensorId positions;
  if (n.has(kPositionIds)) {
    const Shape found = n.shape(n.in(kPositionIds));
    if (found != shape && found != Shape{1, shape[1]})
      throw n.bad("input position_ids has shape {}, expected {}", shape_text(found), shape_text(shape));
    positions = take_rows(n, n.in(kPositions), n.in(kPositionIds), "position_embedding");
  } else {
    positions = take_rows(n, n.in(kPositions), n.constant_i64(range(0, shape[1]), {shape[1]}), "position_embedding");
  }
  sum = n.elementwise(ElementwiseOp::add, {sum, positions});
  if (n.has(kSegments) != n.has(kSegmentTable)) throw n.bad("one of segment_ids and segment_embedding is missing");
  if (n.has(kSegments)) {
    if (n.shape(n.in(kSegments)) != shape)
      throw n.bad("input segment_ids has shape {}, expected {}", shape_text(n.shape(n.in(kSegments))), shape_text(shape));
    sum = n.elementwise(ElementwiseOp::add, {sum, take_rows(n, n.in(kSegmentTable), n.in(kSegments), "segment_embedding")});
  }
  const LayerNorm norm{2, n.attr_float("epsilon", 1e-12F), /*centered=*/true};
  n.result(0, layer_norm(n, norm, sum, n.in(kGamma), n.in(kBeta)));
  n.result(2, sum);
  if (!n.wants(1)) return;
  if (!n.has(kMask)) return n.result(1, n.expand(n.cast(n.constant_f32(0), DType::i32), {shape[0]}));
  if (n.shape(n.in(kMask)) != shape || !is_integer(n.dtype(n.in(kMask))))
    throw n.bad("input mask is {}{}, expected i32{}", name_of(n.dtype(n.in(kMask))), shape_text(n.shape(n.in(kMask))), shape_text(shape));
  const TensorId one = n.cast(n.constant_f32(1), n.dtype(n.in(kMask)));
  const TensorId is_one = n.elementwise(ElementwiseOp::equal, {n.in(kMask), one});
  n.result(1, n.add(Reduce{ReduceKind::sum, {1}, /*keepdims=*/false}, {n.cast(is_one, DType::i32)}));
}

}  // namespace tamp::frontend
