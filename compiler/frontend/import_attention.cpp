// ONNX's Attention and RotaryEmbedding, and ONNX Runtime's RotaryEmbedding.
//
// Odd: a query that may look at no key at all gives zeros, not NaN. Whether there can be one is known where all masks are constants;
// otherwise the weights are selected once more after the Softmax. In one place the versions' texts changed without a new version: softcap
// comes before the mask, as the text says today (behind the mask, softcap would make a masked key's score finite).
#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "compiler/frontend/attention.h"
#include "compiler/support/text.h"

namespace tamp::frontend {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

class Attention {
 public:
  explicit Attention(NodeImport& n) : n_(n) {}

  void run() {
    n_.expect_counts(3, n_.version() >= 24 ? 7 : 6, 4);
    read_attributes();
    read_operands();
    const AttentionParts parts = attend(n_, q_, k_, v_, options_, mask());
    n_.result(0, is_flat_ ? join_heads(n_, parts.y) : parts.y);
    n_.result(1, k_);
    n_.result(2, v_);
    n_.result(3, std::array{parts.scores, parts.capped, parts.biased, parts.weights}[mode_]);
  }

 private:
  enum Input : size_t { kQ, kK, kV, kMask, kPastKey, kPastValue, kLengths };

  void read_attributes() {
    is_causal_ = n_.attr_flag("is_causal", false);
    options_.softcap = n_.attr_float("softcap", 0);
    if (!(options_.softcap >= 0) || std::isinf(options_.softcap))
      throw n_.bad("attribute 'softcap' is {}, expected a finite number that is not negative", options_.softcap);
    const int64_t mode = n_.attr_int("qk_matmul_output_mode", 0);
    if (mode < 0 || mode > 3) throw n_.bad("attribute 'qk_matmul_output_mode' is {}, expected 0 to 3", mode);
    mode_ = static_cast<size_t>(mode);
    if (n_.version() >= 25) {
      left_ = window("left_window_size");
      right_ = window("right_window_size");
    }
    const std::optional<int64_t> precision = n_.find_int("softmax_precision");
    if (!precision) return;
    const std::optional<DType> type = dtype_of_onnx(*precision >= 0 && *precision < 1000 ? static_cast<int>(*precision) : 999);
    if (!type || !is_float(*type)) throw n_.bad("attribute 'softmax_precision' is {}, expected a type of floats", *precision);
    options_.softmax_type = type;
  }

  int64_t window(const char* name) {
    const int64_t size = n_.attr_int(name, -1);
    if (size < -1 || size > kMaxElements) throw n_.bad("attribute '{}' is {}, expected -1 or a number of keys", name, size);
    return size;
  }

  // How many heads an operand has: an attribute says it if the operand has three dimensions.
  int64_t heads(const char* attribute, size_t input, const char* name) {
    const std::optional<int64_t> given = n_.find_int(attribute);
    const Shape shape = n_.shape(n_.in(input));
    if (!is_flat_) {
      if (given && n_.version() >= 25) throw n_.bad("attribute '{}' is given, but the operands have 4 dimensions", attribute);
      if (given && *given != shape[1])
        throw n_.bad("attribute '{}' is {}, input {} has shape {}", attribute, *given, name, shape_text(shape));
      return shape[1];
    }
    if (!given) throw n_.bad("attribute '{}' is missing, which operands of 3 dimensions need", attribute);
    if (*given < 1 || shape[2] % *given != 0) {
      throw n_.bad("attribute '{}' is {}, which does not divide the last extent of input {} of shape {}", attribute, *given, name,
                   shape_text(shape));
    }
    return *given;
  }

