// Attention, MultiHeadAttention and GroupQueryAttention of the domain com.microsoft. The part that they share with ONNX's Attention is in
// attention.h. Here is how their operands lie, what a past is, and which keys count.
#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "compiler/frontend/attention.h"
#include "compiler/frontend/import_normalize.h"
#include "compiler/support/text.h"

namespace tamp::frontend {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

// The common part of the three operators: heads, and keys and values of a past.
class MsHeads {
 public:
  explicit MsHeads(NodeImport& n) : n_(n) {}

 protected:
  int64_t number_of_heads(const char* attribute) {
    const std::optional<int64_t> heads = n_.find_int(attribute);
    if (!heads || *heads < 1) throw n_.bad("attribute '{}' is missing or not positive", attribute);
    return *heads;
  }

  int64_t batch() const { return n_.shape(q_)[0]; }
  int64_t heads() const { return n_.shape(q_)[1]; }
  int64_t queries() const { return n_.shape(q_)[2]; }
  int64_t keys() const { return n_.shape(k_)[2]; }

  float scale() {
    const float given = n_.attr_float("scale", 0);
    return given != 0 ? given : 1 / std::sqrt(static_cast<float>(n_.shape(q_)[3]));
  }

  TensorId whole(int64_t value) { return n_.constant_i64({value}, {}); }

  // The mask: of shape [B] the number of keys that count; of shape [B,keys] or [B,length,keys] 1 where a key counts. Keys that do not count
  // are not excluded: the attribute 'mask_filter_value' is added to their scores.
  TensorId counting_keys(size_t input, const char* name) {
    const TensorId given = n_.in(input);
    const Shape shape = n_.shape(given);
    if (n_.dtype(given) != DType::i32) throw n_.bad("input {} is {}, expected i32", name, name_of(n_.dtype(given)));
    const TensorId zero = n_.cast(n_.constant_f32(0), DType::i32);
    if (shape == Shape{batch()}) {
      const TensorId key = n_.cast(n_.counting(keys(), 4, 3), DType::i32);
      return n_.elementwise(ElementwiseOp::less, {key, n_.reshape(given, {batch(), 1, 1, 1})});
    }
    if (shape == Shape{batch(), keys()}) return n_.elementwise(ElementwiseOp::greater, {n_.reshape(given, {batch(), 1, 1, keys()}), zero});
    if (shape == Shape{batch(), queries(), keys()})
      return n_.elementwise(ElementwiseOp::greater, {n_.reshape(given, {batch(), 1, queries(), keys()}), zero});
    throw n_.refuse("input {} has shape {}, supported: {}, {}, {}", name, shape_text(shape), shape_text({batch()}),
                    shape_text({batch(), keys()}), shape_text({batch(), queries(), keys()}));
  }

  void add_to(TensorId& bias, TensorId more) { bias = bias.valid() ? n_.elementwise(ElementwiseOp::add, {bias, more}) : more; }

  void add_attention_bias(TensorId& bias, size_t input) {
    if (!n_.has(input)) return;
    const Shape scores = {batch(), heads(), queries(), keys()}, found = n_.shape(n_.in(input));
    n_.expect_float({n_.in(0), n_.in(input)});
    if (found.size() != 4 || n_.broadcast(scores, found) != scores)
      throw n_.bad("input attention_bias has shape {}, expected {}", shape_text(found), shape_text(scores));
    add_to(bias, n_.in(input));
  }

  AttentionMask mask(size_t input, const char* name, size_t bias_input) {
    const DType dtype = n_.dtype(q_);
    AttentionMask mask;
    const float filter = n_.attr_float("mask_filter_value", -10000.0F);
    if (n_.has(input)) add_to(mask.bias, bias_of(n_, counting_keys(input, name), filter, dtype));
    if (n_.attr_flag("unidirectional", false)) {
      n_.charge(queries() * keys());
      Bytes bytes;
      for (int64_t i = 0; i < queries(); ++i) {
        for (int64_t j = 0; j < keys(); ++j) bytes.push_back(std::byte{j <= i + past_});
      }
      const TensorId kept = n_.constant({DType::boolean, {queries(), keys()}, std::make_shared<const Bytes>(std::move(bytes))});
      add_to(mask.bias, bias_of(n_, kept, -kInfinity, dtype));
    }
    add_attention_bias(mask.bias, bias_input);
    return mask;
  }

