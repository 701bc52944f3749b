// Pad: a constant or repeated elements around a tensor; negative pads crop.
#include <algorithm>

#include "compiler/ops/operator.h"

namespace tamp::ops {

// Negative pads crop first; then reflect, edge, and wrap take from what is left.
TensorTypes infer(const Pad& op, const Given& given) {
  given.expect(1);
  const Shape& x = given.shape(0);
  given.expect_entries(op.before, "before", x.size());
  given.expect_entries(op.after, "after", x.size());
  Shape result;
  for (size_t d = 0; d < x.size(); ++d) {
    const int64_t before = op.before[d], after = op.after[d];
    const std::string pads = "pads " + std::to_string(before) + " and " + std::to_string(after);
    const int64_t left = x[d] + std::min<int64_t>(before, 0) + std::min<int64_t>(after, 0);
    if (left < 0) throw bad_input("{} remove more than the {} elements of dimension {}", pads, x[d], d);
    const bool takes = op.mode != PadMode::constant && std::max(before, after) > 0;
    if (takes && (left == 0 || (op.mode == PadMode::reflect && std::max(before, after) >= left)))
      throw bad_input("{} of dimension {}, which has {} elements to take from", pads, d, left);
    result.push_back(left + std::max<int64_t>(before, 0) + std::max<int64_t>(after, 0));
  }
  return {{given.dtype(0), result}};
}

namespace {

// Where each position of one padded dimension comes from; -1 = the constant. Negative pads crop first; the other modes
// then see only what is left.
std::vector<int64_t> pad_sources(const Pad& op, size_t d, int64_t in, int64_t out) {
  const int64_t cropped = std::max<int64_t>(0, -op.before[d]);
  const int64_t left = in - cropped - std::max<int64_t>(0, -op.after[d]);
  std::vector<int64_t> sources;
  for (int64_t o = 0; o < out; ++o) {
    int64_t i = o - std::max<int64_t>(0, op.before[d]);
    if (i < 0 || i >= left) {
      const int64_t period = op.mode == PadMode::reflect ? std::max<int64_t>(1, 2 * (left - 1)) : left;
      if (op.mode == PadMode::constant) {
        sources.push_back(-1);
        continue;
      }
      if (op.mode == PadMode::edge) i = std::clamp<int64_t>(i, 0, left - 1);
      if (op.mode == PadMode::wrap || op.mode == PadMode::reflect) i = (i % period + period) % period;
      if (op.mode == PadMode::reflect && i >= left) i = period - i;
    }
    sources.push_back(cropped + i);
  }
  return sources;
}

struct Padding {
  std::vector<std::vector<int64_t>> sources;  // per dimension
  std::vector<int64_t> strides;               // of the input, in bytes
  Bytes fill;                                 // one element
};

// Appends the sub-tensor of dimensions d.. that begins at `from` (null: all constant).
void append_padded(const Padding& padding, size_t d, const std::byte* from, Bytes& bytes) {
  if (d == padding.sources.size()) {
    const std::byte* element = from ? from : padding.fill.data();
    bytes.insert(bytes.end(), element, element + padding.fill.size());
    return;
  }
  for (const int64_t source : padding.sources[d]) {
    append_padded(padding, d + 1, from && source >= 0 ? from + source * padding.strides[d] : nullptr, bytes);
  }
}

}  // namespace

std::vector<Value> evaluate(const Pad& op, const Call& call) {
  const Value& x = call.input(0);
  const Tensor& output = call.output();
  Padding padding;
  padding.strides = dense_strides(x.shape);
  for (size_t d = 0; d < x.shape.size(); ++d) {
    padding.strides[d] *= bytes_of(x.dtype);
    padding.sources.push_back(pad_sources(op, d, x.shape[d], output.shape[d]));
  }
  padding.fill = *value_from<double>(output.dtype, {}, {op.value}).data;
  Bytes bytes;
  bytes.reserve(output_bytes(call));
  append_padded(padding, 0, x.data->data(), bytes);
  return {output_of(call, std::move(bytes))};
}

Traits traits_of(const Pad& op) {
  const auto is_zero = [](int64_t pad) { return pad == 0; };
  const bool adds_none = std::all_of(op.before.begin(), op.before.end(), is_zero) && std::all_of(op.after.begin(), op.after.end(), is_zero);
  return {Layout::like_largest, InF32::none, /*is_identity=*/adds_none && !ends_at_length(op)};
}

int64_t own_work(const Pad&, const Given&, const TensorTypes&) { return 0; }

}  // namespace tamp::ops