  void read_operands() {
    n_.expect_float({n_.in(kQ), n_.in(kK)});
    n_.expect_float({n_.in(kV)});
    const size_t rank = n_.shape(n_.in(kQ)).size();
    for (const size_t i : {kQ, kK, kV}) {
      if ((rank == 3 || rank == 4) && n_.shape(n_.in(i)).size() == rank) continue;
      throw n_.bad("inputs Q, K, V have shapes {}, {}, {}, expected 3 or 4 dimensions each", shape_text(n_.shape(n_.in(kQ))),
                   shape_text(n_.shape(n_.in(kK))), shape_text(n_.shape(n_.in(kV))));
    }
    is_flat_ = rank == 3;
    const int64_t q_heads = heads("q_num_heads", kQ, "Q"), kv_heads = heads("kv_num_heads", kK, "K");
    q_ = is_flat_ ? split_heads(n_, n_.in(kQ), q_heads) : n_.in(kQ);
    k_ = is_flat_ ? split_heads(n_, n_.in(kK), kv_heads) : n_.in(kK);
    const TensorId v = n_.in(kV);
    if (is_flat_ && n_.shape(v)[2] % kv_heads != 0) {
      throw n_.bad("attribute 'kv_num_heads' is {}, which does not divide the last extent of input V of shape {}", kv_heads,
                   shape_text(n_.shape(v)));
    }
    v_ = is_flat_ ? split_heads(n_, v, kv_heads) : v;
    const Shape q = n_.shape(q_), k = n_.shape(k_), values = n_.shape(v_);
    if (k[0] != q[0] || k[3] != q[3] || values[0] != k[0] || values[1] != k[1] || values[2] != k[2]) {
      throw n_.bad("by heads, Q has shape {}, K {}, V {}: batch, heads, length, or size do not fit", shape_text(q), shape_text(k),
                   shape_text(values));
    }
    if (k[1] < 1 || q[1] % k[1] != 0) throw n_.bad("{} heads of Q do not share {} heads of K and V evenly", q[1], k[1]);
    past_ = append_past(n_, kPastKey, kPastValue, k_, v_);
    if (n_.has(kPastKey) && n_.has(kLengths)) throw n_.bad("input nonpad_kv_seqlen is given together with past_key");
    if (k[2] + past_ < 1) throw n_.refuse("there are no keys, supported: at least one");
    const double usual = n_.dtype(q_) == DType::f64 ? 1 / std::sqrt(static_cast<double>(q[3]))
                                                    : static_cast<double>(1 / std::sqrt(static_cast<float>(q[3])));
    const std::optional<float> scale = n_.find_float("scale");
    options_.scale = scale ? static_cast<double>(*scale) : usual;
  }

  int64_t queries() const { return n_.shape(q_)[2]; }
  int64_t keys() const { return n_.shape(k_)[2]; }
  bool has_window() const { return is_causal_ || left_ >= 0 || right_ >= 0; }

  // Whether query i, which stands at position i + offset, may look at key j.
  bool is_near(int64_t i, int64_t j, int64_t offset) const {
    const int64_t at = i + offset;
    return (!is_causal_ || j <= at) && (left_ < 0 || at - j <= left_) && (right_ < 0 || j - at <= right_);
  }

  // Bool [queries,keys], known now.
  TensorId near_keys(int64_t offset) {
    n_.charge(queries() * keys());
    Bytes bytes;
    for (int64_t i = 0; i < queries(); ++i) {
      for (int64_t j = 0; j < keys(); ++j) bytes.push_back(std::byte{is_near(i, j, offset)});
    }
    return n_.constant({DType::boolean, {queries(), keys()}, std::make_shared<const Bytes>(std::move(bytes))});
  }

  TensorId numbers(int64_t count, const Shape& shape) { return n_.constant_i64(range(0, count), shape); }
  TensorId whole(int64_t value) { return n_.constant_i64({value}, {}); }

