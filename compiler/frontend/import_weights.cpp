// Weights of few bits become constants of floats, whose bytes are made from the file's where somebody reads them: the file is a fraction of
// what they come to. Every body then works on them.
#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <utility>

#include "compiler/frontend/quantized.h"
#include "compiler/ops/number.h"
#include "compiler/support/text.h"

namespace tamp::frontend {
namespace {

// A scale or zero point: where the one of place (outer, block, inner) lies.
struct Parameter {
  TensorData data;
  DType dtype = DType::f32;
  int64_t per_outer = 0, per_block = 0, per_inner = 0;
};

// w[outer, place, inner] = (q - zero point) * scale. The numbers lie as [outers, stored, inners], of which `extent` places count. For
// example MatMulNBits with K = 40 in blocks of 16: 48 are stored in a row, 40 count, and place 35 has the scale of block 2.
struct Weights {
  TensorData numbers;
  DType dtype = DType::u8;
  Parameter scale, zero;  // without data: none
  float all_zeros = 0;    // the zero point where there is none
  int64_t outers = 1, stored = 0, extent = 0, inners = 1, block = 1;
  std::vector<int64_t> block_of;  // of each place, where it is not place / block
  DType to = DType::f32;
  bool is_loaded = true;  // the numbers are there
};

std::vector<float> floats_of(const Parameter& parameter) {
  if (!parameter.data) return {};
  const std::shared_ptr<const Bytes> held = parameter.data.hold();
  std::vector<float> floats(held->size() / static_cast<size_t>(bytes_of(parameter.dtype)));
  ops::with_storage(parameter.dtype, [&](auto tag) {
    const auto* const stored = reinterpret_cast<const decltype(tag)*>(held->data());
    for (size_t i = 0; i < floats.size(); ++i) floats[i] = ops::decode<float>(stored[i]);
  });
  return floats;
}

// Millions of weights pass through here: no calls, and choices without branches, which vectors can make. A subnormal half counts units of
// 2^-24, and so does the last place of floats from 0.5 to 1: adding 0.5 rounds to these units.
ops::Half fast_half(float x) {
  const auto bits = std::bit_cast<uint32_t>(x), sign = bits >> 16 & 0x8000U, magnitude = bits & 0x7fffffffU;
  const uint32_t shifted = magnitude - (112U << 23), normal = (shifted + 0xfffU + (shifted >> 13 & 1U)) >> 13;
  const uint32_t subnormal = std::bit_cast<uint32_t>(std::bit_cast<float>(magnitude) + 0.5F) - 0x3f000000U;
  const uint32_t finite = magnitude >= 0x38800000U ? normal : subnormal;
  const uint32_t half = magnitude >= 0x47800000U ? 0x7c00U : finite;
  return {static_cast<uint16_t>(sign | (magnitude > 0x7f800000U ? 0x7e00U : half))};
}

template <class Number, class Result>
Result weight(Number number, float shift, float scale, DType to) {
  const float product = (ops::decode<float>(number) - shift) * scale;
  if constexpr (std::is_same_v<Result, ops::Half>)
    return fast_half(product);
  else
    return ops::encode<Result>(product, to);
}

template <class Number, class Result>
void fill(const Weights& w, const Number* numbers, Result* out) {
  const std::vector<float> scales = floats_of(w.scale), zeros = floats_of(w.zero);
  const bool is_one = w.scale.per_block == 0 && w.zero.per_block == 0;  // for all places
  const auto block_of = [&](int64_t place) { return w.block_of.empty() ? place / w.block : w.block_of[static_cast<size_t>(place)]; };
  for (int64_t outer = 0; outer < w.outers; ++outer) {
    for (int64_t place = 0; place < w.extent;) {
      const int64_t block = block_of(place), begin = place;
      const float* const scale = scales.data() + outer * w.scale.per_outer + block * w.scale.per_block;
      const float* const zero = zeros.empty() ? &w.all_zeros : zeros.data() + outer * w.zero.per_outer + block * w.zero.per_block;
      const int64_t per_zero = zeros.empty() ? 0 : w.zero.per_inner, per_scale = w.scale.per_inner;
      const Number* const line = numbers + (outer * w.stored + begin) * w.inners;
      if (w.inners > 1) {
        for (int64_t inner = 0; inner < w.inners; ++inner)
          out[inner] = weight<Number, Result>(line[inner], zero[inner * per_zero], scale[inner * per_scale], w.to);
        ++place;
      } else {  // all of the block
        const int64_t most = is_one ? w.extent : w.block_of.empty() ? w.block : 1;
        place += std::min(most, w.extent - place);
        const float shift = *zero, factor = *scale;
        for (int64_t i = 0; i < place - begin; ++i) out[i] = weight<Number, Result>(line[i], shift, factor, w.to);
      }
      out += (place - begin) * w.inners;
    }
  }
}

Bytes bytes_of_weights(const Weights& w) {
  const std::shared_ptr<const Bytes> held = w.numbers.hold();
  Bytes bytes = zero_bytes(static_cast<size_t>(w.outers * w.extent * w.inners * bytes_of(w.to)));
  ops::with_storage(w.dtype, [&](auto from) {
    ops::with_storage(w.to, [&](auto to) {
      fill(w, reinterpret_cast<const decltype(from)*>(held->data()), reinterpret_cast<decltype(to)*>(bytes.data()));
    });
  });
  return bytes;
}

// The constant; `key` tells it from others that are made of `source`.
TensorId add_weights(NodeImport& n, TensorId source, const Builder::Key& key, const Shape& shape, Weights w) {
  if (const std::string limit = shape_limit(shape); !limit.empty()) throw n.refuse("what it is unpacked to {}", limit);
  const DType to = w.to;
  const auto size = static_cast<size_t>(element_count(shape) * bytes_of(to));
  TensorData data;
  if (w.is_loaded) data = TensorData::made_by(size, [w = std::move(w)] { return bytes_of_weights(w); });
  return n.unpacked(source, key, {to, shape, std::move(data)});
}

int64_t key_of(TensorId id) { return id.valid() ? static_cast<int64_t>(id.index()) : -1; }
bool is_known(NodeImport& n, TensorId id) { return !id.valid() || n.builder().is_constant(id); }
bool is_loaded(NodeImport& n, TensorId id) { return !id.valid() || n.builder().has_data(id); }

int64_t product_of(const Shape& shape, size_t begin, size_t end) {
  int64_t product = 1;
  for (size_t d = begin; d < end; ++d) product *= shape[d];
  return product;
}

int64_t blocks_of(int64_t extent, int64_t block) { return extent / block + (extent % block != 0 ? 1 : 0); }

// Bits that lie side by side, as one number a byte.
TensorData numbers_of_bits(NodeImport& n, TensorId packed, int64_t bits) {
  const ops::Value value = n.value(packed);
  if (bits == 8) return value.data;
  const NarrowType type = bits == 4 ? NarrowType::u4 : NarrowType::u2;
  const int64_t count = element_count(value.shape) * 8 / bits;
  return TensorData::made_by(static_cast<size_t>(count), [type, count, data = value.data] { return unpacked(type, *data.hold(), count); });
}

int64_t read_bits(NodeImport& n) {
  const int64_t bits = n.attr_int("bits", 4);
  if (bits != 2 && bits != 4 && bits != 8) throw n.refuse("attribute 'bits' is {}, supported: 2, 4, 8", bits);
  return bits;
}

int64_t read_block(NodeImport& n, int64_t fallback) {
  const int64_t block = n.attr_int("block_size", fallback);
  if (block < 16 || block > kMaxElements || !std::has_single_bit(static_cast<uint64_t>(block)))
    throw n.bad("attribute 'block_size' is {}, expected a power of 2 from 16 on", block);
  return block;
}

void expect_known(NodeImport& n, size_t i, const char* name) {
  if (n.has(i) && !n.builder().is_constant(n.in(i))) n.expect_constant(i, name);
}

void expect_shape(NodeImport& n, size_t i, const char* name, const Shape& wanted) {
  const Shape found = n.shape(n.in(i));
  if (found == wanted) return;
  throw n.bad("input {} ({}) has shape {}, expected {}", i, name, shape_text(found), shape_text(wanted));
}

// As expect_shape, but flat tensors of as many elements will do.
void expect_count(NodeImport& n, size_t i, const char* name, const Shape& wanted) {
  if (n.rank(n.in(i)) == 1 && n.shape(n.in(i))[0] == element_count(wanted)) return;
  expect_shape(n, i, name, wanted);
}

int64_t read_extent(NodeImport& n, const char* name) {
  const std::optional<int64_t> extent = n.find_int(name);
  if (!extent) throw n.bad("attribute '{}' is missing", name);
  if (*extent < 1 || *extent > kMaxElements) throw n.bad("attribute '{}' is {}, expected 1 or more", name, *extent);
  return *extent;
}

void expect_columns(NodeImport& n, int64_t k) {
  const Shape shape = n.shape(n.in(0));
  if (shape.empty() || shape.back() != k)
    throw n.bad("input A has shape {}, expected [..,{}]: its last dimension is K", shape_text(shape), k);
}

// a[..,K] times the transpose of weights[N,K]; or, not turned, a[..,N] times the weights.
TensorId rows_by_weights(NodeImport& n, TensorId a, TensorId weights, bool turned) {
  const Shape given = n.shape(a);
  if (given.size() == 1) a = n.reshape(a, {1, given[0]});
  const TensorId y = n.add(MatMul{/*trans_a=*/false, turned, 1, 1}, {a, weights, TensorId()});
  return given.size() == 1 ? n.reshape(y, {n.shape(y).back()}) : y;
}

struct NBits {
  enum Input : size_t { kA, kB, kScales, kZeros, kGroups, kBias };
  int64_t n = 0, k = 0, bits = 4, block = 32;
  int64_t blocks() const { return blocks_of(k, block); }
};

NBits read_n_bits(NodeImport& n) {
  NBits read;
  read.n = read_extent(n, "N");
  read.k = read_extent(n, "K");
  read.bits = read_bits(n);
  read.block = read_block(n, 0);
  if (n.attr_int("weight_prepacked", 0) != 0) throw n.refuse("attribute 'weight_prepacked' is not 0, supported: 0, B as it is described");
  n.ignore("accuracy_level");  // how much may be lost at the least; nothing is
  expect_known(n, NBits::kB, "B");
  expect_known(n, NBits::kScales, "scales");
  expect_known(n, NBits::kZeros, "zero_points");
  expect_known(n, NBits::kGroups, "g_idx");
  expect_columns(n, read.k);
  if (n.dtype(n.in(NBits::kB)) != DType::u8) throw n.refuse("input B is {}, supported: u8", n.type_text(n.in(NBits::kB)));
  expect_count(n, NBits::kB, "B", {read.n, read.blocks(), read.block * read.bits / 8});
  n.expect_float({n.in(NBits::kA), n.in(NBits::kScales)});
  expect_count(n, NBits::kScales, "scales", {read.n, read.blocks()});
  if (n.has(NBits::kBias)) {
    n.expect_float({n.in(NBits::kA), n.in(NBits::kBias)});
    expect_shape(n, NBits::kBias, "bias", {read.n});
  }
  return read;
}

// Zero points are numbers of A's type, or packed as B's rows are: each row begins with a byte of its own.
Parameter zeros_of(NodeImport& n, const NBits& read) {
  const TensorId zeros = n.in(NBits::kZeros);
  if (n.dtype(zeros) != DType::u8) {
    n.expect_float({n.in(NBits::kA), zeros});
    expect_count(n, NBits::kZeros, "zero_points", {read.n, read.blocks()});
    return {is_loaded(n, zeros) ? n.value(zeros).data : TensorData(), n.dtype(zeros), read.blocks(), 1, 0};
  }
  const int64_t row = blocks_of(read.blocks() * read.bits, 8);
  expect_count(n, NBits::kZeros, "zero_points", {read.n, row});
  return {is_loaded(n, zeros) ? numbers_of_bits(n, zeros, read.bits) : TensorData(), DType::u8, row * 8 / read.bits, 1, 0};
}

// The block of each place along K.
Ints groups_of(NodeImport& n, const NBits& read) {
  if (!n.has(NBits::kGroups)) return {};
  const Shape found = n.shape(n.in(NBits::kGroups));
  const int64_t count = element_count(found);
  if (found.size() != 1 || count < read.k) throw n.bad("input g_idx has shape {}, expected [{}]", shape_text(found), read.k);
  n.ints(NBits::kGroups, "g_idx");  // known, and of integers
  Ints groups = n.flat_ints(n.in(NBits::kGroups));
  for (const int64_t group : groups) {
    if (group < 0 || group >= read.blocks()) throw n.bad("input g_idx holds {}, expected 0 to {}", group, read.blocks() - 1);
  }
  return groups;
}

}  // namespace

TensorId dequantized_constant(NodeImport& n, TensorId x, TensorId scale, TensorId zero_point, const Grid& grid, DType to) {
  const bool fits = is_small_integer(n.dtype(x)) || n.narrow(x) != NarrowType::none;
  if (!fits || !is_known(n, x) || !is_known(n, scale) || !is_known(n, zero_point)) return {};
  const Shape shape = n.shape(x);
  const auto has_one = [&](TensorId parameter) { return !parameter.valid() || element_count(n.shape(parameter)) == 1; };
  const bool is_one = grid.block == 0 && has_one(scale) && has_one(zero_point);
  const size_t axis = is_one ? 0 : static_cast<size_t>(n.axis(grid.axis, static_cast<int64_t>(shape.size()), "attribute 'axis'"));
  Weights w;
  w.dtype = n.dtype(x);
  w.to = to;
  w.outers = is_one ? 1 : product_of(shape, 0, axis);
  w.stored = w.extent = is_one ? element_count(shape) : shape[axis];
  w.inners = is_one ? 1 : product_of(shape, axis + 1, shape.size());
  w.is_loaded = is_loaded(n, x) && is_loaded(n, scale) && is_loaded(n, zero_point);
  if (grid.block > 0) {
    w.block = grid.block;
    w.scale = w.zero = {{}, DType::f32, blocks_of(w.extent, grid.block) * w.inners, w.inners, 1};
  } else {
    w.scale.per_block = has_one(scale) ? 0 : 1;
    w.zero.per_block = has_one(zero_point) ? 0 : 1;
  }
  if (w.is_loaded) {
    w.numbers = n.value(x).data;
    w.scale.data = n.value(scale).data;
    if (zero_point.valid()) w.zero.data = n.value(zero_point).data;
  }
  w.scale.dtype = n.dtype(scale);
  w.zero.dtype = n.dtype(x);
  const Builder::Key key = {key_of(scale), key_of(zero_point), static_cast<int64_t>(axis), grid.block, static_cast<int64_t>(to)};
  return add_weights(n, x, key, shape, std::move(w));
}

TensorId shifted_constant(NodeImport& n, TensorId q, TensorId zero_point) {
  if (bytes_of(n.dtype(q)) > 2 || !n.builder().is_constant(q) || !is_known(n, zero_point)) return {};
  const Shape shape = n.shape(q), zeros = zero_point.valid() ? n.shape(zero_point) : Shape();
  if (zeros.size() > shape.size()) return {};
  size_t axis = 0, axes = 0;  // that the zero point goes along
  for (size_t d = 0; d < zeros.size(); ++d) {
    if (zeros[d] == 1) continue;
    axis = shape.size() - zeros.size() + d;
    ++axes;
    if (zeros[d] != shape[axis]) return {};
  }
  if (axes > 1) return {};
  Weights w;
  w.dtype = n.dtype(q);
  w.to = DType::i32;
  w.outers = axes == 0 ? 1 : product_of(shape, 0, axis);
  w.stored = w.extent = axes == 0 ? element_count(shape) : shape[axis];
  w.inners = axes == 0 ? 1 : product_of(shape, axis + 1, shape.size());
  w.zero.per_block = axes == 0 ? 0 : 1;
  w.is_loaded = is_loaded(n, q) && is_loaded(n, zero_point);
  if (w.is_loaded) {
    w.numbers = n.value(q).data;
    if (zero_point.valid()) w.zero.data = n.value(zero_point).data;
  }
  w.scale.data = n.value(n.constant_f32(1)).data;
  if (zero_point.valid()) w.zero.dtype = n.dtype(zero_point);
  return add_weights(n, q, {key_of(zero_point), static_cast<int64_t>(axis), static_cast<int64_t>(DType::i32)}, shape, std::move(w));
}

// A times the transpose of the weights [N,K], plus the bias.
void import_ms_matmul_n_bits(NodeImport& n) {
  n.expect_counts(3, 6);
  const NBits read = read_n_bits(n);
  const TensorId a = n.in(NBits::kA), b = n.in(NBits::kB), scales = n.in(NBits::kScales), zeros = n.optional_in(NBits::kZeros);
  Weights w;
  w.to = n.dtype(scales);
  w.outers = read.n;
  w.stored = read.blocks() * read.block;
  w.extent = read.k;
  w.block = read.block;
  w.is_loaded = is_loaded(n, b) && is_loaded(n, scales) && is_loaded(n, zeros);
  w.all_zeros = static_cast<float>(int64_t{1} << (read.bits - 1));
  w.scale = {w.is_loaded ? n.value(scales).data : TensorData(), n.dtype(scales), read.blocks(), 1, 0};
  if (zeros.valid()) w.zero = zeros_of(n, read);
  w.block_of = groups_of(n, read);
  if (w.is_loaded) w.numbers = numbers_of_bits(n, b, read.bits);
  const Builder::Key key = {key_of(scales), key_of(zeros), key_of(n.optional_in(NBits::kGroups)), read.n, read.k, read.bits, read.block};
  const TensorId weights = add_weights(n, b, key, {read.n, read.k}, std::move(w));
  TensorId y = rows_by_weights(n, a, weights, /*turned=*/true);
  if (n.has(NBits::kBias)) y = n.elementwise(ElementwiseOp::add, {y, n.in(NBits::kBias)});
  n.result(0, y);
}

namespace {

// What the 16 patterns of bitsandbytes stand for: floats of a sign, two bits of exponent and one of fraction, of which the largest is 1;
// and quantiles of the normal distribution.
constexpr std::array<float, 16> kFp4 = {0.0F,  5.208333333e-03F,  0.66666667F,  1.0F,  0.33333333F,  0.5F,  0.16666667F,  0.25F,
                                        -0.0F, -5.208333333e-03F, -0.66666667F, -1.0F, -0.33333333F, -0.5F, -0.16666667F, -0.25F};
constexpr std::array<float, 16> kNf4 = {
    -1.0F,         -0.6961928010F, -0.5250730515F, -0.3949174881F, -0.2844413817F, -0.1847734302F, -0.0910500363F, 0.0F,
    0.0795802996F, 0.1609302014F,  0.2461123019F,  0.3379152417F,  0.4407098293F,  0.5626170039F,  0.7229568362F,  1.0F};

// Two numbers a byte, the high bits first.
TensorData numbers_of_patterns(const ops::Value& packed, const std::array<float, 16>& numbers, int64_t count) {
  return TensorData::made_by(static_cast<size_t>(count) * sizeof(float), [data = packed.data, numbers, count] {
    const std::shared_ptr<const Bytes> held = data.hold();
    std::vector<float> floats(static_cast<size_t>(count));
    for (size_t i = 0; i < floats.size(); ++i) floats[i] = numbers[static_cast<size_t>((*held)[i / 2]) >> (i % 2 == 0 ? 4 : 0) & 15];
    return packed_bytes(floats);
  });
}

}  // namespace

// The weights [N,K] lie in one row of blocks, whatever K is.
void import_ms_matmul_bnb4(NodeImport& n) {
  n.expect_counts(3, 3);
  const int64_t rows = read_extent(n, "N"), columns = read_extent(n, "K"), block = read_block(n, 0);
  if (columns > kMaxElements / rows) throw n.refuse("{} x {} weights, supported: up to {}", rows, columns, kMaxElements);
  const int64_t count = rows * columns, kind = n.attr_int("quant_type", -1);
  if (kind != 0 && kind != 1) throw n.bad("attribute 'quant_type' is {}, expected 0 (FP4) or 1 (NF4)", kind);
  if (n.attr_flag("training_mode", false)) throw n.refuse("attribute 'training_mode' is 1, supported: 0");
  const bool turned = n.attr_flag("transB", true);
  const TensorId a = n.in(0), b = n.in(1), largest = n.in(2);
  expect_known(n, 1, "B");
  expect_known(n, 2, "absmax");
  if (n.dtype(b) != DType::u8) throw n.bad("input B is {}, expected u8", n.type_text(b));
  expect_count(n, 1, "B", {(count + 1) / 2});
  n.expect_float({a, largest});
  expect_shape(n, 2, "absmax", {blocks_of(count, block)});
  expect_columns(n, turned ? columns : rows);
  Weights w;
  w.dtype = DType::f32;
  w.to = n.dtype(largest);
  w.stored = w.extent = count;
  w.block = block;
  w.is_loaded = is_loaded(n, b) && is_loaded(n, largest);
  w.scale = {w.is_loaded ? n.value(largest).data : TensorData(), n.dtype(largest), 0, 1, 0};
  if (w.is_loaded) w.numbers = numbers_of_patterns(n.value(b), kind == 0 ? kFp4 : kNf4, count);
  const TensorId weights = add_weights(n, b, {key_of(largest), rows, columns, block, kind}, {rows, columns}, std::move(w));
  n.result(0, rows_by_weights(n, a, weights, turned));
}

namespace {

// The table of GatherBlockQuantized: integers of four or two bits by themselves, or in bytes, the lowest first.
struct Table {
  Shape shape;  // of numbers
  int64_t bits = 8;
  bool is_packed = false;
};

Table read_table(NodeImport& n) {
  const TensorId data = n.in(0);
  Table table{n.shape(data), read_bits(n), n.narrow(data) == NarrowType::none};
  if (table.is_packed && n.dtype(data) != DType::u8)
    throw n.refuse("input data is {}, supported: u8, integers of 2 and 4 bits, floats of 4 and 8 bits", n.type_text(data));
  if (table.shape.empty()) throw n.bad("input data is a scalar, expected at least one dimension");
  if (table.is_packed) table.shape.back() *= 8 / table.bits;
  return table;
}

}  // namespace

// Rows of a table, which is dequantised as a whole.
void import_ms_gather_block_quantized(NodeImport& n) {
  enum Input : size_t { kData, kIndices, kScales, kZeros };
  n.expect_counts(3, 4);
  const TensorId data = n.in(kData), indices = n.in(kIndices), scales = n.in(kScales), zeros = n.optional_in(kZeros);
  const Table table = read_table(n);
  const auto rank = static_cast<int64_t>(table.shape.size());
  const int64_t gathered = n.axis(n.attr_int("gather_axis", 0), rank, "attribute 'gather_axis'");
  const int64_t axis = n.axis(n.attr_int("quantize_axis", 1), rank, "attribute 'quantize_axis'");
  const bool is_real = is_float(n.narrow(data));
  const int64_t block = is_real && n.attr_int("block_size", 128) == 0 ? table.shape[static_cast<size_t>(axis)] : read_block(n, 128);
  if (table.is_packed && gathered != 0) throw n.bad("attribute 'gather_axis' is {}, expected 0 for data of u8", gathered);
  if (table.is_packed && axis + 1 != rank && table.bits != 8)
    throw n.refuse("attribute 'quantize_axis' is {} of packed data of rank {}, supported: the last dimension", axis, rank);
  if (is_real && zeros.valid()) throw n.bad("input zero_points is there, expected none for data of {}", n.type_text(data));
  for (const size_t i : {kData, kScales, kZeros}) expect_known(n, i, i == kData ? "data" : i == kScales ? "scales" : "zero_points");
  n.expect_float({scales});
  if (n.dtype(indices) != DType::i64 && n.dtype(indices) != DType::i32)
    throw n.bad("indices are {}, expected i32 or i64", name_of(n.dtype(indices)));

  Shape blocks = table.shape;
  const Shape given = n.shape(scales);
  blocks[static_cast<size_t>(axis)] = blocks_of(table.shape[static_cast<size_t>(axis)], block);
  for (size_t d = 0; is_real && given.size() == blocks.size() && d < given.size(); ++d) {
    if (given[d] == 1 && blocks[d] != 1)
      throw n.refuse("input scales has shape {}, supported: {}, a scale for each block", shape_text(given), shape_text(blocks));
  }
  expect_shape(n, kScales, "scales", blocks);
  Weights w;
  w.dtype = n.dtype(data);
  w.to = n.dtype(scales);
  w.outers = product_of(table.shape, 0, static_cast<size_t>(axis));
  w.stored = w.extent = table.shape[static_cast<size_t>(axis)];
  w.inners = product_of(table.shape, static_cast<size_t>(axis) + 1, table.shape.size());
  w.block = block;
  w.is_loaded = is_loaded(n, data) && is_loaded(n, scales) && is_loaded(n, zeros);
  w.all_zeros = table.is_packed ? static_cast<float>(int64_t{1} << (table.bits - 1)) : 0.0F;
  const int64_t along = blocks[static_cast<size_t>(axis)];
  w.scale = {w.is_loaded ? n.value(scales).data : TensorData(), n.dtype(scales), along * w.inners, w.inners, 1};
  if (zeros.valid()) {
    n.expect_same_dtype({data, zeros});
    Shape wanted = blocks;
    const int64_t in_byte = table.is_packed ? 8 / table.bits : 1;
    wanted.back() = blocks_of(wanted.back(), in_byte);
    expect_shape(n, kZeros, "zero_points", wanted);
    const int64_t row = table.is_packed && table.bits != 8 ? wanted.back() * in_byte : along;  // only along the last dimension
    w.zero = {w.is_loaded ? table.is_packed ? numbers_of_bits(n, zeros, table.bits) : n.value(zeros).data : TensorData(), n.dtype(zeros),
              row * w.inners, w.inners, 1};
  }
  if (w.is_loaded) w.numbers = table.is_packed ? numbers_of_bits(n, data, table.bits) : n.value(data).data;
  const Builder::Key key = {key_of(scales), key_of(zeros), axis, block, table.bits};
  const TensorId rows = add_weights(n, data, key, table.shape, std::move(w));
  const int64_t extent = table.shape[static_cast<size_t>(gathered)];
  for (const int64_t index : n.is_constant(indices) ? n.flat_ints(indices) : Ints()) {
    if (index < -extent || index >= extent) throw n.bad("index {} is outside the {} elements of axis {}", index, extent, gathered);
  }
  n.result(0, n.add(Gather{gathered}, {rows, indices}));
}

}  // namespace tamp::frontend
