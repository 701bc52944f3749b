// Operators of the domain com.microsoft, which ONNX Runtime's optimiser writes into models of transformers in place of the operators
// that it joins.
#include <fmt/format.h>

#include <cmath>
#include <limits>
#include <numeric>

#include "compiler/frontend/attention.h"
#include "compiler/frontend/import_normalize.h"
#include "compiler/support/text.h"

namespace tamp::frontend {

void import_ms_gelu(NodeImport& n) {
  n.expect_inputs(1, 1);
  n.expect_outputs(1);
  n.expect_float({n.in(0)});
  n.result(0, n.elementwise(ElementwiseOp::gelu, {n.in(0)}));
}

// Gelu of a sum: BiasGelu, whose bias must be there, and FastGelu, which is the approximation by tanh.
void import_bias_gelu(NodeImport& n, ElementwiseOp gelu) {
  n.expect_inputs(gelu == ElementwiseOp::gelu ? 2 : 1, 2);
  n.expect_outputs(1);
  TensorId x = n.in(0);
  n.expect_float({x});
  if (n.has(1)) {
    n.expect_float({x, n.in(1)});
    const Shape bias = n.shape(n.in(1));
    if (bias.size() != 1 || n.rank(x) < 1 || bias[0] != n.shape(x).back())
      throw n.bad(fmt::format("the bias has shape {}, expected one number for each of the last dimension of {}", shape_text(bias),
                              shape_text(n.shape(x))));
    x = n.elementwise(ElementwiseOp::add, {x, n.in(1)});
  }
  n.result(0, n.elementwise(gelu, {x}));
}

// x * sigmoid(alpha * x)
void import_quick_gelu(NodeImport& n) {
  n.expect_inputs(1, 1);
  n.expect_outputs(1);
  const TensorId x = n.in(0);
  n.expect_float({x});
  const TensorId scaled = n.elementwise(ElementwiseOp::mul, {x, scalar_of(n, n.attr_float("alpha", 1.702F), n.dtype(x))});
  n.result(0, n.elementwise(ElementwiseOp::mul, {x, n.elementwise(ElementwiseOp::sigmoid, {scaled})}));
}

void import_fused_matmul(NodeImport& n) {
  n.expect_inputs(2, 2);
  n.expect_outputs(1);
  n.expect_float({n.in(0), n.in(1)});
  for (const char* name : {"transBatchA", "transBatchB"}) {
    if (n.attr_flag(name, false)) throw n.refuse(fmt::format("attribute '{}' is 1, supported: 0", name));
  }
  const MatMul matmul{n.attr_flag("transA", false), n.attr_flag("transB", false), n.attr_float("alpha", 1), 1};
  n.result(0, n.add(matmul, {n.in(0), n.in(1), TensorId()}));
}

// The sum of two activations (and a bias), normalised over its last dimension; the sum itself is the last output.
void import_skip_layer_normalization(NodeImport& n, bool centered) {
  const size_t bias_at = centered ? 4 : 3;
  n.expect_inputs(3, bias_at + 1);
  n.expect_outputs(4);
  refuse_outputs(n, {1, 2});
  const TensorId x = n.in(0), skip = n.in(1), beta = centered ? n.optional_in(3) : TensorId();
  n.expect_float({x, skip, n.in(2)});
  if (n.broadcast(n.shape(x), n.shape(skip)) != n.shape(x)) {
    throw n.bad(fmt::format("input skip has shape {}, which does not broadcast to the input's {}", shape_text(n.shape(skip)),
                            shape_text(n.shape(x))));
  }
  TensorId sum = n.elementwise(ElementwiseOp::add, {x, skip});
  if (n.has(bias_at)) sum = n.elementwise(ElementwiseOp::add, {sum, n.in(bias_at)});
  const LayerNorm norm{n.axis(-1, n.rank(x)), n.attr_float("epsilon", 1e-12F), centered};
  if (n.shape(sum) != n.shape(x))
    throw n.bad(fmt::format("input bias makes {} of the input's {}", shape_text(n.shape(sum)), shape_text(n.shape(x))));
  n.result(0, layer_norm(n, norm, sum, n.in(2), beta));
  n.result(3, sum);
}

// The sum of the embeddings of words, positions and segments, normalised. The second output counts the ones of each row of the mask.
void import_embed_layer_normalization(NodeImport& n) {
  enum Input : size_t { kIds, kSegments, kWords, kPositions, kSegmentTable, kGamma, kBeta, kMask, kPositionIds };
  n.expect_inputs(7, 9);
  n.expect_outputs(3);
  n.attr_int("mask_index_type", 0);  // what the second output is for others; its values are the same
  const TensorId ids = n.in(kIds);
  const Shape shape = n.shape(ids);
  if (shape.size() != 2) throw n.bad(fmt::format("input input_ids has shape {}, expected [batch,length]", shape_text(shape)));
  TensorId sum = take_rows(n, n.in(kWords), ids, "word_embedding");
  TensorId positions;
  if (n.has(kPositionIds)) {
    const Shape found = n.shape(n.in(kPositionIds));
    if (found != shape && found != Shape{1, shape[1]})
      throw n.bad(fmt::format("input position_ids has shape {}, expected {}", shape_text(found), shape_text(shape)));
    positions = take_rows(n, n.in(kPositions), n.in(kPositionIds), "position_embedding");
  } else {
    Ints count(static_cast<size_t>(shape[1]));
    std::iota(count.begin(), count.end(), 0);
    positions = take_rows(n, n.in(kPositions), n.constant_i64(count, {shape[1]}), "position_embedding");
  }
  sum = n.elementwise(ElementwiseOp::add, {sum, positions});
  if (n.has(kSegments) != n.has(kSegmentTable)) throw n.bad("one of segment_ids and segment_embedding is missing");
  if (n.has(kSegments)) {
    if (n.shape(n.in(kSegments)) != shape)
      throw n.bad(fmt::format("input segment_ids has shape {}, expected {}", shape_text(n.shape(n.in(kSegments))), shape_text(shape)));
    sum = n.elementwise(ElementwiseOp::add, {sum, take_rows(n, n.in(kSegmentTable), n.in(kSegments), "segment_embedding")});
  }
  const LayerNorm norm{2, n.attr_float("epsilon", 1e-12F), /*centered=*/true};
  n.result(0, layer_norm(n, norm, sum, n.in(kGamma), n.in(kBeta)));
  n.result(2, sum);
  if (!n.wants(1)) return;
  if (!n.has(kMask)) return n.result(1, n.expand(n.cast(n.constant_f32(0), DType::i32), {shape[0]}));
  if (n.shape(n.in(kMask)) != shape || !is_integer(n.dtype(n.in(kMask)))) {
    throw n.bad(fmt::format("input mask is {}{}, expected i32{}", name_of(n.dtype(n.in(kMask))), shape_text(n.shape(n.in(kMask))),
                            shape_text(shape)));
  }
  const TensorId one = n.cast(n.constant_f32(1), n.dtype(n.in(kMask)));
  const TensorId is_one = n.elementwise(ElementwiseOp::equal, {n.in(kMask), one});
  n.result(1, n.add(Reduce{ReduceKind::sum, {1}, /*keepdims=*/false}, {n.cast(is_one, DType::i32)}));
}

namespace {

// Attention of com.microsoft: one product makes queries, keys and values of the input.
class MsAttention {
 public:
  explicit MsAttention(NodeImport& n) : n_(n) {}