  NodeImport& n_;
  int64_t past_ = 0;
  TensorId q_, k_, v_;  // [B,heads,length,size]
};

// Attention: one product makes queries, keys and values from the input.
class MsAttention : MsHeads {
 public:
  using MsHeads::MsHeads;

  void run() {
    n_.expect_counts(2, 7, 2);
    if (n_.has(kPastLength)) throw n_.refuse("input past_sequence_length is given, supported: without it");
    for (const char* name : {"do_rotary", "past_present_share_buffer"}) {
      if (n_.attr_flag(name, false)) throw n_.refuse("attribute '{}' is 1, supported: 0", name);
    }
    n_.ignore("rotary_embedding_dim");  // of do_rotary
    read_shapes();
    make_heads();
    append_past();
    AttentionOptions options;
    options.scale = scale();
    n_.result(0, join_heads(n_, attend(n_, q_, k_, v_, options, mask(kMask, "mask_index", kAttentionBias)).y));
  }

 private:
  enum Input : size_t { kX, kWeights, kBias, kMask, kPast, kAttentionBias, kPastLength };

  void read_shapes() {
    n_.expect_float({n_.in(kX), n_.in(kWeights)});
    x_ = n_.shape(n_.in(kX));
    const Shape weights = n_.shape(n_.in(kWeights));
    if (x_.size() != 3 || weights.size() != 2 || weights[0] != x_[2]) {
      throw n_.bad("input has shape {}, weights {}, expected [batch,length,size] and [size,queries + keys + values]", shape_text(x_),
                   shape_text(weights));
    }
    heads_ = number_of_heads("num_heads");
    const int64_t third = weights[1] / 3;
    sizes_ = n_.find_ints("qkv_hidden_sizes").value_or(Ints{third, third, third});
    if (sizes_.empty()) sizes_ = {third, third, third};
    int64_t sum = 0;
    for (const int64_t size : sizes_) sum += size >= 0 && size <= weights[1] ? size : weights[1] + 1;
    if (sizes_.size() != 3 || sum != weights[1] || sizes_[0] != sizes_[1] || sizes_[0] % heads_ != 0 || sizes_[2] % heads_ != 0) {
      throw n_.bad("weights of shape {} do not divide into {} heads of queries, keys and values of sizes {}", shape_text(weights), heads_,
                   shape_text(sizes_));
    }
    if (n_.has(kBias) && n_.shape(n_.in(kBias)) != Shape{weights[1]})
      throw n_.bad("input bias has shape {}, expected {}", shape_text(n_.shape(n_.in(kBias))), shape_text({weights[1]}));
  }

  void make_heads() {
    TensorId all = matrix_product(n_, n_.in(kX), n_.in(kWeights));
    if (n_.has(kBias)) all = n_.elementwise(ElementwiseOp::add, {all, n_.in(kBias)});
    const auto part = [&](int64_t first, int64_t size) { return split_heads(n_, n_.slice_axis(all, 2, first, size), heads_); };
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
        throw n_.bad("input past has shape {}, expected {}", shape_text(found), shape_text(expected));
      k_ = past_ == 0 ? k_ : n_.add(Concat{2}, {n_.part(past, 0), k_});
      v_ = past_ == 0 ? v_ : n_.add(Concat{2}, {n_.part(past, 1), v_});
    }
    if (!n_.wants(1)) return;
    Shape one = n_.shape(k_);
    one.insert(one.begin(), 1);
    if (sizes_[1] != sizes_[2]) throw n_.refuse("output present is used where keys and values differ in size, supported: of one size");
    n_.result(1, n_.add(Concat{0}, {n_.reshape(k_, one), n_.reshape(v_, one)}));
  }

  Shape x_;
  Ints sizes_;  // of all heads' queries, keys, and values
  int64_t heads_ = 1;
};

// MultiHeadAttention: queries, keys and values are inputs, or packed into one tensor.
class MsMultiHead : MsHeads {
 public:
  using MsHeads::MsHeads;

