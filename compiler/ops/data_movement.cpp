// Operators that only move elements: Reshape, Transpose, Slice, Concat, Pad, Gather. They work on elements as so many
// bytes, whatever the type. verify_shapes has made sure that nothing is read out of bounds, but for Gather, whose indices
// are values.
#include <algorithm>
#include <cstring>

#include "compiler/ops/call.h"
#include "compiler/support/text.h"

namespace tamp::ops {
namespace {

Value value_of_bytes(const Call& call, Bytes bytes) {
  return Value{call.output().dtype, call.output().shape, std::make_shared<const Bytes>(std::move(bytes))};
}

size_t output_size(const Call& call) { return static_cast<size_t>(element_count(call.output().shape) * bytes_of(call.output().dtype)); }

template <class Word>
void copy_words(const std::byte* source, const Shape& shape, const std::vector<int64_t>& strides, int64_t offset, std::byte* target) {
  for_each_offset(shape, strides, offset, [&](int64_t at) {
    std::memcpy(target, source + at * static_cast<int64_t>(sizeof(Word)), sizeof(Word));
    target += sizeof(Word);
  });
}

// The output as a strided walk over the input; offset and strides in elements.
Value strided_copy(const Call& call, int64_t offset, const std::vector<int64_t>& strides) {
  Bytes bytes(output_size(call));
  const std::byte* source = call.input(0).data->data();
  const Shape& shape = call.output().shape;
  switch (bytes_of(call.output().dtype)) {
    case 1: copy_words<uint8_t>(source, shape, strides, offset, bytes.data()); break;
    case 2: copy_words<uint16_t>(source, shape, strides, offset, bytes.data()); break;
    case 4: copy_words<uint32_t>(source, shape, strides, offset, bytes.data()); break;
    case 8: copy_words<uint64_t>(source, shape, strides, offset, bytes.data()); break;
    default: TAMP_CHECK(false, "element size");
  }
  return value_of_bytes(call, std::move(bytes));
}

void append(Bytes& bytes, const std::byte* from, int64_t count) { bytes.insert(bytes.end(), from, from + count); }

// Where each position of one padded dimension comes from; -1 = the constant. Negative pads crop first; the other modes
// then see only what is left.
std::vector<int64_t> pad_sources(const Pad& attrs, size_t d, int64_t in, int64_t out) {
  const int64_t cropped = std::max<int64_t>(0, -attrs.before[d]);
  const int64_t left = in - cropped - std::max<int64_t>(0, -attrs.after[d]);
  std::vector<int64_t> sources;
  for (int64_t o = 0; o < out; ++o) {
    int64_t i = o - std::max<int64_t>(0, attrs.before[d]);
    if (i < 0 || i >= left) {
      const int64_t period = attrs.mode == PadMode::reflect ? std::max<int64_t>(1, 2 * (left - 1)) : left;
      if (attrs.mode == PadMode::constant) {
        sources.push_back(-1);
        continue;
      }
      if (attrs.mode == PadMode::edge) i = std::clamp<int64_t>(i, 0, left - 1);
      if (attrs.mode == PadMode::wrap || attrs.mode == PadMode::reflect) i = (i % period + period) % period;
      if (attrs.mode == PadMode::reflect && i >= left) i = period - i;
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
    append(bytes, from ? from : padding.fill.data(), static_cast<int64_t>(padding.fill.size()));
    return;
  }
  for (const int64_t source : padding.sources[d]) {
    append_padded(padding, d + 1, from && source >= 0 ? from + source * padding.strides[d] : nullptr, bytes);
  }
}

}  // namespace

Value reshape(const Call& call) { return Value{call.output().dtype, call.output().shape, call.input(0).data}; }

Value transpose(const Call& call, const Transpose& attrs) {
  const std::vector<int64_t> dense = dense_strides(call.input(0).shape);
  std::vector<int64_t> strides;
  for (const int64_t axis : attrs.perm) strides.push_back(dense[static_cast<size_t>(axis)]);
  return strided_copy(call, 0, strides);
}

Value slice(const Call& call, const Slice& attrs) {
  std::vector<int64_t> strides = dense_strides(call.input(0).shape);
  int64_t offset = 0;
  for (size_t d = 0; d < strides.size(); ++d) {
    offset += attrs.starts[d] * strides[d];
    strides[d] *= attrs.steps[d];
  }
  return strided_copy(call, offset, strides);
}

Value concat(const Call& call, const Concat& attrs) {
  const Shape& shape = call.output().shape;
  const int64_t outer = product(shape, 0, attrs.axis);
  Bytes bytes;
  bytes.reserve(output_size(call));
  for (int64_t o = 0; o < outer; ++o) {
    for (size_t i = 0; i < call.rop.inputs.size(); ++i) {
      const int64_t row = static_cast<int64_t>(call.input(i).data->size()) / outer;
      append(bytes, call.input(i).data->data() + o * row, row);
    }
  }
  return value_of_bytes(call, std::move(bytes));
}

Value pad(const Call& call, const Pad& attrs) {
  const Value& x = call.input(0);
  const Tensor& output = call.output();
  Padding padding;
  padding.strides = dense_strides(x.shape);
  for (size_t d = 0; d < x.shape.size(); ++d) {
    padding.strides[d] *= bytes_of(x.dtype);
    padding.sources.push_back(pad_sources(attrs, d, x.shape[d], output.shape[d]));
  }
  padding.fill = *value_from<double>(output.dtype, {}, {attrs.value}).data;
  Bytes bytes;
  bytes.reserve(output_size(call));
  append_padded(padding, 0, x.data->data(), bytes);
  return value_of_bytes(call, std::move(bytes));
}

Value gather(const Call& call, const Gather& attrs) {
  const Value& x = call.input(0);
  const Numbers<int64_t> indices(call.input(1));
  const int64_t index_count = element_count(call.input(1).shape);
  const int64_t outer = product(x.shape, 0, attrs.axis);
  const int64_t extent = x.shape[static_cast<size_t>(attrs.axis)];
  const int64_t row = product(x.shape, attrs.axis + 1, static_cast<int64_t>(x.shape.size())) * bytes_of(x.dtype);
  Bytes bytes;
  bytes.reserve(output_size(call));
  for (int64_t i = 0; i < index_count; ++i) {
    if (indices[i] >= -extent && indices[i] < extent) continue;
    throw bad_input(where(call.rop) + ": index " + std::to_string(indices[i]) + " is out of range for axis " + std::to_string(attrs.axis) +
                    " of shape " + shape_text(x.shape));
  }
  for (int64_t o = 0; o < outer; ++o) {
    for (int64_t i = 0; i < index_count; ++i) {
      const int64_t at = indices[i] < 0 ? indices[i] + extent : indices[i];
      append(bytes, x.data->data() + (o * extent + at) * row, row);
    }
  }
  return value_of_bytes(call, std::move(bytes));
}

}  // namespace tamp::ops
