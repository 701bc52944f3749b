#include "kernels/tile/product.h"

#include <algorithm>

#include "kernels/args.h"
#include "kernels/tile/numbers.cuh"

namespace tamp::kernels {
namespace {

template <class ConvOrPrologue>
void set_window(const ConvOrPrologue& attrs, Product& p) {
  for (size_t d = 0; d < attrs.kernel.size(); ++d) {
    const size_t to = d + 2 - attrs.kernel.size();  // a single dimension is w
    p.kernel[to] = attrs.kernel[d];
    p.stride[to] = attrs.strides[d];
    p.dilation[to] = attrs.dilations[d];
    p.pad[to] = attrs.pads_begin[d];
  }
}

std::optional<Product> conv_product(const Graph& graph, const ROperator& rop, const Conv& conv) {
  const Tensor& in = graph.tensor(rop.inputs[0]);
  const Tensor& out = graph.tensor(rop.outputs[0]);
  const size_t spatial = conv.kernel.size();
  if (spatial < 1 || spatial > 2 || in.shape.size() != spatial + 2) return std::nullopt;
  Product p;
  p.groups = conv.group;
  p.channels = out.shape[1] / conv.group;
  p.in_channels = in.shape[1] / conv.group;
  p.depthwise = conv.depthwise.has_value();
  p.pixels[0] = out.shape[0];
  p.in_strides = {in.place.strides[0], in.place.strides[1], 0, 0};
  p.out_strides = {out.place.strides[0], out.place.strides[1], 0, 0};
  for (size_t d = 0; d < spatial; ++d) {
    const size_t to = d + 2 - spatial;  // a single dimension is w
    p.pixels[to + 1] = out.shape[d + 2];
    p.in_extent[to] = in.shape[d + 2];
    p.in_strides[to + 2] = in.place.strides[d + 2];
    p.out_strides[to + 2] = out.place.strides[d + 2];
  }
  if (conv.depthwise)
    set_window(*conv.depthwise, p);
  else
    set_window(conv, p);
  if (rop.epilogue.residual.valid()) {
    const std::vector<int64_t>& strides = graph.tensor(rop.epilogue.residual).place.strides;
    p.residual_strides = {strides[0], strides[1], spatial == 2 ? strides[2] : 0, strides.back()};
  }
  p.weight_stride_tap = 1;
  p.weight_stride_n = p.k();
  p.weight_stride_channel = p.depthwise ? 1 : p.taps();
  p.bias = operand(rop, 2);
  return p;
}

// One dimension of the rows of a MatMul.
struct RowDim {
  int64_t extent, in, out, residual;
};

// Merges dimensions of rows that lie evenly; false if more than three dimensions are left.
bool fold_rows(std::vector<RowDim> dims, Product& p) {
  std::erase_if(dims, [](const RowDim& d) { return d.extent == 1; });
  for (size_t i = dims.size(); i-- > 1;) {
    const RowDim &outer = dims[i - 1], &inner = dims[i];
    if (outer.in != inner.in * inner.extent || outer.out != inner.out * inner.extent || outer.residual != inner.residual * inner.extent)
      continue;
    dims[i - 1] = {outer.extent * inner.extent, inner.in, inner.out, inner.residual};
    dims.erase(dims.begin() + static_cast<std::ptrdiff_t>(i));
  }
  if (dims.size() > 3) return false;
  constexpr std::array<size_t, 3> kStrideOf = {0, 2, 3};
  for (size_t i = 0; i < dims.size(); ++i) {
    const size_t to = i + 3 - dims.size();
    p.pixels[to] = dims[i].extent;
    p.in_strides[kStrideOf[to]] = dims[i].in;
    p.out_strides[kStrideOf[to]] = dims[i].out;
    p.residual_strides[kStrideOf[to]] = dims[i].residual;
  }
  p.in_extent = {p.pixels[1], p.pixels[2]};
  return true;
}

// C of a Gemm: a bias if it is a constant of one value per column, else a residual. False if neither will do.
bool place_c(const Graph& graph, const ROperator& rop, const MatMul& matmul, Product& p) {
  const TensorId c = operand(rop, 2);
  if (!c.valid() || matmul.beta == 0) return true;
  const Tensor& tensor = graph.tensor(c);
  const int64_t count = element_count(tensor.shape);
  if (is_f32_constant(graph, c) && (count == 1 || (tensor.shape.back() == p.channels && count == p.channels))) {
    p.bias = c;
    p.beta = matmul.beta;
    return true;
  }
  if (matmul.beta != 1 || p.residual.valid()) return false;
  p.residual = c;
  p.residual_after_activation = false;
  return true;
}

std::optional<Product> matmul_product(const Graph& graph, const ROperator& rop, const MatMul& matmul) {
  const Tensor& a = graph.tensor(rop.inputs[0]);
  const Tensor& b = graph.tensor(rop.inputs[1]);
  const Tensor& out = graph.tensor(rop.outputs[0]);
  const size_t a_rank = a.shape.size(), b_rank = b.shape.size(), rank = out.shape.size();
  if (a_rank < 2 || b_rank < 2 || rank < 2) return std::nullopt;
  for (size_t i = 0; i + 2 < b_rank; ++i) {
    if (b.shape[i] != 1) return std::nullopt;  // B is a batch of matrices
  }
  Product p;
  const size_t a_row = matmul.trans_a ? a_rank - 1 : a_rank - 2, a_k = matmul.trans_a ? a_rank - 2 : a_rank - 1;
  p.channels = out.shape[rank - 1];
  p.in_channels = a.shape[a_k];
  p.in_strides[1] = a.place.strides[a_k];
  p.out_strides[1] = out.place.strides[rank - 1];
  p.weight_stride_n = matmul.trans_b ? p.in_channels : 1;
  p.weight_stride_channel = matmul.trans_b ? 1 : p.channels;
  p.alpha = matmul.alpha;
  p.residual = rop.epilogue.residual;
  p.residual_after_activation = rop.epilogue.residual_after_activation;
  if (!place_c(graph, rop, matmul, p)) return std::nullopt;

  std::vector<RowDim> dims;
  const Tensor* const residual = p.residual.valid() ? &graph.tensor(p.residual) : nullptr;
  const auto residual_stride = [&](size_t d) {  // broadcast to the output's shape
    const size_t missing = residual == nullptr ? rank : rank - residual->shape.size();
    return d < missing || residual->shape[d - missing] == 1 ? 0 : residual->place.strides[d - missing];
  };
  p.residual_strides[1] = residual_stride(rank - 1);
  for (size_t d = 0; d + 1 < rank; ++d) {
    const size_t missing = rank - a_rank;
    const int64_t in = d + 2 == rank ? a.place.strides[a_row] : d < missing ? 0 : a.place.strides[d - missing];
    dims.push_back({out.shape[d], in, out.place.strides[d], residual_stride(d)});
  }
  if (!fold_rows(std::move(dims), p)) return std::nullopt;
  return p;
}

// Whether bodies take the residual beside the results.
bool residual_fits(const Graph& graph, const Product& p, Activations activations) {
  const auto type_of = [&](TensorId id) { return graph.tensor(id).dtype; };
  if (!p.residual.valid() || type_of(p.residual) == type_of(p.out)) return true;
  const bool bytes = activations == Activations::bytes, has_byte = is_whole_byte(type_of(p.residual)) || is_whole_byte(type_of(p.out));
  if (bytes && has_byte) return p.narrow_in && p.narrow_out;
  return (bytes || activations == Activations::mixed) && !p.narrow_out && p.narrow_in && type_of(p.residual) == type_of(p.in);
}

bool fits_device(const Graph& graph, const ROperator& rop, const Product& p, Activations activations) {
  if (p.rows() <= 0 || p.channels <= 0 || p.k() <= 0) return false;  // empty
  if (!is_f32_constant(graph, p.weights)) return false;
  if (p.bias.valid() && !is_f32_constant(graph, p.bias)) return false;
  const bool bytes = activations == Activations::bytes;
  for (const TensorId id : {p.in, p.out, p.residual}) {
    const auto is_plain = activations == Activations::f32 ? is_plain_f32 : bytes ? is_plain_values_or_bytes : is_plain_values;
    if (id.valid() && !is_plain(graph.tensor(id))) return false;
  }
  if (!residual_fits(graph, p, activations)) return false;
  for (size_t d = 0; d < 2; ++d) {
    if ((p.kernel[d] - 1) * p.dilation[d] > rk::kMostTapDistance) return false;
  }
  return p.rows() < INT32_MAX / 2 && p.k() < INT32_MAX / 2 && p.channels * p.groups < INT32_MAX / 2 && rop.outputs.size() == 1;
}

Tensor view(const Shape& shape, const std::vector<int64_t>& strides, int64_t offset) {
  Tensor t;
  t.shape = shape;
  t.place.strides = strides;
  t.place.offset = offset;
  return t;
}

}  // namespace

std::optional<Product> product_of(const Graph& graph, const ROperator& rop, Activations activations) {
  const auto* conv = std::get_if<Conv>(&rop.attrs);
  if (conv != nullptr && has_prologue(*conv)) return std::nullopt;
  return product_with_prologue(graph, rop, activations);
}

std::optional<Product> product_with_prologue(const Graph& graph, const ROperator& rop, Activations activations) {
  const auto* conv = std::get_if<Conv>(&rop.attrs);
  const auto* matmul = std::get_if<MatMul>(&rop.attrs);
  if (conv == nullptr && matmul == nullptr) return std::nullopt;
  std::optional<Product> p = conv != nullptr ? conv_product(graph, rop, *conv) : matmul_product(graph, rop, *matmul);
  if (!p) return std::nullopt;
  p->in = rop.inputs[0];
  p->out = rop.outputs[0];
  p->weights = rop.inputs[1];
  p->epilogue_bias = rop.epilogue.bias;
  if (conv != nullptr) {
    p->residual = rop.epilogue.residual;
    p->residual_after_activation = rop.epilogue.residual_after_activation;
  }
  const auto is_small = [&](TensorId id) { return is_narrow(graph.tensor(id).dtype) || is_whole_byte(graph.tensor(id).dtype); };
  p->narrow_in = is_small(p->in);
  p->narrow_out = is_small(p->out);
  p->byte_in = is_whole_byte(graph.tensor(p->in).dtype);
  p->in_low = low_of(graph, p->in);
  if (!fits_device(graph, rop, *p, activations)) return std::nullopt;
  return p;
}

WeightRow::WeightRow(const float* data, const Product& p, int64_t group, int64_t n, int64_t tap)
    : channels_(p.pairs ? p.in_channels / 2 : p.in_channels), stride_(p.weight_stride_channel), alpha_(p.alpha) {
  const float* const filter = data + (group * p.channels + n) * p.weight_stride_n;
  if (!p.pairs) {
    first_ = filter + tap * p.weight_stride_tap;
    return;
  }
  const auto of_column = [&](int64_t column) -> const float* {
    if (column < 0 || column >= p.pair_kernel) return nullptr;
    return filter + (tap / p.kernel[1] * p.pair_kernel + column) * p.weight_stride_tap;
  };
  const int64_t left = tap % p.kernel[1] * 2 + p.pair_tap;
  first_ = of_column(left);
  second_ = of_column(left + 1);
}

void WeightRow::copy(std::span<float> to) const {
  float* const into = to.data();
  const int64_t count = std::ssize(to);
  if (first_ == nullptr || count > channels_) {
    for (int64_t channel = 0; channel < count; ++channel) into[channel] = (*this)[channel];
  } else if (stride_ == 1) {
    for (int64_t channel = 0; channel < count; ++channel) into[channel] = alpha_ * first_[channel];
  } else {
    for (int64_t channel = 0; channel < count; ++channel) into[channel] = alpha_ * first_[channel * stride_];
  }
}

std::span<float> WeightColumns::column(int64_t n) {
  if (n % kTogether == 0) read(n, std::min(kTogether, product_.channels - n));
  return {some_.data() + n % kTogether * line(), static_cast<size_t>(product_.k())};
}

void WeightColumns::read(int64_t first, int64_t count) {
  const int64_t k = product_.k(), lines = line(), step = product_.weight_stride_n, stride = product_.weight_stride_channel;
  some_.resize(static_cast<size_t>(count * lines));
  float* const to = some_.data();
  if (product_.pairs || step >= stride) {
    for (int64_t n = 0; n < count; ++n) WeightRow(data_, product_, 0, first + n, 0).copy({to + n * lines, static_cast<size_t>(k)});
    return;
  }
  const float alpha = product_.alpha;
  for (int64_t i = 0; i < k; ++i) {
    const float* const from = data_ + first * step + i * stride;
    for (int64_t n = 0; n < count; ++n) to[n * lines + i] = alpha * from[n * step];
  }
}

float weight_at(const float* data, const Product& p, int64_t group, int64_t n, int64_t k) {
  return WeightRow(data, p, group, n, k / p.in_channels)[k % p.in_channels];
}

bool has_bias(const Product& p) { return p.bias.valid() || p.epilogue_bias.valid() || p.in_low != 0; }

std::vector<float> bias_of(const Graph& graph, const Product& p) {
  std::vector<float> sum(static_cast<size_t>(p.groups * p.channels), 0.0F);
  const auto add = [&](TensorId id, float factor) {
    if (!id.valid()) return;
    const float* const values = f32_data(graph.tensor(id));
    const size_t step = element_count(graph.tensor(id).shape) == 1 ? 0 : 1;
    for (size_t n = 0; n < sum.size(); ++n) sum[n] += factor * values[n * step];
  };
  add(p.bias, p.beta);
  add(p.epilogue_bias, 1);
  if (p.in_low == 0) return sum;
  const float* const weights = f32_data(graph.tensor(p.weights));
  for (size_t n = 0; n < sum.size(); ++n) {
    double all = 0;
    for (int64_t tap = 0; tap < p.taps(); ++tap) {
      const WeightRow row(weights, p, static_cast<int64_t>(n) / p.channels, static_cast<int64_t>(n) % p.channels, tap);
      for (int64_t channel = 0; channel < p.in_channels; ++channel) all += static_cast<double>(row[channel]);
    }
    sum[n] = static_cast<float>(sum[n] + static_cast<double>(p.in_low) * all);
  }
  return sum;
}

bool has_vector_channels(const Tensor& tensor, const std::array<int64_t, 4>& strides, int64_t channels, int64_t width) {
  return strides[1] == 1 && channels % width == 0 && tensor.place.offset % width == 0 && strides[0] % width == 0 &&
         strides[2] % width == 0 && strides[3] % width == 0;
}

void append_rows(const Product& p, TensorId id, int64_t offset, const std::array<int64_t, 4>& strides, int64_t first, int64_t last,
                 int64_t begin, int64_t end, std::vector<Region>& regions) {
  last = std::min(last, p.rows());
  if (first >= last || begin >= end) return;
  const Tensor t = view({p.pixels[0], p.pixels[1], p.pixels[2], end - begin}, {strides[0], strides[2], strides[3], strides[1]},
                        offset + begin * strides[1]);
  for (const Run& run : flat_runs(t, first * (end - begin), last * (end - begin))) regions.push_back({id, run});
}

void append_input(const Graph& graph, const Product& p, int64_t first, int64_t last, int64_t begin, int64_t end,
                  std::vector<Region>& regions) {
  last = std::min(last, p.rows());
  if (first >= last || begin >= end) return;
  // The box of output pixels: a dimension is whole where an outer one takes more than one value.
  std::array<int64_t, 3> low{}, high{};
  int64_t a = first, b = last - 1;
  for (size_t d = 3; d-- > 0;) {
    low[d] = a % p.pixels[d];
    high[d] = b % p.pixels[d] + 1;
    a /= p.pixels[d];
    b /= p.pixels[d];
    if (a != b) low[d] = 0, high[d] = p.pixels[d];
  }
  for (size_t d = 0; d < 2; ++d) {
    low[d + 1] = std::max<int64_t>(0, low[d + 1] * p.stride[d] - p.pad[d]);
    high[d + 1] = std::min(p.in_extent[d], (high[d + 1] - 1) * p.stride[d] - p.pad[d] + (p.kernel[d] - 1) * p.dilation[d] + 1);
  }
  const Tensor t = view({p.pixels[0], p.in_extent[0], p.in_extent[1], end},
                        {p.in_strides[0], p.in_strides[2], p.in_strides[3], p.in_strides[1]}, graph.tensor(p.in).place.offset);
  for (const Run& run : box_runs(t, {low[0], low[1], low[2], begin}, {high[0], high[1], high[2], end})) regions.push_back({p.in, run});
}

}  // namespace tamp::kernels