  void run() {
    n_.expect_counts(1, 10, 4);
    refuse_outputs(n_, {3});
    if (n_.has(kPastLength)) throw n_.refuse("input past_sequence_length is given, supported: without it");
    if (n_.has(kIndirection)) throw n_.refuse("input cache_indirection is given, supported: without it");
    heads_ = number_of_heads("num_heads");
    n_.expect_float({n_.in(kQuery)});
    make_heads();
    const Shape q = n_.shape(q_), k = n_.shape(k_), v = n_.shape(v_);
    if (k[0] != q[0] || k[3] != q[3] || v[0] != q[0] || v[2] != k[2]) {
      throw n_.bad("by heads, queries have shape {}, keys {}, values {}: batch, length, or size do not fit", shape_text(q), shape_text(k),
                   shape_text(v));
    }
    past_ = append_past(n_, kPastKey, kPastValue, k_, v_);
    if (keys() < 1) throw n_.refuse("there are no keys, supported: at least one");
    AttentionOptions options;
    options.scale = scale();
    n_.result(0, join_heads(n_, attend(n_, q_, k_, v_, options, mask(kMask, "key_padding_mask", kAttentionBias)).y));
    n_.result(1, k_);
    n_.result(2, v_);
  }

 private:
  enum Input : size_t { kQuery, kKey, kValue, kBias, kMask, kAttentionBias, kPastKey, kPastValue, kPastLength, kIndirection };

  void make_heads() {
    const Shape query = n_.shape(n_.in(kQuery));
    if (!n_.has(kKey)) {
      if (query.size() != 5 || query[2] != heads_ || query[3] != 3 || n_.has(kValue)) {
        throw n_.refuse("without input key, input query has shape {}, supported: [batch,length,{},3,size] and no value", shape_text(query),
                        heads_);
      }
      refuse_bias("packed queries, keys and values");
      q_ = packed(kQuery, 0);
      k_ = packed(kQuery, 1);
      v_ = packed(kQuery, 2);
      return;
    }
    n_.expect_float({n_.in(kQuery), n_.in(kKey)});
    const Shape key = n_.shape(n_.in(kKey));
    if (query.size() != 3 || query[2] % heads_ != 0)
      throw n_.bad("input query has shape {}, expected [batch,length,{} heads * size]", shape_text(query), heads_);
    if (key.size() == 5) {
      if (key[2] != heads_ || key[3] != 2 || n_.has(kValue))
        throw n_.bad("input key has shape {}, expected [batch,length,{},2,size] and no value", shape_text(key), heads_);
      refuse_bias("packed keys and values");
      q_ = split_heads(n_, n_.in(kQuery), heads_);
      k_ = packed(kKey, 0);
      v_ = packed(kKey, 1);
      return;
    }
    n_.expect_float({n_.in(kQuery), n_.in(kValue)});
    const Shape value = n_.shape(n_.in(kValue));
    if (key.size() == 4) {
      if (value.size() != 4 || key[1] != heads_ || value[1] != heads_ || n_.has(kPastKey))
        throw n_.bad("inputs key and value have shapes {} and {}, expected [batch,{},length,size] and no past_key", shape_text(key),
                     shape_text(value), heads_);
      refuse_bias("keys of 4 dimensions");
      q_ = split_heads(n_, n_.in(kQuery), heads_);
      k_ = n_.in(kKey);
      v_ = n_.in(kValue);
      return;
    }
    if (key.size() != 3 || value.size() != 3 || key[2] != query[2] || value[2] % heads_ != 0) {
      throw n_.bad("inputs query, key and value have shapes {}, {}, {}, expected [batch,length,{} heads * size] each", shape_text(query),
                   shape_text(key), shape_text(value), heads_);
    }
    read_bias({query[2], key[2], value[2]});
    q_ = split_heads(n_, shifted(kQuery, 0, query[2]), heads_);
    k_ = split_heads(n_, shifted(kKey, query[2], key[2]), heads_);
    v_ = split_heads(n_, shifted(kValue, query[2] + key[2], value[2]), heads_);
  }