  // Bool [B,1,queries or 1,keys] of keys that are no padding, by the lengths that are known at run time.
  TensorId valid_keys() {
    const TensorId given = n_.in(kLengths);
    const int64_t batch = n_.shape(q_)[0];
    if (n_.dtype(given) != DType::i64 || n_.shape(given) != Shape{batch})
      throw n_.bad("input nonpad_kv_seqlen is {}{}, expected i64{}", name_of(n_.dtype(given)), shape_text(n_.shape(given)),
                   shape_text({batch}));
    const TensorId lengths = n_.reshape(given, {batch, 1, 1, 1}), key = numbers(keys(), {1, 1, 1, keys()});
    TensorId kept = n_.elementwise(ElementwiseOp::less, {key, lengths});
    if (!has_window()) return kept;
    const TensorId first = n_.elementwise(ElementwiseOp::sub, {lengths, whole(queries())});
    const TensorId at = n_.elementwise(ElementwiseOp::add, {numbers(queries(), {1, 1, queries(), 1}), first});
    const auto keep = [&](TensorId low, TensorId high) {
      kept = n_.elementwise(ElementwiseOp::logical_and, {kept, n_.elementwise(ElementwiseOp::less_equal, {low, high})});
    };
    if (is_causal_) keep(key, at);
    if (left_ >= 0) keep(at, n_.elementwise(ElementwiseOp::add, {key, whole(left_)}));
    if (right_ >= 0) keep(key, n_.elementwise(ElementwiseOp::add, {at, whole(right_)}));
    return kept;
  }

  // The mask that the model gives, of four dimensions, as long as there are keys: those behind its end are masked.
  TensorId given_mask() {
    TensorId mask = n_.in(kMask);
    Shape shape = n_.shape(mask);
    const Shape scores = {n_.shape(q_)[0], n_.shape(q_)[1], queries(), keys()};
    const bool is_bool = n_.dtype(mask) == DType::boolean;
    if (!is_bool && !is_float(n_.dtype(mask))) throw n_.bad("input attn_mask is {}, expected bool or floats", name_of(n_.dtype(mask)));
    bool fits = shape.size() >= 1 && shape.size() <= 4 && (shape.back() <= keys());
    for (size_t d = 0; fits && d + 1 < shape.size(); ++d) {
      const int64_t extent = scores[d + 4 - shape.size()];
      fits = shape[d] == 1 || shape[d] == extent;
    }
    if (!fits) throw n_.bad("input attn_mask has shape {}, which does not broadcast to {}", shape_text(shape), shape_text(scores));
    shape.insert(shape.begin(), 4 - shape.size(), 1);
    mask = n_.reshape(mask, shape);
    if (shape[3] == keys()) return mask;
    if (shape[3] == 1)
      throw n_.refuse(
          "input attn_mask has shape {}: its last extent is 1 and there are {} keys, which may mean that it is "
          "repeated or that it ends there; supported: an extent for each key",
          shape_text(shape), keys());
    Shape rest = shape;
    rest[3] = keys() - shape[3];
    const TensorId masked = is_bool ? n_.constant_bool(false) : scalar_of(n_, -kInfinity, n_.dtype(mask));
    return n_.add(Concat{3}, {mask, n_.expand(masked, rest)});
  }

  TensorId both(TensorId a, TensorId b) { return !a.valid() ? b : !b.valid() ? a : n_.elementwise(ElementwiseOp::logical_and, {a, b}); }

  // Known now: whether each query has a key.
  bool has_key_for_all(TensorId kept) const {
    if (!n_.is_constant(kept)) return false;
    const Bytes& bytes = *n_.value(kept).data;
    const auto row = static_cast<std::ptrdiff_t>(n_.shape(kept).back());
    for (auto at = bytes.begin(); at < bytes.end(); at += row) {
      if (std::find(at, at + row, std::byte{1}) == at + row) return false;
    }
    return true;
  }

  AttentionMask mask() {
    const DType dtype = n_.dtype(q_);
    TensorId kept, bias;
    if (n_.has(kLengths))
      kept = valid_keys();
    else if (has_window())
      kept = near_keys(past_);
    if (n_.has(kMask)) {
      const TensorId given = given_mask();
      if (n_.dtype(given) == DType::boolean)
        kept = both(kept, given);
      else
        bias = n_.cast(given, dtype);
    }
    AttentionMask mask{bias, kept};
    if (kept.valid()) {
      const TensorId of_kept = bias_of(n_, kept, -kInfinity, dtype);
      mask.bias = bias.valid() ? n_.elementwise(ElementwiseOp::add, {of_kept, bias}) : of_kept;
    }
    if (bias.valid()) mask.kept = both(kept, n_.elementwise(ElementwiseOp::greater, {bias, scalar_of(n_, -kInfinity, dtype)}));
    if (mask.kept.valid() && has_key_for_all(mask.kept)) mask.kept = TensorId();
    return mask;
  }