  void run() {
    n_.expect_inputs(2, 7);
    n_.expect_outputs(2);
    if (n_.has(kPastLength)) throw n_.refuse("input past_sequence_length is given, supported: without it");
    for (const char* name : {"do_rotary", "past_present_share_buffer"}) {
      if (n_.attr_flag(name, false)) throw n_.refuse(fmt::format("attribute '{}' is 1, supported: 0", name));
    }
    n_.ignore("rotary_embedding_dim");  // of do_rotary
    read_shapes();
    make_heads();
    append_past();
    AttentionOptions options;
    const float given = n_.attr_float("scale", 0);
    options.scale = given != 0 ? given : 1 / std::sqrt(static_cast<float>(n_.shape(q_)[3]));
    n_.result(0, join_heads(n_, attend(n_, q_, k_, v_, options, mask()).y));
  }

 private:
  enum Input : size_t { kX, kWeights, kBias, kMask, kPast, kAttentionBias, kPastLength };

  void read_shapes() {
    n_.expect_float({n_.in(kX), n_.in(kWeights)});
    x_ = n_.shape(n_.in(kX));
    const Shape weights = n_.shape(n_.in(kWeights));
    if (x_.size() != 3 || weights.size() != 2 || weights[0] != x_[2]) {
      throw n_.bad(fmt::format("input has shape {}, weights {}, expected [batch,length,size] and [size,queries + keys + values]",
                               shape_text(x_), shape_text(weights)));
    }
    const std::optional<int64_t> heads = n_.find_int("num_heads");
    if (!heads || *heads < 1) throw n_.bad("attribute 'num_heads' is missing or not positive");
    heads_ = *heads;
    const int64_t third = weights[1] / 3;
    sizes_ = n_.find_ints("qkv_hidden_sizes").value_or(Ints{third, third, third});
    if (sizes_.empty()) sizes_ = {third, third, third};
    int64_t sum = 0;
    for (const int64_t size : sizes_) sum += size >= 0 && size <= weights[1] ? size : weights[1] + 1;
    if (sizes_.size() != 3 || sum != weights[1] || sizes_[0] != sizes_[1] || sizes_[0] % heads_ != 0 || sizes_[2] % heads_ != 0) {
      throw n_.bad(fmt::format("weights of shape {} do not divide into {} heads of queries, keys and values of sizes {}",
                               shape_text(weights), heads_, shape_text(sizes_)));
    }
    if (n_.has(kBias) && n_.shape(n_.in(kBias)) != Shape{weights[1]})
      throw n_.bad(fmt::format("input bias has shape {}, expected {}", shape_text(n_.shape(n_.in(kBias))), shape_text({weights[1]})));
  }