  // [B,S,N,several,D] -> [B,N,S,D]
  TensorId packed(size_t input, int64_t which) {
    const Shape shape = n_.shape(n_.in(input));
    const TensorId one = n_.slice_axis(n_.in(input), 3, which, 1);
    return n_.add(Transpose{{0, 2, 1, 3}}, {n_.reshape(one, {shape[0], shape[1], shape[2], shape[4]})});
  }

  void refuse_bias(const char* what) {
    if (n_.has(kBias)) throw n_.refuse("input bias is given with {}, supported: with queries, keys and values apart", what);
  }
  void read_bias(const Ints& sizes) {
    const int64_t sum = std::accumulate(sizes.begin(), sizes.end(), int64_t{0});
    if (n_.has(kBias) && n_.shape(n_.in(kBias)) != Shape{sum})
      throw n_.bad("input bias has shape {}, expected {}", shape_text(n_.shape(n_.in(kBias))), shape_text({sum}));
  }
  TensorId shifted(size_t input, int64_t first, int64_t size) {
    if (!n_.has(kBias)) return n_.in(input);
    return n_.elementwise(ElementwiseOp::add, {n_.in(input), n_.slice_axis(n_.in(kBias), 0, first, size)});
  }

  int64_t heads_ = 1;
};

// GroupQueryAttention: several heads of queries share one head of keys and values. The lengths of the sequences come at run time: new keys
// are put behind the past's keys that count, and a query looks only at keys that are not behind itself.
class MsGroupQuery : MsHeads {
 public:
  using MsHeads::MsHeads;

  void run() {
    n_.expect_counts(1, 14, 4);
    refuse_outputs(n_, {3});
    refuse_rest();
    read_heads();
    read_lengths();
    if (n_.attr_flag("do_rotary", false)) rotate();
    n_.ignore("rotary_interleaved");  // of do_rotary
    const AttentionMask mask = near_keys();
    AttentionOptions options;
    options.scale = scale();
    options.softcap = n_.attr_float("softcap", 0);
    options.sink = sink();
    n_.result(0, join_heads(n_, attend(n_, q_, k_, v_, options, mask).y));
    n_.result(1, k_);
    n_.result(2, v_);
  }

 private:
  enum Input : size_t { kQuery, kKey, kValue, kPastKey, kPastValue, kLengths, kTotal, kCosine, kSine, kPositions, kAttentionBias, kSink };

  void refuse_rest() {
    for (size_t i = kSink + 1; i < n_.input_count(); ++i) {
      if (n_.has(i)) throw n_.refuse("input {} is given (scales of quantised keys), supported: without it", i);
    }
    n_.attr_int("qk_output", 0);  // what output 3 would be
    for (const char* name : {"k_quant_type", "v_quant_type"}) {
      const std::string type = n_.attr_string(name, "NONE");
      if (type != "NONE") throw n_.refuse("attribute '{}' is '{}', supported: NONE", name, printable(type));
    }
    if (n_.attr_int("kv_cache_bit_width", 0) != 0) throw n_.refuse("attribute 'kv_cache_bit_width' is not 0, supported: 0");
  }

  void read_heads() {
    const int64_t of_queries = number_of_heads("num_heads"), of_keys = number_of_heads("kv_num_heads");
    if (of_queries % of_keys != 0) throw n_.bad("{} heads of queries do not share {} heads of keys evenly", of_queries, of_keys);
    TensorId query = n_.in(kQuery), key, value;
    n_.expect_float({query});
    const Shape shape = n_.shape(query);
    if (n_.has(kKey) != n_.has(kValue)) throw n_.bad("one of key and value is missing");
    if (n_.has(kKey)) {
      key = n_.in(kKey);
      value = n_.in(kValue);
      n_.expect_float({query, key, value});
    } else {
      const int64_t all = of_queries + 2 * of_keys;
      if (shape.size() != 3 || shape[2] % all != 0)
        throw n_.bad("input query has shape {}, expected [batch,length,{} heads * size]", shape_text(shape), all);
      const int64_t size = shape[2] / all;
      const TensorId packed = query;
      query = n_.slice_axis(packed, 2, 0, of_queries * size);
      key = n_.slice_axis(packed, 2, of_queries * size, of_keys * size);
      value = n_.slice_axis(packed, 2, (of_queries + of_keys) * size, of_keys * size);
    }
    const Shape q = n_.shape(query), k = n_.shape(key);
    const bool fits = q.size() == 3 && k.size() == 3 && q[2] % of_queries == 0 && k[0] == q[0] && k[1] == q[1] && k[1] > 0 &&
                      k[2] == q[2] / of_queries * of_keys && n_.shape(value) == k;
    if (!fits) {
      throw n_.bad(
          "inputs query, key and value have shapes {}, {}, {}, expected [batch,length,{} heads * size] and {} heads of keys "
          "and values, of the same length",
          shape_text(q), shape_text(k), shape_text(n_.shape(value)), of_queries, of_keys);
    }
    q_ = split_heads(n_, query, of_queries);
    k_ = split_heads(n_, key, of_keys);
    v_ = split_heads(n_, value, of_keys);
  }