  NodeImport& n_;
  AttentionOptions options_;
  bool is_causal_ = false;
  bool is_flat_ = false;  // Q, K, V have 3 dimensions
  size_t mode_ = 0;
  int64_t left_ = -1, right_ = -1;  // of the window around a query; -1: no end
  int64_t past_ = 0;                // keys before K's
  TensorId q_, k_, v_;              // [B,heads,length,size], with the past
};

}  // namespace

void import_attention(NodeImport& n) { Attention(n).run(); }

TensorId rotated(NodeImport& n, const Rotary& rotary, TensorId x, TensorId cosine, TensorId sine) {
  const Shape shape = n.shape(x);
  const int64_t half = rotary.size / 2, step = rotary.interleaved ? 2 : 1;
  const TensorId real = n.slice_axis(x, 3, 0, half, step), imaginary = n.slice_axis(x, 3, rotary.interleaved ? 1 : half, half, step);
  const auto product = [&](TensorId a, TensorId b) { return n.elementwise(ElementwiseOp::mul, {a, b}); };
  TensorId new_real = n.elementwise(ElementwiseOp::sub, {product(cosine, real), product(sine, imaginary)});
  TensorId new_imaginary = n.elementwise(ElementwiseOp::add, {product(sine, real), product(cosine, imaginary)});
  const Shape half_shape = n.shape(new_real);
  TensorId turned;
  if (rotary.interleaved) {
    Shape pairs = half_shape;
    pairs.push_back(1);
    turned = n.add(Concat{4}, {n.reshape(new_real, pairs), n.reshape(new_imaginary, pairs)});
    turned = n.reshape(turned, {shape[0], shape[1], shape[2], rotary.size});
  } else {
    turned = n.add(Concat{3}, {new_real, new_imaginary});
  }
  if (rotary.size == shape[3]) return turned;
  return n.add(Concat{3}, {turned, n.slice_axis(x, 3, rotary.size, shape[3] - rotary.size)});
}

void import_rotary_embedding(NodeImport& n) {
  n.expect_counts(3, 4);
  const TensorId given = n.in(0);
  n.expect_float({given, n.in(1), n.in(2)});
  const Shape shape = n.shape(given);
  if (shape.size() != 3 && shape.size() != 4) throw n.bad("input X has shape {}, expected 3 or 4 dimensions", shape_text(shape));
  const bool is_flat = shape.size() == 3;
  const std::optional<int64_t> heads = n.find_int("num_heads");
  TensorId x = given;
  if (is_flat) {
    if (!heads) throw n.bad("attribute 'num_heads' is missing, which an X of 3 dimensions needs");
    if (*heads < 1 || shape[2] % *heads != 0)
      throw n.bad("attribute 'num_heads' is {}, which does not divide the last extent of X of shape {}", *heads, shape_text(shape));
    x = n.reshape(given, {shape[0], shape[1], *heads, shape[2] / *heads});
  }
  const int64_t batch = shape[0], length = is_flat ? shape[1] : shape[2], head_size = n.shape(x)[3];
  Rotary rotary;
  rotary.interleaved = n.attr_flag("interleaved", false);
  rotary.size = n.attr_int("rotary_embedding_dim", 0);
  if (rotary.size == 0) rotary.size = head_size;
  if (rotary.size < 2 || rotary.size > head_size || rotary.size % 2 != 0)
    throw n.bad("{} elements of each head are rotated, expected an even number up to the head's {}", rotary.size, head_size);
  const auto cache = [&](size_t input, const char* name) {
    TensorId angles = n.in(input);
    const Shape found = n.shape(angles);
    if (n.has(3)) {
      const TensorId ids = n.in(3);
      if (n.shape(ids) != Shape{batch, length} || (n.dtype(ids) != DType::i64 && n.dtype(ids) != DType::i32))
        throw n.bad("input position_ids is {}{}, expected i64{}", name_of(n.dtype(ids)), shape_text(n.shape(ids)),
                    shape_text({batch, length}));
      if (found.size() != 2 || found[1] != rotary.size / 2)
        throw n.bad("input {} has shape {}, expected [positions,{}]", name, shape_text(found), rotary.size / 2);
      angles = take_rows(n, angles, ids, name);
    } else if (found != Shape{batch, length, rotary.size / 2}) {
      throw n.bad("input {} has shape {}, expected {}", name, shape_text(found), shape_text({batch, length, rotary.size / 2}));
    }
    return n.reshape(angles, is_flat ? Shape{batch, length, 1, rotary.size / 2} : Shape{batch, 1, length, rotary.size / 2});
  };
  const TensorId cosine = cache(1, "cos_cache"), sine = cache(2, "sin_cache");
  n.result(0, n.reshape(rotated(n, rotary, x, cosine, sine), shape));
}