  void make_heads() {
    TensorId all = matrix_product(n_, n_.in(kX), n_.in(kWeights));
    if (n_.has(kBias)) all = n_.elementwise(ElementwiseOp::add, {all, n_.in(kBias)});
    const auto part = [&](int64_t first, int64_t size) { return split_heads(n_, slice_axis(n_, all, 2, first, size), heads_); };
    q_ = part(0, sizes_[0]);
    k_ = part(sizes_[0], sizes_[1]);
    v_ = part(sizes_[0] + sizes_[1], sizes_[2]);
  }

  // past[2,B,N,length,size] has keys and values; so has present.
  void append_past() {
    if (n_.has(kPast)) {
      const TensorId past = n_.in(kPast);
      const Shape found = n_.shape(past);
      Shape expected = n_.shape(k_);
      expected.insert(expected.begin(), 2);
      if (found.size() == 5) expected[3] = past_ = found[3];
      if (found != expected || sizes_[1] != sizes_[2])
        throw n_.bad(fmt::format("input past has shape {}, expected {}", shape_text(found), shape_text(expected)));
      k_ = past_ == 0 ? k_ : n_.add(Concat{2}, {n_.part(past, 0), k_});
      v_ = past_ == 0 ? v_ : n_.add(Concat{2}, {n_.part(past, 1), v_});
    }
    if (!n_.wants(1)) return;
    Shape one = n_.shape(k_);
    one.insert(one.begin(), 1);
    if (sizes_[1] != sizes_[2]) throw n_.refuse("output present is used where keys and values differ in size, supported: of one size");
    n_.result(1, n_.add(Concat{0}, {n_.reshape(k_, one), n_.reshape(v_, one)}));
  }

  // Of [B], the number of keys that count; of [B,keys] or [B,length,keys], 1 where a key counts. What does not is not masked but gets
  // attribute 'mask_filter_value' added.
  TensorId counting_keys() {
    const TensorId given = n_.in(kMask);
    const Shape shape = n_.shape(given);
    const int64_t batch = x_[0], keys = n_.shape(k_)[2];
    if (n_.dtype(given) != DType::i32) throw n_.bad(fmt::format("input mask_index is {}, expected i32", name_of(n_.dtype(given))));
    const TensorId zero = n_.cast(n_.constant_f32(0), DType::i32);
    if (shape == Shape{batch}) {
      Ints numbers(static_cast<size_t>(keys));
      std::iota(numbers.begin(), numbers.end(), 0);
      const TensorId key = n_.cast(n_.constant_i64(numbers, {1, 1, 1, keys}), DType::i32);
      return n_.elementwise(ElementwiseOp::less, {key, n_.reshape(given, {batch, 1, 1, 1})});
    }
    if (shape == Shape{batch, keys}) return n_.elementwise(ElementwiseOp::greater, {n_.reshape(given, {batch, 1, 1, keys}), zero});
    if (shape == Shape{batch, x_[1], keys})
      return n_.elementwise(ElementwiseOp::greater, {n_.reshape(given, {batch, 1, x_[1], keys}), zero});
    throw n_.refuse(fmt::format("input mask_index has shape {}, supported: {}, {}, {}", shape_text(shape), shape_text({batch}),
                                shape_text({batch, keys}), shape_text({batch, x_[1], keys})));
  }

  AttentionMask mask() {
    const DType dtype = n_.dtype(q_);
    AttentionMask mask;
    const auto add = [&](TensorId bias) { mask.bias = mask.bias.valid() ? n_.elementwise(ElementwiseOp::add, {mask.bias, bias}) : bias; };
    const float filter = n_.attr_float("mask_filter_value", -10000.0F);
    if (n_.has(kMask)) add(bias_of(n_, counting_keys(), filter, dtype));
    const int64_t queries = x_[1], keys = n_.shape(k_)[2];
    if (n_.attr_flag("unidirectional", false)) {
      n_.charge(queries * keys);
      Bytes bytes;
      for (int64_t i = 0; i < queries; ++i) {
        for (int64_t j = 0; j < keys; ++j) bytes.push_back(std::byte{j <= i + past_});
      }
      const TensorId kept = n_.constant({DType::boolean, {queries, keys}, std::make_shared<const Bytes>(std::move(bytes))});
      add(bias_of(n_, kept, -std::numeric_limits<float>::infinity(), dtype));
    }
    if (n_.has(kAttentionBias)) {
      const Shape scores = {x_[0], heads_, queries, keys}, found = n_.shape(n_.in(kAttentionBias));
      n_.expect_float({n_.in(kX), n_.in(kAttentionBias)});
      if (found.size() != 4 || n_.broadcast(scores, found) != scores)
        throw n_.bad(fmt::format("input attention_bias has shape {}, expected {}", shape_text(found), shape_text(scores)));
      add(n_.in(kAttentionBias));
    }
    return mask;
  }

  NodeImport& n_;
  Shape x_;
  Ints sizes_;  // of all heads' queries, keys, and values
  int64_t heads_ = 1, past_ = 0;
  TensorId q_, k_, v_;  // [B,heads,length,size]
};

}  // namespace

void import_ms_attention(NodeImport& n) { MsAttention(n).run(); }

}  // namespace tamp::frontend