  // What takes part in the softmax of each head beside the keys' scores; smooth_softmax: a score of 0.
  TensorId sink() {
    const bool is_smooth = n_.attr_int("smooth_softmax", 0) > 0;
    if (!n_.has(kSink)) return is_smooth ? scalar_of(n_, 0, n_.dtype(q_)) : TensorId();
    n_.expect_float({n_.in(kQuery), n_.in(kSink)});
    if (n_.shape(n_.in(kSink)) != Shape{heads()})
      throw n_.bad("input head_sink has shape {}, expected {}", shape_text(n_.shape(n_.in(kSink))), shape_text({heads()}));
    return n_.reshape(n_.in(kSink), {1, heads(), 1, 1});
  }

  // Finds how many keys each sequence has before its queries, and how long the present is.
  // A total length of run time is that of a cache: past and present are one buffer then, which has places for more keys than there are. So
  // is a past that is as long as the total.
  void read_lengths() {
    const bool is_known = n_.is_constant(n_.in(kTotal));
    const Ints total = is_known ? n_.ints(kTotal, "total_sequence_length") : Ints{queries()};
    past_ = past_keys(n_, kPastKey, kPastValue, k_, v_);
    is_cache_ = total.size() == 1 && (!is_known || past_ >= total[0]);
    if (total.size() != 1 || (total[0] < queries() && !is_cache_) || total[0] > kMaxElements)
      throw n_.bad("input total_sequence_length is {}, expected one number of at least {}, the length of query", shape_text(total),
                   queries());
    present_ = std::max(past_, total[0]);
    is_prompt_ = total[0] == queries() && !is_cache_;
    if (is_cache_ && past_ < queries())
      throw n_.refuse(
          "total_sequence_length is known at run time only and past_key has {} places, supported: a constant, or a past_key "
          "that is a cache with places for the {} new keys, too",
          past_, queries());
    const TensorId given = n_.in(kLengths);
    const Shape shape = n_.shape(given);
    if (n_.dtype(given) != DType::i32 || element_count(shape) != batch() || shape.empty() || shape[0] != batch())
      throw n_.bad("input seqlens_k is {}{}, expected i32[{}]", name_of(n_.dtype(given)), shape_text(shape), batch());
    const TensorId last = n_.reshape(n_.cast(given, DType::i64), {batch(), 1, 1, 1});
    before_ = is_prompt_ ? n_.constant_i64(Ints(static_cast<size_t>(batch()), 0), {batch(), 1, 1, 1})
                         : n_.elementwise(ElementwiseOp::sub, {last, whole(queries() - 1)});
    // A first prompt may be shorter than its rows, whose rest is padding.
    if (is_cache_) before_ = n_.elementwise(ElementwiseOp::max, {before_, whole(0)});
  }

  // [B,1,queries,1], where each query stands.
  TensorId places() { return n_.elementwise(ElementwiseOp::add, {before_, n_.counting(queries(), 4, 2)}); }