// Of com.microsoft: positions come second, and heads may follow from the size of the angles.
void import_ms_rotary_embedding(NodeImport& n) {
  n.expect_counts(4, 4);
  enum : size_t { kX, kPositions, kCosine, kSine };
  n.expect_float({n.in(kX), n.in(kCosine), n.in(kSine)});
  if (n.attr_flag("is_packed_batching", false)) throw n.refuse("attribute 'is_packed_batching' is 1, supported: 0");
  if (const float scale = n.attr_float("scale", 1); scale != 1) throw n.refuse("attribute 'scale' is {}, supported: 1", scale);
  const Shape shape = n.shape(n.in(kX)), cosine = n.shape(n.in(kCosine)), sine = n.shape(n.in(kSine)), ids = n.shape(n.in(kPositions));
  if (shape.size() != 3 && shape.size() != 4) throw n.bad("input has shape {}, expected 3 or 4 dimensions", shape_text(shape));
  if (cosine.size() != 2 || sine != cosine || cosine[1] < 1)
    throw n.bad("inputs cos_cache and sin_cache have shapes {} and {}, expected [positions,half]", shape_text(cosine), shape_text(sine));
  const Rotary rotary{n.attr_flag("interleaved", false), 2 * cosine[1]};
  const int64_t given = n.attr_int("rotary_embedding_dim", 0), heads = n.attr_int("num_heads", 0);
  if (given > 0 && given != rotary.size)
    throw n.bad("attribute 'rotary_embedding_dim' is {}, input cos_cache has shape {}", given, shape_text(cosine));
  const bool is_flat = shape.size() == 3;
  const int64_t batch = shape[0], length = is_flat ? shape[1] : shape[2];
  TensorId x = n.in(kX);
  if (is_flat) {
    if (given > 0 && heads < 1) throw n.bad("attribute 'num_heads' is missing, which 'rotary_embedding_dim' needs");
    const int64_t size = heads > 0 ? shape[2] / heads : rotary.size;
    if (shape[2] % size != 0 || (heads > 0 && shape[2] != heads * size))
      throw n.bad("the last extent of input of shape {} does not divide into heads", shape_text(shape));
    x = n.reshape(x, {batch, length, shape[2] / size, size});
  }
  if (rotary.size > n.shape(x)[3]) throw n.bad("{} elements of each head are rotated, the head has {}", rotary.size, n.shape(x)[3]);
  // One position is that of the first element of every sequence.
  TensorId positions = n.in(kPositions);
  Shape rows = {batch, length};
  if (ids == Shape{1} && n.dtype(positions) == DType::i64) {
    positions = n.elementwise(ElementwiseOp::add, {positions, n.constant_i64(range(0, length), {1, length})});
    rows[0] = 1;
  } else if (ids != rows || n.dtype(positions) != DType::i64) {
    throw n.bad("input position_ids is {}{}, expected i64[1] or i64{}", name_of(n.dtype(positions)), shape_text(ids), shape_text(rows));
  }
  const auto angles = [&](size_t input, const char* name) {
    const Shape to = is_flat ? Shape{rows[0], length, 1, cosine[1]} : Shape{rows[0], 1, length, cosine[1]};
    return n.reshape(take_rows(n, n.in(input), positions, name), to);
  };
  n.result(0, n.reshape(rotated(n, rotary, x, angles(kCosine, "cos_cache"), angles(kSine, "sin_cache")), shape));
}

}  // namespace tamp::frontend