  void rotate() {
    const Shape cosine = n_.shape(n_.in(kCosine)), sine = n_.shape(n_.in(kSine));
    const int64_t size = n_.shape(q_)[3];
    Rotary rotary{n_.attr_flag("rotary_interleaved", false), cosine.size() == 2 ? 2 * cosine[1] : 0};
    if (cosine.size() != 2 || sine != cosine || rotary.size < 2 || rotary.size > size) {
      throw n_.bad(
          "inputs cos_cache and sin_cache have shapes {} and {}, expected [positions,half] with at most half of the head's "
          "{} elements",
          shape_text(cosine), shape_text(sine), size);
    }
    n_.expect_float({n_.in(kQuery), n_.in(kCosine), n_.in(kSine)});
    TensorId ids = n_.reshape(places(), {batch(), queries()});
    if (n_.has(kPositions)) {
      ids = n_.in(kPositions);
      if (n_.shape(ids) != Shape{batch(), queries()})
        throw n_.bad("input position_ids has shape {}, expected {}", shape_text(n_.shape(ids)), shape_text({batch(), queries()}));
    }
    const auto angles = [&](size_t input, const char* name) {
      return n_.reshape(take_rows(n_, n_.in(input), ids, name), {batch(), 1, queries(), rotary.size / 2});
    };
    const TensorId cosines = angles(kCosine, "cos_cache"), sines = angles(kSine, "sin_cache");
    q_ = rotated(n_, rotary, q_, cosines, sines);
    k_ = rotated(n_, rotary, k_, cosines, sines);
  }

  // The entries of the past that count, then the new ones, then zeros to the end; of a cache, all entries, the new ones in their places.
  TensorId with_past(TensorId fresh, size_t past_input) {
    const Shape shape = n_.shape(fresh);
    Pad pad{Ints(4, 0), Ints(4, 0)};
    if (is_prompt_) {
      pad.after[2] = present_ - shape[2];
      return present_ == shape[2] ? fresh : n_.add(pad, {fresh});
    }
    TensorId past = n_.in(past_input);
    pad.after[2] = present_ - past_;
    if (present_ != past_) past = n_.add(pad, {past});
    if (is_cache_) return n_.add(Scatter{2, ScatterKind::none}, {past, placed(), fresh});
    const TensorId is_past = n_.elementwise(ElementwiseOp::less, {n_.counting(present_, 4, 2), before_});
    past = n_.elementwise(ElementwiseOp::where, {is_past, past, scalar_of(n_, 0, n_.dtype(fresh))});
    return n_.add(Scatter{2, ScatterKind::none}, {past, placed(), fresh});
  }

  // Where new entries are put. A negative place is set behind the end: Scatter would count it from the end.
  TensorId placed() {
    const TensorId place = places();
    return n_.elementwise(ElementwiseOp::where, {n_.elementwise(ElementwiseOp::less, {place, whole(0)}), whole(present_), place});
  }

  AttentionMask near_keys() {
    if (!is_prompt_ && past_ == 0)
      throw n_.refuse("total_sequence_length is more than the length of query without a past_key, supported: with it");
    k_ = with_past(k_, kPastKey);
    v_ = with_past(v_, kPastValue);
    const TensorId key = n_.counting(present_, 4, 3), at = places();
    TensorId kept = n_.elementwise(ElementwiseOp::less_equal, {key, at});
    const int64_t window = n_.attr_int("local_window_size", -1);
    if (window != -1 && (window < 1 || window > kMaxElements))
      throw n_.bad("attribute 'local_window_size' is {}, expected -1 or a positive number", window);
    if (window > 0) {
      const TensorId is_near = n_.elementwise(ElementwiseOp::less, {at, n_.elementwise(ElementwiseOp::add, {key, whole(window)})});
      kept = n_.elementwise(ElementwiseOp::logical_and, {kept, is_near});
    }
    AttentionMask mask{bias_of(n_, kept, -kInfinity, n_.dtype(q_)), TensorId()};
    add_attention_bias(mask.bias, kAttentionBias);
    return mask;
  }

  int64_t present_ = 0;
  bool is_prompt_ = true;
  bool is_cache_ = false;
  TensorId before_;  // i64[B,1,1,1]
};

}  // namespace

void import_ms_attention(NodeImport& n) { MsAttention(n).run(); }
void import_ms_multi_head_attention(NodeImport& n) { MsMultiHead(n).run(); }
void import_ms_group_query_attention(NodeImport& n) { MsGroupQuery(n).run(); }

}  // namespace tamp::frontend
